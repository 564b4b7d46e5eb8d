//! [`Recipe`]: what is done to one 8-bit image, every random number settled, as plain data for kernels that run
//! elsewhere.
//!
//! Images of 1 or 3 channels. [`Recipe::run`] does it with the kernels of this crate: it is what other kernels are
//! compared with.

mod code;

use crate::{
    affine::{Sampling, affine},
    blur::{BlurError, gaussian_blur},
    color, erase,
    gray::to_gray,
    hue,
    image::{Dtype, Image, Layout, View},
    points::PointMap,
    resample::{Filter, Rect, Resize, Resizer},
    tables,
    write::{GeometryError, Output, PadMode, Window, write},
};

/// Crop, then resize, then a window of the result, then flips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// The part of the image that is looked at.
    pub crop: Rect,
    /// Rows and columns that it is resampled to, and how.
    pub resize: Option<(usize, usize, Filter)>,
    /// The part that is kept of the result, before flips. It may reach outside only without `resize`.
    pub window: Window,
    /// What lies outside.
    pub pad: PadMode,
    /// Mirror left and right.
    pub flip_h: bool,
    /// Mirror top and bottom.
    pub flip_v: bool,
}

impl Geometry {
    /// The whole of an image of `height` x `width`.
    pub fn new(height: usize, width: usize) -> Self {
        Self {
            crop: Rect { top: 0, left: 0, height, width },
            resize: None,
            window: Window { top: 0, left: 0, height, width },
            pad: PadMode::Constant([0; 4]),
            flip_h: false,
            flip_v: false,
        }
    }

    /// Rows and columns of the result.
    pub fn size(&self) -> (usize, usize) {
        (self.window.height, self.window.width)
    }

    /// The resize as [`Resizer`] takes it; `None` if it is none, or its window is not inside.
    fn kernel_resize(&self) -> Option<Resize> {
        let (height, width, filter) = self.resize?;
        let window = Rect {
            top: self.window.top.try_into().ok()?,
            left: self.window.left.try_into().ok()?,
            height: self.window.height,
            width: self.window.width,
        };
        Some(Resize::new(height, width, filter).window(window))
    }

    /// Makes what it says of `view` in `slot`.
    ///
    /// # Errors
    /// If the crop is not inside the image, or the window not inside what it is resized to.
    pub fn run(
        &self,
        view: View<'_>,
        map: &PointMap,
        layout: Layout,
        slot: &mut [u8],
    ) -> Result<(), GeometryError> {
        let Rect { top, left, height, width } = self.crop;
        let part = view.crop(top, left, height, width).ok_or(GeometryError::Outside {
            what: "crop",
            end: top.saturating_add(height),
            limit: view.height(),
        })?;
        let output = Output { flip_h: self.flip_h, flip_v: self.flip_v, map, layout };
        match (self.resize, self.kernel_resize()) {
            (Some(_), None) => Err(GeometryError::Outside { what: "window", end: 0, limit: 0 }),
            (_, Some(resize)) => Resizer::new().resize_write(part, &resize, output, slot),
            (None, None) => write(part, self.window, self.pad, output, slot),
        }
    }
}

/// A map of an 8-bit image's pixels, as [`affine`] takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffineMap {
    /// From the result to the image: x' = a*x + b*y + c, y' = d*x + e*y + f.
    pub matrix: [f64; 6],
    /// How pixels between pixels are found.
    pub sampling: Sampling,
    /// What comes in from outside, a byte for each channel.
    pub fill: [u8; 4],
    /// Rows and columns of the result.
    pub size: (usize, usize),
}

/// A change of an 8-bit image: of its values one by one, but for those that [`PixelOp::looks_around`].
#[derive(Clone, Debug, PartialEq)]
pub enum PixelOp {
    /// [`color::brightness`] by this factor.
    Brightness(f64),
    /// [`color::contrast`] by this factor.
    Contrast(f64),
    /// [`color::saturation`] by this factor.
    Saturation(f64),
    /// [`hue::hue`] by this share of the circle.
    Hue(f64),
    /// [`to_gray`] on 1 or 3 channels.
    Gray(usize),
    /// [`tables::invert`].
    Invert,
    /// [`tables::posterize`] to so many bits.
    Posterize(u32),
    /// [`tables::solarize`] from this value on.
    Solarize(f64),
    /// [`tables::solarize_add`] of this number.
    SolarizeAdd(u8),
    /// [`tables::autocontrast`].
    Autocontrast,
    /// [`tables::equalize`].
    Equalize,
    /// [`color::permute`] of three channels; grey stays.
    Permute([usize; 3]),
    /// Overwrites a rectangle.
    Erase(Patch),
    /// [`gaussian_blur`].
    Blur {
        /// Pixels that are looked at along x and y, odd numbers.
        kernel: [usize; 2],
        /// Standard deviations along x and y, in pixels.
        sigma: [f64; 2],
    },
    /// [`affine`].
    Affine(AffineMap),
}

