//! Images whose coefficients come in several scans: progressive ones, and sequential ones with a scan for each
//! component. All coefficients of the image are held until the last scan was read.

use crate::entropy::{Entropy, Part, Stream};
use crate::frame::{Frame, Plane};
use crate::header::{File, Header, Process, Scan};
use crate::huffman::PairTables;
use crate::level::Level;
use crate::markers::code;
use crate::memory::Ask;
use crate::options::Options;
use crate::progressive;
use crate::sequential::{self, Block, GROUP};
use crate::smoothing::{Blocks, Progress};
use crate::{Error, Limits, Result, Scale};

/// Most blocks that an MCU may have: T.81 B.2.3.
pub(crate) const MAX_MCU_BLOCKS: usize = 10;

/// All coefficients of an image.
#[derive(Debug, Default)]
pub(crate) struct Coefficients {
    /// Component after component, block row after block row, in groups; and one more group to write into.
    data: Vec<i16>,
    /// Which coefficients of each block are not zero yet; for progressive images only.
    filled: Vec<u64>,
    components: [Layout; 4],
    tables: Option<PairTables>,
    /// Blocks of a row of MCUs.
    blocks: Vec<Block>,
}

/// Where a component's coefficients lie.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    start: usize,
    groups: usize,
    /// Blocks across that the image reaches.
    columns: usize,
}

impl Layout {
    /// Index of the first coefficient of the block in column `x` and row `y`.
    fn place(&self, x: usize, y: usize) -> usize {
        self.start + (y * self.groups + x / 4) * GROUP + x % 4 * 8
    }
}

impl Coefficients {
    /// Bytes allocated.
    pub(crate) fn capacity(&self) -> usize {
        let tables = if self.tables.is_some() { PairTables::BYTES } else { 0 };
        2 * self.data.capacity()
            + 8 * self.filled.capacity()
            + size_of::<Block>() * self.blocks.capacity()
            + tables
    }

    /// The groups of block row `row` of component `c` that hold the blocks `from..to`.
    pub(crate) fn groups(&mut self, c: usize, row: usize, from: usize, to: usize) -> &mut [i16] {
        let layout = &self.components[c];
        let start = layout.start + (row * layout.groups + from / 4) * GROUP;
        let end = layout.start + (row * layout.groups + to.div_ceil(4)) * GROUP;
        &mut self.data[start..end]
    }

    /// Blocks that the image reaches in a row of component `c`.
    pub(crate) fn columns(&self, c: usize) -> usize {
        self.components[c].columns
    }

