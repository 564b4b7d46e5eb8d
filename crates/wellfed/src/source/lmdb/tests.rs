use super::*;
use crate::{
    sample::{DType, PixelLayout, Value},
    source::{conformance, datum},
    store::LocalStore,
    testing::TempFolder,
};

/// Key, value, and flags of the node.
type Entry = (Vec<u8>, Vec<u8>, u16);

/// Writes files as LMDB does, page by page.
struct Writer {
    page_size: usize,
    file: Vec<u8>,
}

fn entry(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Entry {
    (key.as_ref().to_vec(), value.as_ref().to_vec(), 0)
}

impl Writer {
    fn new(page_size: usize) -> Self {
        Self { page_size, file: vec![0; 2 * page_size] }
    }

    fn next(&self) -> u64 {
        (self.file.len() / self.page_size) as u64
    }

    /// A page of nodes, each without its size, and with the number that stands in its head.
    fn page(&mut self, flags: u16, nodes: &[(u64, u16, &[u8], Vec<u8>)]) -> u64 {
        let number = self.next();
        let mut page = vec![0; self.page_size];
        let mut upper = self.page_size;
        for (place, (size, node_flags, key, value)) in nodes.iter().enumerate() {
            let high = if flags == 1 { (size >> 32) as u16 } else { *node_flags };
            let head =
                [&(*size as u32).to_le_bytes()[..], &high.to_le_bytes(), &(key.len() as u16).to_le_bytes()];
            let mut node = [&head.concat(), *key, value].concat();
            node.resize(node.len().next_multiple_of(2), 0);
            upper -= node.len();
            page[upper..upper + node.len()].copy_from_slice(&node);
            page[16 + 2 * place..][..2].copy_from_slice(&(upper as u16).to_le_bytes());
        }
        let lower = 16 + 2 * nodes.len();
        assert!(lower <= upper, "the nodes fit");
        page[..8].copy_from_slice(&number.to_le_bytes());
        page[10..12].copy_from_slice(&flags.to_le_bytes());
        page[12..14].copy_from_slice(&(lower as u16).to_le_bytes());
        page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
        self.file.extend(page);
        number
    }

    fn overflow(&mut self, value: &[u8]) -> u64 {
        let number = self.next();
        let pages = (16 + value.len()).div_ceil(self.page_size);
        let head = [&number.to_le_bytes()[..], &[0, 0, 4, 0], &(pages as u32).to_le_bytes()].concat();
        self.file.extend(head);
        self.file.extend(value);
        self.file.resize((number as usize + pages) * self.page_size, 0);
        number
    }

    /// A tree of these entries, and what is said of it where it is named.
    fn tree(&mut self, entries: &[Entry], tree_flags: u16) -> Vec<u8> {
        let largest = (((self.page_size - 16) / 2) & !1) - 2;
        let mut leaves: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut nodes: Vec<(u64, u16, &[u8], Vec<u8>)> = Vec::new();
        let mut used = 16;
        for (key, value, flags) in entries {
            let big = 8 + key.len() + value.len() > largest;
            let (stored, flags) = if big {
                (self.overflow(value).to_le_bytes().to_vec(), flags | 1)
            } else {
                (value.clone(), *flags)
            };
            let size = (10 + key.len() + stored.len()).next_multiple_of(2);
            if used + size > self.page_size {
                let first = nodes[0].2.to_vec();
                let page = self.page(2, &nodes);
                leaves.push((first, page));
                nodes.clear();
                used = 16;
            }
            used += size;
            nodes.push((value.len() as u64, flags, key, stored));
        }
        if !nodes.is_empty() {
            let first = nodes[0].2.to_vec();
            let page = self.page(2, &nodes);
            leaves.push((first, page));
        }
        let mut depth = u16::from(!leaves.is_empty());
        let (mut level, pages) = (leaves.clone(), leaves.len());
        while level.len() > 1 {
            let mut above = Vec::new();
            for group in level.chunks(3) {
                let nodes: Vec<_> = (group.iter().enumerate())
                    .map(|(i, (key, page))| {
                        (*page, 0, if i == 0 { &[][..] } else { key.as_slice() }, Vec::new())
                    })
                    .collect();
                above.push((group[0].0.clone(), self.page(1, &nodes)));
            }
            level = above;
            depth += 1;
        }
        let root = level.first().map_or(u64::MAX, |(_, page)| *page);
        let mut tree = vec![0; 4];
        tree.extend(tree_flags.to_le_bytes());
        tree.extend(depth.to_le_bytes());
        for number in [0, pages as u64, 0, entries.len() as u64, root] {
            tree.extend(number.to_le_bytes());
        }
        tree
    }

    /// The file with this main tree, after transaction 7.
    fn finish(mut self, main: &[u8]) -> Vec<u8> {
        let last = self.next() - 1;
        for number in 0..2_u64 {
            let mut meta = number.to_le_bytes().to_vec();
            meta.extend([0, 0, 8, 0, 0, 0, 0, 0]);
            meta.extend(0xBEEF_C0DE_u32.to_le_bytes());
            meta.extend(1_u32.to_le_bytes());
            meta.extend([0; 8]);
            meta.extend((1_u64 << 30).to_le_bytes());
            meta.extend((self.page_size as u32).to_le_bytes());
            meta.extend([8, 0, 0, 0]);
            meta.extend([0; 32]);
            meta.extend(u64::MAX.to_le_bytes());
            meta.extend(main);
            meta.extend(last.to_le_bytes());
            meta.extend((6 + number).to_le_bytes());
            self.file[number as usize * self.page_size..][..meta.len()].copy_from_slice(&meta);
        }
        self.file
    }
}

fn database(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(512);
    let main = writer.tree(entries, 0);
    writer.finish(&main)
}

fn spec(path: &str, value: LmdbValue, fields: Option<&[&str]>) -> LmdbSpec {
    let fields = fields.map(|fields| fields.iter().map(|f| (*f).to_owned()).collect());
    LmdbSpec { value, fields, ..LmdbSpec::new(path) }
}

fn open(spec: LmdbSpec) -> Result<Lmdb> {
    Lmdb::open(Arc::new(LocalStore::new()), spec)
}

fn fetch(source: &Lmdb, index: u64) -> Result<Vec<Value>> {
    let mut record = Record::default();
    source.fetch(index, &mut record).map(|()| record.values)
}

fn bytes(content: impl AsRef<[u8]>) -> Value {
    Value::Bytes(content.as_ref().to_vec())
}

/// Values of all sizes: in leaves, in one page, in several.
fn mixed(count: usize) -> Vec<Entry> {
    (0..count).map(|i| entry(format!("key {i:04}"), vec![i as u8; [3, 0, 150, 600, 1500][i % 5]])).collect()
}

#[test]
fn entries_are_samples_in_the_order_of_their_keys() {
    let folder = TempFolder::new();
    let mut entries = mixed(200);
    let path = folder.write("a/data.mdb", &database(&entries));
    for path in [folder.join("a"), path.clone(), format!("delayed+file://{path}")] {
        let source = open(spec(&path, LmdbValue::Auto, None)).unwrap();
        assert_eq!(*source.schema(), Schema::single("value", FieldKind::Bytes));
        assert_eq!((source.len(), source.key(7)), (200, "key 0007".to_owned()));
        for (i, (_, value, _)) in entries.iter().enumerate() {
            assert_eq!(fetch(&source, i as u64).unwrap(), [bytes(value)]);
        }
        conformance::check(&source);
        let again = source.spec().open(Arc::new(LocalStore::new())).unwrap();
        assert_eq!((again.fingerprint(), again.len()), (source.fingerprint(), 200));
    }
    let two = LmdbSpec {
        urls: vec![folder.join("{a,a}"), path.clone()],
        ..spec("", LmdbValue::Bytes, Some(&["__key__"]))
    };
    let two = open(two).unwrap();
    assert_eq!(two.len(), 600);
    assert_eq!(fetch(&two, 400).unwrap(), [bytes("key 0000")]);
    // What others keep beside their samples is none.
    entries.splice(0..0, [entry("__keys__", b"\x80\x02]q\0."), entry("__len__", b"\x80\x02Kd.")]);
    entries.extend([entry(b"other\\", b"x"), entry(b"\xff\0", b"y")]);
    let path = folder.write("b.mdb", &database(&entries));
    let source = open(spec(&path, LmdbValue::Bytes, Some(&["value", "__key__"]))).unwrap();
    assert_eq!(source.len(), 202);
    assert_eq!(fetch(&source, 200).unwrap(), [bytes("x"), bytes(r"other\\")]);
    assert_eq!(fetch(&source, 201).unwrap(), [bytes("y"), bytes(r"\xff\x00")]);
    conformance::check(&source);
    let keys = |keys| open(LmdbSpec { keys: Some(keys), ..spec(&path, LmdbValue::Bytes, None) });
    let text = |key: &str| LmdbKey::Text(key.to_owned());
    let some = keys(LmdbKeys::Prefix(text("key 01"))).unwrap();
    assert_eq!((some.len(), some.key(0)), (100, "key 0100".to_owned()));
    let some =
        keys(LmdbKeys::List(vec![LmdbKey::Bytes(vec![255, 0]), text("__len__"), text("key 0003")])).unwrap();
    assert_eq!(fetch(&some, 0).unwrap(), [bytes("y")]);
    assert_eq!((some.len(), fetch(&some, 2).unwrap()), (3, vec![bytes(vec![3; 600])]));
    conformance::check(&some);
    let e = keys(LmdbKeys::List(vec![text("none")])).unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.message().contains("no key none"), "{e}");
    assert!(keys(LmdbKeys::List(vec![text("other\\"), text("other\\")])).is_err());
    let e = open(spec(&path, LmdbValue::Bytes, Some(&["image"]))).unwrap_err();
    assert!(e.message().contains("there are __key__, value"), "{e}");
    for empty in [
        database(&[]),
        Writer::new(4096).finish(&{
            let mut tree = vec![0; 40];
            tree.extend(u64::MAX.to_le_bytes());
            tree
        }),
    ] {
        assert_eq!(open(LmdbSpec::new(folder.write("c.mdb", &empty))).unwrap().len(), 0);
    }
}

