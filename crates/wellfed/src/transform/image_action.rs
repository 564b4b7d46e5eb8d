//! [`ImageAction`]: what an operation does to a whole image, where it is not folded with others into one kernel.

use std::{fmt, sync::Arc};

use wellfed_kernels::{image::Image, recipe::PixelOp};

use super::{PerChannel, Size};
use crate::Result;

/// Where a point (x, y) of an image comes to lie, in pixels from the upper left corner.
pub type PointMove = Box<dyn Fn([f32; 2]) -> [f32; 2]>;

/// What to do to a whole 8-bit image, with every random number settled, and how the other fields of its sample follow.
///
/// Crops, flips, resizes, casts and normalization are data ([`super::Action`]), since neighbours among them are folded
/// into one kernel. Whatever else is done to pixels brings its own code by this trait, in the file of its transform.
pub trait ImageAction: fmt::Debug + Send + Sync {
    /// Size of the result for an image of size `input`.
    fn size(&self, input: Size) -> Size {
        input
    }

    /// Bytes of working memory for an image of size `input`, which are reserved before it runs.
    fn memory(&self, input: Size) -> usize {
        let _ = input;
        0
    }

    /// Changes `image`, whose size becomes what [`ImageAction::size`] says.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Limit`] if there is no memory for the result.
    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()>;

    /// What it does to an image of size `input`, where that is nothing but changes of values that kernels elsewhere have
    /// as well: the same pixels, one operation after the other.
    fn pixel_ops(&self, input: Size) -> Option<Vec<PixelOp>> {
        let _ = input;
        None
    }

    /// What torchvision v2 does to a mask where it does this to an image; `None` leaves it as it is. `fill` turns a fill
    /// of images into one of the mask.
    ///
    /// # Errors
    /// Those of `fill`.
    fn for_mask(
        &self,
        fill: &dyn Fn(&PerChannel) -> Result<PerChannel>,
    ) -> Result<Option<Arc<dyn ImageAction>>> {
        let _ = fill;
        Ok(None)
    }

    /// How points of an image of size `canvas` move with it, and the corners of boxes; `None` leaves them where they are.
    fn moves(&self, canvas: Size) -> Option<PointMove> {
        let _ = canvas;
        None
    }

    /// How the corners of boxes move, where torchvision has another rule for them than for points.
    fn moves_corners(&self, canvas: Size) -> Option<PointMove> {
        self.moves(canvas)
    }

    /// The actions that it consists of, in order. Boxes follow them one by one, since each makes new boxes; then
    /// [`ImageAction::moves`] is not asked.
    fn parts(&self) -> &[Arc<dyn ImageAction>] {
        &[]
    }
}

/// Its numbers decide: `Debug` shows all of them, and floating point numbers exactly.
impl PartialEq for dyn ImageAction {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

/// Working memory of [`ImageAction`]s, used again from image to image.
#[derive(Debug, Default)]
pub struct ImageMemory {
    /// A second image.
    pub spare: Image,
    /// A third one.
    pub other: Image,
    /// Floating point numbers.
    pub floats: Vec<f32>,
    /// An encoded image.
    pub file: Vec<u8>,
    /// What decodes it.
    pub decoder: Option<Box<wellfed_jpeg::Decoder>>,
}

impl ImageMemory {
    /// Bytes kept allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.spare.capacity()
            + self.other.capacity()
            + 4 * self.floats.capacity()
            + self.file.capacity()
            + self.decoder.as_ref().map_or(0, |decoder| decoder.capacity())
    }
}

/// Elements of an image.
pub(super) fn elements(size: Size) -> usize {
    size.height * size.width * size.channels
}
