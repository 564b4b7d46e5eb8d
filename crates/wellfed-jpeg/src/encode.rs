//! [`encode`]: pixels to a baseline file whose pixels are those of what libjpeg-turbo writes with its defaults.
//!
//! That is: luma at full size and chroma at half of it across and down, the accurate DCT, and the tables of the
//! standard's annex K scaled by a quality. Only the Huffman codes are others: all values of a kind are equally long, since
//! such files are made to be decoded at once. [`encode_compact`] has the shortest codes for the image, for files to keep.

use crate::header::ZIGZAG;
use crate::{Error, ErrorKind, Result};

/// Most pixels a side, as in libjpeg.
const MAX_SIDE: usize = 65_500;

/// Longest code of a block: a sign of 8 bits and a value of up to 11 for each coefficient, all bytes of it stuffed.
const BLOCK_BYTES: usize = 2 * 64 * 19 / 8;

/// Segments before the scan and the end marker.
const HEADER_BYTES: usize = 1024;

/// Annex K's quantization of luma, row by row.
const LUMA: [u16; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17,
    22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78,
    87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
];

/// Annex K's quantization of chroma.
const CHROMA: [u16; 64] = [
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
];

/// Bytes that [`encode`] may write for an image.
pub fn most_bytes(height: usize, width: usize, channels: usize) -> usize {
    let blocks = if channels == 3 {
        height.div_ceil(16).saturating_mul(width.div_ceil(16)).saturating_mul(6)
    } else {
        height.div_ceil(8).saturating_mul(width.div_ceil(8))
    };
    blocks.saturating_mul(BLOCK_BYTES).saturating_add(HEADER_BYTES)
}

/// Writes interleaved pixels (grey or RGB) as a JPEG of a quality, 1 to 100, into `out`, whose content is replaced.
///
/// ```
/// use wellfed_jpeg::{Decoder, Options, encode};
///
/// let mut file = Vec::new();
/// encode(&[128; 10 * 20 * 3], (10, 20, 3), 75, &mut file)?;
/// let image = Decoder::new().decode(&file, &Options::default())?;
/// assert_eq!(image.pixels, [128; 10 * 20 * 3]);
/// # Ok::<(), wellfed_jpeg::Error>(())
/// ```
///
/// # Errors
/// `Argument` for a quality, a size or a number of channels that there is not; `Memory` if there is none for the file.
pub fn encode(
    pixels: &[u8],
    (height, width, channels): (usize, usize, usize),
    quality: u8,
    out: &mut Vec<u8>,
) -> Result<()> {
    check(pixels, (height, width, channels), quality)?;
    let most = most_bytes(height, width, channels);
    out.clear();
    out.try_reserve(most).map_err(|_| no_memory(most))?;
    let image = Source { pixels, height, width, channels };
    let tables = [LUMA, CHROMA].map(|table| scaled(&table, quality));
    write_headers(&image, &tables, &fixed_codes(), out);
    let mut scan = Scan { into: Fixed(Bits { out, bits: 0, filled: 0 }), before: [0; 3] };
    image.scan(&tables, &mut scan)?;
    scan.into.0.finish();
    out.extend([0xFF, 0xD9]);
    Ok(())
}