#[test]
fn named_databases_and_orders_of_keys() {
    let folder = TempFolder::new();
    let mut writer = Writer::new(1024);
    let images = writer.tree(&mixed(30), 0);
    let numbers: Vec<Entry> = (0..300_u64).map(|i| entry(i.to_le_bytes(), [i as u8])).collect();
    let numbers = writer.tree(&numbers, 8);
    let reversed: Vec<Entry> = (0..100).map(|i| entry(format!("{}{}", i % 10, i / 10), "x")).collect();
    let reversed = writer.tree(&reversed, 2);
    let named = |name: &str, tree: Vec<u8>| (name.as_bytes().to_vec(), tree, 2);
    let main =
        writer.tree(&[named("images", images), named("numbers", numbers), named("reversed", reversed)], 0);
    let path = folder.write("data.mdb", &writer.finish(&main));
    let of = |db: &str| open(LmdbSpec { db: Some(db.to_owned()), ..LmdbSpec::new(&path) });
    assert_eq!(fetch(&of("images").unwrap(), 3).unwrap(), [bytes(vec![3; 600])]);
    let numbers = of("numbers").unwrap();
    assert_eq!((numbers.len(), numbers.key(257)), (300, "257".to_owned()));
    conformance::check(&numbers);
    assert_eq!((of("reversed").unwrap().len(), of("reversed").unwrap().key(12)), (100, "21".to_owned()));
    let e = open(LmdbSpec::new(&path)).unwrap_err();
    assert!(e.message().contains("images, numbers, reversed") && e.hint().is_some(), "{e}");
    let e = of("none").unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.message().contains("there are images"), "{e}");
    let several = database(&[entry("a", "1"), (b"b".to_vec(), vec![0; 60], 4)]);
    let e = open(LmdbSpec::new(folder.write("several.mdb", &several))).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("DUPSORT"), "{e}");
}

