//! The suite that every [`Source`] passes. Public, so that sources of other crates can run it in their tests.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    thread,
};

use super::{Gather, Lists, Source, Wanted};
use crate::{
    Error, ErrorKind, Limits,
    io::Bytes,
    sample::{FieldKind, Record, Value},
    store::Store,
};

/// What one sample holds, with resident fields copied out.
type Fetched = Result<Vec<Value>, String>;

/// Checks `source`, every sample of it: give it a small one. Samples may be errors, if they always are.
///
/// # Panics
/// If the source breaks a rule; the message says which one and where.
pub fn check(source: &dyn Source) {
    let (len, schema) = (source.len(), source.schema());
    assert_eq!(source.is_empty(), len == 0, "is_empty agrees with len");
    assert!(!source.name().is_empty(), "a source has a name");
    assert!(!schema.fields.is_empty(), "a sample has fields");
    let mut handed_out = schema.structure.fields();
    handed_out.sort_unstable();
    assert!(handed_out.into_iter().eq(0..schema.fields.len()), "every field is handed out once");
    let names: HashSet<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names.len(), schema.fields.len(), "field names are unique");

    let keys: Vec<String> = (0..len).map(|i| source.key(i)).collect();
    let unique: HashSet<&String> = keys.iter().collect();
    assert_eq!(unique.len(), keys.len(), "keys are unique");
    assert!(keys.iter().all(|key| !key.is_empty()), "keys are not empty");
    assert!(keys.iter().zip(0..).all(|(key, i)| source.key(i) == *key), "keys are stable");

    let mut record = Record::default();
    for beyond in [len, len + 1, u64::MAX] {
        let e = source.fetch(beyond, &mut record).expect_err("there is no such sample");
        assert_eq!((e.kind(), e.index()), (ErrorKind::NotFound, Some(beyond)), "{e}");
        assert!(source.resident(beyond, 0).is_none() && source.key(beyond).is_empty());
    }

    let fresh: Vec<Fetched> = (0..len).map(|i| fetch(source, i, &mut Record::default())).collect();
    if let Some(store) = source.store() {
        check_pieces(source, &**store, &fresh);
    }
    check_gathered(source, &fresh);
    for i in (0..len).rev() {
        // The record comes full of the sample after, and once full of rubbish.
        assert_eq!(fetch(source, i, &mut record), fresh[at(i)], "sample {i} is the same in a used record");
        let values = vec![Value::Bytes(vec![0xAA; 100]), Value::Int(-77), Value::Resident, Value::Empty];
        let mut rubbish = Record { values, offsets: vec![99; 9], ..Record::default() };
        assert_eq!(fetch(source, i, &mut rubbish), fresh[at(i)], "sample {i} is the same in any record");
    }
    thread::scope(|scope| {
        for t in 0..4_u64 {
            let fresh = &fresh;
            scope.spawn(move || {
                let mut record = Record::default();
                for i in 0..len {
                    let i = (i + t * 7) % len;
                    assert_eq!(
                        fetch(source, i, &mut record),
                        fresh[at(i)],
                        "sample {i} is the same in thread {t}"
                    );
                }
            });
        }
    });
}

/// What is located, read and assembled is what is fetched.
fn check_pieces(source: &dyn Source, store: &dyn Store, fresh: &[Fetched]) {
    let mut record = Record::default();
    let located = |i: u64, limits: &Limits| {
        let mut extents = Vec::new();
        source.locate(i, limits, &mut extents).map(|()| extents)
    };
    for (i, fetched) in (0..).zip(fresh) {
        let pieces = located(i, &record.limits).and_then(|extents| {
            assert_eq!(
                located(i, &record.limits).ok().as_ref(),
                Some(&extents),
                "sample {i} stays where it is"
            );
            extents.iter().map(|extent| extent.read(store)).collect::<Result<Vec<Bytes>, Error>>()
        });
        let assembled = pieces.map(|pieces| {
            let fetched = values(source, i, &mut record, |record| source.assemble(i, &pieces, record));
            let offsets = record.offsets.clone();
            drop(pieces);
            (fetched, offsets)
        });
        match assembled {
            Ok((assembled, offsets)) => {
                assert_eq!(assembled, *fetched, "sample {i} is assembled as it is fetched");
                let mut whole = Record::default();
                if source.fetch(i, &mut whole).is_ok() {
                    assert_eq!(offsets, whole.offsets, "offsets of sample {i}");
                }
            }
            Err(e) => assert!(fetched.is_err(), "sample {i} is fetched, but cannot be located and read: {e}"),
        }
    }
    for beyond in [source.len(), u64::MAX] {
        let e = located(beyond, &Limits::default()).expect_err("there is no such sample");
        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
        let e = source.assemble(beyond, &[], &mut record).expect_err("there is no such sample");
        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
    }
}

