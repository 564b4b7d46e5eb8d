//! What a generated file is: its frame, scans, tables and clutter. All geometry is derived here, by T.81 A.1 and A.2.

/// `ZIGZAG[k]` is the natural (row-major) position of the `k`-th coefficient in zigzag order (T.81 figure A.6).
#[rustfmt::skip]
pub(crate) const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Quantized coefficients of one 8x8 block in natural order.
pub(crate) type Block = [i16; 64];

/// The coefficients of one component, padded to whole MCUs of an interleaved scan of all components.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    pub(crate) across: usize,
    pub(crate) down: usize,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Baseline,
    Extended,
    Progressive,
}

#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) id: u8,
    pub(crate) h: u8,
    pub(crate) v: u8,
    /// Index into [`Spec::quant`], which is also the table's destination.
    pub(crate) quant: u8,
    /// Destination of the Huffman tables, the same for DC and AC: 0..=1 in baseline files, else 0..=3.
    pub(crate) table: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct Quant {
    /// Written with 16 bits a value.
    pub(crate) wide: bool,
    /// In natural order.
    pub(crate) values: [u16; 64],
}

/// One scan: which components, which coefficients (zigzag positions), which bits of them.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) components: Vec<usize>,
    pub(crate) ss: u8,
    pub(crate) se: u8,
    pub(crate) ah: u8,
    pub(crate) al: u8,
    /// MCUs between restart markers; 0 for none. DRI is written where it changes.
    pub(crate) restart: u16,
}

impl Scan {
    pub(crate) fn new(components: &[usize], ss: u8, se: u8, ah: u8, al: u8) -> Scan {
        Scan { components: components.to_vec(), ss, se, ah, al, restart: 0 }
    }

    /// All coefficients of some components.
    pub(crate) fn sequential(components: &[usize]) -> Scan {
        Scan::new(components, 0, 63, 0, 0)
    }
}

/// How the Huffman tables of each scan are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Huffman {
    /// The tables of T.81 K.3; sequential files only (progressive ones get `Optimized`).
    Standard,
    /// As `Standard`, but left out of the file as motion JPEG does.
    Absent,
    /// The best for each scan, as optimizing encoders write them.
    Optimized,
    /// Lengths that have nothing to do with frequencies, up to 16 bits, with codes that never occur.
    Skewed(u64),
    /// Almost equal lengths for all legal symbols.
    Flat,
}

#[derive(Clone, Debug)]
pub(crate) enum Segment {
    Jfif,
    /// Adobe APP14 with this transform.
    Adobe(u8),
    /// EXIF with this orientation.
    Exif(u8),
    Comment(Vec<u8>),
    App(u8, Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) process: Process,
    pub(crate) components: Vec<Component>,
    pub(crate) quant: Vec<Quant>,
    pub(crate) scans: Vec<Scan>,
    pub(crate) huffman: Huffman,
    pub(crate) segments: Vec<Segment>,
    /// Additional FF bytes before each marker outside entropy-coded data.
    pub(crate) fill: usize,
    /// One table a DQT or DHT segment instead of all in one.
    pub(crate) split_tables: bool,
    /// Longest run of end-of-bands in progressive scans, 1..=32767.
    pub(crate) eob_limit: u16,
    /// In sequential scans, writes runs of 16 zeros that nothing follows.
    pub(crate) lazy: bool,
    /// The bit that fills the last byte of each entropy-coded segment; T.81 wants true.
    pub(crate) padding: bool,
    /// Bytes after EOI.
    pub(crate) trailer: Vec<u8>,
    /// Writes EOI.
    pub(crate) eoi: bool,
}

