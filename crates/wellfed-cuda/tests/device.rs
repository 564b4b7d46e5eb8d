//! What the fake driver cannot show, on a device. Skipped, with the reason, where there is none.
//!
//! `WELLFED_TEST_NVJPEG` names nvJPEG's library, or a folder of Python's packages that has it.
#![expect(clippy::print_stderr, reason = "who runs the tests should know what was tested, and where")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use wellfed_cuda::{
    Error,
    device::Device,
    memory::{DeviceBuffer, PinnedBuffer},
    nvjpeg::{Decoder, Engine, Nvjpeg, Options, Planes, Refusal},
    place::Place,
    stream::{Event, Stream},
};

/// The first device; `None`, with a note, if there is none.
fn device() -> Option<Arc<Device>> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error @ (Error::Library { .. } | Error::Call { call: "cuInit", code: 100, .. })) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct FillArgs {
    data: u64,
    bytes: u64,
    value: u32,
    padding: u32,
}

fn filled(place: &Place, bytes: usize, threads: u32) -> Vec<u8> {
    let mut buffer = place.buffer_of(&vec![7; bytes]).unwrap();
    let args = FillArgs { data: buffer.pointer(), bytes: bytes as u64 - 1, value: 9, padding: 0 };
    // SAFETY: that is the structure of `fill`, and the memory is there until it was read.
    unsafe { place.launch("fill", [bytes.div_ceil(4096) as u32, 1, 1], threads, &args) }.unwrap();
    let mut out = vec![0; bytes];
    buffer.read(0, &mut out).unwrap();
    out
}

#[test]
fn kernels_run_in_any_thread() {
    let Some(device) = device() else { return };
    let (major, minor) = device.capability();
    eprintln!(
        "{}: compute capability {major}.{minor}, {} multiprocessors, {} copy engines, memory pools: {}, memory {:?}, \
         driver of CUDA {}",
        device.name(),
        device.multiprocessors(),
        device.copy_engines(),
        device.has_stream_memory(),
        device.memory(),
        device.driver().version()
    );
    let place = Place::on(&device).unwrap();
    thread::scope(|scope| {
        for (bytes, threads) in [(1, 1), (4096, 32), (1_000_003, 256)] {
            let place = &place;
            scope.spawn(move || {
                assert_eq!(filled(place, bytes, threads), filled(&Place::Host, bytes, threads))
            });
        }
    });
}

#[test]
fn copies_and_events_keep_the_order_of_streams() {
    let Some(device) = device() else { return };
    const BYTES: usize = 64 << 20;
    let copies = Arc::new(Stream::new(&device, -1).unwrap());
    let consumer = Stream::legacy_default(&device);
    let mut pinned = PinnedBuffer::new(&device, BYTES).unwrap();
    pinned.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    let buffer = DeviceBuffer::new(&copies, BYTES).unwrap();
    let (start, copied) = (Event::timed(&device).unwrap(), Event::timed(&device).unwrap());
    start.record(&copies).unwrap();
    // SAFETY: both buffers stay until the copy is done.
    unsafe { buffer.write_async(0, &pinned, &copies) }.unwrap();
    copied.record(&copies).unwrap();
    consumer.wait(&copied).unwrap();
    let mut out = vec![0; BYTES];
    buffer.read(0, &mut out, &consumer).unwrap();
    assert!(out[..] == pinned[..]);
    assert_eq!(copied.is_done(), Ok(true));
    let milliseconds = copied.milliseconds_since(&start).unwrap();
    assert!(milliseconds > 0.0);
    eprintln!("64 MiB to the device in {milliseconds:.3} ms");
}

#[test]
fn missing_memory_is_an_error_after_which_all_goes_on() {
    let Some(device) = device() else { return };
    let stream = Arc::new(Stream::new(&device, 0).unwrap());
    let (_, total) = device.memory().unwrap();
    let error = DeviceBuffer::new(&stream, 2 * total as usize).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { free: Some((_, all)), .. } if all == total), "{error}");
    eprintln!("{error}");
    assert_eq!(filled(&Place::on(&device).unwrap(), 100, 64)[0], 9);
}

