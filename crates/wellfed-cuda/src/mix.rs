//! [`Images::launch`]: a batch of finished images mixed with itself where it lies, by the kernels in `kernels/mix.cu`.
//!
//! One launch a blend, in place and without scratch memory. What is drawn, and what becomes of labels, is the caller's.

use wellfed_kernels::image::{Dtype, Layout};

use crate::{
    error::{Error, Result},
    host::Grid,
};

/// Places of a block: its threads.
const THREADS: u32 = 256;

/// What is done to a batch: image `i` is mixed with image `i - 1`, and the first with the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blend {
    /// Weighted sums, in which an image itself has this weight and the one before it the rest.
    Sum(f64),
    /// Columns `x1..x2` of rows `y1..y2` come from the image before: `[x1, y1, x2, y2]`.
    Box([usize; 4]),
}

/// A batch of images one behind the other, without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    /// Address of the first, a multiple of the element's size.
    pub address: u64,
    /// How many there are.
    pub count: usize,
    /// Channels, rows and columns of each.
    pub size: [usize; 3],
    /// Type of elements.
    pub dtype: Dtype,
    /// Their order.
    pub layout: Layout,
}

/// `MixArgs` of `kernels/mix.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MixArgs {
    images: u64,
    count: u64,
    size: u64,
    items: u64,
    previous: f32,
    own: f32,
    dtype: u32,
    words: u32,
    first: u64,
    plane: u64,
    row: u64,
    run: u32,
    rows: u32,
}

const _: () = assert!(size_of::<MixArgs>() == 80);

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Name of the kernel.
    pub name: &'static str,
    /// Blocks in each direction.
    pub grid: Grid,
    /// Threads of a block.
    pub threads: u32,
    /// Its arguments.
    pub args: MixArgs,
}

impl Images {
    /// The launch that does it; `None` if there is nothing to do.
    ///
    /// # Errors
    /// [`Error::Argument`] for weighted sums of whole numbers, a rectangle that is not in the images, and images that are too
    /// large.
    pub fn launch(&self, blend: Blend) -> Result<Option<Launch>> {
        let [channels, height, width] = self.size;
        let element = self.dtype.size();
        let too_large = || Error::Argument(format!("images of {:?} are too large to be mixed", self.size));
        let elements = channels.checked_mul(height).and_then(|n| n.checked_mul(width));
        // Elements of an image are counted in 32 bits, and its bytes with those of all others in 64.
        let elements = elements.filter(|n| *n <= i32::MAX as usize / element).ok_or_else(too_large)?;
        if elements == 0 || self.count == 0 {
            return Ok(None);
        }
        let dtype = match self.dtype {
            Dtype::U8 => 1,
            Dtype::F16 => 2,
            Dtype::Bf16 => 3,
            Dtype::F32 => 4,
        };
        let args = MixArgs {
            images: self.address,
            count: self.count as u64,
            size: (elements * element) as u64,
            dtype,
            ..MixArgs::default()
        };
        let (name, args) = match blend {
            Blend::Sum(lam) => {
                if self.dtype == Dtype::U8 {
                    return Err(Error::Argument("whole numbers are not blended".to_owned()));
                }
                let words = (elements * element).is_multiple_of(4) && self.address.is_multiple_of(4);
                let items = if words { elements * element / 4 } else { elements };
                let (previous, own) = ((1.0 - lam) as f32, lam as f32);
                ("mix_sum", MixArgs { items: items as u64, previous, own, words: u32::from(words), ..args })
            }
            Blend::Box([x1, y1, x2, y2]) => {
                if !(x1 <= x2 && x2 <= width && y1 <= y2 && y2 <= height) {
                    return Err(Error::Argument(format!(
                        "columns {x1} to {x2} of rows {y1} to {y2} are no rectangle of images of {height} x {width}"
                    )));
                }
                let (planes, pixel) = match self.layout {
                    Layout::Chw => (channels, 1),
                    Layout::Hwc => (1, channels),
                };
                let (run, rows) = ((x2 - x1) * pixel, y2 - y1);
                let bytes = |elements: usize| (elements * element) as u64;
                let args = MixArgs {
                    items: (planes * run * rows) as u64,
                    first: bytes((y1 * width + x1) * pixel),
                    plane: bytes(height * width),
                    row: bytes(width * pixel),
                    run: run as u32,
                    rows: rows as u32,
                    ..args
                };
                ("mix_box", args)
            }
        };
        let blocks = u32::try_from(args.items.div_ceil(u64::from(THREADS))).map_err(|_| too_large())?;
        Ok((blocks > 0).then_some(Launch { name, grid: [blocks, 1, 1], threads: THREADS, args }))
    }
}