impl PixelOp {
    /// Whether it needs to have seen all pixels before it changes one.
    pub fn looks_at_all(&self) -> bool {
        matches!(self, PixelOp::Contrast(_) | PixelOp::Autocontrast | PixelOp::Equalize)
    }

    /// Whether what it does to a pixel depends on where that is.
    pub fn depends_on_place(&self) -> bool {
        // Sums of a blur are rounded in the order of its pixels, which a flip would turn round.
        matches!(self, PixelOp::Erase(_)) || self.looks_around()
    }

    /// Whether it makes pixels of others than the one that lies there.
    pub fn looks_around(&self) -> bool {
        matches!(self, PixelOp::Blur { .. } | PixelOp::Affine(_))
    }

    /// Rows and columns of the result of an image of this size.
    pub fn size(&self, size: (usize, usize)) -> (usize, usize) {
        if let PixelOp::Affine(map) = self { map.size } else { size }
    }

    /// Channels of the result of an image with `channels`.
    pub fn channels(&self, channels: usize) -> usize {
        if let PixelOp::Gray(channels) = self { *channels } else { channels }
    }

    /// Does it.
    ///
    /// # Errors
    /// [`GeometryError::Memory`] if there is none; [`GeometryError::Outside`] for a blur that reaches further than the image.
    pub fn run(&self, image: &mut Image) -> Result<(), GeometryError> {
        match self {
            PixelOp::Brightness(factor) => color::brightness(image, *factor),
            PixelOp::Contrast(factor) => color::contrast(image, *factor),
            PixelOp::Saturation(factor) => color::saturation(image, *factor),
            PixelOp::Hue(factor) => hue::hue(image, *factor),
            PixelOp::Gray(channels) => to_gray(image, &mut Image::new(), *channels)?,
            PixelOp::Invert => tables::invert(image),
            PixelOp::Posterize(bits) => tables::posterize(image, *bits),
            PixelOp::Solarize(threshold) => tables::solarize(image, *threshold),
            PixelOp::SolarizeAdd(add) => tables::solarize_add(image, *add),
            PixelOp::Autocontrast => tables::autocontrast(image),
            PixelOp::Equalize => tables::equalize(image),
            PixelOp::Permute(order) => color::permute(image, order),
            PixelOp::Erase(patch) => {
                let shape = (image.height(), image.width(), image.channels());
                patch.write(image.pixels_mut(), shape, Dtype::U8, Layout::Hwc);
            }
            PixelOp::Blur { kernel, sigma } => {
                gaussian_blur(image, *kernel, *sigma, &mut Vec::new()).map_err(|e| match e {
                    BlurError::Reach { kernel, side } => {
                        GeometryError::Outside { what: "blur", end: kernel / 2, limit: side }
                    }
                    BlurError::Memory { bytes } => GeometryError::Memory { bytes },
                })?;
            }
            PixelOp::Affine(AffineMap { matrix, sampling, fill, size }) => {
                let mut made = Image::new();
                affine(image.view(), matrix, *sampling, *fill, *size, &mut made)?;
                *image = made;
            }
        }
        Ok(())
    }
}

/// A rectangle inside an image, and what is written there.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Where.
    pub rect: Rect,
    /// With what.
    pub fill: Fill,
}

/// The values of a [`Patch`], rounded to the element type where they are written, as [`erase::erase`] does it.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// One for each channel; more than there are channels do no harm.
    Constant([f32; 4]),
    /// One for each element, channel by channel and row by row.
    Each(Vec<f32>),
}

impl Patch {
    fn write(&self, slot: &mut [u8], shape: (usize, usize, usize), dtype: Dtype, layout: Layout) {
        match &self.fill {
            Fill::Constant(values) => erase::erase(slot, shape, dtype, layout, self.rect, |c| values[c]),
            Fill::Each(values) => {
                let mut values = values.iter();
                let mut next = move |_| values.next().copied().unwrap_or(0.0);
                erase::erase(slot, shape, dtype, layout, self.rect, &mut next);
            }
        }
    }
}

