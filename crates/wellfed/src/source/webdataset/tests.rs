use std::time::{Duration, SystemTime};

use super::*;
use crate::{
    source::{
        conformance,
        npy::tests::npy,
        tar_index::tests::tar,
        unpack::tests::{gzip, zstandard},
    },
    store::{DelayedStore, Fault, FaultyStore, LocalStore, Operation, Retry},
    testing::TempFolder,
};

fn open(url: &str, fields: Option<&[&str]>) -> Result<WebDataset> {
    let fields = fields.map(|fields| fields.iter().map(|f| (*f).to_owned()).collect());
    let spec = WebDatasetSpec { fields, ..WebDatasetSpec::new(url) };
    WebDataset::open(Arc::new(LocalStore::new()), spec)
}

fn fetch(source: &WebDataset, index: u64) -> Result<Vec<Value>> {
    let mut record = Record::default();
    source.fetch(index, &mut record).map(|()| record.values)
}

fn bytes(content: &[u8]) -> Value {
    Value::Bytes(content.to_vec())
}

/// Three shards of two samples each.
fn three(folder: &TempFolder) -> String {
    for shard in 0..3_u8 {
        let (a, b) = (format!("{shard}/a"), format!("{shard}/b"));
        let label = format!(" {shard}\n");
        folder.write(
            &format!("t-{shard}.tar"),
            &tar(&[
                (&format!("{a}.jpg"), &[shard; 700]),
                (&format!("{a}.cls"), label.as_bytes()),
                (&format!("{a}.json"), b"{\"x\": [1, NaN]}"),
                (&format!("{b}.PNG"), b"png"),
                (&format!("{b}.cls"), b"-7"),
                (&format!("{b}.json"), b"{}"),
            ]),
        );
    }
    folder.join("t-{0..2}.tar")
}

#[test]
fn the_fields_of_all_samples_make_a_dict() {
    let folder = TempFolder::new();
    let source = open(&three(&folder), None).unwrap();
    conformance::check(&source);
    let fields: Vec<_> = source.schema().fields.iter().map(|f| (f.name.as_str(), f.kind.clone())).collect();
    let expected = [
        ("__key__", FieldKind::Text),
        ("jpg", FieldKind::Image),
        ("cls", FieldKind::LABEL),
        ("json", FieldKind::Json),
    ];
    assert_eq!(fields, expected);
    assert_eq!(*source.schema(), Schema::dict(expected));
    assert_eq!(source.len(), 6);
    assert_eq!(
        fetch(&source, 3).unwrap(),
        [bytes(b"1/b"), bytes(b"png"), Value::Int(-7), bytes(b"{}")],
        "jpg, jpeg and png are one field"
    );
    assert_eq!(source.key(2), format!("{}/1/a", folder.join("t-1.tar")));
    assert_eq!(fetch(&source, 4).unwrap()[2], Value::Int(2));
}

#[test]
fn fields_that_only_some_samples_have_are_an_error_with_counts() {
    let folder = TempFolder::new();
    let late = [("a.jpg", &b"A"[..]), ("b.jpg", b"B"), ("b.cls", b"1"), ("c.jpeg", b"C"), ("c.cls", b"2")];
    let url = folder.write("late.tar", &tar(&late));
    let e = open(&url, None).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Config);
    assert!(e.message().contains("jpg/jpeg/png is in 3 of 3, cls is in 2 of 3"), "{e}");
    assert!(e.message().contains(&format!("with cls is {url}/b, the first without it {url}/a")), "{e}");
    assert!(e.hint().unwrap().contains("fields=[\"jpg;jpeg;png\"]"), "{e}");
    let named = open(&url, Some(&["jpg;jpeg", "cls"])).unwrap();
    assert_eq!((named.len(), fetch(&named, 0).is_err(), fetch(&named, 2).is_ok()), (3, true, true));
    let other = folder.write("other.tar", &tar(&[("z.jpg", b"Z")]));
    let early = folder.write("early.tar", &tar(&[("y.jpg", b"Y"), ("y.cls", b"1")]));
    let e = open(&format!("{early}::{other}"), None).unwrap_err();
    assert!(e.message().contains("cls is in 1 of 2"), "a later shard counts, too: {e}");
    let pairs =
        folder.write("pairs.tar", &tar(&[("a.jpg", b""), ("a.png", b""), ("b.png", b""), ("b.jpg", b"")]));
    let names = |s: WebDataset| s.schema().fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(open(&pairs, None).unwrap()), ["__key__", "jpg", "png"]);
}

