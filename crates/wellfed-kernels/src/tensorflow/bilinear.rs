//! `ResizeBilinear` with half-pixel centres.

use super::{
    Arithmetic, Sample, Shape, arithmetic, at_best_level,
    gather::{LANES, Picks},
    ratio,
};
use crate::level::Level;

/// The two neighbours of an output pixel, and how far it lies from the first to the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    pub(super) lower: usize,
    pub(super) upper: usize,
    pub(super) part: f32,
}

fn between(input: usize, output: usize) -> Vec<Between> {
    let scale = ratio(input, output);
    let one = |i: usize| {
        let at = (i as f32 + 0.5) * scale - 0.5;
        let floor = at.floor();
        Between {
            lower: floor.max(0.0) as usize,
            upper: (at.ceil().max(0.0) as usize).min(input - 1),
            part: at - floor,
        }
    };
    (0..output).map(one).collect()
}

at_best_level! {
    /// Resamples `image` to `size` by linear interpolation between four neighbours, and applies `then` to the result, as
    /// [`arithmetic`] does, row by row while it is in the cache.
    ///
    /// # Panics
    /// If `image` or `out` are not of their shapes, or empty.
    resize_bilinear = run<T>(
        image: &[T],
        shape: Shape,
        out: &mut [f32],
        size: (usize, usize),
        then: &[(Arithmetic, &[f32])],
    )
}

#[inline(always)]
fn run<T: Sample>(
    image: &[T],
    shape: Shape,
    out: &mut [f32],
    size: (usize, usize),
    then: &[(Arithmetic, &[f32])],
) {
    shape.check(image);
    let resized = shape.resized(size);
    resized.check(out);
    let (ys, xs) = (between(shape.height, size.0), between(shape.width, size.1));
    // Rows that are interpolated across, with their numbers. Neighbours mostly share one.
    let room = resized.row().next_multiple_of(LANES) + 1;
    let mut rows = [vec![0.0; room], vec![0.0; room]];
    let picks = T::bytes(image).and_then(|_| picks(&xs, shape));
    let mut held = [None; 2];
    for (y, out) in ys.iter().zip(out.chunks_exact_mut(resized.row())) {
        if held[1] == Some(y.lower) {
            rows.swap(0, 1);
            held.swap(0, 1);
        }
        for (number, wanted) in [y.lower, y.upper].into_iter().enumerate() {
            if held[number] != Some(wanted) {
                let row = &image[wanted * shape.row()..][..shape.row()];
                let by_vectors = T::bytes(row).is_some_and(|row| match &picks {
                    Some(picks) => across_picked(row, picks, &mut rows[number]),
                    None => shape.channels == 3 && across_rgb(row, &xs, &mut rows[number]),
                });
                if by_vectors {
                    held[number] = Some(wanted);
                    continue;
                }
                match shape.channels {
                    3 => across::<T, 3>(row, &xs, &mut rows[number]),
                    1 => across::<T, 1>(row, &xs, &mut rows[number]),
                    4 => across::<T, 4>(row, &xs, &mut rows[number]),
                    channels => across_any(row, channels, &xs, &mut rows[number]),
                }
                held[number] = Some(wanted);
            }
        }
        let [top, bottom] = &rows;
        for ((out, &top), &bottom) in out.iter_mut().zip(top).zip(bottom) {
            *out = top + (bottom - top) * y.part;
        }
        for &(operation, constants) in then {
            arithmetic(operation, constants, out);
        }
    }
}

/// Where the numbers of rows come from, if the processor can pick them many at a time.
fn picks(xs: &[Between], shape: Shape) -> Option<Picks> {
    if Level::best() < Level::Avx512 {
        return None;
    }
    Picks::new(xs, shape.width, shape.channels)
}

/// [`across`] of bytes, sixteen numbers a vector. `out` has room for whole vectors.
#[cfg(target_arch = "x86_64")]
fn across_picked(row: &[u8], picks: &Picks, out: &mut [f32]) -> bool {
    // SAFETY: there are picks only where the level has the features.
    unsafe { picks.across(row, out) };
    true
}

#[cfg(not(target_arch = "x86_64"))]
fn across_picked(_: &[u8], _: &Picks, _: &mut [f32]) -> bool {
    false
}