/// As [`encode`], to the same pixels, with the Huffman codes that make this file shortest (libjpeg's `optimize_coding`).
/// Takes about twice as long, and 4 bytes of memory for each coefficient that is not zero.
///
/// ```
/// use wellfed_jpeg::{Decoder, Options, encode, encode_compact};
///
/// let pixels: Vec<u8> = (0..64 * 64 * 3).map(|i| (i % 251) as u8).collect();
/// let (mut file, mut compact) = (Vec::new(), Vec::new());
/// encode(&pixels, (64, 64, 3), 90, &mut file)?;
/// encode_compact(&pixels, (64, 64, 3), 90, &mut compact)?;
/// assert!(compact.len() < file.len());
/// let decode = |file: &[u8]| Decoder::new().decode(file, &Options::default());
/// assert_eq!(decode(&compact)?.pixels, decode(&file)?.pixels);
/// # Ok::<(), wellfed_jpeg::Error>(())
/// ```
///
/// # Errors
/// As [`encode`].
pub fn encode_compact(
    pixels: &[u8],
    (height, width, channels): (usize, usize, usize),
    quality: u8,
    out: &mut Vec<u8>,
) -> Result<()> {
    check(pixels, (height, width, channels), quality)?;
    let image = Source { pixels, height, width, channels };
    let tables = [LUMA, CHROMA].map(|table| scaled(&table, quality));
    let mut scan = Scan { into: Counted::default(), before: [0; 3] };
    image.scan(&tables, &mut scan)?;
    let Counted { counts, tokens } = scan.into;
    // Grey images have no symbols of chroma, and so no tables for them.
    let codes: Vec<Codes> = (0..4).map(|number| Codes::shortest(class_of(number), &counts[number])).collect();
    // Every byte of codes may be followed by a zero.
    let bits: u64 = (codes.iter().zip(&counts))
        .map(|(codes, counts)| {
            (0..256)
                .map(|s| u64::from(counts[s]) * (u64::from(codes.lengths[s]) + s as u64 % 16))
                .sum::<u64>()
        })
        .sum();
    let most = usize::try_from(bits / 4).unwrap_or(usize::MAX).saturating_add(2 * HEADER_BYTES);
    out.clear();
    out.try_reserve(most).map_err(|_| no_memory(most))?;
    write_headers(&image, &tables, &codes, out);
    let mut bits = Bits { out, bits: 0, filled: 0 };
    for token in tokens {
        let (number, symbol) = ((token >> 30) as usize, (token >> 16) as u8);
        let codes = &codes[number];
        bits.put(codes.codes[usize::from(symbol)].into(), codes.lengths[usize::from(symbol)].into());
        bits.put(token & 0xFFFF, u32::from(symbol % 16));
    }
    bits.finish();
    out.extend([0xFF, 0xD9]);
    Ok(())
}

fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::Memory, format!("no memory for {bytes} bytes of a JPEG"))
}

fn check(pixels: &[u8], (height, width, channels): (usize, usize, usize), quality: u8) -> Result<()> {
    let wrong = |what: String| Err(Error::new(ErrorKind::Argument, what));
    if !(1..=100).contains(&quality) {
        return wrong(format!("quality is {quality}; must be 1 to 100"));
    }
    let sides = 1..=MAX_SIDE;
    if !sides.contains(&height) || !sides.contains(&width) || !matches!(channels, 1 | 3) {
        return wrong(format!(
            "an image of {height}x{width}x{channels} is no JPEG: sides are 1 to {MAX_SIDE}, channels 1 or 3"
        ));
    }
    if pixels.len() != height * width * channels {
        return wrong(format!("{} bytes are no image of {height}x{width}x{channels}", pixels.len()));
    }
    Ok(())
}

/// libjpeg's `jpeg_quality_scaling` and `jpeg_add_quant_table`.
fn scaled(table: &[u16; 64], quality: u8) -> [u16; 64] {
    let quality = u32::from(quality);
    let percent = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
    table.map(|step| ((u32::from(step) * percent + 50) / 100).clamp(1, 255) as u16)
}

/// Run and size of every value of a coefficient that is not the first of its block; then the end of a block, and a run of
/// 16 zeros. Its place is its code, of 8 bits.
fn values() -> impl Iterator<Item = u8> {
    (0..16u8).flat_map(|run| (1..=10u8).map(move |size| run << 4 | size)).chain([END, ZEROS])
}

/// No more coefficients of this block.
const END: u8 = 0x00;
/// 16 coefficients that are zero.
const ZEROS: u8 = 0xF0;

/// Numbers of tables, of luma and of chroma: of the first coefficients of blocks, and of the others.
const FIRST: [usize; 2] = [0, 1];
const OTHERS: [usize; 2] = [2, 3];