#[test]
fn links_are_samples_and_broken_ones_bad_samples() {
    let folder = TempFolder::new();
    let mut builder = ::tar::Builder::new(Vec::new());
    let mut add = |name: &str, kind, link: &str, data: &[u8]| {
        let mut header = ::tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        match link {
            "" => builder.append_data(&mut header, name, data).unwrap(),
            link => builder.append_link(&mut header, name, link).unwrap(),
        }
    };
    use ::tar::EntryType::{Link, Regular, Symlink};
    add("a.jpg", Regular, "", b"A");
    add("a.cls", Regular, "", b"1");
    add("b.jpg", Link, "a.jpg", b"");
    add("b.cls", Symlink, "a.cls", b"");
    add("c.jpg", Symlink, "gone.jpg", b"");
    add("c.cls", Regular, "", b"2");
    add("b.jpg", Link, "a.jpg", b"");
    add("b.cls", Regular, "", b"3");
    let url = folder.write("x.tar", &builder.into_inner().unwrap());
    let spec = WebDatasetSpec { index: IndexMode::Sidecar, ..WebDatasetSpec::new(url) };
    for _ in 0..2 {
        let source = WebDataset::open(Arc::new(LocalStore::new()), spec.clone()).unwrap();
        conformance::check(&source);
        assert_eq!(source.len(), 4);
        assert_eq!(fetch(&source, 1).unwrap(), [bytes(b"b"), bytes(b"A"), Value::Int(1)]);
        let e = fetch(&source, 2).unwrap_err();
        assert_eq!((e.kind(), e.key()), (ErrorKind::Corrupt, Some(source.key(2).as_str())));
        assert!(
            e.message().contains("c.jpg is a symbolic link to gone.jpg, which is not in the shard"),
            "{e}"
        );
        assert_eq!(fetch(&source, 3).unwrap()[1..], [bytes(b"A"), Value::Int(3)]);
    }
}

#[test]
fn shards_are_found_by_url_in_one_store() {
    let folder = TempFolder::new();
    three(&folder);
    let url = |latency: u8| format!("delayed+file://{}?latency_ms={latency}", folder.join("t-{0..2}.tar"));
    let source = open(&url(1), None).unwrap();
    assert!(source.store().unwrap().remote().is_some());
    conformance::check(&source);
    let shown = format!("webdataset({})", crate::store::secrets::shown(&url(1)));
    assert_eq!((source.len(), source.name()), (6, shown), "names have no options");
    assert_eq!(open(&format!("{}::{}", url(1), url(1)), None).unwrap().len(), 12);
    let e = open(&format!("{}::{}", url(1), url(2)), None).unwrap_err();
    assert!(e.message().contains("another store"), "{e}");
    let e = open("s3://bucket/x.tar", None).unwrap_err();
    assert!(e.kind() == ErrorKind::Config && e.message().contains("delayed+file, file"), "{e}");
}

#[test]
fn named_fields_make_a_tuple() {
    let folder = TempFolder::new();
    let url = three(&folder);
    let source = open(&url, Some(&["png;jpg", "cls", "__key__", "__url__"])).unwrap();
    conformance::check(&source);
    assert_eq!(source.schema().structure, Structure::Tuple((0..4).map(Structure::Field).collect()));
    let url_of = folder.join("t-0.tar");
    let expected = [bytes(&[0; 700]), Value::Int(0), bytes(b"0/a"), bytes(url_of.as_bytes())];
    assert_eq!(fetch(&source, 0).unwrap(), expected);
    let e = open(&url, Some(&["webp"])).unwrap_err();
    assert!(e.message().contains("jpg, cls, json, png"), "{e}");
    for bad in [&["jpg;cls"][..], &[], &[""], &["jpg", "jpg"], &["cls;npy"]] {
        assert_eq!(open(&url, Some(bad)).unwrap_err().kind(), ErrorKind::Config, "{bad:?}");
    }
    let jpg = open(&url, Some(&["jpg"])).unwrap();
    conformance::check(&jpg);
    let e = fetch(&jpg, 1).unwrap_err();
    assert!(e.message().contains("lacks field jpg: it has png, cls, json"), "{e}");
}

