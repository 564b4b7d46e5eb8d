//! `per_image_standardization`: sums in the order of the reductions of Eigen, which TensorFlow's CPU kernels are.

/// Numbers of a vector register of AVX, which TensorFlow's wheels for x86-64 are built for.
const LANES: usize = 8;
/// Registers that are added to at the same time.
const TOGETHER: usize = 4;
/// More numbers than this are two sums.
const LEAF: usize = 1024 * LANES;

/// Takes the mean from all values, and divides by their standard deviation, at least `1 / sqrt(count)`.
///
/// # Panics
/// If there are no values.
pub fn standardize(values: &mut [f32]) {
    assert!(!values.is_empty(), "no pixels");
    let count = values.len() as f32;
    let mean = sum(values, |x| x) / count;
    values.iter_mut().for_each(|x| *x -= mean);
    let variance = sum(values, |x| x * x) / count;
    let (deviation, least) = (variance.sqrt(), 1.0 / count.sqrt());
    let by = if deviation < least { least } else { deviation };
    values.iter_mut().for_each(|x| *x /= by);
}

fn sum(values: &[f32], of: impl Fn(f32) -> f32 + Copy) -> f32 {
    if values.len() <= LEAF {
        return leaf(values, of);
    }
    let (left, right) = values.split_at(values.len().div_ceil(2).next_multiple_of(LANES));
    sum(left, of) + sum(right, of)
}

fn leaf(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [[0.0f32; LANES]; TOGETHER];
    let (blocks, rest) = values.as_chunks::<{ LANES * TOGETHER }>();
    for block in blocks {
        for (sums, values) in sums.iter_mut().zip(block.as_chunks::<LANES>().0) {
            add(sums, &values.map(&of));
        }
    }
    let [mut total, others @ ..] = sums;
    others.iter().for_each(|other| add(&mut total, other));
    let (registers, rest) = rest.as_chunks::<LANES>();
    registers.iter().for_each(|values| add(&mut total, &values.map(&of)));
    let single = rest.iter().fold(0.0, |sum, &x| sum + of(x));
    let [a, b, c, d, e, f, g, h] = total;
    single + (((a + e) + (c + g)) + ((b + f) + (d + h)))
}

fn add(to: &mut [f32; LANES], values: &[f32; LANES]) {
    to.iter_mut().zip(values).for_each(|(to, x)| *to += x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_divided_by_the_least_deviation() {
        let mut values = [5.0; 12];
        standardize(&mut values);
        assert_eq!(values, [0.0; 12]);
    }

    #[test]
    fn sums_take_every_value_once() {
        for count in [1, 7, 8, 31, 32, 33, 100, LEAF, LEAF + 1, 3 * LEAF + 13] {
            let values: Vec<f32> = (0..count).map(|i| (i % 5) as f32).collect();
            assert_eq!(sum(&values, |x| x), values.iter().sum::<f32>(), "{count}");
        }
    }
}
