//! From the driver's library to a kernel's result, against a driver that fakes devices: what works, what fails, and that
//! nothing is left.
#![cfg(unix)]

mod common;

use std::{sync::Arc, thread};

use common::Fake;
use wellfed_cuda::{
    Error,
    device::Device,
    memory::{DeviceBuffer, PinnedBuffer},
    module::Module,
    page_lock::PageLocks,
    place::Place,
    stream::{Event, Stream},
};

#[repr(C)]
#[derive(Clone, Copy)]
struct FillArgs {
    data: u64,
    bytes: u64,
    value: u32,
    padding: u32,
}

fn open(fake: &Fake) -> Arc<Device> {
    Device::open_with(fake.driver().unwrap(), 0).unwrap()
}

/// Fills most of a buffer by the kernel `fill`, and gives back all of it.
fn filled(place: &Place, bytes: usize, value: u8) -> Result<Vec<u8>, Error> {
    let mut buffer = place.buffer_of(&vec![7; bytes])?;
    let args = FillArgs { data: buffer.pointer(), bytes: bytes as u64 - 1, value: value.into(), padding: 0 };
    // SAFETY: that is the structure of `fill`, and the memory is there until it was read.
    unsafe { place.launch("fill", [bytes.div_ceil(4096) as u32, 1, 1], 128, &args) }?;
    let mut out = vec![0; bytes];
    buffer.read(0, &mut out)?;
    Ok(out)
}

#[test]
fn what_a_device_is_is_told() {
    let fake = Fake::new();
    fake.set("capability", 89).set("memory", 1 << 20);
    let driver = fake.driver().unwrap();
    assert_eq!((driver.version(), driver.device_count()), (12_000, Ok(2)));
    let device = Device::open_with(driver, 1).unwrap();
    assert_eq!((device.ordinal(), device.name(), device.capability()), (1, "Fake GPU 1", (8, 9)));
    assert_eq!((device.multiprocessors(), device.copy_engines(), device.has_stream_memory()), (4, 2, true));
    assert_eq!(device.memory(), Ok((1 << 20, 1 << 20)));
}

#[test]
fn a_kernel_gives_the_same_on_host_and_device() {
    let fake = Fake::new();
    let device = Place::on(&open(&fake)).unwrap();
    for deferred in [0, 1] {
        fake.set("defer", deferred);
        for bytes in [1, 2, 4096, 9999] {
            let host = filled(&Place::Host, bytes, 9).unwrap();
            assert_eq!(filled(&device, bytes, 9).unwrap(), host);
            assert!(host[..bytes - 1].iter().all(|&byte| byte == 9) && host[bytes - 1] == 7);
        }
    }
    assert_eq!(fake.calls("cuLaunchKernel"), 8);
}

#[test]
fn launches_that_make_no_sense_are_refused_on_both_sides_alike() {
    let fake = Fake::new();
    let args = FillArgs { data: 0, bytes: 0, value: 0, padding: 0 };
    for place in [Place::Host, Place::on(&open(&fake)).unwrap()] {
        // SAFETY: nothing of it runs, and `fill` of no bytes touches none.
        unsafe {
            let missing = place.launch("no such", [1; 3], 1, &args).unwrap_err();
            assert_eq!(missing, Error::NoKernel { name: "no such".to_owned() });
            assert!(matches!(place.launch("fill", [1; 3], 1, &0_u32), Err(Error::Argument(_))));
            assert!(matches!(place.launch("fill", [1; 3], 257, &args), Err(Error::Argument(_))));
            assert_eq!(place.launch("fill", [0, 1, 1], 1, &args), Ok(()));
            assert_eq!(place.launch("fill", [1; 3], 1, &args), Ok(()));
        }
    }
    assert_eq!(fake.calls("cuLaunchKernel"), 1, "a grid without blocks is not launched");
}

