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

/// Name, encoding, and the bytes of each sample.
type Columns<'a> = [(&'a str, &'a str, Vec<Vec<u8>>)];

fn fixed(encoding: &str) -> Option<u32> {
    match encoding {
        "int" | "int64" => Some(8),
        "float32" | "ndarray:uint16:2" => Some(4),
        _ => None,
    }
}

/// A shard as Streaming's `MDSWriter` writes it.
fn shard(columns: &Columns) -> Vec<u8> {
    let count = columns[0].2.len();
    let configuration = b"{\"configuration\": 1}";
    let samples: Vec<Vec<u8>> = (0..count)
        .map(|i| {
            let mut sample = Vec::new();
            for (_, encoding, values) in columns {
                if fixed(encoding).is_none() {
                    sample.extend((values[i].len() as u32).to_le_bytes());
                }
            }
            columns.iter().for_each(|(.., values)| sample.extend(&values[i]));
            sample
        })
        .collect();
    let mut file = (count as u32).to_le_bytes().to_vec();
    let mut at = 4 * (count + 2) + configuration.len();
    file.extend((at as u32).to_le_bytes());
    for sample in &samples {
        at += sample.len();
        file.extend((at as u32).to_le_bytes());
    }
    file.extend(configuration);
    samples.iter().for_each(|sample| file.extend(sample));
    file
}

/// The entry of a shard in an index.
fn entry(columns: &Columns, name: &str, raw: &[u8], packed: Option<(&str, &[u8])>) -> serde_json::Value {
    let info = |name: &str, bytes: &[u8]| {
        serde_json::json!({"basename": name, "bytes": bytes.len(), "hashes": {
            "sha1": hash::of("sha1", bytes).unwrap(), "blake9": "unknown",
        }})
    };
    serde_json::json!({
        "format": "mds", "version": 2, "size_limit": 1 << 26, "hashes": ["sha1"],
        "samples": columns[0].2.len(),
        "column_names": columns.iter().map(|c| c.0).collect::<Vec<_>>(),
        "column_encodings": columns.iter().map(|c| c.1).collect::<Vec<_>>(),
        "column_sizes": columns.iter().map(|c| fixed(c.1)).collect::<Vec<_>>(),
        "compression": packed.map(|(how, _)| how),
        "raw_data": info(name, raw),
        "zip_data": packed.map(|(how, bytes)| info(&format!("{name}.{}", how.split(':').next().unwrap()), bytes)),
    })
}

fn index(shards: &[serde_json::Value]) -> Vec<u8> {
    serde_json::to_vec(&serde_json::json!({"version": 2, "shards": shards})).unwrap()
}

fn spec(root: &str, fields: Option<&[&str]>) -> MdsSpec {
    let fields = fields.map(|fields| fields.iter().map(|f| (*f).to_owned()).collect());
    MdsSpec { fields, ..MdsSpec::new(root) }
}

fn open(root: &str, fields: Option<&[&str]>) -> Result<Mds> {
    Mds::open(Arc::new(LocalStore::new()), spec(root, fields))
}

fn fetch(source: &Mds, index: u64) -> Result<Vec<Value>> {
    let mut record = Record::default();
    source.fetch(index, &mut record).map(|()| record.values)
}

fn bytes(content: &[u8]) -> Value {
    Value::Bytes(content.to_vec())
}

fn sample() -> Vec<(&'static str, &'static str, Vec<Vec<u8>>)> {
    let array = |sides: [u8; 2]| {
        let count = usize::from(sides[0]) * usize::from(sides[1]);
        [vec![34, 2 << 2, sides[0], sides[1]], vec![7; 4 * count]].concat()
    };
    vec![
        ("label", "int", vec![3_i64.to_le_bytes().to_vec(), (-4_i64).to_le_bytes().to_vec()]),
        ("image", "jpeg:95", vec![vec![1; 300], vec![2; 5]]),
        ("text", "str", vec!["ü".into(), vec![]]),
        ("weight", "float32", vec![0.5_f32.to_le_bytes().to_vec(), 2_f32.to_le_bytes().to_vec()]),
        ("array", "ndarray", vec![array([2, 3]), array([1, 1])]),
        ("pair", "ndarray:uint16:2", vec![vec![1, 0, 2, 0], vec![3, 0, 4, 0]]),
        ("count", "str_int", vec![b"12".to_vec(), b"-1".to_vec()]),
        ("more", "json", vec![b"{\"a\": [1]}".to_vec(), b"null".to_vec()]),
    ]
}

/// Writes two shards into a folder of that name.
fn write(folder: &TempFolder, root: &str, compression: Option<&str>) -> String {
    let columns = sample();
    let raw = shard(&columns);
    let shards: Vec<_> = ["shard.00000.mds", "shard.00001.mds"]
        .iter()
        .map(|name| {
            let packed = match compression {
                Some("gz:9") => Some(gzip(&raw)),
                Some(_) => Some(zstandard(&raw)),
                None => None,
            };
            match (&packed, compression) {
                (Some(bytes), Some(how)) => {
                    folder.write(&format!("{root}/{name}.{}", how.split(':').next().unwrap()), bytes);
                }
                _ => drop(folder.write(&format!("{root}/{name}"), &raw)),
            }
            entry(&columns, name, &raw, compression.zip(packed.as_deref()))
        })
        .collect();
    folder.write(&format!("{root}/index.json"), &index(&shards));
    folder.join(root)
}

