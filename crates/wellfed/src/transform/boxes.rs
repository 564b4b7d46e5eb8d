//! What actions do to boxes and to points, in torchvision v2's arithmetic: float32, operation by operation, in the
//! order that its functionals have. Boxes of whole numbers are truncated where torchvision truncates them; up to 2^24
//! float32 holds them exactly.
//!
//! Boxes are rows of four numbers, points rows of two, both in pixels of the canvas: the image that they belong to.

use super::{Action, Padding, PaddingMode, PointMove, Rect, Size, param::impossible};
use crate::{Result, sample::BoxFormat};

/// The boxes of one sample on their way through its actions. Reused from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    /// One entry a box.
    pub(crate) rows: Vec<[f32; 4]>,
    /// How many there were before any was removed.
    pub(crate) given: usize,
    /// For each of what belongs to boxes (their labels) that is left, its place before any was removed.
    pub(crate) labels: Vec<u32>,
    /// Format of `rows`.
    pub(crate) format: BoxFormat,
    /// Whether the boxes are whole numbers.
    whole: bool,
}

impl Boxes {
    /// Takes the boxes of a sample: float32 in native order, `[n, 4]`, or int64 if they are `whole`. False if the bytes
    /// are no whole number of boxes, or a number is so large that float32 does not hold it.
    pub(crate) fn load(&mut self, bytes: &[u8], format: BoxFormat, whole: bool) -> bool {
        self.rows.clear();
        self.labels.clear();
        (self.format, self.whole) = (format, whole);
        let rest;
        let mut fits = true;
        if whole {
            let boxes;
            (boxes, rest) = bytes.as_chunks::<32>();
            self.rows.extend(boxes.iter().map(|b| {
                let (numbers, _) = b.as_chunks::<8>();
                std::array::from_fn(|i| {
                    let number = i64::from_ne_bytes(numbers[i]);
                    fits &= number.unsigned_abs() <= 1 << 24;
                    number as f32
                })
            }));
        } else {
            let boxes;
            (boxes, rest) = bytes.as_chunks::<16>();
            self.rows.extend(boxes.iter().map(|b| {
                let (numbers, _) = b.as_chunks::<4>();
                std::array::from_fn(|i| f32::from_ne_bytes(numbers[i]))
            }));
        }
        self.given = self.rows.len();
        self.labels.extend(0..self.given as u32);
        fits && rest.is_empty()
    }

    /// Appends the boxes as [`Boxes::load`] took them.
    pub(crate) fn store(&self, out: &mut Vec<u8>) {
        let numbers = self.rows.as_flattened().iter();
        if self.whole {
            out.extend(numbers.flat_map(|&v| (v as i64).to_ne_bytes()));
        } else {
            out.extend(numbers.flat_map(|v| v.to_ne_bytes()));
        }
    }

    /// The boxes as left, top, right and bottom.
    pub(crate) fn corners(&mut self) -> &[[f32; 4]] {
        self.convert(BoxFormat::Xyxy);
        &self.rows
    }

    /// Bytes kept allocated.
    pub(crate) fn capacity(&self) -> usize {
        16 * self.rows.capacity() + 4 * self.labels.capacity()
    }

