use super::*;
use crate::{source::conformance, store::LocalStore, testing::TempFolder};

const PAGE: usize = 4096;

/// A value as it is given to a writer.
#[derive(Clone)]
enum Given {
    Float(f64),
    Int(i64),
    Jpeg(Vec<u8>),
    /// Width, height, pixels.
    Raw(u16, u16, Vec<u8>),
    Bytes(Vec<u8>),
    Array(Vec<u8>),
}

fn description(name: &str, kind: u8, arguments: &[u8]) -> Vec<u8> {
    let mut all = vec![kind];
    all.extend(name.as_bytes());
    all.resize(17, 0);
    all.extend(arguments);
    all.resize(FIELD as usize, 0);
    all
}

fn array(shape: &[u64], dtype: &str) -> Vec<u8> {
    let mut all: Vec<u8> = shape.iter().flat_map(|side| side.to_le_bytes()).collect();
    all.resize(256, 0);
    all.extend((dtype.len() as u64).to_le_bytes());
    all.extend(dtype.as_bytes());
    all
}

/// A file as FFCV's `DatasetWriter` writes it: by several processes, so that pages are not in the order of the samples.
fn beton(fields: &[Vec<u8>], samples: &[Vec<Given>]) -> Vec<u8> {
    let (described, row) = fields_of("", &fields.concat()).unwrap();
    let rows_end = HEADER as usize + fields.concat().len() + row * samples.len();
    let start = rows_end.next_multiple_of(PAGE);
    let (mut rows, mut data) = (vec![0; row * samples.len()], Vec::new());
    let mut allocations: Vec<(u64, u64, u64)> = Vec::new();
    for (number, sample) in samples.iter().enumerate().rev() {
        let needed: usize = (sample.iter())
            .map(|value| match value {
                Given::Jpeg(b) | Given::Raw(.., b) | Given::Bytes(b) | Given::Array(b) => b.len(),
                _ => 0,
            })
            .sum();
        if data.len() % PAGE + needed > PAGE {
            data.resize(data.len().next_multiple_of(PAGE), 0);
        }
        let mut put = |bytes: &[u8]| {
            let at = (start + data.len()) as u64;
            data.extend(bytes);
            allocations.push((number as u64, at, bytes.len() as u64));
            at.to_le_bytes()
        };
        for (field, value) in described.iter().zip(sample) {
            let numbers = match value {
                Given::Float(x) => x.to_le_bytes().to_vec(),
                Given::Int(x) => x.to_le_bytes().to_vec(),
                Given::Jpeg(bytes) => [&[0, 9, 0, 9, 0][..], &put(bytes)].concat(),
                Given::Raw(width, height, bytes) => {
                    [&[1][..], &width.to_le_bytes(), &height.to_le_bytes(), &put(bytes)].concat()
                }
                Given::Bytes(bytes) => [put(bytes), (bytes.len() as u64).to_le_bytes()].concat(),
                Given::Array(bytes) => put(bytes).to_vec(),
            };
            rows[number * row + field.at..][..numbers.len()].copy_from_slice(&numbers);
        }
    }
    data.resize(data.len().next_multiple_of(PAGE), 0);
    let mut file = [2_u16, fields.len() as u16].map(u16::to_le_bytes).concat();
    file.extend((PAGE as u32).to_le_bytes());
    file.extend((samples.len() as u64).to_le_bytes());
    let place = if data.is_empty() { rows_end } else { start + data.len() };
    file.extend((place as u64).to_le_bytes());
    file.extend(fields.concat());
    file.extend(rows);
    if !data.is_empty() {
        file.resize(start, 0);
        file.extend(data);
    }
    for (sample, at, bytes) in allocations {
        file.extend([sample, at, bytes].map(u64::to_le_bytes).concat());
    }
    file
}

fn open(path: &str, fields: Option<&[&str]>) -> Result<Beton> {
    let fields = fields.map(|fields| fields.iter().map(|f| (*f).to_owned()).collect());
    Beton::open(Arc::new(LocalStore::new()), BetonSpec { fields, ..BetonSpec::new(path) })
}

fn fetch(source: &Beton, index: u64) -> Result<Vec<Value>> {
    let mut record = Record::default();
    source.fetch(index, &mut record).map(|()| record.values)
}

fn bytes(content: &[u8]) -> Value {
    Value::Bytes(content.to_vec())
}

