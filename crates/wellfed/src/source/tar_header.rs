//! One 512-byte header of a tar archive: POSIX ustar and pax, GNU, and the old Unix format.
//!
//! Layouts: POSIX.1-2017 `pax`, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format". What counts as a
//! regular file, and which members carry data, is as in Python's `tarfile`, through which WebDataset reads.

/// Bytes of a header and of a block of data.
pub(super) const BLOCK: u64 = 512;

/// What a header announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Bytes of data that follow, before padding. Zero for kinds that never carry any.
    pub(super) size: u64,
    /// Name in the header itself, which a long name before it replaces.
    pub(super) name: Vec<u8>,
    /// What a link leads to, which a long name before it replaces.
    pub(super) link: Vec<u8>,
    /// Whether data follow at all, so that a pax size may replace this one.
    pub(super) carries_data: bool,
    /// For sparse files in GNU's old format: whether one more block of map follows.
    pub(super) extended: bool,
}

/// Kinds of members that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// A file with holes, stored without them.
    Sparse,
    /// Another name of a member before it.
    HardLink,
    /// A path, from the folder that it lies in.
    SymbolicLink,
    Folder,
    /// The name of the next member.
    LongName,
    /// What the next member, a link, leads to.
    LongLink,
    /// Records about the next member.
    Pax,
    /// Records about all members that follow.
    PaxGlobal,
    /// Devices and unknown things.
    Other,
}

/// Reads a header.
///
/// # Errors
/// What is wrong with it, without place.
pub(super) fn parse(block: &[u8; 512]) -> Result<Header, String> {
    let stated = octal(&block[148..156]).ok_or("the checksum of its header is not a number")?;
    // The checksum is that of the header with blanks in its own place; some old programs added signed bytes.
    let others = || block[..148].iter().chain(&block[156..]);
    let unsigned = 256 + others().map(|b| u64::from(*b)).sum::<u64>();
    let signed = 256 + others().map(|b| i64::from(b.cast_signed())).sum::<i64>();
    if stated != unsigned && i64::try_from(stated) != Ok(signed) {
        return Err(format!("its header has checksum {stated} instead of {unsigned}"));
    }
    let size = number(&block[124..136]).ok_or("its size is not a number")?;
    let until_zero = |bytes: &[u8]| bytes.split(|b| *b == 0).next().unwrap_or_default().to_vec();
    let mut name = until_zero(&block[..100]);
    let kind = match block[156] {
        // The old format marks folders by a slash at the end.
        0 if name.ends_with(b"/") => Kind::Folder,
        0 | b'0' | b'7' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::SymbolicLink,
        b'5' => Kind::Folder,
        b'S' => Kind::Sparse,
        b'L' => Kind::LongName,
        b'K' => Kind::LongLink,
        b'x' | b'X' => Kind::Pax,
        b'g' => Kind::PaxGlobal,
        _ => Kind::Other,
    };
    let posix = &block[257..263] == b"ustar\0";
    let prefix = until_zero(&block[345..500]);
    if posix && !prefix.is_empty() {
        name = [prefix.as_slice(), b"/", &name].concat();
    }
    // Links, devices, folders and pipes have no data, whatever their size field says.
    let carries_data = !(matches!(block[156], b'1'..=b'6') || (block[156] == 0 && kind == Kind::Folder));
    let size = if carries_data { size } else { 0 };
    let link = until_zero(&block[157..257]);
    Ok(Header { kind, size, name, link, carries_data, extended: kind == Kind::Sparse && block[482] != 0 })
}

/// A number in octal digits, or in binary where the first bit is set (GNU). `None` if it is negative, too large for
/// 64 bits, or no number.
fn number(field: &[u8]) -> Option<u64> {
    match field.first()? {
        0x80 => field[1..].iter().try_fold(0_u64, |n, b| Some(n.checked_mul(256)? | u64::from(*b))),
        first if *first > 0x80 => None,
        _ => octal(field),
    }
}

/// A number in octal digits, with blanks and zeros around it. An empty field is zero.
fn octal(field: &[u8]) -> Option<u64> {
    let text = field.split(|b| *b == 0).next()?.trim_ascii();
    text.iter().try_fold(0_u64, |n, b| match b {
        b'0'..=b'7' => Some(n.checked_mul(8)? + u64::from(b - b'0')),
        _ => None,
    })
}

/// What pax records say about a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// The member is a file with holes.
    pub(super) sparse: bool,
}

/// Reads `length key=value\n` records.
///
/// # Errors
/// What is wrong with them, without place.
pub(super) fn parse_pax(mut records: &[u8]) -> Result<Pax, String> {
    let mut pax = Pax::default();
    // Writers fill up with zeros at times.
    while records.first().is_some_and(|b| *b != 0) {
        let blank = records.iter().take(20).position(|b| *b == b' ');
        let length = blank.and_then(|at| decimal(&records[..at]));
        let record = match (blank, length.and_then(|n| usize::try_from(n).ok())) {
            (Some(at), Some(length)) if length > at + 1 && length <= records.len() => {
                &records[at + 1..length]
            }
            _ => return Err("its pax records are damaged".to_owned()),
        };
        records = &records[length.map_or(0, |n| n as usize)..];
        let pair = record.strip_suffix(b"\n").and_then(|record| {
            let equals = record.iter().position(|b| *b == b'=')?;
            Some((&record[..equals], &record[equals + 1..]))
        });
        let Some((key, value)) = pair else {
            return Err("its pax records are damaged".to_owned());
        };
        match key {
            b"path" if pax.path.is_none() || !pax.sparse => pax.path = Some(value.to_vec()),
            b"GNU.sparse.name" => (pax.path, pax.sparse) = (Some(value.to_vec()), true),
            b"linkpath" => pax.link = Some(value.to_vec()),
            b"size" => pax.size = Some(decimal(value).ok_or("its pax size is not a number")?),
            key if key.starts_with(b"GNU.sparse.") => pax.sparse = true,
            _ => {}
        }
    }
    Ok(pax)
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |n, b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b" 644 \0\0\0"), Some(0o644));
        assert_eq!(number(b"77777777777\0"), Some(0o77_777_777_777));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]), Some((2 << 32) + 1));
        assert_eq!(number(&[0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None);
        assert_eq!(number(&[0xff; 12]), None);
        assert_eq!(number(b"12x45678"), None);
        assert_eq!(number(b"89"), None);
    }

    #[test]
    fn pax_records_are_read_and_damaged_ones_refused() {
        let pax = parse_pax(b"30 mtime=1321711775.972059463\n14 path=a=b.c\n8 size=8\n\0\0").unwrap_err();
        assert!(pax.contains("damaged"));
        let pax = parse_pax(b"30 mtime=1321711775.972059463\n14 path=a=b.c\n9 size=80\n").unwrap_err();
        assert!(pax.contains("damaged"));
        let pax = parse_pax(b"30 mtime=1321711775.972059463\n15 path=a=bb.c\n11 size=80\n").unwrap();
        assert_eq!((pax.path.unwrap(), pax.size), (b"a=bb.c".to_vec(), Some(80)));
        for bad in
            ["5", "99999999999999999999999 a=b\n", "0 a=b\n", "3 a=b\n", "6 a=bc", "7 abcd\n", " a=b\n"]
        {
            assert!(parse_pax(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse_pax(b"28 GNU.sparse.name=real.jpg\n").unwrap().sparse);
    }
}
