//! What steps of a program do to an image with what was drawn, as a [`Recipe`]: plain data for kernels that run elsewhere.

use wellfed_kernels::{
    recipe::{Fill, Geometry, Patch, PixelOp, Recipe, Stage},
    resample,
};

use super::fold::Fold;
use crate::{
    Error, ErrorKind, Result,
    plan::field::{ImageProgram, Step},
    transform::{self, Action, Class, EraseValue, Size},
};

/// What is to be done where a transform has no kernel elsewhere.
pub(super) const HINT: &str =
    "run it on the CPU, before images are copied to the device: in the map() of the data set";

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
pub(super) fn unwritten(program: &ImageProgram) -> Error {
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

pub(super) fn refused(program: &ImageProgram, at: usize, what: &str) -> Error {
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
