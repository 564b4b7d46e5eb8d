//! What loaders deliver, in a form that can be compared, and how that is compared with the model.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use wellfed::{
    Batch, ColumnData, Dataset, ErrorKind, Loader, Next, Options, Result,
    order::State,
    plan::{Auto, OnError, Pad},
    sample::DType,
};

use crate::{
    model::{Element, Model, Sample, padding},
    sources::{Cell, SHADE},
};

/// A batch takes milliseconds: a loader that has none after this long waits for what never comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A sample and its values; `None` for another one in the place of a bad one.
type Row = Option<(Sample, Vec<Cell>)>;

/// What a loader gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    Batch { epoch: u64, number: u64, len: usize, columns: Vec<Column> },
    Error(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    name: String,
    data: Data,
    lengths: Option<Vec<i64>>,
    mask: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Data {
    Array { dtype: DType, shape: Vec<usize>, bytes: Vec<u8> },
    Ragged { dtype: DType, shape: Vec<usize>, bytes: Vec<u8>, offsets: Vec<i64> },
    List { shapes: Vec<Vec<usize>>, bytes: Vec<u8> },
    Text(Vec<String>),
}

impl Item {
    fn of(batch: Batch) -> Self {
        let column = |column: wellfed::Column| {
            let bytes = column.data.as_bytes().map(<[u8]>::to_vec);
            let data = match (column.data, bytes) {
                (ColumnData::Array { dtype, shape, .. }, Some(bytes)) => Data::Array { dtype, shape, bytes },
                (ColumnData::Ragged { dtype, shape, offsets, .. }, Some(bytes)) => {
                    Data::Ragged { dtype, shape, bytes, offsets: wholes(&offsets) }
                }
                (ColumnData::List { dtype, shapes, bytes }, _) => {
                    let elements: usize = shapes.iter().map(|shape| shape.iter().product::<usize>()).sum();
                    Data::List { shapes, bytes: bytes[..elements * dtype.size()].to_vec() }
                }
                (ColumnData::Text(texts), _) => Data::Text(texts),
                (other, _) => panic!("no plan has such a column: {other:?}"),
            };
            Column {
                name: column.name,
                data,
                lengths: column.lengths.map(|lengths| wholes(&lengths)),
                mask: column.mask.map(|mask| mask.to_vec()),
            }
        };
        let columns = batch.columns.into_iter().map(column).collect();
        Self::Batch { epoch: batch.epoch, number: batch.number, len: batch.len, columns }
    }
}

fn wholes(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|bytes| i64::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

pub(crate) fn loader(data: &Dataset, workers: usize, optimize: bool) -> Result<Loader> {
    let num_workers = Auto::Fixed(workers);
    data.with_options(Options { num_workers, optimize, ..data.options().clone() }).loader()
}

/// The next `limit` items of the epoch that has begun, to its end at most, and whether that was met. `state` gets the state
/// after each.
///
/// Under `on_error="skip"`, errors are left out: that all samples in a row were bad depends on where the row began.
pub(crate) fn read(
    loader: &Loader,
    limit: usize,
    on_error: OnError,
    mut state: impl FnMut(State),
) -> (Vec<Item>, bool) {
    let (mut items, mut skipped, mut since) = (Vec::new(), 0, Instant::now());
    while items.len() < limit && skipped < 20 {
        match loader.next(PATIENCE) {
            Ok(Next::Batch(batch)) => items.push(Item::of(batch)),
            Ok(Next::EpochEnd) => return (items, true),
            Ok(Next::Pending) => {
                assert!(since.elapsed() < PATIENCE, "no batch came");
                continue;
            }
            Err(error) => {
                assert!(!matches!(error.kind(), ErrorKind::Internal | ErrorKind::Transient), "{error}");
                if on_error == OnError::Skip {
                    skipped += 1;
                    continue;
                }
                items.push(Item::Error(error.to_string()));
            }
        }
        since = Instant::now();
        state(loader.state_dict().unwrap());
    }
    (items, false)
}

/// One epoch, or the first `limit` batches of it.
pub(crate) fn epoch(loader: &Loader, limit: usize, on_error: OnError) -> Vec<Item> {
    loader.start_epoch().unwrap();
    read(loader, limit, on_error, drop).0
}

/// Compares what loaders gave with what the model says.
pub(crate) struct Judge<'a> {
    pub(crate) model: &'a Model<'a>,
    pub(crate) data: &'a Dataset,
    pub(crate) on_error: OnError,
    /// All fields of what is picked of a source, by its place among the sources.
    known: HashMap<(usize, u64, u64), Vec<Vec<u8>>>,
    pad: Option<&'a Pad>,
    batched: bool,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(model: &'a Model<'a>, data: &'a Dataset, on_error: OnError) -> Self {
        let (pad, batched) = (padding(&data.plan().root), data.output().unwrap().batched);
        Self { model, data, on_error, known: HashMap::new(), pad, batched }
    }

    /// Whether `items` are `elements`.
    ///
    /// # Errors
    /// What differs.
    pub(crate) fn compare(&mut self, elements: &[Element], items: &[Item]) -> Result<(), String> {
        let mut elements = elements.iter().enumerate();
        for item in items {
            let (number, element) = loop {
                let Some((number, element)) = elements.next() else {
                    return Err(format!("there is no such element: {item:?}"));
                };
                if !self.vanishes(element)? {
                    break (number, element);
                }
            };
            self.compare_one(element, item)
                .map_err(|what| format!("{what}\nelement {number}: {element:?}\n{item:?}"))?;
        }
        for (_, left) in elements {
            if !self.vanishes(left)? {
                return Err(format!("{left:?} did not come"));
            }
        }
        Ok(())
    }

    /// Whether nothing comes of an element where errors are skipped: all its samples are bad, or one is too long for the
    /// batch, which is an error of the whole batch that [`read`] leaves out.
    fn vanishes(&mut self, element: &Element) -> Result<bool, String> {
        if self.on_error != OnError::Skip {
            return Ok(false);
        }
        let good = element.samples.iter().filter(|sample| !self.is_bad(element, sample));
        let rows: Vec<Row> = good.map(|sample| Some((sample.clone(), self.model.cells(sample)))).collect();
        Ok(rows.is_empty() || self.is_too_long(element, &rows)?)
    }

    fn is_bad(&self, element: &Element, sample: &Sample) -> bool {
        element.refused || self.model.cells(sample).contains(&Cell::Image { good: false })
    }

    /// Whether arrays are too long for what they are padded to.
    fn is_too_long(&mut self, element: &Element, rows: &[Row]) -> Result<bool, String> {
        let Some(pad_to) = element.pad_to else { return Ok(false) };
        for (picks, cells) in rows.iter().flatten() {
            for (column, cell) in cells.iter().enumerate() {
                let length = match cell {
                    Cell::Tokens(tokens) => tokens.len(),
                    Cell::Rows(size) => self.made(picks, column)?.len() / size,
                    _ => 0,
                };
                if length > pad_to {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn compare_one(&mut self, element: &Element, item: &Item) -> Result<(), String> {
        let mut rows = Vec::new();
        for sample in &element.samples {
            match (self.is_bad(element, sample), self.on_error) {
                (false, _) => rows.push(Some((sample.clone(), self.model.cells(sample)))),
                (true, OnError::Replace) => rows.push(None),
                (true, OnError::Skip) => {}
                (true, OnError::Raise) => {
                    return match item {
                        Item::Error(_) => Ok(()),
                        Item::Batch { .. } => Err("a bad sample was not raised".to_owned()),
                    };
                }
            }
        }
        let (len, columns) = match item {
            // Nothing else may have been there to be taken, or nothing that fits.
            Item::Error(_) if rows.contains(&None) => return Ok(()),
            Item::Error(_) if self.is_too_long(element, &rows)? => return Ok(()),
            Item::Error(error) => return Err(format!("an error: {error}")),
            Item::Batch { len, columns, .. } => (*len, columns),
        };
        if len != rows.len() {
            return Err(format!("{len} samples instead of {}", rows.len()));
        }
        let names: Vec<&String> = columns.iter().map(|column| &column.name).collect();
        if names != self.model.names().iter().collect::<Vec<_>>() {
            return Err(format!("columns are {names:?} instead of {:?}", self.model.names()));
        }
        for (number, column) in columns.iter().enumerate() {
            self.compare_column(element, number, column, &rows)
                .map_err(|what| format!("{}: {what}", column.name))?;
        }
        Ok(())
    }

    fn compare_column(
        &mut self,
        element: &Element,
        number: usize,
        column: &Column,
        rows: &[Row],
    ) -> Result<(), String> {
        let Some(example) = rows.iter().flatten().map(|(_, cells)| &cells[number]).next() else {
            return Ok(());
        };
        let tokens = |row: &Row| match row.as_ref().map(|(_, cells)| &cells[number]) {
            Some(Cell::Tokens(tokens)) => Some(tokens.clone()),
            _ => None,
        };
        let values: Vec<Option<Vec<i32>>> = rows.iter().map(tokens).collect();
        match (&column.data, example) {
            (Data::Text(texts), Cell::Text(_)) => {
                let expected = |row: &Row, text: &String| {
                    row.as_ref().is_none_or(|(_, cells)| cells[number] == Cell::Text(text.clone()))
                };
                let same = texts.len() == rows.len()
                    && rows.iter().zip(texts).all(|(row, text)| expected(row, text));
                same.then_some(()).ok_or_else(|| "other texts".to_owned())
            }
            (Data::Array { dtype: DType::Int64, shape, bytes }, Cell::Number(_)) => {
                let numbers = wholes(bytes);
                let shape_is = if self.batched { vec![rows.len()] } else { Vec::new() };
                let same = |(row, number_is): (&Row, &i64)| {
                    row.as_ref().is_none_or(|(_, cells)| cells[number] == Cell::Number(*number_is))
                };
                let all = *shape == shape_is && rows.iter().zip(&numbers).all(same);
                all.then_some(()).ok_or_else(|| format!("other numbers: {shape:?} {numbers:?}"))
            }
            (Data::Array { shape, bytes, .. }, Cell::Image { .. }) => {
                let image = bytes.len() / rows.len();
                if self.batched && shape.first() != Some(&rows.len()) {
                    return Err(format!("{shape:?}"));
                }
                for (row, pixels) in rows.iter().zip(bytes.chunks_exact(image)) {
                    let Some((picks, _)) = row else { continue };
                    if self.made(picks, number)? != pixels {
                        return Err(format!("other pixels of {picks:?}"));
                    }
                }
                Ok(())
            }
            (data, Cell::Rows(size)) => self.compare_rows(element, number, (data, *size), rows),
            (Data::Ragged { dtype: DType::Int32, shape, bytes, offsets }, Cell::Tokens(_)) => {
                let found: Vec<i32> = bytes
                    .chunks_exact(4)
                    .map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap()))
                    .collect();
                let mut same = offsets.len() == rows.len() + 1 && *shape == [found.len()] && offsets[0] == 0;
                for (row, ends) in values.iter().zip(offsets.windows(2)) {
                    let found = found.get(ends[0] as usize..ends[1] as usize);
                    same &= row.as_ref().is_none_or(|row| found == Some(&row[..]));
                }
                same.then_some(()).ok_or_else(|| format!("{shape:?} {offsets:?} {found:?}"))
            }
            (Data::Array { dtype: DType::Int32, shape, bytes }, Cell::Tokens(_)) => {
                let found: Vec<i32> = bytes
                    .chunks_exact(4)
                    .map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap()))
                    .collect();
                let Some(pad) = self.pad.filter(|_| self.batched) else {
                    let same = values[0].as_ref().is_none_or(|row| *shape == [row.len()] && *row == found);
                    return same.then_some(()).ok_or_else(|| format!("{shape:?} {found:?}"));
                };
                let value = if pad.padding_values.is_some() { -1 } else { 0 };
                let [count, side] = shape[..] else { return Err(format!("{shape:?}")) };
                let longest = values.iter().flatten().map(Vec::len).max().unwrap_or(0);
                let wanted = element.pad_to.unwrap_or(longest.next_multiple_of(pad.multiple_of.unwrap_or(1)));
                // The replacement of a bad sample may be longer than all others.
                let mut same =
                    count == rows.len() && (side == wanted || (values.contains(&None) && side > wanted));
                for (at, row) in values.iter().enumerate() {
                    let Some(row) = row else { continue };
                    let mut expected = row.clone();
                    expected.resize(side.max(row.len()), value);
                    same &= found.get(at * side..(at + 1) * side) == Some(&expected[..]);
                    same &= column.lengths.as_ref().is_none_or(|lengths| lengths[at] == row.len() as i64);
                    let expected = (0..side).map(|place| u8::from(place < row.len()));
                    same &= column
                        .mask
                        .as_ref()
                        .is_none_or(|mask| expected.eq(mask[at * side..][..side].iter().copied()));
                }
                same &= column.lengths.is_some() == pad.lengths && column.mask.is_some() == pad.mask;
                same.then_some(()).ok_or_else(|| format!("{shape:?} {found:?} {:?}", column.lengths))
            }
            (data, cell) => Err(format!("{data:?} instead of {cell:?}")),
        }
    }

    /// Boxes, their labels or points, each of `size` bytes, any number a sample.
    fn compare_rows(
        &mut self,
        element: &Element,
        number: usize,
        (data, size): (&Data, usize),
        rows: &[Row],
    ) -> Result<(), String> {
        let mut expected = Vec::new();
        for row in rows {
            expected.push(row.as_ref().map(|(picks, _)| self.made(picks, number)).transpose()?);
        }
        let mut ends = vec![0];
        let bytes = match data {
            Data::List { shapes, bytes } => {
                // All rows are of one size.
                let width = shapes.first().map_or(1, |shape| shape[1..].iter().product::<usize>()).max(1);
                for shape in shapes {
                    let last = *ends.last().unwrap();
                    ends.push(last + shape.iter().product::<usize>() / width * size);
                }
                bytes
            }
            Data::Ragged { bytes, offsets, .. } => {
                ends = offsets.iter().map(|offset| *offset as usize * size).collect();
                bytes
            }
            Data::Array { bytes, .. } if !self.batched => {
                ends.push(bytes.len());
                bytes
            }
            Data::Array { shape, bytes, .. } => {
                let multiple_of = self.pad.and_then(|pad| pad.multiple_of).unwrap_or(1);
                let longest = expected.iter().flatten().map(|rows| rows.len() / size).max().unwrap_or(0);
                let wanted = element.pad_to.unwrap_or(longest.next_multiple_of(multiple_of));
                if shape[1] != wanted && !(expected.contains(&None) && shape[1] > wanted) {
                    return Err(format!("padded to {} instead of {wanted}", shape[1]));
                }
                for rows in expected.iter_mut().flatten() {
                    rows.resize(shape[1] * size, 0);
                }
                ends = (0..=shape[0]).map(|at| at * shape[1] * size).collect();
                bytes
            }
            Data::Text(_) => return Err(format!("{data:?}")),
        };
        let mut same = ends.len() == rows.len() + 1 && ends.last() == Some(&bytes.len());
        for (rows, ends) in expected.iter().zip(ends.windows(2)) {
            same &= rows.as_ref().is_none_or(|rows| bytes.get(ends[0]..ends[1]) == Some(&rows[..]));
        }
        same.then_some(()).ok_or_else(|| format!("{data:?} instead of {expected:?}"))
    }

    /// A field of a sample as a sampler makes it: it depends on source, index and epoch alone.
    fn made(&mut self, picks: &Sample, column: usize) -> Result<Vec<u8>, String> {
        let origins = self.model.origins(picks);
        let Some((source, pick)) = origins[column] else { return Err("a counter".to_owned()) };
        let first = origins.iter().position(|other| *other == Some((source, pick))).unwrap();
        let key = (source, pick.index, pick.epoch);
        if !self.known.contains_key(&key) {
            let sample = self.data.sampler().sample(source, pick.index, pick.epoch).unwrap();
            let made = sample.columns.iter().map(|column| column.data.as_bytes().map(<[u8]>::to_vec));
            let made: Vec<Vec<u8>> = made.map(Option::unwrap_or_default).collect();
            self.check_joint(picks, first, &made)?;
            self.known.insert(key, made);
        }
        Ok(self.known[&key][column - first].clone())
    }

    /// What belongs to an image followed it.
    fn check_joint(&self, picks: &Sample, first: usize, made: &[Vec<u8>]) -> Result<(), String> {
        let names = &self.model.names()[first..first + made.len()];
        let field = |name: &str| {
            let at = names.iter().position(|known| known.rsplit('.').next() == Some(name));
            at.map(|at| &made[at])
        };
        if let (Some(image), Some(mask)) = (field("image"), field("mask")) {
            let plan = format!("{:?}", self.data.plan().root);
            let same = image.iter().zip(mask).all(|(pixel, value)| *pixel == value * SHADE);
            let changed = [
                "RandomResize",
                "RandomShortestSize",
                "ColorJitter",
                "RandomErasing",
                "GaussianNoise",
                "ElasticTransform",
            ];
            if image.len() != 3 * mask.len() || (!same && !changed.iter().any(|name| plan.contains(name))) {
                return Err(format!("the mask of {picks:?} is another part of its image"));
            }
        }
        let rows = |name: &str, size: usize| field(name).map(|bytes| bytes.len() / size);
        let boxes = rows("boxes", 16);
        if [rows("labels", 8), rows("iscrowd", 8)].into_iter().flatten().any(|count| Some(count) != boxes) {
            return Err(format!("{boxes:?} boxes of {picks:?} have another number of labels"));
        }
        Ok(())
    }
}