/// A `.npy` file of int16.
fn npy(sides: &[usize]) -> Vec<u8> {
    let count = sides.iter().product::<usize>();
    let elements: Vec<u8> = (0..count as i16).flat_map(i16::to_ne_bytes).collect();
    super::super::npy_file(DType::Int16, sides, &elements).unwrap()
}

#[test]
fn values_are_found_to_be_what_they_are() {
    let folder = TempFolder::new();
    let open = |values: &[&[u8]], value: LmdbValue, fields: Option<&[&str]>| {
        let entries: Vec<Entry> =
            values.iter().enumerate().map(|(i, v)| entry(format!("{i:03}"), v)).collect();
        let source = open(spec(&folder.write("a.mdb", &database(&entries)), value, fields))?;
        conformance::check(&source);
        Ok::<_, Error>(source)
    };
    let auto = |values: &[&[u8]]| open(values, LmdbValue::Auto, None);
    let jpeg = b"\xff\xd8\xff\xe0 and so on";
    assert_eq!(*auto(&[jpeg, jpeg]).unwrap().schema(), Schema::single("value", FieldKind::Image));

    let arrays = auto(&[&npy(&[2, 3]), &npy(&[2, 3])]).unwrap();
    assert_eq!(arrays.schema().fields[0].kind, FieldKind::array(DType::Int16, &[2, 3]));
    assert_eq!(fetch(&arrays, 1).unwrap(), [bytes([0_i16, 1, 2, 3, 4, 5].map(i16::to_ne_bytes).concat())]);
    let arrays = auto(&[&npy(&[2, 3]), &npy(&[1, 3]), &npy(&[2, 2])]).unwrap();
    assert_eq!(
        arrays.schema().fields[0].kind,
        FieldKind::Array { dtype: DType::Int16, shape: vec![None, None] }
    );
    let e = auto(&[&npy(&[2, 3]), &npy(&[3])]).unwrap_err();
    assert!(e.message().contains("2 sides, others 1"), "{e}");

    // One that is damaged has no say in what the others are.
    let (whole, cut) = (npy(&[2]), &npy(&[2])[..90]);
    for (good, bad, kind) in [
        (&jpeg[..], &b"none"[..], FieldKind::Image),
        (&whole[..], &b"none"[..], FieldKind::array(DType::Int16, &[2])),
        (&whole[..], cut, FieldKind::array(DType::Int16, &[2])),
    ] {
        for at in 0..8 {
            let mut values = [good; 8];
            values[at] = bad;
            assert_eq!(auto(&values).unwrap().schema().fields[0].kind, kind, "{at}");
        }
    }
    assert!(fetch(&auto(&[&whole, &whole, cut]).unwrap(), 2).is_err());

    let raw = LmdbValue::Array { dtype: DType::Float32, shape: vec![2] };
    let source = open(&[&[1; 8], &[2; 9]], raw, None).unwrap();
    assert_eq!(fetch(&source, 0).unwrap(), [bytes([1; 8])]);
    assert!(fetch(&source, 1).unwrap_err().message().contains("9 bytes, not 8"));
    let label = LmdbValue::Array { dtype: DType::Int64, shape: vec![] };
    assert_eq!(fetch(&open(&[&5_i64.to_ne_bytes()], label, None).unwrap(), 0).unwrap(), [Value::Int(5)]);
    let pixels = LmdbValue::Array { dtype: DType::UInt8, shape: vec![2, 1, 3] };
    let kind = FieldKind::Pixels { height: 2, width: 1, channels: 3, layout: PixelLayout::Hwc };
    assert_eq!(open(&[&[1; 6]], pixels, None).unwrap().schema().fields[0].kind, kind);

    let text = open(&["ü".as_bytes(), b"\xff"], LmdbValue::Text, None).unwrap();
    assert!(fetch(&text, 0).is_ok() && fetch(&text, 1).unwrap_err().message().contains("no text"));
    let json = open(&[b"{\"a\": NaN}", b"{"], LmdbValue::Json, None).unwrap();
    assert!(fetch(&json, 0).is_ok() && fetch(&json, 1).unwrap_err().message().contains("no JSON"));

    let planes = |width| datum::tests::message([3, 2, width], &vec![9; 6 * usize::from(width)], 4, false);
    let source = auto(&[&planes(5), &planes(5)]).unwrap();
    let kind = FieldKind::Pixels { height: 2, width: 5, channels: 3, layout: PixelLayout::Chw };
    assert_eq!(*source.schema(), Schema::tuple([("image", kind), ("label", FieldKind::LABEL)]));
    assert_eq!(fetch(&source, 0).unwrap(), [bytes([9; 30]), Value::Int(4)]);
    let labels = open(&[&planes(5), &planes(6)], LmdbValue::Auto, Some(&["label"])).unwrap();
    assert_eq!(fetch(&labels, 1).unwrap(), [Value::Int(4)]);

    let e = auto(&[b"\x80\x02K\x01.", b"\x80\x04K\x01."]).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("pickle"), "{e}");
    let e = auto(&[jpeg, b"17"]).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Config && e.message().contains("an image, that of 001 other bytes"),
        "{e}"
    );
    assert!(open(&[b"17"], LmdbValue::Datum, None).is_err() && open(&[b"17"], LmdbValue::Npy, None).is_err());
}

