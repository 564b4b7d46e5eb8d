//! What comes before the first scan: size, components, tables. [`Header`] is the part that users ask for;
//! [`File`] is what the decoder starts from.
//!
//! What counts as an error, and which colours components mean, is as in libjpeg (`jdmarker.c`, `jdinput.c`,
//! `default_decompress_parms` in jdapimin.c).

use crate::exif::exif_orientation;
use crate::huffman::Spec;
use crate::markers::{Markers, Segment, code};
use crate::{Error, ErrorKind, Result};

/// Longest side of an image, as libjpeg has it (`JPEG_MAX_DIMENSION`).
const MAX_SIDE: usize = 65_500;

/// From the order in the file to rows and columns: T.81 figure A.6.
pub(crate) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// One colour component of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Component {
    /// Identifier by which scans name it.
    pub id: u8,
    /// Horizontal sampling factor, 1 to 4.
    pub horizontal: u8,
    /// Vertical sampling factor, 1 to 4.
    pub vertical: u8,
    /// Quantization table's number.
    pub(crate) quant: u8,
}

/// The colours that the components mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Colour {
    /// One component of brightness.
    Grey,
    /// Brightness and two colour differences (JFIF).
    YCbCr,
    /// Red, green and blue as they are.
    Rgb,
    /// Four inks, as they are.
    Cmyk,
    /// Four inks, of which the first three are coded as YCbCr.
    Ycck,
}

/// How coefficients are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// Baseline sequential (SOF0).
    Baseline,
    /// Extended sequential of 8 bits (SOF1).
    Extended,
    /// Progressive (SOF2).
    Progressive,
}

/// The resolution that a JFIF marker gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Density {
    /// 0: only the ratio is meant; 1: dots an inch; 2: dots a centimetre.
    pub unit: u8,
    /// Horizontal density.
    pub x: u16,
    /// Vertical density.
    pub y: u16,
}

/// What a file says about its image before the pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Columns, as stored (before EXIF orientation).
    pub width: usize,
    /// Rows, as stored.
    pub height: usize,
    /// What the components mean.
    pub colour: Colour,
    /// How they are coded.
    pub process: Process,
    /// EXIF orientation from 1 to 8; 1 if there is none.
    pub orientation: u8,
    /// Resolution of the JFIF marker.
    pub density: Option<Density>,
    /// MCUs between restart markers at the first scan; 0 if there are none.
    pub restart_interval: u16,
    /// An Adobe marker says how inks and colours are coded.
    pub adobe: bool,
    components: [Component; 4],
    count: usize,
}

impl Header {
    /// Reads the markers before the first scan; the rest is not looked at.
    ///
    /// ```
    /// # let bytes = include_bytes!("../tests/images/grey.jpg");
    /// let header = wellfed_jpeg::Header::parse(bytes)?;
    /// println!("{} x {} pixels, {:?}", header.width, header.height, header.colour);
    /// # Ok::<(), wellfed_jpeg::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corrupt` and `Truncated` for damaged markers; `Unsupported` for arithmetic, lossless, hierarchical and
    /// 12-bit images, for 2 or more than 4 components, and for sampling factors that are no multiples.
    pub fn parse(bytes: &[u8]) -> Result<Header> {
        Ok(File::open(bytes, false)?.header)
    }

    /// A header of these parts, without what markers beside the frame header say; `None` if they do not fit each
    /// other.
    pub(crate) fn assemble(
        (width, height): (usize, usize),
        colour: Colour,
        process: Process,
        components: [Component; 4],
        count: usize,
    ) -> Option<Header> {
        let header = Header {
            width,
            height,
            colour,
            process,
            orientation: 1,
            density: None,
            restart_interval: 0,
            adobe: false,
            components,
            count,
        };
        let expected = match colour {
            Colour::Grey => 1,
            Colour::YCbCr | Colour::Rgb => 3,
            Colour::Cmyk | Colour::Ycck => 4,
        };
        if count != expected || !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return None;
        }
        let in_range = |c: &Component| (1..=4).contains(&c.horizontal) && (1..=4).contains(&c.vertical);
        (header.components().iter().all(in_range) && header.are_multiples()).then_some(header)
    }

    /// Whether the largest sampling factors are multiples of all others.
    fn are_multiples(&self) -> bool {
        let (h, v) = self.sampling();
        self.components()
            .iter()
            .all(|c| h % usize::from(c.horizontal) == 0 && v % usize::from(c.vertical) == 0)
    }

    /// The colour components, 1, 3 or 4.
    pub fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    pub(crate) fn components_mut(&mut self) -> &mut [Component] {
        &mut self.components[..self.count]
    }

    /// The largest horizontal and vertical sampling factors.
    pub(crate) fn sampling(&self) -> (usize, usize) {
        let max = |f: fn(&Component) -> u8| self.components().iter().map(f).max().unwrap_or(1);
        (usize::from(max(|c| c.horizontal)), usize::from(max(|c| c.vertical)))
    }
}

