//! Upper bounds for what a file may ask for, checked before memory is allocated or time is spent.

use crate::{Error, ErrorKind, Result};

/// Upper bounds for sizes and work that the file controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pixels of the whole image. Default: 178,956,970, at which Pillow refuses to open an image.
    pub max_pixels: u64,
    /// Scans of a progressive image, and of one whose components lie in several scans. Default: 500, as
    /// libjpeg-turbo's own tools take; encoders write about ten.
    pub max_scans: u32,
    /// Bytes of coefficients that an image may take which is not decoded in one go (progressive, or its
    /// components in several scans): two for each sample. Default: 512 MiB, a 4:4:4 image of 89 megapixels.
    pub max_coefficient_bytes: u64,
    /// Blocks that all scans of an image may visit together: what bounds the time of a small file that has a large
    /// image in many empty scans. Default: 2^28, 64 scans over each component of the largest image.
    pub max_block_visits: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
            max_scans: 500,
            max_coefficient_bytes: 512 << 20,
            max_block_visits: 1 << 28,
        }
    }
}

impl Limits {
    pub(crate) fn check(what: &str, value: u64, limit: u64, unit: &str) -> Result<()> {
        if value <= limit {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Limit, format!("JPEG {what} {value} {unit}; the limit is {limit}")))
    }
}
