//! The kernels as they are shipped: PTX for compute capability 7.5 and later, which the driver compiles for the device.
//!
//! Its ISA is 8.0, so that every driver of CUDA 12.0 and later loads it (`ptx/build.py`).

/// All kernels, as one module; ends with a zero, as the driver wants it.
pub(crate) const MODULE: &str = concat!(include_str!("../ptx/kernels.ptx"), "\0");

/// The oldest compute capability that it is for.
pub(crate) const OLDEST_CAPABILITY: (u32, u32) = (7, 5);

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use super::*;
    use crate::host;

    /// The hash of `ptx/build.py`: FNV-1a of the sources' names and bytes, less carriage returns.
    fn source_hash(folder: &Path) -> String {
        let files: BTreeMap<String, Vec<u8>> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
            .filter(|(name, _)| name.ends_with(".cu") || name.ends_with(".h"))
            .map(|(name, path)| (name, fs::read(path).unwrap()))
            .collect();
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for (name, text) in &files {
            let text = text.iter().copied().filter(|&byte| byte != b'\r');
            for byte in name.bytes().chain([0]).chain(text).chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
            }
        }
        format!("{hash:016x}")
    }

    #[test]
    fn the_ptx_is_that_of_the_sources() {
        let hash = source_hash(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"));
        let first = MODULE.lines().next().unwrap();
        let theirs = first.strip_prefix("// wellfed kernels ").and_then(|rest| rest.split(':').next());
        assert_eq!(
            theirs,
            Some(hash.as_str()),
            "kernels/*.cu have changed since ptx/kernels.ptx was made: run `make ptx` and commit it"
        );
    }

    #[test]
    fn the_oldest_drivers_and_devices_load_it() {
        let line = |start| MODULE.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
        assert_eq!(line(".version "), Some("8.0"));
        let (major, minor) = OLDEST_CAPABILITY;
        assert_eq!(line(".target "), Some(format!("sm_{major}{minor}").as_str()));
    }

    #[test]
    fn no_sum_of_a_product_can_be_rounded_once() {
        // The driver's compiler contracts those that do not say how they round.
        for line in MODULE.lines().map(str::trim) {
            let mnemonic = line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
            let free = ["mul", "add", "sub"].iter().any(|name| {
                let float = [".f32", ".f64", ".ftz.f32", ".f16", ".f16x2", ".sat.f32"];
                mnemonic.strip_prefix(name).is_some_and(|rest| float.contains(&rest))
            });
            assert!(!free, "{line}");
        }
    }

    /// Kernels of the PTX: name to bytes of the structure and threads of a block.
    fn entries() -> BTreeMap<&'static str, (usize, u32)> {
        let number = |text: &str| text.trim().parse::<u32>().unwrap();
        MODULE
            .split(".visible .entry ")
            .skip(1)
            .map(|entry| {
                let name = entry.split('(').next().unwrap();
                let head = &entry[..entry.find("\n{").unwrap()];
                let bytes = head.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap();
                let threads = head.split(".maxntid").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
                (name, (number(bytes) as usize, number(threads)))
            })
            .collect()
    }

    #[test]
    fn host_and_device_have_the_same_kernels() {
        let host: BTreeMap<_, _> = host::kernels()
            .map(|kernel| (kernel.name(), (kernel.argument_bytes(), kernel.max_threads())))
            .collect();
        assert_eq!(entries(), host, "kernels are named in kernels/all.h and in src/host.rs");
    }
}