#[test]
fn fields_of_messagepack_are_fields() {
    let folder = TempFolder::new();
    let open = |values: &[Vec<u8>], fields: Option<&[&str]>| {
        let entries: Vec<Entry> =
            values.iter().enumerate().map(|(i, v)| entry(format!("{i:03}"), v)).collect();
        let source = open(spec(&folder.write("a.mdb", &database(&entries)), LmdbValue::Auto, fields))?;
        conformance::check(&source);
        Ok::<_, Error>(source)
    };
    let dict = |image: &[u8], label: &[u8], tokens: &[u8], name: &[u8]| {
        let mut all = vec![0x84, 0xA3, b'j', b'p', b'g', 0xC4, image.len() as u8];
        all.extend(image);
        all.extend([0xA3, b'c', b'l', b's']);
        all.extend(label);
        all.extend([0xA2, b'i', b'd', 0x90 + tokens.len() as u8]);
        all.extend(tokens);
        all.extend([0xA4, b'n', b'a', b'm', b'e', 0xA0 + name.len() as u8]);
        all.extend(name);
        all
    };
    let jpeg = b"\xff\xd8\xff";
    let values = [dict(jpeg, &[5], &[1, 2], b"x"), dict(jpeg, &[0xCA, 0x3F, 0, 0, 0], &[], "ü".as_bytes())];
    let source = open(&values, None).unwrap();
    let expected = [
        ("jpg", FieldKind::Image),
        ("cls", FieldKind::Scalar { dtype: DType::Float64 }),
        ("id", FieldKind::Array { dtype: DType::Int64, shape: vec![None] }),
        ("name", FieldKind::Text),
    ];
    assert_eq!(*source.schema(), Schema::dict(expected));
    let float = |x: f64| bytes(x.to_ne_bytes());
    let ids = bytes([1_i64, 2].map(i64::to_ne_bytes).concat());
    assert_eq!(fetch(&source, 0).unwrap(), [bytes(jpeg), float(5.0), ids, bytes("x")]);
    assert_eq!(fetch(&source, 1).unwrap()[1], float(0.5));
    let named = open(&values, Some(&["name", "__key__"])).unwrap();
    assert_eq!(fetch(&named, 1).unwrap(), [bytes("ü"), bytes("001")]);
    let e = open(&[values[0].clone(), vec![0x81, 0xA1, b'a', 1]], None).unwrap_err();
    assert!(e.message().contains("[\"a\"]"), "{e}");
    // A list, as tensorpack writes data points.
    let list = [&[0x92, 0xC4, 3][..], jpeg, &[7]].concat();
    let source = open(&[list.clone(), list], None).unwrap();
    assert_eq!(*source.schema(), Schema::tuple([("0", FieldKind::Image), ("1", FieldKind::LABEL)]));
    assert_eq!(fetch(&source, 0).unwrap(), [bytes(jpeg), Value::Int(7)]);
    // 70 entries: those that were not looked at may differ.
    let mut many = vec![values[0].clone(); 70];
    many[11] = dict(jpeg, &[0xC0], &[], b"x");
    many[22] = values[0][..20].to_vec();
    let source = open(&many, None).unwrap();
    for (index, what) in [(11, "cls is Nil, but"), (22, "announces")] {
        let e = fetch(&source, index).unwrap_err();
        assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(what), "{e}");
    }
}