/// Class and number of a table, as a segment has them.
fn class_of(number: usize) -> u8 {
    [0x00, 0x01, 0x10, 0x11][number]
}

/// A table of Huffman codes.
struct Codes {
    class: u8,
    /// How many codes there are of 1 to 16 bits.
    counts: [u8; 16],
    /// Symbols in the order of their codes.
    symbols: Vec<u8>,
    codes: [u16; 256],
    lengths: [u8; 256],
}

impl Codes {
    fn new(class: u8, counts: [u8; 16], symbols: Vec<u8>) -> Self {
        let mut this = Self { class, counts, symbols, codes: [0; 256], lengths: [0; 256] };
        let (mut code, mut next) = (0u32, this.symbols.iter());
        for (length, count) in (1..).zip(counts) {
            for &symbol in next.by_ref().take(count.into()) {
                this.codes[usize::from(symbol)] = code as u16;
                this.lengths[usize::from(symbol)] = length;
                code += 1;
            }
            code <<= 1;
        }
        this
    }

    /// The shortest codes for symbols that occur so often: libjpeg's `jpeg_gen_optimal_table`, which is the standard's annex
    /// K.2.
    fn shortest(class: u8, counts: &[u32; 256]) -> Self {
        // One more symbol takes the code of all ones, which no other may have.
        let mut weights: Vec<u64> = counts.iter().map(|count| u64::from(*count)).chain([1]).collect();
        let mut lengths = [0usize; 257];
        // Symbols of one tree are a chain.
        let mut next: [Option<usize>; 257] = [None; 257];
        loop {
            let least = |weights: &[u64], but: Option<usize>| {
                let there = (0..257).filter(|i| weights[*i] > 0 && Some(*i) != but);
                // Of equal ones the last.
                there.min_by_key(|i| (weights[*i], 257 - i))
            };
            let Some(first) = least(&weights, None) else { break };
            let Some(second) = least(&weights, Some(first)) else { break };
            weights[first] += weights[second];
            weights[second] = 0;
            let longer = |mut at: usize, lengths: &mut [usize; 257]| loop {
                lengths[at] += 1;
                match next[at] {
                    Some(following) => at = following,
                    None => return at,
                }
            };
            let end = longer(first, &mut lengths);
            longer(second, &mut lengths);
            next[end] = Some(second);
        }
        let mut by_length = [0u32; 258];
        lengths.iter().filter(|length| **length > 0).for_each(|length| by_length[*length] += 1);
        // No code may have more than 16 bits: two that have more become one that is a bit shorter, and another one that is
        // short enough becomes two.
        for length in (17..by_length.len()).rev() {
            while by_length[length] > 0 {
                let mut shorter = length - 2;
                while by_length[shorter] == 0 {
                    shorter -= 1;
                }
                by_length[length] -= 2;
                by_length[length - 1] += 1;
                by_length[shorter + 1] += 2;
                by_length[shorter] -= 1;
            }
        }
        // The code of all ones is one of the longest.
        if let Some(longest) = by_length[..=16].iter_mut().rev().find(|count| **count > 0) {
            *longest -= 1;
        }
        let mut symbols: Vec<u8> = (0..=255u8).filter(|symbol| lengths[usize::from(*symbol)] > 0).collect();
        symbols.sort_by_key(|symbol| lengths[usize::from(*symbol)]);
        let counts = std::array::from_fn(|i| by_length[i + 1] as u8);
        Self::new(class, counts, symbols)
    }
}

/// First coefficients: 12 codes of 4 bits; others: 162 of 8 bits.
fn fixed_codes() -> [Codes; 2] {
    let codes = |class: u8, length: usize, symbols: Vec<u8>| {
        let mut counts = [0; 16];
        counts[length - 1] = symbols.len() as u8;
        Codes::new(class, counts, symbols)
    };
    [codes(0x00, 4, (0..12).collect()), codes(0x10, 8, values().collect())]
}

