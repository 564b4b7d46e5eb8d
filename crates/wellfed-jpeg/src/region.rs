//! What part of an image is wanted, and at what scale.

/// A rectangle of pixels of the image, at the scale of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// How much smaller an image is decoded, by taking fewer frequencies: libjpeg's `scale_denom` and Pillow's
/// `draft`. Faster, and not what resampling the full image gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scale {
    /// As stored.
    #[default]
    Full,
    /// Half the sides, rounded up.
    Half,
    /// A quarter of the sides, rounded up.
    Quarter,
    /// An eighth of the sides, rounded up.
    Eighth,
}

impl Scale {
    /// Width and height of the output for an image of `width` x `height`.
    pub fn size(self, width: usize, height: usize) -> (usize, usize) {
        ((width * self.block()).div_ceil(8), (height * self.block()).div_ceil(8))
    }

    /// Pixels along the side of a block.
    pub(crate) fn block(self) -> usize {
        match self {
            Scale::Full => 8,
            Scale::Half => 4,
            Scale::Quarter => 2,
            Scale::Eighth => 1,
        }
    }
}
