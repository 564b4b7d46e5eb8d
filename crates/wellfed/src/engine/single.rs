//! [`Single`]: one encoded image, and what is to be done to it as a caller says it step by step.
//!
//! Nothing is decoded before pixels are asked for; then one pass decodes what is needed, resamples, flips and writes.
//! Invariant: a step is taken only if the pixels stay Pillow's bit for bit. What cannot be folded so is refused, and
//! the caller goes on from pixels.

use std::sync::OnceLock;

use wellfed_kernels::{
    image::{Dtype, Image, Layout, View},
    points::{PointMap, PointOp},
    resample::Region,
    write::{self, Output, PadMode, Window},
};

use super::{
    cache::SeenRows,
    fold::Fold,
    kernel::{Kernel, KernelScratch},
};
use crate::{
    Error, ErrorKind, Limits, Result,
    codec::{self, Encoded, Mode, Request, Scale},
    transform::{
        Action, ColorStep, ColorSteps, ImageAction, ImageMemory, Interpolation, PaddingMode, PerChannel, Rect,
    },
};

/// What pixels become.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// `uint8 [height, width, channels]`, 0 to 255.
    Bytes,
    /// `float32 [channels, height, width]`.
    Tensor(&'a Values),
}

/// The values of a tensor, which has as many channels as its image: 0 to 1 as torchvision has them, and perhaps
/// normalized.
#[derive(Clone, Debug)]
pub struct Values(PointMap);

impl Values {
    /// `ToTensor`, which divides by 255, or else `ToDtype(float32, scale=True)`, which multiplies; then `Normalize` with
    /// a mean and a standard deviation for all channels or for each.
    ///
    /// # Errors
    /// `Config` for numbers of another count, for a standard deviation of 0, and for other than 1 to 4 channels.
    pub fn new(channels: usize, divide: bool, normalize: Option<(Vec<f32>, Vec<f32>)>) -> Result<Self> {
        let scaled = PointOp::ToDtype { dtype: Dtype::F32, scale: true };
        let first = if divide { PointOp::ToTensorDiv } else { scaled };
        let normalize = normalize.map(|(mean, std)| PointOp::Normalize { mean, std });
        let steps: Vec<PointOp> = [first].into_iter().chain(normalize).collect();
        PointMap::new(channels, &steps).map(Self).map_err(|e| Error::config(e.to_string()))
    }

    /// Writes those of finished pixels, `uint8 [height, width, channels]`, to `slot`, which is as large as they are.
    ///
    /// # Errors
    /// `Config` for other numbers of bytes than these sizes have, and for no pixels.
    pub fn write(&self, pixels: &[u8], height: usize, width: usize, slot: &mut [u8]) -> Result<()> {
        let channels = self.0.channels();
        let len = height.checked_mul(width).and_then(|count| count.checked_mul(channels));
        let view = View::new(pixels, height, width, channels, width.saturating_mul(channels));
        let (Some(view), true) = (view, len == Some(pixels.len())) else {
            let what = format!("{} bytes are no image of {width}x{height}x{channels}", pixels.len());
            return Err(Error::config(what));
        };
        let window = Window { top: 0, left: 0, height, width };
        let output = Output { flip_h: false, flip_v: false, map: &self.0, layout: Layout::Chw };
        write::write(view, window, PadMode::Edge, output, slot).map_err(Error::from)
    }
}

/// Memory that is used again from image to image.
#[derive(Debug, Default)]
pub struct SingleScratch {
    codec: codec::Scratch,
    kernel: KernelScratch,
    /// Pixels whose colours are still to be changed.
    pixels: Image,
    /// Pixels that are still to be framed.
    inner: Image,
    memory: ImageMemory,
}

/// An encoded image, and what is to be done to it. The bytes stay with the caller.
#[derive(Clone, Copy, Debug)]
pub struct Single {
    mode: Mode,
    /// How the stored image is turned before all else, as an EXIF orientation.
    orientation: u8,
    /// Of the stored image, height and width.
    stored: (usize, usize),
    /// How much smaller it is decoded.
    scale: Scale,
    fold: Fold,
    /// What is done to the result of that, where it was resampled: borders come first.
    frame: Option<Fold>,
    /// What is done to the colours of the result.
    colors: ColorSteps,
}

