//! Makes one image: header, draws, decode, steps, slot.
//!
//! All random numbers are settled right after the header is read, because draws look only at sizes. Decoding waits
//! until the first step that needs pixels has said which ones.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
    time::Duration,
};

use wellfed_kernels::{
    alpha::{premultiply, unpremultiply},
    image::{Image, Layout, View},
    points::PointMap,
    resample::Resizer,
    write::{Output, Window, write},
};

use super::{
    float::FloatImage,
    fold::Fold,
    kernel::{Kernel, KernelScratch},
    left, recipe,
    tensorflow::{self, TfImage},
    whole,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    budget::Room,
    codec::{self, Encoded, Push, Request, Scale},
    meter::{Phase, Probe},
    order::Pick,
    plan::field::{ImageProgram, Input, Planned, Step},
    rng::Rng,
    sample::{BoxFormat, PixelLayout},
    transform::{Action, Class, ImageMemory, Rect, Size, boxes::Boxes},
};

/// Memory for one image at a time.
#[derive(Debug, Default)]
pub(crate) struct ImageScratch {
    pub(super) codec: codec::Scratch,
    /// The image between steps.
    work: Image,
    /// Where a step writes that cannot write in place.
    spare: Image,
    /// An image with alpha, premultiplied before and after resampling.
    alpha: [Image; 2],
    pub(super) kernel: KernelScratch,
    /// Makes weights for devices.
    pub(super) weights: Option<Resizer>,
    actions: Vec<Action>,
    /// Size before each action, and after the last.
    sizes: Vec<Size>,
    float: FloatImage,
    tensorflow: TfImage,
    whole: ImageMemory,
    group: Group,
}

/// Where a finished image goes.
pub(crate) enum Target<'a> {
    /// Here: all images have this size.
    Slot(&'a mut [u8]),
    /// Into memory of its own, which becomes as large as the image.
    Open(&'a mut Vec<u8>),
}

/// The boxes of a sample as its source gave them, and what is done to them.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) format: BoxFormat,
    pub(crate) whole: bool,
    pub(crate) operations: &'a [Planned],
}

/// What was drawn for a sample, for all of its fields. The first image settles it.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Size of the first image, before anything is done to it.
    canvas: Option<Size>,
    draws: Vec<Drawn>,
    /// What draws look at.
    boxes: Boxes,
}

/// One operation's draw, and the size that it was drawn for.
#[derive(Debug)]
struct Drawn {
    place: u32,
    size: Size,
    action: Action,
}

impl Group {
    /// Forgets the last sample.
    pub(crate) fn clear(&mut self) {
        self.canvas = None;
        self.draws.clear();
    }

    /// The boxes as they are at `place`, where all operations before it were drawn: left, top, right and bottom.
    fn boxes_before(&mut self, beside: Beside<'_>, place: u32) -> Result<&[[f32; 4]]> {
        let mut boxes = std::mem::take(&mut self.boxes);
        if !boxes.load(beside.bytes, beside.format, beside.whole) {
            let what = format!("boxes are {} bytes, which are no rows of four numbers", beside.bytes.len());
            return Err(Error::new(ErrorKind::Shape, what));
        }
        let before = beside.operations.partition_point(|planned| planned.place < place);
        self.follow(&beside.operations[..before], |action, canvas| boxes.run(action, canvas))?;
        self.boxes = boxes;
        Ok(self.boxes.corners())
    }

    fn find(&self, place: u32) -> Option<&Drawn> {
        self.draws.iter().find(|drawn| drawn.place == place)
    }

