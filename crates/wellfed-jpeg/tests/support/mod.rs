//! A JPEG encoder that writes what real encoders rarely do, and the table of files that decoders are held to.
//!
//! Owns every generated file of the tests, fuzz targets and benchmarks. A file is a pure function of its
//! [`Spec`] and of its coefficients, in integers or in exactly rounded `f64` operations, so that each machine
//! makes the same bytes and hashes of another decoder's pixels can be kept in the repository.
//! The encoder checks nothing that a caller could not know (it panics on illegal coefficients) and is not fast.

// Each test, example and fuzz target that includes this module uses another part of it.
#![allow(dead_code, unused_imports)]

mod cases;
mod content;
mod encode;
mod entropy;
mod huffman;
mod spec;
pub(crate) mod ways;

pub(crate) use cases::{Case, Damage, bulk, damaged, golden};
pub(crate) use content::{Content, quality_table};
pub(crate) use encode::encode;
pub(crate) use spec::{Block, Component, Huffman, Plane, Process, Quant, Scan, Segment, Spec, ZIGZAG};

/// SplitMix64: small, seedable, the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; the bias is far below what a test could see.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }

    /// A number in `low..=high`.
    pub(crate) fn within(&mut self, low: i32, high: i32) -> i32 {
        low + self.below((high - low + 1) as usize) as i32
    }

    /// True `percent` times of a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// CRC-32 as zlib computes it.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(i as u32, |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 })
    });
    !bytes.iter().fold(!0, |crc, &byte| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}