impl Single {
    /// All of the image in `bytes`, in mode `L` or `RGB`, as it is stored. `None` if it is not known beforehand that
    /// Pillow decodes the file without an error: a JPEG that does not end as JPEGs do, a PNG with a wrong checksum,
    /// with frames, or with something behind its pixels.
    ///
    /// # Errors
    /// Those of the header, and `Limit` for an image of too many pixels.
    pub fn open(bytes: &[u8], mode: Mode) -> Result<Option<Self>> {
        let encoded = Encoded::open(bytes)?;
        let whole = match encoded.codec().name() {
            "jpeg" => bytes.ends_with(&[0xFF, 0xD9]),
            "png" => codec::png_is_plain(bytes)?,
            _ => false,
        };
        if !whole {
            return Ok(None);
        }
        let (height, width) = encoded.header().size(false);
        Limits::default().check_pixels(height, width)?;
        let colors = ColorSteps::new([]);
        Ok(Some(Self {
            mode,
            orientation: 1,
            stored: (height, width),
            scale: Scale::Full,
            fold: Fold::new(height, width),
            frame: None,
            colors,
        }))
    }

    /// Height and width of the result.
    pub fn size(&self) -> (usize, usize) {
        self.frame.unwrap_or(self.fold).size()
    }

    /// Channels of the result: 1 or 3.
    pub fn channels(&self) -> usize {
        self.mode.channels(3)
    }

    /// Decodes it at a half, a quarter or an eighth of its size, as Pillow's `draft` has it of JPEGs. Comes before all else.
    pub fn draft(&self, bytes: &[u8], by: usize) -> Option<Self> {
        let scale = match by {
            2 => Scale::Half,
            4 => Scale::Quarter,
            8 => Scale::Eighth,
            _ => return None,
        };
        let first = self.is_whole() && self.orientation == 1 && self.scale == Scale::Full;
        if !first || !Encoded::open(bytes).ok()?.codec().scales() {
            return None;
        }
        let mut next = Self { scale, ..*self };
        let (height, width) = next.decoded();
        next.fold = Fold::new(height, width);
        Some(next)
    }

    /// Height and width of the decoded image, before it is turned.
    fn decoded(&self) -> (usize, usize) {
        let (height, width) = self.stored;
        let (width, height) = self.scale.size(width, height);
        (height, width)
    }

    /// Whether nothing is to be done to the decoded image, but perhaps to turn it.
    fn is_whole(&self) -> bool {
        let (height, width) = self.decoded();
        let (rows, columns) = if self.orientation >= 5 { (width, height) } else { (height, width) };
        self.fold.is_identity(rows, columns) && self.frame.is_none() && self.colors.is_empty()
    }

    /// Keeps a part, which must lie inside.
    pub fn crop(&self, part: Rect) -> Option<Self> {
        let (height, width) = self.size();
        part.check_inside(height, width).ok()?;
        self.then(&Action::Crop(part))
    }

    /// Resamples all of it.
    pub fn resize(&self, height: usize, width: usize, interpolation: Interpolation) -> Option<Self> {
        if height == 0 || width == 0 || Limits::default().check_pixels(height, width).is_err() {
            return None;
        }
        let (rows, columns) = self.size();
        let crop = Rect { top: 0, left: 0, height: rows, width: columns };
        let resize = Action::Resize { crop, cropped: true, height, width, interpolation };
        self.then(&resize).or_else(|| self.turned_first()?.then(&resize))
    }

    /// Resamples a part of it, `(left, top, right, bottom)` in pixels that need not be whole.
    pub fn resize_box(
        &self,
        height: usize,
        width: usize,
        interpolation: Interpolation,
        (left, top, right, bottom): (f32, f32, f32, f32),
    ) -> Option<Self> {
        if height == 0 || width == 0 || Limits::default().check_pixels(height, width).is_err() {
            return None;
        }
        let region = Region { top, left, bottom, right };
        let resized = |single: &Self| {
            let mut next = *single;
            let plain = next.frame.is_none() && next.colors.is_empty();
            (plain && next.fold.resize_region(region, (height, width), interpolation)).then_some(next)
        };
        resized(self).or_else(|| resized(&self.turned_first()?))
    }

