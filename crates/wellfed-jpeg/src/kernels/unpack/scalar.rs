//! Portable unpacking: the oracle.

use super::{Head, Run};
use crate::kernels::GROUP;

pub(super) fn unpack(run: Run<'_>, groups: &mut [i16]) -> bool {
    let mut bodies = &run.bodies[..run.end];
    for (head, group) in run.heads.iter().zip(groups.chunks_exact_mut(GROUP)) {
        let head = Head::read(head);
        let Some((body, rest)) = bodies.split_at_checked(head.size) else { return false };
        bodies = rest;
        if unpack_group(&head, body, group).is_none() {
            return false;
        }
    }
    true
}

/// Unpacks one group; `None` unless the body is exactly as long as what it announces.
pub(super) fn unpack_group(head: &Head, mut body: &[u8], group: &mut [i16]) -> Option<()> {
    let mut map = [0; 32];
    for (i, byte) in map.iter_mut().enumerate() {
        if head.present >> i & 1 == 1 {
            *byte = *body.split_off_first()?;
        }
    }
    let mut escapes = 0;
    for (quarter, map) in map.chunks_exact(8).enumerate() {
        let count: u32 = map.iter().map(|byte| byte.count_ones()).sum();
        let nibbles = body.split_off(..(count as usize).div_ceil(2))?;
        let named = (0..64).filter(|i| map[i / 8] >> (i % 8) & 1 == 1);
        for (n, i) in named.enumerate() {
            let value = i16::from(nibbles[n / 2] >> (n % 2 * 4) & 15) - 8;
            group[quarter * 64 + i] = value;
            escapes += usize::from(value == -8);
        }
    }
    // Values of another size stand behind, where the smaller ones were the smallest they can be.
    let mut bytes = body.split_off(..escapes)?;
    let mut words = body;
    if escapes > 0 {
        for value in group.iter_mut().filter(|value| **value == -8) {
            *value = i16::from(*bytes.split_off_first()? as i8);
            if *value == -128 {
                let word = words.split_off(..2)?;
                *value = i16::from_le_bytes([word[0], word[1]]);
            }
        }
    }
    for (b, &dc) in head.dc.iter().enumerate() {
        group[b * 8] = dc;
    }
    words.is_empty().then_some(())
}
