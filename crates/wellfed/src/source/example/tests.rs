use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    sample::{DType, FieldKind},
    source::features::FeatureForm::{FixedLen, Rows, VarLen},
};

/// Writes messages in every way that the wire format allows.
pub(in crate::source) mod writer {
    /// Values of a feature.
    #[derive(Clone, Debug, PartialEq)]
    pub(in crate::source) enum Values {
        None,
        Bytes(Vec<Vec<u8>>),
        Floats(Vec<f32>),
        Ints(Vec<i64>),
    }

    fn varint(mut number: u64, into: &mut Vec<u8>) {
        while number >= 0x80 {
            into.push(number as u8 | 0x80);
            number >>= 7;
        }
        into.push(number as u8);
    }

    pub(in crate::source) fn message(field: u8, bytes: &[u8], into: &mut Vec<u8>) {
        into.push(field << 3 | 2);
        varint(bytes.len() as u64, into);
        into.extend_from_slice(bytes);
    }

    pub(in crate::source) fn feature(values: &Values, packed: bool) -> Vec<u8> {
        let (mut list, mut out) = (Vec::new(), Vec::new());
        let field = match values {
            Values::None => return out,
            Values::Bytes(all) => {
                all.iter().for_each(|one| message(1, one, &mut list));
                1
            }
            Values::Floats(all) if packed => {
                let bytes: Vec<u8> = all.iter().flat_map(|one| one.to_le_bytes()).collect();
                message(1, &bytes, &mut list);
                2
            }
            Values::Floats(all) => {
                for one in all {
                    list.push(1 << 3 | 5);
                    list.extend_from_slice(&one.to_le_bytes());
                }
                2
            }
            Values::Ints(all) if packed => {
                let mut bytes = Vec::new();
                all.iter().for_each(|one| varint(*one as u64, &mut bytes));
                message(1, &bytes, &mut list);
                3
            }
            Values::Ints(all) => {
                for one in all {
                    list.push(1 << 3);
                    varint(*one as u64, &mut list);
                }
                3
            }
        };
        message(field, &list, &mut out);
        out
    }

    fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, value) in entries {
            let mut entry = Vec::new();
            message(1, key.as_bytes(), &mut entry);
            message(2, &value, &mut entry);
            message(1, &entry, &mut out);
        }
        out
    }

    /// An `Example`.
    pub(in crate::source) fn example(features: &[(&str, Values)]) -> Vec<u8> {
        sequence_example(features, &[])
    }

    /// A `SequenceExample`.
    pub(in crate::source) fn sequence_example(
        context: &[(&str, Values)],
        lists: &[(&str, Vec<Values>)],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        message(1, &map(context.iter().map(|(key, values)| (*key, feature(values, true)))), &mut out);
        if !lists.is_empty() {
            let list = |steps: &Vec<Values>| {
                let mut out = Vec::new();
                steps.iter().for_each(|step| message(1, &feature(step, true), &mut out));
                out
            };
            message(2, &map(lists.iter().map(|(key, steps)| (*key, list(steps)))), &mut out);
        }
        out
    }
}

use writer::{Values, example, feature, message, sequence_example};

fn spec(name: &str, dtype: FeatureType, form: FeatureForm) -> FeatureSpec {
    FeatureSpec { name: name.to_owned(), key: None, dtype, form, default: None }
}

fn read(wanted: &[(FeatureSpec, bool)], bytes: &[u8]) -> Result<Vec<Value>> {
    let features = Features::new(wanted.to_vec());
    let mut record = Record::default();
    record.reset(wanted.len());
    features.read(bytes, &mut record, false).map(|_| record.values)
}

fn one(spec: FeatureSpec, bytes: &[u8]) -> Result<Value> {
    read(&[(spec, false)], bytes).map(|mut values| values.remove(0))
}

fn elements<const N: usize>(of: impl IntoIterator<Item = [u8; N]>) -> Value {
    Value::Bytes(of.into_iter().flatten().collect())
}

