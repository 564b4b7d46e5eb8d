//! [`Kernel`]: runs a fold on rows as they come, into the place of the finished image.

use wellfed_kernels::{
    image::Pixels,
    resample::{Rect, Resizer, Stream},
    write::{Output, Writer},
};

use super::fold::Fold;
use crate::{Error, Result, transform};

/// Memory that is used again from image to image.
#[derive(Debug, Default)]
pub(crate) struct KernelScratch {
    pub(crate) resizer: Resizer,
    /// Rows that are put together, where a window is padded.
    lines: Vec<u8>,
}

impl KernelScratch {
    /// Bytes kept allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.resizer.capacity() + self.lines.capacity()
    }
}

/// A fold under way.
pub(crate) enum Kernel<'a> {
    Resize(Stream<'a>),
    Write(Writer<'a>),
}

impl<'a> Kernel<'a> {
    /// Gets ready for the pixels of `needed`, with `channels` channels: both as [`Fold::settled`] gave them.
    pub(crate) fn new(
        fold: &Fold,
        needed: transform::Rect,
        channels: usize,
        scratch: &'a mut KernelScratch,
        output: Output<'a>,
        slot: &'a mut [u8],
    ) -> Result<Self> {
        let transform::Rect { top, left, height, width } = needed;
        let kernel = match fold.kernel_resize() {
            Some(resize) => {
                let part = Rect { top: top - fold.crop.top, left: left - fold.crop.left, height, width };
                let source = (fold.crop.height, fold.crop.width);
                scratch.resizer.stream(&resize, source, part, channels, output, slot).map(Self::Resize)
            }
            None => {
                let lines = &mut scratch.lines;
                Writer::new((height, width), channels, fold.window, fold.pad, output, slot, lines)
                    .map(Self::Write)
            }
        };
        kernel.map_err(Error::from)
    }

    /// Takes the next rows.
    pub(crate) fn push(&mut self, band: Pixels<'_>) -> Result<()> {
        match self {
            Self::Resize(stream) => stream.push(band),
            Self::Write(writer) => writer.push(band),
        }
        .map_err(Error::from)
    }

    /// Checks that all rows came.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Resize(stream) => stream.finish(),
            Self::Write(writer) => writer.finish(),
        }
        .map_err(Error::from)
    }
}
