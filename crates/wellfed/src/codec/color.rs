//! Changes of colour mode between interleaved 8-bit images of 1 (L), 2 (LA), 3 (RGB) and 4 (RGBA) channels,
//! with the values that Pillow's `Image.convert` gives.

use wellfed_kernels::gray::luma;

/// Converts packed pixels of `from` channels into pixels of `to` channels.
///
/// # Panics
/// If a number of channels is not 1 to 4 or the slices differ in their number of pixels.
pub(crate) fn convert(src: &[u8], from: usize, dst: &mut [u8], to: usize) {
    assert_eq!(src.len() / from, dst.len() / to, "source and destination have as many pixels");
    match (from, to) {
        (1, 1) | (2, 2) | (3, 3) | (4, 4) => dst.copy_from_slice(src),
        (1, 3) => map::<1, 3>(src, dst, |[l]| [l; 3]),
        (1, 4) => map::<1, 4>(src, dst, |[l]| [l, l, l, 255]),
        (2, 1) => map::<2, 1>(src, dst, |[l, _]| [l]),
        (2, 3) => map::<2, 3>(src, dst, |[l, _]| [l; 3]),
        (2, 4) => map::<2, 4>(src, dst, |[l, a]| [l, l, l, a]),
        (3, 1) => map::<3, 1>(src, dst, |[r, g, b]| [luma(r, g, b)]),
        (3, 4) => map::<3, 4>(src, dst, |[r, g, b]| [r, g, b, 255]),
        (4, 1) => map::<4, 1>(src, dst, |[r, g, b, _]| [luma(r, g, b)]),
        (4, 3) => map::<4, 3>(src, dst, |[r, g, b, _]| [r, g, b]),
        _ => unreachable!("no codec converts {from} to {to} channels"),
    }
}

#[inline]
fn map<const A: usize, const B: usize>(src: &[u8], dst: &mut [u8], f: impl Fn([u8; A]) -> [u8; B]) {
    for (s, d) in src.as_chunks::<A>().0.iter().zip(dst.as_chunks_mut::<B>().0) {
        *d = f(*s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luma_is_pillows() {
        // PIL.Image.new("RGB", (1, 1), c).convert("L").getpixel((0, 0)), Pillow 13.0.0
        for (rgb, l) in [
            ([0; 3], 0),
            ([255; 3], 255),
            ([255, 0, 0], 76),
            ([0, 255, 0], 150),
            ([0, 0, 255], 29),
            ([10, 200, 77], 129),
        ] {
            assert_eq!(luma(rgb[0], rgb[1], rgb[2]), l, "{rgb:?}");
        }
    }

    #[test]
    fn every_mode_reaches_l_rgb_and_rgba() {
        for from in 1..=4 {
            let src = vec![7; from * 5];
            for to in [1, 3, 4] {
                let mut dst = vec![0; to * 5];
                convert(&src, from, &mut dst, to);
                let alpha = if from % 2 == 0 { 7 } else { 255 };
                let expected = if to == 4 { [7, 7, 7, alpha].repeat(5) } else { vec![7; to * 5] };
                assert_eq!(dst, expected, "{from} to {to}");
            }
        }
    }
}
