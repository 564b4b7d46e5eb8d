//! [`Unfinished`]: an image that a device finishes: what is known of it, before its pixels or coefficients.
//!
//! A record is this structure, then what its offsets (`…_at`, in bytes from the record's beginning) point to: weights of
//! both axes, and either pixels or quantized coefficients. The kernels of wellfed-cuda read it as
//! `kernels/unfinished.h` declares it: the two are the same, byte by byte, in the machine's byte order.

use std::mem::offset_of;

/// What a record holds.
pub mod kind {
    /// Pixels of 8 bits, plane after plane.
    pub const PIXELS: u32 = 0;
    /// Quantized coefficients, as `wellfed_jpeg::Form::Plain`.
    pub const COEFFICIENTS: u32 = 1;
    /// Quantized coefficients, as `wellfed_jpeg::Form::Packed`.
    pub const PACKED: u32 = 2;
    /// Huffman codes that can be read from several places, as `wellfed_jpeg::Form::Huffman`.
    pub const HUFFMAN: u32 = 4;
    /// A JPEG as it is, which nvJPEG decodes: all of its pixels, of which a part is used.
    pub const JPEG: u32 = 3;
}

/// What the components are.
pub mod colour {
    /// One, of grey.
    pub const GREY: u32 = 0;
    /// Brightness and two differences.
    pub const YCBCR: u32 = 1;
    /// Red, green and blue.
    pub const RGB: u32 = 2;
}

/// How a plane of samples reaches the resolution of the image.
pub mod upsampling {
    /// It has it.
    pub const NONE: u32 = 0;
    /// Twice as wide by a triangle filter.
    pub const H2V1: u32 = 1;
    /// Twice as high by a triangle filter.
    pub const H1V2: u32 = 2;
    /// Both.
    pub const H2V2: u32 = 3;
    /// Samples are repeated.
    pub const REPEAT: u32 = 4;
}

/// Records begin at multiples of so many bytes.
pub const ALIGNMENT: usize = 16;

/// One component: coefficients of blocks, and the samples that they become.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Where its coefficients are.
    pub at: u32,
    /// The plane's column of samples that the first block begins with.
    pub left: u32,
    /// Its row.
    pub top: u32,
    /// Groups of four blocks in a block row.
    pub groups: u32,
    /// Block rows.
    pub rows: u32,
    /// Columns of samples that the image reaches.
    pub width: u32,
    /// Rows of them.
    pub height: u32,
    /// One of [`upsampling`].
    pub upsampling: u32,
    /// How often samples are repeated across.
    pub across: u32,
    /// And down.
    pub down: u32,
    /// Blocks in an MCU, across.
    pub h: u32,
    /// And down.
    pub v: u32,
    /// Number of its Huffman table for DC.
    pub dc: u32,
    /// And for AC.
    pub ac: u32,
    /// What coefficients are multiplied by, by row and column.
    pub quant: [u16; 64],
}