/// Tables that a scan may use, as the last definitions left them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// In natural order.
    pub(crate) quant: [Option<[u16; 64]>; 4],
    pub(crate) dc: [Option<Spec>; 4],
    pub(crate) ac: [Option<Spec>; 4],
    pub(crate) restart_interval: u16,
}

impl Tables {
    /// Takes in a segment that defines tables; true if it was one.
    pub(crate) fn read(&mut self, segment: &Segment<'_>) -> Result<bool> {
        let done = match segment.code {
            code::DQT => self.read_quant(&segment.body),
            code::DHT => self.read_huffman(&segment.body),
            code::DRI => match &*segment.body {
                &[high, low] => {
                    self.restart_interval = u16::from_be_bytes([high, low]);
                    Ok(())
                }
                body => Err(Error::corrupt(format!("JPEG restart interval has {} bytes", body.len()))),
            },
            code::DAC => check_arithmetic(&segment.body),
            _ => return Ok(false),
        };
        done.map(|()| true).map_err(|e| e.at(segment.offset))
    }

    /// The quantization table of a component.
    pub(crate) fn quant_of(&self, header: &Header, component: usize) -> Result<[u16; 64]> {
        let number = usize::from(header.components[component].quant);
        self.quant.get(number).copied().flatten().ok_or_else(|| missing("quantization", number))
    }

    /// A Huffman table that the file defines.
    pub(crate) fn defined_huffman(&self, ac: bool, number: usize) -> Result<Spec> {
        let tables = if ac { &self.ac } else { &self.dc };
        let spec = tables.get(number).cloned().flatten();
        let spec = spec.ok_or_else(|| missing(if ac { "AC Huffman" } else { "DC Huffman" }, number))?;
        spec.check(!ac)?;
        Ok(spec)
    }

    /// A Huffman table of a sequential scan: the standard's where the file defines none.
    pub(crate) fn huffman(&self, ac: bool, number: usize) -> Result<Spec> {
        let tables = if ac { &self.ac } else { &self.dc };
        match tables.get(number) {
            Some(None) if number < 2 => Ok(Spec::standard(ac, number == 1)),
            _ => self.defined_huffman(ac, number),
        }
    }

    fn read_quant(&mut self, mut body: &[u8]) -> Result<()> {
        while let [id, rest @ ..] = body {
            let (wide, number) = (id >> 4 != 0, usize::from(id & 15));
            let length = if wide { 128 } else { 64 };
            let (Some(slot), Some((values, rest))) =
                (self.quant.get_mut(number), rest.split_at_checked(length))
            else {
                return Err(Error::corrupt(format!(
                    "JPEG quantization table {number} has {} bytes",
                    rest.len()
                )));
            };
            let table = slot.insert([0; 64]);
            for (i, &place) in ZIGZAG.iter().enumerate() {
                table[usize::from(place)] = match wide {
                    true => u16::from_be_bytes([values[2 * i], values[2 * i + 1]]),
                    false => u16::from(values[i]),
                };
            }
            body = rest;
        }
        Ok(())
    }

    fn read_huffman(&mut self, mut body: &[u8]) -> Result<()> {
        while let [id, rest @ ..] = body {
            let bad = || Error::corrupt(format!("JPEG Huffman table {id:#04x} has {} bytes", rest.len()));
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or_else(bad)?;
            let total = counts.iter().map(|&n| usize::from(n)).sum();
            let (symbols, rest) = rest.split_at_checked(total).ok_or_else(bad)?;
            let tables = match id >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(bad()),
            };
            *tables.get_mut(usize::from(id & 15)).ok_or_else(bad)? = Some(Spec::new(*counts, symbols)?);
            body = rest;
        }
        Ok(())
    }
}

/// Looks at the parameters of arithmetic coding, which mean nothing here.
fn check_arithmetic(body: &[u8]) -> Result<()> {
    let (pairs, rest) = body.as_chunks();
    // Bounds for DC, of which the lower comes second, and then one number each for AC.
    let good = |&[index, value]: &[u8; 2]| match index {
        0..16 => value & 15 <= value >> 4,
        _ => index < 32,
    };
    if rest.is_empty() && pairs.iter().all(good) {
        return Ok(());
    }
    Err(Error::corrupt("JPEG has parameters of arithmetic coding that make no sense"))
}