#[test]
fn columns_of_shards_are_fields() {
    let folder = TempFolder::new();
    for (number, compression) in [None, Some("zstd:7"), Some("gz:9")].into_iter().enumerate() {
        let root = write(&folder, &format!("{number}/train"), compression);
        for root in [root.clone(), format!("delayed+file://{root}")] {
            let source = open(&root, None).unwrap();
            let scalar = |dtype| FieldKind::Scalar { dtype };
            let expected = [
                ("label", FieldKind::LABEL),
                ("image", FieldKind::Image),
                ("text", FieldKind::Text),
                ("weight", scalar(DType::Float32)),
                ("array", FieldKind::Array { dtype: DType::Float32, shape: vec![None, None] }),
                ("pair", FieldKind::array(DType::UInt16, &[2])),
                ("count", FieldKind::LABEL),
                ("more", FieldKind::Json),
            ];
            assert_eq!(*source.schema(), Schema::dict(expected));
            assert_eq!((source.len(), source.in_memory()), (4, compression.is_some()));
            let first = [
                Value::Int(3),
                bytes(&[1; 300]),
                bytes("ü".as_bytes()),
                bytes(&0.5_f32.to_ne_bytes()),
                bytes(&[7; 24]),
                bytes(&[1_u16, 2].map(u16::to_ne_bytes).concat()),
                Value::Int(12),
                bytes(b"{\"a\": [1]}"),
            ];
            assert_eq!(fetch(&source, 2).unwrap(), first);
            let mut record = Record::default();
            source.fetch(2, &mut record).unwrap();
            assert_eq!(record.shapes[4], [2, 3]);
            assert_eq!(fetch(&source, 3).unwrap()[0], Value::Int(-4));
            conformance::check(&source);
            let again = source.spec().open(Arc::new(LocalStore::new())).unwrap();
            assert_eq!((again.fingerprint(), again.len()), (source.fingerprint(), 4));
        }
    }
    let two = Mds::open(
        Arc::new(LocalStore::new()),
        MdsSpec { split: Some("train".to_owned()), ..spec(&folder.join("{0..1}"), Some(&["text", "label"])) },
    )
    .unwrap();
    assert_eq!((two.len(), fetch(&two, 4).unwrap()), (8, vec![bytes("ü".as_bytes()), Value::Int(3)]));
    assert_eq!(open(&folder.join("*/train/index.json"), None).unwrap().len(), 12);
    let e = open(&folder.join("0/train"), Some(&["none"])).unwrap_err();
    assert!(e.message().contains("no column none: there are label, image"), "{e}");
    assert_eq!(open(&folder.join("0"), None).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn pillow_images_keep_their_pixels() {
    let folder = TempFolder::new();
    let image = |mode: &[u8], pixels: &[u8]| {
        let head = [2_u32, 3, mode.len() as u32].map(u32::to_le_bytes).concat();
        [&head, mode, pixels].concat()
    };
    let pixels: Vec<u8> = (0..18).collect();
    let values =
        vec![image(b"RGB", &pixels), image(b"CMYK", &[0; 24]), image(b"RGB", &pixels[1..]), vec![1; 7]];
    let columns = [("image", "pil", values)];
    let raw = shard(&columns);
    folder.write("a.mds", &raw);
    folder.write("index.json", &index(&[entry(&columns, "a.mds", &raw, None)]));
    let source = open(folder.path(), None).unwrap();
    conformance::check(&source);
    let mut record = Record::default();
    source.fetch(0, &mut record).unwrap();
    let Value::Bytes(file) = &record.values[0] else { panic!("no bytes") };
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut found = vec![0; 18];
    reader.next_frame(&mut found).unwrap();
    assert_eq!((reader.info().width, reader.info().height, found), (2, 3, pixels));
    for (index, what) in [(1, "CMYK"), (2, "2x3x3"), (3, "within its size")] {
        let e = fetch(&source, index).unwrap_err();
        assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(what), "{e}");
    }
}

#[test]
fn what_is_not_read_says_why() {
    let folder = TempFolder::new();
    let write = |change: &dyn Fn(&mut serde_json::Value)| {
        let columns =
            [("x", "int", vec![1_i64.to_le_bytes().to_vec()]), ("object", "pkl", vec![b"cos\n".to_vec()])];
        let raw = shard(&columns);
        folder.write("a.mds", &raw);
        let mut entry = entry(&columns, "a.mds", &raw, None);
        change(&mut entry);
        folder.write("index.json", &index(&[entry]));
        folder.path().to_owned()
    };
    let plain = write(&|_| {});
    let e = open(&plain, None).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("pickle"), "{e}");
    let source = open(&plain, Some(&["x"])).unwrap();
    assert_eq!(fetch(&source, 0).unwrap(), [Value::Int(1)]);
    conformance::check(&source);
    type Change<'a> = (&'a dyn Fn(&mut serde_json::Value), &'a str);
    let changes: [Change; 5] = [
        (&|entry| entry["format"] = "xyz".into(), "format xyz"),
        (&|entry| entry["raw_data"]["basename"] = "../a.mds".into(), "not in its folder"),
        (&|entry| entry["column_sizes"][0] = 4.into(), "values of Some(4) bytes"),
        (&|entry| entry["column_names"][1] = "x".into(), "two columns called x"),
        (&|entry| entry["raw_data"]["basename"] = "b.mds".into(), "b.mds"),
    ];
    for (change, what) in changes {
        let e = open(&write(change), Some(&["x"])).unwrap_err();
        assert!(e.message().contains(what), "{e}");
    }
    assert!(open(&write(&|_| {}), Some(&["x", "x"])).unwrap_err().message().contains("asked for twice"));
}

