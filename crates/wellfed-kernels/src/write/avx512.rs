//! Rows of pixels to their place with AVX-512 VBMI: 64 elements at a time.
//!
//! A byte permutation picks the block's bytes out of the row (deinterleaving, interleaving and mirroring on
//! the way), then values become float32 by the map's arithmetic [`Chain`] where it has one. Otherwise, and
//! for smaller elements, its table is looked up in registers, byte plane by byte plane.

use std::arch::x86_64::*;

use super::{Output, Place};
use crate::image::{Dtype, Layout, Pixels};
use crate::points::{Chain, Quotient, Scale};

type Lanes = [u8; 64];

/// `unpack` instructions work inside 128-bit lanes. `ORDER[s]` says which element has to sit at each byte so
/// that elements of `1 << s` bytes come out in order.
const ORDER: [Lanes; 3] = [order(1), order(2), order(4)];

const fn order(size: usize) -> Lanes {
    let mut lanes = [0; 64];
    let mut q = 0;
    while q < 64 {
        let (lane, byte) = (q / 16, q % 16);
        let per = 16 / size;
        lanes[q] = match size {
            1 => q,
            _ => byte / per * (4 * per) + lane * per + byte % per,
        } as u8;
        q += 1;
    }
    lanes
}

/// `ORDER` divided by the number of channels 2, 3 and 4: the pixel of each element of an interleaved block.
const PIXEL: [[Lanes; 3]; 3] = [split(2, false), split(3, false), split(4, false)];
/// The remainder: the channel.
const CHANNEL: [[Lanes; 3]; 3] = [split(2, true), split(3, true), split(4, true)];

const fn split(channels: u8, remainder: bool) -> [Lanes; 3] {
    let mut all = ORDER;
    let mut s = 0;
    while s < 3 {
        let mut q = 0;
        while q < 64 {
            all[s][q] = if remainder { all[s][q] % channels } else { all[s][q] / channels };
            q += 1;
        }
        s += 1;
    }
    all
}

/// How a block of elements lies in the source row.
mod fetch {
    /// One plane to one plane.
    pub(super) const PLANE: u8 = 1;
    /// Interleaved pixels of 2, 3 or 4 channels to one plane.
    pub(super) const TAKE2: u8 = 2;
    pub(super) const TAKE3: u8 = 3;
    pub(super) const TAKE4: u8 = 4;
    /// Interleaved to interleaved, [`PLANE`] for one channel.
    pub(super) const KEEP2: u8 = 12;
    pub(super) const KEEP3: u8 = 13;
    pub(super) const KEEP4: u8 = 14;
    /// Planes to interleaved.
    pub(super) const WEAVE2: u8 = 22;
    pub(super) const WEAVE3: u8 = 23;
    pub(super) const WEAVE4: u8 = 24;
}

/// What becomes of the bytes.
mod emit {
    pub(super) const COPY: u8 = 0;
    /// Table lookup, elements of 1, 2 and 4 bytes.
    pub(super) const TABLE1: u8 = 1;
    pub(super) const TABLE2: u8 = 2;
    pub(super) const TABLE4: u8 = 4;
    /// Float32 arithmetic.
    pub(super) const CHAIN: u8 = 14;
}

