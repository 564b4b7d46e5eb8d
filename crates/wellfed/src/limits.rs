//! Limits on what one sample may ask for, checked before memory is allocated.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Upper bounds for sizes that input controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Pixels (height times width) of one decoded image. Default: 178,956,970, Pillow's bomb *error* limit.
    pub max_pixels: u64,
    /// Bytes of one encoded field (file or tar member). Default: 1 GiB.
    pub max_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // Pillow: MAX_IMAGE_PIXELS = 1024^3 // 4 // 3 warns; twice that is an error.
        Self { max_pixels: 2 * (1024 * 1024 * 1024 / 4 / 3), max_bytes: 1 << 30 }
    }
}

impl Limits {
    /// Accepts an image of `height` x `width` pixels, or says by how much it is too large.
    pub fn check_pixels(&self, height: usize, width: usize) -> Result<()> {
        let pixels = (height as u64).saturating_mul(width as u64);
        if pixels > self.max_pixels {
            return Err(Error::limit(
                &format!("image of {width}x{height}"),
                pixels,
                self.max_pixels,
                "pixels",
            )
            .with_hint("raise it with with_options(max_pixels=...) if the image is meant to be this large"));
        }
        Ok(())
    }

    /// Accepts an encoded field of `bytes`, or says by how much it is too large.
    pub fn check_bytes(&self, what: &str, bytes: u64) -> Result<()> {
        if bytes > self.max_bytes {
            return Err(Error::limit(what, bytes, self.max_bytes, "bytes")
                .with_hint("raise it with with_options(max_bytes=...) if the file is meant to be this large")
                .with_size(bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_at_the_limit_pass_and_above_fail_with_numbers() {
        let limits = Limits { max_pixels: 100, max_bytes: 10 };
        assert!(limits.check_pixels(10, 10).is_ok());
        let e = limits.check_pixels(10, 11).unwrap_err();
        assert!(e.message().contains("110") && e.message().contains("100"), "{e}");
        assert!(limits.check_pixels(usize::MAX, usize::MAX).is_err());
        assert!(limits.check_bytes("file", 11).is_err());
    }
}
