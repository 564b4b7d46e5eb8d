use std::io::Write as _;

use proptest::prelude::*;

use super::*;
use crate::{
    source::{
        FeatureForm, FeatureType, conformance,
        example::tests::writer::{Values, example, sequence_example},
        tfrecord_framing::tests::framed,
    },
    store::{Fault, FaultyStore, Operation, Retry},
    testing::TempFolder,
};

fn feature(name: &str, dtype: FeatureType, form: FeatureForm) -> FeatureSpec {
    FeatureSpec { name: name.to_owned(), key: None, dtype, form, default: None }
}

fn features() -> Vec<FeatureSpec> {
    vec![
        feature("label", FeatureType::Int64, FeatureForm::FixedLen(vec![])),
        feature("image", FeatureType::Image, FeatureForm::FixedLen(vec![])),
        feature("text", FeatureType::Text, FeatureForm::FixedLen(vec![])),
        feature("tokens", FeatureType::Int64, FeatureForm::VarLen),
        feature("box", FeatureType::Float32, FeatureForm::FixedLen(vec![4])),
    ]
}

fn sample(number: i64) -> Vec<u8> {
    let image = vec![number as u8; 50 + 30 * (number as usize % 3)];
    example(&[
        ("unused", Values::Bytes(vec![vec![9; 20]])),
        ("tokens", Values::Ints((0..number % 5).collect())),
        ("image", Values::Bytes(vec![image])),
        ("label", Values::Ints(vec![number])),
        ("text", Values::Bytes(vec![format!("text {number}").into_bytes()])),
        ("box", Values::Floats(vec![number as f32; 4])),
    ])
}

fn file(numbers: std::ops::Range<i64>) -> Vec<u8> {
    let records: Vec<Vec<u8>> = numbers.map(sample).collect();
    framed(records.iter().map(Vec::as_slice))
}

fn open(spec: TfRecordSpec) -> Result<TfRecord> {
    TfRecord::open(Arc::new(LocalStore::new()), spec)
}

fn with_features(url: String) -> TfRecordSpec {
    TfRecordSpec { features: Some(features()), ..TfRecordSpec::new(url) }
}

fn fetch(source: &TfRecord, index: u64) -> Result<Vec<Value>> {
    let mut record = Record::default();
    source.fetch(index, &mut record).map(|()| record.values)
}

