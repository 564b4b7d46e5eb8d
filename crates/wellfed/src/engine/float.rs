//! Floating point pixels, one transform at a time: what runs where a plan cannot be fused into the write, and the
//! oracle that fused programs are compared with.
//!
//! Elements are kept as float32 and rounded to the image's element type after each operation, as torch does.

use wellfed_kernels::{
    image::{Dtype, Layout, View},
    points::{PointOp, Value, apply},
};

use crate::{
    Error, ErrorKind, Result,
    plan::field::point,
    transform::{Action, AddedNoise, EraseValue, PaddingMode, Patch, Size},
};

/// An image of channel planes.
#[derive(Debug)]
pub(crate) struct FloatImage {
    planes: Vec<f32>,
    spare: Vec<f32>,
    size: Size,
    dtype: Dtype,
}

impl Default for FloatImage {
    fn default() -> Self {
        let size = Size { height: 0, width: 0, channels: 1 };
        Self { planes: Vec::new(), spare: Vec::new(), size, dtype: Dtype::U8 }
    }
}

impl FloatImage {
    pub(crate) fn capacity(&self) -> usize {
        4 * (self.planes.capacity() + self.spare.capacity())
    }

    pub(crate) fn bytes(&self) -> usize {
        4 * self.planes.len()
    }

    /// Makes sure of memory for `elements`, before and after a step.
    ///
    /// # Errors
    /// `Limit` if there is none.
    pub(crate) fn make_room(&mut self, elements: usize) -> Result<()> {
        for memory in [&mut self.planes, &mut self.spare] {
            memory.clear();
            memory.try_reserve_exact(elements).map_err(|_| Error::memory(4 * elements, "pixels"))?;
        }
        Ok(())
    }

    /// Takes 8-bit pixels.
    pub(crate) fn load(&mut self, view: View<'_>) {
        self.size = Size { height: view.height(), width: view.width(), channels: view.channels() };
        self.dtype = Dtype::U8;
        self.planes.clear();
        for c in 0..self.size.channels {
            for y in 0..self.size.height {
                self.planes
                    .extend(view.row(y).iter().skip(c).step_by(self.size.channels).map(|&v| f32::from(v)));
            }
        }
    }

