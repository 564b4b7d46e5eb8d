//! The decoder beside the library's: of whole files, of their segments, and of files that are damaged.
//!
//! More files than those of the tests are compared by
//!
//!     WELLFED_MP3=FOLDER cargo test --release -p wellfed-audio other_files -- --ignored --nocapture

use std::{fs, path::Path};

use proptest::prelude::*;

use crate::{
    Limits, Segment, Waveform,
    decode::{Opened, decode, decode_by_library, decode_mp3},
};

const LIMITS: Limits = Limits { max_samples: 1 << 26, max_channels: 2 };

/// The MP3 files of a folder with their names.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "mp3"));
    paths.sort();
    let file = |path: &std::path::PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())
    };
    paths.iter().map(file).collect()
}

fn of_the_tests() -> Vec<(String, Vec<u8>)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    [files(&tests.join("sounds")), files(&tests.join("mp3"))].concat()
}

/// The largest difference; `None` if channels or lengths differ.
fn difference(one: &Waveform, other: &Waveform) -> Option<f32> {
    let lengths = |sound: &Waveform| sound.channels.iter().map(Vec::len).collect::<Vec<_>>();
    (lengths(one) == lengths(other)).then(|| {
        let samples = |sound: &Waveform| sound.channels.concat();
        samples(one).iter().zip(samples(other)).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
    })
}

/// Checks that this decoder takes the file, and gives what the library's does.
fn check(name: &str, bytes: &[u8]) -> f32 {
    let expected = decode_by_library(bytes, Segment::default(), &LIMITS).unwrap();
    let found = decode_mp3(bytes, Segment::default(), &LIMITS);
    let found = found.unwrap_or_else(|| panic!("{name} is not decoded"));
    let Some(worst) = difference(&found, &expected) else {
        panic!("{name}: {} frames for {}", found.frames(), expected.frames())
    };
    assert!(worst < 3e-6, "{name}: off by {worst}");
    worst
}

#[test]
fn samples_are_the_librarys() {
    for (name, bytes) in of_the_tests() {
        check(&name, &bytes);
    }
}

#[test]
#[ignore = "of files that are not here"]
#[allow(clippy::print_stdout, reason = "the figures are what it is run for")]
fn samples_of_other_files_are_the_librarys() {
    let folder = std::env::var("WELLFED_MP3").unwrap();
    for (name, bytes) in files(Path::new(&folder)) {
        println!("{name}: off by {:e}", check(&name, &bytes));
    }
}

#[test]
fn segments_are_slices_of_the_whole_to_the_bit() {
    for (name, bytes) in of_the_tests() {
        let whole = decode_mp3(&bytes, Segment::default(), &LIMITS).unwrap();
        let frames = whole.frames();
        for offset in (0..frames + 700).step_by(1_013) {
            let segment = Segment { offset: offset as u64, frames: Some(2_000) };
            let part = decode_mp3(&bytes, segment, &LIMITS).unwrap();
            let (begin, end) = (offset.min(frames), (offset + 2_000).min(frames));
            for (part, whole) in part.channels.iter().zip(&whole.channels) {
                let same = part.iter().map(|x| x.to_bits()).eq(whole[begin..end].iter().map(|x| x.to_bits()));
                assert!(same, "{name} from {offset} on");
            }
        }
    }
}

/// A change of a file: at this part of its length, which is done there.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip(f64, u8),
    Cut(f64),
    Remove(f64, usize),
    Fill(f64, usize, u8),
    Repeat(f64, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    // Every second time in what comes before the sound.
    let place = || prop_oneof![0.0..1.0, 0.0..0.05f64];
    prop_oneof![
        4 => (place(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        1 => place().prop_map(Damage::Cut),
        1 => (place(), 1usize..900).prop_map(|(at, count)| Damage::Remove(at, count)),
        1 => (place(), 1usize..900, any::<u8>()).prop_map(|(at, count, value)| Damage::Fill(at, count, value)),
        1 => (place(), 1usize..900).prop_map(|(at, count)| Damage::Repeat(at, count)),
    ]
}

fn damaged(bytes: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for damage in damages {
        let len = bytes.len();
        let at = |part: f64| ((part * len as f64) as usize).min(len.saturating_sub(1));
        let until = |part: f64, count: usize| at(part)..(at(part) + count).min(len);
        match *damage {
            Damage::Flip(part, bit) => {
                bytes[at(part)..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << bit)
            }
            Damage::Cut(part) => bytes.truncate(at(part)),
            Damage::Remove(part, count) => drop(bytes.drain(until(part, count))),
            Damage::Fill(part, count, value) => bytes[until(part, count)].fill(value),
            Damage::Repeat(part, count) => {
                let again = bytes[until(part, count)].to_vec();
                bytes.splice(at(part)..at(part), again);
            }
        }
    }
    bytes
}

#[test]
fn one_channel_is_the_mean_of_all() {
    let mut several = 0;
    for (name, bytes) in of_the_tests() {
        for segment in [Segment::default(), Segment { offset: 3_000, frames: Some(2_000) }] {
            let opened = Opened::open(&bytes, &LIMITS).unwrap();
            several += usize::from(opened.head().channels > 1);
            let mut found = vec![vec![9.0; 3]];
            opened.decode_mean(segment, &LIMITS, &mut found).unwrap();
            let expected = decode(&bytes, segment, &LIMITS).unwrap().mono();
            let found = Waveform { channels: found, ..expected.clone() };
            assert!(difference(&found, &expected).is_some_and(|worst| worst <= 1e-6), "{name}");
        }
    }
    assert!(several > 4, "{several}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn damaged_files_are_what_the_library_makes_of_them(
        number in any::<prop::sample::Index>(),
        damages in prop::collection::vec(damage(), 1..4),
        offset in prop_oneof![Just(0u64), 0u64..60_000],
        frames in prop::option::of(0u64..30_000),
    ) {
        let files = of_the_tests();
        let (name, bytes) = &files[number.index(files.len())];
        let bytes = damaged(bytes, &damages);
        let segment = Segment { offset, frames };
        match (decode(&bytes, segment, &LIMITS), decode_by_library(&bytes, segment, &LIMITS)) {
            (Ok(found), Ok(expected)) => {
                let worst = difference(&found, &expected);
                let loudest = expected.channels.iter().flatten().fold(1.0f32, |most, x| most.max(x.abs()));
                prop_assert!(worst.is_some_and(|worst| worst <= 3e-6 * loudest), "{}: off by {:?} of {}", name, worst, loudest);
            }
            (Err(found), Err(expected)) => prop_assert_eq!(found, expected, "{}", name),
            (found, expected) => {
                prop_assert!(false, "{}: {:?}, {:?}", name, found.map(|x| x.frames()), expected.map(|x| x.frames()));
            }
        }
    }
}
