//! `CoarseDropout`: Albumentations' holes.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{
    image::Image,
    recipe::{Fill, Patch, PixelOp},
    resample,
};

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, PerChannel, Rect, Shape, Size,
    param::{Repr, Tuple, check_range, impossible},
};
use crate::{Error, Result, rng::Rng};

/// Most holes in an image.
const MOST: usize = 1 << 16;

/// Fills some rectangles of random size and place, as the transform of this name of Albumentations 2 does to images where
/// its `p` is 1 and `fill` a number or one a channel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoarseDropout {
    /// Least and greatest number of holes.
    pub num_holes_range: [usize; 2],
    /// Least and greatest height: in pixels if the greatest is at least 1, else shares of the image's.
    pub hole_height_range: [f64; 2],
    /// Least and greatest width, in the unit of heights.
    pub hole_width_range: [f64; 2],
    /// What holes are filled with. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
}

impl CoarseDropout {
    /// Black holes.
    pub fn new(num_holes_range: [usize; 2], hole_height_range: [f64; 2], hole_width_range: [f64; 2]) -> Self {
        Self { num_holes_range, hole_height_range, hole_width_range, fill: PerChannel::default() }
    }

    /// Sets what holes are filled with.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Whether sizes are in pixels.
    fn in_pixels(&self) -> bool {
        self.hole_height_range[1] >= 1.0
    }

    /// One side of a hole, of a side of the image (`calculate_hole_dimensions`).
    fn side(&self, name: &str, range: [f64; 2], side: usize, rng: &mut Rng) -> Result<usize> {
        if !self.in_pixels() {
            return Ok((side as f64 * rng.uniform(range[0], range[1])) as usize);
        }
        let (low, high) = (range[0] as usize, (range[1].min(side as f64) + 1.0) as usize);
        if low >= high {
            return Err(impossible(format!(
                "{name} is {}; the image has {side} pixels there",
                Tuple(&range)
            )));
        }
        Ok(low + rng.below((high - low) as u64) as usize)
    }

    fn holes(&self, size: Size, rng: &mut Rng) -> Result<Vec<Rect>> {
        let [least, most] = self.num_holes_range;
        let count = least + rng.below((most - least + 1) as u64) as usize;
        let mut holes = Vec::with_capacity(count);
        for _ in 0..count {
            let height = self.side("hole_height_range", self.hole_height_range, size.height, rng)?;
            let width = self.side("hole_width_range", self.hole_width_range, size.width, rng)?;
            let top = rng.below((size.height - height + 1) as u64) as usize;
            let left = rng.below((size.width - width + 1) as u64) as usize;
            holes.push(Rect { top, left, height, width });
        }
        Ok(holes)
    }
}

impl fmt::Display for CoarseDropout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "CoarseDropout")
            .field("num_holes_range", Tuple(&self.num_holes_range))
            .field("hole_height_range", Tuple(&self.hole_height_range))
            .field("hole_width_range", Tuple(&self.hole_width_range))
            .field("fill", self.fill)
            .finish()
    }
}

impl Operation for CoarseDropout {
    fn check(&self) -> Result<()> {
        let [least, most] = self.num_holes_range;
        if !(1 <= least && least <= most && most <= MOST) {
            return Err(Error::config(format!(
                "num_holes_range is {}; must be (least, most) within 1 to {MOST}",
                Tuple(&self.num_holes_range)
            )));
        }
        // Shares are below 1: a width beside them is one as well.
        let widest = if self.in_pixels() { f64::INFINITY } else { 1.0 };
        check_range("hole_height_range", self.hole_height_range, 0.0, f64::INFINITY)?;
        check_range("hole_width_range", self.hole_width_range, 0.0, widest)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        self.fill.check_channels("fill", size.channels)?;
        let holes = self.holes(size, rng)?;
        Ok(Action::Image(Arc::new(Holes { holes, fill: self.fill })))
    }
}

/// Rectangles inside the image, and what they are filled with.
#[derive(Debug)]
struct Holes {
    holes: Vec<Rect>,
    fill: PerChannel,
}

impl ImageAction for Holes {
    fn pixel_ops(&self, input: Size) -> Option<Vec<PixelOp>> {
        let fill = Fill::Constant(self.fill.bytes(input.channels.max(1)).map(f32::from));
        let patch = |&Rect { top, left, height, width }: &Rect| Patch {
            rect: resample::Rect { top, left, height, width },
            fill: fill.clone(),
        };
        Some(self.holes.iter().map(patch).map(PixelOp::Erase).collect())
    }