    /// Applies `action`, drawn for an image of size `canvas`.
    ///
    /// # Errors
    /// If boxes cannot follow it: padding that repeats pixels.
    pub(crate) fn run(&mut self, action: &Action, canvas: Size) -> Result<()> {
        let after = action.size(canvas);
        match *action {
            Action::Crop(Rect { top, left, height, width }) => {
                self.shift(-(left as f32), -(top as f32));
                self.clamp(height, width);
            }
            Action::CropAround(part) => {
                let (format, whole) = (self.format, self.whole);
                let inside = |b: &[f32; 4]| is_inside(convert_as(*b, format, BoxFormat::Xyxy, whole), part);
                let kept: Vec<bool> = self.rows.iter().map(inside).collect();
                self.shift(-(part.left as f32), -(part.top as f32));
                self.clamp(part.height, part.width);
                for (b, _) in self.rows.iter_mut().zip(kept).filter(|(_, kept)| !kept) {
                    *b = [0.0; 4];
                }
            }
            Action::PadCrop { top, left, height, width, mode, added, .. } => {
                check_padding(mode)?;
                match added {
                    None => {
                        self.shift(-middle(canvas.width, width), -middle(canvas.height, height));
                        self.clamp(height, width);
                    }
                    Some(added) => self.pad_crop(top, left, after, canvas, added),
                }
            }
            Action::Resize { crop, cropped, height, width, .. } => {
                let mut from = canvas;
                if cropped {
                    self.shift(-(crop.left as f32), -(crop.top as f32));
                    self.clamp(crop.height, crop.width);
                    (from.height, from.width) = (crop.height, crop.width);
                }
                if let Some([x, y]) = ratios(from, height, width) {
                    let whole = self.whole;
                    for b in &mut self.rows {
                        *b = settled([b[0] * x, b[1] * y, b[2] * x, b[3] * y], whole);
                    }
                }
            }
            Action::Flip { horizontal, vertical } => {
                if horizontal {
                    self.flip(0, canvas.width as f32);
                }
                if vertical {
                    self.flip(1, canvas.height as f32);
                }
            }
            Action::Image(ref action) if !action.parts().is_empty() => {
                let mut size = canvas;
                for part in action.parts() {
                    self.run(&Action::Image(part.clone()), size)?;
                    size = part.size(size);
                }
            }
            Action::Image(ref action) => {
                if let Some(moves) = action.moves_corners(canvas) {
                    self.follow(&moves, after);
                }
            }
            Action::ClampBoxes => self.clamp(canvas.height, canvas.width),
            Action::ConvertBoxes(format) => self.convert(format),
            Action::SanitizeBoxes { min_size, min_area, labels } => {
                self.sanitize(min_size, min_area, labels, canvas);
            }
            _ => {}
        }
        Ok(())
    }

    /// `pad` and then, where that made more than was wanted, `crop`.
    fn pad_crop(&mut self, top: i64, left: i64, after: Size, canvas: Size, added: Padding) {
        let padded = (canvas.height + added.top + added.bottom, canvas.width + added.left + added.right);
        if !added.is_zero() {
            self.shift(added.left as f32, added.top as f32);
            self.clamp(padded.0, padded.1);
        }
        if padded != (after.height, after.width) {
            let (left, top) = (left + added.left as i64, top + added.top as i64);
            self.shift(-(left as f32), -(top as f32));
            self.clamp(after.height, after.width);
        }
    }

    fn shift(&mut self, x: f32, y: f32) {
        let corners = self.format == BoxFormat::Xyxy;
        for b in &mut self.rows {
            b[0] += x;
            b[1] += y;
            if corners {
                b[2] += x;
                b[3] += y;
            }
        }
    }

    /// Mirrors along `axis` (0 is x) of a canvas of `side` pixels.
    fn flip(&mut self, axis: usize, side: f32) {
        for b in &mut self.rows {
            match self.format {
                BoxFormat::Xyxy => (b[axis], b[axis + 2]) = (-(b[axis + 2] - side), -(b[axis] - side)),
                BoxFormat::Xywh => b[axis] = -(b[axis] + b[axis + 2] - side),
                BoxFormat::Cxcywh => b[axis] = -(b[axis] - side),
            }
        }
    }

    /// Cuts what reaches outside the canvas.
    fn clamp(&mut self, height: usize, width: usize) {
        for b in &mut self.rows {
            let corners = cut(convert(*b, self.format, BoxFormat::Xyxy), height, width);
            *b = settled(convert(corners, BoxFormat::Xyxy, self.format), self.whole);
        }
    }

    fn convert(&mut self, format: BoxFormat) {
        for b in &mut self.rows {
            *b = convert_as(*b, self.format, format, self.whole);
        }
        self.format = format;
    }

    /// The box around each box whose corners were moved, cut at the canvas.
    fn follow(&mut self, moves: &PointMove, after: Size) {
        for b in &mut self.rows {
            let [x1, y1, x2, y2] = convert(*b, self.format, BoxFormat::Xyxy);
            let corners = [[x1, y1], [x2, y1], [x2, y2], [x1, y2]].map(moves);
            let side = |axis: usize, pick: fn(f32, f32) -> f32| {
                corners[1..].iter().fold(corners[0][axis], |end, corner| pick(end, corner[axis]))
            };
            let moved = [side(0, f32::min), side(1, f32::min), side(0, f32::max), side(1, f32::max)];
            let moved = cut(moved, after.height, after.width);
            *b = settled(convert(moved, BoxFormat::Xyxy, self.format), self.whole);
        }
    }