#[test]
fn what_a_writer_may_have_taken_is_an_error() {
    let folder = TempFolder::new();
    let whole = database(&mixed(50));
    let path = folder.write("data.mdb", &whole);
    let source = open(LmdbSpec::new(&path)).unwrap();
    let after = |transaction: u64| {
        let mut file = whole.clone();
        let meta = 512 * (transaction & 1) as usize;
        file[meta + 144..meta + 152].copy_from_slice(&transaction.to_le_bytes());
        // In its place, as a writer changes it.
        let opened = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&opened, &file, 0).unwrap();
        (0..50).map(|i| fetch(&source, i)).collect::<Result<Vec<_>>>()
    };
    assert!(after(7).is_ok() && after(8).is_ok(), "pages of transaction 7 are not written to yet");
    for transaction in [9, 10, 1 << 60] {
        let e = after(transaction).unwrap_err();
        assert!(e.kind() == ErrorKind::Changed && e.hint().is_some(), "{e}");
    }
    // The same holds where a writer has put something else in the place of a value's pages.
    let mut file = whole.clone();
    file[144..152].copy_from_slice(&10_u64.to_le_bytes());
    file[512 * 2..].fill(0);
    let opened = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&opened, &file, 0).unwrap();
    assert_eq!(fetch(&source, 3).unwrap_err().kind(), ErrorKind::Changed);
    // Opened again it is what it is by now.
    after(10).unwrap_err();
    assert!(fetch(&open(LmdbSpec::new(&path)).unwrap(), 3).is_ok());
}

