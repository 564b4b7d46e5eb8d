//! CSV files against what was written and against the `csv` crate's reading; damage of every kind.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde_json::json;
use wellfed::{
    ErrorKind,
    rng::Rng,
    sample::{FieldKind, Record, Structure, Value},
    source::{
        CsvSpec, Gather, Source, TableFormat, TableSpec, Wanted, conformance,
        tables::{Comparison, Condition, CsvColumn, CsvDType, CsvType, CsvTypes},
    },
    store::{LocalStore, Store},
};

/// A folder of files that is removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("wellfed-csv-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    fn spec(&self, name: &str, csv: CsvSpec) -> TableSpec {
        let path = self.0.join(name);
        TableSpec { csv: Some(csv), ..TableSpec::new(TableFormat::Csv, path.to_str().unwrap()) }
    }

    fn open(&self, name: &str, csv: CsvSpec) -> wellfed::Result<Arc<dyn Source>> {
        open(self.spec(name, csv))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(spec: TableSpec) -> wellfed::Result<Arc<dyn Source>> {
    crate::table::open(Arc::new(LocalStore::new()) as Arc<dyn Store>, spec)
}

/// Each row: its values as text, or what is wrong with it.
fn rows(source: &dyn Source) -> Vec<Result<Vec<String>, String>> {
    let mut record = Record::default();
    let kinds: Vec<FieldKind> = source.schema().fields.iter().map(|field| field.kind.clone()).collect();
    (0..source.len())
        .map(|index| {
            source.fetch(index, &mut record).map_err(|e| e.to_string())?;
            Ok(kinds.iter().zip(&record.values).map(|(kind, value)| shown(kind, value)).collect())
        })
        .collect()
}

fn shown(kind: &FieldKind, value: &Value) -> String {
    use wellfed::sample::DType;
    let bytes = match value {
        Value::Int(value) => return value.to_string(),
        Value::Bytes(bytes) => bytes.as_slice(),
        other => panic!("{other:?}"),
    };
    match kind {
        FieldKind::Text => String::from_utf8(bytes.to_vec()).unwrap(),
        FieldKind::Scalar { dtype: DType::Int32 } => {
            i32::from_ne_bytes(bytes.try_into().unwrap()).to_string()
        }
        FieldKind::Scalar { dtype: DType::Float32 } => {
            f32::from_ne_bytes(bytes.try_into().unwrap()).to_string()
        }
        FieldKind::Scalar { dtype: DType::Float64 } => {
            f64::from_ne_bytes(bytes.try_into().unwrap()).to_string()
        }
        other => panic!("{other:?}"),
    }
}

fn good(source: &dyn Source) -> Vec<Vec<String>> {
    rows(source).into_iter().map(Result::unwrap).collect()
}

fn types(all: &[(CsvDType, Option<&str>)]) -> Option<CsvTypes> {
    let one = |(dtype, default): &(CsvDType, Option<&str>)| CsvType {
        dtype: *dtype,
        default: default.map(str::to_owned),
    };
    Some(CsvTypes::All(all.iter().map(one).collect()))
}

#[test]
fn types_names_and_defaults_follow_from_the_file() {
    let folder = Folder::new();
    folder.write("a.csv", "\u{feff}id,big,x,name\n1,5000000000,.5,\"a,\n\"\"b\"\"\"\r\n\n,-1,,\n-3,,1e3,ü");
    let source = folder.open("a.csv", CsvSpec::default()).unwrap();
    conformance::check(&*source);
    let kinds: Vec<String> =
        source.schema().fields.iter().map(|f| format!("{}: {:?}", f.name, f.kind)).collect();
    assert_eq!(
        kinds,
        [
            "id: Scalar { dtype: Int32 }",
            "big: Scalar { dtype: Int64 }",
            "x: Scalar { dtype: Float32 }",
            "name: Text"
        ]
    );
    let expected = [["1", "5000000000", "0.5", "a,\n\"b\""], ["0", "-1", "0", ""], ["-3", "0", "1000", "ü"]];
    assert_eq!(good(&*source), expected);
    assert!(source.key(2).ends_with("a.csv#2"), "{}", source.key(2));

    let spec = TableSpec { label: Some("x".into()), ..folder.spec("a.csv", CsvSpec::default()) };
    let Structure::Tuple(pair) = &open(spec).unwrap().schema().structure.clone() else { panic!() };
    assert_eq!((pair[0].fields(), pair[1].fields()), (vec![0, 1, 3], vec![2]));

    let select = Some(vec![CsvColumn::Name("name".into()), CsvColumn::Index(0)]);
    let types = types(&[(CsvDType::Float64, Some("nan")), (CsvDType::String, Some("none"))]);
    let source = folder.open("a.csv", CsvSpec { select, types, ..CsvSpec::default() }).unwrap();
    assert_eq!(good(&*source), [["1", "a,\n\"b\""], ["NaN", "none"], ["-3", "ü"]]);
}

#[test]
fn rows_with_something_wrong_are_errors_by_themselves() {
    let folder = Folder::new();
    let text =
        b"a,b\n1,x\n2\n3,\"y\n\"\n4,y,z\nfour,x\n,x\n5,a\"b\n6,\"a\"b\n7,\xff\n8,\n9,\"open\nand,so on\n";
    folder.write("a.csv", text);
    let wanted = types(&[(CsvDType::Int64, None), (CsvDType::String, Some("none"))]);
    let source = folder.open("a.csv", CsvSpec { types: wanted, ..CsvSpec::default() }).unwrap();
    conformance::check(&*source);
    let found = rows(&*source);
    let expected: [Result<[&str; 2], &[&str]>; 11] = [
        Ok(["1", "x"]),
        Err(&["line 3 of ", "1 field,", "\"2\""]),
        Ok(["3", "y\n"]),
        Err(&["line 6 of", "3 fields", "4,y,z"]),
        Err(&["line 7 of", "column \"a\" is \"four\"", "int64", "four,x"]),
        Err(&["line 8 of", "column \"a\" is missing", "column_defaults"]),
        Err(&["line 9 of", "column \"b\"", "quote in the wrong place", "use_quote_delim"]),
        Err(&["line 10 of", "behind its closing quote"]),
        Err(&["line 11 of", "column \"b\"", "UTF-8"]),
        Ok(["8", "none"]),
        Err(&["line 13 of", "not closed", "so on"]),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(&expected) {
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(parts)) => {
                assert!(parts.iter().all(|part| error.contains(part)), "{error}: {parts:?}");
            }
            _ => panic!("{found:?}, and not {expected:?}"),
        }
    }
    // What is bad is not taken for a row that does not match.
    let filters = vec![vec![Condition("a".into(), Comparison::Greater, json!(2))]];
    let csv = CsvSpec {
        types: types(&[(CsvDType::Int64, None), (CsvDType::String, Some(""))]),
        ..CsvSpec::default()
    };
    let source = open(TableSpec { filters, ..folder.spec("a.csv", csv) }).unwrap();
    let kept = rows(&*source);
    assert_eq!(kept.iter().filter(|row| row.is_err()).count(), 8, "{kept:#?}");
    assert_eq!(kept.iter().flatten().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["3", "8"]);
}

