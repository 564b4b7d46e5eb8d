//! Transforms that need a whole 8-bit image.

use wellfed_kernels::image::{Dtype, Image, Layout};

use crate::{
    Error, ErrorKind, Result,
    transform::{Action, Size},
};

/// Applies `action` to `work`.
pub(crate) fn run(action: &mut Action, _work: &mut Image, _spare: &mut Image) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, format!("{action:?} has no kernel")))
}

/// Erases a rectangle of a finished image in the batch.
pub(crate) fn erase_slot(
    action: &mut Action,
    _size: Size,
    _dtype: Dtype,
    _layout: Layout,
    _slot: &mut [u8],
) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, format!("{action:?} has no kernel")))
}
