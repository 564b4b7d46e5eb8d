//! The portable filters: the oracle.

pub(super) fn h2v1(src: &[u8], out: &mut [u8]) {
    for (x, pair) in src.windows(3).zip(out.chunks_exact_mut(2)) {
        let [left, center, right] = [0, 1, 2].map(|i| u16::from(x[i]));
        pair[0] = ((3 * center + left + 1) >> 2) as u8;
        pair[1] = ((3 * center + right + 2) >> 2) as u8;
    }
}

pub(super) fn h2v2(near: &[u8], far: &[u8], out: &mut [u8]) {
    for ((n, f), pair) in near.windows(3).zip(far.windows(3)).zip(out.chunks_exact_mut(2)) {
        let [left, center, right] = [0, 1, 2].map(|i| 3 * u16::from(n[i]) + u16::from(f[i]));
        pair[0] = ((3 * center + left + 8) >> 4) as u8;
        pair[1] = ((3 * center + right + 7) >> 4) as u8;
    }
}

pub(super) fn h1v2(near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
    let bias = if upper { 1 } else { 2 };
    for ((&n, &f), sample) in near.iter().zip(far).zip(out) {
        *sample = ((3 * u16::from(n) + u16::from(f) + bias) >> 2) as u8;
    }
}

pub(super) fn repeat(src: &[u8], factor: usize, out: &mut [u8]) {
    // Constant lengths compile to shuffles and stores.
    fn by<const N: usize>(src: &[u8], out: &mut [u8]) {
        for (&sample, copies) in src.iter().zip(out.as_chunks_mut::<N>().0) {
            *copies = [sample; N];
        }
    }
    match factor {
        0 => {}
        1 => out.copy_from_slice(src),
        2 => by::<2>(src, out),
        3 => by::<3>(src, out),
        4 => by::<4>(src, out),
        _ => src.iter().zip(out.chunks_exact_mut(factor)).for_each(|(&sample, copies)| copies.fill(sample)),
    }
}
