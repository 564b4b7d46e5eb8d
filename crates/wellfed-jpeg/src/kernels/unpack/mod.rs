//! Packed coefficients back into groups, or straight into samples.
//!
//! A group's record is a head of [`HEAD`] bytes, which lie together for all groups of a block row, and a body of
//! the size that the head says; `crate::packed` documents every byte. Bodies are checked while they are read: one
//! that is not exactly as long as what it announces makes the whole call fail, at every level alike.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use super::idct::{idct, idct_fast, idct_scaled};
use super::{GROUP, supported};
use crate::Level;

/// Bytes of a group's head: size of the body, which bytes of the map are not zero, four DC coefficients.
pub(crate) const HEAD: usize = 14;

/// Groups that are unpacked before they are transformed, where the two are not one: 8 KiB of coefficients.
pub(crate) const RUN: usize = 16;

/// How far from a body's start loads reach, whatever is in it: 32 bytes of map, 4 * 32 of numbers of four bits,
/// 4 * 64 of bytes, and 8 * 64 of words.
#[cfg(target_arch = "x86_64")]
const REACH: usize = 928;

/// A copy of a body near the record's end, with zeros behind.
#[cfg(target_arch = "x86_64")]
#[cold]
fn padded(body: &[u8]) -> [u8; REACH] {
    let mut bytes = [0; REACH];
    let length = body.len().min(REACH);
    bytes[..length].copy_from_slice(&body[..length]);
    bytes
}

/// A group's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the body.
    pub(crate) size: usize,
    /// Bit i: byte i of the map of non-zero coefficients is there.
    pub(crate) present: u32,
    pub(crate) dc: [i16; 4],
}

impl Head {
    #[inline]
    pub(crate) fn read(bytes: &[u8; HEAD]) -> Head {
        let [s0, s1, p0, p1, p2, p3, dc @ ..] = *bytes;
        Head {
            size: usize::from(u16::from_le_bytes([s0, s1])),
            present: u32::from_le_bytes([p0, p1, p2, p3]),
            dc: std::array::from_fn(|i| i16::from_le_bytes([dc[2 * i], dc[2 * i + 1]])),
        }
    }

    pub(crate) fn write(&self, bytes: &mut [u8; HEAD]) {
        bytes[..2].copy_from_slice(&(self.size as u16).to_le_bytes());
        bytes[2..6].copy_from_slice(&self.present.to_le_bytes());
        for (to, dc) in bytes[6..].chunks_exact_mut(2).zip(self.dc) {
            to.copy_from_slice(&dc.to_le_bytes());
        }
    }
}

/// Neighbouring groups of a block row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// Their heads.
    pub(crate) heads: &'a [[u8; HEAD]],
    /// Their bodies one after the other, and whatever follows in memory, which may be looked at.
    pub(crate) bodies: &'a [u8],
    /// Where the bodies must end at the latest.
    pub(crate) end: usize,
}

impl<'a> Run<'a> {
    /// The first `count` groups and the others; `None` if the bodies do not reach that far.
    pub(crate) fn split(self, count: usize) -> Option<(Run<'a>, Run<'a>)> {
        let (heads, later) = self.heads.split_at_checked(count)?;
        let size: usize = heads.iter().map(|head| usize::from(u16::from_le_bytes([head[0], head[1]]))).sum();
        let end = self.end.checked_sub(size)?;
        let rest = Run { heads: later, bodies: self.bodies.get(size..)?, end };
        Some((Run { heads, ..self }, rest))
    }
}

/// Unpacks groups into coefficients: 256 a group in `groups`, which hold zeros. False if a body is damaged; then
/// `groups` hold unspecified values.
///
/// # Panics
/// If `groups` has another number of groups than `run`.
pub(crate) fn unpack(level: Level, run: Run<'_>, groups: &mut [i16]) -> bool {
    assert_eq!(groups.len(), run.heads.len() * GROUP, "as many groups as heads");
    assert!(run.end <= run.bodies.len(), "bodies end in the record");
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::unpack(run, groups) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::unpack(run, groups) },
        _ => scalar::unpack(run, groups),
    }
}

/// Unpacks groups and transforms them as [`idct`] does. False if a body is damaged; then `out` holds unspecified
/// values. `scratch` is zero before and after, and holds [`RUN`] groups.
///
/// # Panics
/// If `out` is too short for eight rows at `stride`, or `scratch` for its groups.
pub(crate) fn unpack_idct(
    level: Level,
    run: Run<'_>,
    quant: &[u16; 64],
    scratch: &mut [i16],
    out: &mut [u8],
    stride: usize,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if supported(level) == Level::Avx512 {
        assert!(run.end <= run.bodies.len(), "bodies end in the record");
        let needed = stride.checked_mul(7).and_then(|n| n.checked_add(32 * run.heads.len()));
        assert!(needed.is_some_and(|n| n <= out.len()), "the rows fit the output");
        // SAFETY: the level is supported, and the lengths were checked.
        return unsafe { avx512::unpack_idct(run, quant, scratch, out, stride) };
    }
    by_runs(level, run, scratch, |groups, first| idct(level, groups, quant, &mut out[first * 32..], stride))
}

/// Unpacks groups and transforms them as [`idct_fast`] does; else as [`unpack_idct`].
///
/// # Panics
/// As [`unpack_idct`].
pub(crate) fn unpack_fast(
    level: Level,
    run: Run<'_>,
    multipliers: &[u16; 64],
    scratch: &mut [i16],
    out: &mut [u8],
    stride: usize,
) -> bool {
    by_runs(level, run, scratch, |groups, first| {
        idct_fast(level, groups, multipliers, &mut out[first * 32..], stride);
    })
}

/// Unpacks groups and transforms them to reduced size, as [`idct_scaled`] does; else as [`unpack_idct`].
///
/// # Panics
/// As [`idct_scaled`] and [`unpack_idct`].
pub(crate) fn unpack_scaled(
    level: Level,
    run: Run<'_>,
    quant: &[u16; 64],
    size: usize,
    scratch: &mut [i16],
    out: &mut [u8],
    stride: usize,
) -> bool {
    by_runs(level, run, scratch, |groups, first| {
        idct_scaled(level, groups, quant, size, &mut out[first * 4 * size..], stride);
    })
}

/// Unpacks [`RUN`] groups at a time and hands them to `transform`, which zeroes them, with the first one's number.
fn by_runs(
    level: Level,
    mut run: Run<'_>,
    scratch: &mut [i16],
    mut transform: impl FnMut(&mut [i16], usize),
) -> bool {
    let mut first = 0;
    while !run.heads.is_empty() {
        let count = run.heads.len().min(RUN);
        let groups = &mut scratch[..count * GROUP];
        let Some((now, later)) = run.split(count) else { return false };
        if !unpack(level, now, groups) {
            groups.fill(0);
            return false;
        }
        transform(groups, first);
        first += count;
        run = later;
    }
    true
}