#[test]
fn small_arrays_are_gathered_and_what_a_writer_may_have_taken_is_not() {
    let folder = TempFolder::new();
    // Values in their page, values with pages of their own, and one of another size.
    for (count, size) in [(40_u8, 12_usize), (20, 400), (3, 2000)] {
        let mut entries: Vec<Entry> = (0..count).map(|i| entry(format!("{i:03}"), vec![i; size])).collect();
        entries[1].1.pop();
        let path = folder.write("a.mdb", &database(&entries));
        let array = LmdbValue::Array { dtype: DType::UInt8, shape: vec![size] };
        let source = open(spec(&path, array.clone(), None)).unwrap();
        conformance::check(&source);
        let rows = usize::from(count);
        let gathered = || {
            let (mut column, mut copied) = (vec![0; rows * size], vec![false; rows]);
            let wanted: Vec<Wanted> =
                (0..rows).map(|row| Wanted { index: (rows - 1 - row) as u64, row }).collect();
            let mut into = Gather { columns: vec![&mut column[..]], copied: &mut copied, lists: None };
            source.gather(&wanted, &Record::default(), &mut into);
            (column, copied)
        };
        let (column, copied) = gathered();
        assert_eq!(copied.iter().filter(|copied| **copied).count(), rows - 1, "{size}");
        assert!(!copied[rows - 2], "the one of another size");
        assert!(column[..size].iter().all(|byte| *byte == count - 1));
        // Three transactions later.
        let opened = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&opened, &10_u64.to_le_bytes(), 144).unwrap();
        assert!(!gathered().1.contains(&true), "{size}");
        let key = open(spec(&path, array, Some(&["value", "__key__"]))).unwrap();
        assert!(!key.gathers(), "keys are texts");
    }
    // Several files, one of which has nothing.
    let file = |name: &str, values: &[u8]| {
        let entries: Vec<Entry> = values.iter().map(|i| entry(format!("{i:03}"), [*i; 12])).collect();
        folder.write(name, &database(&entries))
    };
    let urls = vec![file("1.mdb", &[1, 2]), file("2.mdb", &[]), file("3.mdb", &[3, 4, 5])];
    let array = LmdbValue::Array { dtype: DType::UInt8, shape: vec![12] };
    let source = open(LmdbSpec { urls, ..spec("", array, None) }).unwrap();
    assert_eq!(source.len(), 5);
    conformance::check(&source);
    let (mut column, mut copied) = (vec![0; 5 * 12], [false; 5]);
    let wanted: Vec<Wanted> = (0..5).map(|row| Wanted { index: row as u64, row }).collect();
    let mut into = Gather { columns: vec![&mut column[..]], copied: &mut copied, lists: None };
    source.gather(&wanted, &Record::default(), &mut into);
    assert_eq!((copied, column.iter().step_by(12).copied().collect()), ([true; 5], vec![1, 2, 3, 4, 5]));
}