    /// The same with flips in the first place: of the decoded pixels, where resampling may follow.
    fn turned_first(&self) -> Option<Self> {
        // Its one turn may be taken, and the sides are those of the turned image then.
        if self.orientation != 1 || !self.colors.is_empty() || self.fold.is_padded() || self.frame.is_some() {
            return None;
        }
        let Fold { flip_h, flip_v, resize: None, .. } = self.fold else { return None };
        let orientation = match (flip_h, flip_v) {
            (true, false) => 2,
            (true, true) => 3,
            (false, true) => 4,
            (false, false) => return None,
        };
        let (height, width) = self.decoded();
        let (Fold { crop, .. }, _) = self.fold.settled();
        let mirrored =
            |flip, start: usize, len: usize, side: usize| if flip { side - start - len } else { start };
        let seen = Rect {
            top: mirrored(flip_v, crop.top, crop.height, height),
            left: mirrored(flip_h, crop.left, crop.width, width),
            ..crop
        };
        Self { fold: Fold::new(height, width), ..*self }.turn(orientation)?.crop(seen)
    }

    /// Adds borders of one colour, a number for each channel; none where there are some already.
    pub fn pad(&self, left: usize, top: usize, right: usize, bottom: usize, fill: [u8; 3]) -> Option<Self> {
        let (height, width) = self.size();
        let height = height.checked_add(top)?.checked_add(bottom)?;
        let width = width.checked_add(left)?.checked_add(right)?;
        Limits::default().check_pixels(height, width).ok()?;
        let fill = PerChannel::new(&fill.map(f64::from)[..self.channels()]).ok()?;
        self.then(&Action::PadCrop {
            top: -i64::try_from(top).ok()?,
            left: -i64::try_from(left).ok()?,
            height,
            width,
            mode: PaddingMode::Constant,
            fill,
            mask_fill: None,
            added: None,
        })
    }

    /// Mirrors.
    pub fn flip(&self, horizontal: bool, vertical: bool) -> Option<Self> {
        self.then(&Action::Flip { horizontal, vertical })
    }

    /// Turns and mirrors as an EXIF orientation says. Comes before all else.
    pub fn turn(&self, orientation: u8) -> Option<Self> {
        let (height, width) = self.decoded();
        if self.orientation != 1 || !self.is_whole() || !(1..=8).contains(&orientation) {
            return None;
        }
        let (rows, columns) = if orientation >= 5 { (width, height) } else { (height, width) };
        Some(Self { orientation, fold: Fold::new(rows, columns), ..*self })
    }

    /// Changes colours, as Pillow and torchvision do; up to four times.
    pub fn adjust(&self, step: ColorStep) -> Option<Self> {
        let (ColorStep::Brightness(factor)
        | ColorStep::Contrast(factor)
        | ColorStep::Saturation(factor)
        | ColorStep::Hue(factor)) = step;
        let most = if matches!(step, ColorStep::Hue(_)) { 0.5 } else { f64::from(f32::MAX) };
        let colors = ColorSteps::new(self.colors.iter().copied().chain([step]));
        let fits = colors.len() > self.colors.len() && factor.abs() <= most;
        fits.then_some(Self { colors, ..*self })
    }

    fn then(&self, action: &Action) -> Option<Self> {
        // What moves pixels may come first all the same, if what they become does not depend on it: a mean does where some
        // are cut off, resampling and borders always.
        let has_mean = self.colors.iter().any(|step| matches!(step, ColorStep::Contrast(_)));
        match action {
            _ if self.colors.is_empty() => {}
            Action::Flip { .. } => {}
            Action::Crop(_) if !has_mean => {}
            _ => return None,
        }
        let (mut next, channels) = (*self, self.channels());
        if let Some(frame) = &mut next.frame {
            return frame.push(action, channels).then_some(next);
        }
        if next.fold.push(action, channels) {
            return Some(next);
        }
        if !matches!(action, Action::PadCrop { .. }) || next.fold.is_padded() {
            return None;
        }
        let (height, width) = next.fold.size();
        let mut frame = Fold::new(height, width);
        frame.push(action, channels).then_some(Self { frame: Some(frame), ..next })
    }

