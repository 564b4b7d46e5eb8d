use super::*;
use crate::{
    source::{
        conformance,
        unpack::tests::{gzip, zstandard},
    },
    store::LocalStore,
    testing::TempFolder,
};

fn field(name: &str) -> JsonField {
    JsonField { name: name.to_owned(), kind: None, default: None }
}

fn typed(name: &str, kind: FieldKind) -> JsonField {
    JsonField { kind: Some(kind), ..field(name) }
}

fn open(url: &str, fields: Option<Vec<JsonField>>) -> Result<JsonLines> {
    JsonLines::open(Arc::new(LocalStore::new()), JsonLinesSpec { fields, ..JsonLinesSpec::new(url) })
}

fn fetch(source: &JsonLines, index: u64) -> Result<Vec<Value>> {
    let mut record = Record::default();
    source.fetch(index, &mut record).map(|()| record.values)
}

fn bytes(content: &[u8]) -> Value {
    Value::Bytes(content.to_vec())
}

const LINES: &str = concat!(
    "\n{\"text\": \"a \\u00fc\", \"label\": 3, \"tokens\": [1, 2], \"score\": 1, \"more\": {\"b\": 1, \"a\": NULL}}\r\n",
    "   \t\n",
    "{\"label\": -4, \"text\": \"\", \"tokens\": [], \"score\": 0.5, \"more\": [\"x\"]}\n",
    "\n\n{\"text\":\"c\",\"label\":5,\"tokens\":[7],\"score\":2e3,\"more\":null,\"label\":6}",
);

fn lines() -> String {
    LINES.replace("NULL", "null")
}

#[test]
fn keys_of_the_first_lines_are_fields() {
    let folder = TempFolder::new();
    let text = lines();
    let files = [
        ("a.jsonl", text.clone().into_bytes()),
        ("b.jsonl.gz", gzip(text.as_bytes())),
        ("c.jsonl.zst", zstandard(text.as_bytes())),
    ];
    for (name, content) in files {
        let path = folder.write(name, &content);
        let mut urls = vec![path.clone()];
        if name == "a.jsonl" {
            urls.push(format!("delayed+file://{path}"));
        }
        for url in urls {
            let source = open(&url, None).unwrap();
            let list = FieldKind::Array { dtype: DType::Int64, shape: vec![None] };
            let score = FieldKind::Scalar { dtype: DType::Float64 };
            let expected = [
                ("text", FieldKind::Text),
                ("label", FieldKind::LABEL),
                ("tokens", list),
                ("score", score),
                ("more", FieldKind::Json),
            ];
            assert_eq!(*source.schema(), Schema::dict(expected));
            assert_eq!(source.len(), 3);
            let numbers: Vec<u8> = [1_i64, 2].iter().flat_map(|n| n.to_ne_bytes()).collect();
            let first = [
                bytes("a ü".as_bytes()),
                Value::Int(3),
                bytes(&numbers),
                bytes(&1_f64.to_ne_bytes()),
                bytes(b"{\"b\": 1, \"a\": null}"),
            ];
            assert_eq!(fetch(&source, 0).unwrap(), first);
            assert_eq!(fetch(&source, 1).unwrap()[1..3], [Value::Int(-4), bytes(b"")]);
            // The last of two values counts, as in Python.
            assert_eq!(fetch(&source, 2).unwrap()[1], Value::Int(6));
            assert_eq!(fetch(&source, 2).unwrap()[4], bytes(b"null"));
            let keys: Vec<String> = (0..3).map(|i| source.key(i)).collect();
            assert_eq!(keys, [2, 4, 7].map(|line| format!("{path}:{line}")));
            assert_eq!(source.in_memory(), name != "a.jsonl");
            conformance::check(&source);
            let again = source.spec().open(Arc::new(LocalStore::new())).unwrap();
            assert_eq!((again.fingerprint(), again.len()), (source.fingerprint(), 3));
        }
    }
}

