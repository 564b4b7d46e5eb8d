//! What the fuzz targets share: choices, limits that keep runs short, the checks of the tests.

// Each target uses another part of it.
#![allow(dead_code)]

#[path = "../tests/support/mod.rs"]
pub(crate) mod support;

use support::Rng;
use wellfed_jpeg::{Limits, Options};

/// From which a target draws its choices: the input itself, so that any file can be a seed as it is.
pub(crate) fn choices(data: &[u8]) -> Rng {
    Rng::new(support::crc32(data).into())
}

/// All channels; images of at most two million pixels.
pub(crate) fn options<'a>() -> Options<'a> {
    let limits =
        Limits { max_pixels: 1 << 21, max_scans: 50, max_block_visits: 1 << 20, ..Limits::default() };
    Options { limits, ..support::ways::native() }
}

/// Panics with what differs.
pub(crate) fn same(difference: Option<String>) {
    if let Some(what) = difference {
        panic!("{what}");
    }
}
