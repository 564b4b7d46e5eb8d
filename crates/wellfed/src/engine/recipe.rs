//! [`Recipes`]: what a chain of transforms does to the images of a batch, as plain data for kernels that run elsewhere.
//!
//! Invariant: the same draws, and the same pixels bit for bit, as this engine has for a sample of this index and epoch.
//! What no [`Recipe`] can say is refused before a batch is made, or with the first draw that asks for it.

use std::sync::Arc;

use wellfed_kernels::{
    image::Layout,
    points::PointMap,
    recipe::{Fill, Geometry, Patch, PixelOp, Recipe, Stage},
    resample,
};

use super::{
    fold::Fold,
    image::{ImageScratch, Maker, Target},
};
use crate::{
    Error, ErrorKind, Limits, Options, Result,
    meter::{Meter, Probe},
    order::Pick,
    plan::{
        Assembly, Batching, Program,
        field::{FieldProgram, ImageProgram, Step},
        lower::LeafMap,
        program::Unsettled,
    },
    rng::Rng,
    sample::{FieldKind, PixelLayout, Schema},
    transform::{self, Action, Class, EraseValue, Size, Transform},
};

/// What is to be done where a transform has no kernel elsewhere.
const HINT: &str = "run it on the CPU, before images are copied to the device: in the map() of the data set";

/// A chain of transforms for images of one size.
#[derive(Clone, Debug)]
pub struct Recipes {
    program: Arc<ImageProgram>,
    input: Size,
    map: PointMap,
    seed: u64,
}

impl Recipes {
    /// For 8-bit images of `input`, whose channels lie one behind the other; finished images have `layout`. Draws are
    /// those of `seed`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for transforms that make no sense where they stand, as in a data set, and, with the
    /// transform as its stage, for those that recipes do not have.
    pub fn new(
        transforms: impl IntoIterator<Item = Transform>,
        input: Size,
        layout: Layout,
        seed: u64,
    ) -> Result<Self> {
        let Size { height, width, channels } = input;
        if !matches!(channels, 1 | 3) {
            return Err(Error::config(format!("images have {channels} channels; must be 1 or 3")));
        }
        let transforms: Vec<Transform> = transforms.into_iter().collect();
        let kind = FieldKind::Pixels { height, width, channels, layout: PixelLayout::Chw };
        let schema = Schema::single("image", kind);
        let layout = if layout == Layout::Hwc { Batching::Nhwc } else { Batching::Nchw };
        let options = Options { layout, ..Options::default() };
        let maps = [LeafMap { fields: vec![0], transforms }];
        let program = Program::new(&maps, &options, &schema, (Assembly::Stacked, 0), &mut |_, unsettled| {
            let Unsettled::Image(program) = unsettled else {
                return Err(Error::new(ErrorKind::Internal, "there is no sound"));
            };
            // The first image's result is that of all, or the batch is refused.
            let pick = Pick { leaf: 0, index: 0, epoch: 0 };
            let limits = Limits::default();
            let maker = Maker { program, seed, pick, limits: &limits, beside: None };
            maker.final_size(&vec![0; height * width * channels], &mut ImageScratch::default())
        })?;
        let Some(FieldProgram::Image(program)) = program.fields.into_iter().next() else {
            return Err(Error::new(ErrorKind::Internal, "an image field has no image program"));
        };
        let Some(map) = program.steps.iter().find_map(|step| match step {
            Step::Write { map, .. } => Some(map.clone()),
            _ => None,
        }) else {
            return Err(unwritten(&program));
        };
        if program.varies {
            return Err(Error::config("finished images differ in size")
                .with_hint("end the geometric transforms with one of fixed size, such as CenterCrop"));
        }
        Ok(Self { program: (*program).into(), input, map, seed })
    }

    /// Size of the images.
    pub fn input(&self) -> Size {
        self.input
    }

    /// Size of the finished images.
    pub fn output(&self) -> Size {
        let [channels, height, width] = self.program.chw();
        Size { height, width, channels }
    }

    /// What becomes of pixels in the end.
    pub fn map(&self) -> &PointMap {
        &self.map
    }

    /// Order of the elements of a finished image.
    pub fn layout(&self) -> Layout {
        self.program.layout
    }