/// Segments before the scan, which has tables of its own for chroma where there are four.
fn write_headers(image: &Source<'_>, tables: &[[u16; 64]; 2], codes: &[Codes], out: &mut Vec<u8>) {
    let components = image.channels;
    let kinds = if components == 3 { 2 } else { 1 };
    let mut segment = |marker: u8, content: &[u8]| {
        out.extend([0xFF, marker]);
        if !content.is_empty() {
            out.extend((content.len() as u16 + 2).to_be_bytes());
            out.extend(content);
        }
    };
    segment(0xD8, &[]);
    segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    for (kind, table) in tables.iter().enumerate().take(kinds) {
        let steps = ZIGZAG.iter().map(|&place| table[usize::from(place)] as u8);
        segment(0xDB, &std::iter::once(kind as u8).chain(steps).collect::<Vec<u8>>());
    }
    let mut frame = vec![8];
    frame.extend((image.height as u16).to_be_bytes());
    frame.extend((image.width as u16).to_be_bytes());
    frame.push(components as u8);
    for component in 0..components as u8 {
        // Twice as many samples of luma across and down as of chroma.
        let luma = component == 0 && components == 3;
        frame.extend([component + 1, if luma { 0x22 } else { 0x11 }, component.min(1)]);
    }
    segment(0xC0, &frame);
    for Codes { class, counts, symbols, .. } in codes.iter().filter(|codes| !codes.symbols.is_empty()) {
        segment(0xC4, &[&[*class][..], counts, symbols].concat());
    }
    let mut scan = vec![components as u8];
    for component in 0..components as u8 {
        let own = codes.len() == 4 && component > 0;
        scan.extend([component + 1, if own { 0x11 } else { 0x00 }]);
    }
    scan.extend([0, 63, 0]);
    segment(0xDA, &scan);
}

/// The pixels, without an end: beyond the last column and row these are repeated.
struct Source<'a> {
    pixels: &'a [u8],
    height: usize,
    width: usize,
    channels: usize,
}

impl Source<'_> {
    /// All blocks, in the order of the file.
    fn scan(&self, tables: &[[u16; 64]; 2], scan: &mut Scan<impl Symbols>) -> Result<()> {
        let (height, width) = (self.height, self.width);
        let side = if self.channels == 1 { 8 } else { 16 };
        for top in (0..height).step_by(side) {
            // 6 blocks of 16 x 16 pixels.
            scan.into.reserve(width.div_ceil(side) * 6 * 65)?;
            for left in (0..width).step_by(side) {
                if self.channels == 1 {
                    scan.block(0, &tables[0], |y, x| self.pixel(top + y, left + x)[0]);
                } else {
                    self.mcu((top, left), tables, scan);
                }
            }
        }
        Ok(())
    }

    fn pixel(&self, y: usize, x: usize) -> &[u8] {
        let (y, x) = (y.min(self.height - 1), x.min(self.width - 1));
        &self.pixels[(y * self.width + x) * self.channels..]
    }

    /// The six blocks of 16 x 16 pixels, four of luma and two of chroma.
    fn mcu(&self, (top, left): (usize, usize), tables: &[[u16; 64]; 2], scan: &mut Scan<impl Symbols>) {
        let mut luma = [[0u8; 16]; 16];
        for (y, row) in luma.iter_mut().enumerate() {
            for (x, value) in row.iter_mut().enumerate() {
                let pixel = self.pixel(top + y, left + x);
                *value = ycc(pixel[0], pixel[1], pixel[2])[0];
            }
        }
        for (y0, x0) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
            // A block without a pixel has the first coefficient of the one before it, and no others.
            if top + y0 >= self.height.next_multiple_of(8) || left + x0 >= self.width.next_multiple_of(8) {
                scan.empty();
            } else {
                scan.block(0, &tables[0], |y, x| luma[y0 + y][x0 + x]);
            }
        }
        let chroma: [[u8; 2]; 64] = std::array::from_fn(|i| {
            let (y, x) = (i / 8, i % 8);
            // Rows of chroma that the image does not have are the last one that it has.
            let row = 2 * (top / 2 + y).min(self.height.div_ceil(2) - 1);
            // Rounded up and down in turns, as in libjpeg.
            let mut sums = [1 + x as u16 % 2; 2];
            for (dy, dx) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let pixel = self.pixel(row + dy, left + 2 * x + dx);
                let [_, cb, cr] = ycc(pixel[0], pixel[1], pixel[2]);
                sums = [sums[0] + u16::from(cb), sums[1] + u16::from(cr)];
            }
            sums.map(|sum| (sum >> 2) as u8)
        });
        scan.block(1, &tables[1], |y, x| chroma[8 * y + x][0]);
        scan.block(2, &tables[1], |y, x| chroma[8 * y + x][1]);
    }
}