#[test]
fn hashes_are_compared_on_request() {
    let folder = TempFolder::new();
    let root = write(&folder, "a", None);
    let asked = |hash: &str| {
        let spec = MdsSpec { validate_hash: Some(hash.to_owned()), ..MdsSpec::new(&root) };
        Mds::open(Arc::new(LocalStore::new()), spec)
    };
    assert!(fetch(&asked("sha1").unwrap(), 0).is_ok());
    assert!(asked("md5").unwrap_err().message().contains("no md5"));
    assert!(asked("blake9").unwrap_err().message().contains("not known"));
    let mut raw = shard(&sample());
    *raw.last_mut().unwrap() ^= 1;
    folder.write("a/shard.00001.mds", &raw);
    let source = asked("sha1").unwrap();
    assert_eq!(source.len(), 4);
    assert!(fetch(&source, 1).is_ok() && fetch(&source, 2).unwrap_err().message().contains("sha1"));
    conformance::check(&source);
}

#[test]
fn cuts_and_changes_lose_no_sample_silently() {
    let folder = TempFolder::new();
    let plain = write(&folder, "plain", None);
    let all = |root: &str| -> Result<Vec<Result<Vec<Value>>>> {
        let source = open(root, Some(&["label", "text", "image"]))?;
        Ok((0..source.len()).map(|i| fetch(&source, i)).collect())
    };
    let whole: Vec<_> = all(&plain).unwrap().into_iter().map(Result::unwrap).collect();
    let raw = shard(&sample());
    for cut in 0..raw.len() {
        folder.write("plain/shard.00000.mds", &raw[..cut]);
        let found = all(&plain).unwrap();
        assert_eq!(found.len(), 4, "no sample is lost");
        assert!(found[1].is_err(), "cut at {cut}");
        for (sample, expected) in found.iter().zip(&whole) {
            assert!(sample.as_ref().map_or(true, |sample| sample == expected), "cut at {cut}");
        }
    }
    let mut random = crate::rng::Rng::for_stage(2, 0, 0, 0);
    let mut flip = |bytes: &[u8]| {
        let mut bad = bytes.to_vec();
        let at = random.next_u32() as usize % bad.len();
        bad[at] ^= (1 + random.next_u32() % 255) as u8;
        (at, bad)
    };
    // Where the samples of the shard begin: what is in front of it places them.
    let head = 4 * 4;
    for _ in 0..1000 {
        let (at, bad) = flip(&raw);
        folder.write("plain/shard.00000.mds", &bad);
        let found = all(&plain).unwrap();
        assert_eq!(found.len(), 4);
        if at < head {
            assert!(found.iter().any(Result::is_err), "byte {at}");
            assert!(found.iter().flatten().all(|sample| whole.contains(sample)), "byte {at}");
        }
    }
    let packed_root = write(&folder, "packed", Some("zstd"));
    let packed = zstandard(&raw);
    for cut in 0..packed.len() {
        folder.write("packed/shard.00000.mds.zstd", &packed[..cut]);
        let found = all(&packed_root).unwrap();
        assert!(found.len() == 4 && found[..2].iter().all(Result::is_err), "cut at {cut}");
    }
    for _ in 0..500 {
        let (at, bad) = flip(&packed);
        folder.write("packed/shard.00000.mds.zstd", &bad);
        let found = all(&packed_root).unwrap();
        // The hash of the file says so, whatever byte it is.
        assert!(found.len() == 4 && found[..2].iter().all(Result::is_err), "byte {at}");
        assert!(found[2..].iter().all(Result::is_ok));
    }
    folder.write("plain/shard.00000.mds", &raw);
    let index = std::fs::read(folder.join("plain/index.json")).unwrap();
    for _ in 0..1000 {
        let (_, bad) = flip(&index);
        folder.write("plain/index.json", &bad);
        let _ = all(&plain);
    }
}