/// What is gathered is what is fetched, in any order, and nothing else is written to.
fn check_gathered(source: &dyn Source, fresh: &[Fetched]) {
    let size = |kind: &FieldKind| match kind {
        FieldKind::Scalar { dtype } => Some(dtype.size()),
        FieldKind::Array { dtype, shape } if !kind.varies() => {
            Some(dtype.size() * shape.iter().flatten().product::<usize>())
        }
        FieldKind::Pixels { height, width, channels, .. } => Some(height * width * channels),
        FieldKind::Text | FieldKind::Bytes if source.gathers_lists() => Some(0),
        _ => None,
    };
    let sizes: Option<Vec<usize>> = source.schema().fields.iter().map(|field| size(&field.kind)).collect();
    let (Some(sizes), false) = (sizes, fresh.is_empty()) else { return };
    let count = fresh.len();
    let orders: [Vec<usize>; 3] = [
        (0..count).collect(),
        (0..count).rev().collect(),
        // Some of them twice, others not at all.
        (0..count).map(|i| i * 7 % count / 2).collect(),
    ];
    for order in orders {
        // Every third row is another's.
        let rows = count * 3 / 2 + 1;
        let places = (0..rows).filter(|row| row % 3 != 1);
        let wanted: Vec<Wanted> =
            order.iter().zip(places).map(|(i, row)| Wanted { index: *i as u64, row }).collect();
        let mut columns: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0xA5; size * rows]).collect();
        let mut copied = vec![false; rows];
        let texts = Texts::default();
        let has_texts = sizes.contains(&0) && source.gathers_lists();
        let mut into = Gather {
            columns: columns.iter_mut().map(Vec::as_mut_slice).collect(),
            copied: &mut copied,
            lists: has_texts.then_some(&texts as &dyn Lists),
        };
        source.gather(&wanted, &Record::default(), &mut into);
        let texts = texts.0.into_inner().unwrap();
        let mut asked = vec![false; rows];
        for Wanted { index, row } in wanted {
            asked[row] = true;
            if !copied[row] {
                continue;
            }
            let Ok(values) = &fresh[at(index)] else { panic!("sample {index} is damaged, and was gathered") };
            assert!(!has_texts || !Texts::refuses(row), "row {row} found no room");
            for (field, ((value, size), column)) in values.iter().zip(&sizes).zip(&columns).enumerate() {
                let expected = match value {
                    Value::Int(number) => number.to_ne_bytes().to_vec(),
                    Value::Bytes(bytes) => bytes.clone(),
                    other => panic!("{other:?} has no fixed size"),
                };
                if has_texts && *size == 0 {
                    assert_eq!(texts.get(&(field, row)), Some(&expected), "sample {index} is gathered");
                    continue;
                }
                assert_eq!(column[row * size..(row + 1) * size], expected, "sample {index} is gathered");
            }
        }
        for row in (0..rows).filter(|row| !asked[*row]) {
            assert!(!copied[row], "row {row} was not asked for");
            for (size, column) in sizes.iter().zip(&columns) {
                assert!(column[row * size..(row + 1) * size].iter().all(|byte| *byte == 0xA5), "row {row}");
            }
        }
    }
}