/// libjpeg's `rgb_ycc_convert`: 16 bits behind the point.
fn ycc(r: u8, g: u8, b: u8) -> [u8; 3] {
    let [r, g, b] = [r, g, b].map(i32::from);
    const HALF: i32 = 1 << 15;
    const OFFSET: i32 = (128 << 16) + HALF - 1;
    [
        (19_595 * r + 38_470 * g + 7_471 * b + HALF) >> 16,
        (-11_059 * r - 21_709 * g + 32_768 * b + OFFSET) >> 16,
        (32_768 * r - 27_439 * g - 5_329 * b + OFFSET) >> 16,
    ]
    .map(|v| v as u8)
}

/// Bits of the scan.
struct Bits<'a> {
    out: &'a mut Vec<u8>,
    /// Bits that are not written yet, at the lower end.
    bits: u64,
    filled: u32,
}

impl Bits<'_> {
    fn put(&mut self, value: u32, bits: u32) {
        self.bits = self.bits << bits | u64::from(value);
        self.filled += bits;
        while self.filled >= 8 {
            self.filled -= 8;
            let byte = (self.bits >> self.filled) as u8;
            self.out.push(byte);
            if byte == 0xFF {
                self.out.push(0);
            }
        }
    }

    /// Fills the last byte with ones.
    fn finish(&mut self) {
        if self.filled > 0 {
            self.put(0x7F, 7);
        }
    }
}

/// Takes what the blocks are coded as.
trait Symbols {
    /// There may be so many more.
    fn reserve(&mut self, symbols: usize) -> Result<()>;

    /// A symbol of a table, and the bits that follow it: as many as its lower half says.
    fn add(&mut self, table: usize, symbol: u8, bits: u32);
}

/// Writes codes that are all equally long.
struct Fixed<'a>(Bits<'a>);

impl Symbols for Fixed<'_> {
    fn reserve(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn add(&mut self, table: usize, symbol: u8, bits: u32) {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol % 16));
        match symbol {
            _ if FIRST.contains(&table) => self.0.put(size, 4),
            END => self.0.put(160, 8),
            ZEROS => self.0.put(161, 8),
            _ => self.0.put(run * 10 + size - 1, 8),
        }
        self.0.put(bits, size);
    }
}

/// Counts symbols, and keeps them.
struct Counted {
    counts: [[u32; 256]; 4],
    /// Table in 2 bits, symbol in 8 of 14, bits in 16.
    tokens: Vec<u32>,
}

impl Default for Counted {
    fn default() -> Self {
        Self { counts: [[0; 256]; 4], tokens: Vec::new() }
    }
}

impl Symbols for Counted {
    fn reserve(&mut self, symbols: usize) -> Result<()> {
        self.tokens.try_reserve(symbols).map_err(|_| no_memory(4 * (self.tokens.len() + symbols)))
    }

    fn add(&mut self, table: usize, symbol: u8, bits: u32) {
        self.counts[table][usize::from(symbol)] += 1;
        self.tokens.push((table as u32) << 30 | u32::from(symbol) << 16 | bits);
    }
}

/// The blocks of the scan.
struct Scan<S> {
    into: S,
    /// First coefficients of the last blocks of the components.
    before: [i32; 3],
}