    /// Reads all scans, or the first only of images that have all in it; gives the components' quantization tables,
    /// zeros for those without a scan.
    pub(crate) fn read(
        &mut self,
        level: Level,
        bytes: &[u8],
        file: File<'_>,
        entropy: &mut Entropy,
        options: &Options<'_>,
        only_first: bool,
    ) -> Result<[[u16; 64]; 4]> {
        let File { header, mut tables, mut scan, mut markers } = file;
        let frame = Frame::new(&header, Scale::Full);
        let blocks = self.allocate(&frame, header.process == Process::Progressive, options)?;
        // A scan of one component has an MCU for each block.
        let most_mcus = blocks.iter().sum::<u64>() as usize;
        let (mut quant, mut seen): ([Option<[u16; 64]>; 4], _) = ([None; 4], [false; 4]);
        let (mut scans, mut visits) = (0, 0);
        let mut progress = Progress::new();
        loop {
            scans += 1;
            Limits::check("has", scans, u64::from(options.limits.max_scans), "scans")?;
            visits += scan.members().iter().map(|member| blocks[member.component]).sum::<u64>();
            Limits::check("visits", visits, options.limits.max_block_visits, "blocks in its scans")?;
            for member in scan.members() {
                // The table counts that is there when the component comes up first.
                if quant[member.component].is_none() {
                    quant[member.component] = Some(tables.quant_of(&header, member.component)?);
                }
            }
            let interval = usize::from(tables.restart_interval);
            let part = Part { start: markers.at(), end: bytes.len(), interval, mcus: most_mcus };
            entropy.load(level, bytes, part, options.ask)?;
            let mut stream = Stream::new(entropy, interval);
            if header.process == Process::Progressive {
                let decoder = progressive::ScanDecoder::new(&scan, &tables)?;
                progress.scan(&scan);
                // A scan of one component has several rows of blocks to a row of MCUs.
                let rows = match scan.members() {
                    [member] => usize::from(header.components()[member.component].vertical),
                    _ => 1,
                };
                let mut row = 0;
                let mut filled = std::mem::take(&mut self.filled);
                let visited = self.visit(&frame, &scan, |blocks, mcu, data| {
                    decoder.run(level, &mut stream, blocks, mcu, data, &mut filled);
                    if std::mem::take(&mut stream.fed) {
                        progress.last_fed = row / rows;
                    }
                    row += 1;
                });
                self.filled = filled;
                visited?;
            } else {
                let mut pairs = self.tables.take().unwrap_or_default();
                for (i, member) in scan.members().iter().enumerate() {
                    pairs.build(i, tables.huffman(false, member.dc)?, tables.huffman(true, member.ac)?);
                }
                let again = scan.members().iter().any(|member| seen[member.component]);
                let visited = self.visit(&frame, &scan, |blocks, mcu, data| {
                    if !again {
                        return sequential::decode_mcus(level, &mut stream, blocks, mcu, &pairs, data);
                    }
                    for one in blocks.chunks(mcu) {
                        let mut after = stream.clone();
                        after.take(1);
                        if after.exhausted {
                            stream = after;
                            continue;
                        }
                        let before = take_blocks(one, data);
                        sequential::decode_mcus(level, &mut stream, one, mcu, &pairs, data);
                        put_below(one, data, &before);
                    }
                });
                self.tables = Some(pairs);
                visited?;
            }
            scan.members().iter().for_each(|member| seen[member.component] = true);
            if only_first {
                return Ok(quant.map(|table| table.unwrap_or([0; 64])));
            }
            markers.seek(stream.raw_end());
            loop {
                let segment = markers.next()?;
                if tables.read(&segment)? {
                    continue;
                }
                match segment.code {
                    code::SOS => {
                        scan = Scan::read(&segment, &header)?;
                        break;
                    }
                    code::EOI => {
                        let quant = quant.map(|table| table.unwrap_or([0; 64]));
                        self.smooth(&header, &frame, &quant, &progress, options.ask)?;
                        return Ok(quant);
                    }
                    code::SOF0..=0xCF => {
                        return Err(Error::corrupt("JPEG has two frame headers").at(segment.offset));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Estimates what the scans of a progressive image did not bring.
    fn smooth(
        &mut self,
        header: &Header,
        frame: &Frame,
        quant: &[[u16; 64]; 4],
        progress: &Progress,
        ask: Ask<'_>,
    ) -> Result<()> {
        if header.process != Process::Progressive {
            return Ok(());
        }
        let Some(smoothing) = progress.smoothing(header, quant) else { return Ok(()) };
        let mut dc = Vec::new();
        for (c, plane) in frame.all_planes().iter().enumerate() {
            let layout = self.components[c];
            let per_mcu = usize::from(header.components()[c].vertical);
            let blocks = Blocks { component: c, size: plane.blocks, per_mcu, quant: &quant[c] };
            dc.clear();
            ask.reserve(&mut dc, plane.blocks.0 * blocks.padded_rows())?;
            for y in 0..blocks.padded_rows() {
                // Where a component is alone there are no blocks to fill up MCUs: they count as zeros.
                let there = y < frame.mcus.1 * plane.v;
                let value = |x| if there { self.data[layout.place(x, y)] } else { 0 };
                dc.extend((0..plane.blocks.0).map(value));
            }
            let data = &mut self.data;
            smoothing.run(&blocks, &dc, |x, y, place, value| {
                let coefficient = &mut data[layout.place(x, y) + place / 8 * 32 + place % 8];
                if place == 0 || *coefficient == 0 {
                    *coefficient = value;
                }
            });
        }
        Ok(())
    }

    /// Makes room for all coefficients, zeroed; says how many blocks each component has.
    fn allocate(&mut self, frame: &Frame, progressive: bool, options: &Options<'_>) -> Result<[u64; 4]> {
        let Options { limits, ask, .. } = options;
        let (mut total, mut blocks) = (0, [0; 4]);
        for (c, plane) in frame.all_planes().iter().enumerate() {
            let (groups, rows) = ((frame.mcus.0 * plane.h).div_ceil(4), frame.mcus.1 * plane.v);
            self.components[c] = Layout { start: total, groups, columns: plane.blocks.0 };
            total += groups * rows * GROUP;
            blocks[c] = (frame.mcus.0 * plane.h * rows) as u64;
        }
        Limits::check("takes", 2 * total as u64, limits.max_coefficient_bytes, "bytes of coefficients")?;
        ask.zeroed(&mut self.data, total + GROUP)?;
        ask.zeroed(&mut self.filled, if progressive { total / 64 } else { 0 })?;
        Ok(blocks)
    }

    /// Calls `decode` with the blocks of each row of MCUs, how many blocks an MCU has, and all coefficients.
    fn visit(
        &mut self,
        frame: &Frame,
        scan: &Scan,
        mut decode: impl FnMut(&[Block], usize, &mut [i16]),
    ) -> Result<()> {
        let planes = frame.all_planes();
        if let [member] = scan.members() {
            // A scan of one component goes block by block, and leaves out blocks that are padding only.
            let (columns, rows) = planes[member.component].blocks;
            let layout = self.components[member.component];
            for y in 0..rows {
                self.blocks.clear();
                self.blocks.extend((0..columns).map(|x| Block {
                    table: 0,
                    component: 0,
                    place: layout.place(x, y) as u32,
                }));
                decode(&self.blocks, 1, &mut self.data);
            }
            return Ok(());
        }
        let mcu_blocks: usize =
            scan.members().iter().map(|m| planes[m.component].h * planes[m.component].v).sum();
        check_mcu(mcu_blocks)?;
        for y in 0..frame.mcus.1 {
            self.blocks.clear();
            for x in 0..frame.mcus.0 {
                for (i, member) in scan.members().iter().enumerate() {
                    let Plane { h, v, .. } = planes[member.component];
                    let layout = self.components[member.component];
                    for row in y * v..(y + 1) * v {
                        self.blocks.extend((x * h..(x + 1) * h).map(|column| Block {
                            table: i as u8,
                            component: i as u8,
                            place: layout.place(column, row) as u32,
                        }));
                    }
                }
            }
            decode(&self.blocks, mcu_blocks, &mut self.data);
        }
        Ok(())
    }
}

/// The coefficients of an MCU's blocks, which are zeroed.
fn take_blocks(mcu: &[Block], data: &mut [i16]) -> [[i16; 64]; MAX_MCU_BLOCKS] {
    let mut taken = [[0; 64]; MAX_MCU_BLOCKS];
    for (block, coefficients) in mcu.iter().zip(&mut taken) {
        for (i, coefficient) in coefficients.iter_mut().enumerate() {
            *coefficient = std::mem::take(&mut data[block.place as usize + i / 8 * 32 + i % 8]);
        }
    }
    taken
}

/// Where a second sequential scan of the same blocks left zeros, other than for DC, the first one holds, as in libjpeg.
fn put_below(mcu: &[Block], data: &mut [i16], before: &[[i16; 64]; MAX_MCU_BLOCKS]) {
    for (block, before) in mcu.iter().zip(before) {
        for (i, &coefficient) in before.iter().enumerate().skip(1) {
            let now = &mut data[block.place as usize + i / 8 * 32 + i % 8];
            if *now == 0 {
                *now = coefficient;
            }
        }
    }
}

/// Refuses MCUs of more blocks than the standard allows.
pub(crate) fn check_mcu(blocks: usize) -> Result<()> {
    if blocks <= MAX_MCU_BLOCKS {
        return Ok(());
    }
    Err(Error::corrupt(format!("JPEG has MCUs of {blocks} blocks; the standard allows {MAX_MCU_BLOCKS}")))
}
