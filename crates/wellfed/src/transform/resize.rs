//! `Resize`: another number of pixels for the same picture.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    Action, Class, Interpolation, Operation, Rect, Shape, Sides, Size,
    param::{MAX_SIDE, Repr, Tuple, check_pixels, check_sides, impossible, numbers, python_bool},
};
use crate::{Error, Result, rng::Rng};

/// What [`Resize`] aims at. In JSON `null`, a number, or (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeTo {
    /// The longer edge becomes `max_size`; the aspect ratio stays.
    MaxSize,
    /// The smaller edge becomes this; the aspect ratio stays.
    SmallerEdge(usize),
    /// This height and width.
    Exactly([usize; 2]),
}

impl From<usize> for ResizeTo {
    fn from(edge: usize) -> Self {
        Self::SmallerEdge(edge)
    }
}

impl From<[usize; 2]> for ResizeTo {
    fn from(size: [usize; 2]) -> Self {
        Self::Exactly(size)
    }
}

impl From<(usize, usize)> for ResizeTo {
    fn from(size: (usize, usize)) -> Self {
        Self::Exactly(size.into())
    }
}

impl Serialize for ResizeTo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ResizeTo::MaxSize => serializer.serialize_none(),
            ResizeTo::SmallerEdge(edge) => edge.serialize(serializer),
            ResizeTo::Exactly(size) => size.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ResizeTo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let allowed =
            "must be one number of pixels for the smaller edge, (height, width), or null with max_size";
        let given = numbers(deserializer, &[0, 1, 2], allowed)?;
        Ok(match given[..] {
            [] => Self::MaxSize,
            [edge] => Self::SmallerEdge(edge),
            _ => Self::Exactly([given[0], given[1]]),
        })
    }
}

/// Resizes the image. Always antialiased when shrinking, as Pillow is, but with OpenCV's filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The smaller edge (one number, also as a list of one), (height, width), or `null` with `max_size`.
    pub size: ResizeTo,
    /// Greatest longer edge of the result; only if `size` is one number or `null`.
    #[serde(default)]
    pub max_size: Option<usize>,
    /// Filter. Default: bilinear.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Must be true for bilinear, bicubic and lanczos; means nothing for the others. Default: true.
    #[serde(default = "yes", deserialize_with = "antialias")]
    pub antialias: bool,
}

fn yes() -> bool {
    true
}

/// Reads torchvision's `antialias`, where `None` is what Pillow does.
pub(super) fn antialias<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

/// Refuses to resample without antialiasing.
pub(super) fn check_antialias(antialias: bool, interpolation: Interpolation) -> Result<()> {
    let nearest = matches!(
        interpolation,
        Interpolation::Nearest | Interpolation::PillowNearest | Interpolation::NearestExact
    );
    if antialias || nearest || interpolation.is_opencv() {
        return Ok(());
    }
    Err(Error::config(format!("antialias is False; must be True for interpolation {interpolation}")).with_hint(
        "images are resampled as Pillow does, which always antialiases; use interpolation \"nearest\" to avoid it",
    ))
}

impl Resize {
    /// Resizes the smaller edge to one number, or to (height, width).
    pub fn new(size: impl Into<ResizeTo>) -> Self {
        Self { size: size.into(), max_size: None, interpolation: Interpolation::default(), antialias: true }
    }

    /// Sets the greatest longer edge of the result.
    #[must_use]
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = Some(max_size);
        self
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Height and width of the result: torchvision's `_compute_resized_output_size`.
    ///
    /// Its `int(a * b / c)` is an integer division here. The two agree while `a * b` is below 2^53, and sides
    /// are below 2^25.
    fn output(&self, height: usize, width: usize) -> Result<[usize; 2]> {
        let (short, long) = if width <= height { (width, height) } else { (height, width) };
        let (new_short, new_long) = match (self.size, self.max_size) {
            (ResizeTo::Exactly(size), _) => return Ok(size),
            _ if short == 0 => (0, 0),
            (ResizeTo::MaxSize, max_size) => {
                let max_size = max_size.unwrap_or(0);
                (max_size.saturating_mul(short) / long, max_size)
            }
            (ResizeTo::SmallerEdge(edge), max_size) => {
                let new_long = edge.saturating_mul(long) / short;
                match max_size {
                    Some(max) if new_long > max => (max.saturating_mul(edge) / new_long, max),
                    _ => (edge, new_long),
                }
            }
        };
        let output = if width <= height { [new_long, new_short] } else { [new_short, new_long] };
        if new_short == 0 || new_long > MAX_SIDE {
            return Err(impossible(format!(
                "an image of {} would become {}; both sides must be 1 to {MAX_SIDE}",
                Tuple(&[height, width]),
                Tuple(&output)
            )));
        }
        Ok(output)
    }
}