    /// Runs `operations` on boxes or points of the sample: `run` takes an action and the size that it was drawn for.
    pub(crate) fn follow(
        &self,
        operations: &[Planned],
        mut run: impl FnMut(&Action, Size) -> Result<()>,
    ) -> Result<()> {
        let Some(mut canvas) = self.canvas else {
            return Err(Error::config(
                "boxes and points need an image in their sample, which says how large it is",
            ));
        };
        for Planned { transform, class, place } in operations {
            let drawn = match class {
                // They draw nothing.
                Class::Boxes => transform.as_operation().draw(canvas, &mut Rng::for_stage(0, 0, 0, 0)),
                _ => match self.find(*place) {
                    Some(drawn) if same_sides(drawn.size, canvas) => Ok(drawn.action.clone()),
                    Some(drawn) => Err(other_size(canvas, drawn.size)),
                    None => Err(Error::new(ErrorKind::Internal, "no image drew what boxes follow")),
                },
            };
            let action = drawn.map_err(|e| e.with_stage(transform.name()))?;
            run(&action, canvas).map_err(|e| e.with_stage(transform.name()))?;
            canvas = action.size(canvas);
        }
        Ok(())
    }
}

fn same_sides(one: Size, other: Size) -> bool {
    (one.height, one.width) == (other.height, other.width)
}

fn other_size(found: Size, drawn: Size) -> Error {
    let what = format!(
        "it belongs to {}x{} pixels (height x width), and the first image of the sample has {}x{} here",
        found.height, found.width, drawn.height, drawn.width
    );
    Error::new(ErrorKind::Shape, what)
        .with_hint("fields of a sample move together: resize them to one size first, or use map(field=...)")
}

impl ImageScratch {
    /// What was drawn for the sample.
    pub(crate) fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    /// Memory that is reserved in `room` before it is taken.
    pub(crate) fn within(room: Option<Arc<Room>>) -> Self {
        Self { codec: codec::Scratch::within(room), ..Self::default() }
    }

    /// Where memory is reserved.
    pub(crate) fn room(&self) -> Option<&Arc<Room>> {
        self.codec.room()
    }

    /// The decoders' memory.
    pub(crate) fn codec(&mut self) -> &mut codec::Scratch {
        &mut self.codec
    }

    /// Whether packed coefficients are known to be sound.
    pub(crate) fn trust(&mut self, sound: bool) {
        self.codec.sound = sound;
    }

    pub(crate) fn row_hint(&mut self) -> &mut codec::RowHint {
        &mut self.codec.row_hint
    }

    pub(crate) fn capacity(&self) -> usize {
        self.codec.capacity()
            + self.work.capacity()
            + self.spare.capacity()
            + self.alpha.iter().map(Image::capacity).sum::<usize>()
            + self.kernel.capacity()
            + self.weights.as_ref().map_or(0, Resizer::capacity)
            + self.float.capacity()
            + self.tensorflow.capacity()
            + self.whole.capacity()
            + self.group.draws.capacity() * size_of::<Drawn>()
            + self.group.boxes.capacity()
    }
}

/// One image to make.
#[derive(Clone, Copy)]
pub(crate) struct Maker<'a> {
    pub(crate) program: &'a ImageProgram,
    pub(crate) seed: u64,
    pub(crate) pick: Pick,
    pub(crate) limits: &'a Limits,
    /// The boxes that draws look at, if some do.
    pub(crate) beside: Option<Beside<'a>>,
}

