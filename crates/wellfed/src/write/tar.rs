//! Headers of tar files: POSIX ustar, and pax where a name does not fit it. Nothing in them depends on when and by whom they
//! are written.
//!
//! Layout: POSIX.1-2017 `pax`, "ustar Interchange Format".

use crate::{Error, Result};

/// Bytes of a header, and what data are filled up to.
pub(super) const BLOCK: usize = 512;

/// Zeros after the last file.
pub(super) const END: usize = 2 * BLOCK;

/// A header says sizes in 11 octal digits.
const MOST: u64 = 1 << 33;

/// Zeros that follow so many bytes of data.
pub(super) fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

/// Appends the header of the file `name` to `out`: one block, or three and more for a long name.
///
/// # Errors
/// `Limit` for a file of 8 GiB and more.
pub(super) fn header(name: &str, size: u64, out: &mut Vec<u8>) -> Result<()> {
    if size >= MOST {
        return Err(Error::limit(&format!("file {name} in a shard"), size, MOST - 1, "bytes"));
    }
    if let Some((prefix, rest)) = split(name) {
        block(prefix, rest, size, b'0', out);
        return Ok(());
    }
    let record = record("path", name);
    block("", "././@PaxHeader", record.len() as u64, b'x', out);
    out.extend_from_slice(record.as_bytes());
    out.extend(std::iter::repeat_n(0, padding(record.len() as u64)));
    // For programs that know no pax.
    let short: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).take(100).collect();
    block("", &short, size, b'0', out);
    Ok(())
}

/// The two parts of a name that ustar has: up to 155 bytes of folders, and up to 100 after a slash.
fn split(name: &str) -> Option<(&str, &str)> {
    if !name.is_ascii() {
        return None;
    }
    if name.len() <= 100 {
        return Some(("", name));
    }
    let at = name[..name.len().min(156)].rfind('/').filter(|at| *at > 0)?;
    let rest = &name[at + 1..];
    (1..=100).contains(&rest.len()).then_some((&name[..at], rest))
}

/// `length key=value\n`, where the length counts its own digits.
fn record(key: &str, value: &str) -> String {
    let others = key.len() + value.len() + 3;
    let mut length = others;
    while length != others + length.to_string().len() {
        length = others + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

fn block(prefix: &str, name: &str, size: u64, kind: u8, out: &mut Vec<u8>) {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    // User and group.
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    // The time of the last change: 1970.
    put(136, "00000000000\0");
    put(148, "        ");
    put(257, "ustar\x0000");
    put(329, "0000000\0");
    put(337, "0000000\0");
    put(345, prefix);
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(&block);
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn names_of_any_length_are_read_by_others() {
        let names = [
            "a.jpg".to_owned(),
            format!("{}.jpg", "n".repeat(96)),
            format!("{}.jpg", "n".repeat(97)),
            format!("{}/{}.jpg", "f".repeat(155), "n".repeat(96)),
            format!("{}/{}.jpg", "f".repeat(156), "n".repeat(96)),
            format!("{}/{}.jpg", "f/".repeat(80), "n".repeat(96)),
            format!("{}.jpg", "n".repeat(9_985)),
            "größe/日本.jpg".to_owned(),
            format!("{}.jpg", "ü".repeat(90)),
        ];
        let mut bytes = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let data = vec![i as u8; 300 * i];
            header(name, data.len() as u64, &mut bytes).unwrap();
            assert_eq!(bytes.len() % BLOCK, 0);
            bytes.extend_from_slice(&data);
            bytes.resize(bytes.len() + padding(data.len() as u64), 0);
        }
        bytes.resize(bytes.len() + END, 0);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut found = 0;
        for (i, entry) in archive.entries().unwrap().enumerate() {
            let mut entry = entry.unwrap();
            assert_eq!(entry.path().unwrap().to_str().unwrap(), names[i]);
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            let mut data = Vec::new();
            entry.read_to_end(&mut data).unwrap();
            assert_eq!(data, vec![i as u8; 300 * i]);
            found += 1;
        }
        assert_eq!(found, names.len());
    }

    #[test]
    fn a_length_counts_its_own_digits() {
        for count in (0..120).chain(980..1010).chain(9_980..10_010) {
            let record = record("path", &"x".repeat(count));
            assert_eq!(record.split(' ').next().unwrap().parse::<usize>().unwrap(), record.len());
        }
    }

    #[test]
    fn what_does_not_fit_a_header_is_refused() {
        assert!(header("a.bin", MOST - 1, &mut Vec::new()).is_ok());
        let e = header("a.bin", MOST, &mut Vec::new()).unwrap_err();
        assert_eq!(e.kind(), crate::ErrorKind::Limit);
    }
}