/// Texts by field and row. There is no room for some of them.
#[derive(Debug, Default)]
struct Texts(Mutex<HashMap<(usize, usize), Vec<u8>>>);

impl Texts {
    fn refuses(row: usize) -> bool {
        row % 5 == 2
    }
}

impl Lists for Texts {
    fn set(&self, field: usize, row: usize, bytes: &[u8]) -> bool {
        if Self::refuses(row) {
            return false;
        }
        self.0.lock().unwrap().insert((field, row), bytes.to_vec());
        true
    }
}

fn at(index: u64) -> usize {
    usize::try_from(index).expect("all samples were fetched into a vector")
}

fn fetch(source: &dyn Source, index: u64, record: &mut Record) -> Fetched {
    values(source, index, record, |record| source.fetch(index, record))
}

/// What `read` puts into `record`.
fn values(
    source: &dyn Source,
    index: u64,
    record: &mut Record,
    read: impl FnOnce(&mut Record) -> Result<(), Error>,
) -> Fetched {
    let fields = &source.schema().fields;
    if let Err(e) = read(record) {
        check_error(source, index, &e);
        return Err(e.to_string());
    }
    assert_eq!(record.values.len(), fields.len(), "sample {index} has a value for every field");
    assert_eq!(record.offsets.len(), fields.len(), "sample {index} has an offset for every field");
    let values = record.values.iter().enumerate().map(|(i, value)| {
        let bytes = match value {
            Value::Bytes(bytes) => bytes.as_slice(),
            Value::Resident => source.resident(index, i).expect("a resident field lies in memory"),
            Value::Int(_) => {
                assert_eq!(
                    fields[i].kind,
                    FieldKind::LABEL,
                    "{} of sample {index} is no integer",
                    fields[i].name
                );
                return value.clone();
            }
            Value::Shared(_) => panic!("{} of sample {index} is a cache's", fields[i].name),
            Value::Empty => panic!("{} of sample {index} was not fetched", fields[i].name),
        };
        check_bytes(&fields[i].kind, bytes, &format!("{} of sample {index}", fields[i].name));
        Value::Bytes(bytes.to_vec())
    });
    Ok(values.collect())
}

fn check_error(source: &dyn Source, index: u64, e: &Error) {
    assert_eq!(e.index(), Some(index), "errors name the index: {e}");
    assert_eq!(e.key(), Some(source.key(index).as_str()), "errors name the key: {e}");
    assert_eq!(e.stage(), Some("read"), "errors name the stage: {e}");
    assert_eq!(e.source_name(), Some(source.name().as_str()), "errors name the source: {e}");
}

fn check_bytes(kind: &FieldKind, bytes: &[u8], what: &str) {
    let expected = match kind {
        FieldKind::Array { dtype, shape } => {
            let fixed = dtype.size() * shape.iter().flatten().product::<usize>();
            if !kind.varies() {
                Some(fixed)
            } else {
                assert!(bytes.len().is_multiple_of(fixed), "{what} has whole elements");
                None
            }
        }
        &FieldKind::LABEL => panic!("{what} is a label but holds bytes"),
        FieldKind::Scalar { dtype } => Some(dtype.size()),
        FieldKind::Pixels { height, width, channels, .. } => Some(height * width * channels),
        FieldKind::Text | FieldKind::Json => {
            assert!(std::str::from_utf8(bytes).is_ok(), "{what} is UTF-8");
            None
        }
        FieldKind::Boxes { .. } | FieldKind::BoxLabels { .. } | FieldKind::Keypoints => {
            let row = match kind {
                FieldKind::Boxes { dtype, .. } => 4 * dtype.size(),
                FieldKind::BoxLabels { dtype } => dtype.size(),
                _ => 8,
            };
            assert!(bytes.len().is_multiple_of(row), "{what} has whole rows of {row} bytes");
            None
        }
        FieldKind::Image | FieldKind::Audio | FieldKind::Mask { .. } | FieldKind::Bytes => None,
    };
    if let Some(expected) = expected {
        assert_eq!(bytes.len(), expected, "{what} has the bytes that its shape needs");
    }
}
