//! What the tests against hashes of TensorFlow's results share with the scripts that wrote them.

/// The same pixels as the scripts'.
pub(crate) fn pixels(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(&mut next).collect()
}

/// The hash of numbers, as the scripts print it: FNV-1a of their bytes.
pub(crate) fn fnv(values: &[f32]) -> String {
    let bytes = values.iter().flat_map(|x| x.to_le_bytes());
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, step))
}