#[test]
fn other_files_say_what_they_are() {
    let folder = TempFolder::new();
    let whole = database(&mixed(5));
    type Change<'a> = (&'a dyn Fn(&mut Vec<u8>), &'a str);
    let changes: [Change; 7] = [
        (&|file| file[20] = 2, "format of data 2"),
        (&|file| file[16..20].reverse(), "the other byte order"),
        (&|file| file.copy_within(16..20, 12), "32-bit machine"),
        (&|file| file[40] = 1, "pages of 513 bytes"),
        (&|file| file.truncate(100), "it has 100 bytes"),
        (&|file| file[512 + 16] = 0, "meta page 1 is damaged"),
        (&|file| file[512 + 88 + 32] = 9, "states 9 entries, but its pages hold 5"),
    ];
    for (change, what) in changes {
        let mut file = whole.clone();
        change(&mut file);
        let e = open(LmdbSpec::new(folder.write("a.mdb", &file))).unwrap_err();
        assert!(e.message().contains(what), "{e}");
    }
    assert_eq!(open(LmdbSpec::new(folder.join("none"))).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn cuts_and_changes_lose_no_sample_silently() {
    let folder = TempFolder::new();
    let entries: Vec<Entry> = (0..30)
        .map(|i| entry(format!("key {i:02}"), vec![i; [30, 2, 60, 400][usize::from(i) % 4]]))
        .collect();
    let file = database(&entries);
    let path = folder.join("a.mdb");
    let all = |file: &[u8]| -> Result<Vec<(String, Result<Vec<Value>>)>> {
        folder.write("a.mdb", file);
        let source = open(spec(&path, LmdbValue::Bytes, None))?;
        Ok((0..source.len()).map(|i| (source.key(i), fetch(&source, i))).collect())
    };
    let whole: Vec<_> = all(&file).unwrap().into_iter().map(|(key, value)| (key, value.unwrap())).collect();
    let is_good = |(key, value): &(String, Result<Vec<Value>>)| {
        value.as_ref().map_or(true, |value| whole.contains(&(key.clone(), value.clone())))
    };
    for cut in 0..file.len() {
        if let Ok(found) = all(&file[..cut]) {
            assert_eq!(found.len(), 30, "cut at {cut}");
            assert!(found.iter().all(is_good), "cut at {cut}");
            // Behind the last value may be bytes that nobody needs.
            assert!(found.iter().any(|(_, value)| value.is_err()) || cut + 512 > file.len(), "cut at {cut}");
        }
    }
    let mut random = crate::rng::Rng::for_stage(3, 0, 0, 0);
    let mut opened = 0;
    for _ in 0..2000 {
        let mut bad = file.clone();
        let at = random.next_u32() as usize % bad.len();
        bad[at] ^= (1 + random.next_u32() % 255) as u8;
        let found = all(&bad);
        let number_of_page = at >= 1024 && at % 512 < 8;
        if let Ok(found) = found {
            opened += 1;
            assert_eq!(found.len(), 30, "byte {at}");
            // A page that is another one is noticed, if it is a page at all and not the inside of a long value.
            let begins =
                bad[at / 512 * 512 + 8..][..2] == [0, 0] && file[at / 512 * 512] as usize == at / 512;
            if number_of_page && begins {
                assert!(found.iter().any(|(_, value)| value.is_err()), "byte {at}");
            }
            // Keys and values have no checksum; but damage never spreads.
            let changed = found.iter().filter(|sample| !is_good(sample)).count();
            assert!(changed <= 1, "byte {at}: {changed} samples are others");
        }
    }
    assert!(opened > 1000, "most damage is that of one sample");
    // A leaf page that is lost costs its entries, as bad samples.
    let leaf = (2..file.len() / 512).find(|page| file[page * 512 + 10] == 2).unwrap();
    let mut bad = file.clone();
    bad[leaf * 512] ^= 1;
    let found = all(&bad).unwrap();
    let lost: Vec<_> = found.iter().filter(|(_, value)| value.is_err()).collect();
    assert!(!lost.is_empty() && lost.len() < 30 && lost[0].0.starts_with(r"\lost"), "{lost:?}");
    conformance::check(&open(spec(&path, LmdbValue::Bytes, None)).unwrap());
}