/// Where the pixels are.
#[derive(Clone, Copy)]
pub(super) enum Held<'a> {
    /// Still encoded.
    Encoded(Encoded<'a>),
    /// In the source's memory.
    Resident(View<'a>),
    /// In `scratch.work`.
    Work,
}

impl Maker<'_> {
    /// Makes the image from `bytes` (encoded, or pixels in place) into `target`, and says its size.
    pub(crate) fn make(
        &self,
        bytes: &[u8],
        scratch: &mut ImageScratch,
        target: Target<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<Size> {
        let (mut held, size) = self.open(bytes, scratch)?;
        self.draw(size, scratch, self.program.shared)?;
        let last = scratch.sizes[scratch.sizes.len() - 1];
        let left = self.program.left().is_some();
        if (left || matches!(target, Target::Slot(_)))
            && [last.channels, last.height, last.width] != self.program.chw()
        {
            return Err(self.other_shape(last));
        }
        let (slot, record): (&mut [u8], _) = match target {
            Target::Slot(slot) => (slot, None),
            Target::Open(memory) if left => (&mut [], Some(memory)),
            Target::Open(memory) => (self.sized(memory, last, scratch)?, None),
        };
        for step in &self.program.steps {
            match step {
                Step::Decode => held = self.whole(held, 0, scratch, probe)?,
                Step::Geometry(operations) => {
                    held = self.geometry(held, operations.clone(), scratch, probe)?
                }
                Step::Whole(at) => held = self.change(held, *at, scratch, probe)?,
                Step::Write { operations, map } => {
                    let (fold, size);
                    (held, fold, size) = self.fold(held, operations.clone(), scratch, probe)?;
                    self.render(held, &fold, size, map, self.program.layout, scratch, slot, probe)?;
                    probe.lap(Phase::Write, slot.len());
                }
                Step::Leave { operations, rest, from, .. } => {
                    let Some(record) = record else {
                        return Err(Error::new(ErrorKind::Internal, "a record has no memory of its own"));
                    };
                    let (mut operations, mut rest) = (operations.clone(), &rest[..]);
                    let mut begin = scratch.sizes[operations.end];
                    let recipe = |rest: &[Step], scratch: &ImageScratch, begin: Size| {
                        let ImageScratch { actions, sizes, .. } = scratch;
                        recipe::of_steps(self.program, rest, actions, sizes, begin)
                    };
                    let mut follows = None;
                    if !rest.is_empty() {
                        follows = recipe(rest, scratch, begin).ok();
                    }
                    if follows.is_none() && !rest.is_empty() {
                        // This draw has what recipes have not: all up to the last write is done here.
                        held = self.geometry(held, operations, scratch, probe)?;
                        let write = rest.iter().rposition(|step| matches!(step, Step::Write { .. }));
                        let (before, after) = rest.split_at(write.unwrap_or(0));
                        for step in before {
                            held = match step {
                                Step::Geometry(range) => {
                                    self.geometry(held, range.clone(), scratch, probe)?
                                }
                                Step::Whole(at) => self.change(held, *at, scratch, probe)?,
                                _ => return Err(Error::new(ErrorKind::Internal, "a step that is not left")),
                            };
                        }
                        let Some((Step::Write { operations: last, .. }, erase)) = after.split_first() else {
                            return Err(Error::new(ErrorKind::Internal, "nothing is left to write"));
                        };
                        (operations, rest, begin) = (last.clone(), erase, scratch.sizes[last.end]);
                        if !rest.is_empty() {
                            follows = Some(recipe(rest, scratch, begin)?);
                        }
                    }
                    let (held, fold, size) = self.fold(held, operations, scratch, probe)?;
                    self.leave(held, &fold, size, *from, scratch, record, probe)?;
                    if let Some(recipe) = follows {
                        left::follow(&recipe, begin.channels, &scratch.codec, record)?;
                    }
                    probe.lap(Phase::Write, record.len());
                    return Ok(last);
                }
                Step::Crops { operations, map } => {
                    if let Held::Encoded(_) = held {
                        held = self.whole(held, operations.start, scratch, probe)?;
                    }
                    self.crops(held, operations.clone(), map, scratch, slot, probe)?;
                    probe.lap(Phase::Write, slot.len());
                }
                Step::Erase(at) => {
                    let size = scratch.sizes[*at];
                    let program = self.program;
                    whole::erase_slot(&scratch.actions[*at], size, program.dtype, program.layout, slot);
                    probe.lap(Phase::Write, 0);
                }
                Step::TensorFlow(at) => {
                    held = self.whole(held, *at, scratch, probe)?;
                    let stage = |e: Error| e.with_stage(self.program.operations[*at].transform.name());
                    let Action::TensorFlow(ops) = scratch.actions[*at].clone() else {
                        return Err(Error::new(
                            ErrorKind::Internal,
                            "TensorFlow's operations were not drawn",
                        ));
                    };
                    // Two images of bytes, two of floats, and rows.
                    let most = 11 * tensorflow::most(&ops, scratch.sizes[*at]);
                    scratch.codec.reserve(most, scratch.tensorflow.capacity())?;
                    let ImageScratch { tensorflow, work, .. } = &mut *scratch;
                    tensorflow.run(work, &ops, self.program.layout, slot).map_err(stage)?;
                    probe.lap(Phase::Write, slot.len());
                }
                Step::Float(operations) => {
                    held = self.whole(held, operations.start, scratch, probe)?;
                    // As float32, before and after each step.
                    let pixels = scratch.sizes[operations.start..=operations.end].iter();
                    let most = pixels.map(|size| size.height * size.width * size.channels).max().unwrap_or(0);
                    scratch.codec.reserve(8 * most, scratch.float.capacity())?;
                    scratch.float.make_room(most)?;
                    scratch.float.load(scratch.work.view());
                    for at in operations.clone() {
                        scratch
                            .float
                            .run(&mut scratch.actions[at])
                            .map_err(|e| e.with_stage(self.program.operations[at].transform.name()))?;
                    }
                    probe.lap(Phase::Transform, scratch.float.bytes());
                    scratch.float.store(self.program.layout, slot);
                    probe.lap(Phase::Write, slot.len());
                }
            }
        }
        Ok(last)
    }

    /// Memory for a finished image of `size`: exactly as many bytes as it has.
    fn sized<'m>(&self, memory: &'m mut Vec<u8>, size: Size, scratch: &ImageScratch) -> Result<&'m mut [u8]> {
        if size.channels != self.program.shape.channels {
            return Err(self.other_shape(size));
        }
        let bytes = self.program.bytes(size.height, size.width)?;
        if memory.capacity() < bytes {
            scratch.codec.reserve(bytes, memory.capacity())?;
            *memory = Vec::new();
            memory.try_reserve_exact(bytes).map_err(|_| Error::memory(bytes, "an image"))?;
        }
        memory.resize(bytes, 0);
        Ok(memory.as_mut_slice())
    }

    /// Finished size of the image in `bytes`, without making it.
    pub(crate) fn final_size(&self, bytes: &[u8], scratch: &mut ImageScratch) -> Result<Size> {
        let (_, size) = self.open(bytes, scratch)?;
        self.draw(size, scratch, false)?;
        Ok(scratch.sizes[scratch.sizes.len() - 1])
    }

    /// Reads the header: where the pixels are, and the size of the whole image.
    fn open<'b>(&self, bytes: &'b [u8], scratch: &mut ImageScratch) -> Result<(Held<'b>, Size)> {
        match self.program.input {
            Input::Encoded { mode, orientation } => {
                let encoded = Encoded::open(bytes).map_err(|e| e.with_stage("decode"))?;
                let (height, width) = encoded.header().size(orientation);
                self.limits.check_pixels(height, width).map_err(|e| e.with_stage("decode"))?;
                let channels = mode.channels(encoded.header().channels);
                Ok((Held::Encoded(encoded), Size { height, width, channels }))
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
                    interleave(bytes, size, scratch.work.reshape(height, width, channels)?)
                        .ok_or_else(wrong)?;
                    return Ok((Held::Work, size));
                };
                Ok((Held::Resident(view), size))
            }
        }
    }

    /// Settles every action for an image of `size`; where draws are `shared`, those of the sample's first image.
    fn draw(&self, size: Size, scratch: &mut ImageScratch, shared: bool) -> Result<()> {
        scratch.actions.clear();
        scratch.sizes.clear();
        scratch.sizes.push(size);
        if shared {
            scratch.group.canvas.get_or_insert(size);
        }
        let mut size = size;
        for planned in &self.program.operations {
            let drawn = if shared {
                self.draw_shared(planned, size, &mut scratch.group)
            } else {
                planned.transform.as_operation().draw(size, &mut self.rng(planned))
            };
            let mut action = drawn.map_err(|e| e.with_stage(planned.transform.name()))?;
            if let Some(depth) = self.program.mask {
                action = action.for_mask(depth).map_err(|e| e.with_stage(planned.transform.name()))?;
            }
            size = action.size(size);
            self.limits
                .check_pixels(size.height, size.width)
                .map_err(|e| e.with_stage(planned.transform.name()))?;
            scratch.actions.push(action);
            scratch.sizes.push(size);
        }
        Ok(())
    }

    /// The random numbers of an operation for this sample.
    fn rng(&self, planned: &Planned) -> Rng {
        Rng::for_stage(self.seed, self.pick.epoch, self.pick.index, planned.place)
    }

    /// What an image or mask of `size` does where all of a sample do the same: what the first one drew.
    fn draw_shared(&self, planned: &Planned, size: Size, group: &mut Group) -> Result<Action> {
        let operation = planned.transform.as_operation();
        let found = group.find(planned.place);
        match found {
            Some(drawn) if same_sides(drawn.size, size) => return Ok(drawn.action.clone()),
            Some(drawn) if operation.draws_by_size() => return Err(other_size(size, drawn.size)),
            _ => {}
        }
        let known = found.is_some();
        let mut rng = self.rng(planned);
        let action = match self.beside.filter(|_| operation.sees_boxes()) {
            Some(beside) => operation.draw_around(size, group.boxes_before(beside, planned.place)?, &mut rng),
            None => operation.draw(size, &mut rng),
        }?;
        if !known {
            group.draws.push(Drawn { place: planned.place, size, action: action.clone() });
        }
        Ok(action)
    }

    /// Puts the image before `at` into `scratch.work`, where it may be changed.
    fn whole<'b>(
        &self,
        held: Held<'b>,
        at: usize,
        scratch: &mut ImageScratch,
        probe: &mut Probe<'_>,
    ) -> Result<Held<'b>> {
        if !matches!(held, Held::Work) {
            let size = scratch.sizes[at];
            self.materialize(held, &Fold::new(size.height, size.width), size, scratch, probe)?;
        }
        Ok(Held::Work)
    }

    /// Runs the operation `at`, which needs a whole image; the result is in `scratch.work`.
    fn change<'b>(
        &self,
        held: Held<'b>,
        at: usize,
        scratch: &mut ImageScratch,
        probe: &mut Probe<'_>,
    ) -> Result<Held<'b>> {
        let held = self.whole(held, at, scratch, probe)?;
        let bytes = whole::memory(&scratch.actions[at], scratch.sizes[at]);
        scratch.codec.reserve(bytes, scratch.whole.capacity())?;
        let ImageScratch { work, whole, actions, .. } = &mut *scratch;
        whole::run(&mut actions[at], work, whole)
            .map_err(|e| e.with_stage(self.program.operations[at].transform.name()))?;
        probe.lap(Phase::Transform, work.pixels().len());
        Ok(held)
    }

    /// Runs geometric operations; the result is in `scratch.work`, unless there was nothing to do.
    fn geometry<'b>(
        &self,
        held: Held<'b>,
        operations: Range<usize>,
        scratch: &mut ImageScratch,
        probe: &mut Probe<'_>,
    ) -> Result<Held<'b>> {
        let (held, fold, size) = self.fold(held, operations, scratch, probe)?;
        if fold.is_identity(size.height, size.width) {
            return Ok(held);
        }
        self.materialize(held, &fold, size, scratch, probe)?;
        Ok(Held::Work)
    }

    /// Folds the geometric actions of `operations`, making images in between only where folding is not exact: where
    /// the pixels are then, what is left to do, and the size of the image that it starts from.
    fn fold<'b>(
        &self,
        mut held: Held<'b>,
        operations: Range<usize>,
        scratch: &mut ImageScratch,
        probe: &mut Probe<'_>,
    ) -> Result<(Held<'b>, Fold, Size)> {
        let mut size = scratch.sizes[operations.start];
        let mut fold = Fold::new(size.height, size.width);
        for at in operations {
            if matches!(self.program.operations[at].class, Class::Cast | Class::Normalize)
                || fold.push(&scratch.actions[at], size.channels)
            {
                continue;
            }
            self.materialize(held, &fold, size, scratch, probe)?;
            held = Held::Work;
            size = scratch.sizes[at];
            fold = Fold::new(size.height, size.width);
            if !fold.push(&scratch.actions[at], size.channels) {
                let what = format!("{:?} is not geometry", scratch.actions[at]);
                return Err(Error::new(ErrorKind::Internal, what));
            }
        }
        Ok((held, fold, size))
    }

    /// Writes all crops of a decoded image, one behind the other.
    fn crops(
        &self,
        held: Held<'_>,
        operations: Range<usize>,
        map: &PointMap,
        scratch: &mut ImageScratch,
        slot: &mut [u8],
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let size = scratch.sizes[operations.start];
        let mut whole = Fold::new(size.height, size.width);
        let mut crops = None;
        for at in operations {
            match &scratch.actions[at] {
                Action::Crops(found) => crops = Some(*found),
                flip @ Action::Flip { .. } => _ = whole.push(flip, size.channels),
                _ => {}
            }
        }
        let Some(crops) = crops else {
            return Err(Error::new(ErrorKind::Internal, "no transform makes several images of one"));
        };
        let slots = slot.chunks_exact_mut((slot.len() / crops.count()).max(1));
        for ((flip, part), slot) in crops.parts(size.height, size.width).zip(slots) {
            let mut fold = whole;
            if !fold.push(&flip, size.channels) || !fold.push(&Action::Crop(part), size.channels) {
                return Err(Error::new(ErrorKind::Internal, format!("{flip:?} and {part:?} do not fold")));
            }
            self.render(held, &fold, size, map, self.program.layout, scratch, slot, probe)?;
        }
        Ok(())
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
        scratch.codec.reserve(height * width * size.channels, scratch.spare.capacity())?;
        let mut spare = std::mem::take(&mut scratch.spare);
        let slot = spare.reshape(height, width, size.channels)?;
        let decoded = match held {
            Held::Encoded(encoded) if fold.is_identity(size.height, size.width) => {
                self.decode_into(encoded, scratch, slot, probe)
            }
            _ => Ok(false),
        };
        let result = match decoded {
            Ok(false) => self.render(held, fold, size, map, Layout::Hwc, scratch, slot, probe),
            other => other.map(|_| ()),
        };
        scratch.spare = std::mem::replace(&mut scratch.work, spare);
        result?;
        probe.lap(Phase::Transform, height * width * size.channels);
        Ok(())
    }

    /// Runs a fold into `slot`, decoding what it needs if that was not done yet.
    #[allow(clippy::too_many_arguments, reason = "the one place where everything about an image meets")]
    pub(super) fn render(
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
        let (fold, scale) = match held {
            Held::Encoded(encoded) if self.program.scales() && encoded.codec().scales() => fold.scaled(),
            _ => (*fold, Scale::Full),
        };
        let (fold, needed) = fold.settled();
        let ImageScratch { codec, work, kernel: memory, alpha, .. } = scratch;
        let channels = match held {
            Held::Encoded(encoded) => self.request()?.mode.band_channels(encoded.header().channels),
            _ => size.channels,
        };
        let with_alpha = matches!(size.channels, 2 | 4) && !fold.is_nearest() && fold.knows_alpha();
        let with_alpha = fold.kernel_resize().filter(|_| with_alpha);
        if let Some(resize) = &with_alpha {
            let pixels = fold.crop.height * fold.crop.width + resize.window.height * resize.window.width;
            codec.reserve(pixels * size.channels, alpha.iter().map(Image::capacity).sum())?;
        }
        let mut feed = |region: Rect, push: &mut Push<'_>| {
            let view = match held {
                Held::Resident(view) => view,
                Held::Work => work.view(),
                Held::Encoded(encoded) => return self.decode(encoded, region, scale, codec, probe, push),
            };
            let part = view.crop(region.top, region.left, region.height, region.width).ok_or_else(|| {
                let (height, width) = (view.height(), view.width());
                Error::new(ErrorKind::Internal, format!("{region:?} is not in an image of {height}x{width}"))
            });
            push(part?.into())
        };
        let output = Output { flip_h: fold.flip_h, flip_v: fold.flip_v, map, layout };
        match with_alpha {
            Some(resize) => {
                // Pillow resamples images with alpha premultiplied, one of few things that a fused kernel cannot do.
                let [premultiplied, resized] = alpha;
                codec::collect(fold.crop, (channels, size.channels), premultiplied, |push| {
                    feed(fold.crop, push)
                })?;
                premultiply(premultiplied);
                memory.resizer.resize(premultiplied.view(), &resize, resized)?;
                unpremultiply(resized);
                let full = Window { top: 0, left: 0, height: resized.height(), width: resized.width() };
                write(resized.view(), full, fold.pad, output, slot).map_err(Error::from)
            }
            None => {
                let mut kernel = Kernel::new(&fold, needed, channels, memory, output, slot)?;
                feed(needed, &mut |band| kernel.push(band))?;
                kernel.finish()
            }
        }
    }

    /// Decodes `region` into `push`, which works on a band while it is in the cache.
    fn decode(
        &self,
        encoded: Encoded<'_>,
        region: Rect,
        scale: Scale,
        scratch: &mut codec::Scratch,
        probe: &mut Probe<'_>,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let request = Request { region: Some(region), scale, ..self.request()? };
        let mut spent = Duration::ZERO;
        let decoded = encoded
            .decode(&request, self.limits, scratch, &mut |band| probe.aside(&mut spent, || push(band)));
        decoded.map_err(|e| e.with_stage("decode"))?;
        let pixels = region.height * region.width;
        let channels = request.mode.channels(encoded.header().channels);
        probe.lap_without(Phase::Decode, pixels * channels, spent);
        Ok(())
    }

    /// Decodes all of an image to where it belongs, if its codec does that without another copy.
    fn decode_into(
        &self,
        encoded: Encoded<'_>,
        scratch: &mut ImageScratch,
        slot: &mut [u8],
        probe: &mut Probe<'_>,
    ) -> Result<bool> {
        let decoded = encoded.decode_into(&self.request()?, self.limits, &mut scratch.codec, slot);
        let decoded = decoded.map_err(|e| e.with_stage("decode"))?;
        if decoded {
            probe.lap(Phase::Decode, slot.len());
        }
        Ok(decoded)
    }

    /// How encoded images are decoded.
    pub(super) fn request(&self) -> Result<Request> {
        match self.program.input {
            Input::Encoded { mode, orientation } => {
                Ok(Request { mode, region: None, apply_orientation: orientation, scale: Scale::Full })
            }
            Input::Pixels { .. } => Err(Error::new(ErrorKind::Internal, "pixels in place are not encoded")),
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
pub(super) fn identity(channels: usize) -> Result<&'static PointMap> {
    static MAPS: OnceLock<Vec<PointMap>> = OnceLock::new();
    let maps =
        MAPS.get_or_init(|| (1..=4).filter_map(|channels| PointMap::identity(channels).ok()).collect());
    maps.get(channels.wrapping_sub(1))
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("an image of {channels} channels")))
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