/// Writes the rows of `band`.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL and VBMI; each row of the band has `place.width` pixels of
/// `output.map.channels()` channels; the band's rows fit between `place.y` and the end they run to, and the
/// slot has `height * width` pixels of the map's elements.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(super) unsafe fn band(band: Pixels<'_>, output: &Output<'_>, place: Place<'_>) {
    let channels = output.map.channels();
    let planar = band.pixel == 1;
    let emit = match output.map.dtype() {
        Dtype::U8 if output.map.is_identity() => emit::COPY,
        Dtype::U8 => emit::TABLE1,
        Dtype::F16 | Dtype::Bf16 => emit::TABLE2,
        Dtype::F32 if output.map.chain().is_some() => emit::CHAIN,
        Dtype::F32 => emit::TABLE4,
    };
    let size = output.map.dtype().size();
    let streams = if output.layout == Layout::Chw { channels } else { 1 };
    for c in 0..streams {
        let per_row = place.width * channels / streams * size;
        let past =
            place.past && (place.slot.as_ptr() as usize | per_row).is_multiple_of(64) && streams == channels;
        let stream = Stream {
            past,
            data: band.planes[c].as_ptr(),
            planes: band.planes.map(<[u8]>::as_ptr),
            stride: band.stride,
            rows: band.height,
            width: place.width,
            channel: c,
            output,
            to: place.slot.as_mut_ptr().wrapping_add((c * place.height + place.y) * per_row),
            per_row: if output.flip_v { -(per_row as isize) } else { per_row as isize },
        };
        // SAFETY: each fetch is chosen for the rows' form and the layout; the caller vouches for rows and
        // slot.
        unsafe {
            macro_rules! go {
                ($fetch:expr) => {
                    match emit {
                        emit::COPY => stream_rows::<{ $fetch }, { emit::COPY }>(stream),
                        emit::TABLE1 => stream_rows::<{ $fetch }, { emit::TABLE1 }>(stream),
                        emit::TABLE2 => stream_rows::<{ $fetch }, { emit::TABLE2 }>(stream),
                        emit::TABLE4 => stream_rows::<{ $fetch }, { emit::TABLE4 }>(stream),
                        _ => stream_rows::<{ $fetch }, { emit::CHAIN }>(stream),
                    }
                };
            }
            match (output.layout, planar, channels) {
                (_, _, 1) | (Layout::Chw, true, _) => go!(fetch::PLANE),
                (Layout::Chw, false, 2) => go!(fetch::TAKE2),
                (Layout::Chw, false, 3) => go!(fetch::TAKE3),
                (Layout::Chw, false, _) => go!(fetch::TAKE4),
                (Layout::Hwc, false, 2) => go!(fetch::KEEP2),
                (Layout::Hwc, false, 3) => go!(fetch::KEEP3),
                (Layout::Hwc, false, _) => go!(fetch::KEEP4),
                (Layout::Hwc, true, 2) => go!(fetch::WEAVE2),
                (Layout::Hwc, true, 3) => go!(fetch::WEAVE3),
                (Layout::Hwc, true, _) => go!(fetch::WEAVE4),
            }
        }
    }
}

