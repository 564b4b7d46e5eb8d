//! Where a program or a shared library has put a few symbols: its table of dynamic symbols, which stripping leaves in place.

use std::{fs::File, io, os::unix::fs::FileExt};

/// Longest table that is read, bytes.
const MOST: u64 = 64 << 20;

/// Sections or segments that are read at most.
const MOST_ENTRIES: u64 = 1 << 12;

/// A symbol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Symbol {
    /// Bytes from where the file's first byte lies in memory.
    pub(super) offset: u64,
    /// Bytes it takes.
    pub(super) size: u64,
}

/// Looks symbols up by their names; those that the file does not define are `None`.
///
/// # Errors
///
/// If it cannot be read, or is no ELF file of 64 bits in this machine's byte order.
pub(super) fn symbols<const N: usize>(file: &File, names: [&str; N]) -> io::Result<[Option<Symbol>; N]> {
    let header = read(file, 0, 64)?;
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if header[..4] != *b"\x7fELF" || header[4] != 2 || header[5] != order {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let segments = table(file, number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2), 56)?;
    // The segment that begins with the file's first byte.
    let base = segments
        .iter()
        .find(|segment| number(segment, 0, 4) == 1 && number(segment, 8, 8) == 0)
        .map_or(0, |segment| number(segment, 16, 8));
    let sections = table(file, number(&header, 40, 8), number(&header, 58, 2), number(&header, 60, 2), 64)?;
    let mut found = [None; N];
    // 11: dynamic symbols.
    let Some(dynamic) = sections.iter().find(|section| number(section, 4, 4) == 11) else { return Ok(found) };
    let link = usize::try_from(number(dynamic, 40, 4)).unwrap_or(usize::MAX);
    let Some(strings) = sections.get(link) else { return Ok(found) };
    let content = |section: &[u8]| read(file, number(section, 24, 8), number(section, 32, 8));
    let (rows, strings) = (content(dynamic)?, content(strings)?);
    for row in rows.chunks_exact(24) {
        // One that is defined elsewhere has no section.
        if number(row, 6, 2) == 0 {
            continue;
        }
        let begin = usize::try_from(number(row, 0, 4)).unwrap_or(usize::MAX);
        let Some(text) = strings.get(begin..) else { continue };
        for (name, place) in names.iter().zip(&mut found) {
            if text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0) {
                let offset = number(row, 8, 8).wrapping_sub(base);
                *place = Some(Symbol { offset, size: number(row, 16, 8) });
            }
        }
    }
    Ok(found)
}

/// The entries of a table, each of at least `least` bytes.
fn table(file: &File, begin: u64, size: u64, count: u64, least: u64) -> io::Result<Vec<Vec<u8>>> {
    if size < least || count > MOST_ENTRIES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let whole = read(file, begin, size * count)?;
    Ok(whole.chunks_exact(usize::try_from(size).unwrap_or(usize::MAX)).map(<[u8]>::to_vec).collect())
}

fn read(file: &File, begin: u64, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len.min(MOST + 1)).ok().filter(|len| *len as u64 <= MOST);
    let mut bytes = vec![0; len.ok_or(io::ErrorKind::InvalidData)?];
    file.read_exact_at(&mut bytes, begin)?;
    Ok(bytes)
}

/// The number of `len` bytes at `at`; 0 beyond the end.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut value = [0; 8];
    let Some(found) = bytes.get(at..at + len) else { return 0 };
    let begin = if cfg!(target_endian = "little") { 0 } else { 8 - len };
    value[begin..begin + len].copy_from_slice(found);
    u64::from_ne_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_file_is_an_error() {
        let path = std::env::temp_dir().join(format!("wellfed-elf-{}", std::process::id()));
        let mut broken = std::fs::read("/proc/self/exe").unwrap();
        broken.truncate(1 << 12);
        for bytes in [Vec::new(), vec![0; 64], broken] {
            std::fs::write(&path, bytes).unwrap();
            assert!(symbols(&File::open(&path).unwrap(), ["malloc"]).is_err());
        }
        std::fs::remove_file(path).unwrap();
        // This program defines neither.
        let own = symbols(&File::open("/proc/self/exe").unwrap(), ["_PyRuntime", "Py_Version"]).unwrap();
        assert_eq!(own, [None, None]);
    }
}