    /// Bytes of the result.
    pub fn len(&self, form: Form<'_>) -> usize {
        let (height, width) = self.size();
        height * width * self.channels() * if matches!(form, Form::Tensor(_)) { 4 } else { 1 }
    }

    /// Makes the result of the image in `bytes`, which must be those of [`Single::open`]. `slot` has the size that
    /// [`Single::len`] says. What `rows` know of the image is used, and what is found out is added.
    ///
    /// # Errors
    /// As decoding has them; contents of `slot` are unspecified then.
    pub fn render(
        &self,
        bytes: &[u8],
        form: Form<'_>,
        rows: Option<&SeenRows>,
        scratch: &mut SingleScratch,
        slot: &mut [u8],
    ) -> Result<()> {
        if self.colors.is_empty() {
            return self.render_framed(bytes, form, rows, scratch, slot);
        }
        let (height, width) = self.size();
        let mut pixels = std::mem::take(&mut scratch.pixels);
        let into = pixels.reshape(height, width, self.channels())?;
        self.render_framed(bytes, Form::Bytes, rows, scratch, into)?;
        self.colors.run(&mut pixels, &mut scratch.memory)?;
        match form {
            Form::Bytes => slot.copy_from_slice(pixels.pixels()),
            Form::Tensor(values) => values.write(pixels.pixels(), height, width, slot)?,
        }
        scratch.pixels = pixels;
        Ok(())
    }

    /// The same before colours are changed.
    fn render_framed(
        &self,
        bytes: &[u8],
        form: Form<'_>,
        rows: Option<&SeenRows>,
        scratch: &mut SingleScratch,
        slot: &mut [u8],
    ) -> Result<()> {
        let Some(frame) = self.frame else { return self.render_plain(bytes, form, rows, scratch, slot) };
        let (height, width) = self.fold.size();
        let mut inner = std::mem::take(&mut scratch.inner);
        let into = inner.reshape(height, width, self.channels())?;
        self.render_plain(bytes, Form::Bytes, rows, scratch, into)?;
        let (map, layout) = self.written(form)?;
        let output = Output { flip_h: frame.flip_h, flip_v: frame.flip_v, map, layout };
        write::write(inner.view(), frame.window, frame.pad, output, slot)?;
        scratch.inner = inner;
        Ok(())
    }

    /// How values are written.
    fn written<'a>(&self, form: Form<'a>) -> Result<(&'a PointMap, Layout)> {
        let (map, layout) = match form {
            Form::Bytes => (unchanged(self.channels())?, Layout::Hwc),
            Form::Tensor(Values(map)) => (map, Layout::Chw),
        };
        if map.channels() != self.channels() {
            let what = format!("an image of {} channels has values of {}", self.channels(), map.channels());
            return Err(Error::config(what));
        }
        Ok((map, layout))
    }

    /// The same before borders are added to what was resampled.
    fn render_plain(
        &self,
        bytes: &[u8],
        form: Form<'_>,
        rows: Option<&SeenRows>,
        scratch: &mut SingleScratch,
        slot: &mut [u8],
    ) -> Result<()> {
        let encoded = Encoded::open(bytes)?;
        let (height, width) = encoded.header().size(false);
        if (height, width) != self.stored {
            let what = format!("an image of {width}x{height} stands for one of {:?}", self.stored);
            return Err(Error::new(ErrorKind::Internal, what));
        }
        let encoded = encoded.turned(self.orientation);
        let SingleScratch { codec, kernel: memory, .. } = scratch;
        let (fold, needed) = self.fold.settled();
        let (map, layout) = self.written(form)?;
        let output = Output { flip_h: fold.flip_h, flip_v: fold.flip_v, map, layout };
        let channels = self.mode.band_channels(encoded.header().channels);
        let request = Request {
            mode: self.mode,
            region: Some(needed),
            apply_orientation: self.orientation != 1,
            scale: self.scale,
        };
        let mut decode = |codec: &mut codec::Scratch| {
            let mut kernel = Kernel::new(&fold, needed, channels, memory, output, slot)?;
            encoded.decode(&request, &Limits::default(), codec, &mut |band| kernel.push(band))?;
            kernel.finish()
        };
        match rows.filter(|_| encoded.codec().name() == "jpeg") {
            Some(rows) => rows.decode(bytes, |hint| {
                codec.row_hint = hint;
                let made = decode(codec);
                (made, std::mem::take(&mut codec.row_hint).found)
            }),
            None => decode(codec),
        }
    }
}

