//! What is done to every value by itself.

/// An operation with a constant, as TensorFlow's element-wise operations of these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `x * c`.
    Mul,
    /// `x / c`.
    Div,
    /// `x + c`.
    Add,
    /// `x - c`.
    Sub,
    /// `c - x`.
    SubFrom,
    /// The lesser one.
    Minimum,
    /// The greater one.
    Maximum,
}

/// Applies `operation` to `values`, which are interleaved as many channels as there are `constants`; one constant is for
/// all channels.
///
/// # Panics
/// If there are no constants.
// Inlined, so that it is compiled for the instructions of its caller.
#[inline(always)]
pub fn arithmetic(operation: Arithmetic, constants: &[f32], values: &mut [f32]) {
    match operation {
        Arithmetic::Mul => each(constants, values, |x, c| x * c),
        Arithmetic::Div => each(constants, values, |x, c| x / c),
        Arithmetic::Add => each(constants, values, |x, c| x + c),
        Arithmetic::Sub => each(constants, values, |x, c| x - c),
        Arithmetic::SubFrom => each(constants, values, |x, c| c - x),
        Arithmetic::Minimum => each(constants, values, |x, c| if c < x { c } else { x }),
        Arithmetic::Maximum => each(constants, values, |x, c| if x < c { c } else { x }),
    }
}

#[inline(always)]
fn each(constants: &[f32], values: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    match *constants {
        [c] => values.iter_mut().for_each(|x| *x = f(*x, c)),
        [a, b, c] => {
            for pixel in values.as_chunks_mut::<3>().0 {
                *pixel = [f(pixel[0], a), f(pixel[1], b), f(pixel[2], c)];
            }
        }
        _ => {
            for pixel in values.chunks_exact_mut(constants.len()) {
                pixel.iter_mut().zip(constants).for_each(|(x, &c)| *x = f(*x, c));
            }
        }
    }
}
