//! [`Sequence`]: several [`ImageAction`]s as one.

use std::sync::Arc;

use wellfed_kernels::{image::Image, recipe::PixelOp};

use super::{Action, ImageAction, ImageMemory, PerChannel, Size};
use crate::Result;

/// Actions one after the other.
#[derive(Debug)]
struct Sequence(Vec<Arc<dyn ImageAction>>);

/// `actions` as one.
pub(super) fn sequence(mut actions: Vec<Arc<dyn ImageAction>>) -> Action {
    match actions.len() {
        0 => Action::Keep,
        1 => Action::Image(actions.remove(0)),
        _ => Action::Image(Arc::new(Sequence(actions))),
    }
}

impl ImageAction for Sequence {
    fn size(&self, input: Size) -> Size {
        self.0.iter().fold(input, |size, action| action.size(size))
    }

    fn pixel_ops(&self, input: Size) -> Option<Vec<PixelOp>> {
        let mut size = input;
        let mut ops = Vec::new();
        for action in &self.0 {
            ops.extend(action.pixel_ops(size)?);
            size = action.size(size);
        }
        Some(ops)
    }

    fn memory(&self, input: Size) -> usize {
        // One may use the second image, and the other one numbers: both stay allocated.
        let mut size = input;
        let mut bytes = 0usize;
        for action in &self.0 {
            bytes = bytes.saturating_add(action.memory(size));
            size = action.size(size);
        }
        bytes
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        self.0.iter().try_for_each(|action| action.run(image, memory))
    }

    fn for_mask(
        &self,
        fill: &dyn Fn(&PerChannel) -> Result<PerChannel>,
    ) -> Result<Option<Arc<dyn ImageAction>>> {
        let moved: Vec<_> =
            self.0.iter().filter_map(|action| action.for_mask(fill).transpose()).collect::<Result<_>>()?;
        Ok((!moved.is_empty()).then(|| Arc::new(Self(moved)) as Arc<dyn ImageAction>))
    }

    fn parts(&self) -> &[Arc<dyn ImageAction>] {
        &self.0
    }
}
