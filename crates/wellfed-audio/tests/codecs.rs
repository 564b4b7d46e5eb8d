//! Every codec's samples beside soundfile's, those of AAC and Opus beside ffmpeg's and libopus', and segments beside whole files.
//! `benches/audio/fixtures.py` and `fixtures_ffmpeg.py` made the files and say how.

use std::{fs, path::PathBuf};

use proptest::{prelude::*, test_runner::TestRunner};
use wellfed_audio::{Head, Limits, Segment, Waveform, decode};

/// A line of `sounds.csv` or `ffmpeg.csv`.
struct Sound {
    name: String,
    rate: u32,
    channels: u32,
    frames: usize,
    reference: String,
    crc32: u32,
    bytes: Vec<u8>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sounds")
}

fn sounds() -> Vec<Sound> {
    let tables = ["sounds.csv", "ffmpeg.csv"].map(|name| fs::read_to_string(folder().join(name)).unwrap());
    let sound = |line: &str| {
        let [name, rate, channels, frames, reference, crc32] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("a line {line:?}")
        };
        Sound {
            name: name.to_owned(),
            rate: rate.parse().unwrap(),
            channels: channels.parse().unwrap(),
            frames: frames.parse().unwrap(),
            reference: reference.to_owned(),
            crc32: crc32.parse().unwrap(),
            bytes: fs::read(folder().join(name)).unwrap(),
        }
    };
    tables.iter().flat_map(|table| table.lines().skip(1)).map(sound).collect()
}

fn whole(sound: &Sound) -> Waveform {
    decode(&sound.bytes, Segment::default(), &Limits::default())
        .unwrap_or_else(|error| panic!("{}: {error}", sound.name))
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn heads_and_lengths_are_the_references() {
    for sound in sounds() {
        let head = Head::parse(&sound.bytes, &Limits::default()).unwrap();
        assert_eq!((head.sample_rate, head.channels), (sound.rate, sound.channels), "{}", sound.name);
        let decoded = whole(&sound);
        assert_eq!(decoded.channels.len(), sound.channels as usize, "{}", sound.name);
        assert!(
            decoded.channels.iter().all(|channel| channel.len() == sound.frames),
            "{}: {} frames for {}; its head says {:?}",
            sound.name,
            decoded.frames(),
            sound.frames,
            head.frames
        );
        assert_eq!(head.frames, Some(sound.frames as u64), "{}", sound.name);
    }
}

#[test]
fn lossless_samples_are_soundfiles_to_the_bit() {
    for sound in sounds().iter().filter(|sound| sound.reference.ends_with("32")) {
        let decoded = whole(sound);
        let samples = decoded.channels.iter().flatten();
        let found = match sound.reference.as_str() {
            // Of 32 bits float32 keeps 24.
            "int32" => crc32(
                samples.flat_map(|sample| ((f64::from(*sample) * 2_147_483_648.0) as i32).to_le_bytes()),
            ),
            _ => crc32(samples.flat_map(|sample| sample.to_le_bytes())),
        };
        assert_eq!(found, sound.crc32, "{}", sound.name);
    }
}

#[test]
fn lossy_samples_are_the_references_within_a_unit_of_16_bits() {
    for sound in sounds().iter().filter(|sound| sound.reference == "near") {
        let decoded = whole(sound);
        let kept = fs::read(folder().join(format!("{}.i16", sound.name))).unwrap();
        let kept: Vec<i16> = kept.as_chunks().0.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect();
        let ends = kept.len() / sound.channels as usize;
        let worst = decoded.channels.iter().zip(kept.chunks_exact(ends)).map(|(channel, kept)| {
            let (first, last) = (&channel[..ends / 2], &channel[channel.len() - ends / 2..]);
            let off = |(sample, kept): (&f32, &i16)| (sample * 32_768.0 - f32::from(*kept)).abs();
            first.iter().chain(last).zip(kept).map(off).fold(0.0, f32::max)
        });
        let worst = worst.fold(0.0, f32::max);
        // Half of a unit is the rounding of what was kept.
        assert!(worst <= 1.0, "{}: off by {worst} units", sound.name);
    }
}

#[test]
fn segments_are_slices_of_the_whole() {
    for sound in sounds() {
        let whole = whole(&sound);
        let frames = whole.frames();
        let strategy = (0..frames + 10, prop::option::of(0..frames.min(5_000)));
        let mut runner =
            TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) });
        runner
            .run(&strategy, |(offset, wanted)| {
                let segment = Segment { offset: offset as u64, frames: wanted.map(|frames| frames as u64) };
                let part = decode(&sound.bytes, segment, &Limits::default())
                    .map_err(|error| TestCaseError::fail(format!("{}: {error}", sound.name)))?;
                let begin = offset.min(frames);
                let end = wanted.map_or(frames, |wanted| frames.min(begin + wanted));
                for (part, whole) in part.channels.iter().zip(&whole.channels) {
                    let differs = part.iter().zip(&whole[begin..end]).position(|(part, whole)| part != whole);
                    prop_assert_eq!((part.len(), differs), (end - begin, None), "{}", &sound.name);
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{}: {error}", sound.name));
    }
}

#[test]
fn a_float_has_all_bits_of_pcm_and_flac_of_24_bits() {
    let lossless: Vec<String> = sounds()
        .into_iter()
        .filter(|sound| Head::parse(&sound.bytes, &Limits::default()).unwrap().is_lossless())
        .map(|sound| sound.name)
        .collect();
    for name in ["u8.wav", "s16.wav", "s24.wav", "f32.wav", "extensible-f32.wav", "s16.flac"] {
        assert!(lossless.iter().any(|one| one == name), "{name}");
    }
    let others = ["s32.wav", "f64.wav", "alaw.wav", "ulaw.wav", "ima.wav", ".aiff", ".mp3", ".ogg", ".m4a"];
    for name in &lossless {
        assert!(!others.iter().any(|ending| name.ends_with(ending)), "{name}");
    }
}
