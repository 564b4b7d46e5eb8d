//! Rows of pixels to planes that the horizontal pass can read.

use std::sync::LazyLock;

use super::pass::WIDE;
use crate::image::{Layout, Pixels};
use crate::level::Level;
use crate::points::PointMap;
use crate::write::{Output, Sink};

/// Identity maps for 1 to 4 channels.
static MAPS: LazyLock<[PointMap; 4]> =
    LazyLock::new(|| [1, 2, 3, 4].map(|n| PointMap::identity(n).expect("1 to 4 channels are valid")));

/// Copies the rows of `src` to `flat`, planar and at least [`WIDE`] columns wide; what is not in `src` is
/// unspecified.
///
/// # Panics
/// If `flat` has not room for as many planes.
pub(super) fn split<'a>(level: Level, src: Pixels<'_>, flat: &'a mut [u8]) -> Pixels<'a> {
    let (height, width, channels) = (src.height, src.width, src.channels);
    let wide = width.max(WIDE);
    let flat = &mut flat[..channels * height * wide];
    #[cfg(target_arch = "x86_64")]
    if src.pixel == 3 && width >= WIDE && level > Level::Scalar {
        for y in 0..height {
            let row = src.line(0, y);
            let to = [0, 1, 2].map(|c| flat[(c * height + y) * width..][..width].as_mut_ptr());
            // SAFETY: `Resizer` holds no level that the processor lacks; the row has `width` pixels, each of `to`
            // as many bytes.
            unsafe {
                match level {
                    Level::Avx512 => super::avx512::split3(row.as_ptr(), width, to),
                    _ => super::avx2::split3(row.as_ptr(), width, to),
                }
            }
        }
        return Pixels::planar(flat, height, width, channels, width, height * width);
    }
    if src.pixel > 1 && width >= WIDE {
        // What the last step of a sample does to interleaved pixels.
        let output = Output::new(&MAPS[channels - 1], Layout::Chw);
        let sink = Sink::new(level, output, (height, width), channels, flat);
        sink.expect("sizes agree").near().band(0, src);
    } else {
        for (i, line) in flat.chunks_exact_mut(wide).enumerate() {
            let (c, y) = (i / height, i % height);
            match src.pixel {
                1 => line[..width].copy_from_slice(src.line(c, y)),
                _ => {
                    let row = &src.planes[c][y * src.stride..][..(width - 1) * src.pixel + 1];
                    for (to, from) in line.iter_mut().zip(row.iter().step_by(src.pixel)) {
                        *to = *from;
                    }
                }
            }
        }
    }
    Pixels::planar(flat, height, wide, channels, wide, height * wide)
}
