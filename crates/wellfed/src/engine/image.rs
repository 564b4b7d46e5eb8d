//! Makes one image: header, draws, decode, steps, slot.
//!
//! All random numbers are settled right after the header is read, because draws look only at sizes. Decoding waits
//! until the first step that needs pixels has said which ones.

use std::{ops::Range, sync::OnceLock};

use wellfed_kernels::{
    alpha::{premultiply, unpremultiply},
    image::{Image, Layout, View},
    points::PointMap,
    resample::{Resizer, Source},
    write::{GeometryError, Output, Window, write},
};

use super::{
    float::FloatImage,
    fold::Fold,
    whole::{self, WholeScratch},
};
use crate::{
    Error, ErrorKind, Limits, Result,
    codec::{self, Origin},
    meter::{Probe, Stage},
    order::Pick,
    plan::program::{ImageProgram, Input, Step},
    rng::Rng,
    sample::PixelLayout,
    transform::{Action, Class, Size},
};

/// Memory for one image at a time.
#[derive(Debug, Default)]
pub(crate) struct ImageScratch {
    codec: codec::Scratch,
    /// What the decoder gave.
    decoded: Image,
    /// The image between steps.
    work: Image,
    /// Where a step writes that cannot write in place.
    spare: Image,
    /// An image with alpha, premultiplied before and after resampling.
    alpha: [Image; 2],
    resizer: Resizer,
    actions: Vec<Action>,
    /// Size before each action, and after the last.
    sizes: Vec<Size>,
    float: FloatImage,
    whole: WholeScratch,
}

impl ImageScratch {
    pub(crate) fn rows(&mut self) -> &mut codec::Rows {
        &mut self.codec.rows
    }

    pub(crate) fn capacity(&self) -> usize {
        self.codec.capacity()
            + self.decoded.capacity()
            + self.work.capacity()
            + self.spare.capacity()
            + self.alpha.iter().map(Image::capacity).sum::<usize>()
            + self.resizer.capacity()
            + self.float.capacity()
            + self.whole.capacity()
    }
}

/// One image to make.
#[derive(Clone, Copy)]
pub(crate) struct Maker<'a> {
    pub(crate) program: &'a ImageProgram,
    pub(crate) seed: u64,
    pub(crate) pick: Pick,
    pub(crate) limits: &'a Limits,
}