/// Geometry, and then changes of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// What moves pixels.
    pub geometry: Geometry,
    /// What changes them, in order.
    pub ops: Vec<PixelOp>,
}

impl Stage {
    /// One that leaves an image of `height` x `width` as it is.
    pub fn new(height: usize, width: usize) -> Self {
        Self { geometry: Geometry::new(height, width), ops: Vec::new() }
    }

    /// Rows and columns of the result.
    pub fn size(&self) -> (usize, usize) {
        self.ops.iter().fold(self.geometry.size(), |size, op| op.size(size))
    }

    /// Channels of the result of an image with `channels`.
    pub fn channels(&self, channels: usize) -> usize {
        self.ops.iter().fold(channels, |channels, op| op.channels(channels))
    }
}

/// What is done to one image: stages one after the other, then the map to elements of the result, then rectangles of
/// the result that are overwritten.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// At least one.
    pub stages: Vec<Stage>,
    /// Inside the last stage's result.
    pub patches: Vec<Patch>,
}

impl Recipe {
    /// One that only maps values of an image of `height` x `width`.
    pub fn new(height: usize, width: usize) -> Self {
        Self { stages: vec![Stage::new(height, width)], patches: Vec::new() }
    }

    /// Rows and columns of the result.
    pub fn size(&self) -> (usize, usize) {
        self.stages.last().map_or((0, 0), Stage::size)
    }

    /// Channels of the result of an image with `channels`.
    pub fn channels(&self, channels: usize) -> usize {
        self.stages.iter().fold(channels, |channels, stage| stage.channels(channels))
    }

    /// Makes the result of `view` in `slot`: the elements of `map`, densely packed in `layout`.
    ///
    /// # Errors
    /// As [`Geometry::run`]; and if `map` or `slot` does not fit the result.
    pub fn run(
        &self,
        view: View<'_>,
        map: &PointMap,
        layout: Layout,
        slot: &mut [u8],
    ) -> Result<(), GeometryError> {
        let mut image = Image::new();
        image.copy_from(view)?;
        for Stage { geometry, ops } in &self.stages {
            let (height, width) = geometry.size();
            let channels = image.channels();
            let identity = PointMap::identity(channels).expect("a view has 1 to 4 channels");
            let mut next = Image::new();
            let into = next.reshape(height, width, channels)?;
            geometry.run(image.view(), &identity, Layout::Hwc, into)?;
            image = next;
            ops.iter().try_for_each(|op| op.run(&mut image))?;
        }
        let (height, width, channels) = (image.height(), image.width(), image.channels());
        let whole = Window { top: 0, left: 0, height, width };
        write(image.view(), whole, PadMode::Edge, Output::new(map, layout), slot)?;
        for patch in &self.patches {
            patch.write(slot, (height, width, channels), map.dtype(), layout);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_map_and_patches_follow_each_other() {
        let pixels: Vec<u8> = (0..12).map(|v| v * 20).collect();
        let view = View::new(&pixels, 2, 2, 3, 6).unwrap();
        let mut recipe = Recipe::new(2, 2);
        recipe.stages[0].geometry.flip_h = true;
        recipe.stages[0].ops = vec![PixelOp::Invert, PixelOp::Permute([2, 1, 0])];
        let mut second = Stage::new(2, 2);
        second.geometry.window = Window { top: 0, left: -1, height: 1, width: 2 };
        second.geometry.pad = PadMode::Constant([7; 4]);
        recipe.stages.push(second);
        let rect = Rect { top: 0, left: 0, height: 1, width: 1 };
        recipe.patches.push(Patch { rect, fill: Fill::Constant([1.0, 2.0, 3.0, 4.0]) });
        assert_eq!((recipe.size(), recipe.channels(3)), ((1, 2), 3));
        let mut slot = [0; 6];
        recipe.run(view, &PointMap::identity(3).unwrap(), Layout::Hwc, &mut slot).unwrap();
        assert_eq!(slot, [1, 2, 3, 255 - 100, 255 - 80, 255 - 60]);
        recipe.patches[0].fill = Fill::Each(vec![9.0, 8.0, 7.0]);
        recipe.stages[1].ops.push(PixelOp::Gray(1));
        let mut slot = [0; 2];
        assert_eq!(recipe.channels(3), 1);
        recipe.run(view, &PointMap::identity(1).unwrap(), Layout::Chw, &mut slot).unwrap();
        assert_eq!(slot[0], 9);
        assert!(PixelOp::Contrast(1.0).looks_at_all() && !PixelOp::Invert.looks_at_all());
    }
}