#[test]
fn numbers_are_gathered_and_bad_rows_are_left() {
    let folder = Folder::new();
    let text: String =
        (0..100).map(|i| if i == 37 { "x,1\n".to_owned() } else { format!("{i},{}\n", i * 2) }).collect();
    folder.write("a.csv", format!("a,b\n{text}"));
    let wanted = types(&[(CsvDType::Int32, None), (CsvDType::Float64, None)]);
    let source = folder.open("a.csv", CsvSpec { types: wanted, ..CsvSpec::default() }).unwrap();
    let wanted: Vec<Wanted> = (0..100).map(|row| Wanted { index: 99 - row as u64, row }).collect();
    let (mut a, mut b, mut copied) = (vec![0; 400], vec![0; 800], vec![false; 100]);
    let mut into = Gather { columns: vec![&mut a, &mut b], copied: &mut copied, lists: None };
    source.gather(&wanted, &Record::default(), &mut into);
    for (row, copied) in copied.iter().enumerate() {
        let number = 99 - row;
        assert_eq!(*copied, number != 37);
        if *copied {
            assert_eq!(a[row * 4..row * 4 + 4], (number as i32).to_ne_bytes());
            assert_eq!(b[row * 8..row * 8 + 8], (number as f64 * 2.0).to_ne_bytes());
        }
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = Folder::new();
    folder.write("a.csv", "a,b\n1,2\n");
    folder.write("b.csv", "a,c\n1,2\n");
    folder.write("twice.csv", "a,a\n1,2\n");
    folder.write("empty.csv", "");
    let default = CsvSpec::default;
    let cases: [(&str, CsvSpec, &str); 11] = [
        ("?.csv", default(), "header of"),
        ("twice.csv", default(), "two columns are called \"a\""),
        ("empty.csv", default(), "is empty"),
        ("a.csv", CsvSpec { header: false, ..default() }, "no names"),
        ("a.csv", CsvSpec { delimiter: '"', ..default() }, "one ASCII character"),
        ("a.csv", CsvSpec { delimiter: 'é', ..default() }, "one ASCII character"),
        ("a.csv", CsvSpec { select: Some(vec![CsvColumn::Index(2)]), ..default() }, "there are 2 columns"),
        (
            "a.csv",
            CsvSpec { select: Some(vec![CsvColumn::Name("x".into())]), ..default() },
            "no column \"x\"",
        ),
        (
            "a.csv",
            CsvSpec { select: Some(vec![CsvColumn::Index(1), CsvColumn::Name("b".into())]), ..default() },
            "twice",
        ),
        ("a.csv", CsvSpec { types: types(&[(CsvDType::Int32, None)]), ..default() }, "1 entries for 2"),
        (
            "a.csv",
            CsvSpec { types: types(&[(CsvDType::Int32, Some("x")), (CsvDType::Int32, None)]), ..default() },
            "default",
        ),
    ];
    for (name, spec, part) in cases {
        let error = folder.open(name, spec).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let label = TableSpec { label: Some("z".into()), ..folder.spec("a.csv", default()) };
    assert!(open(label).unwrap_err().message().contains("\"z\""));
    // A file of which nothing can be read is one bad sample among others.
    fs::remove_file(folder.0.join("b.csv")).unwrap();
    fs::remove_file(folder.0.join("twice.csv")).unwrap();
    let source = folder.open("*.csv", default()).unwrap();
    assert_eq!(rows(&*source).iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    // Without rows there are none, and columns are text.
    folder.write("none.csv", "a,b\n");
    assert_eq!(folder.open("none.csv", default()).unwrap().len(), 0);
}

/// A random table with everything that a field may hold, and its text.
fn random_table(random: &mut Rng) -> (Vec<Vec<String>>, Vec<u8>, u8) {
    let mut next = |most: usize| random.next_u32() as usize % most;
    let width = 1 + next(4);
    let delimiter = *b",;\t|".get(next(4)).unwrap();
    let letters = ["a", "ü", "\"", "\n", "\r", "\r\n", ",", ";", "\t", "|", " ", "1", ".5", "日"];
    let rows: Vec<Vec<String>> = (0..next(30))
        .map(|_| (0..width).map(|_| (0..next(6)).map(|_| letters[next(letters.len())]).collect()).collect())
        .collect();
    let end = ["\n", "\r\n", "\r"][next(3)];
    let mut text = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, field) in row.iter().enumerate() {
            if column > 0 {
                text.push(delimiter);
            }
            let special = field.bytes().any(|b| matches!(b, b'"' | b'\n' | b'\r') || b == delimiter);
            // A row of one empty field would be a blank line, which others skip.
            if special || next(5) == 0 || (width == 1 && field.is_empty()) {
                text.extend_from_slice(format!("\"{}\"", field.replace('"', "\"\"")).as_bytes());
            } else {
                text.extend_from_slice(field.as_bytes());
            }
        }
        if number + 1 < rows.len() || next(2) == 0 {
            text.extend_from_slice(end.as_bytes());
        }
    }
    (rows, text, delimiter)
}

#[test]
fn random_tables_are_read_as_they_were_written_and_as_the_csv_crate_reads_them() {
    let folder = Folder::new();
    let mut random = Rng::for_stage(5, 0, 0, 0);
    for _ in 0..500 {
        let (expected, text, delimiter) = random_table(&mut random);
        let Some(width) = expected.first().map(Vec::len) else { continue };
        folder.write("a.csv", &text);
        let names: Vec<String> = (0..width).map(|i| format!("c{i}")).collect();
        let spec = CsvSpec {
            header: false,
            delimiter: delimiter.into(),
            names: Some(names),
            types: types(&vec![(CsvDType::String, Some("")); width]),
            ..CsvSpec::default()
        };
        let source = folder.open("a.csv", spec).unwrap();
        assert_eq!(good(&*source), expected, "{:?}", String::from_utf8_lossy(&text));
        let mut theirs = ::csv::ReaderBuilder::new();
        let mut theirs = theirs.has_headers(false).delimiter(delimiter).from_reader(&text[..]);
        let theirs = theirs.records().map(|row| row.unwrap().iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(theirs.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn cuts_and_changed_bytes_are_rows_or_errors_of_rows() {
    let folder = Folder::new();
    let mut text = b"id,x,name,note\r\n".to_vec();
    for i in 0..40 {
        let line = format!("{i},{}.5,name {i},\"some, \"\"quoted\"\"\ntext {i}\"\r\n", i * 3);
        text.extend_from_slice(line.as_bytes());
    }
    let names = ["id", "x", "name", "note"].map(str::to_owned).to_vec();
    let wanted =
        [CsvDType::Int64, CsvDType::Float32, CsvDType::String, CsvDType::String].map(|dtype| (dtype, None));
    let spec = || CsvSpec { names: Some(names.clone()), types: types(&wanted), ..CsvSpec::default() };
    folder.write("whole.csv", &text);
    let whole = good(&*folder.open("whole.csv", spec()).unwrap());
    assert_eq!(whole.len(), 40);
    for cut in 0..text.len() {
        folder.write("cut.csv", &text[..cut]);
        let Ok(source) = folder.open("cut.csv", spec()) else {
            assert!(cut < 17, "{cut}");
            continue;
        };
        let found = rows(&*source);
        // All rows before the cut are there. The one that was cut is an error, unless it is a whole row still.
        let complete = found.len().saturating_sub(1);
        let expected: Vec<_> = whole[..complete].iter().cloned().map(Ok).collect();
        assert_eq!(found[..complete], expected, "{cut}");
    }
    let mut random = Rng::for_stage(9, 0, 0, 0);
    for _ in 0..1000 {
        let mut bad = text.clone();
        let at = random.next_u32() as usize % bad.len();
        bad[at] ^= (1 + random.next_u32() % 255) as u8;
        folder.write("bad.csv", &bad);
        for spec in [spec(), CsvSpec::default()] {
            let Ok(source) = folder.open("bad.csv", spec) else { continue };
            conformance::check(&*source);
            // Rows before the change are what they were.
            let before = text[..at].windows(3).filter(|end| *end == b"\"\r\n").count();
            if source.schema().fields.len() == 4 && source.schema().fields[0].kind == FieldKind::LABEL {
                let found = rows(&*source);
                let expected: Vec<_> = whole[..before].iter().cloned().map(Ok).collect();
                assert_eq!(found[..before.min(found.len())], expected, "byte {at}");
            }
        }
    }
}

#[test]
fn a_file_that_changed_after_it_was_opened_is_an_error() {
    let folder = Folder::new();
    folder.write("a.csv", "a\n1\n22\n");
    let source = folder.open("a.csv", CsvSpec::default()).unwrap();
    folder.write("a.csv", "a\n1\n\n2\n");
    let error = source.fetch(0, &mut Record::default()).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt, "{error}");
}