fn floats(of: &[f32]) -> Value {
    elements(of.iter().map(|one| one.to_ne_bytes()))
}

fn ints(of: &[i64]) -> Value {
    elements(of.iter().map(|one| one.to_ne_bytes()))
}

#[test]
fn each_form_takes_its_values() {
    let record = example(&[
        ("label", Values::Ints(vec![-5])),
        ("box", Values::Floats(vec![0.5, f32::NAN, 1e30, -0.0])),
        ("tokens", Values::Ints(vec![1, 300, i64::MIN, i64::MAX])),
        ("jpg", Values::Bytes(vec![b"\xff\xd8".to_vec()])),
        ("words", Values::Bytes(vec!["é\"".into(), "b\n".into()])),
        ("nothing", Values::None),
        ("empty", Values::Ints(vec![])),
    ]);
    use FeatureType::{Float32, Image, Int64, String, Text};
    assert_eq!(one(spec("label", Int64, FixedLen(vec![])), &record).unwrap(), Value::Int(-5));
    assert_eq!(one(spec("label", Int64, FixedLen(vec![1])), &record).unwrap(), ints(&[-5]));
    let bits = floats(&[0.5, f32::NAN, 1e30, -0.0]);
    assert_eq!(one(spec("box", Float32, FixedLen(vec![2, 2])), &record).unwrap(), bits);
    assert_eq!(one(spec("box", Float32, VarLen), &record).unwrap(), bits);
    assert_eq!(one(spec("box", Float32, Rows(vec![2])), &record).unwrap(), bits);
    assert_eq!(one(spec("tokens", Int64, VarLen), &record).unwrap(), ints(&[1, 300, i64::MIN, i64::MAX]));
    assert_eq!(
        one(spec("jpg", Image, FixedLen(vec![])), &record).unwrap(),
        Value::Bytes(b"\xff\xd8".to_vec())
    );
    assert_eq!(
        one(spec("words", Text, VarLen), &record).unwrap(),
        Value::Bytes(b"[\"\xc3\xa9\\\"\",\"b\\n\"]".to_vec())
    );
    for lacking in ["gone", "nothing"] {
        assert_eq!(one(spec(lacking, Int64, VarLen), &record).unwrap(), ints(&[]));
        assert_eq!(one(spec(lacking, Text, VarLen), &record).unwrap(), Value::Bytes(b"[]".to_vec()));
        let e = one(spec(lacking, Int64, FixedLen(vec![])), &record).unwrap_err();
        assert!(e.message().contains(&format!("feature {lacking}: the record lacks it")), "{e}");
        let default =
            |default, dtype, form| FeatureSpec { default: Some(default), ..spec(lacking, dtype, form) };
        let filled = one(default(FeatureDefault::Int64(vec![7]), Int64, FixedLen(vec![])), &record).unwrap();
        assert_eq!(filled, Value::Int(7));
        let nan = FeatureDefault::Float32Bits(vec![f32::NAN.to_bits(), 0]);
        assert_eq!(one(default(nan, Float32, FixedLen(vec![2])), &record).unwrap(), floats(&[f32::NAN, 0.0]));
        let text = FeatureDefault::Bytes(b"x".to_vec());
        assert_eq!(
            one(default(text, String, FixedLen(vec![])), &record).unwrap(),
            Value::Bytes(b"x".to_vec())
        );
    }
    for (wrong, says) in [
        (spec("label", Float32, VarLen), "values of int64, but float32"),
        (spec("label", Int64, FixedLen(vec![2])), "1 values, but shape [2] takes 2"),
        (spec("box", Float32, Rows(vec![3])), "no whole rows of shape [3]"),
        (spec("empty", Int64, FixedLen(vec![])), "0 values"),
        (spec("words", String, FixedLen(vec![])), "2 values"),
        (spec("jpg", Text, FixedLen(vec![])), "not UTF-8"),
        (spec("words", Int64, VarLen), "values of bytes"),
    ] {
        let e = one(wrong, &record).unwrap_err();
        assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(says), "{e}");
    }
}

