//! A driver that fakes a device (`fake_driver.c`), and an nvJPEG beside it (`fake_nvjpeg.c`); each test has its own, so that
//! nothing of one is seen by another.

// Each file of tests uses its own part of it.
#![allow(dead_code, unreachable_pub)]

use std::{
    collections::BTreeMap,
    ffi::{CString, c_char},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use wellfed_cuda::driver::Driver;

/// A fake driver's library, compiled for one test, and loaded.
pub struct Fake {
    library: libloading::Library,
    path: PathBuf,
}

impl Fake {
    /// The fake driver as it is.
    pub fn new() -> Self {
        Self::compiled("fake_driver.c", &[])
    }

    /// The fake driver without the function of this name.
    pub fn without(function: &str) -> Self {
        Self::compiled("fake_driver.c", &[&format!("-D{function}=wellfed_missing")])
    }

    /// The fake nvJPEG.
    pub fn nvjpeg() -> Self {
        Self::compiled("fake_nvjpeg.c", &[])
    }

    /// The fake nvJPEG without the function of this name.
    pub fn nvjpeg_without(function: &str) -> Self {
        Self::compiled("fake_nvjpeg.c", &[&format!("-D{function}=wellfed_missing")])
    }

    fn compiled(source: &str, options: &[&str]) -> Self {
        let path = build(source, options);
        // SAFETY: the library was made of that source, which runs nothing when it is loaded.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        Self { library, path }
    }

    /// Where its library lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Loads it as a driver.
    pub fn driver(&self) -> wellfed_cuda::Result<Arc<Driver>> {
        Driver::load(&self.path)
    }

    /// Sets one of the settings that fake_driver.c lists.
    pub fn set(&self, name: &str, value: impl ToString) -> &Self {
        let (name, value) = (CString::new(name).unwrap(), CString::new(value.to_string()).unwrap());
        // SAFETY: that is its type, and it copies both texts.
        unsafe {
            let set =
                self.library.get::<unsafe extern "C" fn(*const c_char, *const c_char)>(b"fake_set").unwrap();
            set(name.as_ptr(), value.as_ptr());
        }
        self
    }

    /// Lets the `nth` call of a function from now on fail with a code.
    pub fn fail(&self, call: &str, nth: u32, code: u32) -> &Self {
        self.set(&format!("fail.{call}"), format!("{nth}:{code}"))
    }

    /// All that was made and not destroyed, contexts too.
    pub fn alive(&self) -> u64 {
        self.number(b"fake_alive")
    }

    /// Bytes of device and page-locked memory that are taken.
    pub fn bytes(&self) -> u64 {
        self.number(b"fake_bytes")
    }

    /// Operations that were submitted to streams and did not run yet.
    pub fn waiting(&self) -> u64 {
        self.number(b"fake_waiting")
    }

    /// How often a function was called.
    pub fn calls(&self, call: &str) -> u64 {
        let call = CString::new(call).unwrap();
        // SAFETY: that is its type.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"fake_calls").unwrap()(
                call.as_ptr(),
            )
        }
    }

    /// A number that one of its functions without arguments gives.
    pub fn number(&self, name: &[u8]) -> u64 {
        // SAFETY: that is the type of all that the tests name.
        unsafe { self.library.get::<unsafe extern "C" fn() -> u64>(name).unwrap()() }
    }

    /// Sets one of the settings that fake_nvjpeg.c lists.
    pub fn set_nvjpeg(&self, name: &str, value: i64) -> &Self {
        let name = CString::new(name).unwrap();
        // SAFETY: that is its type.
        unsafe {
            let set =
                self.library.get::<unsafe extern "C" fn(*const c_char, i64)>(b"fake_nvjpeg_set").unwrap();
            set(name.as_ptr(), value);
        }
        self
    }
}

/// The library of a source with these options of the compiler, in a file of its own: the loader takes one file for one
/// library.
fn build(source: &str, options: &[&str]) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    static PLAIN: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{source}-{}-{number}.so", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if options.is_empty() {
        // That of all tests but few is compiled once.
        let mut plain = PLAIN.lock().unwrap();
        let plain = plain.entry(source.to_owned()).or_insert_with(|| {
            let plain = path.with_extension("plain");
            compile(source, options, &plain);
            plain
        });
        fs::copy(plain, &path).unwrap();
    } else {
        compile(source, options, &path);
    }
    path
}

fn compile(source: &str, options: &[&str], path: &Path) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let output = Command::new(&compiler)
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-shared",
            "-fPIC",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(path)
        .args(["-ldl", "-lpthread", "-lm"])
        .output()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