/// An image that a device finishes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Unfinished {
    /// Length of the record.
    pub bytes: u32,
    /// One of [`kind`].
    pub kind: u32,
    /// One of [`colour`].
    pub colour: u32,
    /// Planes of pixels or coefficients: 1 or 3.
    pub planes: u32,
    /// The first column of the pixels that are made first, in the image.
    pub left: u32,
    /// Their first row.
    pub top: u32,
    /// How many columns of them.
    pub width: u32,
    /// How many rows.
    pub height: u32,
    /// Where pixels are, plane after plane without gaps, or where coefficients begin, from where their row tables count.
    pub data_at: u32,
    /// Columns of the finished image.
    pub out_width: u32,
    /// Rows of it.
    pub out_height: u32,
    /// Where the weights of the horizontal pass are, or 0: for each column the first sample, as a place among the
    /// `width`, in 32 bits; then `column_taps` weights for each.
    pub columns_at: u32,
    /// Weights of a column.
    pub column_taps: u32,
    /// Without weights: the first column that is kept.
    pub column_skip: u32,
    /// As `columns_at`, of the vertical pass.
    pub rows_at: u32,
    /// Weights of a row.
    pub row_taps: u32,
    /// Without weights: the first row that is kept.
    pub row_skip: u32,
    /// Whether the vertical pass comes first.
    pub vertical_first: u32,
    /// Whether the finished image is mirrored left to right.
    pub flip_h: u32,
    /// Whether it is turned upside down.
    pub flip_v: u32,
    /// Columns of the whole image, of a JPEG.
    pub full_width: u32,
    /// Rows of it.
    pub full_height: u32,
    /// Bytes of a JPEG.
    pub data_bytes: u32,
    /// The first column of MCUs that is kept, of Huffman codes.
    pub mcu_left: u32,
    /// Where the places are that codes can be read from.
    pub segments_at: u32,
    /// How many.
    pub segments: u32,
    /// Where Huffman tables are.
    pub tables_at: u32,
    /// How many, at most 4.
    pub tables: u32,
    /// Where the codes are.
    pub codes_at: u32,
    /// Bytes of them, a multiple of 4.
    pub codes: u32,
    /// Where the [`crate::recipe::Recipe`] is of what follows, as it encodes itself.
    pub recipe_at: u32,
    /// Bytes of it, 0 if nothing follows but the map to elements.
    pub recipe_bytes: u32,
    /// Channels that it begins with, 1 or 3.
    pub recipe_channels: u32,
    /// Zero.
    pub padding: u32,
    /// Where in the device's scratch memory the coefficients are unpacked. Zero in records that are not on their way.
    pub coefficients: u64,
    /// Where the samples of each plane go.
    pub samples: [u64; 3],
    /// Where the pixels go.
    pub rgb: u64,
    /// Where the pixels between the passes go.
    pub middle: u64,
    /// The components, if there are coefficients.
    pub plane: [Plane; 3],
}

const _: () = assert!(size_of::<Plane>() == 184 && size_of::<Unfinished>() == 736);
const _: () = assert!(offset_of!(Unfinished, coefficients) == 136 && offset_of!(Unfinished, plane) == 184);

impl Plane {
    /// Groups in all rows.
    pub fn count(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.rows)
    }
}

impl Unfinished {
    /// Bytes of the structure.
    pub const BYTES: usize = size_of::<Self>();

    /// One with zeros everywhere.
    pub fn new() -> Self {
        let plane = Plane {
            at: 0,
            left: 0,
            top: 0,
            groups: 0,
            rows: 0,
            width: 0,
            height: 0,
            upsampling: upsampling::NONE,
            across: 0,
            down: 0,
            h: 1,
            v: 1,
            dc: 0,
            ac: 0,
            quant: [0; 64],
        };
        Self {
            bytes: 0,
            kind: kind::PIXELS,
            colour: colour::RGB,
            planes: 3,
            left: 0,
            top: 0,
            width: 0,
            height: 0,
            data_at: 0,
            out_width: 0,
            out_height: 0,
            columns_at: 0,
            column_taps: 0,
            column_skip: 0,
            rows_at: 0,
            row_taps: 0,
            row_skip: 0,
            vertical_first: 0,
            flip_h: 0,
            flip_v: 0,
            full_width: 0,
            full_height: 0,
            data_bytes: 0,
            mcu_left: 0,
            segments_at: 0,
            segments: 0,
            tables_at: 0,
            tables: 0,
            codes_at: 0,
            codes: 0,
            recipe_at: 0,
            recipe_bytes: 0,
            recipe_channels: 0,
            padding: 0,
            coefficients: 0,
            samples: [0; 3],
            rgb: 0,
            middle: 0,
            plane: [plane; 3],
        }
    }

    /// Reads the one that `record` begins with; `None` if it is too short.
    pub fn read(record: &[u8]) -> Option<Self> {
        let bytes = record.get(..Self::BYTES)?;
        // SAFETY: the structure is numbers without padding, of which any bits are some, and the bytes are there.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }

    /// Writes it over the beginning of `record`, which is at least as long.
    ///
    /// # Panics
    /// If it is not.
    pub fn write(&self, record: &mut [u8]) {
        let to = &mut record[..Self::BYTES];
        // SAFETY: the structure is numbers without padding, so all its bytes are there.
        let from = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<u8>(), Self::BYTES) };
        to.copy_from_slice(from);
    }
}

impl Default for Unfinished {
    fn default() -> Self {
        Self::new()
    }
}