impl<S: Symbols> Scan<S> {
    /// The size and the bits of a value, as the standard has them: negative ones count down from all ones.
    fn sized(value: i32) -> (u32, u32) {
        let size = 32 - value.unsigned_abs().leading_zeros();
        let bits = value - i32::from(value < 0);
        (size, bits as u32 & ((1 << size) - 1))
    }

    fn block(&mut self, component: usize, table: &[u16; 64], sample: impl Fn(usize, usize) -> u8) {
        let mut block = [0i32; 64];
        for (i, value) in block.iter_mut().enumerate() {
            *value = i32::from(sample(i / 8, i % 8)) - 128;
        }
        transform(&mut block);
        // The transform's results are 8 times too large.
        let quantized = |place: usize| {
            let step = i32::from(table[place]) << 3;
            let value = (block[place].abs() + step / 2) / step;
            if block[place] < 0 { -value } else { value }
        };
        let first = quantized(0);
        let (size, bits) = Self::sized(first - self.before[component]);
        self.before[component] = first;
        let kind = component.min(1);
        self.into.add(FIRST[kind], size as u8, bits);
        let mut zeros = 0;
        for &place in &ZIGZAG[1..] {
            let value = quantized(usize::from(place)).clamp(-1023, 1023);
            if value == 0 {
                zeros += 1;
                continue;
            }
            while zeros > 15 {
                self.into.add(OTHERS[kind], ZEROS, 0);
                zeros -= 16;
            }
            let (size, bits) = Self::sized(value);
            self.into.add(OTHERS[kind], (zeros << 4 | size) as u8, bits);
            zeros = 0;
        }
        if zeros > 0 {
            self.into.add(OTHERS[kind], END, 0);
        }
    }

    /// A block of luma that no pixel lies in.
    fn empty(&mut self) {
        self.into.add(FIRST[0], 0, 0);
        self.into.add(OTHERS[0], END, 0);
    }
}