    /// What is done to the image of this index in this epoch.
    ///
    /// # Errors
    /// As of draws; and as of [`Recipes::new`] for a transform that drew what recipes do not have.
    pub fn draw(&self, epoch: u64, index: u64) -> Result<Recipe> {
        let mut actions = Vec::with_capacity(self.program.operations.len());
        let mut sizes = vec![self.input];
        let (mut size, limits) = (self.input, Limits::default());
        for planned in &self.program.operations {
            let mut rng = Rng::for_stage(self.seed, epoch, index, planned.place);
            let name = planned.transform.name();
            let action =
                planned.transform.as_operation().draw(size, &mut rng).map_err(|e| e.with_stage(name))?;
            size = action.size(size);
            limits.check_pixels(size.height, size.width).map_err(|e| e.with_stage(name))?;
            actions.push(action);
            sizes.push(size);
        }
        of_steps(&self.program, &self.program.steps, &actions, &sizes, self.input)
    }

    /// Makes the image of this index in this epoch on the CPU. `pixels` are of [`Recipes::input`], channel by channel;
    /// `slot` has as many bytes as the finished image.
    ///
    /// # Errors
    /// As [`Recipes::draw`], and [`ErrorKind::Shape`] for other sizes.
    pub fn run(&self, pixels: &[u8], epoch: u64, index: u64, slot: &mut [u8]) -> Result<()> {
        let pick = Pick { leaf: 0, index, epoch };
        let limits = Limits::default();
        let maker = Maker { program: &self.program, seed: self.seed, pick, limits: &limits, beside: None };
        let lane = Meter::new(false).lane("augment");
        maker.make(pixels, &mut ImageScratch::default(), Target::Slot(slot), &mut Probe::off(&lane))?;
        Ok(())
    }
}

/// What `steps` do to an image of size `input` by these draws of all operations, of which `sizes` has the size before each.
///
/// # Errors
/// With the transform as its stage, for what recipes do not have.
pub(super) fn of_steps(
    program: &ImageProgram,
    steps: &[Step],
    actions: &[Action],
    sizes: &[Size],
    input: Size,
) -> Result<Recipe> {
    let mut builder = Builder { program, stages: Vec::new(), fold: None, ops: Vec::new() };
    let mut patches = Vec::new();
    for step in steps {
        match step {
            Step::Geometry(range) => {
                for at in range.clone() {
                    builder.action(at, &actions[at], sizes[at])?;
                }
            }
            // Casts and normalization are in the map, and commute with the geometry between them.
            Step::Write { operations, .. } => {
                for at in operations.clone() {
                    if !matches!(program.operations[at].class, Class::Cast | Class::Normalize) {
                        builder.action(at, &actions[at], sizes[at])?;
                    }
                }
            }
            Step::Whole(at) => builder.action(*at, &actions[*at], sizes[*at])?,
            Step::Erase(at) => patches.extend(erased(&actions[*at], sizes[*at])),
            // Nothing is left to a device by default.
            Step::Decode | Step::Crops { .. } | Step::TensorFlow(_) | Step::Float(_) | Step::Leave { .. } => {
                return Err(unwritten(program));
            }
        }
    }
    builder.close(input);
    Ok(Recipe { stages: builder.stages, patches })
}

/// The error of a program that does not end in one map of 8-bit pixels.
fn unwritten(program: &ImageProgram) -> Error {
    let at = program.steps.iter().find_map(|step| match step {
        Step::Crops { operations, .. } => {
            operations.clone().find(|&at| matches!(program.operations[at].class, Class::Crops(_)))
        }
        Step::TensorFlow(at) => Some(*at),
        // What keeps casts from being one map: padding and noise of floating point pixels, or what follows erasing.
        Step::Float(range) => {
            let class = |at: usize| program.operations[at].class;
            let odd = range.clone().find(|&at| matches!(class(at), Class::Crop | Class::Noise));
            odd.or_else(|| range.clone().find(|&at| class(at) == Class::Erase))
        }
        _ => None,
    });
    at.map_or_else(
        || Error::new(ErrorKind::Internal, "a program without a last step"),
        |at| refused(program, at, "where it stands"),
    )
}

