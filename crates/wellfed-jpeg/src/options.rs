//! What to decode, and what a decode gave.

use crate::index::RowIndex;
use crate::kernels;
use crate::memory::Ask;
use crate::output::Format;
use crate::{Limits, Region, Scale};

/// Which inverse DCT makes pixels of coefficients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dct {
    /// libjpeg's accurate one for whole numbers (`JDCT_ISLOW`), which nearly all libraries use.
    #[default]
    Accurate,
    /// libjpeg's fast one for whole numbers (`JDCT_IFAST`), which TensorFlow uses. At scale 1 only.
    Fast,
}

impl Dct {
    /// What coefficients are multiplied by.
    pub(crate) fn tables(self, quant: &[[u16; 64]; 4]) -> [[u16; 64]; 4] {
        match self {
            Dct::Accurate => *quant,
            Dct::Fast => std::array::from_fn(|c| kernels::fast_multipliers(&quant[c])),
        }
    }
}

/// What to decode, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The pixels that are wanted, at the scale of the output; `None` for all.
    pub region: Option<Region>,
    /// Channels of the output.
    pub format: Format,
    /// How much smaller than stored.
    pub scale: Scale,
    /// The inverse DCT. [`Dct::Fast`] at another scale than 1 is an error.
    pub dct: Dct,
    /// Decode what there is of a file that was cut short, as libjpeg does; what is missing is grey or as rough as
    /// the scans before left it. Otherwise such a file is an error, as for Pillow.
    pub tolerant: bool,
    /// Upper bounds for sizes and work.
    pub limits: Limits,
    /// Where rows begin, from an earlier decode of the same file. Of another file's it takes no notice.
    pub index: Option<&'a RowIndex>,
    /// Note where rows begin: [`Decoder::take_index`](crate::Decoder::take_index).
    pub record: bool,
    /// Is asked before memory is taken whose size the file decides.
    pub ask: Ask<'a>,
}

/// What a decode gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Columns of the region.
    pub width: usize,
    /// Rows of the region.
    pub height: usize,
    /// Channels.
    pub channels: usize,
}