    /// Removes boxes that are too small or reach outside, and with `labels` what belongs to them.
    fn sanitize(&mut self, min_size: f64, min_area: f64, labels: bool, canvas: Size) {
        let (height, width) = (canvas.height as f32, canvas.width as f32);
        // torch compares in float32.
        let (min_size, min_area) = (min_size as f32, min_area as f32);
        let mut kept = 0;
        let together = labels && self.labels.len() == self.rows.len();
        for i in 0..self.rows.len() {
            let [x1, y1, x2, y2] = convert_as(self.rows[i], self.format, BoxFormat::Xyxy, self.whole);
            let (w, h) = (x2 - x1, y2 - y1);
            let large = w >= min_size && h >= min_size && w * h >= min_area;
            let inside = [x1, y1, x2, y2].iter().all(|&v| v >= 0.0)
                && x1 <= width
                && x2 <= width
                && y1 <= height
                && y2 <= height;
            if large && inside {
                self.rows[kept] = self.rows[i];
                if together {
                    self.labels[kept] = self.labels[i];
                }
                kept += 1;
            }
        }
        self.rows.truncate(kept);
        if together {
            self.labels.truncate(kept);
        }
    }
}

/// What [`Action`] does to points: as to boxes, without clamping.
#[derive(Debug, Default)]
pub(crate) struct Points {
    pub(crate) rows: Vec<[f32; 2]>,
}

impl Points {
    /// Takes the points of a sample: float32 in native order, `[n, 2]`. False if they are no whole points.
    pub(crate) fn load(&mut self, bytes: &[u8]) -> bool {
        let (points, rest) = bytes.as_chunks::<8>();
        self.rows.clear();
        self.rows.extend(points.iter().map(|p| {
            let number = |i: usize| f32::from_ne_bytes([p[i], p[i + 1], p[i + 2], p[i + 3]]);
            [number(0), number(4)]
        }));
        rest.is_empty()
    }

    /// Bytes kept allocated.
    pub(crate) fn capacity(&self) -> usize {
        8 * self.rows.capacity()
    }