fn refused(program: &ImageProgram, at: usize, what: &str) -> Error {
    let name = program.operations[at].transform.name();
    Error::config(format!("{name} does not run on a device {what}")).with_stage(name).with_hint(HINT)
}

/// A recipe under way.
struct Builder<'a> {
    program: &'a ImageProgram,
    stages: Vec<Stage>,
    /// The geometry of the last stage, which is not among `stages` yet.
    fold: Option<Fold>,
    ops: Vec<PixelOp>,
}

impl Builder<'_> {
    /// Adds one action on an image of this size.
    fn action(&mut self, at: usize, action: &Action, size: Size) -> Result<()> {
        let ops = match action {
            Action::Keep => return Ok(()),
            Action::Image(image) => image.pixel_ops(size),
            Action::Erase(_) => {
                Some(erased(action, size).into_iter().map(PixelOp::Erase).collect::<Vec<PixelOp>>())
            }
            Action::Crop(_)
            | Action::CropAround(_)
            | Action::PadCrop { .. }
            | Action::Resize { .. }
            | Action::Flip { .. } => return self.geometry(at, action, size),
            _ => None,
        };
        let ops = ops.ok_or_else(|| refused(self.program, at, "yet"))?;
        self.fold.get_or_insert(Fold::new(size.height, size.width));
        self.ops.extend(ops);
        Ok(())
    }

    fn geometry(&mut self, at: usize, action: &Action, size: Size) -> Result<()> {
        if let Action::Resize { interpolation, .. } = action
            && interpolation.is_opencv()
            && *interpolation != transform::Interpolation::OpenCvNearest
        {
            return Err(refused(self.program, at, &format!("with interpolation {interpolation}")));
        }
        let fold = self.fold.get_or_insert(Fold::new(size.height, size.width));
        // Pixels may be moved before their values are changed, where these do not depend on it.
        let still = !self.ops.iter().any(PixelOp::depends_on_place);
        let blind = !self.ops.iter().any(PixelOp::looks_at_all);
        let commutes = match action {
            _ if self.ops.is_empty() => true,
            Action::Flip { .. } => still,
            Action::Crop(_) | Action::CropAround(_) => still && blind,
            _ => false,
        };
        if commutes && fold.push(action, size.channels) {
            return Ok(());
        }
        self.close(size);
        let mut fold = Fold::new(size.height, size.width);
        if !fold.push(action, size.channels) {
            return Err(Error::new(ErrorKind::Internal, format!("{action:?} is not geometry")));
        }
        self.fold = Some(fold);
        Ok(())
    }

    /// Ends a stage, of which there must be one: an image of this size otherwise stays as it is.
    fn close(&mut self, size: Size) {
        let fold = match self.fold.take() {
            Some(fold) => fold,
            None if self.stages.is_empty() => Fold::new(size.height, size.width),
            None => return,
        };
        let ops = std::mem::take(&mut self.ops);
        self.stages.push(Stage { geometry: geometry(&fold), ops });
    }
}

/// A fold as kernels elsewhere take it.
fn geometry(fold: &Fold) -> Geometry {
    let (fold, _) = fold.settled();
    let transform::Rect { top, left, height, width } = fold.crop;
    let resize = fold.kernel_resize().map(|resize| (resize.height, resize.width, resize.filter));
    Geometry {
        crop: resample::Rect { top, left, height, width },
        resize,
        window: fold.window,
        pad: fold.pad,
        flip_h: fold.flip_h,
        flip_v: fold.flip_v,
    }
}

/// What an action erases of an image of this size.
fn erased(action: &Action, size: Size) -> Vec<Patch> {
    let Action::Erase(patches) = action else { return Vec::new() };
    let patch = |patch: &transform::Patch| {
        let transform::Rect { top, left, height, width } = patch.rect;
        let fill = match &patch.value {
            EraseValue::Constant(values) => Fill::Constant(std::array::from_fn(|c| values.channel(c) as f32)),
            EraseValue::Noise(noise) => {
                let mut noise = noise.clone();
                Fill::Each((0..height * width * size.channels).map(|_| noise.normal() as f32).collect())
            }
        };
        Patch { rect: resample::Rect { top, left, height, width }, fill }
    };
    patches.iter().map(patch).collect()
}