/// [`across`] of three bytes a pixel, with a pixel a vector; false, with nothing done, where the processor lacks it. `out`
/// has room for one number more.
#[cfg(target_arch = "x86_64")]
fn across_rgb(row: &[u8], xs: &[Between], out: &mut [f32]) -> bool {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    fn run(row: &[u8], xs: &[Between], out: &mut [f32]) {
        // Four bytes from the pixel on, of which the last is not looked at.
        let floats =
            |bytes: [u8; 4]| _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(i32::from_le_bytes(bytes))));
        let mix = |i: usize, left: __m128, right: __m128, out: &mut [f32]| {
            let part = _mm_mul_ps(_mm_sub_ps(right, left), _mm_set1_ps(xs[i].part));
            let to = &mut out[3 * i..3 * i + 4];
            // SAFETY: there are four numbers, of which the last is overwritten by the next pixel.
            unsafe { _mm_storeu_ps(to.as_mut_ptr(), _mm_add_ps(left, part)) };
        };
        // Neighbours never lie further left than those of the pixel before.
        let inside = xs.partition_point(|x| 3 * x.upper + 4 <= row.len());
        for (i, x) in xs[..inside].iter().enumerate() {
            // SAFETY: four bytes from the upper pixel on lie in the row, so do those from the lower one, which is no further
            // right. Checks cost a third of the time of this loop.
            let [left, right] = [x.lower, x.upper]
                .map(|pixel| unsafe { row.as_ptr().add(3 * pixel).cast::<[u8; 4]>().read() });
            mix(i, floats(left), floats(right), out);
        }
        for (i, x) in xs.iter().enumerate().skip(inside) {
            let [left, right] =
                [x.lower, x.upper].map(|pixel| [row[3 * pixel], row[3 * pixel + 1], row[3 * pixel + 2], 0]);
            mix(i, floats(left), floats(right), out);
        }
    }
    if Level::best() < Level::Avx2 {
        return false;
    }
    // SAFETY: the level says that the feature is there.
    unsafe { run(row, xs, out) };
    true
}

#[cfg(not(target_arch = "x86_64"))]
fn across_rgb(_: &[u8], _: &[Between], _: &mut [f32]) -> bool {
    false
}

#[inline(always)]
fn across<T: Sample, const C: usize>(row: &[T], xs: &[Between], out: &mut [f32]) {
    let row = row.as_chunks::<C>().0;
    for (out, x) in out.as_chunks_mut::<C>().0.iter_mut().zip(xs) {
        let (left, right) = (row[x.lower], row[x.upper]);
        for c in 0..C {
            let left = left[c].float();
            out[c] = left + (right[c].float() - left) * x.part;
        }
    }
}

#[inline(always)]
fn across_any<T: Sample>(row: &[T], channels: usize, xs: &[Between], out: &mut [f32]) {
    for (out, x) in out.chunks_exact_mut(channels).zip(xs) {
        for (c, out) in out.iter_mut().enumerate() {
            let left = row[x.lower * channels + c].float();
            *out = left + (row[x.upper * channels + c].float() - left) * x.part;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn many_numbers_a_vector_have_the_bits_of_the_portable_code(
            row in prop::collection::vec(any::<u8>(), 1..700),
            output in 1usize..120,
            channels in 1usize..5,
        ) {
            let width = row.len() / channels;
            prop_assume!(width > 0);
            let row = &row[..width * channels];
            let xs = between(width, output);
            if let Some(picks) = picks(&xs, Shape { height: 1, width, channels }) {
                let mut found = vec![0.0; (channels * output).next_multiple_of(LANES)];
                let mut expected = vec![0.0; channels * output];
                assert!(across_picked(row, &picks, &mut found));
                across_any(row, channels, &xs, &mut expected);
                prop_assert_eq!(&found[..channels * output], &expected[..]);
            }
        }

        #[test]
        fn arithmetic_row_by_row_is_that_of_the_whole(
            image in prop::collection::vec(any::<u8>(), 1..300),
            size in (1usize..9, 1usize..40),
            constants in prop::collection::vec(-3.0f32..3.0, 3),
        ) {
            let shape = Shape { height: 1, width: image.len() / 3, channels: 3 };
            prop_assume!(shape.width > 0);
            let image = &image[..shape.elements()];
            let then = [(Arithmetic::Div, &constants[..1]), (Arithmetic::SubFrom, &constants[..])];
            let (mut found, mut expected) = (vec![0.0; 3 * size.0 * size.1], vec![0.0; 3 * size.0 * size.1]);
            resize_bilinear(image, shape, &mut found, size, &then);
            resize_bilinear(image, shape, &mut expected, size, &[]);
            then.iter().for_each(|(operation, constants)| arithmetic(*operation, constants, &mut expected));
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&found), bits(&expected));
        }

        #[test]
        fn a_pixel_a_vector_has_the_bits_of_the_portable_code(
            row in prop::collection::vec(any::<u8>(), 1..200),
            output in 1usize..120,
        ) {
            let row = &row[..row.len() / 3 * 3];
            prop_assume!(!row.is_empty());
            let xs = between(row.len() / 3, output);
            let (mut found, mut expected) = (vec![0.0; 3 * output + 1], vec![0.0; 3 * output + 1]);
            if across_rgb(row, &xs, &mut found) {
                across::<u8, 3>(row, &xs, &mut expected);
                prop_assert_eq!(&found[..3 * output], &expected[..3 * output]);
            }
        }
    }
}
