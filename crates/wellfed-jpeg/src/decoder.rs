//! [`Decoder`]: from bytes to pixels.

use crate::ending::{self, Rest};
use crate::entropy::{Entropy, Part, ScanEnd, Stream};
use crate::frame::{Frame, Plane, Window};
use crate::header::{Colour, File, Header};
use crate::huffman::PairTables;
use crate::index::{Point, RowIndex};
use crate::level::Level;
use crate::markers::truncated;
use crate::multiscan::{Coefficients, check_mcu};
use crate::options::{Dct, Info, Options};
use crate::output::{Format, Rows, Sink, Target};
use crate::reconstruct::{Job, Reconstructor};
use crate::sequential::{Block, GROUP};
use crate::walk::Walk;
use crate::{Error, ErrorKind, Limits, Region, Result, Scale, trailer};

/// MCUs that are decoded before their blocks are transformed: few enough for coefficients to stay in the first
/// cache, enough to set up the transform seldom.
const CHUNK: usize = 16;

/// A decoded image: interleaved 8-bit pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Channels.
    pub channels: usize,
    /// `height * width * channels` bytes.
    pub pixels: Vec<u8>,
}

/// Decodes JPEGs, one after the other; keeps tables and memory in between. One for each thread.
#[derive(Debug)]
pub struct Decoder {
    pub(crate) level: Level,
    pub(crate) entropy: Entropy,
    tables: PairTables,
    /// Coefficients of a chunk; all zero between uses.
    chunk: Vec<i16>,
    /// Blocks of a chunk, in the file's order.
    blocks: Vec<Block>,
    pub(crate) coefficients: Coefficients,
    pub(crate) reconstructor: Reconstructor,
    recorded: Option<RowIndex>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder that uses the fastest instructions of this processor.
    pub fn new() -> Self {
        Self::with_level(Level::best())
    }

    /// A decoder that uses `level`, or portable code if the processor lacks it.
    pub fn with_level(level: Level) -> Self {
        let level = if level.is_available() { level } else { Level::Scalar };
        Decoder {
            level,
            entropy: Entropy::default(),
            tables: PairTables::default(),
            chunk: Vec::new(),
            blocks: Vec::new(),
            coefficients: Coefficients::default(),
            reconstructor: Reconstructor::default(),
            recorded: None,
        }
    }

    /// Bytes that this keeps allocated.
    pub fn capacity(&self) -> usize {
        self.entropy.capacity()
            + PairTables::BYTES
            + 2 * self.chunk.capacity()
            + size_of::<Block>() * self.blocks.capacity()
            + self.coefficients.capacity()
            + self.reconstructor.capacity()
    }

    /// Decodes into memory of its own.
    ///
    /// ```
    /// # let bytes = include_bytes!("../tests/images/grey.jpg");
    /// use wellfed_jpeg::{Decoder, Format, Options, Region};
    ///
    /// let mut decoder = Decoder::new();
    /// let region = Some(Region { left: 2, top: 1, width: 5, height: 4 });
    /// let image = decoder.decode(bytes, &Options { region, format: Format::Rgb, ..Options::default() })?;
    /// assert_eq!((image.height, image.width, image.channels), (4, 5, 3));
    /// # Ok::<(), wellfed_jpeg::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Header::parse`]; `Truncated` for a file without its end, unless `tolerant`; `Limit` for too many
    /// pixels, scans or too much memory; `Argument` for a region outside the image; `Unsupported` for inks in
    /// another format than `Native`.
    pub fn decode(&mut self, bytes: &[u8], options: &Options<'_>) -> Result<Image> {
        let file = File::open(bytes, options.tolerant)?;
        let (frame, region, channels) = prepare(&file.header, options)?;
        let Region { width, height, .. } = region;
        let mut pixels = Vec::new();
        options.ask.at_least(&mut pixels, width * height * channels)?;
        let sink = Sink::Interleaved { out: &mut pixels, stride: width * channels };
        self.run(bytes, file, frame, region, options, sink)?;
        Ok(Image { width, height, channels, pixels })
    }