#[test]
fn the_primary_context_is_shared_and_each_thread_keeps_its_own() {
    let fake = Fake::new();
    let (first, again) = (open(&fake), open(&fake));
    assert_eq!(fake.alive(), 2);
    let outer = first.enter().unwrap();
    let pushed = fake.calls("cuCtxPushCurrent_v2");
    drop(again.enter().unwrap());
    assert_eq!(fake.calls("cuCtxPushCurrent_v2"), pushed, "it is current already");
    let other = Device::open_with(Arc::clone(first.driver()), 1).unwrap();
    drop(other.enter().unwrap());
    assert_eq!(fake.calls("cuCtxPushCurrent_v2"), pushed + 1);
    thread::scope(|scope| scope.spawn(|| first.memory().unwrap()).join().unwrap());
    drop(outer);
    assert_eq!(fake.calls("cuCtxPushCurrent_v2"), fake.calls("cuCtxPopCurrent_v2"));
    drop((first, again, other));
    assert_eq!(fake.alive(), 0);
}

#[test]
fn libraries_that_are_none_or_lack_a_function_are_named() {
    let missing =
        wellfed_cuda::driver::Driver::load("/nowhere/libcuda.so.1".as_ref()).unwrap_err().to_string();
    assert!(missing.starts_with("libcuda was not found; looked for\n  /nowhere/libcuda.so.1: "), "{missing}");
    assert!(missing.contains("\nhint: it comes with the NVIDIA driver"), "{missing}");
    let fake = Fake::without("cuEventQuery");
    let library = fake.path().display().to_string();
    assert_eq!(fake.driver().unwrap_err(), Error::Symbol { library, symbol: "cuEventQuery" });
    // These may be missing: memory is then taken without a stream.
    let fake = Fake::without("cuMemAllocAsync");
    let device = open(&fake);
    assert!(!device.has_stream_memory());
    assert_eq!(filled(&Place::on(&device).unwrap(), 100, 1).unwrap()[0], 1);
    drop(device);
    assert_eq!(fake.alive(), 0);
}

#[test]
fn drivers_and_devices_that_are_too_old_are_named() {
    let fake = Fake::new();
    fake.set("version", 11_080);
    assert_eq!(fake.driver().unwrap_err(), Error::OldDriver { version: 11_080 });
    fake.set("version", 13_000).set("capability", 70);
    let error = Module::load(&open(&fake)).unwrap_err();
    assert_eq!(error, Error::OldDevice { name: "Fake GPU 0".to_owned(), capability: (7, 0) });
    assert_eq!(fake.alive(), 0);
}

#[test]
fn devices_that_are_not_there_are_an_error_with_their_number() {
    let fake = Fake::new();
    let error = Device::open_with(fake.driver().unwrap(), 2).unwrap_err();
    assert_eq!(error, Error::NoDevice { ordinal: 2, count: 2 });
    let error = Device::open_with(fake.driver().unwrap(), u32::MAX).unwrap_err();
    assert_eq!(error, Error::NoDevice { ordinal: u32::MAX, count: 2 });
    fake.set("devices", 0);
    let error = fake.driver().unwrap_err();
    assert!(
        matches!(&error, Error::Call { call: "cuInit", code: 100, name, .. } if name == "CUDA_ERROR_NO_DEVICE")
    );
    assert!(error.to_string().contains("\nhint: does nvidia-smi list a device"));
}

#[test]
fn each_call_that_fails_is_an_error_and_leaves_nothing() {
    let names = [
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuModuleLoadDataEx",
        "cuModuleGetFunction",
        "cuStreamCreateWithPriority",
        "cuMemAllocAsync",
        "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel",
        "cuMemcpyDtoHAsync_v2",
        "cuStreamSynchronize",
    ];
    let fake = Fake::new();
    let run = || filled(&Place::on(&Device::open_with(fake.driver()?, 0)?)?, 50, 3);
    for name in names {
        fake.fail(name, 1, 719);
        let error = run().unwrap_err();
        assert!(matches!(&error, Error::Call { call, code: 719, .. } if *call == name), "{name}: {error}");
        assert_eq!(fake.alive(), 0, "{name}");
    }
    // A code that the driver has no name for.
    fake.fail("cuLaunchKernel", 1, 12_345);
    assert_eq!(run().unwrap_err().to_string(), "cuLaunchKernel failed: code 12345 (12345): code 12345");
    assert_eq!(run().unwrap()[0], 3);
}

