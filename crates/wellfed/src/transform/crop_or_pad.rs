//! Windows that crop an image on one axis and pad it on another, as timm's `crop_or_pad` makes them.

use super::{Action, PaddingMode, PerChannel, Rect, Size, param::check_pixels};
use crate::Result;

/// A window of an image whose first row and column are `start`, which may lie outside of it.
///
/// # Errors
/// [`crate::ErrorKind::Shape`] where there is nothing to pad with.
pub(super) fn window(
    size: Size,
    [top, left]: [i64; 2],
    [height, width]: [usize; 2],
    mode: PaddingMode,
    fill: PerChannel,
) -> Result<Action> {
    let inside = |start: i64, len: usize, side: usize| {
        usize::try_from(start).is_ok_and(|start| start.checked_add(len).is_some_and(|end| end <= side))
    };
    if inside(top, height, size.height) && inside(left, width, size.width) {
        return Ok(Action::Crop(Rect { top: top as usize, left: left as usize, height, width }));
    }
    check_pixels(size)?;
    fill.check_channels("fill", size.channels)?;
    Ok(Action::PadCrop { top, left, height, width, mode, fill, mask_fill: None, added: None })
}

/// Where a window of `target` begins that lies in the middle of an image: what is too much is cut off, what is missing
/// is added.
pub(super) fn middle(size: Size, target: [usize; 2]) -> [i64; 2] {
    [super::center_crop::start(size.height, target[0]), super::center_crop::start(size.width, target[1])]
}

/// Where a window of `target` begins that lies anywhere inside of an image, or around it: drawn for each axis.
pub(super) fn anywhere(size: Size, target: [usize; 2], rng: &mut crate::rng::Rng) -> [i64; 2] {
    [(size.height, target[0]), (size.width, target[1])].map(|(image, crop)| {
        let drawn = rng.below(image.abs_diff(crop) as u64 + 1) as i64;
        if image < crop { -drawn } else { drawn }
    })
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn an_axis_is_cropped_or_padded() {
        let made = |start, target| {
            window(size(10, 20), start, target, PaddingMode::Reflect, PerChannel::default()).unwrap()
        };
        assert_eq!(made([2, 3], [8, 17]), Action::Crop(Rect { top: 2, left: 3, height: 8, width: 17 }));
        assert!(matches!(
            made([-1, 3], [12, 4]),
            Action::PadCrop { top: -1, left: 3, height: 12, width: 4, mode: PaddingMode::Reflect, .. }
        ));
        assert!(matches!(made([5, 0], [6, 20]), Action::PadCrop { .. }), "one row below the image");
        let none = window(size(0, 5), [0, 0], [3, 3], PaddingMode::Edge, PerChannel::default());
        assert!(none.unwrap_err().message().contains("no pixels"));
        let fill = PerChannel::from([1.0, 2.0, 3.0]);
        let grey = Size { channels: 1, ..size(2, 2) };
        assert!(window(grey, [0, 0], [3, 3], PaddingMode::Constant, fill).is_err());
    }

    #[test]
    fn places_are_uniform_in_both_directions() {
        let mut counts = [[0; 4]; 2];
        for index in 0..20_000 {
            let [top, left] = anywhere(size(10, 20), [13, 17], &mut rng(index));
            counts[0][usize::try_from(-top).unwrap()] += 1;
            counts[1][usize::try_from(left).unwrap()] += 1;
        }
        assert_uniform_counts(&counts[0]);
        assert_uniform_counts(&counts[1]);
        assert_eq!(anywhere(size(5, 6), [5, 6], &mut rng(0)), [0, 0]);
    }
}
