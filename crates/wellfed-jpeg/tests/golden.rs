//! Every generated file decodes to libjpeg-turbo's pixels, whose hashes are in `golden.txt`.

mod support;

use std::collections::{BTreeMap, HashMap};

use support::ways;
use wellfed_jpeg::{Decoder, Options};

/// (CRC-32 of the file, verdict) by name.
fn recorded() -> HashMap<&'static str, (u32, &'static str)> {
    include_str!("golden.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            let mut part = || parts.next().expect("three parts a line");
            let (name, crc) = (part(), part());
            (name, (u32::from_str_radix(crc, 16).expect("a CRC in hexadecimal"), part()))
        })
        .collect()
}

#[test]
fn the_generator_makes_the_files_that_were_hashed() {
    let mut recorded = recorded();
    for case in support::golden() {
        let (crc, _) =
            recorded.remove(case.name.as_str()).unwrap_or_else(|| panic!("{} is not recorded", case.name));
        assert_eq!(support::crc32(&case.bytes()), crc, "{}", case.name);
    }
    assert!(recorded.is_empty(), "no longer generated: {recorded:?}");
}

/// Holds a check against all recorded files and lists what fails, group by group.
fn hold(check: impl Fn(&support::Case, &[u8], &str) -> Option<String>) {
    let recorded = recorded();
    let mut failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for case in support::golden() {
        let bytes = case.bytes();
        if let Some(what) = check(&case, &bytes, recorded[case.name.as_str()].1) {
            let group = case.name.split('-').next().unwrap_or_default().to_owned();
            failures.entry(group).or_default().push(format!("{}: {what}", case.name));
        }
    }
    let lines = failures.iter().map(|(group, all)| {
        let shown: Vec<&str> = all.iter().take(8).map(String::as_str).collect();
        format!("{group}: {} files\n    {}\n", all.len(), shown.join("\n    "))
    });
    assert!(failures.is_empty(), "\n{}", lines.collect::<String>());
}

/// What differs between a result and a recorded verdict.
fn against(result: &wellfed_jpeg::Result<wellfed_jpeg::Image>, expected: &str) -> Option<String> {
    // Pillow reads headers with a parser of its own before libjpeg does; what only that one minds is no error here.
    if expected == "error: UnidentifiedImageError" {
        return None;
    }
    let got = ways::verdict(result);
    let same = if expected.starts_with("error") { got.starts_with("error") } else { got == expected };
    (!same).then(|| format!("{got} instead of {expected}"))
}

#[test]
fn files_decode_to_the_pixels_of_libjpeg_turbo() {
    hold(|case, bytes, expected| {
        let strict = expected.split(" | ").next().unwrap_or_default();
        if case.damage.is_some() || case.name.starts_with("incomplete") {
            return None;
        }
        against(&Decoder::new().decode(bytes, &ways::native()), strict)
    });
}

#[test]
fn progressive_files_that_stop_early_are_smoothed_as_by_libjpeg_turbo() {
    hold(|case, bytes, expected| {
        let result = Decoder::new().decode(bytes, &ways::native());
        against(&result, expected).filter(|_| case.name.starts_with("incomplete"))
    });
}

#[test]
fn damaged_files_decode_or_not_as_with_pillow() {
    hold(|case, bytes, expected| {
        case.damage?;
        let (strict, _) = expected.split_once(" | ")?;
        against(&Decoder::new().decode(bytes, &ways::native()), strict)
    });
}

#[test]
fn tolerant_decodes_fill_in_as_libjpeg_does() {
    hold(|case, bytes, expected| {
        case.damage?;
        let (_, tolerant) = expected.split_once(" | ")?;
        let options = Options { tolerant: true, ..ways::native() };
        against(&Decoder::new().decode(bytes, &options), tolerant)
    });
}

#[test]
fn levels_outputs_regions_and_indexes_agree() {
    hold(|_, bytes, _| ways::ways(bytes, &ways::native()));
}
