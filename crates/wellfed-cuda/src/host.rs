//! The kernels on the host, and the table of all of them: what tests without a device run.

use crate::error::{Error, Result};

/// Blocks in each direction.
pub type Grid = [u32; 3];

/// A kernel compiled for the host: takes its arguments' structure, and how many blocks there are.
type Function = unsafe extern "C" fn(*const u8, u32, u32, u32);

/// `struct wellfed_kernel` of `kernels/kernel.h`.
#[repr(C)]
struct Raw {
    launch: Function,
    bytes: u32,
    threads: u32,
}

/// A kernel: its function on the host, and what launches of it on either side are checked by.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    name: &'static str,
    function: Function,
    /// Bytes of the structure that it takes.
    bytes: usize,
    /// How many threads a block may have at most.
    threads: u32,
}

/// Makes the table of all kernels of their names.
macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        mod raw {
            unsafe extern "C" {
                $(
                    #[link_name = concat!("wellfed_kernel_", stringify!($name))]
                    pub(super) safe static $name: super::Raw;
                )*
            }
        }

        /// All kernels.
        pub fn kernels() -> impl Iterator<Item = Kernel> {
            [$((stringify!($name), &raw::$name)),*].into_iter().map(|(name, raw)| Kernel {
                name,
                function: raw.launch,
                bytes: raw.bytes as usize,
                threads: raw.threads,
            })
        }
    };
}

// What `kernels/all.h` includes.
kernels!(
    fill,
    unpack,
    huffman,
    idct,
    colour,
    resample_first,
    resample_second,
    augment,
    augment_plain,
    augment_copy,
    augment_axes,
    augment_across,
    augment_down,
    augment_affine,
    mix_sum,
    mix_box,
);

impl Kernel {
    /// The kernel of this name; `None` if there is none.
    pub fn find(name: &str) -> Option<Self> {
        kernels().find(|kernel| kernel.name == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Bytes of the structure that it takes.
    pub fn argument_bytes(self) -> usize {
        self.bytes
    }

    /// How many threads a block may have at most.
    pub fn max_threads(self) -> u32 {
        self.threads
    }

    /// Whether it can be launched like this, on either side.
    ///
    /// # Errors
    /// [`Error::Argument`]: `T` has another size than the kernel's structure, blocks have too many threads or none, or
    /// the grid more than 65,535 blocks in its second or third direction, or 2³¹ in its first.
    pub fn check<T: Copy>(self, grid: Grid, threads: u32) -> Result<()> {
        let Self { name, bytes, .. } = self;
        if size_of::<T>() != bytes {
            return Err(Error::Argument(format!(
                "kernel {name} takes a structure of {bytes} bytes, and {} has {}",
                std::any::type_name::<T>(),
                size_of::<T>()
            )));
        }
        if threads == 0 || threads > self.threads {
            return Err(Error::Argument(format!(
                "kernel {name} is for 1 to {} threads a block, and not for {threads}",
                self.threads
            )));
        }
        if grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
            return Err(Error::Argument(format!("kernel {name}: a grid cannot have {grid:?} blocks")));
        }
        Ok(())
    }

    /// Runs all blocks of `grid`, one after another, on this thread.
    ///
    /// # Panics
    /// `T` has another size than the kernel's structure.
    ///
    /// # Safety
    /// `args` are what the kernel takes, and their pointers are valid for what it reads and writes.
    pub unsafe fn launch<T: Copy>(self, args: &T, grid: Grid) {
        assert_eq!(size_of::<T>(), self.bytes, "the size of {}'s structure", self.name);
        let [x, y, z] = grid;
        // SAFETY: the caller's promise.
        unsafe { (self.function)(std::ptr::from_ref(args).cast(), x, y, z) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct FillArgs {
        data: u64,
        bytes: u64,
        value: u32,
        padding: u32,
    }

    #[test]
    fn a_kernel_writes_where_it_should_and_nowhere_else() {
        let mut bytes = vec![7u8; 5000];
        let args = FillArgs { data: bytes.as_mut_ptr() as u64, bytes: 4999, value: 9, padding: 0 };
        // SAFETY: the structure is `fill`'s, and the memory is there.
        unsafe { Kernel::find("fill").unwrap().launch(&args, [2, 1, 1]) };
        assert!(bytes[..4999].iter().all(|&b| b == 9));
        assert_eq!(bytes[4999], 7);
        assert!(Kernel::find("none").is_none());
    }

    #[test]
    fn launches_that_a_device_would_refuse_are_refused() {
        let fill = Kernel::find("fill").unwrap();
        assert_eq!(fill.check::<FillArgs>([2, 65_535, 1], 256), Ok(()));
        let text = |result: Result<()>| result.unwrap_err().to_string();
        assert!(text(fill.check::<u64>([1; 3], 32)).contains("a structure of 24 bytes, and u64 has 8"));
        assert!(
            text(fill.check::<FillArgs>([1; 3], 257)).contains("1 to 256 threads a block, and not for 257")
        );
        assert!(text(fill.check::<FillArgs>([1; 3], 0)).contains("not for 0"));
        assert!(text(fill.check::<FillArgs>([1, 1, 65_536], 1)).contains("[1, 1, 65536] blocks"));
        assert!(fill.check::<FillArgs>([1 << 31, 1, 1], 1).is_err());
    }
}
