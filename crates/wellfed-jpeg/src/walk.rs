//! [`Walk`]: the way through a scan's MCUs: jumping where a restart or a row index allows it, passing over what
//! lies in between, and noting the points of a new row index on the way.

use crate::entropy::Stream;
use crate::huffman::PairTables;
use crate::index::{Point, RowIndex};
use crate::level::Level;
use crate::sequential::{self, Block};
use crate::{Error, ErrorKind, Result};

/// A place in a scan that moves forward.
pub(crate) struct Walk<'a> {
    stream: Stream<'a>,
    bytes: &'a [u8],
    /// The MCU at which the stream stands; `None` before the first move, which an index may make from nowhere.
    here: Option<usize>,
    index: Option<&'a RowIndex>,
    /// What is being recorded; `None` from where the file is damaged. Its next point is never behind the stream.
    pub(crate) record: Option<RowIndex>,
}

impl<'a> Walk<'a> {
    /// A walk from the beginning of the scan, or from any point of `index`. A `record` goes on from the last one.
    pub(crate) fn new(
        stream: Stream<'a>,
        bytes: &'a [u8],
        index: Option<&'a RowIndex>,
        record: Option<RowIndex>,
    ) -> Self {
        Walk { stream, bytes, here: None, index, record }
    }

    /// Moves to MCU `mcu`, which is not behind.
    pub(crate) fn go_to(
        &mut self,
        level: Level,
        mcu: usize,
        blocks: &[Block],
        tables: &PairTables,
    ) -> Result<()> {
        if let Some(Point { mcu, bit, predictors }) = self.index.and_then(|i| i.before(mcu))
            && self.here.is_none_or(|here| here < mcu)
        {
            if !self.stream.seek(self.bytes, bit, mcu, predictors) {
                return Err(Error::new(ErrorKind::Argument, "row index does not fit its file"));
            }
            self.here = Some(mcu);
        }
        let mut here = self.here.unwrap_or(0);
        if self.index.is_none() && self.record.is_none() {
            here = mcu - self.stream.jump(here, mcu);
        }
        while here < mcu {
            let n = self.stretch(here, mcu - here);
            sequential::skip_mcus(level, &mut self.stream, n, blocks, tables);
            here += n;
        }
        self.here = Some(here);
        Ok(())
    }

    /// Decodes the next MCUs, as [`sequential::decode_mcus`].
    pub(crate) fn decode(
        &mut self,
        level: Level,
        mut blocks: &[Block],
        mcu_blocks: usize,
        tables: &PairTables,
        coefficients: &mut [i16],
    ) {
        let mut here = self.here.unwrap_or(0);
        while !blocks.is_empty() {
            let n = self.stretch(here, blocks.len() / mcu_blocks);
            let (now, later) = blocks.split_at(n * mcu_blocks);
            sequential::decode_mcus(level, &mut self.stream, now, mcu_blocks, tables, coefficients);
            (blocks, here) = (later, here + n);
        }
        self.here = Some(here);
    }

    /// How many of the next `n` MCUs come before the next point to note. Notes the one at which the stream stands,
    /// and gives up recording where the file is damaged.
    fn stretch(&mut self, here: usize, n: usize) -> usize {
        let Some(record) = &mut self.record else { return n };
        if record.next() == here {
            let noted = self.stream.raw_position(self.bytes);
            if !noted.is_some_and(|bit| record.push(bit, &self.stream.predictors)) {
                self.record = None;
                return n;
            }
        }
        n.min(record.next() - here)
    }
}
