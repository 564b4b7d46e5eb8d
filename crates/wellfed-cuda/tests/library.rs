//! Where libraries are found: in the process, in Python's packages, by the environment; and what is told of those that are
//! not.
#![cfg(target_os = "linux")]

mod common;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::Fake;
use wellfed_cuda::{
    device::Device,
    driver::Driver,
    library::{DRIVER_VARIABLE, Library, Loaded},
    nvjpeg::Nvjpeg,
};

/// A folder of Python's packages, removed at its end.
struct Packages(PathBuf);

impl Packages {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn add(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_packages_bring_is_found_and_then_used_again() {
    let packages = Packages::new("packages");
    let fake = fs::read(Fake::nvjpeg().path()).unwrap();
    // One that cannot be loaded is passed over.
    packages.add("nvidia/cu14/lib/libnvjpeg.so.14", b"damaged");
    let path = packages.add("torchvision.libs/libnvjpeg.4a0b5c81.so.13", &fake);
    let found = Nvjpeg::find(std::slice::from_ref(&packages.0)).unwrap();
    assert_eq!(Path::new(found.path()), path);
    drop(found);
    // It is loaded now, as if by the framework, under a name that nobody would guess.
    let again = Loaded::find(Library::Nvjpeg, &[]).unwrap();
    assert_eq!(Path::new(again.path()), path);
}

#[test]
fn what_is_not_found_is_told_with_all_places() {
    let packages = Packages::new("none");
    let damaged = packages.add("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", b"damaged");
    let folders = [packages.0.clone(), PathBuf::from("/nowhere/site-packages")];
    match Loaded::find(Library::Nvrtc, &folders) {
        Ok(found) => assert!(found.path().starts_with("libnvrtc"), "the system has one: {}", found.path()),
        Err(error) => {
            let text = error.to_string();
            assert!(
                text.starts_with("libnvrtc was not found; looked for\n  what this process has loaded"),
                "{text}"
            );
            assert!(text.contains(&format!("\n  {}: ", damaged.display())), "{text}");
            assert!(
                text.contains("\n  /nowhere/site-packages: neither in nvidia/ nor in torchvision.libs/"),
                "{text}"
            );
            assert!(text.contains("\n  libnvrtc.so.13: "), "{text}");
            assert!(text.contains("\nhint: pip install nvidia-cuda-nvrtc"), "{text}");
        }
    }
}

/// Runs the test below in a process of its own: the driver is looked for once in each.
fn child(driver: &Path, settings: &str) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "open_in_a_child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DRIVER_VARIABLE, driver)
        .env("WELLFED_FAKE", settings)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
#[ignore = "what `child` runs"]
#[expect(clippy::print_stdout, reason = "what it finds is read by the other process")]
fn open_in_a_child() {
    match Device::open(1) {
        Ok(device) => println!("opened {} of {}", device.name(), device.driver().path()),
        Err(error) => println!("failed: {error}"),
    }
    // The outcome is that of the first call.
    println!("again {}", Driver::get().is_ok());
}

#[test]
fn the_environment_names_another_driver() {
    let fake = Fake::new();
    let text = child(fake.path(), "");
    assert!(text.contains(&format!("opened Fake GPU 1 of {}\nagain true", fake.path().display())), "{text}");
    let text = child(fake.path(), "devices=1");
    assert!(text.contains("failed: there is no CUDA device 1: 1 are seen\nhint: "), "{text}");
    let text = child(fake.path(), "fail.cuInit=1:100");
    assert!(text.contains("failed: cuInit failed: CUDA_ERROR_NO_DEVICE (100)"), "{text}");
    assert!(text.contains("\nagain false"), "{text}");
    let text = child(Path::new("/nowhere/libcuda.so.1"), "");
    assert!(text.contains("/nowhere/libcuda.so.1, which WELLFED_CUDA_DRIVER names: "), "{text}");
}