fn missing(what: &str, number: usize) -> Error {
    Error::corrupt(format!("JPEG uses {what} table {number}, which it does not define"))
}

/// What a scan header says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    members: [Member; 4],
    count: usize,
    /// First and last coefficient of the band, in the file's order.
    pub(crate) band: (u8, u8),
    /// Successive approximation: the bit position of the scan before (0 for none), and this one's.
    pub(crate) high: u8,
    pub(crate) low: u8,
}

/// A component in a scan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Member {
    /// Which component of the frame.
    pub(crate) component: usize,
    /// Numbers of its Huffman tables.
    pub(crate) dc: usize,
    pub(crate) ac: usize,
}

impl Scan {
    pub(crate) fn read(segment: &Segment<'_>, header: &Header) -> Result<Scan> {
        let body = &*segment.body;
        let bad = |what: String| Error::corrupt(what).at(segment.offset);
        let n = usize::from(*body.first().unwrap_or(&0));
        if !(1..=4).contains(&n) || body.len() != 4 + 2 * n {
            return Err(bad(format!("JPEG scan header of {n} components has {} bytes", body.len())));
        }
        let mut scan = Scan { count: n, ..Scan::default() };
        for i in 0..n {
            let (id, tables) = (body[1 + 2 * i], body[2 + 2 * i]);
            // Files that number several components alike are read as libjpeg reads them.
            let found = header
                .components()
                .iter()
                .enumerate()
                .position(|(c, component)| component.id == id && c >= i);
            let component =
                found.ok_or_else(|| bad(format!("JPEG scan names the component {id}, which is not left")))?;
            if scan.members[..i].iter().any(|member| member.component == component) {
                return Err(bad(format!("JPEG scan names the component {id} twice")));
            }
            scan.members[i] =
                Member { component, dc: usize::from(tables >> 4), ac: usize::from(tables & 15) };
        }
        let [start, end, approximation] = [body[1 + 2 * n], body[2 + 2 * n], body[3 + 2 * n]];
        (scan.band, scan.high, scan.low) = ((start, end), approximation >> 4, approximation & 15);
        Ok(scan)
    }

    /// The components of the scan, in its order.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members[..self.count]
    }
}

/// A file up to its first scan.
#[derive(Clone, Debug)]
pub(crate) struct File<'a> {
    pub(crate) header: Header,
    pub(crate) tables: Tables,
    /// The first scan.
    pub(crate) scan: Scan,
    /// Stands behind the first scan's header.
    pub(crate) markers: Markers<'a>,
}

impl<'a> File<'a> {
    /// Whether all coefficients come in one scan, MCU after MCU.
    pub(crate) fn in_one_scan(&self) -> bool {
        self.header.process != Process::Progressive
            && self.scan.members().len() == self.header.components().len()
    }

    /// The quantization tables of the components, zeros for those that are not in the scan.
    pub(crate) fn quant(&self) -> Result<[[u16; 64]; 4]> {
        let mut quant = [[0; 64]; 4];
        for member in self.scan.members() {
            quant[member.component] = self.tables.quant_of(&self.header, member.component)?;
        }
        Ok(quant)
    }

    pub(crate) fn open(bytes: &'a [u8], tolerant: bool) -> Result<Self> {
        let mut markers = Markers::new(bytes, tolerant)?;
        let mut tables = Tables::default();
        let mut header: Option<Header> = None;
        let (mut orientation, mut density, mut jfif, mut adobe) = (1, None, false, None);
        loop {
            let segment = markers.next()?;
            if tables.read(&segment)? {
                continue;
            }
            let body = &*segment.body;
            match segment.code {
                code::SOF0..=code::SOF2 if header.is_some() => {
                    return Err(Error::corrupt("JPEG has two frame headers").at(segment.offset));
                }
                code::SOF0..=code::SOF2 => header = Some(frame(&segment)?),
                code::DNL | code::SOS | code::EOI | code::APP0..=code::APP15 | code::COM => {}
                other => return Err(unsupported_process(other).at(segment.offset)),
            }
            match segment.code {
                code::APP0 if body.starts_with(b"JFIF\0") && body.len() >= 14 => {
                    jfif = true;
                    let two = |i| u16::from_be_bytes([body[i], body[i + 1]]);
                    density = Some(Density { unit: body[7], x: two(8), y: two(10) });
                }
                code::APP1 if body.starts_with(b"Exif\0\0") => {
                    orientation = exif_orientation(&body[6..]).unwrap_or(orientation);
                }
                code::APP14 if body.starts_with(b"Adobe") && body.len() >= 12 => adobe = Some(body[11]),
                code::EOI => return Err(Error::corrupt("JPEG ends without an image").at(segment.offset)),
                code::SOS => {
                    let Some(mut header) = header else {
                        let what = "JPEG has a scan before its frame header";
                        return Err(Error::corrupt(what).at(segment.offset));
                    };
                    header.colour = colour(header.components(), jfif, adobe);
                    (header.orientation, header.density, header.adobe) =
                        (orientation, density, adobe.is_some());
                    header.restart_interval = tables.restart_interval;
                    let scan = Scan::read(&segment, &header)?;
                    return Ok(File { header, tables, scan, markers });
                }
                _ => {}
            }
        }
    }
}

