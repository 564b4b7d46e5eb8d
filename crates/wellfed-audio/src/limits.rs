//! Upper bounds for what a file may ask for, checked before memory is allocated.

use crate::{Error, ErrorKind, Result};

/// Upper bounds for sizes that the file controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Samples, of all channels together, of the segment that is decoded. Default: 2^28, which as float32 takes 1 GiB: 93 minutes
    /// of one channel at 48 kHz.
    pub max_samples: u64,
    /// Channels. Default: 64.
    pub max_channels: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_samples: 1 << 28, max_channels: 64 }
    }
}

impl Limits {
    pub(crate) fn check_channels(&self, channels: u32) -> Result<()> {
        if channels == 0 {
            return Err(Error::new(ErrorKind::Corrupt, "a sound without channels"));
        }
        if channels > self.max_channels {
            let text = format!("a sound of {channels} channels; the limit is {}", self.max_channels);
            return Err(Error::new(ErrorKind::Limit, text));
        }
        Ok(())
    }

    pub(crate) fn check_samples(&self, frames: u64, channels: u32) -> Result<()> {
        let samples = frames.saturating_mul(u64::from(channels));
        if samples > self.max_samples {
            let text = format!(
                "a sound of {frames} frames of {channels} channels; the limit is {} samples",
                self.max_samples
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
        Ok(())
    }
}