fn label(source: &TfRecord, index: u64) -> Result<i64> {
    match &fetch(source, index)?[0] {
        Value::Int(number) => Ok(*number),
        other => panic!("{other:?}"),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn features_make_a_dict_and_fields_a_tuple() {
    let folder = TempFolder::new();
    folder.write("t-0", &file(0..4));
    folder.write("t-1", &file(4..7));
    folder.write("t-2", b"");
    let source = open(with_features(folder.join("t-{0..2}"))).unwrap();
    conformance::check(&source);
    assert_eq!((source.len(), source.shards().count()), (7, 3));
    for number in 0..7 {
        let values = fetch(&source, number).unwrap();
        assert_eq!(values[0], Value::Int(number as i64));
        assert_eq!(values[1], Value::Bytes(vec![number as u8; 50 + 30 * (number as usize % 3)]));
        assert_eq!(values[2], Value::Bytes(format!("text {number}").into_bytes()));
        assert_eq!(
            values[4],
            Value::Bytes([number as f32; 4].iter().flat_map(|n| n.to_ne_bytes()).collect())
        );
    }
    assert_eq!(source.key(5), format!("{}/1", folder.join("t-1")));
    let kinds: Vec<_> = source.schema().fields.iter().map(|field| field.kind.clone()).collect();
    assert_eq!(kinds[..3], [FieldKind::LABEL, FieldKind::Image, FieldKind::Text]);
    let fields = ["__key__", "box", "image", "__url__"].map(str::to_owned).to_vec();
    let source = open(TfRecordSpec { fields: Some(fields), ..with_features(folder.join("t-*")) }).unwrap();
    conformance::check(&source);
    assert_eq!(source.schema().structure.fields(), [2, 0, 1, 3]);
    assert_eq!(fetch(&source, 6).unwrap()[2], Value::Bytes(format!("{}/2", folder.join("t-1")).into_bytes()));
    let found = source.features_of_first();
    assert_eq!((&*found[0].name, &*found[0].values, found[0].single), ("box", "4 of float32", None));
    assert_eq!((&*found[2].name, found[2].single), ("label", Some(FeatureType::Int64)));
    assert_eq!(found.len(), 6);
    for (fields, says) in
        [(vec!["nope"], "features are label"), (vec!["box", "box"], "twice"), (vec![], "empty")]
    {
        let fields = Some(fields.into_iter().map(str::to_owned).collect());
        let e = open(TfRecordSpec { fields, ..with_features(folder.join("t-*")) }).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.message().contains(says), "{e}");
    }
}

#[test]
fn without_features_records_are_bytes() {
    let folder = TempFolder::new();
    let records = [&b"first"[..], b"", b"third"];
    let url = folder.write("x", &framed(records));
    let source = open(TfRecordSpec::new(url.clone())).unwrap();
    conformance::check(&source);
    for (number, record) in (0..).zip(records) {
        assert_eq!(fetch(&source, number).unwrap(), [Value::Bytes(record.to_vec())]);
    }
    assert!(source.features_of_first().is_empty());
    let spec = TfRecordSpec { features: Some(features()), ..TfRecordSpec::new(url) };
    let e = fetch(&open(spec).unwrap(), 0).unwrap_err();
    assert_eq!((e.kind(), e.offset(), e.index()), (ErrorKind::Corrupt, Some(12), Some(0)), "{e}");
}

#[test]
fn sequence_examples_are_pairs_of_dicts() {
    let folder = TempFolder::new();
    let one = |n: i64| {
        let steps = (0..n).map(|i| Values::Floats(vec![i as f32, n as f32])).collect();
        sequence_example(&[("id", Values::Ints(vec![n]))], &[("x", steps)])
    };
    let records: Vec<Vec<u8>> = (0..4).map(one).collect();
    let url = folder.write("x", &framed(records.iter().map(Vec::as_slice)));
    let sequence = FeatureForm::Sequence { shape: vec![2], allow_missing: false };
    let spec = TfRecordSpec {
        features: Some(vec![feature("id", FeatureType::Int64, FeatureForm::FixedLen(vec![]))]),
        sequence_features: Some(vec![feature("x", FeatureType::Float32, sequence)]),
        ..TfRecordSpec::new(url)
    };
    let source = open(spec).unwrap();
    conformance::check(&source);
    assert!(matches!(&source.schema().structure, Structure::Tuple(parts) if parts.len() == 2));
    let steps = [0.0_f32, 2.0, 1.0, 2.0].iter().flat_map(|n| n.to_ne_bytes()).collect();
    assert_eq!(fetch(&source, 2).unwrap(), [Value::Int(2), Value::Bytes(steps)]);
}

#[test]
fn a_default_stands_for_a_missing_image() {
    let folder = TempFolder::new();
    let records = [example(&[("label", Values::Ints(vec![1]))]), sample(3)];
    let url = folder.write("x", &framed(records.iter().map(Vec::as_slice)));
    let mut image = feature("image", FeatureType::Image, FeatureForm::FixedLen(vec![]));
    let spec = |image: &FeatureSpec| TfRecordSpec {
        features: Some(vec![image.clone()]),
        ..TfRecordSpec::new(&*url)
    };
    assert!(fetch(&open(spec(&image)).unwrap(), 0).unwrap_err().message().contains("lacks it"));
    image.default = Some(crate::source::FeatureDefault::Bytes(b"none".to_vec()));
    let source = open(spec(&image)).unwrap();
    conformance::check(&source);
    assert_eq!(fetch(&source, 0).unwrap(), [Value::Bytes(b"none".to_vec())]);
    assert_eq!(fetch(&source, 1).unwrap(), [Value::Bytes(vec![3; 50])]);
}

#[test]
fn every_cut_keeps_what_is_before_it_and_says_where() {
    let folder = TempFolder::new();
    let file = file(0..3);
    let whole = open(with_features(folder.write("whole", &file))).unwrap();
    let ends: Vec<u64> = whole.shards[0].index.starts.iter().copied().chain([file.len() as u64]).collect();
    for cut in 0..=file.len() {
        let source = open(with_features(folder.write("x", &file[..cut]))).unwrap();
        let records = ends.iter().filter(|end| **end <= cut as u64).count() as u64 - 1;
        let damaged = !ends.contains(&(cut as u64));
        assert_eq!(source.len(), records + u64::from(damaged), "cut at {cut}");
        for number in 0..records {
            assert_eq!(fetch(&source, number).unwrap(), fetch(&whole, number).unwrap());
        }
        if damaged {
            let e = fetch(&source, records).unwrap_err();
            assert_eq!((e.kind(), e.offset()), (ErrorKind::Corrupt, Some(ends[records as usize])), "{e}");
        }
        if cut % 97 == 0 {
            conformance::check(&source);
        }
    }
}

#[test]
fn what_storage_cannot_give_is_no_damage() {
    let folder = TempFolder::new();
    let url = folder.write("x", &file(0..3));
    for failing in [Operation::Stat, Operation::ReadRange] {
        let decide = move |call: &crate::store::Call<'_>| {
            if call.operation == failing { Fault::Error(std::io::ErrorKind::TimedOut) } else { Fault::None }
        };
        let once = Retry { attempts: 1, ..Retry::default() };
        let store = FaultyStore::new(Arc::new(LocalStore::new()), decide).with_retry(once);
        let e = TfRecord::open(Arc::new(store), with_features(url.clone())).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Transient, "{e}");
    }
}

