//! Runs [`TfOp`]s on a decoded image, and lays the result out in its place.

use wellfed_kernels::{
    image::{Image, Layout},
    tensorflow::{
        Arithmetic, Shape, adjust_contrast, adjust_hue, adjust_saturation, affine, arithmetic, brightness,
        contrast, grayscale, resize_area, resize_bicubic, resize_bilinear, resize_kernel, resize_nearest,
        standardize,
    },
};

use zerocopy::FromBytes as _;

use crate::{
    Error, ErrorKind, Result,
    transform::{ImageDtype, Size, TfOp, TfResize, step},
};

/// Where the image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    /// Where it was decoded.
    #[default]
    Source,
    Bytes,
    Floats,
}

/// Memory for one image at a time: rows of pixels, as bytes until something makes them floats.
#[derive(Debug, Default)]
pub(crate) struct TfImage {
    bytes: [Vec<u8>; 2],
    floats: [Vec<f32>; 2],
    /// Rows of one resampling.
    rows: Vec<f32>,
    shape: Option<Shape>,
    held: Held,
}

/// Elements of the largest image among the results of `ops`, the first included.
pub(crate) fn most(ops: &[TfOp], size: Size) -> usize {
    let sizes = ops.iter().scan(size, |now, op| {
        *now = step(*now, op);
        Some(*now)
    });
    let elements = |size: Size| size.height * size.width * size.channels;
    sizes.map(elements).fold(elements(size), usize::max)
}

fn reserve<T>(memory: &mut Vec<T>, elements: usize) -> Result<()> {
    memory.clear();
    memory
        .try_reserve_exact(elements)
        .map_err(|_| Error::memory(elements.saturating_mul(size_of::<T>()), "pixels"))
}

fn room<T: Copy + Default>(memory: &mut Vec<T>, elements: usize) -> Result<()> {
    reserve(memory, elements)?;
    memory.resize(elements, T::default());
    Ok(())
}