/// Where the pixels are.
#[derive(Clone, Copy)]
enum Held<'a> {
    /// Still encoded.
    Encoded(&'a [u8]),
    /// In the source's memory.
    Resident(View<'a>),
    /// In `scratch.work`.
    Work,
}

impl Maker<'_> {
    /// Makes the image from `bytes` (encoded, or pixels in place) into `slot`.
    pub(crate) fn make(
        &self,
        bytes: &[u8],
        scratch: &mut ImageScratch,
        slot: &mut [u8],
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let (mut held, size) = self.open(bytes, scratch)?;
        self.draw(size, scratch)?;
        let last = scratch.sizes[scratch.sizes.len() - 1];
        if [last.channels, last.height, last.width] != self.program.chw() {
            return Err(self.other_shape(last));
        }
        for step in &self.program.steps {
            match step {
                Step::Geometry(stages) => held = self.geometry(held, stages.clone(), scratch, probe)?,
                Step::Whole(stage) => {
                    let size = scratch.sizes[*stage];
                    if !matches!(held, Held::Work) {
                        let fold = Fold::new(size.height, size.width);
                        self.materialize(held, &fold, size, scratch, probe)?;
                        held = Held::Work;
                    }
                    let ImageScratch { work, whole, actions, .. } = &mut *scratch;
                    whole::run(&mut actions[*stage], work, whole)
                        .map_err(|e| e.with_stage(self.program.stages[*stage].transform.name()))?;
                    probe.lap(Stage::Transform, work.pixels().len());
                }
                Step::Write { stages, map } => {
                    let (fold, size);
                    (held, fold, size) = self.fold(held, stages.clone(), scratch, probe)?;
                    self.render(held, &fold, size, map, self.program.layout, scratch, slot, probe)?;
                    probe.lap(Stage::Write, slot.len());
                }
                Step::Erase(stage) => {
                    let size = scratch.sizes[*stage];
                    let program = self.program;
                    whole::erase_slot(
                        &mut scratch.actions[*stage],
                        size,
                        program.dtype,
                        program.layout,
                        slot,
                    );
                    probe.lap(Stage::Write, 0);
                }
                Step::Float(stages) => {
                    let size = scratch.sizes[stages.start];
                    if !matches!(held, Held::Work) {
                        let fold = Fold::new(size.height, size.width);
                        self.materialize(held, &fold, size, scratch, probe)?;
                        held = Held::Work;
                    }
                    scratch.float.load(scratch.work.view());
                    for stage in stages.clone() {
                        scratch
                            .float
                            .run(&mut scratch.actions[stage])
                            .map_err(|e| e.with_stage(self.program.stages[stage].transform.name()))?;
                    }
                    probe.lap(Stage::Transform, scratch.float.bytes());
                    scratch.float.store(self.program.layout, slot);
                    probe.lap(Stage::Write, slot.len());
                }
            }
        }
        Ok(())
    }

    /// Finished size of the image in `bytes`, without making it.
    pub(crate) fn final_size(&self, bytes: &[u8], scratch: &mut ImageScratch) -> Result<Size> {
        let (_, size) = self.open(bytes, scratch)?;
        self.draw(size, scratch)?;
        Ok(scratch.sizes[scratch.sizes.len() - 1])
    }

    /// Reads the header: where the pixels are, and the size of the whole image.
    fn open<'b>(&self, bytes: &'b [u8], scratch: &mut ImageScratch) -> Result<(Held<'b>, Size)> {
        match self.program.input {
            Input::Encoded { mode, orientation } => {
                let (_, header) = codec::image_header(bytes).map_err(|e| e.with_stage("decode"))?;
                let (height, width) = header.size(orientation);
                self.limits.check_pixels(height, width).map_err(|e| e.with_stage("decode"))?;
                let channels = mode.channels(header.channels);
                Ok((Held::Encoded(bytes), Size { height, width, channels }))
            }
            Input::Pixels { height, width, channels, layout } => {
                let size = Size { height, width, channels };
                let wrong = || {
                    Error::new(
                        ErrorKind::Shape,
                        format!("pixels of {height}x{width}x{channels} take {} bytes", bytes.len()),
                    )
                };
                let view = if layout == PixelLayout::Hwc || channels == 1 {
                    View::new(bytes, height, width, channels, width * channels).ok_or_else(wrong)?
                } else {
                    interleave(bytes, size, scratch.work.reshape(height, width, channels))
                        .ok_or_else(wrong)?;
                    return Ok((Held::Work, size));
                };
                Ok((Held::Resident(view), size))
            }
        }
    }

    /// Settles every action for an image of `size`.
    fn draw(&self, size: Size, scratch: &mut ImageScratch) -> Result<()> {
        scratch.actions.clear();
        scratch.sizes.clear();
        scratch.sizes.push(size);
        let mut size = size;
        for planned in &self.program.stages {
            let mut rng = Rng::for_stage(self.seed, self.pick.epoch, self.pick.index, planned.stage);
            let action = planned
                .transform
                .as_stage()
                .draw(size, &mut rng)
                .map_err(|e| e.with_stage(planned.transform.name()))?;
            size = action.size(size);
            self.limits
                .check_pixels(size.height, size.width)
                .map_err(|e| e.with_stage(planned.transform.name()))?;
            scratch.actions.push(action);
            scratch.sizes.push(size);
        }
        Ok(())
    }

    /// Runs geometric stages; the result is in `scratch.work`, unless there was nothing to do.
    fn geometry<'b>(
        &self,
        held: Held<'b>,
        stages: Range<usize>,
        scratch: &mut ImageScratch,
        probe: &mut Probe<'_>,
    ) -> Result<Held<'b>> {
        let (held, fold, size) = self.fold(held, stages, scratch, probe)?;
        if fold.is_identity(size.height, size.width) {
            return Ok(held);
        }
        self.materialize(held, &fold, size, scratch, probe)?;
        Ok(Held::Work)
    }

    /// Folds the geometric actions of `stages`, making images in between only where folding is not exact: where
    /// the pixels are then, what is left to do, and the size of the image that it starts from.
    fn fold<'b>(
        &self,
        mut held: Held<'b>,
        stages: Range<usize>,
        scratch: &mut ImageScratch,
        probe: &mut Probe<'_>,
    ) -> Result<(Held<'b>, Fold, Size)> {
        let mut size = scratch.sizes[stages.start];
        let mut fold = Fold::new(size.height, size.width);
        for stage in stages {
            if matches!(self.program.stages[stage].class, Class::Cast | Class::Normalize)
                || fold.push(&scratch.actions[stage], size.channels)
            {
                continue;
            }
            self.materialize(held, &fold, size, scratch, probe)?;
            held = Held::Work;
            size = scratch.sizes[stage];
            fold = Fold::new(size.height, size.width);
            if !fold.push(&scratch.actions[stage], size.channels) {
                let what = format!("{:?} is not geometry", scratch.actions[stage]);
                return Err(Error::new(ErrorKind::Internal, what));
            }
        }
        Ok((held, fold, size))
    }

    /// Makes an 8-bit image of what `fold` says, in `scratch.work`.
    fn materialize(
        &self,
        held: Held<'_>,
        fold: &Fold,
        size: Size,
        scratch: &mut ImageScratch,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let (height, width) = fold.size();
        let map = identity(size.channels)?;
        let mut spare = std::mem::take(&mut scratch.spare);
        let slot = spare.reshape(height, width, size.channels);
        let result = self.render(held, fold, size, map, Layout::Hwc, scratch, slot, probe);
        scratch.spare = std::mem::replace(&mut scratch.work, spare);
        result?;
        probe.lap(Stage::Transform, height * width * size.channels);
        Ok(())
    }

    /// Runs a fold into `slot`, decoding what it needs if that was not done yet.
    #[allow(clippy::too_many_arguments, reason = "the one place where everything about an image meets")]
    fn render(
        &self,
        held: Held<'_>,
        fold: &Fold,
        size: Size,
        map: &PointMap,
        layout: Layout,
        scratch: &mut ImageScratch,
        slot: &mut [u8],
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let (fold, mut needed) = fold.settled();
        if matches!(size.channels, 2 | 4) {
            needed = fold.crop;
        }
        let ImageScratch { codec, decoded, work, resizer, alpha, .. } = scratch;
        let (view, origin) = match held {
            Held::Resident(view) => (view, Origin { top: 0, left: 0 }),
            Held::Work => (work.view(), Origin { top: 0, left: 0 }),
            Held::Encoded(bytes) => {
                let Input::Encoded { mode, orientation } = self.program.input else {
                    return Err(Error::new(ErrorKind::Internal, "pixels in place are not encoded"));
                };
                let region = self.program.decode_region.then_some(needed);
                let (_, origin) =
                    codec::decode_image(bytes, mode, region, orientation, self.limits, codec, decoded)
                        .map_err(|e| e.with_stage("decode"))?;
                probe.lap(Stage::Decode, decoded.pixels().len());
                (decoded.view(), origin)
            }
        };
        let outside = || {
            Error::new(
                ErrorKind::Internal,
                format!(
                    "{needed:?} of a {}x{} image is not in the {}x{} decoded at {origin:?}",
                    size.height,
                    size.width,
                    view.height(),
                    view.width()
                ),
            )
        };
        let part = (needed.top.checked_sub(origin.top).zip(needed.left.checked_sub(origin.left)))
            .and_then(|(top, left)| view.crop(top, left, needed.height, needed.width))
            .ok_or_else(outside)?;
        let output = Output { flip_h: fold.flip_h, flip_v: fold.flip_v, map, layout };
        match fold.kernel_resize() {
            Some(resize) if matches!(size.channels, 2 | 4) && !fold.is_nearest() => {
                // Pillow resamples images with alpha premultiplied, one of few things that a fused kernel cannot do.
                let crop = &fold.crop;
                let whole = view
                    .crop(crop.top - origin.top, crop.left - origin.left, crop.height, crop.width)
                    .ok_or_else(outside)?;
                alpha[0].copy_from(whole);
                premultiply(&mut alpha[0]);
                let [premultiplied, resized] = alpha;
                resizer.resize(premultiplied.view(), &resize, resized).map_err(geometry)?;
                unpremultiply(resized);
                let full = Window { top: 0, left: 0, height: resized.height(), width: resized.width() };
                write(resized.view(), full, fold.pad, output, slot).map_err(geometry)
            }
            Some(resize) => {
                let at = (needed.top - fold.crop.top, needed.left - fold.crop.left);
                let source = Source::part(part, at, (fold.crop.height, fold.crop.width)).map_err(geometry)?;
                resizer.resize_write(source, &resize, output, slot).map_err(geometry)
            }
            None => write(part, fold.window, fold.pad, output, slot).map_err(geometry),
        }
    }

    fn other_shape(&self, size: Size) -> Error {
        let [channels, height, width] = self.program.chw();
        Error::new(
            ErrorKind::Shape,
            format!(
                "image ends as {}x{}x{}, others of the batch as {height}x{width}x{channels} \
                 (height x width x channels)",
                size.height, size.width, size.channels
            ),
        )
        .with_stage("batch")
        .with_hint(
            "end the geometric transforms with one of fixed size, such as CenterCrop or Resize((h, w))",
        )
    }
}

/// Identity maps for 1 to 4 channels, made once.
fn identity(channels: usize) -> Result<&'static PointMap> {
    static MAPS: OnceLock<Vec<PointMap>> = OnceLock::new();
    let maps =
        MAPS.get_or_init(|| (1..=4).filter_map(|channels| PointMap::identity(channels).ok()).collect());
    maps.get(channels.wrapping_sub(1))
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("an image of {channels} channels")))
}

fn geometry(error: GeometryError) -> Error {
    Error::new(ErrorKind::Shape, error.to_string()).with_stage("resample")
}

/// Channel planes to interleaved pixels; `None` if the sizes do not agree.
fn interleave(planes: &[u8], size: Size, out: &mut [u8]) -> Option<()> {
    let plane = size.height * size.width;
    if planes.len() != out.len() || plane == 0 {
        return None;
    }
    for (c, channel) in planes.chunks_exact(plane).enumerate() {
        for (pixel, &value) in out.chunks_exact_mut(size.channels).zip(channel) {
            pixel[c] = value;
        }
    }
    Some(())
}
