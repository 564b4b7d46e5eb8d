//! Numbers out of text. Floats are rounded correctly: short ones by one exact multiplication or division, all others by Rust's
//! standard library.

use std::str;

/// Powers of ten that a float of 64 bits holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// A whole number, perhaps with a sign and blanks around it.
pub(super) fn int64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || digits.len() > 18 {
        return slow_int(text);
    }
    let mut sum = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return slow_int(text);
        }
        sum = sum * 10 + i64::from(digit);
    }
    Some(if negative { -sum } else { sum })
}

/// The same within 32 bits.
pub(super) fn int32(text: &[u8]) -> Option<i32> {
    int64(text).and_then(|value| i32::try_from(value).ok())
}

#[cold]
fn slow_int(text: &[u8]) -> Option<i64> {
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// Digits as a whole number and a power of ten, if there are few enough for both to be exact.
struct Short {
    negative: bool,
    digits: u64,
    exponent: i32,
}

impl Short {
    fn of(text: &[u8]) -> Option<Self> {
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        if rest.is_empty() || rest.len() > 19 {
            return None;
        }
        let (mut digits, mut seen, mut point) = (0_u64, 0, None);
        for (i, byte) in rest.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                // At most 19 digits: they fit.
                digits = digits * 10 + u64::from(digit);
                seen += 1;
            } else if *byte == b'.' && point.is_none() {
                point = Some(i);
            } else {
                return None;
            }
        }
        let behind = point.map_or(0, |point| rest.len() - point - 1);
        (seen > 0).then_some(Self { negative, digits, exponent: -(behind as i32) })
    }

    /// Its value, correctly rounded.
    fn float64(&self) -> Option<f64> {
        let power = POWERS[usize::try_from(-self.exponent).ok().filter(|power| *power < POWERS.len())?];
        if self.digits > 1 << 53 {
            return None;
        }
        // Both are exact, so that their quotient is rounded once.
        let value = self.digits as f64 / power;
        Some(if self.negative { -value } else { value })
    }
}

/// A float of 64 bits, perhaps with blanks around it; `inf` and `nan` in any case.
pub(super) fn float64(text: &[u8]) -> Option<f64> {
    match Short::of(text).and_then(|short| short.float64()) {
        Some(value) => Some(value),
        None => str::from_utf8(text.trim_ascii()).ok()?.parse().ok(),
    }
}

/// A float of 32 bits: the one next to what the text says, not to the float of 64 bits next to that.
pub(super) fn float32(text: &[u8]) -> Option<f32> {
    if let Some(value) = Short::of(text).and_then(|short| short.float64()) {
        let bits = value.to_bits();
        // The float of 64 bits is off by half a unit of its last place at most. Unless it lies in the middle between two floats of
        // 32 bits, the text lies on the same side of that middle.
        let tie = bits & 0x1fff_ffff == 0x1000_0000;
        if value == 0.0 || (!tie && value.abs() >= f64::from(f32::MIN_POSITIVE)) {
            return Some(value as f32);
        }
    }
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_signs_and_blanks_and_stay_within_their_range() {
        for (text, value) in [
            ("0", Some(0)),
            ("-7", Some(-7)),
            ("+7", Some(7)),
            (" 12\t", Some(12)),
            ("007", Some(7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("00000000000000000000000012", Some(12)),
            ("", None),
            ("-", None),
            ("1.0", None),
            ("1e3", None),
            ("1_000", None),
            ("0x10", None),
            ("- 1", None),
            ("1 2", None),
            ("--1", None),
            ("a", None),
        ] {
            assert_eq!(int64(text.as_bytes()), value, "{text:?}");
        }
        assert_eq!(int32(b"2147483647"), Some(i32::MAX));
        assert_eq!(int32(b"2147483648"), None);
        assert_eq!(int32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(int64(&[0xff]), None);
    }

    #[test]
    fn floats_are_those_of_the_standard_library() {
        let mut random = wellfed::rng::Rng::for_stage(3, 0, 0, 0);
        let mut texts: Vec<String> = [
            "0",
            "-0",
            "-0.0",
            ".5",
            "5.",
            "-.5",
            "+1.5",
            "1e5",
            "1E-5",
            " 2.5 ",
            "inf",
            "-INF",
            "nan",
            "Infinity",
            "1e400",
            "1e-400",
            "16777217",
            "16777217.0",
            "0.1",
            "9007199254740993",
            "3.4028236e38",
            "1.17549435e-38",
            "",
            ".",
            "-",
            "-.",
            "1.2.3",
            "1,5",
            "abc",
            "1e",
            "0x1p3",
            "--1",
            "1_0",
            "8388608.5",
            "8388609.5",
            "4194304.25",
            "1.00000005960464477539",
            "1.000000059604644775390625",
            "1.0000000596046448",
        ]
        .map(str::to_owned)
        .into();
        for _ in 0..200_000 {
            let (whole, digits) = (random.next_u32(), random.next_u32() % 10);
            let part = u64::from(random.next_u32()) * 37 % 10_u64.pow(digits);
            let whole = whole >> (random.next_u32() % 32);
            texts.push(format!("{whole}.{part:0width$}", width = digits as usize));
            texts.push(format!("{}", f32::from_bits(random.next_u32())));
            texts.push(format!("-{}e{}", whole, random.next_u32() as i32 % 40));
            // Halves between floats of 32 bits.
            texts.push(format!("{}.5", (1 << 23) + (random.next_u32() >> 9)));
        }
        for text in &texts {
            let trimmed = text.trim();
            let same64 =
                float64(text.as_bytes()).map(f64::to_bits) == trimmed.parse::<f64>().ok().map(f64::to_bits);
            let same32 =
                float32(text.as_bytes()).map(f32::to_bits) == trimmed.parse::<f32>().ok().map(f32::to_bits);
            assert!(
                same64 && same32,
                "{text:?}: {:?} {:?}",
                float64(text.as_bytes()),
                float32(text.as_bytes())
            );
        }
    }
}
