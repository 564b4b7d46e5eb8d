//! [`Bands`]: the rows of a source as they come, and whether they are those that were announced.

use super::{GeometryError, Rect};
use crate::image::Pixels;
use crate::write::announced;

/// What a stream knows of the source that it is given.
#[derive(Debug)]
pub(super) struct Bands {
    /// The rows and columns that come.
    pub(super) part: Rect,
    pub(super) channels: usize,
    /// 1 for planar bands, the channels for interleaved ones; 0 before the first.
    pub(super) pixel: usize,
    /// The next source row.
    pub(super) at: usize,
}

impl Bands {
    /// Nothing has come yet of `part`.
    pub(super) fn new(part: Rect, channels: usize) -> Self {
        Self { part, channels, pixel: 0, at: part.top }
    }

    /// Counts `band`, and says which source row it begins with.
    ///
    /// # Errors
    /// As [`super::Stream::push`].
    pub(super) fn take(&mut self, band: &Pixels<'_>) -> Result<usize, GeometryError> {
        let end = self.part.top + self.part.height;
        announced(band, self.channels, self.part.width, end - self.at)?;
        if self.pixel != 0 && self.pixel != band.pixel {
            return Err(GeometryError::Channels { image: band.pixel, map: self.pixel });
        }
        self.pixel = band.pixel;
        let first = self.at;
        self.at += band.height;
        Ok(first)
    }
}