#[test]
fn steps_are_features_one_behind_the_other() {
    let record = sequence_example(
        &[("id", Values::Ints(vec![4]))],
        &[
            ("id", vec![Values::Floats(vec![1.0, 2.0]), Values::Floats(vec![3.0, 4.0])]),
            ("words", vec![Values::Bytes(vec!["a".into()]), Values::Bytes(vec!["b".into()])]),
            ("odd", vec![Values::Ints(vec![1]), Values::Ints(vec![])]),
        ],
    );
    let sequence =
        |shape: &[usize], allow_missing| FeatureForm::Sequence { shape: shape.to_vec(), allow_missing };
    use FeatureType::{Float32, Int64, Text};
    let wanted = [
        (spec("id", Int64, FixedLen(vec![])), false),
        (
            FeatureSpec {
                name: "x".to_owned(),
                key: Some("id".to_owned()),
                ..spec("", Float32, sequence(&[2], false))
            },
            true,
        ),
        (spec("words", Text, sequence(&[], false)), true),
        (spec("gone", Float32, sequence(&[2], true)), true),
    ];
    let words = Value::Bytes(br#"["a","b"]"#.to_vec());
    assert_eq!(
        read(&wanted, &record).unwrap(),
        [Value::Int(4), floats(&[1.0, 2.0, 3.0, 4.0]), words, floats(&[])]
    );
    for (wrong, says) in [
        (spec("gone", Float32, sequence(&[], false)), "lacks it"),
        (spec("odd", Int64, sequence(&[], false)), "step 1: it has 0 values"),
        (spec("id", Float32, sequence(&[3], false)), "step 0: it has 2 values"),
        (spec("id", Int64, sequence(&[2], false)), "values of float32"),
    ] {
        let e = read(&[(wrong, true)], &record).unwrap_err();
        assert!(e.message().contains(says), "{e}");
    }
}

#[test]
fn what_cannot_be_a_field_says_so() {
    use FeatureType::{Int64, String, Text};
    let sequence = |allow_missing| FeatureForm::Sequence { shape: vec![], allow_missing };
    assert_eq!(
        spec("x", Int64, Rows(vec![4])).kind(false).unwrap(),
        FieldKind::Array { dtype: DType::Int64, shape: vec![None, Some(4)] }
    );
    assert_eq!(spec("x", Text, FixedLen(vec![3])).kind(false).unwrap(), FieldKind::Json);
    for (wrong, steps, says) in [
        (spec("x", String, VarLen), false, "several values of dtype \"string\""),
        (spec("x", String, FixedLen(vec![1])), false, "several values"),
        (spec("x", Int64, FixedLen(vec![0])), false, "no elements"),
        (spec("x", Int64, FixedLen(vec![usize::MAX, 2])), false, "too many elements"),
        (spec("x", Int64, sequence(false)), false, "allow_missing=True"),
        (spec("x", Int64, VarLen), true, "FixedLenSequenceFeature"),
        (
            FeatureSpec {
                default: Some(FeatureDefault::Int64(vec![1])),
                ..spec("x", Int64, FixedLen(vec![2]))
            },
            false,
            "default",
        ),
        (
            FeatureSpec { default: Some(FeatureDefault::Int64(vec![1])), ..spec("x", Int64, VarLen) },
            false,
            "default",
        ),
    ] {
        let e = wrong.kind(steps).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.message().contains(says), "{e}");
    }
}