    fn run(&self, image: &mut Image, _memory: &mut ImageMemory) -> Result<()> {
        let (width, channels) = (image.width(), image.channels());
        let fill = self.fill.bytes(channels.max(1));
        for hole in &self.holes {
            let rows = image.pixels_mut().chunks_exact_mut((width * channels).max(1));
            for row in rows.skip(hole.top).take(hole.height) {
                for pixel in row[hole.left * channels..][..hole.width * channels].chunks_exact_mut(channels) {
                    pixel.copy_from_slice(&fill[..channels]);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn holes(dropout: CoarseDropout, size: Size) -> Vec<Vec<Rect>> {
        dropout.check().unwrap();
        (0..20_000).map(|index| dropout.holes(size, &mut rng(index)).unwrap()).collect()
    }

    #[test]
    fn counts_sizes_and_places_are_uniform() {
        let side = 100_000;
        let dropout = CoarseDropout::new([1, 2], [0.1, 0.3], [0.2, 0.5]);
        let drawn = holes(dropout, size(side, side));
        assert_probability(drawn.iter().filter(|holes| holes.len() == 2).count(), 20_000, 0.5);
        let first: Vec<Rect> = drawn.iter().map(|holes| holes[0]).collect();
        assert_uniform(first.iter().map(|r| r.height as f64 / side as f64), 0.1 - 1e-5, 0.3);
        assert_uniform(first.iter().map(|r| r.width as f64 / side as f64), 0.2 - 1e-5, 0.5);
        assert_uniform(first.iter().map(|r| r.top as f64 / (side - r.height) as f64), 0.0, 1.0 + 1e-9);
        assert_uniform(first.iter().map(|r| r.left as f64 / (side - r.width) as f64), 0.0, 1.0 + 1e-9);
    }

    #[test]
    fn pixels_are_cut_at_the_side_of_the_image() {
        let dropout = CoarseDropout::new([1, 1], [2.0, 90.0], [3.0, 4.0]);
        let drawn = holes(dropout, size(8, 20));
        for height in 2..=8 {
            let count = drawn.iter().filter(|holes| holes[0].height == height).count();
            assert_probability(count, 20_000, 1.0 / 7.0);
        }
        assert!(drawn.iter().all(|holes| matches!(holes[0].width, 3 | 4)));
        assert!(drawn.iter().all(|holes| holes[0].top + holes[0].height <= 8));
        let e = CoarseDropout::new([1, 1], [9.0, 90.0], [3.0, 4.0]).draw(size(8, 20), &mut rng(0));
        assert!(e.unwrap_err().message().starts_with("hole_height_range is (9.0, 90.0)"));
    }

    #[test]
    fn holes_are_filled_and_nothing_else() {
        let mut image = Image::new();
        image.reshape(3, 4, 3).unwrap().fill(9);
        let hole = |top, left, height, width| Rect { top, left, height, width };
        let action = Holes {
            holes: vec![hole(1, 1, 1, 2), hole(2, 3, 1, 1), hole(0, 0, 0, 4)],
            fill: [1.0, 2.0, 3.0].into(),
        };
        action.run(&mut image, &mut ImageMemory::default()).unwrap();
        let filled = |y: usize, x: usize| image.pixels()[(y * 4 + x) * 3..][..3] == [1, 2, 3];
        let all = (0..3).flat_map(|y| (0..4).map(move |x| (y, x)));
        assert_eq!(all.filter(|&(y, x)| filled(y, x)).collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 3)]);
        assert_eq!(image.pixels().iter().filter(|v| **v == 9).count(), 27);
    }

    #[test]
    fn parameters_are_checked() {
        let bad = CoarseDropout::new([2, 1], [0.1, 0.2], [0.1, 0.2]);
        assert!(check_error(bad).starts_with("num_holes_range is (2, 1)"));
        let bad = CoarseDropout::new([1, 1], [0.1, 0.2], [0.1, 3.0]);
        assert!(check_error(bad).starts_with("hole_width_range is (0.1, 3.0)"));
        let read = read(
            r#"{"type":"CoarseDropout","num_holes_range":[1,2],"hole_height_range":[0.1,0.2],"hole_width_range":[0.1,0.2],"fill":[1,2,3]}"#,
        );
        let same = CoarseDropout::new([1, 2], [0.1, 0.2], [0.1, 0.2]).fill([1.0, 2.0, 3.0]);
        assert_eq!(read, same.into());
        assert!(read.to_string().starts_with("CoarseDropout(num_holes_range=(1, 2), "));
        let grey = Size { channels: 1, ..size(9, 9) };
        assert!(same.draw(grey, &mut rng(0)).is_err());
    }
}
