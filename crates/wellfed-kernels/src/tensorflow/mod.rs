//! TensorFlow's image operations on floats, with the bits of its CPU kernels.
//!
//! Everything is computed in float32 in the order in which TensorFlow's kernels compute it, without fused
//! multiply-adds: its wheels are built without them. Images are rows of interleaved channels.

mod affine;
mod area;
mod bicubic;
mod bilinear;
mod colour;
mod contrast;
mod gather;
mod nearest;
mod points;
mod scale;
mod standardize;

pub use affine::{Fill, Warp, affine};
pub use area::resize_area;
pub use bicubic::resize_bicubic;
pub use bilinear::resize_bilinear;
pub use colour::{adjust_contrast, adjust_hue, adjust_saturation, grayscale};
pub use contrast::{brightness, contrast};
pub use nearest::resize_nearest;
pub use points::{Arithmetic, arithmetic};
pub use scale::{Kernel, resize_kernel};
pub use standardize::standardize;

/// Rows, columns and channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Channels.
    pub channels: usize,
}

impl Shape {
    /// Elements of one row.
    pub fn row(&self) -> usize {
        self.width * self.channels
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.height * self.row()
    }

    /// The same channels in another size.
    pub fn resized(&self, (height, width): (usize, usize)) -> Shape {
        Shape { height, width, ..*self }
    }

    fn check<T>(&self, elements: &[T]) {
        assert!(self.elements() == elements.len() && !elements.is_empty(), "an image of {self:?}");
    }
}

/// An element that operations read.
pub trait Sample: Copy {
    /// As TensorFlow casts it.
    fn float(self) -> f32;

    /// The same elements, if they are bytes.
    fn bytes(elements: &[Self]) -> Option<&[u8]> {
        let _ = elements;
        None
    }
}

impl Sample for u8 {
    #[inline(always)]
    fn float(self) -> f32 {
        f32::from(self)
    }

    fn bytes(elements: &[u8]) -> Option<&[u8]> {
        Some(elements)
    }
}

impl Sample for f32 {
    #[inline(always)]
    fn float(self) -> f32 {
        self
    }
}

/// Input pixels for each output pixel along one side.
fn ratio(input: usize, output: usize) -> f32 {
    input as f32 / output as f32
}

/// Runs `$body` compiled for the best instructions that there are.
///
/// # Safety of the expansion
/// The functions are called only where their features are.
macro_rules! at_best_level {
    ($(#[$doc:meta])* $name:ident = $run:ident<T>($($argument:ident: $type:ty),* $(,)?)) => {
        $(#[$doc])*
        pub fn $name<T: $crate::tensorflow::Sample>($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                unsafe fn avx2<T: $crate::tensorflow::Sample>($($argument: $type),*) {
                    $run($($argument),*);
                }
                if $crate::level::Level::best() >= $crate::level::Level::Avx2 {
                    // SAFETY: the level says that the feature is there.
                    return unsafe { avx2($($argument),*) };
                }
            }
            $run($($argument),*);
        }
    };
}
use at_best_level;