#[test]
fn a_sidecar_is_made_and_used() {
    let folder = TempFolder::new();
    let url = folder.write("x.tfrecord", &file(0..5));
    let spec = TfRecordSpec { index: IndexMode::Sidecar, ..with_features(url.clone()) };
    let first = open(spec.clone()).unwrap();
    assert!(std::path::Path::new(&tfrecord_sidecar::path_of(&url)).exists());
    // With kept indices no length is read, so a store that cannot read ranges is good enough. Patterns match no indices.
    let blind = FaultyStore::new(Arc::new(LocalStore::new()), |call| match call.operation {
        Operation::ReadRange => Fault::Error(std::io::ErrorKind::TimedOut),
        _ => Fault::None,
    })
    .with_retry(Retry { attempts: 1, ..Retry::default() });
    let pattern = TfRecordSpec { urls: vec![folder.join("x.tfrecord*")], ..spec.clone() };
    let second = TfRecord::open(Arc::new(blind), pattern).unwrap();
    assert_eq!(first.shards[0].index, second.shards[0].index);
    assert_eq!((first.fingerprint(), second.len()), (second.fingerprint(), 5));
    std::fs::write(&url, file(0..6)).unwrap();
    let third = open(spec).unwrap();
    assert_eq!(third.len(), 6);
    assert_ne!(first.fingerprint(), third.fingerprint());
}

