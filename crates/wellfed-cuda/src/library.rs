//! Finds CUDA's shared libraries when they are needed: in the process, in Python's packages, on the system.
//!
//! In that order, so that a library that the framework has loaded is used again and not a second one beside it. Nothing
//! is ever unloaded: what a library has registered with the driver would go with it.

use std::{
    cmp::Reverse,
    ffi::{OsStr, OsString},
    fs,
    mem::ManuallyDrop,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// Names another library than the system's for [`Library::Driver`]: tests name one that fakes a device.
pub const DRIVER_VARIABLE: &str = "WELLFED_CUDA_DRIVER";

/// A library of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// The driver: `libcuda`.
    Driver,
    /// nvJPEG, which decodes JPEGs.
    Nvjpeg,
    /// NVRTC, which compiles CUDA C++.
    Nvrtc,
}

impl Library {
    /// Its name as files begin with.
    pub fn name(self) -> &'static str {
        match self {
            Library::Driver => "libcuda",
            Library::Nvjpeg => "libnvjpeg",
            Library::Nvrtc => "libnvrtc",
        }
    }

    /// What brings it.
    pub fn hint(self) -> &'static str {
        match self {
            Library::Driver => "it comes with the NVIDIA driver; without a GPU use device=\"cpu\"",
            Library::Nvjpeg => "pip install nvidia-nvjpeg (for CUDA 12: nvidia-nvjpeg-cu12)",
            Library::Nvrtc => "pip install nvidia-cuda-nvrtc (for CUDA 12: nvidia-cuda-nvrtc-cu12)",
        }
    }

    /// Names that the system's loader is asked for, newest first. A name without a version comes last, as development
    /// packages have it, and for `libcuda` the toolkit's stub may answer to it.
    fn names(self) -> &'static [&'static str] {
        match (self, cfg!(windows)) {
            // The latter two are where WSL and Colab keep it.
            (Library::Driver, false) => &[
                "libcuda.so.1",
                "libcuda.so",
                "/usr/lib/wsl/lib/libcuda.so.1",
                "/usr/lib64-nvidia/libcuda.so.1",
            ],
            (Library::Driver, true) => &["nvcuda.dll"],
            (Library::Nvjpeg, false) => &["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so"],
            (Library::Nvjpeg, true) => &["nvjpeg64_13.dll", "nvjpeg64_12.dll"],
            (Library::Nvrtc, false) => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            (Library::Nvrtc, true) => &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
        }
    }

    /// Whether a file of this name is the library, and not one beside it (`libnvrtc-builtins.so.13`): `libnvjpeg.so.13`,
    /// and `libnvjpeg.4a0b5c81.so.13`, as wheels that bring a copy name it.
    fn is_file(self, name: &OsStr) -> bool {
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(self.name())) else { return false };
        rest.starts_with('.') && (rest.contains(".so.") || rest.ends_with(".so")) && !rest.contains(".alt.")
    }
}

/// A library that is loaded, for the rest of the process.
#[derive(Debug)]
pub struct Loaded {
    /// Never unloaded: its functions outlive this value, and CUDA's libraries do not bear it while their threads run.
    handle: ManuallyDrop<libloading::Library>,
    path: String,
}

impl Loaded {
    /// Finds `library`: loaded already, in `site_packages` (folders of Python's packages), or by the system's loader.
    ///
    /// # Errors
    /// [`Error::Library`] with all that was tried.
    pub fn find(library: Library, site_packages: &[PathBuf]) -> Result<Self> {
        if library == Library::Driver
            && let Some(path) = std::env::var_os(DRIVER_VARIABLE).filter(|path| !path.is_empty())
        {
            return Self::open(Path::new(&path)).map_err(|why| Error::Library {
                library,
                tried: vec![format!("{}, which {DRIVER_VARIABLE} names: {why}", path.display())],
            });
        }
        let mut tried = Vec::new();
        let names = library.names().iter().map(OsString::from);
        if let Some(found) =
            names.chain(mapped(library).map(PathBuf::into_os_string)).find_map(|name| resident(&name))
        {
            return Ok(found);
        }
        tried.push("what this process has loaded: not there".to_owned());
        // The driver belongs to the system alone: packages do not bring it.
        let folders = if library == Library::Driver { &[] } else { site_packages };
        for folder in folders {
            let files = below(library, folder);
            if files.is_empty() {
                tried.push(format!("{}: neither in nvidia/ nor in torchvision.libs/", folder.display()));
            }
            for file in files {
                match Self::open(&file) {
                    Ok(found) => return Ok(found),
                    Err(why) => tried.push(format!("{}: {why}", file.display())),
                }
            }
        }
        for name in library.names() {
            match Self::open(Path::new(name)) {
                Ok(found) => return Ok(found),
                Err(why) => tried.push(format!("{name}: {why}")),
            }
        }
        Err(Error::Library { library, tried })
    }

