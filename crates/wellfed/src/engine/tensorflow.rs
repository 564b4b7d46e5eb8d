//! Runs [`TfOp`]s on a decoded image, and lays the result out in its place.

use wellfed_kernels::{
    image::{Layout, View},
    tensorflow::{
        Arithmetic, Shape, arithmetic, resize_area, resize_bicubic, resize_bilinear, resize_kernel,
        resize_nearest,
    },
};

use crate::{
    Error, ErrorKind, Result,
    transform::{ImageDtype, Size, TfOp, TfResize},
};

/// Memory for one image at a time: rows of pixels, as bytes until something makes them floats.
#[derive(Debug, Default)]
pub(crate) struct TfImage {
    bytes: [Vec<u8>; 2],
    floats: [Vec<f32>; 2],
    /// Rows of one resampling.
    rows: Vec<f32>,
    shape: Option<Shape>,
    is_float: bool,
}

/// Elements of the largest image among the results of `ops`, the first included.
pub(crate) fn most(ops: &[TfOp], size: Size) -> usize {
    let sizes = ops.iter().map(|op| match *op {
        TfOp::Resize { size: [height, width], .. } | TfOp::Crop { height, width, .. } => height * width,
        _ => 0,
    });
    sizes.fold(size.height * size.width, usize::max) * size.channels
}

fn room<T: Copy + Default>(memory: &mut Vec<T>, elements: usize) -> Result<()> {
    memory.clear();
    memory
        .try_reserve_exact(elements)
        .map_err(|_| Error::memory(elements.saturating_mul(size_of::<T>()), "pixels"))?;
    memory.resize(elements, T::default());
    Ok(())
}

