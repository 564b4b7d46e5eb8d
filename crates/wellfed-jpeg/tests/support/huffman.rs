//! Huffman tables for the encoder: the standard ones, built ones, odd ones; and the bit writer with byte stuffing.

use super::{Huffman, Rng};

/// A table as DHT carries it: the number of codes of each length 1..=16 and the symbols in order of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) lengths: [u8; 16],
    pub(crate) symbols: Vec<u8>,
}

/// (code, length) of each symbol; length 0 where the table lacks it.
pub(crate) type Codes = [(u16, u8); 256];

impl Table {
    /// T.81 figures C.1 and C.2.
    pub(crate) fn codes(&self) -> Codes {
        let mut codes = [(0, 0); 256];
        let (mut code, mut at) = (0u32, 0);
        for (length, &count) in (1..).zip(&self.lengths) {
            for _ in 0..count {
                codes[usize::from(self.symbols[at])] = (code as u16, length);
                code += 1;
                at += 1;
            }
            code <<= 1;
        }
        codes
    }

    /// The best table with codes of at most 16 bits for these frequencies: T.81 K.2, which reserves the code of all ones.
    pub(crate) fn from_counts(counts: &[u64; 256]) -> Table {
        let mut frequency = [0u64; 257];
        frequency[..256].copy_from_slice(counts);
        frequency[256] = 1;
        let mut size = [0usize; 257];
        let mut next = [None::<usize>; 257];
        loop {
            // Of equal frequencies the larger symbol, so that the reserved one gets the longest code.
            let least = |skip: Option<usize>| {
                (0..257)
                    .filter(|&i| frequency[i] > 0 && Some(i) != skip)
                    .min_by_key(|&i| (frequency[i], 256 - i))
            };
            let a = least(None).expect("the reserved symbol occurs");
            let Some(b) = least(Some(a)) else { break };
            frequency[a] += frequency[b];
            frequency[b] = 0;
            let mut at = a;
            size[at] += 1;
            while let Some(i) = next[at] {
                at = i;
                size[at] += 1;
            }
            next[at] = Some(b);
            at = b;
            size[at] += 1;
            while let Some(i) = next[at] {
                at = i;
                size[at] += 1;
            }
        }
        let mut bits = [0usize; 64];
        size.iter().filter(|&&s| s > 0).for_each(|&s| bits[s] += 1);
        for length in (17..64).rev() {
            while bits[length] > 0 {
                let shorter =
                    (1..length - 1).rev().find(|&j| bits[j] > 0).expect("a shorter code to lengthen");
                bits[length] -= 2;
                bits[length - 1] += 1;
                bits[shorter + 1] += 2;
                bits[shorter] -= 1;
            }
        }
        let longest = (1..=16).rev().find(|&i| bits[i] > 0);
        if let Some(longest) = longest {
            bits[longest] -= 1;
        }
        let mut symbols: Vec<u8> = (0..=255).filter(|&s| size[usize::from(s)] > 0).collect();
        symbols.sort_by_key(|&s| size[usize::from(s)]);
        let mut lengths = [0; 16];
        for (to, &from) in lengths.iter_mut().zip(&bits[1..]) {
            *to = from as u8;
        }
        Table { lengths, symbols }
    }

    /// A table for a destination and what occurs there, in the wanted style.
    pub(crate) fn choose(style: Huffman, dc: bool, destination: u8, counts: &[u64; 256]) -> Table {
        match style {
            Huffman::Standard | Huffman::Absent => standard(dc, destination > 0),
            Huffman::Optimized => Table::from_counts(counts),
            Huffman::Flat => {
                let mut all = *counts;
                for (symbol, count) in all.iter_mut().enumerate() {
                    *count = u64::from(*count > 0 || symbol < if dc { 12 } else { 256 });
                }
                Table::from_counts(&all)
            }
            Huffman::Skewed(seed) => {
                let mut rng = Rng::new(seed ^ u64::from(destination) << 8 ^ u64::from(dc));
                let mut symbols: Vec<usize> = (0..256).filter(|&i| counts[i] > 0).collect();
                // Symbols that never occur make short codes rare and long ones common.
                let spare = if dc { 12 } else { 256 };
                for _ in 0..30 {
                    let symbol = rng.below(spare);
                    if !symbols.contains(&symbol) {
                        symbols.push(symbol);
                    }
                }
                let mut skewed = [0; 256];
                for rank in 0..symbols.len() {
                    let symbol = symbols.swap_remove(rng.below(symbols.len()));
                    skewed[symbol] = 1 << rank.min(24);
                }
                Table::from_counts(&skewed)
            }
        }
    }
}

/// T.81 tables K.3 to K.6.
fn standard(dc: bool, chroma: bool) -> Table {
    #[rustfmt::skip]
    const AC: [([u8; 16], [u8; 162]); 2] = [
        ([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125], [
            0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71,
            0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72,
            0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37,
            0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59,
            0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83,
            0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3,
            0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3,
            0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2,
            0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
        ]),
        ([0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119], [
            0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22,
            0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1,
            0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x35, 0x36,
            0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58,
            0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a,
            0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a,
            0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba,
            0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda,
            0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
        ]),
    ];
    const DC: [[u8; 16]; 2] =
        [[0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]];
    let i = usize::from(chroma);
    if dc {
        Table { lengths: DC[i], symbols: (0..12).collect() }
    } else {
        Table { lengths: AC[i].0, symbols: AC[i].1.to_vec() }
    }
}

/// Bits, most significant first, with a zero byte after each FF.
#[derive(Default)]
pub(crate) struct BitWriter {
    pub(crate) bytes: Vec<u8>,
    held: u32,
    count: u32,
}

impl BitWriter {
    pub(crate) fn put(&mut self, value: u32, count: u32) {
        for i in (0..count).rev() {
            self.held = self.held << 1 | (value >> i & 1);
            self.count += 1;
            if self.count == 8 {
                let byte = self.held as u8;
                self.bytes.push(byte);
                if byte == 0xff {
                    self.bytes.push(0);
                }
                (self.held, self.count) = (0, 0);
            }
        }
    }

    /// Fills the last byte.
    pub(crate) fn align(&mut self, padding: bool) {
        while self.count > 0 {
            self.put(padding.into(), 1);
        }
    }
}