/// What makes `[height, width]` of an image of `size`.
///
/// # Errors
/// [`crate::ErrorKind::Shape`] for a side without pixels, or that is too long.
pub(super) fn resized(
    size: Size,
    [height, width]: [usize; 2],
    interpolation: Interpolation,
) -> Result<Action> {
    check_output([size.height, size.width], [height, width])?;
    if (height, width) == (size.height, size.width) {
        return Ok(Action::Keep);
    }
    let crop = Rect { top: 0, left: 0, height: size.height, width: size.width };
    Ok(Action::Resize { crop, cropped: false, height, width, interpolation })
}

/// Fails for a result without pixels, or with a side that is too long.
pub(super) fn check_output(image: [usize; 2], output: [usize; 2]) -> Result<()> {
    if output.iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        return Ok(());
    }
    Err(impossible(format!(
        "an image of {} would become {}; both sides must be 1 to {MAX_SIDE}",
        Tuple(&image),
        Tuple(&output)
    )))
}

impl fmt::Display for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = Repr::new(f, "Resize");
        match self.size {
            ResizeTo::MaxSize => repr,
            ResizeTo::SmallerEdge(edge) => repr.field("size", format_args!("[{edge}]")),
            ResizeTo::Exactly(size) => repr.field("size", format_args!("{size:?}")),
        }
        .field("interpolation", self.interpolation)
        .field_if(self.max_size.is_some(), "max_size", self.max_size.unwrap_or(0))
        .field("antialias", python_bool(self.antialias))
        .finish()
    }
}

