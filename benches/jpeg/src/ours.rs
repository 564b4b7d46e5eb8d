//! wellfed-jpeg in its ways of working, on each level of this processor.

use wellfed_jpeg::{Decoder, Format, Level, Limits, Options, Packed, Region, RowIndex};

use crate::peers::room;
use crate::{Contender, File, Window};

/// A way of working.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Whole images, interleaved.
    Full,
    /// Whole images, one plane a channel.
    Planar,
    /// Whole images while recording a row index.
    Record,
    /// Windows of plain files.
    Region,
    /// Windows in bands of planar rows: no image in memory.
    Rows,
    /// Windows with a row index.
    Index,
    /// Windows from packed coefficients that were verified before.
    Packed,
}

const WAYS: &[(&str, Way)] = &[
    ("full", Way::Full),
    ("planar", Way::Planar),
    ("record", Way::Record),
    ("region", Way::Region),
    ("rows", Way::Rows),
    ("index", Way::Index),
    ("packed", Way::Packed),
];
const LEVELS: &[(&str, Level)] =
    &[("avx512", Level::Avx512), ("avx2", Level::Avx2), ("neon", Level::Neon), ("scalar", Level::Scalar)];

/// `WAY-LEVEL` for all levels that this processor has.
pub(crate) fn names() -> Vec<String> {
    let levels: Vec<&str> = LEVELS.iter().filter(|(_, l)| l.is_available()).map(|(name, _)| *name).collect();
    WAYS.iter().flat_map(|(way, _)| levels.iter().map(move |level| format!("{way}-{level}"))).collect()
}

pub(crate) fn contender(name: &str) -> Option<Box<dyn Contender>> {
    let (way, level) = name.split_once('-')?;
    let (_, way) = *WAYS.iter().find(|(name, _)| *name == way)?;
    let (_, level) = *LEVELS.iter().find(|(name, _)| *name == level)?;
    Some(Box::new(Ours {
        decoder: Decoder::with_level(level),
        way,
        buffer: vec![],
        indexes: vec![],
        records: vec![],
        sum: 0,
    }))
}

struct Ours {
    decoder: Decoder,
    way: Way,
    buffer: Vec<u8>,
    /// Of each file of the set.
    indexes: Vec<Option<RowIndex>>,
    records: Vec<Vec<u8>>,
    /// Keeps the callback of bands from being optimized away.
    sum: usize,
}

impl Contender for Ours {
    fn prepare(&mut self, files: &[File]) -> Result<(), String> {
        self.indexes.clear();
        if self.way == Way::Index {
            for file in files {
                let options = Options { format: Format::Rgb, record: true, ..Options::default() };
                self.decoder.decode(&file.bytes, &options).map_err(|e| e.to_string())?;
                self.indexes.push(self.decoder.take_index());
            }
        }
        self.records.clear();
        if self.way == Way::Packed {
            for file in files {
                let record = self.decoder.pack(&file.bytes, &Limits::default()).map_err(|e| e.to_string())?;
                Packed::open(&record).map_err(|e| e.to_string())?;
                self.records.push(record);
            }
        }
        Ok(())
    }

    fn run(&mut self, number: usize, file: &File) -> Result<usize, String> {
        let Ours { decoder, buffer, .. } = self;
        let bytes = &file.bytes;
        let options = Options { format: Format::Rgb, ..Options::default() };
        let (width, height) = (file.width as usize, file.height as usize);
        let done = match self.way {
            Way::Full => {
                decoder.decode_into(bytes, &options, room(buffer, file.width, file.height), width * 3)
            }
            Way::Record => {
                let options = Options { record: true, ..options };
                decoder.decode_into(bytes, &options, room(buffer, file.width, file.height), width * 3)
            }
            Way::Planar => {
                let (red, rest) = room(buffer, file.width, file.height).split_at_mut(width * height);
                let (green, blue) = rest.split_at_mut(width * height);
                decoder.decode_planar(bytes, &options, [red, green, blue, &mut []], width)
            }
            Way::Region | Way::Rows | Way::Index | Way::Packed => {
                for &[left, top, width, height] in &file.windows {
                    let region = Some(region([left, top, width, height]));
                    let index = self.indexes.get(number).and_then(Option::as_ref);
                    let options = Options { region, index, ..options };
                    let done = if let Some(record) = self.records.get(number) {
                        let packed = Packed::reopen(record).map_err(|e| e.to_string())?;
                        let out = room(buffer, width, height);
                        decoder.decode_packed_into(&packed, &options, out, width as usize * 3)
                    } else if self.way == Way::Rows {
                        let sum = &mut self.sum;
                        decoder.decode_rows(bytes, &options, |rows| *sum += usize::from(rows.plane(0)[0]))
                    } else {
                        decoder.decode_into(bytes, &options, room(buffer, width, height), width as usize * 3)
                    };
                    done.map_err(|e| e.to_string())?;
                }
                return Ok(file.windows.len());
            }
        };
        done.map(|_| 1).map_err(|e| e.to_string())
    }
}

fn region([left, top, width, height]: Window) -> Region {
    let [left, top, width, height] = [left, top, width, height].map(|n| n as usize);
    Region { left, top, width, height }
}
