//! Zip archives made by hand, for tests.

use std::io::Write;

/// How a member is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct How {
    pub(crate) deflated: bool,
    /// Sizes and offset stand in the extra field only.
    pub(crate) zip64: bool,
    /// Sizes and checksum stand behind the data, as in archives that were written as a stream.
    pub(crate) streamed: bool,
    pub(crate) flags: u16,
    pub(crate) attributes: u32,
}

pub(crate) const STORED: How =
    How { deflated: false, zip64: false, streamed: false, flags: 0, attributes: 0 };
pub(crate) const DEFLATED: How = How { deflated: true, ..STORED };
pub(crate) const ZIP64: How = How { zip64: true, ..STORED };
pub(crate) const STREAMED: How = How { streamed: true, ..DEFLATED };

/// An archive of these members.
pub(crate) fn zip(members: &[(&str, &[u8], How)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let wide = members.iter().any(|(_, _, how)| how.zip64);
    for (name, data, how) in members {
        let offset = file.len();
        let packed = if how.deflated {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        } else {
            data.to_vec()
        };
        let method = if how.deflated { 8_u16 } else { 0 };
        let flags = how.flags | if how.streamed { 8 } else { 0 };
        let crc = crc32fast::hash(data);
        let u32s = |all: &[u32]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let u64s = |all: &[usize]| all.iter().flat_map(|n| (*n as u64).to_le_bytes()).collect::<Vec<u8>>();
        let narrow = |n: usize| if how.zip64 { u32::MAX } else { n as u32 };
        let extra = |all: &[usize]| -> Vec<u8> {
            if !how.zip64 {
                return Vec::new();
            }
            // In front of it one that nobody knows.
            let mut extra = vec![0x99, 0x99, 3, 0, 1, 2, 3, 1, 0, (all.len() * 8) as u8, 0];
            extra.extend(u64s(all));
            extra
        };
        let middle = |sizes: [u32; 3], extra: &[u8]| -> Vec<u8> {
            let mut middle = Vec::new();
            middle.extend([45, 0]);
            middle.extend(flags.to_le_bytes());
            middle.extend(method.to_le_bytes());
            middle.extend([0, 0, 33, 0]);
            middle.extend(u32s(&sizes));
            middle.extend((name.len() as u16).to_le_bytes());
            middle.extend((extra.len() as u16).to_le_bytes());
            middle
        };
        let local = if how.streamed { [0; 3] } else { [crc, narrow(packed.len()), narrow(data.len())] };
        let front = if how.streamed { Vec::new() } else { extra(&[data.len(), packed.len()]) };
        file.extend(b"PK\x03\x04");
        file.extend(middle(local, &front));
        file.extend(name.as_bytes());
        file.extend(&front);
        file.extend(&packed);
        if how.streamed {
            file.extend(b"PK\x07\x08");
            file.extend(u32s(&[crc, packed.len() as u32, data.len() as u32]));
        }
        let back = extra(&[data.len(), packed.len(), offset]);
        directory.extend(b"PK\x01\x02");
        directory.extend([45, 3]);
        directory.extend(middle([crc, narrow(packed.len()), narrow(data.len())], &back));
        directory.extend([0; 6]);
        directory.extend(how.attributes.to_le_bytes());
        directory.extend(narrow(offset).to_le_bytes());
        directory.extend(name.as_bytes());
        directory.extend(&back);
    }
    let (count, start) = (members.len(), file.len());
    file.extend(&directory);
    if wide {
        let end = file.len();
        file.extend(b"PK\x06\x06");
        file.extend(44_u64.to_le_bytes());
        file.extend([45, 3, 45, 0]);
        file.extend([0; 8]);
        for n in [count, count, directory.len(), start] {
            file.extend((n as u64).to_le_bytes());
        }
        file.extend(b"PK\x06\x07");
        file.extend([0; 4]);
        file.extend((end as u64).to_le_bytes());
        file.extend([1, 0, 0, 0]);
    }
    file.extend(b"PK\x05\x06");
    file.extend([0; 4]);
    for _ in 0..2 {
        file.extend(if wide { u16::MAX } else { count as u16 }.to_le_bytes());
    }
    for n in [directory.len(), start] {
        file.extend(if wide { u32::MAX } else { n as u32 }.to_le_bytes());
    }
    file.extend([0, 0]);
    file
}