#[test]
fn shards_are_found_by_braces_stars_and_lists() {
    let folder = TempFolder::new();
    three(&folder);
    let t = |i: u8| folder.join(&format!("t-{i}.tar"));
    let shards = |url: &str| open(url, None).map(|s| s.shards().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(shards(&folder.join("t-{2..1}.tar")).unwrap(), [t(2), t(1)]);
    assert_eq!(shards(&folder.join("*.tar")).unwrap(), [t(0), t(1), t(2)]);
    assert_eq!(shards(&format!("file:{}::{}", t(1), t(0))).unwrap(), [t(1), t(0)]);
    let e = shards(&folder.join("t-{1..3}.tar")).unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.message().contains("t-3.tar"), "{e}");
    assert_eq!(shards(&folder.join("x*.tar")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(shards("pipe:cat x.tar").unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(shards(folder.path()).unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(shards("").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn arrays_have_the_dtype_and_shape_of_the_first() {
    let folder = TempFolder::new();
    let data: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let url = folder.write(
        "x.tar",
        &tar(&[
            ("bad.npy", b"rubbish"),
            ("a.npy", &npy("<f4", false, "(2, 3)", &data)),
            ("b.npy", &npy("<f4", true, "(2, 3)", &data)),
            ("c.npy", &npy("<f4", false, "(3, 2)", &data)),
            ("d.npy", &npy("<f8", false, "(3,)", &data)),
        ]),
    );
    let source = open(&url, Some(&["npy"])).unwrap();
    conformance::check(&source);
    let kind = FieldKind::array(crate::sample::DType::Float32, &[2, 3]);
    assert_eq!(source.schema().fields[0].kind, kind);
    assert_eq!(fetch(&source, 1).unwrap(), [bytes(&data)]);
    let swapped: Vec<u8> = [1.0_f32, 3.0, 5.0, 2.0, 4.0, 6.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    assert_eq!(fetch(&source, 2).unwrap(), [bytes(&swapped)]);
    assert_eq!(fetch(&source, 0).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(fetch(&source, 3).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(fetch(&source, 4).unwrap_err().kind(), ErrorKind::Shape);
}

#[test]
fn bad_members_are_errors_of_their_sample() {
    let folder = TempFolder::new();
    let url = folder.write(
        "x.tar",
        &tar(&[
            ("a.cls", b"12x"),
            ("a.txt", b"fine"),
            ("b.cls", &[b'1'; 100]),
            ("b.txt", b"fine"),
            ("c.cls", b"1"),
            ("c.txt", b"not \xff fine"),
            ("d.cls", b"1"),
            ("d.txt", b"fine"),
            ("d.CLS", b"2"),
            ("e.cls", b"+5 "),
            ("e.txt", &[b'x'; 200]),
        ]),
    );
    let source = open(&url, Some(&["cls", "txt"])).unwrap();
    conformance::check(&source);
    let message = |i| fetch(&source, i).unwrap_err().message().to_owned();
    assert!(message(0).contains("\"12x\""));
    assert!(message(1).contains("100 bytes"));
    assert!(message(2).contains("not UTF-8 from byte 4"));
    assert!(message(3).contains("cls twice"));
    assert_eq!(fetch(&source, 4).unwrap()[0], Value::Int(5));
    let mut record = Record::default();
    record.limits.max_bytes = 199;
    let e = source.fetch(4, &mut record).unwrap_err();
    assert_eq!((e.kind(), e.key()), (ErrorKind::Limit, Some(source.key(4).as_str())));
    let json = folder.write("y.tar", &tar(&[("a.json", b"{\"x\": }")]));
    let e = fetch(&open(&json, Some(&["json"])).unwrap(), 0).unwrap_err();
    assert_eq!((e.kind(), e.offset()), (ErrorKind::Corrupt, Some(512)));
}

#[test]
fn a_shard_cut_at_any_byte_accounts_for_every_sample() {
    let folder = TempFolder::new();
    let files: [(&str, &[u8]); 6] = [
        ("a.jpg", &[1; 600]),
        ("a.cls", b"1"),
        ("b.jpg", &[2; 512]),
        ("b.cls", b"2"),
        ("c.jpg", &[3; 10]),
        ("c.cls", b"3"),
    ];
    let whole = tar(&files);
    let other = folder.write("other.tar", &tar(&[("z.jpg", b"z"), ("z.cls", b"9")]));
    // Where the last byte of each sample lies.
    let ends = [512 + 1024 + 512 + 1, 2560 + 512 + 512 + 512 + 1, 4608 + 512 + 512 + 512 + 1];
    for cut in 0..whole.len() {
        let path = folder.write("cut.tar", &whole[..cut]);
        let source = open(&format!("{path}::{other}"), Some(&["jpg", "cls"])).unwrap();
        let fetched: Vec<_> = (0..source.len()).map(|i| fetch(&source, i)).collect();
        let (good, bad): (Vec<_>, Vec<_>) = fetched.into_iter().partition(Result::is_ok);
        let intact = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(good.len(), intact + 1, "cut at {cut}: intact samples and the other shard's are there");
        for (i, sample) in good.iter().take(intact).enumerate() {
            let label = Value::Int(i as i64 + 1);
            assert_eq!(sample.as_ref().unwrap()[1], label, "cut at {cut}");
        }
        if cut < whole.len() - 512 {
            assert!(!bad.is_empty(), "cut at {cut}: nothing is lost silently");
        }
        for e in bad {
            let e = e.unwrap_err();
            assert!(e.kind() == ErrorKind::Corrupt && e.offset().is_some_and(|o| o <= cut as u64), "{e}");
            assert!(e.hint().is_some() && e.key().unwrap().contains("cut.tar"), "{e}");
        }
        if cut % 97 == 0 {
            conformance::check(&source);
        }
    }
}

#[test]
fn an_incomplete_first_sample_does_not_decide_the_fields() {
    let folder = TempFolder::new();
    let whole = tar(&[("a.jpg", &[1; 600]), ("a.cls", b"1")]);
    let cut = folder.write("cut.tar", &whole[..1600]);
    let good = folder.write("good.tar", &whole);
    let source = open(&format!("{cut}::{good}"), None).unwrap();
    assert_eq!(source.schema().fields.len(), 3, "__key__, jpg and cls");
    assert_eq!(
        (fetch(&source, 0).is_err(), fetch(&source, 1).is_err(), fetch(&source, 2).is_ok()),
        (true, true, true)
    );
    let nothing = folder.write("nothing.tar", b"");
    let source = open(&nothing, None).unwrap();
    conformance::check(&source);
    assert!(fetch(&source, 0).unwrap_err().message().contains("empty"));
}

#[test]
fn sidecars_are_written_when_asked_for_and_used() {
    let folder = TempFolder::new();
    let url = three(&folder);
    open(&url, None).unwrap();
    assert!(!std::path::Path::new(&folder.join("t-0.tar.wfidx")).exists(), "nothing is written unasked");
    let spec = WebDatasetSpec { index: IndexMode::Sidecar, ..WebDatasetSpec::new(url) };
    let first = WebDataset::open(Arc::new(LocalStore::new()), spec.clone()).unwrap();
    assert!(std::path::Path::new(&folder.join("t-0.tar.wfidx")).exists());
    // With kept indices no header is read, so a store that cannot read ranges is good enough.
    let blind = FaultyStore::new(Arc::new(LocalStore::new()), |call| match call.operation {
        Operation::ReadRange => Fault::Error(std::io::ErrorKind::TimedOut),
        _ => Fault::None,
    })
    .with_retry(Retry { attempts: 1, ..Retry::default() });
    let second = WebDataset::open(Arc::new(blind.clone()), spec.clone()).unwrap();
    assert_eq!((second.len(), second.key(5)), (first.len(), first.key(5)));
    conformance::check(&second);
    let unasked = WebDatasetSpec { index: IndexMode::Memory, ..spec.clone() };
    assert_eq!(WebDataset::open(Arc::new(blind.clone()), unasked.clone()).unwrap().len(), first.len());
    fs::remove_file(folder.join("t-0.tar.wfidx")).unwrap();
    let e = WebDataset::open(Arc::new(blind), unasked);
    assert_eq!(e.unwrap_err().kind(), ErrorKind::Transient);
    let dumb = FaultyStore::new(Arc::new(LocalStore::new()), |call| match call.operation {
        Operation::Write => Fault::Error(std::io::ErrorKind::PermissionDenied),
        _ => Fault::None,
    });
    folder.write("t-0.tar", &tar(&[("n.jpg", b"new"), ("n.cls", b"1"), ("n.json", b"1")]));
    let third = WebDataset::open(Arc::new(dumb), spec).unwrap();
    assert_eq!(
        third.len(),
        5,
        "a changed shard is read again, and a folder that cannot be written is no error"
    );
}

#[test]
fn shards_that_a_stream_reads_otherwise_are_refused_on_request() {
    let folder = TempFolder::new();
    let open = |path: &str| {
        let fields = Some(vec!["jpg".to_owned()]);
        let spec = WebDatasetSpec { as_streamed: true, fields, ..WebDatasetSpec::new(path) };
        WebDataset::open(Arc::new(LocalStore::new()), spec)
    };
    let plain = tar(&[("a.jpg", b"A"), ("a.cls", b"1"), ("f/b.jpg", b"B"), ("f/b.seg.png", b"C")]);
    let source = open(&folder.write("plain.tar", &plain)).unwrap();
    conformance::check(&source);
    assert_eq!(source.len(), 2);
    for (name, words, shard) in [
        ("cut", "damage", plain[..1400].to_vec()),
        ("hidden", "no sample", tar(&[("f/a.jpg", b"A"), ("f/.a.jpg", b"B")])),
        ("twice", "not told apart", tar(&[("a.jpg", b"A"), ("a.JPG", b"B")])),
        ("lines", "not told apart", tar(&[("a\n.jpg", b"A")])),
    ] {
        let e = open(&folder.write(&format!("{name}.tar"), &shard)).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.message().contains(words), "{name}: {e}");
    }
    let mut builder = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_gnu();
    header.set_size(1);
    builder.append_data(&mut header, "a.jpg", &b"A"[..]).unwrap();
    header.set_size(0);
    header.set_entry_type(::tar::EntryType::Symlink);
    builder.append_link(&mut header, "b.jpg", "a.jpg").unwrap();
    let e = open(&folder.write("links.tar", &builder.into_inner().unwrap())).unwrap_err();
    assert!(e.message().contains("links"), "{e}");
}

fn unpacked(url: &str, folder: &TempFolder) -> Result<WebDataset> {
    let unpack_to = Some(folder.join("unpacked").into());
    WebDataset::open(Arc::new(LocalStore::new()), WebDatasetSpec { unpack_to, ..WebDatasetSpec::new(url) })
}

#[test]
fn compressed_shards_are_unpacked_once_and_have_the_samples_of_plain_ones() {
    let folder = TempFolder::new();
    let plain = open(&three(&folder), None).unwrap();
    let files: Vec<_> = plain.shards().map(|path| std::fs::read(path).unwrap()).collect();
    for (ending, pack) in [("tar.gz", gzip as fn(&[u8]) -> Vec<u8>), ("tgz", gzip), ("tar.zst", zstandard)] {
        for (number, file) in files.iter().enumerate() {
            // The second one as two streams, one behind the other.
            let half = if number == 1 { file.len() / 2 } else { 0 };
            let first = if half > 0 { pack(&file[..half]) } else { Vec::new() };
            folder.write(&format!("p-{number}.{ending}"), &[first, pack(&file[half..])].concat());
        }
        let url = folder.join(&format!("p-{{0..2}}.{ending}"));
        let e = open(&url, None).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.hint().unwrap().contains("unpack_to"), "{e}");
        for _ in 0..2 {
            let packed = unpacked(&url, &folder).unwrap();
            conformance::check(&packed);
            assert_eq!((packed.len(), packed.schema()), (plain.len(), plain.schema()));
            for i in 0..plain.len() {
                assert_eq!(fetch(&packed, i).unwrap(), fetch(&plain, i).unwrap());
            }
            assert_eq!(packed.key(2), format!("{}/1/a", folder.join(&format!("p-1.{ending}"))));
        }
    }
    let there = std::fs::read_dir(folder.join("unpacked")).unwrap().count();
    assert_eq!(there, 9, "each is unpacked once");
    // A shard that has changed is unpacked anew.
    folder.write("p-0.tgz", &gzip(&tar(&[("x.cls", b"5")])));
    let changed = unpacked(&folder.join("p-0.tgz"), &folder).unwrap();
    assert_eq!(fetch(&changed, 0).unwrap(), [bytes(b"x"), Value::Int(5)]);
    let e =
        unpacked(&format!("{}::{}", folder.join("p-1.tgz"), folder.join("t-0.tar")), &folder).unwrap_err();
    assert!(e.message().contains("1 of 2 shards are compressed"), "{e}");
}

#[test]
fn compressed_shards_that_are_cut_or_changed_have_no_sample_but_their_error() {
    let folder = TempFolder::new();
    let whole = tar(&[("a.cls", b"1"), ("a.bin", &[7; 900]), ("b.cls", b"2"), ("b.bin", &[8; 900])]);
    for pack in [gzip as fn(&[u8]) -> Vec<u8>, zstandard] {
        let packed = pack(&whole);
        let damaged = |bytes: &[u8]| {
            let source = unpacked(&folder.write("x.tar.gz", bytes), &folder).unwrap();
            let e = fetch(&source, source.len() - 1).unwrap_err();
            assert_eq!(source.len(), 1, "{e}");
            assert!(
                e.kind() == ErrorKind::Corrupt && e.hint().unwrap().contains("none of its samples"),
                "{e}"
            );
            conformance::check(&source);
        };
        for cut in (0..packed.len()).step_by(2) {
            // A stream without its magic number goes by the name.
            if cut >= 4 || pack(b"").starts_with(&[0x1f, 0x8b]) {
                damaged(&packed[..cut]);
            }
        }
        for at in (10..packed.len()).step_by(3) {
            let mut bad = packed.clone();
            bad[at] ^= 1 << (at % 8);
            let source = unpacked(&folder.write("x.tar.gz", &bad), &folder).unwrap();
            for i in 0..source.len() {
                let values = fetch(&source, i).ok();
                let good = |values: Vec<Value>| {
                    values[2] == bytes(&[7 + i as u8; 900]) && values[1] == Value::Int(1 + i as i64)
                };
                assert!(values.is_none_or(good), "byte {at} of {}", packed.len());
            }
        }
    }
}

/// A store that answers later, by its own word.
fn far() -> Arc<dyn Store> {
    Arc::new(DelayedStore::new(Arc::new(LocalStore::new()), Duration::ZERO, f64::INFINITY))
}

fn open_far(path: &str) -> WebDataset {
    let spec = WebDatasetSpec {
        fields: Some(vec!["jpg".to_owned(), "cls".to_owned()]),
        ..WebDatasetSpec::new(path)
    };
    WebDataset::open(far(), spec).unwrap()
}

/// What a far shard gives, directly and by the bytes that the I/O layer would bring.
fn both_ways(source: &WebDataset, index: u64) -> Result<Vec<Value>> {
    let read = fetch(source, index);
    let mut extents = Vec::new();
    source.locate(index, &Limits::default(), &mut extents).unwrap();
    let pieces: Vec<Bytes> = extents.iter().map(|extent| extent.read(&*far()).unwrap()).collect();
    let mut record = Record::default();
    let came = source.assemble(index, &pieces, &mut record).map(|()| record.values);
    assert_eq!(read.as_ref().ok(), came.as_ref().ok());
    assert_eq!(read.as_ref().err().map(Error::kind), came.err().map(|e| e.kind()));
    read
}

#[test]
fn the_index_of_a_copied_far_shard_is_used_and_checked_with_each_member() {
    let folder = TempFolder::new();
    let long = format!("{}/b", "folder/".repeat(20));
    let content = |label: &'static [u8], name: &str| {
        let (jpg, cls) = (format!("{long}.jpg"), format!("{long}.cls"));
        let files: [(&str, &[u8]); 4] = [
            (&format!("{name}.jpg"), &[7; 700]),
            (&format!("{name}.cls"), label),
            (&jpg, b"x"),
            (&cls, b"4"),
        ];
        tar(&files)
    };
    let original = content(b"1", "a");
    let path = folder.write("x.tar", &original);
    let stat = LocalStore::new().stat(&path).unwrap();
    tar_sidecar::save(
        &LocalStore::new(),
        &path,
        &stat,
        &ShardIndex::scan(&LocalStore::new(), &path).unwrap(),
    );
    // An upload: the same bytes at another time. Reading them all would show in what is asked for.
    let uploaded = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        open_far(&path)
    };
    let source = uploaded(&original);
    assert!(source.shards[0].copied);
    conformance::check(&source);
    assert_eq!(both_ways(&source, 0).unwrap(), [bytes(&[7; 700]), Value::Int(1)]);
    assert_eq!(both_ways(&source, 1).unwrap(), [bytes(b"x"), Value::Int(4)], "of a long name");

    // A label that has grown inside of its block, and a sample of another name: not other data, but an error of these.
    for other in [content(b"15", "a"), content(b"1", "c")] {
        assert_eq!(other.len(), original.len());
        let source = uploaded(&other);
        assert!(source.shards[0].copied);
        let error = both_ways(&source, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert!(error.to_string().contains("x.tar.wfidx"), "{error}");
        assert!(both_ways(&source, 1).is_ok(), "its own members are as they were");
    }
    // One more member where there were zeros: the index is not used.
    let mut more = original.clone();
    let end = original.len() - 1024;
    let added = tar(&[("d.cls", b"9")]);
    more.truncate(end);
    more.extend_from_slice(&added);
    more.resize(original.len().max(more.len()), 0);
    let padded = {
        let mut padded = original.clone();
        padded.resize(more.len(), 0);
        padded
    };
    fs::write(&path, &padded).unwrap();
    let stat = LocalStore::new().stat(&path).unwrap();
    tar_sidecar::save(
        &LocalStore::new(),
        &path,
        &stat,
        &ShardIndex::scan(&LocalStore::new(), &path).unwrap(),
    );
    assert!(uploaded(&padded).shards[0].copied);
    let source = uploaded(&more);
    assert!(!source.shards[0].copied && source.len() == 3);
    // Near by a shard is indexed anew, which costs little.
    let near = open(&path, Some(&["cls"])).unwrap();
    assert!(!near.shards[0].copied);
}

#[test]
fn links_and_names_that_headers_do_not_have_are_indexed_anew() {
    let folder = TempFolder::new();
    for (name, files) in
        [("umlaut.tar", vec![("\u{fc}.jpg", &b"1"[..])]), ("plain.tar", vec![("u.jpg", &b"1"[..])])]
    {
        let path = folder.write(name, &tar(&files));
        let stat = LocalStore::new().stat(&path).unwrap();
        let index = ShardIndex::scan(&LocalStore::new(), &path).unwrap();
        tar_sidecar::save(&LocalStore::new(), &path, &stat, &index);
        let later = Stat { modified: stat.modified + 1, ..stat };
        let kept = tar_sidecar::load(&*far(), &path, &later);
        assert_eq!(kept.is_some(), name == "plain.tar");
        assert!(tar_sidecar::load(&LocalStore::new(), &path, &later).is_none());
        assert!(!tar_sidecar::load(&*far(), &path, &stat).unwrap().copied);
    }
}
