//! Transforms inside of a transform: what `RandomApply`, `RandomChoice` and `RandomOrder` share.
//!
//! Invariant: what is inside becomes one [`ImageAction`], so it must be one by itself, and keep the number of channels.

use std::{fmt, sync::Arc};

use super::{
    Action, Class, ImageAction, Shape, Size, Takes, Transform, param::impossible, sequence::sequence,
};
use crate::{Error, ErrorKind, Result, rng::Rng};

/// Fails unless there are transforms, and all of them can stand inside of `outer`.
pub(super) fn check(outer: &str, transforms: &[Transform]) -> Result<()> {
    if transforms.is_empty() {
        return Err(Error::config("transforms is empty; there must be at least one"));
    }
    for transform in Transform::flatten(transforms) {
        let operation = transform.as_operation();
        operation.check().map_err(|e| e.with_stage(transform.name()))?;
        if !matches!(operation.class(), Class::Image | Class::Identity) {
            return Err(Error::config(format!("{} cannot stand in {outer}", transform.name())).with_hint(
                "colour, grey, blur, rotation, affine and automatic augmentations can; put others before or after it",
            ));
        }
    }
    Ok(())
}

/// The fields that they change.
pub(super) fn takes(transforms: &[Transform]) -> Takes {
    let mut all = Takes::Images;
    for transform in Transform::flatten(transforms) {
        match transform.as_operation().takes() {
            Takes::ImagesAlone => return Takes::ImagesAlone,
            Takes::Geometry if transform.as_operation().class() != Class::Identity => all = Takes::Geometry,
            _ => {}
        }
    }
    all
}

pub(super) fn draws_by_size(transforms: &[Transform]) -> bool {
    Transform::flatten(transforms).iter().any(|transform| transform.as_operation().draws_by_size())
}

/// Size of the result, whichever of them are done.
pub(super) fn fixed_size(transforms: &[Transform], input: Shape) -> Shape {
    let keeps = |transform: &&Transform| {
        let after = transform.as_operation().fixed_size(input);
        (after.height, after.width) == (input.height, input.width)
    };
    if Transform::flatten(transforms).iter().all(keeps) {
        return input;
    }
    Shape { height: None, width: None, ..input }
}

/// Draws `transforms` one after the other.
pub(super) fn draw<'a>(
    transforms: impl IntoIterator<Item = &'a Transform>,
    size: Size,
    rng: &mut Rng,
) -> Result<Action> {
    let mut actions: Vec<Arc<dyn ImageAction>> = Vec::new();
    let mut after = size;
    for transform in transforms {
        for inner in Transform::flatten(std::slice::from_ref(transform)) {
            match inner.as_operation().draw(after, rng)? {
                Action::Keep => {}
                Action::Image(action) => {
                    after = action.size(after);
                    actions.push(action);
                }
                other => {
                    let what = format!("{other:?} cannot be one of several actions on an image");
                    return Err(Error::new(ErrorKind::Internal, what));
                }
            }
        }
    }
    if after.channels != size.channels {
        return Err(impossible(format!(
            "the image would have {} channels instead of {}, but only sometimes",
            after.channels, size.channels
        ))
        .with_hint("Grayscale(num_output_channels=3) keeps the channels of colour images"));
    }
    Ok(sequence(actions))
}

/// One transform a line, as torchvision prints them.
pub(super) fn show(
    f: &mut fmt::Formatter<'_>,
    outer: &str,
    p: Option<&dyn fmt::Display>,
    transforms: &[Transform],
) -> fmt::Result {
    writeln!(f, "{outer}(")?;
    if let Some(p) = p {
        writeln!(f, "    p={p}")?;
    }
    for transform in transforms {
        writeln!(f, "    {transform}")?;
    }
    f.write_str(")")
}