fn fields() -> Vec<Vec<u8>> {
    vec![
        description("image", 2, &[]),
        description("label", 1, &[]),
        description("raw", 2, &[]),
        description("weight", 0, &[]),
        description("text", 3, &[]),
        description("more", 5, &[]),
        description("array", 4, &array(&[2, 1], r#"[["", ">i2"]]"#)),
        description("tensor", 6, &array(&[3], r#"[["", "<f4"]]"#)),
    ]
}

fn sample(number: u8) -> Vec<Given> {
    vec![
        Given::Jpeg(vec![number; 700]),
        Given::Int(-i64::from(number)),
        Given::Raw(2, 3, vec![number; 18]),
        Given::Float(f64::from(number) / 2.0),
        Given::Bytes(vec![number; usize::from(number) * 3]),
        Given::Bytes(format!("{{\"id\": {number}}}\0").into_bytes()),
        Given::Array(vec![0, number, 1, 0]),
        Given::Array([f32::from(number); 3].map(f32::to_le_bytes).concat()),
    ]
}

#[test]
fn fields_of_files_are_fields() {
    let folder = TempFolder::new();
    let samples: Vec<_> = (0..9).map(sample).collect();
    let path = folder.write("a.beton", &beton(&fields(), &samples));
    for path in [path.clone(), format!("delayed+file://{path}")] {
        let source = open(&path, None).unwrap();
        let expected = [
            ("image", FieldKind::Image),
            ("label", FieldKind::LABEL),
            ("raw", FieldKind::Pixels { height: 3, width: 2, channels: 3, layout: PixelLayout::Hwc }),
            ("weight", FieldKind::Scalar { dtype: DType::Float64 }),
            ("text", FieldKind::Bytes),
            ("more", FieldKind::Json),
            ("array", FieldKind::array(DType::Int16, &[2, 1])),
            ("tensor", FieldKind::array(DType::Float32, &[3])),
        ];
        assert_eq!(*source.schema(), Schema::tuple(expected));
        assert_eq!((source.len(), source.number(3, 1), source.number(3, 3)), (9, Some(-3), None));
        for number in 0..9_u8 {
            let found = fetch(&source, number.into()).unwrap();
            let wanted = [
                bytes(&[number; 700]),
                Value::Int(-i64::from(number)),
                bytes(&[number; 18]),
                bytes(&(f64::from(number) / 2.0).to_ne_bytes()),
                bytes(&vec![number; usize::from(number) * 3]),
                bytes(format!("{{\"id\": {number}}}").as_bytes()),
                bytes(&[i16::from(number), 256].map(i16::to_ne_bytes).concat()),
                bytes(&[f32::from(number); 3].map(f32::to_ne_bytes).concat()),
            ];
            assert_eq!(found, wanted);
        }
        conformance::check(&source);
        let again = source.spec().open(Arc::new(LocalStore::new())).unwrap();
        assert_eq!((again.fingerprint(), again.len()), (source.fingerprint(), 9));
    }
    let numbers = open(&path, Some(&["weight", "label"])).unwrap();
    assert!(numbers.in_memory() && fetch(&numbers, 4).unwrap()[1] == Value::Int(-4));
    conformance::check(&numbers);
    assert_eq!(open(&folder.join("{a,a}.beton"), Some(&["label"])).unwrap().len(), 18);
    let e = open(&path, Some(&["none"])).unwrap_err();
    assert!(e.message().contains("there are image, label, raw"), "{e}");
    assert!(open(&path, Some(&["label", "label"])).unwrap_err().message().contains("twice"));
    // Nothing but numbers: there are no pages.
    let plain = beton(&[description("x", 1, &[])], &[vec![Given::Int(5)], vec![Given::Int(6)]]);
    let source = open(&folder.write("b.beton", &plain), None).unwrap();
    assert_eq!(fetch(&source, 1).unwrap(), [Value::Int(6)]);
    let e = open(&folder.join("{a,b}.beton"), None).unwrap_err();
    assert!(e.message().contains("other fields"), "{e}");
    assert_eq!(open(&folder.write("c.beton", &beton(&fields(), &[])), None).unwrap().len(), 0);
}

#[test]
fn pixels_of_several_sizes_become_images() {
    let folder = TempFolder::new();
    let field = [description("image", 2, &[])];
    let pixels: Vec<u8> = (0..18).collect();
    let samples = [
        vec![Given::Raw(2, 3, pixels.clone())],
        vec![Given::Raw(3, 2, pixels.clone())],
        vec![Given::Jpeg(b"\xff\xd8\xff".to_vec())],
    ];
    let source = open(&folder.write("a.beton", &beton(&field, &samples)), None).unwrap();
    assert_eq!(source.schema().fields[0].kind, FieldKind::Image);
    conformance::check(&source);
    assert_eq!(fetch(&source, 2).unwrap(), [bytes(b"\xff\xd8\xff")]);
    let [Value::Bytes(file)] = &fetch(&source, 1).unwrap()[..] else { panic!("no bytes") };
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut found = vec![0; 18];
    reader.next_frame(&mut found).unwrap();
    assert_eq!((reader.info().width, reader.info().height, found), (3, 2, pixels));
}

#[test]
fn what_is_not_read_says_why() {
    let folder = TempFolder::new();
    let samples = [vec![Given::Int(1), Given::Array(vec![0; 8])]];
    let of = |kind: u8, arguments: &[u8]| vec![description("x", 1, &[]), description("y", kind, arguments)];
    for dtype in [r#"[["", "<c8"]]"#, r#"[["a", "<i4"], ["b", "<i4"]]"#, "[["] {
        let path = folder.write("a.beton", &beton(&of(4, &array(&[1], dtype)), &samples));
        let e = open(&path, None).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("which is not read"), "{e}");
        assert_eq!(fetch(&open(&path, Some(&["x"])).unwrap(), 0).unwrap(), [Value::Int(1)]);
    }
    let whole = beton(&of(4, &array(&[4], r#"[["", "<i2"]]"#)), &samples);
    type Change<'a> = (&'a dyn Fn(&mut Vec<u8>), &'a str);
    let changes: [Change; 7] = [
        (&|file| file[0] = 1, "version 1"),
        (&|file| file[24 + 1041] = 255, "of type 255"),
        (&|file| file[16..24].fill(0), "did not come to the end"),
        (&|file| file.truncate(20), "20 bytes, not 24"),
        (&|file| file.truncate(file.len() - 1), "its allocations begin"),
        (&|file| file[8] = 0, "data of more"),
        (&|file| file[15] = 255, "too few for"),
    ];
    for (change, what) in changes {
        let mut file = whole.clone();
        change(&mut file);
        let e = open(&folder.write("a.beton", &file), None).unwrap_err();
        assert!(e.message().contains(what), "{e}");
    }
    assert_eq!(open(&folder.join("none.beton"), None).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn cuts_and_changes_lose_no_sample_silently() {
    let folder = TempFolder::new();
    let samples: Vec<_> = (0..12).map(sample).collect();
    let file = beton(&fields(), &samples);
    let path = folder.join("a.beton");
    let all = |file: &[u8]| -> Result<Vec<Result<Vec<Value>>>> {
        folder.write("a.beton", file);
        let source = open(&path, None)?;
        Ok((0..source.len()).map(|i| fetch(&source, i)).collect())
    };
    let whole: Vec<_> = all(&file).unwrap().into_iter().map(Result::unwrap).collect();
    let allocations = u64_at(&file, 16) as usize;
    for cut in (0..file.len()).step_by(7).chain(allocations..file.len()) {
        let Ok(found) = all(&file[..cut]) else { continue };
        assert_eq!(found.len(), 12, "cut at {cut}");
        assert!(found.iter().any(Result::is_err), "cut at {cut}");
        let good =
            |(found, whole): (&Result<Vec<Value>>, _)| found.as_ref().map_or(true, |found| found == whole);
        assert!(found.iter().zip(&whole).all(good), "cut at {cut}");
    }
    let rows = HEADER as usize + fields().len() * FIELD as usize;
    let mut random = crate::rng::Rng::for_stage(5, 0, 0, 0);
    for round in 0..2000 {
        // As many in what describes the data as in the data.
        let within = if round % 2 == 0 { file.len() } else { rows + 12 * 120 };
        let at = match random.next_u32() as usize % within {
            at if round % 4 == 3 => allocations + at % (file.len() - allocations),
            at => at,
        };
        let mut bad = file.clone();
        bad[at] ^= (1 + random.next_u32() % 255) as u8;
        let Ok(found) = all(&bad) else {
            assert!(at < rows || at >= allocations, "byte {at} of rows or data makes the file unreadable");
            continue;
        };
        // Descriptions have no checksum: types of arrays may be others. What lies behind them is that of one sample.
        assert_eq!(found.len(), 12, "byte {at}");
        if at >= rows {
            let good = |(found, whole): &(&Result<Vec<Value>>, _)| {
                found.as_ref().map_or(true, |found| found == *whole)
            };
            let good = found.iter().zip(&whole).filter(good).count();
            assert!(good >= 11, "byte {at}: {good}");
            // An allocation that is another one is noticed; only the size of a JPEG stands nowhere else.
            assert!(at < allocations || good < 12 || found.iter().any(Result::is_err), "byte {at}");
        }
    }
}
