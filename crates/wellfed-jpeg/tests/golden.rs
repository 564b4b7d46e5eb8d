//! Every generated file decodes to libjpeg-turbo's pixels, whose hashes are in `golden.txt`.

mod support;

use std::collections::HashMap;

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
