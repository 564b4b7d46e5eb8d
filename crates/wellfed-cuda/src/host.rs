//! The kernels on the host: what tests without a device run.

/// Blocks in each direction.
pub type Grid = [u32; 3];

/// A kernel compiled for the host: takes its arguments' structure, and how many blocks there are.
type Function = unsafe extern "C" fn(*const u8, u32, u32, u32);

unsafe extern "C" {
    fn wellfed_host_augment(args: *const u8, x: u32, y: u32, z: u32);
    fn wellfed_host_augment_plain(args: *const u8, x: u32, y: u32, z: u32);
    fn wellfed_host_augment_axes(args: *const u8, x: u32, y: u32, z: u32);
    fn wellfed_host_fill(args: *const u8, x: u32, y: u32, z: u32);
}

/// A kernel compiled for the host.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(Function);

impl Kernel {
    /// The kernel of this name; `None` if there is none.
    pub fn find(name: &str) -> Option<Self> {
        Some(Self(match name {
            "augment" => wellfed_host_augment,
            "augment_plain" => wellfed_host_augment_plain,
            "augment_axes" => wellfed_host_augment_axes,
            "fill" => wellfed_host_fill,
            _ => return None,
        }))
    }

    /// Runs all blocks of `grid`, one after another, on this thread.
    ///
    /// # Safety
    /// `args` are what the kernel takes, and their pointers are valid for what it reads and writes.
    pub unsafe fn launch<T: Copy>(self, args: &T, grid: Grid) {
        let [x, y, z] = grid;
        // SAFETY: the caller's promise.
        unsafe { (self.0)(std::ptr::from_ref(args).cast(), x, y, z) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_writes_where_it_should_and_nowhere_else() {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct FillArgs {
            data: u64,
            bytes: u64,
            value: u32,
            padding: u32,
        }
        let mut bytes = vec![7u8; 5000];
        let args = FillArgs { data: bytes.as_mut_ptr() as u64, bytes: 4999, value: 9, padding: 0 };
        // SAFETY: the structure is `fill`'s, and the memory is there.
        unsafe { Kernel::find("fill").unwrap().launch(&args, [2, 1, 1]) };
        assert!(bytes[..4999].iter().all(|&b| b == 9));
        assert_eq!(bytes[4999], 7);
        assert!(Kernel::find("none").is_none());
    }
}