    /// Loads the library at `path`, which is to be this one.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub(crate) fn load(library: Library, path: &Path) -> Result<Self> {
        Self::open(path)
            .map_err(|why| Error::Library { library, tried: vec![format!("{}: {why}", path.display())] })
    }

    /// Loads the library at `path`, or of that name.
    fn open(path: &Path) -> std::result::Result<Self, String> {
        // SAFETY: what a library of CUDA runs when it is loaded has no preconditions. A file that the user names with
        // `WELLFED_CUDA_DRIVER`, or has among Python's packages, is as trusted as what Python itself loads.
        match unsafe { libloading::Library::new(path) } {
            Ok(handle) => Ok(Self { handle: ManuallyDrop::new(handle), path: path.display().to_string() }),
            Err(error) => {
                // The loader's text begins with the name that the caller says before it.
                let text = std::error::Error::source(&error).unwrap_or(&error).to_string();
                Err(text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned())
            }
        }
    }

    /// Where it lies, or the name by which the loader found it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The function of this name; `None` if the library has none.
    ///
    /// # Safety
    /// `F` is the type of that function, a function pointer.
    pub(crate) unsafe fn symbol<F: Copy>(&self, name: &'static str) -> Option<F> {
        // SAFETY: the caller's promise; the library stays loaded for good, so that the pointer stays valid.
        unsafe { self.handle.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    }

    /// As [`Self::symbol`], of a function that is needed.
    ///
    /// # Safety
    /// As for [`Self::symbol`].
    ///
    /// # Errors
    /// [`Error::Symbol`].
    pub(crate) unsafe fn needed<F: Copy>(&self, symbol: &'static str) -> Result<F> {
        // SAFETY: the caller's promise.
        unsafe { self.symbol(symbol) }.ok_or_else(|| Error::Symbol { library: self.path.clone(), symbol })
    }
}

/// The library that the process has loaded under this name or path.
#[cfg(unix)]
fn resident(name: &OsStr) -> Option<Loaded> {
    use libloading::os::unix;
    /// `RTLD_NOLOAD` of the platform.
    const NOLOAD: std::ffi::c_int = if cfg!(target_os = "macos") { 0x10 } else { 4 };
    // SAFETY: with RTLD_NOLOAD nothing is loaded, and so nothing of the library runs.
    let handle = unsafe { unix::Library::open(Some(name), unix::RTLD_LAZY | NOLOAD) }.ok()?;
    Some(Loaded { handle: ManuallyDrop::new(handle.into()), path: Path::new(name).display().to_string() })
}

#[cfg(not(unix))]
fn resident(_name: &OsStr) -> Option<Loaded> {
    None
}

/// The file of `library` that is mapped into this process, whatever it is called after its name.
fn mapped(library: Library) -> Option<PathBuf> {
    find_mapped(library, &fs::read_to_string("/proc/self/maps").ok()?)
}

/// As [`mapped`], in the text of `/proc/self/maps`.
fn find_mapped(library: Library, maps: &str) -> Option<PathBuf> {
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
        .find(|path| path.file_name().is_some_and(|name| library.is_file(name)))
        .map(Path::to_owned)
}

/// The files of `library` in a folder of Python's packages: `nvidia/**/lib/` (also `bin/`), then `torchvision.libs/`;
/// newer versions first, in one order always.
fn below(library: Library, site_packages: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (folder, depth) in [("nvidia", 3), ("torchvision.libs", 0)] {
        let mut found = Vec::new();
        collect(library, &site_packages.join(folder), depth, &mut found);
        found.sort_by_key(|path: &PathBuf| (Reverse(version(path)), path.clone()));
        files.extend(found);
    }
    files
}

/// The first number after `.so` in a file's name: 0 if there is none.
fn version(path: &Path) -> u32 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let version = name.split_once(".so.").map_or("", |(_, version)| version);
    version.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn collect(library: Library, folder: &Path, depth: u32, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if library.is_file(&entry.file_name()) {
            files.push(path);
        } else if depth > 0 && path.is_dir() {
            collect(library, &path, depth - 1, files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_known_by_its_file_s_name() {
        let is = |name: &str| Library::Nvrtc.is_file(OsStr::new(name));
        assert!(is("libnvrtc.so") && is("libnvrtc.so.13") && is("libnvrtc.4a0b5c81.so.12.0.140"));
        // The compiler's own library, its slower build, another library, and what is none.
        for other in
            ["libnvrtc-builtins.so.13.2", "libnvrtc.alt.so.13", "libnvjpeg.so.13", "libnvrtc.a", "libnvrtc"]
        {
            assert!(!is(other), "{other}");
        }
    }

    #[test]
    fn a_library_that_is_mapped_is_found_whatever_follows_its_name() {
        let maps = "7f00-7f01 r--p 00000000 08:01 1  /site-packages/torchvision.libs/libcudart.3eda8113.so.13\n\
                    7f01-7f02 r-xp 00000000 00:00 0\n\
                    7f02-7f03 rw-p 00000000 00:00 0  [heap]\n\
                    7f03-7f04 r-xp 00001000 08:01 2  /my packages/torchvision.libs/libnvjpeg.4a0b5c81.so.13\n";
        let path = find_mapped(Library::Nvjpeg, maps).unwrap();
        assert_eq!(path, Path::new("/my packages/torchvision.libs/libnvjpeg.4a0b5c81.so.13"));
        assert_eq!(find_mapped(Library::Nvrtc, maps), None);
    }

    #[test]
    fn newer_files_of_packages_come_first_and_torchvision_s_copy_last() {
        let folder = std::env::temp_dir().join(format!("wellfed-cuda-{}", std::process::id()));
        let names = [
            "nvidia/cu13/lib/libnvjpeg.so.13",
            "nvidia/nvjpeg/lib/libnvjpeg.so.12",
            "nvidia/nvjpeg/lib/libnvjpeg.so.9",
            "torchvision.libs/libnvjpeg.4a0b5c81.so.13",
        ];
        for name in names.iter().chain(&["nvidia/cu13/lib/libnvrtc.so.13", "other/lib/libnvjpeg.so.14"]) {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(below(Library::Nvjpeg, &folder), names.map(|name| folder.join(name)));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(below(Library::Nvjpeg, &folder), Vec::<PathBuf>::new());
    }
}