#[test]
fn nothing_is_left_of_a_thousand() {
    let Some(device) = device() else { return };
    let free = || device.memory().unwrap().0;
    let mut before = 0;
    for round in 0..1000 {
        let device = Device::open(0).unwrap();
        let stream = Arc::new(Stream::new(&device, 0).unwrap());
        let (event, _pinned) = (Event::new(&device).unwrap(), PinnedBuffer::new(&device, 1 << 20).unwrap());
        let mut buffer = DeviceBuffer::new(&stream, 16 << 20).unwrap();
        buffer.fill(1, &stream).unwrap();
        event.record(&stream).unwrap();
        event.synchronize().unwrap();
        drop((event, buffer));
        stream.synchronize().unwrap();
        if round == 10 {
            before = free();
        }
    }
    // Other tests run beside it and take less than that.
    let after = free();
    assert!(after + (1 << 30) > before, "{before} bytes were free, and {after} are");
}

/// A JPEG of a gradient with some noise.
fn jpeg(width: u16, height: u16, color: ColorType, change: impl Fn(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let channels = match color {
        ColorType::Luma => 1,
        ColorType::CmykAsYcck => 4,
        _ => 3,
    };
    let pixels: Vec<u8> = (0..usize::from(height) * usize::from(width) * channels)
        .map(|at| {
            let (x, y, channel) =
                (at / channels % usize::from(width), at / channels / usize::from(width), at % channels);
            ((x * 2 + y + channel * 50 + at * at % 13) / 3 % 256) as u8
        })
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    change(&mut encoder);
    encoder.encode(&pixels, width, height, color).unwrap();
    bytes
}

fn nvjpeg() -> Option<Arc<Nvjpeg>> {
    let place = std::env::var_os("WELLFED_TEST_NVJPEG").map(PathBuf::from);
    let found = match place {
        Some(place) if place.is_file() => Nvjpeg::load(&place),
        Some(folder) => Nvjpeg::find(&[folder]),
        None => {
            let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
            let folders: Vec<_> = std::fs::read_dir(lib).into_iter().flatten().flatten().collect();
            Nvjpeg::find(&folders.iter().map(|entry| entry.path().join("site-packages")).collect::<Vec<_>>())
        }
    };
    found.inspect_err(|error| eprintln!("SKIPPED: {error}")).ok()
}

#[test]
fn nvjpeg_decodes_nearly_as_the_cpu_and_refuses_what_it_should() {
    let Some((device, nvjpeg)) = device().zip(nvjpeg()) else { return };
    eprintln!("nvJPEG {:?} of {}", nvjpeg.version(), nvjpeg.path());
    let sampled = |sampling| jpeg(321, 123, ColorType::Rgb, |encoder| encoder.set_sampling_factor(sampling));
    let whole = sampled(SamplingFactor::R_4_2_0);
    let images = [
        ("4:4:4", sampled(SamplingFactor::R_4_4_4), true),
        ("4:2:0", whole.clone(), true),
        ("4:2:2", sampled(SamplingFactor::R_4_2_2), true),
        ("4:4:0", sampled(SamplingFactor::R_4_4_0), true),
        ("grey", jpeg(321, 123, ColorType::Luma, |_| ()), true),
        ("restarts", jpeg(321, 123, ColorType::Rgb, |encoder| encoder.set_restart_interval(3)), true),
        ("cut short", whole[..whole.len() / 2].to_vec(), false),
        ("progressive", jpeg(321, 123, ColorType::Rgb, |encoder| encoder.set_progressive(true)), false),
        ("inks", jpeg(321, 123, ColorType::CmykAsYcck, |_| ()), false),
        ("4:1:1", sampled(SamplingFactor::R_4_1_1), false),
        ("none", b"not a JPEG".to_vec(), false),
    ];
    let mut wrong = Vec::new();
    for (engine, interpolate) in [
        (Engine::Hardware, true),
        (Engine::Hardware, false),
        (Engine::GpuHybrid, true),
        (Engine::Hybrid, true),
        (Engine::Hybrid, false),
    ] {
        let options = Options { engine: Some(engine), interpolate };
        let decoder = match Decoder::new(&nvjpeg, &device, options) {
            Ok(decoder) => decoder,
            Err(error) if engine == Engine::Hardware => {
                eprintln!("hardware: {error}");
                continue;
            }
            Err(error) => panic!("{}: {error}", engine.name()),
        };
        eprintln!("{}, interpolated chroma: {interpolate}, engines {:?}", engine.name(), decoder.hardware());
        let outcomes = decode(&decoder, &device, &images.each_ref().map(|(_, bytes, _)| &bytes[..]));
        for ((name, bytes, taken), outcome) in images.iter().zip(outcomes) {
            match outcome {
                Ok(pixels) => {
                    let Some((mean, largest)) = difference(bytes, &pixels) else {
                        eprintln!("  {name}: decoded, and not by the CPU");
                        continue;
                    };
                    eprintln!("  {name}: differs by {mean:.3} on average, {largest} at most");
                    let limit = if interpolate { 2.0 } else { 6.0 };
                    if !taken || mean > limit {
                        wrong.push(format!("{} of {name}", engine.name()));
                    }
                }
                Err(refusal) => {
                    eprintln!("  {name}: refused: {refusal}");
                    // The hardware has a say of its own.
                    if *taken && refusal != Refusal::Engine {
                        wrong.push(format!("{} of {name}", engine.name()));
                    }
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "what was decoded or refused, and should not have been");
}

/// Decodes JPEGs of 321 x 123 pixels in one batch: planes of each, or why not.
fn decode(decoder: &Arc<Decoder>, device: &Arc<Device>, jpegs: &[&[u8]]) -> Vec<Result<Vec<u8>, Refusal>> {
    const PLANE: usize = 384 * 123;
    let stream = Arc::new(Stream::new(device, 0).unwrap());
    let buffer = DeviceBuffer::new(&stream, jpegs.len() * 3 * PLANE).unwrap();
    let planes: Vec<Planes> = (0..jpegs.len())
        .map(|image| Planes {
            pointers: [0, 1, 2].map(|plane| buffer.pointer() + ((3 * image + plane) * PLANE) as u64),
            pitch: 384,
            width: 321,
            height: 123,
        })
        .collect();
    let mut session = decoder.session().unwrap();
    // Twice, as a session is used.
    for _ in 0..2 {
        // SAFETY: the planes are of the buffer, which is read when the stream has passed.
        unsafe { session.decode(jpegs, &planes, &stream) }.unwrap();
    }
    // SAFETY: as above.
    let outcomes = unsafe { session.decode(jpegs, &planes, &stream) }.unwrap();
    outcomes
        .into_iter()
        .enumerate()
        .map(|(image, outcome)| {
            outcome?;
            let mut pixels = vec![0; 3 * PLANE];
            buffer.read(image * 3 * PLANE, &mut pixels, &stream).unwrap();
            Ok(pixels)
        })
        .collect()
}

/// How much planes differ from what the CPU decodes, on average and at most; `None` if it does not decode the JPEG.
fn difference(jpeg: &[u8], planes: &[u8]) -> Option<(f64, u8)> {
    let options = wellfed_jpeg::Options { format: wellfed_jpeg::Format::Rgb, ..Default::default() };
    let image = wellfed_jpeg::Decoder::new().decode(jpeg, &options).ok()?;
    let (mut sum, mut largest) = (0u64, 0);
    for (at, &ours) in image.pixels.iter().enumerate() {
        let (x, y, channel) = (at / 3 % 321, at / 3 / 321, at % 3);
        let difference = ours.abs_diff(planes[(channel * 123 + y) * 384 + x]);
        sum += u64::from(difference);
        largest = largest.max(difference);
    }
    Some((sum as f64 / image.pixels.len() as f64, largest))
}