impl Spec {
    /// A plain file: JFIF (where it applies), one interleaved scan or the usual progressive script, standard tables.
    /// `sampling` is (h, v) of each component.
    pub(crate) fn new(
        process: Process,
        width: u16,
        height: u16,
        sampling: &[(u8, u8)],
        quality: u32,
    ) -> Spec {
        let chroma = |i: usize| u8::from(sampling.len() >= 3 && (i == 1 || i == 2));
        let components = sampling
            .iter()
            .enumerate()
            .map(|(i, &(h, v))| Component { id: i as u8 + 1, h, v, quant: chroma(i), table: chroma(i) })
            .collect::<Vec<_>>();
        let tables = if sampling.len() >= 3 { 2 } else { 1 };
        let all: Vec<usize> = (0..sampling.len()).collect();
        let mut spec = Spec {
            width,
            height,
            process,
            components,
            quant: (0..tables)
                .map(|i| Quant { wide: false, values: super::content::quality_table(quality, i == 1, 255) })
                .collect(),
            scans: vec![Scan::sequential(&all)],
            huffman: Huffman::Standard,
            segments: if sampling.len() == 4 { vec![] } else { vec![Segment::Jfif] },
            fill: 0,
            split_tables: false,
            eob_limit: 0x7fff,
            lazy: false,
            padding: true,
            trailer: vec![],
            eoi: true,
        };
        if process == Process::Progressive {
            spec.scans = spec.usual_script();
            spec.huffman = Huffman::Optimized;
        }
        spec
    }

    /// The script of `cjpeg -progressive` in spirit: spectral selection and two steps of approximation.
    pub(crate) fn usual_script(&self) -> Vec<Scan> {
        let all: Vec<usize> = (0..self.components.len()).collect();
        let mut scans = self.dc_scans(&all, 0, 1);
        for &c in &all {
            scans.push(Scan::new(&[c], 1, 5, 0, 2));
        }
        for &c in all.iter().rev() {
            scans.push(Scan::new(&[c], 6, 63, 0, 2));
            scans.push(Scan::new(&[c], 1, 63, 2, 1));
        }
        scans.extend(self.dc_scans(&all, 1, 0));
        for &c in &all {
            scans.push(Scan::new(&[c], 1, 63, 1, 0));
        }
        scans
    }

    /// DC scans of all components: one if an MCU of all holds at most ten blocks, else one each.
    pub(crate) fn dc_scans(&self, all: &[usize], ah: u8, al: u8) -> Vec<Scan> {
        if self.blocks_per_mcu() <= 10 {
            vec![Scan::new(all, 0, 0, ah, al)]
        } else {
            all.iter().map(|&c| Scan::new(&[c], 0, 0, ah, al)).collect()
        }
    }

    /// A scan for each component, as `cjpeg -scans` writes them.
    pub(crate) fn separate_scans(&self) -> Vec<Scan> {
        (0..self.components.len()).map(|c| Scan::sequential(&[c])).collect()
    }

    pub(crate) fn with_restart(mut self, interval: u16) -> Spec {
        self.scans.iter_mut().for_each(|scan| scan.restart = interval);
        self
    }

    pub(crate) fn with_quant_limit(mut self, quality: u32, limit: u16) -> Spec {
        for (i, table) in self.quant.iter_mut().enumerate() {
            *table = Quant { wide: true, values: super::content::quality_table(quality, i == 1, limit) };
        }
        self
    }

    pub(crate) fn blocks_per_mcu(&self) -> usize {
        self.components.iter().map(|c| usize::from(c.h) * usize::from(c.v)).sum()
    }

    pub(crate) fn max_sampling(&self) -> (usize, usize) {
        let h = self.components.iter().map(|c| c.h).max().expect("a frame has components");
        let v = self.components.iter().map(|c| c.v).max().expect("a frame has components");
        (h.into(), v.into())
    }

    /// MCUs across and down in an interleaved scan.
    pub(crate) fn mcus(&self) -> (usize, usize) {
        let (h, v) = self.max_sampling();
        (usize::from(self.width).div_ceil(8 * h), usize::from(self.height).div_ceil(8 * v))
    }

    /// Samples of a component.
    pub(crate) fn samples(&self, component: usize) -> (usize, usize) {
        let (h, v) = self.max_sampling();
        let c = &self.components[component];
        (
            (usize::from(self.width) * usize::from(c.h)).div_ceil(h),
            (usize::from(self.height) * usize::from(c.v)).div_ceil(v),
        )
    }

    /// Blocks of a component that a scan of it alone carries.
    pub(crate) fn own_blocks(&self, component: usize) -> (usize, usize) {
        let (w, h) = self.samples(component);
        (w.div_ceil(8), h.div_ceil(8))
    }

    /// Blocks of a component including what pads it to whole MCUs.
    pub(crate) fn padded_blocks(&self, component: usize) -> (usize, usize) {
        let (across, down) = self.mcus();
        let c = &self.components[component];
        (across * usize::from(c.h), down * usize::from(c.v))
    }
}
