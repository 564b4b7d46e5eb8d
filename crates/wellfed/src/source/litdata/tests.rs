use super::*;
use crate::{
    sample::{DType, Value},
    source::{
        conformance,
        unpack::tests::{gzip, zstandard},
    },
    store::LocalStore,
    testing::TempFolder,
};

/// Leaves of items, by item.
type Items = Vec<Vec<Vec<u8>>>;

const DICT: &str = r#"[1, {"type": "builtins.dict", "context": "[\"label\", \"image\", \"more\"]", "children_spec": [
    {"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []},
    {"type": "builtins.tuple", "context": "null", "children_spec": [
        {"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}]}]}]"#;
const LEAF: &str = r#"[1, {"type": null, "context": null, "children_spec": []}]"#;
const FORMATS: [&str; 4] = ["int", "jpeg", "str", "tensor"];

fn item(leaves: &[Vec<u8>]) -> Vec<u8> {
    let sizes = leaves.iter().flat_map(|leaf| (leaf.len() as u32).to_le_bytes());
    sizes.chain(leaves.concat()).collect()
}

/// A chunk of these items, without compression.
fn chunk(items: &[Vec<u8>]) -> Vec<u8> {
    let mut at = 4 * (items.len() as u32 + 2);
    let mut file = [items.len() as u32, at].map(u32::to_le_bytes).concat();
    for item in items {
        at += item.len() as u32;
        file.extend(at.to_le_bytes());
    }
    file.extend(items.concat());
    file
}

/// The same in frames of two items.
fn framed(items: &[Vec<u8>]) -> Vec<u8> {
    let frames: Vec<&[Vec<u8>]> = items.chunks(2).collect();
    let mut file = b"LDFZ01\0\0\x01\0\0\0".to_vec();
    for number in [items.len(), 2, frames.len()] {
        file.extend((number as u32).to_le_bytes());
    }
    let mut at = 0_u32;
    file.extend(at.to_le_bytes());
    for item in items {
        at += item.len() as u32;
        file.extend(at.to_le_bytes());
    }
    let mut places = Vec::new();
    let mut packed = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        let (all, at) = (frame.concat(), file.len() + 24 * frames.len() + packed.len());
        let frame_bytes = zstandard(&all);
        places.extend([2 * number as u32, frame.len() as u32].map(u32::to_le_bytes).concat());
        places.extend((at as u64).to_le_bytes());
        places.extend([frame_bytes.len() as u32, all.len() as u32].map(u32::to_le_bytes).concat());
        packed.extend(frame_bytes);
    }
    [file, places, packed].concat()
}

fn items() -> Items {
    let tensor = |n: u32| {
        let head = [11, 2, n, 2].map(u32::to_be_bytes).concat();
        [head, vec![n as u8; 2 * n as usize]].concat()
    };
    (0..5_u8)
        .map(|i| {
            let label = i64::from(i).to_le_bytes().to_vec();
            vec![
                label,
                vec![i; 50 + usize::from(i)],
                format!("text {i}").into_bytes(),
                tensor(u32::from(i % 3) + 1),
            ]
        })
        .collect()
}

fn index(chunks: &[(&str, usize, Option<u64>)], config: &serde_json::Value) -> Vec<u8> {
    let chunk = |(name, items, dim): &(&str, usize, Option<u64>)| serde_json::json!({"filename": name, "chunk_size": items, "chunk_bytes": 1, "dim": dim});
    let chunks: Vec<_> = chunks.iter().map(chunk).collect();
    serde_json::to_vec(&serde_json::json!({"chunks": chunks, "config": config, "updated_at": "1.0"})).unwrap()
}

fn config(formats: &[&str], spec: &str, compression: Option<&str>, level: Option<&str>) -> serde_json::Value {
    serde_json::json!({
        "compression": compression, "compression_level": level, "data_format": formats, "data_spec": spec,
        "encryption": null, "item_loader": "PyTreeLoader", "chunk_bytes": 64_000_000, "chunk_size": null,
    })
}

/// Writes a data set of two chunks.
fn write(folder: &TempFolder, root: &str, compression: Option<(&str, Option<&str>)>) -> String {
    let plain: Vec<Vec<u8>> = items().iter().map(|leaves| item(leaves)).collect();
    let name = |number: usize| match compression {
        Some(("zstd", None)) => format!("chunk-0-{number}.zstd.bin"),
        _ => format!("chunk-0-{number}.bin"),
    };
    for (number, part) in [&plain[..3], &plain[3..]].into_iter().enumerate() {
        let file = match compression {
            None => chunk(part),
            Some((_, None)) => zstandard(&chunk(part)),
            Some((_, Some("batch"))) => framed(part),
            Some(_) => chunk(&part.iter().map(|item| zstandard(item)).collect::<Vec<_>>()),
        };
        folder.write(&format!("{root}/{}", name(number)), &file);
    }
    let (kind, level) = (compression.map(|c| c.0), compression.and_then(|c| c.1));
    let index = index(&[(&name(0), 3, None), (&name(1), 2, None)], &config(&FORMATS, DICT, kind, level));
    folder.write(&format!("{root}/index.json"), &index);
    folder.join(root)
}

fn open(root: &str, fields: Option<&[&str]>) -> Result<LitData> {
    let fields = fields.map(|fields| fields.iter().map(|f| (*f).to_owned()).collect());
    LitData::open(Arc::new(LocalStore::new()), LitDataSpec { fields, ..LitDataSpec::new(root) })
}

fn fetch(source: &LitData, index: u64) -> Result<Vec<Value>> {
    let mut record = Record::default();
    source.fetch(index, &mut record).map(|()| record.values)
}

fn bytes(content: &[u8]) -> Value {
    Value::Bytes(content.to_vec())
}

#[test]
fn leaves_of_items_are_fields() {
    let folder = TempFolder::new();
    let wraps = [None, Some(("zstd", None)), Some(("zstd:4", Some("batch"))), Some(("zstd", Some("sample")))];
    for (number, wrap) in wraps.into_iter().enumerate() {
        let root = write(&folder, &number.to_string(), wrap);
        for root in [root.clone(), format!("delayed+file://{root}")] {
            let source = open(&root, None).unwrap();
            let kinds: Vec<_> =
                source.schema().fields.iter().map(|f| (f.name.as_str(), f.kind.clone())).collect();
            let array = FieldKind::Array { dtype: DType::UInt8, shape: vec![None, Some(2)] };
            let expected = [
                ("label", FieldKind::LABEL),
                ("image", FieldKind::Image),
                ("more.0", FieldKind::Text),
                ("more.1", array),
            ];
            assert_eq!(kinds, expected);
            let more = Structure::Tuple(vec![Structure::Field(2), Structure::Field(3)]);
            let named = [("label", Structure::Field(0)), ("image", Structure::Field(1)), ("more", more)];
            let named = named.map(|(name, item)| (name.to_owned(), item));
            assert_eq!(source.schema().structure, Structure::Dict(named.to_vec()));
            assert_eq!((source.len(), source.in_memory()), (5, matches!(number, 1 | 2)));
            let found = fetch(&source, 4).unwrap();
            assert_eq!(found, [Value::Int(4), bytes(&[4; 54]), bytes(b"text 4"), bytes(&[2; 4])]);
            conformance::check(&source);
            let again = source.spec().open(Arc::new(LocalStore::new())).unwrap();
            assert_eq!((again.fingerprint(), again.len()), (source.fingerprint(), 5));
        }
        let two = open(&root, Some(&["more.0", "label"])).unwrap();
        assert_eq!(fetch(&two, 3).unwrap(), [bytes(b"text 3"), Value::Int(3)]);
    }
    assert_eq!(open(&folder.join("{0,0}"), None).unwrap().len(), 10);
    assert_eq!(open(&folder.join("0/ind*.json"), None).unwrap().len(), 5);
    let e = open(&folder.join("{0,1}"), None).unwrap_err();
    assert!(e.message().contains("otherwise"), "{e}");
    let e = open(&folder.join("0"), Some(&["none"])).unwrap_err();
    assert!(e.message().contains("there are label, image, more.0, more.1"), "{e}");
    assert!(open(&folder.join("0"), Some(&["label", "label"])).unwrap_err().message().contains("twice"));
    assert_eq!(open(&folder.join("none"), None).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn tokens_are_items_or_blocks() {
    let folder = TempFolder::new();
    let tokens: Vec<u8> = (0..25_u16).flat_map(u16::to_le_bytes).collect();
    // Items of 10, 8 and 7 tokens.
    let parts = [tokens[..20].to_vec(), tokens[20..36].to_vec(), tokens[36..].to_vec()];
    folder.write("chunk-0-0.bin", &chunk(&parts));
    let mut config = config(&["no_header_tensor:20"], LEAF, None, None);
    config["item_loader"] = "TokensLoader".into();
    let write =
        |dim: u64| drop(folder.write("index.json", &index(&[("chunk-0-0.bin", 3, Some(dim))], &config)));
    write(25);
    let of = |block_size| {
        let spec = LitDataSpec { block_size, ..LitDataSpec::new(folder.path()) };
        LitData::open(Arc::new(LocalStore::new()), spec)
    };
    let source = of(None).unwrap();
    let kind = FieldKind::Array { dtype: DType::UInt16, shape: vec![None] };
    assert_eq!((source.len(), &source.schema().fields[0].kind), (3, &kind));
    assert_eq!(fetch(&source, 2).unwrap(), [bytes(&tokens[36..])]);
    conformance::check(&source);
    let source = of(Some(6)).unwrap();
    assert_eq!((source.len(), &source.schema().fields[0].kind), (4, &FieldKind::array(DType::UInt16, &[6])));
    // Blocks go on over the ends of items.
    assert_eq!(fetch(&source, 1).unwrap(), [bytes(&tokens[12..24])]);
    conformance::check(&source);
    assert!(of(Some(0)).is_err() && of(Some(u64::MAX)).is_err());
    write(26);
    let source = of(Some(6)).unwrap();
    assert!(fetch(&source, 0).unwrap_err().message().contains("not the 26 that the index states"));
    conformance::check(&source);
    let e = LitData::open(
        Arc::new(LocalStore::new()),
        LitDataSpec { block_size: Some(2), ..LitDataSpec::new(write_plain(&folder)) },
    );
    assert!(e.unwrap_err().message().contains("no tokens"));
}

fn write_plain(folder: &TempFolder) -> String {
    write(folder, "plain", None)
}

#[test]
fn what_is_not_read_says_why() {
    let folder = TempFolder::new();
    let raw = chunk(&[item(&[vec![1; 8], b"cos\n".to_vec()])]);
    folder.write("a.bin", &raw);
    let spec = r#"[1, {"type": "builtins.list", "context": "null", "children_spec": [
        {"type": null, "context": null, "children_spec": []}, {"type": null, "context": null, "children_spec": []}]}]"#;
    let write = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut all: serde_json::Value = serde_json::from_slice(&index(
            &[("a.bin", 1, None)],
            &config(&["int", "pickle"], spec, None, None),
        ))
        .unwrap();
        change(&mut all);
        folder.write("index.json", &serde_json::to_vec(&all).unwrap());
        folder.path().to_owned()
    };
    let plain = write(&|_| {});
    let e = open(&plain, None).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("pickle"), "{e}");
    let source = open(&plain, Some(&["0"])).unwrap();
    assert!(matches!(fetch(&source, 0).unwrap()[..], [Value::Int(_)]));
    conformance::check(&source);
    type Change<'a> = (&'a dyn Fn(&mut serde_json::Value), &'a str);
    let changes: [Change; 9] = [
        (&|all| all["config"]["encryption"] = "x".into(), "encrypted"),
        (&|all| all["config"]["item_loader"] = "ParquetLoader".into(), "Parquet"),
        (&|all| all["config"]["item_loader"] = "TemporalArrayLoader".into(), "TemporalArrayLoader"),
        (&|all| all["config"]["compression"] = "lz4".into(), "compressed by lz4"),
        (&|all| all["config"]["data_format"] = serde_json::json!(["int"]), "1 formats for 2 fields"),
        (&|all| all["config"]["data_spec"] = spec.replace("builtins.list", "mine").into(), "items are mine"),
        (&|all| all["config"]["data_spec"] = "[2, {}]".into(), "version 2"),
        (&|all| all["chunks"][0]["filename"] = "../a.bin".into(), "not in its folder"),
        (&|all| all["chunks"][0]["filename"] = "b.bin".into(), "b.bin"),
    ];
    for (change, what) in changes {
        let e = open(&write(change), Some(&["0"])).unwrap_err();
        assert!(e.message().contains(what), "{e}");
    }
    // Items that are rows of Arrow have no bytes of their own.
    folder.write("a.bin", &[chunk(&[vec![]]), vec![0; 40], b"LDARW01\0".to_vec()].concat());
    let e = open(&write(&|_| {}), Some(&["0"])).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("Arrow"), "{e}");
    folder.write("a.bin", &gzip(&raw));
    let e = fetch(&open(&write(&|_| {}), Some(&["0"])).unwrap(), 0).unwrap_err();
    assert!(e.message().contains("1 as the index states"), "{e}");
}