    /// Decodes into the caller's memory: pixel after pixel, rows `stride` bytes apart. Bytes between rows are left
    /// alone.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`], and `Argument` if `out` is too short. After an error `out` holds unspecified
    /// values.
    pub fn decode_into(
        &mut self,
        bytes: &[u8],
        options: &Options<'_>,
        out: &mut [u8],
        stride: usize,
    ) -> Result<Info> {
        let file = File::open(bytes, options.tolerant)?;
        let (frame, region, _) = prepare(&file.header, options)?;
        self.run(bytes, file, frame, region, options, Sink::Interleaved { out, stride })
    }

    /// Decodes into one slice of the caller's for each channel, rows `stride` bytes apart. Slices of channels that
    /// the image does not have may be empty.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`], and `Argument` if a plane is too short.
    pub fn decode_planar(
        &mut self,
        bytes: &[u8],
        options: &Options<'_>,
        planes: [&mut [u8]; 4],
        stride: usize,
    ) -> Result<Info> {
        let file = File::open(bytes, options.tolerant)?;
        let (frame, region, _) = prepare(&file.header, options)?;
        self.run(bytes, file, frame, region, options, Sink::Planar { planes, stride })
    }

    /// Decodes band by band, from top to bottom, and hands each to `function` while it is in the cache: there is
    /// never a whole image in memory, unless the file is progressive.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`]. Damage that is found late comes after bands were given out.
    pub fn decode_rows(
        &mut self,
        bytes: &[u8],
        options: &Options<'_>,
        mut function: impl FnMut(Rows<'_>),
    ) -> Result<Info> {
        let file = File::open(bytes, options.tolerant)?;
        let (frame, region, _) = prepare(&file.header, options)?;
        self.run(bytes, file, frame, region, options, Sink::Bands(&mut function))
    }

    /// The index that the last decode with [`Options::record`] made or made longer, if it did: the rows from the
    /// first to the end of what was decoded. Progressive images have none.
    pub fn take_index(&mut self) -> Option<RowIndex> {
        self.recorded.take()
    }

    pub(crate) fn run(
        &mut self,
        bytes: &[u8],
        file: File<'_>,
        frame: Frame,
        region: Region,
        options: &Options<'_>,
        sink: Sink<'_, '_>,
    ) -> Result<Info> {
        let header = file.header;
        let mut target = Target::new(sink, options.format, header.colour, region.height, region.width)?;
        let channels = target.channels();
        self.recorded = None;
        if file.in_one_scan() {
            self.run_sequential(bytes, file, &frame, region, options, &mut target)?;
        } else {
            let quant = self.coefficients.read(self.level, bytes, file, &mut self.entropy, options, false)?;
            self.finish_coefficients(&header, &frame, region, &quant, &mut target, options)?;
        }
        Ok(Info { width: region.width, height: region.height, channels })
    }

    /// Decodes an image that lies in one scan, row of MCUs after row of MCUs.
    fn run_sequential(
        &mut self,
        bytes: &[u8],
        file: File<'_>,
        frame: &Frame,
        region: Region,
        options: &Options<'_>,
        target: &mut Target<'_, '_>,
    ) -> Result<()> {
        let header = file.header;
        let window = frame.window(region);
        let quant = options.dct.tables(&file.quant()?);
        let mcu_blocks = self.plan(&file, frame)?;
        if mcu_blocks > 1 {
            check_mcu(mcu_blocks)?;
        }
        let (level, columns, components) = (self.level, frame.mcus.0, header.components().len());
        let index = options.index.filter(|index| index.fits(components, columns) && index.matches(bytes));

        // With an index only what the window needs is looked at.
        let first = window.top * columns + window.left;
        let end = (window.bottom - 1) * columns + window.right;
        let from = index.and_then(|index| index.before(first)).map_or(file.markers.at(), Point::byte);
        let to = index.and_then(|index| index.after(end)).map_or(bytes.len(), |to| to.byte() + 2);
        let interval = usize::from(file.tables.restart_interval);
        let part = Part { start: from, end: to.min(bytes.len()), interval, mcus: columns * frame.mcus.1 };
        self.entropy.load(level, bytes, part, options.ask)?;
        if index.is_none() {
            check_end(&self.entropy, bytes, &file, frame, options.tolerant)?;
        }

        let mcu = &self.blocks[..mcu_blocks];
        let more = index.is_none_or(|index| index.rows() < window.bottom);
        let record = (options.record && more).then(|| match index {
            Some(index) => index.clone(),
            None => RowIndex::new(bytes, components, columns),
        });
        let mut walk = Walk::new(Stream::new(&self.entropy, interval), bytes, index, record);
        let job =
            Job { level, frame, colour: header.colour, region, window, quant: &quant, dct: options.dct };
        self.reconstructor.start(&job, (window.right - window.left).next_multiple_of(4), options.ask)?;
        // The row of pixels up to which the output is done.
        let mut done = region.top;
        for row in window.top..window.bottom {
            walk.go_to(level, row * columns + window.left, mcu, &self.tables)?;
            let mut column = window.left;
            while column < window.right {
                let n = CHUNK.min(window.right - column);
                let blocks = &self.blocks[..n * mcu_blocks];
                walk.decode(level, blocks, mcu_blocks, &self.tables, &mut self.chunk);
                let mut at = 0;
                for (c, plane) in frame.all_planes().iter().enumerate() {
                    let stride = CHUNK * plane.h / 4 * GROUP;
                    for v in 0..plane.v {
                        let groups = (n * plane.h).div_ceil(4) * GROUP;
                        let part = &mut self.chunk[at..at + groups];
                        at += stride;
                        if c < frame.planes().len() {
                            let block = (column - window.left) * plane.h;
                            self.reconstructor.transform(&job, c, row * plane.v + v, block, part);
                        } else {
                            part.fill(0);
                        }
                    }
                }
                column += n;
            }
            let ready = Reconstructor::ready(&job, row);
            self.reconstructor.emit(&job, done, ready, target, options.ask)?;
            done = done.max(ready);
        }
        if self.reconstructor.kept.is_some() && walk.record.is_some() {
            // Whoever takes coefficients can do with Huffman codes next time, but only of rows that are known.
            walk.go_to(level, columns * frame.mcus.1, mcu, &self.tables)?;
        }
        self.recorded = walk.record.filter(|record| index.is_none_or(|index| record.extends(index)));
        Ok(())
    }

    /// Turns the coefficients of a whole image into pixels.
    fn finish_coefficients(
        &mut self,
        header: &Header,
        frame: &Frame,
        region: Region,
        quant: &[[u16; 64]; 4],
        target: &mut Target<'_, '_>,
        options: &Options<'_>,
    ) -> Result<()> {
        let (window, ask) = (frame.window(region), options.ask);
        let quant = &options.dct.tables(quant);
        let colour = header.colour;
        let job = Job { level: self.level, frame, colour, region, window, quant, dct: options.dct };
        // Whole groups, which may begin left of the window.
        let left = window.left & !3;
        let job = Job { window: Window { left, ..window }, ..job };
        self.reconstructor.start(&job, (window.right - left).next_multiple_of(4), ask)?;
        let mut done = region.top;
        for row in window.top..window.bottom {
            for (c, plane) in frame.planes().iter().enumerate() {
                for v in 0..plane.v {
                    let groups = self.coefficients.groups(
                        c,
                        row * plane.v + v,
                        left * plane.h,
                        window.right * plane.h,
                    );
                    self.reconstructor.transform(&job, c, row * plane.v + v, 0, groups);
                }
            }
            let ready = Reconstructor::ready(&job, row);
            self.reconstructor.emit(&job, done, ready, target, ask)?;
            done = done.max(ready);
        }
        Ok(())
    }

    /// Builds the lookup tables of a scan with all components, and lists the blocks of a chunk in the file's order;
    /// says how many an MCU has.
    fn plan(&mut self, file: &File<'_>, frame: &Frame) -> Result<usize> {
        // Components mostly share tables: a pair that is used twice is built once.
        let mut pairs: [Option<(usize, usize)>; 4] = [None; 4];
        let mut tables = [0; 4];
        for (table, member) in tables.iter_mut().zip(file.scan.members()) {
            let pair = (member.dc, member.ac);
            let slot = pairs.iter().position(|other| other.is_none_or(|other| other == pair));
            let slot = slot.expect("four components have at most four pairs of tables");
            if pairs[slot].replace(pair).is_none() {
                let dc = file.tables.huffman(false, member.dc)?;
                let ac = file.tables.huffman(true, member.ac)?;
                self.tables.build(slot, dc, ac);
            }
            *table = slot as u8;
        }
        let planes = frame.all_planes();
        let mut starts = [0; 4];
        let mut total = 0;
        for (start, plane) in starts.iter_mut().zip(planes) {
            *start = total;
            total += CHUNK * plane.h / 4 * GROUP * plane.v;
        }
        if self.chunk.len() < total + GROUP {
            self.chunk.resize(total + GROUP, 0);
        }
        self.blocks.clear();
        for x in 0..CHUNK {
            for (&table, member) in tables.iter().zip(file.scan.members()) {
                let (c, component) = (member.component, member.component as u8);
                let Plane { h, v, .. } = planes[c];
                for row in 0..v {
                    self.blocks.extend((x * h..(x + 1) * h).map(|column| {
                        let group = row * CHUNK * h / 4 + column / 4;
                        let place = (starts[c] + group * GROUP + column % 4 * 8) as u32;
                        Block { table, component, place }
                    }));
                }
            }
        }
        Ok(self.blocks.len() / CHUNK)
    }
}

/// Everything that is known before the first scan: geometry, region, channels.
pub(crate) fn prepare(header: &Header, options: &Options<'_>) -> Result<(Frame, Region, usize)> {
    let Header { width, height, colour, .. } = *header;
    let pixels = width as u64 * height as u64;
    Limits::check("has", pixels, options.limits.max_pixels, "pixels")?;
    let channels = options.format.channels(colour)?;
    if options.dct == Dct::Fast && options.scale != Scale::Full {
        let what = "the fast inverse DCT is for scale 1 only";
        return Err(Error::new(ErrorKind::Argument, what));
    }
    let mut frame = Frame::new(header, options.scale);
    if options.format == Format::Grey && colour != Colour::Rgb {
        frame = frame.first_plane_only();
    }
    let region = frame.region(options.region)?;
    Ok((frame, region, channels))
}

/// Refuses files that Pillow refuses for what comes after the rows: those that end before all data were there, and
/// those that go on with what should not be. That the end marker is missing is no matter once there are all rows.
pub(crate) fn check_end(
    entropy: &Entropy,
    bytes: &[u8],
    file: &File<'_>,
    frame: &Frame,
    tolerant: bool,
) -> Result<()> {
    let interval = usize::from(file.tables.restart_interval);
    match entropy.end(interval, frame.mcus.0 * frame.mcus.1) {
        ScanEnd::Marker(end) => trailer::check(bytes, end, &file.header, tolerant),
        ScanEnd::Data { .. } | ScanEnd::Missing if tolerant => Ok(()),
        ScanEnd::Data { start, bits, mcus } => {
            let rest = Rest { bytes, start, bits, mcus };
            if ending::suffices(rest, interval != 0, file, frame)? { Ok(()) } else { Err(truncated(bytes)) }
        }
        ScanEnd::Missing => Err(truncated(bytes)),
    }
}