impl TfImage {
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.iter().map(Vec::capacity).sum::<usize>()
            + 4 * self.floats.iter().map(Vec::capacity).sum::<usize>()
            + 4 * self.rows.capacity()
    }

    /// Applies operations to 8-bit pixels, one after the other, and writes the elements in their type and `layout`.
    ///
    /// # Errors
    /// `Limit` without memory; `Internal` if `slot` is not of the result's size.
    pub(crate) fn run(&mut self, image: &Image, ops: &[TfOp], layout: Layout, slot: &mut [u8]) -> Result<()> {
        let shape = Shape { height: image.height(), width: image.width(), channels: image.channels() };
        (self.shape, self.held) = (Some(shape), Held::Source);
        if layout == Layout::Hwc
            && let Some((before, resize, after)) = ends_in_place(ops)
            && let Ok(place) = <[f32]>::mut_from_bytes(slot)
        {
            return self.run_in_place(image.pixels(), (before, resize, after), place);
        }
        ops.iter().try_for_each(|op| self.one(image.pixels(), op))?;
        self.store(image.pixels(), layout, slot)
    }

    /// As [`TfImage::run`], with what is resized written where it belongs: two copies of the result less.
    fn run_in_place(
        &mut self,
        source: &[u8],
        (before, resize, after): (&[TfOp], &TfOp, &[TfOp]),
        place: &mut [f32],
    ) -> Result<()> {
        before.iter().try_for_each(|op| self.one(source, op))?;
        let &TfOp::Resize { method, size: [height, width], antialias } = resize else {
            return Err(Error::new(ErrorKind::Internal, format!("{resize:?} does not resize")));
        };
        let shape = self.shape()?.resized((height, width));
        if place.len() != shape.elements() {
            return Err(wrong_place(4 * place.len(), shape));
        }
        // Which place a value has makes no difference to arithmetic, so flips may come last.
        let then: Vec<_> = after
            .iter()
            .filter_map(|op| match op {
                TfOp::Arithmetic { operator, constants } => {
                    Some((Arithmetic::from(*operator), &constants[..]))
                }
                _ => None,
            })
            .collect();
        self.resize(source, method, (height, width), antialias, Some(place), &then)?;
        for op in after {
            if let &TfOp::Flip { horizontal, vertical } = op {
                flip(place, shape.row(), shape.channels, horizontal, vertical);
            }
        }
        Ok(())
    }

    fn shape(&self) -> Result<Shape> {
        self.shape.ok_or_else(|| Error::new(ErrorKind::Internal, "no image was loaded"))
    }

    fn held_floats(&mut self) -> Result<&mut [f32]> {
        if self.held == Held::Floats {
            return Ok(&mut self.floats[0]);
        }
        Err(Error::new(ErrorKind::Internal, "an operation of floats on bytes"))
    }

    fn one(&mut self, source: &[u8], op: &TfOp) -> Result<()> {
        let shape = self.shape()?;
        match *op {
            TfOp::Resize { method, size: [height, width], antialias } => {
                self.resize(source, method, (height, width), antialias, None, &[])
            }
            TfOp::Cast { dtype: ImageDtype::UInt8 } => {
                if self.held == Held::Floats {
                    room(&mut self.bytes[0], shape.elements())?;
                    for (to, &x) in self.bytes[0].iter_mut().zip(&self.floats[0]) {
                        *to = x as i32 as u8;
                    }
                    self.held = Held::Bytes;
                }
                Ok(())
            }
            TfOp::Cast { .. } => {
                if self.held != Held::Floats {
                    room(&mut self.floats[0], shape.elements())?;
                    let bytes = if self.held == Held::Source { source } else { &self.bytes[0] };
                    for (to, &x) in self.floats[0].iter_mut().zip(bytes) {
                        *to = f32::from(x);
                    }
                    self.held = Held::Floats;
                }
                Ok(())
            }
            TfOp::Arithmetic { operator, ref constants } => {
                arithmetic(Arithmetic::from(operator), constants, self.held_floats()?);
                Ok(())
            }
            TfOp::AdjustContrast { factor } => {
                self.held_floats()?;
                let [values, scratch] = &mut self.floats;
                reserve(scratch, values.len().div_ceil(2) + shape.channels)?;
                adjust_contrast(factor, shape.channels, values, scratch);
                Ok(())
            }
            TfOp::AdjustSaturation { factor } => {
                adjust_saturation(factor, self.held_floats()?);
                Ok(())
            }
            TfOp::AdjustHue { delta } => {
                adjust_hue(delta, self.held_floats()?);
                Ok(())
            }
            TfOp::Standardize => {
                standardize(self.held_floats()?);
                Ok(())
            }
            TfOp::Grayscale => {
                self.held_floats()?;
                let [from, to] = &mut self.floats;
                let grey = Shape { channels: 1, ..shape };
                room(to, grey.elements())?;
                grayscale(from, to);
                self.floats.swap(0, 1);
                self.shape = Some(grey);
                Ok(())
            }
            TfOp::ToRgb => {
                let colour = Shape { channels: 3, ..shape };
                if self.held == Held::Floats {
                    let [from, to] = &mut self.floats;
                    room(to, colour.elements())?;
                    triple(from, to);
                    self.floats.swap(0, 1);
                } else {
                    let [from, to] = &mut self.bytes;
                    room(to, colour.elements())?;
                    triple(if self.held == Held::Source { source } else { from }, to);
                    self.bytes.swap(0, 1);
                    self.held = Held::Bytes;
                }
                self.shape = Some(colour);
                Ok(())
            }
            TfOp::Flip { horizontal, vertical } => {
                let row = shape.row();
                if self.held == Held::Source {
                    room(&mut self.bytes[0], shape.elements())?;
                    self.bytes[0].copy_from_slice(source);
                    self.held = Held::Bytes;
                }
                if self.held == Held::Floats {
                    flip(&mut self.floats[0], row, shape.channels, horizontal, vertical);
                } else {
                    flip(&mut self.bytes[0], row, shape.channels, horizontal, vertical);
                }
                Ok(())
            }
            TfOp::Crop { top, left, height, width } => {
                if (height, width) == (shape.height, shape.width) {
                    return Ok(());
                }
                let part = shape.resized((height, width));
                if self.held == Held::Floats {
                    let [from, to] = &mut self.floats;
                    room(to, part.elements())?;
                    crop(from, shape, to, part, (top, left));
                    self.floats.swap(0, 1);
                } else {
                    let [from, to] = &mut self.bytes;
                    room(to, part.elements())?;
                    let from = if self.held == Held::Source { source } else { from };
                    crop(from, shape, to, part, (top, left));
                    self.bytes.swap(0, 1);
                    self.held = Held::Bytes;
                }
                self.shape = Some(part);
                Ok(())
            }
            TfOp::Pad { top, left, height, width } => {
                if (height, width) == (shape.height, shape.width) {
                    return Ok(());
                }
                let whole = shape.resized((height, width));
                if self.held == Held::Floats {
                    let [from, to] = &mut self.floats;
                    room(to, whole.elements())?;
                    pad(from, shape, to, whole, (top, left));
                    self.floats.swap(0, 1);
                } else {
                    let [from, to] = &mut self.bytes;
                    room(to, whole.elements())?;
                    let from = if self.held == Held::Source { source } else { from };
                    pad(from, shape, to, whole, (top, left));
                    self.bytes.swap(0, 1);
                    self.held = Held::Bytes;
                }
                self.shape = Some(whole);
                Ok(())
            }
            TfOp::Affine { matrix, sampling } => {
                let warp = sampling.warp(matrix);
                let is_float = self.held == Held::Floats;
                let bytes = if self.held == Held::Source { source } else { &self.bytes[0] };
                let [from, to] = &mut self.floats;
                room(to, shape.elements())?;
                if is_float {
                    affine(from, shape, &warp, to);
                } else {
                    affine(bytes, shape, &warp, to);
                }
                self.floats.swap(0, 1);
                self.held = Held::Floats;
                Ok(())
            }
            TfOp::Contrast { factor, range } => {
                self.one(source, &TfOp::Cast { dtype: ImageDtype::Float32 })?;
                contrast(factor, range, &mut self.floats[0], shape);
                Ok(())
            }
            TfOp::Brightness { delta, range } => {
                self.one(source, &TfOp::Cast { dtype: ImageDtype::Float32 })?;
                brightness(delta, range, &mut self.floats[0]);
                Ok(())
            }
            TfOp::RandomFlip { .. }
            | TfOp::RandomFlipBoth
            | TfOp::CentralCrop { .. }
            | TfOp::CropOrPad { .. }
            | TfOp::ResizeWithPad { .. }
            | TfOp::RandomCrop { .. }
            | TfOp::RandomBrightness { .. }
            | TfOp::RandomContrast { .. }
            | TfOp::RandomSaturation { .. }
            | TfOp::RandomHue { .. }
            | TfOp::ResizeCropped { .. }
            | TfOp::CropOrResize { .. }
            | TfOp::RandomCropOrResize { .. }
            | TfOp::RandomRotation { .. }
            | TfOp::RandomZoom { .. }
            | TfOp::RandomTranslation { .. }
            | TfOp::RandomContrastLayer { .. }
            | TfOp::RandomBrightnessLayer { .. } => {
                Err(Error::new(ErrorKind::Internal, format!("{op:?} was not settled for an image")))
            }
        }
    }

    /// Resizes the image, as floats to `place`, if there is one, and applies `then` to floats.
    fn resize(
        &mut self,
        source: &[u8],
        method: TfResize,
        size: (usize, usize),
        antialias: bool,
        place: Option<&mut [f32]>,
        then: &[(Arithmetic, &[f32])],
    ) -> Result<()> {
        let shape = self.shape()?;
        let resized = shape.resized(size);
        let elements = resized.elements();
        let is_float = self.held == Held::Floats;
        let Self { bytes: [bytes, spare], floats: [floats, out], rows, .. } = self;
        let bytes = if self.held == Held::Source { source } else { bytes };
        if method == TfResize::Nearest && !is_float {
            room(spare, elements)?;
            resize_nearest(bytes, shape, spare, size);
            self.bytes.swap(0, 1);
            (self.shape, self.held) = (Some(resized), Held::Bytes);
            return Ok(());
        }
        let in_place = place.is_some();
        let out = match place {
            Some(place) => place,
            None => {
                room(out, elements)?;
                out
            }
        };
        match (method.kernel(antialias), method, is_float) {
            (Some(kernel), _, false) => resize_kernel(kernel, antialias, bytes, shape, out, size, rows),
            (Some(kernel), _, true) => resize_kernel(kernel, antialias, floats, shape, out, size, rows),
            (_, TfResize::Nearest, _) => resize_nearest(floats, shape, out, size),
            (_, TfResize::Bicubic, false) => resize_bicubic(bytes, shape, out, size),
            (_, TfResize::Bicubic, true) => resize_bicubic(floats, shape, out, size),
            (_, TfResize::Area, false) => resize_area(bytes, shape, out, size),
            (_, TfResize::Area, true) => resize_area(floats, shape, out, size),
            (_, _, false) => resize_bilinear(bytes, shape, out, size, then),
            (_, _, true) => resize_bilinear(floats, shape, out, size, then),
        }
        if method.kernel(antialias).is_some() || method != TfResize::Bilinear {
            for &(operation, constants) in then {
                arithmetic(operation, constants, out);
            }
        }
        if !in_place {
            self.floats.swap(0, 1);
            (self.shape, self.held) = (Some(resized), Held::Floats);
        }
        Ok(())
    }

    fn store(&self, source: &[u8], layout: Layout, slot: &mut [u8]) -> Result<()> {
        let shape = self.shape()?;
        let is_float = self.held == Held::Floats;
        let bytes = if self.held == Held::Source { source } else { &self.bytes[0] };
        let size = if is_float { 4 } else { 1 };
        if slot.len() != size * shape.elements() {
            return Err(wrong_place(slot.len(), shape));
        }
        let plane = shape.height * shape.width;
        match (layout, is_float) {
            (Layout::Hwc, false) => slot.copy_from_slice(bytes),
            (Layout::Hwc, true) => {
                for (to, x) in slot.as_chunks_mut::<4>().0.iter_mut().zip(&self.floats[0]) {
                    *to = x.to_ne_bytes();
                }
            }
            (Layout::Chw, false) => {
                for (i, to) in slot.iter_mut().enumerate() {
                    *to = bytes[i % plane * shape.channels + i / plane];
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

/// The last operation that makes another image, with those before and after it, if that resizes to floats and the others
/// change floats where they are.
fn ends_in_place(ops: &[TfOp]) -> Option<(&[TfOp], &TfOp, &[TfOp])> {
    let changes = |op: &TfOp| {
        !matches!(op, TfOp::Arithmetic { .. } | TfOp::Flip { .. } | TfOp::Cast { dtype: ImageDtype::Float32 })
    };
    let (before, after) = ops.split_at(ops.iter().rposition(changes)? + 1);
    let (resize, before) = before.split_last()?;
    match resize {
        // Neighbours of bytes are bytes.
        TfOp::Resize { method, .. } if *method != TfResize::Nearest => Some((before, resize, after)),
        _ => None,
    }
}

fn wrong_place(bytes: usize, shape: Shape) -> Error {
    Error::new(ErrorKind::Internal, format!("{bytes} bytes for an image of {shape:?}"))
}

/// Every value three times.
fn triple<T: Copy>(from: &[T], to: &mut [T]) {
    for (to, &x) in to.as_chunks_mut::<3>().0.iter_mut().zip(from) {
        *to = [x; 3];
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

/// Copies into memory that holds zeros.
fn pad<T: Copy>(from: &[T], shape: Shape, to: &mut [T], whole: Shape, (top, left): (usize, usize)) {
    for (y, from) in from.chunks_exact(shape.row()).enumerate() {
        let start = (top + y) * whole.row() + left * shape.channels;
        to[start..][..shape.row()].copy_from_slice(from);
    }
}