/// Runs of elements that lie one after the other in the slot: one channel's rows, or interleaved rows.
struct Stream<'a> {
    /// The first pixel's first byte; for a plane taken from an interleaved row, that of its channel.
    data: *const u8,
    /// Bytes between rows of the source.
    stride: usize,
    rows: usize,
    /// The first pixel's first byte in each plane.
    planes: [*const u8; 4],
    /// Pixels.
    width: usize,
    /// Channel of a plane.
    channel: usize,
    output: &'a Output<'a>,
    to: *mut u8,
    /// Bytes between rows of the slot.
    per_row: isize,
    /// Store past the caches. Every block begins at a multiple of 64 bytes.
    past: bool,
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn load(lanes: &Lanes) -> __m512i {
    // SAFETY: 64 bytes are there.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

/// The lowest `n` bits (all of them from 64 on).
#[inline]
fn low(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Up to 64 of `bytes` bytes at `at`, from `skip` on; never touches others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn part(at: *const u8, skip: usize, bytes: usize) -> __m512i {
    // SAFETY: masked bytes are not read.
    unsafe { _mm512_maskz_loadu_epi8(low(bytes.saturating_sub(skip)), at.wrapping_add(skip).cast()) }
}

/// One channel's table: for each byte of an element, 256 bytes in 4 registers.
type Table<const N: usize> = [[__m512i; 4]; N];

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn table<const N: usize>(output: &Output<'_>, channel: usize) -> Table<N> {
    let planes = output.map.planes(channel);
    let mut table = [[_mm512_setzero_si512(); 4]; N];
    for (to, from) in table.iter_mut().zip(planes) {
        for (to, from) in to.iter_mut().zip(from.as_chunks::<64>().0) {
            *to = load(from);
        }
    }
    table
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn look_up<const N: usize>(table: &Table<N>, v: __m512i) -> [__m512i; N] {
    let upper = _mm512_movepi8_mask(v);
    let mut out = [_mm512_setzero_si512(); N];
    for (out, plane) in out.iter_mut().zip(table) {
        let below = _mm512_permutex2var_epi8(plane[0], v, plane[1]);
        let above = _mm512_permutex2var_epi8(plane[2], v, plane[3]);
        *out = _mm512_mask_blend_epi8(upper, below, above);
    }
    out
}

/// Looks `v` up in the stream's tables: one of them, or one a channel of interleaved elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn look_up_all<const N: usize>(tables: &[Table<N>], masks: &[u64; 4], v: __m512i) -> [__m512i; N] {
    let mut out = look_up(&tables[0], v);
    for (table, mask) in tables[1..].iter().zip(&masks[1..]) {
        let more = look_up(table, v);
        for (out, more) in out.iter_mut().zip(more) {
            *out = _mm512_mask_blend_epi8(*mask, *out, more);
        }
    }
    out
}

/// A [`Chain`] with its constants spread over the 4 x 16 float32 lanes of a block.
struct Spread {
    divide: Option<(__m512, __m512)>,
    factor: __m512,
    exact: bool,
    mean: [__m512; 4],
    std: [__m512; 4],
    recip: [__m512; 4],
}

impl Spread {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    fn new(chain: &Chain, channel: impl Fn(usize) -> usize) -> Self {
        let spread = |values: &[f32; 4]| {
            [0, 1, 2, 3].map(|k: usize| {
                let lanes: [f32; 16] = std::array::from_fn(|i| values[channel(16 * k + i)]);
                // SAFETY: 64 bytes are there.
                unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
            })
        };
        let (divide, factor) = match chain.scale {
            Scale::None => (None, 1.0),
            Scale::Mul(factor) => (None, factor),
            Scale::Div { by, recip } => (Some((_mm512_set1_ps(by), _mm512_set1_ps(recip))), 1.0),
        };
        // Without a quotient the mean is 0 and the reciprocal 1: exact.
        Self {
            divide,
            factor: _mm512_set1_ps(factor),
            exact: chain.quotient == Quotient::Div,
            mean: spread(&chain.mean),
            std: spread(&chain.std),
            recip: spread(&chain.recip),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    fn apply(&self, k: usize, v: __m512i) -> __m512 {
        let v = _mm512_cvtepi32_ps(v);
        let x = match self.divide {
            None => _mm512_mul_ps(v, self.factor),
            Some((by, recip)) => {
                let q = _mm512_mul_ps(v, recip);
                _mm512_fmadd_ps(_mm512_fnmadd_ps(q, by, v), recip, q)
            }
        };
        let x = _mm512_sub_ps(x, self.mean[k]);
        let q = _mm512_mul_ps(x, self.recip[k]);
        if self.exact { _mm512_fmadd_ps(_mm512_fnmadd_ps(q, self.std[k], x), self.recip[k], q) } else { q }
    }
}

/// Four planes of bytes to 64 elements of 4 bytes, 16 a register.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn weave4(b: [__m512i; 4]) -> [__m512i; 4] {
    let (low, high) = (_mm512_unpacklo_epi8(b[0], b[1]), _mm512_unpackhi_epi8(b[0], b[1]));
    let (low2, high2) = (_mm512_unpacklo_epi8(b[2], b[3]), _mm512_unpackhi_epi8(b[2], b[3]));
    [
        _mm512_unpacklo_epi16(low, low2),
        _mm512_unpackhi_epi16(low, low2),
        _mm512_unpacklo_epi16(high, high2),
        _mm512_unpackhi_epi16(high, high2),
    ]
}

/// # Safety
/// As [`band`]; `FETCH` fits the row and the layout, `EMIT` the map.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn stream_rows<const FETCH: u8, const EMIT: u8>(s: Stream<'_>) {
    // Channels of an interleaved block, 1 for a plane; bytes from pixel to pixel in the source.
    let channels = if FETCH >= 10 { usize::from(FETCH % 10) } else { 1 };
    let step = if FETCH >= 20 { 1 } else { usize::from(FETCH % 10) };
    let size = match EMIT {
        emit::COPY | emit::TABLE1 => 1,
        emit::TABLE2 => 2,
        _ => 4,
    };
    let log = size / 2;
    let flip = s.output.flip_h;
    let pixels = 64 / channels;

    let (pixel, channel) = if channels == 1 {
        (load(&ORDER[log]), _mm512_setzero_si512())
    } else {
        (load(&PIXEL[channels - 2][log]), load(&CHANNEL[channels - 2][log]))
    };
    // Byte of each element's pixel, before mirroring.
    let double = _mm512_add_epi8(pixel, pixel);
    let byte = match step {
        1 => pixel,
        2 => double,
        3 => _mm512_add_epi8(double, pixel),
        _ => _mm512_add_epi8(double, double),
    };
    // The index of each element in the bytes that a block loads, for a block of `n` pixels.
    let index = |n: usize| {
        if flip { _mm512_sub_epi8(_mm512_set1_epi8(((n - 1) * step) as i8), byte) } else { byte }
    };
    let is = |c: i8| _mm512_cmpeq_epi8_mask(channel, _mm512_set1_epi8(c));
    let masks = [is(0), is(1), is(2), is(3)];
    let beyond = masks[2] | masks[3];

    let fetch = |r: usize, x: usize, n: usize, index: __m512i| {
        let from = if flip { s.width - x - n } else { x };
        let at = s.data.wrapping_add(r * s.stride + from * step);
        // SAFETY: the row has `width` pixels, and pixel `from + n - 1` is one of them. A plane taken from an
        // interleaved row begins with its own channel, so its last byte is `(n - 1) * step` on.
        unsafe {
            match FETCH {
                fetch::PLANE => _mm512_permutexvar_epi8(index, part(at, 0, n)),
                fetch::TAKE2 => {
                    let bytes = (n - 1) * step + 1;
                    _mm512_permutex2var_epi8(part(at, 0, bytes), index, part(at, 64, bytes))
                }
                fetch::TAKE3 => {
                    let bytes = (n - 1) * step + 1;
                    let v = _mm512_permutex2var_epi8(part(at, 0, bytes), index, part(at, 64, bytes));
                    _mm512_mask_permutexvar_epi8(v, _mm512_movepi8_mask(index), index, part(at, 128, bytes))
                }
                fetch::TAKE4 => {
                    let bytes = (n - 1) * step + 1;
                    let v = _mm512_permutex2var_epi8(part(at, 0, bytes), index, part(at, 64, bytes));
                    let w = _mm512_permutex2var_epi8(part(at, 128, bytes), index, part(at, 192, bytes));
                    _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), v, w)
                }
                fetch::KEEP2 | fetch::KEEP3 | fetch::KEEP4 => {
                    _mm512_permutexvar_epi8(_mm512_add_epi8(index, channel), part(at, 0, n * step))
                }
                _ => {
                    let plane = |c: usize| part(s.planes[c].wrapping_add(r * s.stride + from), 0, n);
                    // Bit 6 of an index chooses the second register of a pair.
                    let odd = _mm512_slli_epi16::<6>(_mm512_and_si512(channel, _mm512_set1_epi8(1)));
                    let index2 = _mm512_or_si512(_mm512_and_si512(index, _mm512_set1_epi8(63)), odd);
                    let v = _mm512_permutex2var_epi8(plane(0), index2, plane(1));
                    match FETCH {
                        fetch::WEAVE3 => _mm512_mask_permutexvar_epi8(v, beyond, index, plane(2)),
                        fetch::WEAVE4 => {
                            let w = _mm512_permutex2var_epi8(plane(2), index2, plane(3));
                            _mm512_mask_blend_epi8(beyond, v, w)
                        }
                        _ => v,
                    }
                }
            }
        }
    };
    let store = |r: usize, x: usize, n: usize, k: usize, v: __m512i| {
        // Elements of this register that belong to the row.
        let per = 64 / size;
        let elements = (n * channels).saturating_sub(k * per).min(per);
        let at = s.to.wrapping_offset(r as isize * s.per_row).wrapping_add((x * channels + k * per) * size);
        // SAFETY: masked bytes are not written, the others are elements of this row in the slot.
        unsafe {
            if elements == per && s.past {
                _mm512_stream_si512(at.cast(), v);
            } else if elements == per {
                _mm512_storeu_si512(at.cast(), v);
            } else if elements > 0 {
                _mm512_mask_storeu_epi8(at.cast(), low(elements * size), v);
            }
        }
    };
    // Calls `block` for each run of pixels of each row, the last one shorter.
    macro_rules! blocks {
        (|$r:ident, $x:ident, $n:ident, $v:ident| $block:block) => {
            let full = index(pixels);
            let rest = s.width % pixels;
            let short = index(rest.max(1));
            for $r in 0..s.rows {
                let mut $x = 0;
                while $x + pixels <= s.width {
                    let ($n, $v) = (pixels, fetch($r, $x, pixels, full));
                    $block
                    $x += pixels;
                }
                if rest > 0 {
                    let ($n, $v) = (rest, fetch($r, $x, rest, short));
                    $block
                }
            }
        };
    }
    macro_rules! table {
        ($n:literal, |$r:ident, $x:ident, $px:ident, $out:ident| $block:block) => {
            if channels == 1 || s.output.map.is_uniform() {
                let table = table::<$n>(s.output, s.channel);
                blocks!(|$r, $x, $px, v| {
                    let $out = look_up(&table, v);
                    $block
                });
            } else {
                let tables: [Table<$n>; 4] =
                    [0, 1, 2, 3].map(|c: usize| table::<$n>(s.output, c.min(channels - 1)));
                blocks!(|$r, $x, $px, v| {
                    let $out = look_up_all(&tables[..channels], &masks, v);
                    $block
                });
            }
        };
    }
    match EMIT {
        emit::COPY => {
            blocks!(|r, x, n, v| { store(r, x, n, 0, v) });
        }
        emit::TABLE1 => {
            table!(1, |r, x, n, out| { store(r, x, n, 0, out[0]) });
        }
        emit::TABLE2 => {
            table!(2, |r, x, n, out| {
                store(r, x, n, 0, _mm512_unpacklo_epi8(out[0], out[1]));
                store(r, x, n, 1, _mm512_unpackhi_epi8(out[0], out[1]));
            });
        }
        emit::TABLE4 => {
            table!(4, |r, x, n, out| {
                for (k, v) in weave4(out).into_iter().enumerate() {
                    store(r, x, n, k, v);
                }
            });
        }
        _ => {
            let chain = s.output.map.chain().expect("chosen because there is one");
            let spread = if channels == 1 {
                Spread::new(chain, |_| s.channel)
            } else {
                Spread::new(chain, |e| e % channels)
            };
            let zero = _mm512_setzero_si512();
            blocks!(|r, x, n, v| {
                for (k, v) in weave4([v, zero, zero, zero]).into_iter().enumerate() {
                    if 16 * k < n * channels {
                        store(r, x, n, k, _mm512_castps_si512(spread.apply(k, v)));
                    }
                }
            });
        }
    }
}