    /// Applies `action`, drawn for an image of size `canvas`.
    ///
    /// # Errors
    /// If points cannot follow it: padding that repeats pixels.
    pub(crate) fn run(&mut self, action: &Action, canvas: Size) -> Result<()> {
        let mut each = |f: &dyn Fn([f32; 2]) -> [f32; 2]| self.rows.iter_mut().for_each(|p| *p = f(*p));
        match *action {
            Action::Crop(Rect { top, left, .. }) | Action::CropAround(Rect { top, left, .. }) => {
                each(&|[x, y]| [x - left as f32, y - top as f32])
            }
            Action::PadCrop { top, left, height, width, mode, added, .. } => {
                check_padding(mode)?;
                let Some(Padding { left: l, top: t, .. }) = added else {
                    let (left, top) = (middle(canvas.width, width), middle(canvas.height, height));
                    each(&|[x, y]| [x - left, y - top]);
                    return Ok(());
                };
                let (left, top) = ((left + l as i64) as f32, (top + t as i64) as f32);
                each(&|[x, y]| [x + l as f32 - left, y + t as f32 - top]);
            }
            Action::Resize { crop, cropped, height, width, .. } => {
                let mut from = canvas;
                if cropped {
                    each(&|[x, y]| [x - crop.left as f32, y - crop.top as f32]);
                    (from.height, from.width) = (crop.height, crop.width);
                }
                if let Some([by_x, by_y]) = ratios(from, height, width) {
                    each(&|[x, y]| [x * by_x, y * by_y]);
                }
            }
            Action::Flip { horizontal, vertical } => {
                let last = |side: usize| side as f32 - 1.0;
                each(&|[x, y]| {
                    [
                        if horizontal { -(x - last(canvas.width)) } else { x },
                        if vertical { -(y - last(canvas.height)) } else { y },
                    ]
                });
            }
            Action::Image(ref action) if !action.parts().is_empty() => {
                let mut size = canvas;
                for part in action.parts() {
                    self.run(&Action::Image(part.clone()), size)?;
                    size = part.size(size);
                }
            }
            Action::Image(ref action) => {
                if let Some(moves) = action.moves(canvas) {
                    each(&moves);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether the middle of a box lies in `part` of its image.
fn is_inside([x1, y1, x2, y2]: [f32; 4], part: Rect) -> bool {
    let within =
        |middle: f32, start: usize, len: usize| (start as f32) < middle && middle < (start + len) as f32;
    within(0.5 * (x1 + x2), part.left, part.width) && within(0.5 * (y1 + y2), part.top, part.height)
}

/// The Jaccard index of a box and `part` of its image, in the order of torchvision's `box_iou`; `None` if the middle of
/// the box lies outside of `part`.
pub(super) fn overlap(corners: [f32; 4], part: Rect) -> Option<f32> {
    if !is_inside(corners, part) {
        return None;
    }
    let [x1, y1, x2, y2] = corners;
    let (left, top) = (part.left as f32, part.top as f32);
    let (right, bottom) = ((part.left + part.width) as f32, (part.top + part.height) as f32);
    let (width, height) = ((x2.min(right) - x1.max(left)).max(0.0), (y2.min(bottom) - y1.max(top)).max(0.0));
    let common = width * height;
    Some(common / ((x2 - x1) * (y2 - y1) + (right - left) * (bottom - top) - common))
}

fn check_padding(mode: PaddingMode) -> Result<()> {
    if mode == PaddingMode::Constant {
        return Ok(());
    }
    Err(impossible(format!("padding_mode is {mode}; boxes and points have no place in repeated pixels"))
        .with_hint("padding_mode=\"constant\", or map(field=...) for the image alone"))
}

/// Where `CenterCrop` has boxes begin along a side. torchvision rounds half to even, also where it pads the image by half
/// of what is missing, rounded down: boxes of an image that is smaller by an odd number may lie one pixel beside it.
fn middle(image: usize, crop: usize) -> f32 {
    ((image as f64 - crop as f64) / 2.0).round_ties_even() as f32
}

/// By what a resize multiplies x and y; `None` where the size stays.
fn ratios(from: Size, height: usize, width: usize) -> Option<[f32; 2]> {
    let ratio = |new: usize, old: usize| (new as f64 / old as f64) as f32;
    ((height, width) != (from.height, from.width))
        .then(|| [ratio(width, from.width), ratio(height, from.height)])
}

/// Corners (left, top, right, bottom) moved into the canvas.
fn cut([x1, y1, x2, y2]: [f32; 4], height: usize, width: usize) -> [f32; 4] {
    let (height, width) = (height as f32, width as f32);
    [x1.clamp(0.0, width), y1.clamp(0.0, height), x2.clamp(0.0, width), y2.clamp(0.0, height)]
}

/// Truncates whole numbers.
fn settled(b: [f32; 4], whole: bool) -> [f32; 4] {
    if whole { b.map(f32::trunc) } else { b }
}

/// One box in another format, in whole numbers as torchvision rounds them: middles down, corners towards 0.
fn convert_as(b: [f32; 4], from: BoxFormat, to: BoxFormat, whole: bool) -> [f32; 4] {
    let converted = convert(b, from, to);
    match (from, to) {
        _ if !whole => converted,
        (_, BoxFormat::Cxcywh) => converted.map(f32::floor),
        (BoxFormat::Cxcywh, BoxFormat::Xywh) => {
            let [x, y, right, bottom] = convert(b, from, BoxFormat::Xyxy).map(f32::trunc);
            [x, y, right - x, bottom - y]
        }
        _ => converted.map(f32::trunc),
    }
}

/// One box in another format.
fn convert([a, b, c, d]: [f32; 4], from: BoxFormat, to: BoxFormat) -> [f32; 4] {
    use BoxFormat::{Cxcywh, Xywh, Xyxy};
    match (from, to) {
        (Xyxy, Xyxy) | (Xywh, Xywh) | (Cxcywh, Cxcywh) => [a, b, c, d],
        (Xywh, Cxcywh) => [a + c / 2.0, b + d / 2.0, c, d],
        (Cxcywh, Xywh) => [a - c / 2.0, b - d / 2.0, c, d],
        (Xywh, Xyxy) => [a, b, c + a, d + b],
        (Xyxy, Xywh) => [a, b, c - a, d - b],
        (Cxcywh, Xyxy) => {
            let (x, y) = (a - c / 2.0, b - d / 2.0);
            [x, y, c + x, d + y]
        }
        (Xyxy, Cxcywh) => {
            let (w, h) = (c - a, d - b);
            [(a * 2.0 + w) / 2.0, (b * 2.0 + h) / 2.0, w, h]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rows: &[[f32; 4]], format: BoxFormat, action: &Action, (height, width): (usize, usize)) -> Boxes {
        let mut boxes = Boxes::default();
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_ne_bytes()).collect();
        assert!(boxes.load(&bytes, format, false));
        boxes.run(action, Size { height, width, channels: 3 }).unwrap();
        boxes
    }

    #[test]
    fn formats_convert_into_each_other() {
        let xyxy = [10.0, 20.0, 40.0, 80.0];
        for (format, same) in [
            (BoxFormat::Xyxy, xyxy),
            (BoxFormat::Xywh, [10.0, 20.0, 30.0, 60.0]),
            (BoxFormat::Cxcywh, [25.0, 50.0, 30.0, 60.0]),
        ] {
            for to in [BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh] {
                let there = run(&[same], format, &Action::ConvertBoxes(to), (100, 100));
                let back = convert(there.rows[0], to, BoxFormat::Xyxy);
                assert_eq!((there.format, back), (to, xyxy));
            }
        }
    }

    #[test]
    fn boxes_follow_flips_crops_and_resizes() {
        let boxes = [[10.0, 20.0, 40.0, 80.0]];
        let flip = Action::Flip { horizontal: true, vertical: true };
        assert_eq!(run(&boxes, BoxFormat::Xyxy, &flip, (100, 200)).rows, [[160.0, 20.0, 190.0, 80.0]]);
        let crop = Action::Crop(Rect { top: 30, left: 20, height: 10, width: 50 });
        assert_eq!(run(&boxes, BoxFormat::Xyxy, &crop, (100, 200)).rows, [[0.0, 0.0, 20.0, 10.0]]);
        let rect = Rect { top: 0, left: 0, height: 100, width: 200 };
        let resize = Action::Resize {
            crop: rect,
            cropped: false,
            height: 50,
            width: 400,
            interpolation: super::super::Interpolation::Bilinear,
        };
        assert_eq!(run(&boxes, BoxFormat::Xyxy, &resize, (100, 200)).rows, [[20.0, 10.0, 80.0, 40.0]]);
    }

    #[test]
    fn boxes_whose_middle_is_outside_of_the_part_become_zeros() {
        let boxes = [[10.0, 20.0, 40.0, 80.0], [0.0, 0.0, 12.0, 99.0], [30.0, 45.0, 90.0, 95.0]];
        let part = Rect { top: 30, left: 20, height: 40, width: 50 };
        let crop = Action::CropAround(part);
        let after = run(&boxes, BoxFormat::Xyxy, &crop, (100, 200)).rows;
        assert_eq!(after, [[0.0, 0.0, 20.0, 40.0], [0.0; 4], [0.0; 4]]);
        let wide = run(&[[10.0, 20.0, 30.0, 60.0]], BoxFormat::Xywh, &crop, (100, 200)).rows;
        assert_eq!(wide, [[0.0, 0.0, 20.0, 40.0]]);
        // 20 x 40 of 30 x 60 + 50 x 40 pixels.
        assert_eq!(overlap(boxes[0], part), Some(800.0 / (1800.0 + 2000.0 - 800.0)));
        assert_eq!(overlap(boxes[1], part), None);
    }

    #[test]
    fn what_is_small_or_outside_is_removed_with_its_label() {
        let boxes = [[0.0, 0.0, 5.0, 5.0], [0.0, 0.0, 0.5, 9.0], [-1.0, 0.0, 5.0, 5.0], [1.0, 1.0, 9.0, 9.0]];
        let sanitize = |labels| Action::SanitizeBoxes { min_size: 1.0, min_area: 1.0, labels };
        let kept = run(&boxes, BoxFormat::Xyxy, &sanitize(true), (10, 10));
        assert_eq!((kept.rows, kept.labels), (vec![boxes[0], boxes[3]], vec![0, 3]));
        let kept = run(&boxes, BoxFormat::Xyxy, &sanitize(false), (10, 10));
        assert_eq!((kept.rows.len(), kept.labels.len()), (2, 4));
    }
}