#[test]
fn the_last_of_two_counts_and_lists_of_one_kind_are_one() {
    let (a, b) = (Values::Ints(vec![1]), Values::Ints(vec![2, 3]));
    let record = example(&[("x", a.clone()), ("x", b.clone())]);
    let of = |bytes: &[u8]| one(spec("x", FeatureType::Int64, VarLen), bytes).unwrap();
    assert_eq!(of(&record), ints(&[2, 3]));
    // Two messages in one are merged, as protobuf does it.
    let twice = [example(&[("x", a.clone())]), example(&[("x", b.clone())])].concat();
    assert_eq!(of(&twice), ints(&[2, 3]));
    let (mut entry, mut map, mut all) = (Vec::new(), Vec::new(), Vec::new());
    message(1, b"x", &mut entry);
    let floats = Values::Floats(vec![1.0]);
    message(2, &[feature(&floats, true), feature(&a, true), feature(&b, false)].concat(), &mut entry);
    message(1, &entry, &mut map);
    message(1, &map, &mut all);
    assert_eq!(of(&all), ints(&[1, 2, 3]));
}

fn values() -> impl Strategy<Value = Values> {
    prop_oneof![
        Just(Values::None),
        vec(vec(any::<u8>(), 0..6), 0..4).prop_map(Values::Bytes),
        vec(any::<f32>(), 0..200).prop_map(Values::Floats),
        vec(any::<i64>(), 0..40).prop_map(Values::Ints),
        vec(-3..200_i64, 0..40).prop_map(Values::Ints),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_written_is_read(all in vec((0..90_u8, values()), 0..120), packed in any::<bool>()) {
        let names: Vec<String> = (0..90).map(|i| format!("feature/{i}")).collect();
        let mut map = Vec::new();
        for (name, values) in &all {
            let mut entry = Vec::new();
            // Fields in any order, and unknown ones among them.
            message(2, &feature(values, packed), &mut entry);
            message(7, b"unknown", &mut entry);
            message(1, names[usize::from(*name)].as_bytes(), &mut entry);
            message(1, &entry, &mut map);
        }
        let mut record = Vec::new();
        message(9, b"unknown", &mut record);
        message(1, &map, &mut record);
        let last = |name: usize| all.iter().rev().find(|(n, _)| usize::from(*n) == name).map(|(_, values)| values);
        let wanted: Vec<(FeatureSpec, bool)> = (0..90).step_by(1 + all.len() % 2).map(|name| {
            let dtype = match last(name) {
                Some(Values::Floats(_)) => FeatureType::Float32,
                _ => FeatureType::Int64,
            };
            (spec(&names[name], dtype, VarLen), false)
        }).filter(|(spec, _)| {
            let name = names.iter().position(|name| *name == spec.name).unwrap();
            !matches!(last(name), Some(Values::Bytes(_)))
        }).collect();
        let read = read(&wanted, &record).unwrap();
        for ((spec, _), value) in wanted.iter().zip(read) {
            let name = names.iter().position(|name| *name == spec.name).unwrap();
            let expected = match last(name) {
                Some(Values::Floats(all)) => floats(all),
                Some(Values::Ints(all)) => ints(all),
                _ => ints(&[]),
            };
            prop_assert_eq!(value, expected);
        }
    }

    #[test]
    fn rubbish_is_read_or_refused(bytes in vec(any::<u8>(), 0..80), flips in vec((any::<u16>(), any::<u8>()), 0..4)) {
        let wanted = [
            (spec("a", FeatureType::Int64, VarLen), false),
            (spec("b", FeatureType::Float32, FixedLen(vec![2])), false),
            (spec("c", FeatureType::String, FixedLen(vec![])), false),
            (spec("s", FeatureType::Text, FeatureForm::Sequence { shape: vec![], allow_missing: true }), true),
        ];
        let _ = read(&wanted, &bytes);
        let mut record = sequence_example(
            &[("a", Values::Ints(vec![1, 500])), ("b", Values::Floats(vec![1.0, 2.0])), ("c", Values::Bytes(vec![bytes]))],
            &[("s", vec![Values::Bytes(vec!["x".into()])])],
        );
        prop_assert!(read(&wanted, &record).is_ok());
        for (at, byte) in flips {
            let at = usize::from(at) % record.len();
            record[at] = byte;
        }
        let _ = read(&wanted, &record);
        let _ = describe(&record);
    }
}
