//! The decoder beside the library's: of whole files, of their segments, and of files that are damaged.
//!
//! More files than those of the tests are compared by
//!
//!     WELLFED_MP3=FOLDER cargo test --release -p wellfed-audio other_files -- --ignored --nocapture

use std::{fs, path::Path};

use proptest::prelude::*;

use super::head::{Head, is_tag};
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

/// The file without its table of contents, if its first frame is one; then its sound again and again.
fn repeated(bytes: &[u8], count: usize) -> Vec<u8> {
    let head = Head::parse(bytes).unwrap();
    let body = if is_tag(&head, &bytes[..head.size]) { &bytes[head.size..] } else { bytes };
    body.repeat(count)
}

#[test]
fn frames_are_counted_where_no_table_tells() {
    for (name, bytes) in of_the_tests() {
        // Loud at first and then nothing, or the other way round, is not what the first frames let expect.
        let bytes = repeated(&bytes, 2);
        let head = Head::parse(&bytes).unwrap();
        let (samples, mut silence) = (576 * head.granules(), bytes[..head.size].to_vec());
        silence[4..].fill(0);
        // The least bit rate there is.
        silence[2] = 0x10 | silence[2] & 0x0d;
        silence.truncate(Head::parse(&silence).unwrap().size);
        let quiet = silence.repeat(900);
        for (file, frames) in [
            ([&bytes[..], &quiet].concat(), None),
            ([&quiet[..], &bytes].concat(), None),
            (quiet.clone(), Some(900 * samples)),
        ] {
            let said = Opened::open(&file, &LIMITS).unwrap().head().frames;
            let found = decode(&file, Segment::default(), &LIMITS).unwrap().frames();
            assert_eq!(said, Some(found as u64), "{name}");
            assert!(frames.is_none_or(|frames| frames == found), "{name}: {found}");
            assert!(found > 900 * samples || frames.is_some(), "{name}: {found}");
        }
    }
}

#[test]
fn parts_of_files_give_what_the_whole_gives() {
    let mut parts = 0;
    for (name, bytes) in of_the_tests() {
        let tag = bytes.len() - repeated(&bytes, 1).len();
        for file in [bytes.clone(), repeated(&bytes, 7), [&bytes[..tag], &repeated(&bytes, 7)].concat()] {
            let frames = Opened::open(&file, &LIMITS).unwrap().mp3_frames().unwrap();
            let whole = decode_mp3(&file, Segment::default(), &LIMITS).unwrap();
            assert_eq!(frames.sample_rate(), whole.sample_rate);
            for offset in (0..whole.frames() + 5_000).step_by(4_999) {
                for wanted in [Some(1), Some(7_000), None] {
                    let end = wanted.map_or(whole.frames(), |wanted| offset + wanted).min(whole.frames());
                    let segment =
                        Segment { offset: offset as u64, frames: wanted.map(|frames| frames as u64) };
                    let Some(part) = frames.part(segment) else {
                        assert!(offset >= whole.frames(), "{name} from {offset} on");
                        continue;
                    };
                    parts += usize::from(part.bytes.start > 3_000);
                    let bytes = &file[part.bytes.start as usize..part.bytes.end as usize];
                    let found = decode_mp3(bytes, part.segment, &LIMITS).unwrap();
                    for (part, whole) in found.channels.iter().zip(&whole.channels) {
                        let bits = |samples: &[f32]| samples.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        assert!(bits(part) == bits(&whole[offset..end]), "{name}: {segment:?}, {part:?}");
                    }
                }
            }
        }
        let broken = [&bytes[..], b"no frame and no tag, \xff\xfb\x90\x64", &bytes].concat();
        assert_eq!(Opened::open(&broken, &LIMITS).unwrap().mp3_frames(), None, "{name}");
    }
    assert!(parts > 100, "{parts}");
    let wav = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sounds/s16.wav")).unwrap();
    assert_eq!(Opened::open(&wav, &LIMITS).unwrap().mp3_frames(), None);
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
        let mut segment = Segment { offset, frames };
        let ours = decode(&bytes, Segment::default(), &LIMITS).map_or(0, |sound| sound.frames());
        let theirs = decode_by_library(&bytes, Segment::default(), &LIMITS).map_or(0, |sound| sound.frames());
        if ours > theirs && theirs > 0 {
            // Without a table, which was damaged, the library ends a file of a varying bit rate where its first frames
            // let expect. Here frames are counted; what both have is the same.
            segment = Segment { offset: 0, frames: Some(theirs as u64) };
        }
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