#[test]
fn cuts_and_changes_lose_no_sample_silently() {
    let folder = TempFolder::new();
    let all = |root: &str| -> Result<Vec<Result<Vec<Value>>>> {
        let source = open(root, Some(&["label", "image", "more.0"]))?;
        Ok((0..source.len()).map(|i| fetch(&source, i)).collect())
    };
    let mut random = crate::rng::Rng::for_stage(4, 0, 0, 0);
    let mut flip = |bytes: &[u8]| {
        let mut bad = bytes.to_vec();
        let at = random.next_u32() as usize % bad.len();
        bad[at] ^= (1 + random.next_u32() % 255) as u8;
        (at, bad)
    };
    for (wrap, name) in [
        (None, "chunk-0-0.bin"),
        (Some(("zstd", None)), "chunk-0-0.zstd.bin"),
        (Some(("zstd", Some("batch"))), "chunk-0-0.bin"),
        (Some(("zstd", Some("sample"))), "chunk-0-0.bin"),
    ] {
        let root = write(&folder, "a", wrap);
        let whole: Vec<_> = all(&root).unwrap().into_iter().map(Result::unwrap).collect();
        let raw = std::fs::read(folder.join(&format!("a/{name}"))).unwrap();
        let good = |found: &[Result<Vec<Value>>]| {
            found
                .iter()
                .zip(&whole)
                .filter(|(found, whole)| found.as_ref().map_or(true, |f| f == *whole))
                .count()
        };
        for cut in 0..raw.len() {
            folder.write(&format!("a/{name}"), &raw[..cut]);
            let found = all(&root).unwrap();
            assert_eq!((found.len(), good(&found)), (5, 5), "{wrap:?} cut at {cut}");
            assert!(found[..3].iter().any(Result::is_err), "{wrap:?} cut at {cut}");
            assert!(found[3..].iter().all(Result::is_ok));
        }
        for _ in 0..1000 {
            let (at, bad) = flip(&raw);
            folder.write(&format!("a/{name}"), &bad);
            let found = all(&root).unwrap();
            assert!(found.len() == 5 && found[3..].iter().all(Result::is_ok));
            // Compressed items have a checksum; others only their places.
            let least = if wrap.is_none() && at >= 20 { 4 } else { 5 };
            assert!(good(&found) >= least, "{wrap:?} byte {at}");
        }
        folder.write(&format!("a/{name}"), &raw);
    }
    let index = std::fs::read(folder.join("a/index.json")).unwrap();
    for _ in 0..1000 {
        let (_, bad) = flip(&index);
        folder.write("a/index.json", &bad);
        let _ = all(&folder.join("a"));
    }
}
