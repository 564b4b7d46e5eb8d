//! [`Weights`]: what a resize multiplies with, for whoever runs its passes elsewhere (a GPU).
//!
//! A pass makes output sample `o` of a line: `(2^21 + sum of weight[t] * source[start + t]) >> 22`, clamped to 0..=255.

use std::sync::Arc;

use super::axis::{Axis, PRECISION};
use super::{GeometryError, Resize, Resizer, Span, Way, vertical_first};

/// The weights of both passes of a resize.
#[derive(Clone, Debug)]
pub struct Weights {
    rows: Option<Arc<Axis>>,
    columns: Option<Arc<Axis>>,
    /// Whether the vertical pass comes first.
    pub vertical_first: bool,
}

impl Weights {
    /// Those of the vertical pass; `None` where the height stays and there is none.
    pub fn rows(&self) -> Option<AxisWeights<'_>> {
        self.rows.as_deref().map(AxisWeights)
    }

    /// Those of the horizontal pass; `None` where the width stays and there is none.
    pub fn columns(&self) -> Option<AxisWeights<'_>> {
        self.columns.as_deref().map(AxisWeights)
    }
}

/// The weights along one axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisWeights<'a>(&'a Axis);

impl<'a> AxisWeights<'a> {
    /// The most source samples that an output sample has.
    pub fn taps(&self) -> usize {
        self.0.taps()
    }

    /// First source sample of output sample `o`, and its weights with 22 fractional bits.
    pub fn at(&self, o: usize) -> (usize, &'a [i32]) {
        if self.0.picks() { (self.0.start(o), &[1 << PRECISION]) } else { self.0.at(o) }
    }
}

impl Resizer {
    /// The weights of a resize of `height` x `width` pixels; `None` for those of OpenCV, which are no two passes.
    ///
    /// # Errors
    /// As [`Resizer::resize`], but for the pixels.
    pub fn weights(
        &mut self,
        resize: &Resize,
        (height, width): (usize, usize),
    ) -> Result<Option<Weights>, GeometryError> {
        resize.check((height, width))?;
        if Way::of(resize, (height, width)) != Way::Weighted {
            return Ok(None);
        }
        let mut axis = |input: Span, output| {
            (!input.keeps(output)).then(|| self.cache.axis(input, output, resize.filter))
        };
        let rows = axis(resize.rows(height), resize.height);
        let columns = axis(resize.columns(width), resize.width);
        let vertical_first =
            !resize.filter.is_torch() && vertical_first((height, width), (resize.height, resize.width));
        Ok(Some(Weights { rows, columns, vertical_first }))
    }
}