/// Reads a frame header.
fn frame(segment: &Segment<'_>) -> Result<Header> {
    let body = &*segment.body;
    let bad = |what: String| Err(Error::corrupt(what).at(segment.offset));
    let unsupported = |what: String| Err(Error::new(ErrorKind::Unsupported, what).at(segment.offset));
    let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
        return bad(format!("JPEG frame header has only {} bytes", body.len()));
    };
    let (height, width) =
        (usize::from(u16::from_be_bytes([h1, h0])), usize::from(u16::from_be_bytes([w1, w0])));
    if height == 0 || width == 0 || count == 0 {
        return bad(format!("JPEG is {width}x{height} pixels of {count} components"));
    }
    let n = usize::from(count);
    if rest.len() != 3 * n {
        return bad(format!("JPEG frame header of {n} components has {} bytes", body.len()));
    }
    if precision != 8 {
        return unsupported(format!("JPEG has {precision} bits a sample; 8 are supported"));
    }
    if !matches!(n, 1 | 3 | 4) {
        return unsupported(format!("JPEG has {n} components; 1, 3 or 4 are supported"));
    }
    if height > MAX_SIDE || width > MAX_SIDE {
        return unsupported(format!("JPEG is {width}x{height} pixels; sides up to {MAX_SIDE} are supported"));
    }
    let mut components = [Component::default(); 4];
    for (component, c) in components.iter_mut().zip(rest.chunks_exact(3)) {
        *component = Component { id: c[0], horizontal: c[1] >> 4, vertical: c[1] & 15, quant: c[2] };
        if !(1..=4).contains(&component.horizontal) || !(1..=4).contains(&component.vertical) {
            return bad(format!("JPEG has sampling factors {}x{}", component.horizontal, component.vertical));
        }
    }
    let process = match segment.code {
        code::SOF0 => Process::Baseline,
        code::SOF1 => Process::Extended,
        _ => Process::Progressive,
    };
    let header = Header {
        width,
        height,
        colour: Colour::Grey,
        process,
        orientation: 1,
        density: None,
        restart_interval: 0,
        adobe: false,
        components,
        count: n,
    };
    if !header.are_multiples() {
        let factors: Vec<String> =
            header.components().iter().map(|c| format!("{}x{}", c.horizontal, c.vertical)).collect();
        return unsupported(format!(
            "JPEG has the sampling factors {}, which are no multiples of each other",
            factors.join(", ")
        ));
    }
    Ok(header)
}

fn unsupported_process(marker: u8) -> Error {
    let what = match marker {
        0xC3 => "lossless",
        0xC9 | 0xCA => "arithmetic-coded",
        0xCB => "lossless arithmetic-coded",
        _ => "hierarchical",
    };
    Error::new(ErrorKind::Unsupported, format!("{what} JPEG is not supported"))
}

/// What components mean, by libjpeg's rules.
fn colour(components: &[Component], jfif: bool, adobe: Option<u8>) -> Colour {
    let ids = components.iter().map(|c| c.id);
    match (components.len(), adobe) {
        (1, _) => Colour::Grey,
        (3, _) if jfif => Colour::YCbCr,
        (3, Some(0)) => Colour::Rgb,
        (3, Some(_)) => Colour::YCbCr,
        (3, None) if ids.eq(*b"RGB") => Colour::Rgb,
        (3, None) => Colour::YCbCr,
        (_, None | Some(0)) => Colour::Cmyk,
        (_, Some(_)) => Colour::Ycck,
    }
}