/// The map of bytes to themselves, for images of 1 and 3 channels.
fn unchanged(channels: usize) -> Result<&'static PointMap> {
    static MAPS: OnceLock<Vec<PointMap>> = OnceLock::new();
    let maps = MAPS.get_or_init(|| [1, 3].into_iter().filter_map(|c| PointMap::identity(c).ok()).collect());
    maps.iter()
        .find(|map| map.channels() == channels)
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("an image of {channels} channels")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An RGB image of 5x4 pixels (width x height).
    fn png() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 5, 4);
        encoder.set_color(png::ColorType::Rgb);
        let pixels: Vec<u8> = (0..60).map(|i| i * 4).collect();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        bytes
    }

    fn render(single: &Single, bytes: &[u8]) -> Vec<u8> {
        let mut slot = vec![0; single.len(Form::Bytes)];
        single.render(bytes, Form::Bytes, None, &mut SingleScratch::default(), &mut slot).unwrap();
        slot
    }

    #[test]
    fn steps_add_up_to_one_pass() {
        let bytes = png();
        let all = Single::open(&bytes, Mode::Rgb).unwrap().unwrap();
        assert_eq!((all.size(), all.channels()), ((4, 5), 3));
        let part =
            all.crop(Rect { top: 1, left: 2, height: 2, width: 3 }).unwrap().flip(true, false).unwrap();
        let rows =
            |y: usize| (2..5).rev().flat_map(move |x| (0..3).map(move |c| ((y * 5 + x) * 3 + c) as u8 * 4));
        assert_eq!(render(&part, &bytes), rows(1).chain(rows(2)).collect::<Vec<u8>>());
        let first = f32::from(render(&part, &bytes)[0]) / 255.0;
        for (normalize, expected) in [(None, first), (Some((vec![0.5], vec![0.2])), (first - 0.5) / 0.2)] {
            let values = Values::new(3, true, normalize).unwrap();
            let mut tensor = vec![0; part.len(Form::Tensor(&values))];
            part.render(&bytes, Form::Tensor(&values), None, &mut SingleScratch::default(), &mut tensor)
                .unwrap();
            assert_eq!(tensor[..4], expected.to_ne_bytes());
        }
        let grey = Values::new(1, false, None).unwrap();
        let mut slot = vec![0; part.len(Form::Tensor(&grey))];
        assert!(
            part.render(&bytes, Form::Tensor(&grey), None, &mut SingleScratch::default(), &mut slot).is_err()
        );
    }

    #[test]
    fn finished_pixels_become_values_too() {
        let values = Values::new(3, true, Some((vec![0.5], vec![0.2]))).unwrap();
        let pixels: Vec<u8> = (0..30).map(|i| i * 8).collect();
        let mut slot = [0; 120];
        values.write(&pixels, 2, 5, &mut slot).unwrap();
        for (at, value) in slot.chunks(4).enumerate() {
            let (channel, pixel) = (at / 10, at % 10);
            let expected = (f32::from(pixels[3 * pixel + channel]) / 255.0 - 0.5) / 0.2;
            assert_eq!(value, expected.to_ne_bytes());
        }
        assert!(values.write(&pixels[1..], 2, 5, &mut slot).is_err());
        assert!(values.write(&pixels, 2, 5, &mut slot[4..]).is_err());
        assert!(values.write(&[], 0, 5, &mut []).is_err());
        assert!(values.write(&pixels, usize::MAX, 5, &mut slot).is_err());
    }

    #[test]
    fn what_would_change_a_bit_is_refused() {
        let bytes = png();
        let all = Single::open(&bytes, Mode::L).unwrap().unwrap();
        let flipped = all.flip(true, false).unwrap();
        assert!(flipped.turn(6).is_none());
        let small = all.resize(3, 3, Interpolation::Bilinear).unwrap();
        assert!(small.resize(2, 2, Interpolation::Bilinear).is_none());
        assert!(small.flip(true, false).unwrap().resize(2, 2, Interpolation::Bilinear).is_none());
        assert!(all.crop(Rect { top: 0, left: 0, height: 5, width: 5 }).is_none());
        let turned = all.turn(6).unwrap();
        assert_eq!(turned.size(), (5, 4));
        let flipped = turned.flip(true, true).unwrap();
        assert!(flipped.resize(9, 9, Interpolation::Bilinear).is_none());
    }

    #[test]
    fn flips_before_a_resize_are_turns() {
        let bytes = png();
        let all = Single::open(&bytes, Mode::Rgb).unwrap().unwrap();
        let part = all.flip(true, true).unwrap().crop(Rect { top: 0, left: 1, height: 2, width: 4 }).unwrap();
        let plain = part.resize(2, 4, Interpolation::Bilinear).unwrap();
        assert_eq!(render(&plain, &bytes), render(&part, &bytes));
        let doubled = part.resize(4, 8, Interpolation::Nearest).unwrap();
        let pixel = |pixels: &[u8], at: usize| [pixels[3 * at], pixels[3 * at + 1], pixels[3 * at + 2]];
        let (small, large) = (render(&part, &bytes), render(&doubled, &bytes));
        assert!((0..32).all(|at| pixel(&large, at) == pixel(&small, at / 16 * 4 + at % 8 / 2)));
    }

    #[test]
    fn borders_are_added_where_nothing_was_resampled() {
        let bytes = png();
        let all = Single::open(&bytes, Mode::Rgb).unwrap().unwrap();
        let framed = all.flip(true, false).unwrap().pad(1, 0, 2, 1, [7, 8, 9]).unwrap();
        assert_eq!(framed.size(), (5, 8));
        let (inner, pixels) = (render(&all, &bytes), render(&framed, &bytes));
        for (at, pixel) in pixels.chunks(3).enumerate() {
            let (y, x) = (at / 8, at % 8);
            let inside = y < 4 && (1..6).contains(&x);
            let expected = if inside { &inner[3 * (5 * y + 5 - x)..][..3] } else { &[7, 8, 9] };
            assert_eq!(pixel, expected, "row {y}, column {x}");
        }
        assert!(framed.crop(Rect { top: 0, left: 0, height: 2, width: 2 }).is_some());
        assert!(framed.pad(1, 1, 1, 1, [0; 3]).is_none());
        assert!(framed.resize(3, 3, Interpolation::Bilinear).is_none());
        assert!(all.pad(usize::MAX, 1, 1, 1, [0; 3]).is_none());
        assert!(all.pad(1 << 30, 1, 1 << 30, 1, [0; 3]).is_none());
    }

    #[test]
    fn borders_are_added_to_what_was_resampled() {
        let bytes = png();
        let all = Single::open(&bytes, Mode::Rgb).unwrap().unwrap();
        let small = all.resize(3, 4, Interpolation::Bilinear).unwrap().flip(true, false).unwrap();
        let framed = small.pad(2, 1, 0, 3, [7, 8, 9]).unwrap();
        assert_eq!(framed.size(), (7, 6));
        let inner = render(&small, &bytes);
        let expected = |y: usize, x: usize| {
            let inside = (1..4).contains(&y) && x >= 2;
            if inside { &inner[3 * (4 * (y - 1) + x - 2)..][..3] } else { &[7, 8, 9] }
        };
        let equal = |single: &Single, at: &dyn Fn(usize, usize) -> (usize, usize)| {
            let (height, width) = single.size();
            let pixels = render(single, &bytes);
            assert_eq!(pixels.len(), 3 * height * width);
            for (i, pixel) in pixels.chunks(3).enumerate() {
                let (y, x) = at(i / width, i % width);
                assert_eq!(pixel, expected(y, x), "row {y}, column {x}");
            }
        };
        equal(&framed, &|y, x| (y, x));
        let part = Rect { top: 1, left: 1, height: 5, width: 3 };
        equal(&framed.crop(part).unwrap(), &|y, x| (y + 1, x + 1));
        equal(&framed.flip(true, true).unwrap().crop(part).unwrap(), &|y, x| (5 - y, 4 - x));
        let values = Values::new(3, true, None).unwrap();
        let mut tensor = vec![0; framed.len(Form::Tensor(&values))];
        framed
            .render(&bytes, Form::Tensor(&values), None, &mut SingleScratch::default(), &mut tensor)
            .unwrap();
        assert_eq!(tensor[..4], (7.0f32 / 255.0).to_ne_bytes());
        assert!(framed.pad(1, 1, 1, 1, [0; 3]).is_none());
        assert!(framed.resize(3, 3, Interpolation::Bilinear).is_none());
        assert!(framed.resize_box(3, 3, Interpolation::Bilinear, (0.0, 0.0, 2.0, 2.0)).is_none());
        assert!(framed.turn(6).is_none());
        let brighter = framed.adjust(ColorStep::Brightness(2.0)).unwrap();
        assert_eq!(render(&brighter, &bytes)[..3], [14, 16, 18]);
        assert!(all.adjust(ColorStep::Brightness(2.0)).unwrap().pad(1, 1, 1, 1, [0; 3]).is_none());
    }

    #[test]
    fn a_box_of_whole_pixels_that_keeps_its_size_is_a_crop() {
        let bytes = png();
        let all = Single::open(&bytes, Mode::Rgb).unwrap().unwrap();
        let part = all.crop(Rect { top: 1, left: 2, height: 2, width: 3 }).unwrap();
        let nearest = all.resize_box(2, 3, Interpolation::Nearest, (2.0, 1.0, 5.0, 3.0)).unwrap();
        assert_eq!(render(&nearest, &bytes), render(&part, &bytes));
        let flipped = all.flip(true, false).unwrap();
        let turned = flipped.resize_box(2, 3, Interpolation::Bilinear, (0.0, 1.0, 3.0, 3.0)).unwrap();
        assert_eq!(render(&turned, &bytes), render(&part.flip(true, false).unwrap(), &bytes));
        for outside in
            [(0.0, 0.0, 5.5, 4.0), (-0.1, 0.0, 5.0, 4.0), (2.0, 1.0, 2.0, 3.0), (0.0, f32::NAN, 5.0, 4.0)]
        {
            assert!(all.resize_box(2, 3, Interpolation::Bilinear, outside).is_none(), "{outside:?}");
        }
        assert!(all.resize_box(0, 3, Interpolation::Bilinear, (0.0, 0.0, 5.0, 4.0)).is_none());
    }

    #[test]
    fn colours_are_changed_after_all_that_moves_pixels() {
        let bytes = png();
        let all = Single::open(&bytes, Mode::Rgb).unwrap().unwrap();
        let changed = |single: &Single, step| {
            let mut image = Image::new();
            let (height, width) = single.size();
            image.reshape(height, width, 3).unwrap().copy_from_slice(&render(single, &bytes));
            ColorSteps::new([step]).run(&mut image, &mut ImageMemory::default()).unwrap();
            image.pixels().to_vec()
        };
        let part = Rect { top: 1, left: 0, height: 2, width: 4 };
        for step in [
            ColorStep::Brightness(1.3),
            ColorStep::Contrast(0.4),
            ColorStep::Saturation(2.0),
            ColorStep::Hue(0.3),
        ] {
            let small = all.crop(part).unwrap();
            let adjusted = small.adjust(step).unwrap();
            assert_eq!(render(&adjusted, &bytes), changed(&small, step), "{step:?}");
            let flipped = adjusted.flip(true, false).unwrap();
            assert_eq!(
                render(&flipped, &bytes),
                changed(&small.flip(true, false).unwrap(), step),
                "{step:?}"
            );
            let cut = all.adjust(step).unwrap().crop(part);
            match step {
                ColorStep::Contrast(_) => assert!(cut.is_none(), "its mean is that of all of the image"),
                _ => assert_eq!(render(&cut.unwrap(), &bytes), changed(&small, step), "{step:?}"),
            }
            let adjusted = all.adjust(step).unwrap();
            assert!(adjusted.resize(3, 3, Interpolation::Bilinear).is_none());
            assert!(adjusted.pad(1, 1, 1, 1, [0; 3]).is_none());
            assert!(adjusted.turn(6).is_none());
            assert!(adjusted.flip(true, false).unwrap().resize(3, 3, Interpolation::Bilinear).is_none());
            let values = Values::new(3, true, None).unwrap();
            let mut slot = vec![0; adjusted.len(Form::Tensor(&values))];
            adjusted
                .render(&bytes, Form::Tensor(&values), None, &mut SingleScratch::default(), &mut slot)
                .unwrap();
            let first = f32::from(render(&adjusted, &bytes)[0]) / 255.0;
            assert_eq!(slot[..4], first.to_ne_bytes());
        }
        let mut many = all;
        for _ in 0..4 {
            many = many.adjust(ColorStep::Brightness(1.1)).unwrap();
        }
        assert!(many.adjust(ColorStep::Brightness(1.1)).is_none());
        assert!(all.adjust(ColorStep::Brightness(f64::NAN)).is_none());
        assert!(all.adjust(ColorStep::Contrast(1e60)).is_none());
        assert!(all.adjust(ColorStep::Hue(0.6)).is_none());
    }

    #[test]
    fn only_jpegs_are_decoded_smaller_and_that_comes_first() {
        use jpeg_encoder::{ColorType, Encoder};
        let mut bytes = Vec::new();
        let pixels: Vec<u8> = (0..21 * 13 * 3).map(|i| (i % 251) as u8).collect();
        Encoder::new(&mut bytes, 90).encode(&pixels, 21, 13, ColorType::Rgb).unwrap();
        let all = Single::open(&bytes, Mode::Rgb).unwrap().unwrap();
        for (by, size) in [(2, (7, 11)), (4, (4, 6)), (8, (2, 3))] {
            let small = all.draft(&bytes, by).unwrap();
            assert_eq!(small.size(), size);
            let (height, width) = size;
            let pixels = render(&small, &bytes);
            let turned = small.turn(6).unwrap();
            assert_eq!(turned.size(), (width, height));
            let part = small.flip(true, false).unwrap();
            let flipped = render(&part, &bytes);
            assert!((0..3 * width).all(|i| flipped[i] == pixels[3 * (width - 1 - i / 3) + i % 3]));
            assert!(small.draft(&bytes, 2).is_none());
            assert!(turned.draft(&bytes, 2).is_none());
        }
        assert!(all.flip(true, false).unwrap().draft(&bytes, 2).is_none());
        assert!(all.draft(&bytes, 3).is_none());
        let png = png();
        assert!(Single::open(&png, Mode::Rgb).unwrap().unwrap().draft(&png, 2).is_none());
    }

    #[test]
    fn files_that_may_not_decode_are_not_opened() {
        let mut bytes = png();
        let end = bytes.len() - 12;
        assert!(Single::open(&bytes[..end], Mode::Rgb).is_err());
        let text = [&[0, 0, 0, 3][..], b"tEXta\0b", &crc32fast::hash(b"tEXta\0b").to_be_bytes()].concat();
        bytes.splice(end..end, text);
        assert!(Single::open(&bytes, Mode::Rgb).unwrap().is_none(), "Pillow reads what is behind the pixels");
    }
}