#[test]
fn files_make_one_source_and_fields_are_taken_by_name() {
    let folder = TempFolder::new();
    folder.write("a-0.jsonl", b"{\"x\": 1, \"v\": [0.5, 1]}\n{\"x\": 2, \"v\": [2, 3]}\n");
    folder.write("a-1.jsonl", b"");
    folder.write("a-2.jsonl", b"{\"x\": 3, \"v\": [4, 5], \"y\": true}\n");
    let url = folder.join("a-{0..2}.jsonl");
    let pair = typed("v", FieldKind::array(DType::Float32, &[2]));
    let with =
        JsonField { default: Some(false.into()), ..typed("y", FieldKind::Scalar { dtype: DType::Bool }) };
    let source = open(&url, Some(vec![pair.clone(), with, field("x")])).unwrap();
    assert_eq!(source.schema().structure, Structure::Tuple((0..3).map(Structure::Field).collect()));
    let floats = |all: &[f32]| bytes(&all.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>());
    assert_eq!(fetch(&source, 0).unwrap(), [floats(&[0.5, 1.0]), bytes(&[0]), Value::Int(1)]);
    assert_eq!(fetch(&source, 2).unwrap(), [floats(&[4.0, 5.0]), bytes(&[1]), Value::Int(3)]);
    conformance::check(&source);

    let e = open(&url, None).unwrap_err();
    assert!(e.message().contains("x is in 3, v is in 3, y is in 1") && e.hint().is_some(), "{e}");
    let e = open(&url, Some(vec![field("z")])).unwrap_err();
    assert!(e.message().contains("field z: there are x, v"), "{e}");
    for bad in [
        vec![],
        vec![field("x"), field("x")],
        vec![typed("x", FieldKind::Image)],
        vec![typed("x", FieldKind::Scalar { dtype: DType::Float16 })],
        vec![typed("x", FieldKind::array(DType::Int64, &[2, 2]))],
        vec![JsonField { default: Some("text".into()), ..typed("x", FieldKind::LABEL) }],
    ] {
        assert_eq!(open(&url, Some(bad)).unwrap_err().kind(), ErrorKind::Config);
    }
    assert_eq!(open(&folder.join("b.jsonl"), None).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(open(&folder.join("a-1.jsonl"), None).unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(open(&folder.join("a-1.jsonl"), Some(vec![pair])).unwrap().len(), 0);
}

#[test]
fn bad_lines_name_file_line_and_text() {
    let folder = TempFolder::new();
    let path = folder.write(
        "a.jsonl",
        concat!(
            "{\"x\": 1}\n\n{\"x\": 2\n{\"x\": null}\n{}\n{\"x\": \"two\"}\n{\"x\": 1.5}\n[1]\n{\"x\": 1} {}\n",
            "{\"x\": 99999999999999999999}\n{\"x\": 7}"
        )
        .as_bytes(),
    );
    let source = open(&path, Some(vec![typed("x", FieldKind::LABEL)])).unwrap();
    let expected = [
        (1, 3, "EOF"),
        (2, 4, "field x is null"),
        (3, 5, "field x is missing"),
        (4, 6, "field x is \"two\", and not int64"),
        (5, 7, "field x is 1.5, and not int64"),
        (6, 8, "an object"),
        (7, 9, "trailing"),
        (8, 10, "not int64"),
    ];
    for (index, line, what) in expected {
        let e = fetch(&source, index).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt);
        assert!(e.message().contains(what) && e.message().contains(&format!("line {line} of {path}")), "{e}");
        assert!(e.offset().is_some());
    }
    assert_eq!(fetch(&source, 9).unwrap(), [Value::Int(7)]);
    assert_eq!(source.len(), 10);
    conformance::check(&source);
    let path = folder.write("b.jsonl", b"{\"x\": [1, 2]}\n{\"x\": [1]}\n{\"x\": \"\xff\"}\n");
    let source = open(&path, Some(vec![typed("x", FieldKind::array(DType::UInt8, &[2]))])).unwrap();
    assert_eq!(fetch(&source, 0).unwrap(), [bytes(&[1, 2])]);
    assert!(fetch(&source, 1).unwrap_err().message().contains("has 1 numbers, and not 2"));
    assert!(fetch(&source, 2).unwrap_err().message().contains("utf-8"));
    conformance::check(&source);
}

#[test]
fn lines_are_found_whatever_pieces_a_file_is_read_in() {
    let mut random = crate::rng::Rng::for_stage(3, 0, 0, 0);
    for _ in 0..200 {
        let len = random.next_u32() as usize % 60;
        let text: Vec<u8> = (0..len).map(|_| b" \n\n{x\r"[random.next_u32() as usize % 6]).collect();
        let whole = Lines::of([Found::search(&text, 0)], len as u64);
        let (mut starts, mut at) = (Vec::new(), 0);
        for line in text.split_inclusive(|b| *b == b'\n') {
            if !line.iter().all(u8::is_ascii_whitespace) {
                starts.push(at);
            }
            at += line.len() as u64;
        }
        assert_eq!(whole.starts, starts);
        let size = 1 + random.next_u32() as usize % 7;
        let pieces = text.chunks(size).zip((0..).step_by(size)).map(|(piece, at)| Found::search(piece, at));
        let cut = Lines::of(pieces, len as u64);
        assert_eq!((cut.starts, cut.blank), (whole.starts, whole.blank));
    }
}

#[test]
fn cuts_and_changes_are_found_where_they_can_be() {
    let (folder, text) = (TempFolder::new(), lines());
    let fields = || Some(vec![typed("label", FieldKind::LABEL), typed("text", FieldKind::Text)]);
    let all = |path: &str| -> Result<Vec<Result<Vec<Value>>>> {
        let source = open(path, fields())?;
        Ok((0..source.len()).map(|i| fetch(&source, i)).collect())
    };
    let whole: Vec<_> =
        all(&folder.write("a.jsonl", text.as_bytes())).unwrap().into_iter().map(Result::unwrap).collect();
    // Of a plain file only what ends between two lines looks whole.
    for cut in 0..text.len() {
        let found = all(&folder.write("a.jsonl", &text.as_bytes()[..cut])).unwrap();
        for (sample, expected) in found.iter().zip(&whole) {
            assert!(sample.as_ref().map_or(true, |sample| sample == expected), "cut at {cut}");
        }
    }
    let mut random = crate::rng::Rng::for_stage(5, 0, 0, 0);
    for (name, packed) in [("a.jsonl.gz", gzip(text.as_bytes())), ("a.jsonl.zst", zstandard(text.as_bytes()))]
    {
        for cut in 0..packed.len() {
            let found = all(&folder.write(name, &packed[..cut])).unwrap();
            assert!(found.len() == 1 && found[0].is_err(), "{name} cut at {cut}");
        }
        let path = folder.write(name, &packed[..packed.len() - 1]);
        conformance::check(&open(&path, fields()).unwrap());
        for _ in 0..500 {
            let mut bad = packed.clone();
            let at = random.next_u32() as usize % bad.len();
            bad[at] ^= (1 + random.next_u32() % 255) as u8;
            let Ok(found) = all(&folder.write(name, &bad)) else { continue };
            let good: Vec<_> = found.iter().flatten().collect();
            assert!(good.len() < found.len() || good.iter().copied().eq(&whole), "{name}: byte {at}");
            assert!(good.iter().all(|sample| whole.contains(sample)), "{name}: byte {at}");
        }
    }
    // A plain file has no checksum: what can be asked for is that nothing breaks.
    for _ in 0..500 {
        let mut bad = text.clone().into_bytes();
        let at = random.next_u32() as usize % bad.len();
        bad[at] ^= (1 + random.next_u32() % 255) as u8;
        let _ = all(&folder.write("a.jsonl", &bad));
    }
}
