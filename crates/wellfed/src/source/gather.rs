//! [`Gather`]: rows of numbers straight into the columns of a batch, many samples at a time.

use std::fmt;

use super::Source;
use crate::sample::Record;

/// A sample that is to be copied, and its row in the columns of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its index in the source.
    pub index: u64,
    /// Its row.
    pub row: usize,
}

/// Where [`Source::gather`] copies to.
#[derive(Debug)]
pub struct Gather<'a> {
    /// A column for each field: so many bytes for each row, one row behind the other. Those of texts are empty.
    pub columns: Vec<&'a mut [u8]>,
    /// Of each row, whether all of its fields were copied.
    pub copied: &'a mut [bool],
    /// Where texts go; `None` if no field is text.
    pub lists: Option<&'a dyn Lists>,
}

/// Takes values that differ in length, such as texts.
pub trait Lists: fmt::Debug {
    /// Copies the value of `field` in row `row`; false if there is no room for it, or it is not what the field is.
    fn set(&self, field: usize, row: usize, bytes: &[u8]) -> bool;
}

impl Gather<'_> {
    /// Bytes that a row has in the column of `field`; 0 if there is no such column.
    pub fn size(&self, field: usize) -> usize {
        self.columns.get(field).map_or(0, |column| column.len().checked_div(self.copied.len()).unwrap_or(0))
    }
}

/// [`Source::gather`] of sources that copy samples which follow each other: run by run.
pub(super) fn by_runs<S: Source + ?Sized>(
    source: &S,
    wanted: &[Wanted],
    record: &Record,
    into: &mut Gather<'_>,
) {
    let follow = |one: &Wanted, next: &Wanted| next.index == one.index + 1 && next.row == one.row + 1;
    for run in wanted.chunk_by(follow) {
        let (Some(first), true) = (run.first(), run.len() > 1) else { continue };
        let mut count = run.len();
        for field in 0..into.columns.len() {
            let size = into.size(field);
            let rows = into.columns[field].get_mut(first.row * size..(first.row + count) * size);
            let copied = rows.map_or(0, |rows| source.copy_rows(first.index, field, record, rows));
            count = count.min(usize::try_from(copied).unwrap_or(0));
        }
        into.copied[first.row..first.row + count].fill(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Result,
        sample::{FieldKind, Schema},
        source::conformance,
    };

    /// Numbers, of which those below 7 can be copied together.
    #[derive(Debug)]
    struct Numbers(Schema);

    impl Source for Numbers {
        fn name(&self) -> String {
            "numbers".to_owned()
        }

        fn len(&self) -> u64 {
            10
        }

        fn schema(&self) -> &Schema {
            &self.0
        }

        fn key(&self, index: u64) -> String {
            if index < 10 { index.to_string() } else { String::new() }
        }

        fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
            if index >= 10 {
                return Err(super::super::beyond_the_end(self, index));
            }
            record.reset(1);
            record.values[0] = crate::sample::Value::Int(index as i64);
            Ok(())
        }

        fn copy_rows(&self, index: u64, _field: usize, _record: &Record, into: &mut [u8]) -> u64 {
            let rows = (index..7).zip(into.chunks_exact_mut(8));
            rows.map(|(number, row)| row.copy_from_slice(&number.to_ne_bytes())).count() as u64
        }
    }

    #[test]
    fn runs_are_copied_as_far_as_the_source_has_them_together() {
        let source = Numbers(Schema::single("x", FieldKind::LABEL));
        conformance::check(&source);
        let wanted = [(4, 0), (5, 1), (6, 2), (7, 3), (1, 4), (2, 5), (5, 7), (6, 6)];
        let wanted = wanted.map(|(index, row)| Wanted { index, row });
        let (mut column, mut copied) = (vec![0; 64], [false; 8]);
        let mut into = Gather { columns: vec![&mut column[..]], copied: &mut copied, lists: None };
        source.gather(&wanted, &Record::default(), &mut into);
        assert_eq!(copied, [true, true, true, false, true, true, false, false]);
        let numbers: Vec<u8> = [4_u64, 5, 6, 0, 1, 2, 0, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(column, numbers);
    }
}
