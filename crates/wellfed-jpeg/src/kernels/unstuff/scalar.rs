//! The portable loop: the oracle.

use super::CHUNK;

/// Unstuffs from `start` on, which is not a stuffed 00.
pub(super) fn unstuff(src: &[u8], start: usize, out: &mut Vec<u8>, marks: &mut Vec<u32>) -> usize {
    out.reserve(src.len() - start);
    let mut stuffed = false;
    for (i, &byte) in src.iter().enumerate().skip(start) {
        if i.is_multiple_of(CHUNK) {
            marks.push(out.len() as u32);
        }
        if stuffed {
            stuffed = false;
        } else {
            if byte == 0xFF {
                if src.get(i + 1) != Some(&0) {
                    return i;
                }
                stuffed = true;
            }
            out.push(byte);
        }
    }
    src.len()
}