#[test]
fn compressed_files_are_unpacked_once() {
    let folder = TempFolder::new();
    let all = file(0..5);
    let half = all.len() / 2;
    for (name, packed, compression) in [
        ("g", gzip(&all), TfRecordCompression::Gzip),
        ("members", [gzip(&all[..half]), gzip(&all[half..])].concat(), TfRecordCompression::Gzip),
        ("z", zlib(&all), TfRecordCompression::Zlib),
        ("none", gzip(b""), TfRecordCompression::Gzip),
    ] {
        let url = folder.write(name, &packed);
        let into = folder.join(&format!("unpacked-{name}"));
        for compression in [TfRecordCompression::Auto, compression] {
            let spec = TfRecordSpec { compression, ..with_features(url.clone()) };
            let e = open(spec.clone()).unwrap_err();
            assert!(e.kind() == ErrorKind::Unsupported && e.hint().unwrap().contains("unpack_to"), "{e}");
            for _ in 0..2 {
                let source =
                    open(TfRecordSpec { unpack_to: Some(into.clone().into()), ..spec.clone() }).unwrap();
                conformance::check(&source);
                assert_eq!(source.len(), if name == "none" { 0 } else { 5 }, "{name}");
                assert!((0..source.len()).all(|i| label(&source, i).unwrap() == i as i64));
                assert_eq!(std::fs::read_dir(&into).unwrap().count(), 1, "it is unpacked once");
            }
        }
        let spec = TfRecordSpec { compression: TfRecordCompression::None, ..with_features(url) };
        let e = open(spec).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.hint().unwrap().contains("compression="), "{e}");
    }
    let both = TfRecordSpec {
        urls: vec![folder.join("g"), folder.write("plain", &all)],
        unpack_to: Some(folder.join("both").into()),
        ..with_features(String::new())
    };
    let e = open(both).unwrap_err();
    assert!(e.message().contains("1 of 2 files are compressed"), "{e}");
}

#[test]
fn every_cut_of_a_compressed_file_is_damage() {
    let folder = TempFolder::new();
    let all = file(0..3);
    for packed in [gzip(&all), zlib(&all)] {
        let compression =
            if packed[0] == 0x1f { TfRecordCompression::Gzip } else { TfRecordCompression::Zlib };
        for cut in (0..packed.len()).step_by(3) {
            let spec = TfRecordSpec {
                compression,
                unpack_to: Some(folder.join("into").into()),
                ..with_features(folder.write("x", &packed[..cut]))
            };
            let source = open(spec).unwrap();
            let records = source.len() - 1;
            assert!((0..records).all(|i| label(&source, i).unwrap() == i as i64));
            let e = fetch(&source, records).unwrap_err();
            assert!(
                e.kind() == ErrorKind::Corrupt && e.message().contains("unpacked to its end"),
                "cut at {cut}: {e}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Of a file with one changed byte no sample is wrong: each is what it was, or an error; and those that are gone are
    /// behind an error.
    #[test]
    fn no_flip_is_lost(at in any::<proptest::sample::Index>(), flip in 1..=255_u8) {
        thread_local! {
            static FOLDER: TempFolder = TempFolder::new();
        }
        let good = file(0..4);
        let mut bad = good.clone();
        bad[at.index(good.len())] ^= flip;
        let source = FOLDER.with(|folder| open(with_features(folder.write("x", &bad)))).unwrap();
        let mut errors = 0;
        for index in 0..source.len() {
            match label(&source, index) {
                Ok(number) => prop_assert_eq!(number, index as i64),
                Err(e) => {
                    prop_assert_eq!(e.kind(), ErrorKind::Corrupt);
                    prop_assert!(e.offset().is_some());
                    errors += 1;
                }
            }
        }
        prop_assert_eq!(errors, 1);
        prop_assert!(source.len() == 4 || label(&source, source.len() - 1).is_err());
    }
}

#[test]
fn who_checks_a_file_reads_lengths_that_a_kept_index_spares() {
    let folder = TempFolder::new();
    let path = folder.write("x.tfrecord", &framed([&b"abc"[..], b"def"]));
    let of = |index| {
        TfRecord::open(Arc::new(LocalStore::new()), TfRecordSpec { index, ..TfRecordSpec::new(&*path) })
            .unwrap()
    };
    assert_eq!(of(IndexMode::Sidecar).len(), 2);
    // A bit of the second length goes, and nobody has written.
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let second = bytes.len() / 2;
    bytes[second + 9] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert!(of(IndexMode::Memory).shards[0].index.damage.is_none());
    assert!(of(IndexMode::Anew).shards[0].index.damage.is_some());
}