impl Operation for Resize {
    fn check(&self) -> Result<()> {
        check_antialias(self.antialias, self.interpolation)?;
        let max_size = self.max_size;
        if let Some(max) = max_size.filter(|max| !(1..=MAX_SIDE).contains(max)) {
            return Err(Error::config(format!("max_size is {max}; must be 1 to {MAX_SIDE}")));
        }
        match (self.size, max_size) {
            (ResizeTo::MaxSize, None) => {
                Err(Error::config("size is None and max_size is None; one of them must be given"))
            }
            (ResizeTo::MaxSize, Some(_)) => Ok(()),
            (ResizeTo::SmallerEdge(edge), Some(max)) if max <= edge => {
                Err(Error::config(format!("max_size is {max}; must be greater than size, which is {edge}")))
            }
            (ResizeTo::SmallerEdge(edge), _) => check_sides("size", Sides::from(edge).0),
            (ResizeTo::Exactly(size), Some(max)) => Err(Error::config(format!(
                "max_size is {max} and size is {}; max_size is allowed only if size is one number or None",
                Tuple(&size)
            ))),
            (ResizeTo::Exactly(size), None) => check_sides("size", size),
        }
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let output = match (self.size, input.height, input.width) {
            (ResizeTo::Exactly(size), _, _) => Some(size),
            (_, Some(height), Some(width)) => self.output(height, width).ok(),
            _ => None,
        };
        Shape { height: output.map(|o| o[0]), width: output.map(|o| o[1]), ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        resized(size, self.output(size.height, size.width)?, self.interpolation)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn output(resize: Resize, height: usize, width: usize) -> (usize, usize) {
        resize.check().unwrap();
        let result = resize.draw(size(height, width), &mut rng(0)).unwrap().size(size(height, width));
        (result.height, result.width)
    }

    #[test]
    fn sizes_round_as_in_torchvision() {
        // (height, width), size, max_size and what _compute_resized_output_size gave (torchvision 0.29).
        let known = [
            ((232, 376), Some(87), None, (87, 141)),
            ((1479, 693), Some(316), Some(445), (445, 208)),
            ((2482, 870), None, Some(622), (622, 218)),
            ((147, 2381), Some(163), None, (163, 2640)),
            ((1765, 2616), Some(403), Some(774), (403, 597)),
            ((2086, 1524), None, Some(558), (558, 407)),
            ((1823, 2057), Some(275), None, (275, 310)),
            ((148, 113), Some(373), Some(612), (488, 373)),
            ((1305, 1557), None, Some(434), (363, 434)),
            ((2154, 674), Some(574), None, (1834, 574)),
            ((727, 968), Some(237), Some(250), (188, 250)),
            ((724, 1332), None, Some(178), (96, 178)),
            ((560, 2090), Some(523), None, (523, 1951)),
            ((1474, 2105), Some(574), Some(668), (468, 668)),
            ((1826, 1699), None, Some(753), (753, 700)),
            ((2152, 1492), Some(363), None, (523, 363)),
            ((1483, 1826), Some(166), Some(553), (166, 204)),
            ((1638, 2930), None, Some(757), (423, 757)),
            ((1890, 2683), Some(544), None, (544, 772)),
            ((1024, 2008), Some(286), Some(542), (276, 542)),
            ((2052, 2112), None, Some(852), (827, 852)),
            ((1450, 2711), Some(466), None, (466, 871)),
            ((1889, 1437), Some(582), Some(954), (765, 582)),
            ((2284, 2965), None, Some(468), (360, 468)),
            ((1994, 2699), Some(228), None, (228, 308)),
            ((1330, 2866), Some(171), Some(487), (171, 368)),
            ((1099, 1966), None, Some(317), (177, 317)),
            ((1243, 2893), Some(517), None, (517, 1203)),
            ((2303, 2121), Some(520), Some(854), (564, 520)),
            ((2523, 2409), None, Some(417), (417, 398)),
        ];
        for ((height, width), edge, max_size, expected) in known {
            let size = edge.map_or(ResizeTo::MaxSize, ResizeTo::SmallerEdge);
            let resize = Resize { max_size, ..Resize::new(size) };
            assert_eq!(output(resize, height, width), expected, "{height}x{width} {resize}");
        }
        assert_eq!(output(Resize::new((5, 7)), 100, 3), (5, 7));
    }

    #[test]
    fn an_image_of_the_right_size_is_kept() {
        assert_eq!(Resize::new((3, 4)).draw(size(3, 4), &mut rng(0)).unwrap(), Action::Keep);
        let action = Resize::new((3, 5)).draw(size(3, 4), &mut rng(0)).unwrap();
        let crop = Rect { top: 0, left: 0, height: 3, width: 4 };
        let interpolation = Interpolation::Bilinear;
        assert_eq!(action, Action::Resize { crop, cropped: false, height: 3, width: 5, interpolation });
    }

    #[test]
    fn results_without_pixels_and_giant_results_are_errors() {
        let e = Resize::new(2).max_size(3).draw(size(1, 1000), &mut rng(0)).unwrap_err();
        assert!(
            e.message().starts_with("an image of (1, 1000) would become (0, 3); both sides must be 1 to")
        );
        assert!(Resize::new(10_000).draw(size(1, 1_000_000), &mut rng(0)).is_err());
        assert!(Resize::new(10).draw(size(0, 5), &mut rng(0)).is_err());
    }

    #[test]
    fn the_size_is_known_ahead_where_it_can_be() {
        let unknown = Shape { height: None, width: Some(5), channels: 3 };
        assert_eq!(Resize::new(7).fixed_size(unknown), Shape { width: None, ..unknown });
        let known = Shape { height: Some(7), width: Some(9), channels: 3 };
        assert_eq!(Resize::new((7, 9)).fixed_size(unknown), known);
        assert_eq!(Resize::new(7).fixed_size(Shape { height: Some(14), width: Some(18), ..unknown }), known);
    }

    #[test]
    fn parameters_are_checked() {
        assert!(check_error(Resize::new(0)).starts_with("size is (0, 0)"));
        assert_eq!(
            check_error(Resize::new(5).max_size(5)),
            "max_size is 5; must be greater than size, which is 5"
        );
        assert!(check_error(Resize::new((5, 6)).max_size(9)).contains("only if size is one number or None"));
        assert!(check_error(Resize::new(ResizeTo::MaxSize)).contains("one of them must be given"));
        let plain = Resize { antialias: false, ..Resize::new(5) };
        assert!(check_error(plain).contains("antialias is False; must be True for interpolation bilinear"));
        assert!(plain.interpolation(Interpolation::Nearest).check().is_ok());
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        for (json, text) in [
            (r#"{"type":"Resize","size":224}"#, "Resize(size=[224], interpolation=bilinear, antialias=True)"),
            (
                r#"{"type":"Resize","size":[224],"max_size":300,"antialias":null}"#,
                "Resize(size=[224], interpolation=bilinear, max_size=300, antialias=True)",
            ),
            (
                r#"{"type":"Resize","size":[3,4],"interpolation":"nearest-exact","antialias":false}"#,
                "Resize(size=[3, 4], interpolation=nearest-exact, antialias=False)",
            ),
            (
                r#"{"type":"Resize","size":null,"max_size":5}"#,
                "Resize(interpolation=bilinear, max_size=5, antialias=True)",
            ),
        ] {
            assert_eq!(read(json).to_string(), text);
        }
        assert!(
            refuse(r#"{"type":"Resize","size":[1,2,3]}"#).contains("size is [1,2,3]; must be one number")
        );
    }
}
