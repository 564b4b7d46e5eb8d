//! Hashes of whole files, as an index of MDS shards states them.

use std::{collections::BTreeMap, fmt::Write};

use md5::Digest;

use crate::{Error, Result};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Hash `name` of `bytes` in hexadecimal, if it is a known one.
pub(crate) fn of(name: &str, bytes: &[u8]) -> Option<String> {
    Some(match name {
        "sha1" => hex(&sha1::Sha1::digest(bytes)),
        "sha256" => hex(&sha2::Sha256::digest(bytes)),
        "md5" => hex(&md5::Md5::digest(bytes)),
        "xxh64" => format!("{:016x}", twox_hash::XxHash64::oneshot(0, bytes)),
        "xxh3_64" => format!("{:016x}", twox_hash::XxHash3_64::oneshot(bytes)),
        _ => return None,
    })
}

/// Compares the hashes that are stated of the file `path` and known. `asked` must be one of them.
pub(super) fn check(
    path: &str,
    bytes: &[u8],
    stated: &BTreeMap<String, String>,
    asked: Option<&str>,
) -> Result<()> {
    if let Some(name) = asked {
        if of(name, b"").is_none() {
            let message = format!("validate_hash is {name:?}, which is not known");
            return Err(Error::config(message).with_hint("known are sha1, sha256, md5, xxh64 and xxh3_64"));
        }
        if !stated.contains_key(name) {
            let there = stated.keys().cloned().collect::<Vec<_>>().join(", ");
            let there = if there.is_empty() { "none".to_owned() } else { there };
            return Err(Error::config(format!("the index has no {name} of {path}: it has {there}")));
        }
    }
    for (name, stated) in stated {
        if let Some(found) = of(name, bytes).filter(|found| !found.eq_ignore_ascii_case(stated)) {
            return Err(Error::corrupt(format!(
                "{name} of {path} is {found}, and not {stated} as the index states"
            ))
            .with_hint("the shard was cut or changed, perhaps during a copy"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_others_compute() {
        // `printf abc | sha1sum` and so on; xxhsum for the last two.
        for (name, expected) in [
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("xxh64", "44bc2cf5ad770999"),
            ("xxh3_64", "78af5f94892f3950"),
        ] {
            assert_eq!(of(name, b"abc").unwrap(), expected, "{name}");
        }
        assert!(of("crc9", b"").is_none());
    }
}