#[test]
fn what_fails_on_the_device_is_seen_by_who_waits_for_it() {
    let fake = Fake::new();
    fake.set("defer", 1);
    let place = Place::on(&open(&fake)).unwrap();
    // The first operation is the copy, the second the kernel.
    fake.fail("execute", 2, 700);
    let error = filled(&place, 50, 3).unwrap_err();
    assert!(matches!(&error, Error::Call { call: "cuStreamSynchronize", code: 700, .. }), "{error}");
    assert!(error.to_string().contains("\nhint: the device's context is lost"), "{error}");
}

#[test]
fn missing_memory_is_its_own_error_with_what_is_free() {
    let fake = Fake::new();
    fake.set("memory", 1000);
    for pools in [1, 0] {
        fake.set("pools", pools);
        let stream = Arc::new(Stream::new(&open(&fake), 0).unwrap());
        let _some = DeviceBuffer::new(&stream, 600).unwrap();
        let error = DeviceBuffer::new(&stream, 500).unwrap_err();
        assert_eq!(error, Error::OutOfMemory { what: "device", bytes: 500, free: Some((400, 1000)) });
        assert!(error.is_out_of_memory());
        fake.fail("cuMemHostAlloc", 1, 2);
        let error = PinnedBuffer::new(stream.device(), 77).unwrap_err();
        assert_eq!(error, Error::OutOfMemory { what: "page-locked host", bytes: 77, free: None });
    }
    assert_eq!((fake.alive(), fake.bytes()), (0, 0));
}

#[test]
fn the_compiler_of_the_driver_says_why() {
    let fake = Fake::new();
    fake.set("jit", 0);
    let error = Module::load(&open(&fake)).unwrap_err();
    assert!(matches!(&error, Error::Call { call: "cuModuleLoadDataEx", code: 218, .. }), "{error}");
    assert!(
        error.to_string().ends_with("a PTX JIT compilation failed: fake ptxas: no instruction"),
        "{error}"
    );
}

#[test]
fn copies_beyond_a_buffer_or_by_another_device_are_refused() {
    let fake = Fake::new();
    let device = open(&fake);
    let stream = Arc::new(Stream::new(&device, 0).unwrap());
    let mut buffer = DeviceBuffer::new(&stream, 10).unwrap();
    let error = buffer.write(8, &[1; 3], &stream).unwrap_err();
    assert_eq!(error.to_string(), "3 bytes from offset 8 on are beyond a buffer of 10 bytes");
    assert!(buffer.read(usize::MAX, &mut [0; 2], &stream).is_err());
    assert!(Place::Host.buffer(10).unwrap().write(10, &[1]).is_err());
    let other = Device::open_with(Arc::clone(device.driver()), 1).unwrap();
    let foreign = Stream::new(&other, 0).unwrap();
    assert!(buffer.write(0, &[1], &foreign).unwrap_err().to_string().contains("CUDA device 0"));
    assert!(Event::new(&device).unwrap().record(&foreign).is_err());
    buffer.fill(4, &stream).unwrap();
    let mut bytes = [0; 10];
    buffer.read(0, &mut bytes, &stream).unwrap();
    assert_eq!(bytes, [4; 10]);
    // Without bytes there is nothing to copy.
    DeviceBuffer::new(&stream, 0).unwrap().write(0, &[], &stream).unwrap();
}

#[test]
fn a_stream_waits_for_an_event_and_the_caller_for_nothing() {
    let fake = Fake::new();
    fake.set("defer", 1);
    let device = open(&fake);
    let copies = Arc::new(Stream::new(&device, -1).unwrap());
    let consumer = Stream::legacy_default(&device);
    let mut pinned = PinnedBuffer::new(&device, 100).unwrap();
    assert!(pinned.iter().all(|&byte| byte == 0));
    pinned.fill(5);
    let buffer = DeviceBuffer::new(&copies, 100).unwrap();
    let (start, copied) = (Event::timed(&device).unwrap(), Event::timed(&device).unwrap());
    assert_eq!(copied.is_done(), Ok(true), "it was never recorded");
    start.record(&copies).unwrap();
    // SAFETY: both buffers stay until the copy is done.
    unsafe { buffer.write_async(0, &pinned, &copies) }.unwrap();
    copied.record(&copies).unwrap();
    consumer.wait(&copied).unwrap();
    assert_eq!(fake.waiting(), 4, "nothing has run");
    assert!(matches!(copied.milliseconds_since(&start), Err(Error::Call { code: 600, .. })));
    assert_eq!(copied.is_done(), Ok(false));
    let mut out = [0; 100];
    // It waits for the consumer's stream alone, which waits for the copy.
    buffer.read(0, &mut out, &consumer).unwrap();
    assert_eq!(out, [5; 100]);
    assert_eq!((copied.is_done(), copies.is_idle(), consumer.is_idle()), (Ok(true), Ok(true), Ok(true)));
    assert!(copied.milliseconds_since(&start).unwrap() >= 0.0);
}