    /// Applies one action.
    pub(crate) fn run(&mut self, action: &mut Action) -> Result<()> {
        if let Some(op) = point(action) {
            return self.points(&op);
        }
        let Size { height, width, channels } = self.size;
        match action {
            Action::Keep => {}
            &mut Action::Flip { horizontal, vertical } => self.remap(height, width, |_, y, x| {
                let y = if vertical { height - 1 - y } else { y };
                Ok((y, if horizontal { width - 1 - x } else { x }))
            }),
            &mut (Action::Crop(rect) | Action::CropAround(rect)) => {
                self.remap(rect.height, rect.width, |_, y, x| Ok((rect.top + y, rect.left + x)))
            }
            &mut Action::PadCrop { top, left, height: rows, width: columns, mode, ref fill, .. } => {
                let fill = *fill;
                self.remap(rows, columns, |c, y, x| {
                    let y = border(top + y as i64, height, mode);
                    let x = border(left + x as i64, width, mode);
                    y.zip(x).ok_or(fill.channel(c.min(channels - 1)) as f32)
                });
                let dtype = self.dtype;
                self.each(|_, x| round(x, dtype));
            }
            Action::Erase(patches) => {
                for Patch { rect, value } in &**patches {
                    let mut value = value.clone();
                    for c in 0..channels {
                        for y in rect.top..rect.top + rect.height {
                            let start = (c * height + y) * width + rect.left;
                            for x in &mut self.planes[start..start + rect.width] {
                                *x = match &mut value {
                                    EraseValue::Constant(values) => {
                                        round(values.channel(c) as f32, self.dtype)
                                    }
                                    EraseValue::Noise(rng) => round(rng.normal() as f32, self.dtype),
                                };
                            }
                        }
                    }
                }
            }
            Action::AddNoise(noise) => self.add_noise(noise),
            other => {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("{other:?} does not work on floating point"),
                ));
            }
        }
        Ok(())
    }

    fn add_noise(&mut self, noise: &AddedNoise) {
        let dtype = self.dtype;
        if dtype == Dtype::U8 {
            let mut noisy = noise.on_bytes();
            self.planes.iter_mut().for_each(|x| *x = f32::from(noisy(*x as u8)));
        } else {
            let mut noisy = noise.on_floats();
            self.planes.iter_mut().for_each(|x| *x = round(noisy(*x), dtype));
        }
    }

    fn points(&mut self, op: &PointOp) -> Result<()> {
        let before = self.dtype;
        let mut after = before;
        let plane = (self.size.height * self.size.width).max(1);
        for (i, x) in self.planes.iter_mut().enumerate() {
            after = before;
            let value = if before == Dtype::U8 { Value::U8(*x as u8) } else { Value::Float(*x) };
            *x = match apply(op, i / plane, value, &mut after).map_err(|e| Error::config(e.to_string()))? {
                Value::U8(v) => f32::from(v),
                Value::Float(x) => x,
            };
        }
        self.dtype = after;
        Ok(())
    }

    fn each(&mut self, f: impl Fn(usize, f32) -> f32) {
        let plane = (self.size.height * self.size.width).max(1);
        for (i, x) in self.planes.iter_mut().enumerate() {
            *x = f(i / plane, *x);
        }
    }

    /// A new image whose pixel (channel, row, column) is an old pixel, or a value.
    fn remap(
        &mut self,
        height: usize,
        width: usize,
        from: impl Fn(usize, usize, usize) -> Result<(usize, usize), f32>,
    ) {
        self.spare.clear();
        for c in 0..self.size.channels {
            for y in 0..height {
                for x in 0..width {
                    self.spare.push(match from(c, y, x) {
                        Ok((y, x)) => self.planes[(c * self.size.height + y) * self.size.width + x],
                        Err(value) => value,
                    });
                }
            }
        }
        std::mem::swap(&mut self.planes, &mut self.spare);
        (self.size.height, self.size.width) = (height, width);
    }

    /// Writes the elements in their type and `layout`.
    pub(crate) fn store(&self, layout: Layout, slot: &mut [u8]) {
        let Size { height, width, channels } = self.size;
        let size = self.dtype.size();
        for (i, out) in slot.chunks_exact_mut(size).enumerate() {
            let at = match layout {
                Layout::Chw => i,
                Layout::Hwc => (i % channels) * height * width + i / channels,
            };
            let x = self.planes[at];
            match self.dtype {
                Dtype::U8 => out[0] = x as u8,
                Dtype::F16 => out.copy_from_slice(&half::f16::from_f32(x).to_ne_bytes()),
                Dtype::Bf16 => out.copy_from_slice(&half::bf16::from_f32(x).to_ne_bytes()),
                Dtype::F32 => out.copy_from_slice(&x.to_ne_bytes()),
            }
        }
    }
}

fn round(x: f32, dtype: Dtype) -> f32 {
    match dtype {
        Dtype::U8 => f32::from(x as u8),
        Dtype::F16 => half::f16::from_f32(x).to_f32(),
        Dtype::Bf16 => half::bf16::from_f32(x).to_f32(),
        Dtype::F32 => x,
    }
}

/// The pixel that shows at `i` of a side of `len`; `None` is the fill.
fn border(i: i64, len: usize, mode: PaddingMode) -> Option<usize> {
    let side = len as i64;
    if (0..side).contains(&i) {
        return Some(i as usize);
    }
    match mode {
        PaddingMode::Constant => None,
        PaddingMode::Edge => Some(i.clamp(0, side - 1) as usize),
        PaddingMode::Reflect if side == 1 => Some(0),
        PaddingMode::Reflect => {
            let i = i.rem_euclid(2 * side - 2);
            Some(if i < side { i } else { 2 * side - 2 - i } as usize)
        }
        PaddingMode::Symmetric => {
            let i = i.rem_euclid(2 * side);
            Some(if i < side { i } else { 2 * side - 1 - i } as usize)
        }
    }
}
