//! [`Recipes`]: what a chain of transforms does to the images of a batch, as plain data for kernels that run elsewhere.
//!
//! Invariant: the same draws, and the same pixels bit for bit, as this engine has for a sample of this index and epoch.
//! What no [`Recipe`] can say is refused before a batch is made, or with the first draw that asks for it.

use std::sync::Arc;

use wellfed_kernels::{image::Layout, points::PointMap, recipe::Recipe};

use super::{
    image::{ImageScratch, Maker, Target},
    recipe,
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
    transform::{Size, Transform},
};

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
            return Err(recipe::unwritten(&program));
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
        recipe::of_steps(&self.program, &self.program.steps, &actions, &sizes, self.input)
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
