//! [`Crops`]: several crops of one image, which `FiveCrop` and `TenCrop` make.
//!
//! Invariant: all of them have one size, lie inside of the image, and come in torchvision's order.

use super::{
    Action, Rect, Size,
    center_crop::start,
    param::{Tuple, impossible},
};
use crate::Result;

/// The four corners and the middle of an image, and perhaps those of the mirrored image behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crops {
    /// Height and width of each.
    pub size: [usize; 2],
    /// How the image is mirrored for another five; `None` for five alone.
    pub mirrored: Option<Mirror>,
}

/// How an image is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// Left and right change places.
    Horizontal,
    /// Top and bottom change places.
    Vertical,
}

impl Crops {
    /// How many they are.
    pub fn count(&self) -> usize {
        if self.mirrored.is_some() { 10 } else { 5 }
    }

    /// What gives each of them, of an image of `height` x `width`: a flip or nothing, then a crop.
    pub(crate) fn parts(&self, height: usize, width: usize) -> impl Iterator<Item = (Action, Rect)> {
        let [rows, columns] = self.size;
        let (bottom, right) = (height.saturating_sub(rows), width.saturating_sub(columns));
        let middle = (start(height, rows).max(0) as usize, start(width, columns).max(0) as usize);
        let corners = [(0, 0), (0, right), (bottom, 0), (bottom, right), middle];
        let flip = self.mirrored.map(|mirror| Action::Flip {
            horizontal: mirror == Mirror::Horizontal,
            vertical: mirror == Mirror::Vertical,
        });
        [Some(Action::Keep), flip].into_iter().flatten().flat_map(move |flip| {
            corners.map(|(top, left)| (flip.clone(), Rect { top, left, height: rows, width: columns }))
        })
    }

    /// Fails for an image that is smaller than they are.
    pub(super) fn check_image(&self, size: Size) -> Result<()> {
        let [height, width] = self.size;
        if height <= size.height && width <= size.width {
            return Ok(());
        }
        Err(impossible(format!(
            "size is {}; the image has {} pixels",
            Tuple(&self.size),
            Tuple(&[size.height, size.width])
        ))
        .with_hint("put Resize before it, with a size that is no smaller"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crops_lie_where_torchvision_has_them() {
        let five = Crops { size: [4, 6], mirrored: None };
        let all: Vec<_> = five.parts(9, 11).collect();
        let rect = |top, left| Rect { top, left, height: 4, width: 6 };
        // The middle is rounded half to even: 2.5 of both sides is 2.
        let expected = [rect(0, 0), rect(0, 5), rect(5, 0), rect(5, 5), rect(2, 2)];
        assert_eq!(all, expected.map(|rect| (Action::Keep, rect)));
        for (mirror, horizontal) in [(Mirror::Horizontal, true), (Mirror::Vertical, false)] {
            let ten: Vec<_> = Crops { mirrored: Some(mirror), ..five }.parts(9, 11).collect();
            assert_eq!(ten[..5], all);
            let flip = Action::Flip { horizontal, vertical: !horizontal };
            assert_eq!(ten[5..], expected.map(|rect| (flip.clone(), rect)));
        }
    }

    #[test]
    fn an_image_that_is_too_small_is_refused() {
        let five = Crops { size: [4, 6], mirrored: None };
        let size = |height, width| Size { height, width, channels: 3 };
        assert!(five.check_image(size(4, 6)).is_ok());
        let e = five.check_image(size(4, 5)).unwrap_err();
        assert_eq!(e.message(), "size is (4, 6); the image has (4, 5) pixels");
        assert!(five.check_image(size(3, 9)).is_err());
    }
}