/// The accurate forward DCT of 8 x 8 samples, times 8 (libjpeg's `jpeg_fdct_islow`).
fn transform(block: &mut [i32; 64]) {
    const BITS: i32 = 13;
    const PASS: i32 = 2;
    let descale = |x: i32, by: i32| (x + (1 << (by - 1))) >> by;
    for pass in 0..2 {
        let (stride, step) = if pass == 0 { (8, 1) } else { (1, 8) };
        for line in 0..8 {
            let at = |i: usize| line * stride + i * step;
            let d: [i32; 8] = std::array::from_fn(|i| block[at(i)]);
            let [t0, t1, t2, t3] = [0, 1, 2, 3].map(|i| d[i] + d[7 - i]);
            let [t7, t6, t5, t4] = [0, 1, 2, 3].map(|i| d[i] - d[7 - i]);
            let (t10, t13, t11, t12) = (t0 + t3, t0 - t3, t1 + t2, t1 - t2);
            let (even, by) = if pass == 0 {
                ([(t10 + t11) << PASS, (t10 - t11) << PASS], BITS - PASS)
            } else {
                ([descale(t10 + t11, PASS), descale(t10 - t11, PASS)], BITS + PASS)
            };
            let z1 = (t12 + t13) * 4433;
            let (out2, out6) = (z1 + t13 * 6270, z1 - t12 * 15_137);
            let (z1, z2, z3, z4) = (t4 + t7, t5 + t6, t4 + t6, t5 + t7);
            let z5 = (z3 + z4) * 9633;
            let (z1, z2) = (-z1 * 7373, -z2 * 20_995);
            let (z3, z4) = (z5 - z3 * 16_069, z5 - z4 * 3196);
            block[at(0)] = even[0];
            block[at(4)] = even[1];
            block[at(2)] = descale(out2, by);
            block[at(6)] = descale(out6, by);
            block[at(7)] = descale(t4 * 2446 + z1 + z3, by);
            block[at(5)] = descale(t5 * 16_819 + z2 + z4, by);
            block[at(3)] = descale(t6 * 25_172 + z2 + z3, by);
            block[at(1)] = descale(t7 * 12_299 + z1 + z4, by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, Options};

    fn pixels(count: usize) -> Vec<u8> {
        (0..count).map(|i| ((i * i / 7) ^ (i * 3)) as u8).collect()
    }

    fn again(size: (usize, usize, usize), quality: u8) -> Vec<u8> {
        let mut file = vec![1, 2, 3];
        encode(&pixels(size.0 * size.1 * size.2), size, quality, &mut file).unwrap();
        assert!(file.len() <= most_bytes(size.0, size.1, size.2), "{} bytes", file.len());
        let image = Decoder::new().decode(&file, &Options::default()).unwrap();
        assert_eq!((image.height, image.width, image.channels), size);
        let fixed = file.len();
        encode_compact(&pixels(size.0 * size.1 * size.2), size, quality, &mut file).unwrap();
        assert!(size.0 * size.1 < 500 || file.len() < fixed, "{} bytes instead of {fixed}", file.len());
        assert_eq!(Decoder::new().decode(&file, &Options::default()).unwrap().pixels, image.pixels);
        image.pixels
    }

    #[test]
    fn the_shortest_codes_have_at_most_16_bits_and_leave_out_all_ones() {
        // Fibonacci's numbers make the deepest tree that there is.
        let mut deep = [0u32; 256];
        let (mut a, mut b) = (1, 1);
        for count in deep.iter_mut().take(40) {
            *count = a;
            (a, b) = (b, a + b);
        }
        let mut even = [0u32; 256];
        even.fill(7);
        let mut one = [0u32; 256];
        one[9] = 5;
        for counts in [deep, even, one] {
            let codes = Codes::shortest(0, &counts);
            let there = counts.iter().filter(|count| **count > 0).count();
            assert_eq!(
                (codes.symbols.len(), codes.counts.iter().map(|c| usize::from(*c)).sum()),
                (there, there)
            );
            // Kraft's sum, with one more code of the longest ones.
            let longest = codes.lengths.iter().max().unwrap();
            let taken: u32 = codes.lengths.iter().filter(|l| **l > 0).map(|l| 1 << (16 - l)).sum();
            assert!(*longest <= 16 && taken + (1 << (16 - longest)) <= 1 << 16, "{taken} of {longest} bits");
        }
    }

    /// Every value times its place, counted from 1, of what Pillow 13 reads of what it wrote.
    #[test]
    fn pixels_are_pillows() {
        let mut made = Vec::new();
        for size in [(17, 37, 3), (16, 16, 3), (1, 1, 3), (9, 23, 1), (40, 33, 3)] {
            for quality in [1, 30, 75, 100] {
                let sum =
                    (1u64..).zip(again(size, quality)).map(|(place, v)| place * u64::from(v)).sum::<u64>();
                made.push(sum);
            }
        }
        assert_eq!(made, PILLOW);
    }

    const PILLOW: [u64; 20] = [
        227364247, 226295309, 226685379, 226289868, 38535744, 37791129, 37588944, 37662680, 6, 38, 24, 24,
        2785668, 2718033, 2724110, 2727645, 983971387, 998112092, 996660607, 998567104,
    ];

    #[test]
    fn what_is_no_image_is_refused() {
        let refused = |size: (usize, usize, usize), count, quality| {
            let e = encode(&pixels(count), size, quality, &mut Vec::new()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Argument);
            e.message().to_owned()
        };
        assert!(refused((2, 2, 3), 12, 0).starts_with("quality is 0"));
        assert!(refused((2, 2, 3), 12, 101).starts_with("quality is 101"));
        assert!(refused((2, 2, 3), 11, 50).starts_with("11 bytes"));
        assert!(refused((0, 2, 3), 0, 50).contains("no JPEG"));
        assert!(refused((2, 2, 4), 16, 50).contains("no JPEG"));
        assert!(refused((1, 65_501, 1), 65_501, 50).contains("no JPEG"));
    }
}