#[test]
fn a_missing_wait_is_seen_by_the_fake_driver() {
    let fake = Fake::new();
    fake.set("defer", 1);
    let device = open(&fake);
    let copies = Arc::new(Stream::new(&device, 0).unwrap());
    let buffer = DeviceBuffer::new(&copies, 4).unwrap();
    let from = [1; 4];
    // SAFETY: `from` outlives the streams.
    unsafe { buffer.write_async(0, &from, &copies) }.unwrap();
    let mut out = [0; 4];
    buffer.read(0, &mut out, &Stream::legacy_default(&device)).unwrap();
    assert_eq!(out, [0xCD; 4]);
}

#[test]
fn nothing_is_left_of_a_thousand_and_nothing_waits_for_the_device() {
    let fake = Fake::new();
    for round in 0..1000 {
        let device = open(&fake);
        if round < 3 {
            assert_eq!(filled(&Place::on(&device).unwrap(), 10, 1).unwrap()[0], 1);
        }
        let stream = Arc::new(Stream::new(&device, 0).unwrap());
        let (_event, _pinned) = (Event::new(&device).unwrap(), PinnedBuffer::new(&device, 64).unwrap());
        let _buffer = DeviceBuffer::new(&stream, 64).unwrap();
        assert!(fake.alive() >= 5);
    }
    assert_eq!((fake.alive(), fake.bytes(), fake.waiting()), (0, 0, 0));
    assert_eq!(fake.calls("cuMemFree_v2"), 0);
}

#[test]
fn a_process_that_was_forked_off_is_told_so() {
    let fake = Fake::new();
    let device = open(&fake);
    // SAFETY: the child calls nothing but what is tested, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let told = matches!(device.enter(), Err(Error::Argument(text)) if text.contains("forked"));
        drop(device);
        // The parent's context is not released here.
        let status = i32::from(!told || fake.alive() != 1);
        // SAFETY: it does not return.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: `status` lives as long as the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
}

#[test]
fn memory_of_others_is_locked_once_and_let_go() {
    let fake = Fake::new();
    let locks = PageLocks::default();
    let mut memory = vec![7u8; 8192];
    let start = memory.as_mut_ptr();
    let early = locks.lock(start, 4096).unwrap_err();
    assert!(early.to_string().contains("no pass has begun"), "{early}");
    assert!(!locks.unlock(start));
    locks.begin_with(|| Ok(open(&fake)));
    let alive = fake.alive();
    locks.lock(start, 4096).unwrap();
    assert_eq!(fake.alive(), alive + 1);
    assert!(matches!(locks.lock(start, 4096), Err(Error::Call { call: "cuMemHostRegister_v2", .. })));
    // From another thread, which has no context.
    std::thread::scope(|scope| {
        let start = start.expose_provenance();
        let locks = &locks;
        scope.spawn(move || assert!(locks.unlock(std::ptr::with_exposed_provenance_mut(start))));
    });
    assert_eq!(fake.alive(), alive);
    assert!(!locks.unlock(start), "it is not locked any more");
    assert!(memory.iter().all(|&byte| byte == 7));
}

#[test]
fn a_device_that_cannot_be_opened_refuses_each_lock() {
    let locks = PageLocks::default();
    locks.begin_with(|| Err(Error::NoDevice { ordinal: 3, count: 0 }));
    let mut memory = vec![0u8; 4096];
    assert_eq!(locks.lock(memory.as_mut_ptr(), 4096), Err(Error::NoDevice { ordinal: 3, count: 0 }));
}