impl TfImage {
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.iter().map(Vec::capacity).sum::<usize>()
            + 4 * self.floats.iter().map(Vec::capacity).sum::<usize>()
            + 4 * self.rows.capacity()
    }

    /// Takes 8-bit pixels.
    pub(crate) fn load(&mut self, view: View<'_>) -> Result<()> {
        let shape = Shape { height: view.height(), width: view.width(), channels: view.channels() };
        room(&mut self.bytes[0], shape.elements())?;
        for (y, row) in self.bytes[0].chunks_exact_mut(shape.row().max(1)).enumerate() {
            row.copy_from_slice(view.row(y));
        }
        (self.shape, self.is_float) = (Some(shape), false);
        Ok(())
    }

    /// Applies operations, one after the other.
    ///
    /// # Errors
    /// `Limit` without memory.
    pub(crate) fn run(&mut self, ops: &[TfOp]) -> Result<()> {
        ops.iter().try_for_each(|op| self.one(op))
    }

    fn shape(&self) -> Result<Shape> {
        self.shape.ok_or_else(|| Error::new(ErrorKind::Internal, "no image was loaded"))
    }

    fn one(&mut self, op: &TfOp) -> Result<()> {
        let shape = self.shape()?;
        match *op {
            TfOp::Resize { method, size: [height, width], antialias } => {
                self.resize(method, (height, width), antialias)
            }
            TfOp::Cast { dtype: ImageDtype::UInt8 } => {
                if self.is_float {
                    room(&mut self.bytes[0], shape.elements())?;
                    for (to, &x) in self.bytes[0].iter_mut().zip(&self.floats[0]) {
                        *to = x as i32 as u8;
                    }
                    self.is_float = false;
                }
                Ok(())
            }
            TfOp::Cast { .. } => {
                if !self.is_float {
                    room(&mut self.floats[0], shape.elements())?;
                    for (to, &x) in self.floats[0].iter_mut().zip(&self.bytes[0]) {
                        *to = f32::from(x);
                    }
                    self.is_float = true;
                }
                Ok(())
            }
            TfOp::Arithmetic { operator, ref constants } => {
                if !self.is_float {
                    return Err(Error::new(ErrorKind::Internal, "arithmetic on bytes"));
                }
                arithmetic(Arithmetic::from(operator), constants, &mut self.floats[0]);
                Ok(())
            }
            TfOp::Flip { horizontal, vertical } => {
                let row = shape.row();
                if self.is_float {
                    flip(&mut self.floats[0], row, shape.channels, horizontal, vertical);
                } else {
                    flip(&mut self.bytes[0], row, shape.channels, horizontal, vertical);
                }
                Ok(())
            }
            TfOp::RandomFlip { .. } => Err(Error::new(ErrorKind::Internal, "a random flip was not drawn")),
            TfOp::Crop { top, left, height, width } => {
                let part = shape.resized((height, width));
                if self.is_float {
                    let [from, to] = &mut self.floats;
                    room(to, part.elements())?;
                    crop(from, shape, to, part, (top, left));
                    self.floats.swap(0, 1);
                } else {
                    let [from, to] = &mut self.bytes;
                    room(to, part.elements())?;
                    crop(from, shape, to, part, (top, left));
                    self.bytes.swap(0, 1);
                }
                self.shape = Some(part);
                Ok(())
            }
        }
    }

    fn resize(&mut self, method: TfResize, size: (usize, usize), antialias: bool) -> Result<()> {
        let shape = self.shape()?;
        let resized = shape.resized(size);
        let elements = resized.elements();
        let Self { bytes: [bytes, spare], floats: [floats, out], rows, .. } = self;
        if method == TfResize::Nearest && !self.is_float {
            room(spare, elements)?;
            resize_nearest(bytes, shape, spare, size);
            self.bytes.swap(0, 1);
            self.shape = Some(resized);
            return Ok(());
        }
        room(out, elements)?;
        match (method.kernel(antialias), method, self.is_float) {
            (Some(kernel), _, false) => resize_kernel(kernel, antialias, bytes, shape, out, size, rows),
            (Some(kernel), _, true) => resize_kernel(kernel, antialias, floats, shape, out, size, rows),
            (_, TfResize::Nearest, _) => resize_nearest(floats, shape, out, size),
            (_, TfResize::Bicubic, false) => resize_bicubic(bytes, shape, out, size),
            (_, TfResize::Bicubic, true) => resize_bicubic(floats, shape, out, size),
            (_, TfResize::Area, false) => resize_area(bytes, shape, out, size),
            (_, TfResize::Area, true) => resize_area(floats, shape, out, size),
            (_, _, false) => resize_bilinear(bytes, shape, out, size),
            (_, _, true) => resize_bilinear(floats, shape, out, size),
        }
        self.floats.swap(0, 1);
        (self.shape, self.is_float) = (Some(resized), true);
        Ok(())
    }

    /// Writes the elements in their type and `layout`.
    ///
    /// # Errors
    /// `Internal` if `slot` is not of their size.
    pub(crate) fn store(&self, layout: Layout, slot: &mut [u8]) -> Result<()> {
        let shape = self.shape()?;
        let size = if self.is_float { 4 } else { 1 };
        if slot.len() != size * shape.elements() {
            let what = format!("{} bytes for an image of {shape:?}", slot.len());
            return Err(Error::new(ErrorKind::Internal, what));
        }
        let plane = shape.height * shape.width;
        match (layout, self.is_float) {
            (Layout::Hwc, false) => slot.copy_from_slice(&self.bytes[0]),
            (Layout::Hwc, true) => {
                for (to, x) in slot.as_chunks_mut::<4>().0.iter_mut().zip(&self.floats[0]) {
                    *to = x.to_ne_bytes();
                }
            }
            (Layout::Chw, false) => {
                for (i, to) in slot.iter_mut().enumerate() {
                    *to = self.bytes[0][i % plane * shape.channels + i / plane];
                }
            }
            (Layout::Chw, true) => {
                for (i, to) in slot.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    *to = self.floats[0][i % plane * shape.channels + i / plane].to_ne_bytes();
                }
            }
        }
        Ok(())
    }
}

fn flip<T: Copy>(pixels: &mut [T], row: usize, channels: usize, horizontal: bool, vertical: bool) {
    if horizontal {
        for row in pixels.chunks_exact_mut(row) {
            let width = row.len() / channels;
            for x in 0..width / 2 {
                for c in 0..channels {
                    row.swap(x * channels + c, (width - 1 - x) * channels + c);
                }
            }
        }
    }
    if vertical {
        let height = pixels.len() / row;
        for y in 0..height / 2 {
            let (upper, lower) = pixels.split_at_mut((height - 1 - y) * row);
            upper[y * row..][..row].swap_with_slice(&mut lower[..row]);
        }
    }
}

fn crop<T: Copy>(from: &[T], shape: Shape, to: &mut [T], part: Shape, (top, left): (usize, usize)) {
    for (y, to) in to.chunks_exact_mut(part.row()).enumerate() {
        let start = (top + y) * shape.row() + left * shape.channels;
        to.copy_from_slice(&from[start..][..part.row()]);
    }
}
