use super::{testing::*, *};
use crate::{
    store::{DelayedStore, LocalStore},
    testing::TempFolder,
};

const LONG: &[u8] = &[7; 5000];

fn sample() -> Vec<u8> {
    zip(&[
        ("train/", b"", STORED),
        ("train/cat/1.jpg", b"one", STORED),
        ("train/cat/2.jpg", LONG, DEFLATED),
        ("train/cat-2/3.jpg", b"three", STREAMED),
        ("./train/dog/4.jpg", b"", DEFLATED),
        ("__MACOSX/train/._1.jpg", b"attributes", STORED),
        ("train/empty/", b"", STORED),
        ("notes.txt", b"text", STORED),
    ])
}

fn open(bytes: &[u8]) -> (TempFolder, Result<ZipStore>, String) {
    let folder = TempFolder::new();
    let path = folder.write("a.zip", bytes);
    let store = ZipStore::open(Arc::new(LocalStore::new()), &path);
    (folder, store, path)
}

fn names(store: &dyn Store, folder: &str) -> Vec<(String, EntryKind)> {
    let mut found = Vec::new();
    store
        .list(folder, &mut |entry| {
            found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind));
            Ok(())
        })
        .unwrap();
    found
}

fn read(store: &dyn Store, path: &str) -> Result<Vec<u8>> {
    let mut bytes = b"kept".to_vec();
    let result = store.read(path, 10_000, &mut bytes);
    if result.is_err() {
        assert_eq!(bytes, b"kept", "an error leaves the buffer as it was");
    }
    result.map(|()| bytes.split_off(4))
}

#[test]
fn an_archive_is_a_folder() {
    use EntryKind::{File, Folder};
    let (_folder, store, path) = open(&sample());
    let store = store.unwrap();
    let found = |inner: &str| names(&store, &format!("{path}!/{inner}"));
    let owned =
        |all: &[(&str, EntryKind)]| all.iter().map(|(n, k)| ((*n).to_owned(), *k)).collect::<Vec<_>>();
    assert_eq!(names(&store, &path), owned(&[("notes.txt", File), ("train", Folder)]));
    assert_eq!(names(&store, &path), found(""));
    assert_eq!(
        found("train"),
        owned(&[("cat-2", Folder), ("cat", Folder), ("dog", Folder), ("empty", Folder)])
    );
    assert_eq!(found("train/cat/"), owned(&[("1.jpg", File), ("2.jpg", File)]));
    assert_eq!(found("train/empty"), []);
    for (name, content) in
        [("cat/1.jpg", &b"one"[..]), ("cat/2.jpg", LONG), ("cat-2/3.jpg", b"three"), ("dog/4.jpg", b"")]
    {
        let file = format!("{path}!/train/{name}");
        assert_eq!(read(&store, &file).unwrap(), content, "{name}");
        let stat = store.stat(&file).unwrap();
        assert_eq!((stat.size, stat.kind), (content.len() as u64, File));
        assert!(stat.modified > 0 && !store.is_folder(&file));
        let mut part = Vec::new();
        let half = content.len() / 2;
        store.read_range(&file, half as u64, content.len() - half, &mut part).unwrap();
        assert_eq!(part, content[half..]);
        let e = store.read_range(&file, half as u64, content.len(), &mut part);
        assert!(half == 0 || e.unwrap_err().kind() == ErrorKind::Corrupt);
    }
    for folder in [path.clone(), format!("{path}!"), format!("{path}!/train"), format!("{path}!/train/empty")]
    {
        assert!(store.is_folder(&folder) && store.stat(&folder).unwrap().kind == Folder, "{folder}");
        assert!(read(&store, &folder).is_err());
    }
    for missing in
        [format!("{path}!/train/cat/3.jpg"), format!("{path}x"), format!("{path}!/tra"), "b.zip".into()]
    {
        for e in [
            store.stat(&missing).err(),
            read(&store, &missing).err(),
            store.list(&missing, &mut |_| Ok(())).err(),
        ] {
            let e = e.expect("what does not exist cannot be used");
            assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
            assert!(e.message().contains(&missing), "errors name the path: {e}");
        }
    }
    let e = store.read(&format!("{path}!/train/cat/2.jpg"), 4999, &mut Vec::new()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit);
}

#[test]
fn zip64_prefixes_and_comments_are_read() {
    let mut all = vec![sample(), zip(&[("train/cat/2.jpg", LONG, ZIP64), ("b", b"two", ZIP64)])];
    // As an archive that unpacks itself.
    all.push([b"#!/bin/sh\n".to_vec(), sample()].concat());
    all.push([b"#!/bin/sh\n".to_vec(), all[1].clone()].concat());
    let mut commented = sample();
    let at = commented.len() - 2;
    commented[at..].copy_from_slice(&5_u16.to_le_bytes());
    commented.extend(b"hello");
    all.push(commented);
    for bytes in all {
        let (_folder, store, path) = open(&bytes);
        assert_eq!(read(&store.unwrap(), &format!("{path}!/train/cat/2.jpg")).unwrap(), LONG);
    }
    let (_folder, store, path) = open(&zip(&[]));
    assert_eq!(names(&store.unwrap(), &path), []);
}

#[test]
fn what_cannot_be_read_says_why() {
    let encrypted = How { flags: 1, ..STORED };
    let link = How { attributes: 0o120_777 << 16, ..STORED };
    let mut bytes =
        zip(&[("a", b"x", encrypted), ("b", b"a", link), ("c", b"1", STORED), ("c", b"2", STORED)]);
    let (_folder, store, path) = open(&bytes);
    let store = store.unwrap();
    for (name, kind, what) in [
        ("a", ErrorKind::Unsupported, "encrypted"),
        ("b", ErrorKind::Unsupported, "symbolic link"),
        ("c", ErrorKind::Corrupt, "twice"),
    ] {
        let e = read(&store, &format!("{path}!/{name}")).unwrap_err();
        assert!(e.kind() == kind && e.message().contains(what) && e.offset().is_some(), "{e}");
    }
    // The method of the first member, in the directory.
    let at = bytes.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    bytes[at + 8] = 0;
    bytes[at + 10] = 93;
    let (_folder, store, path) = open(&bytes);
    let e = read(&store.unwrap(), &format!("{path}!/a")).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("zstd"), "{e}");
    bytes.truncate(0);
    let (_folder, store, path) = open(&bytes);
    let e = store.unwrap_err();
    assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(&path) && e.hint().is_some(), "{e}");
}

/// Wrong bytes are never handed out: members are those that were written, or errors.
fn check_members(store: &ZipStore) -> usize {
    let whole = [
        ("1.jpg", &b"one"[..]),
        ("2.jpg", LONG),
        ("3.jpg", b"three"),
        ("4.jpg", b""),
        ("notes.txt", b"text"),
    ];
    let contents = &store.contents;
    let mut good = 0;
    for &index in &contents.sorted {
        let name = String::from_utf8_lossy(contents.name(index)).into_owned();
        if let Ok(bytes) = read(store, &format!("{}!/{name}", contents.archive)) {
            let expected = whole.iter().find(|(end, _)| name.ends_with(end));
            assert_eq!(Some(bytes.as_slice()), expected.map(|(_, content)| *content), "{name}");
            good += 1;
        }
    }
    good
}

#[test]
fn every_cut_is_an_error() {
    for whole in [sample(), zip(&[("1.jpg", b"one", ZIP64)])] {
        let (folder, store, _) = open(&whole);
        assert!(check_members(&store.unwrap()) > 0);
        for cut in 0..whole.len() {
            let path = folder.write("cut.zip", &whole[..cut]);
            let e = ZipStore::open(Arc::new(LocalStore::new()), &path).expect_err("an archive that was cut");
            assert_eq!(e.kind(), ErrorKind::Corrupt, "cut at {cut}: {e}");
        }
    }
}

#[test]
fn a_byte_that_changed_is_an_error_of_its_member_or_harmless() {
    let whole = sample();
    let (folder, store, _) = open(&whole);
    let all = check_members(&store.unwrap());
    let mut random = crate::rng::Rng::for_stage(7, 0, 0, 0);
    let (mut refused, mut fewer) = (0, 0);
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        let at = random.next_u32() as usize % bytes.len();
        bytes[at] ^= (1 + random.next_u32() % 255) as u8;
        match ZipStore::open(Arc::new(LocalStore::new()), &folder.write("flip.zip", &bytes)) {
            Ok(store) => {
                assert_eq!(store.contents.directory.len(), 8, "no member is lost: byte {at}");
                fewer += usize::from(check_members(&store) < all);
            }
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{e}");
                refused += 1;
            }
        }
    }
    assert!(refused > 10 && fewer > 100, "{refused} archives were refused, {fewer} had bad members");
}

#[test]
fn an_archive_that_is_far_away_is_read_by_requests() {
    let (_folder, _, path) = open(&sample());
    let far = DelayedStore::new(Arc::new(LocalStore::new()), std::time::Duration::ZERO, f64::INFINITY);
    let store = ZipStore::open(Arc::new(far), &path).unwrap();
    let ask = |name: &str, range, max_bytes| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let request = Request { path: format!("{path}!/train/{name}").into(), range, max_bytes };
        let pending =
            store.remote().unwrap().begin(request, Box::new(move |answer| sender.send(answer).unwrap()));
        let answer = receiver.recv().unwrap();
        drop(pending);
        answer
    };
    assert_eq!(ask("cat/2.jpg", None, 5000).unwrap(), LONG);
    assert_eq!(ask("cat/1.jpg", Some(1..3), 2).unwrap(), b"ne");
    assert_eq!(ask("cat/1.jpg", Some(1..4), 3).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(ask("cat/2.jpg", None, 4999).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(ask("cat/9.jpg", None, 4999).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn paths_lead_into_archives() {
    let (folder, _, path) = open(&sample());
    let local: Arc<dyn Store> = Arc::new(LocalStore::new());
    for (url, inside) in
        [(path.clone(), "!"), (format!("{path}!"), "!"), (format!("{path}!/train"), "!/train")]
    {
        let found = locate(&url, &local).unwrap();
        assert_eq!(found.path, format!("{path}{inside}"));
        assert!(found.store.is_folder(&found.path) && found.address.ends_with(&path));
    }
    for plain in [folder.path().to_owned(), folder.join("a.tar"), folder.join("x!/y")] {
        assert_eq!(locate(&plain, &local).unwrap().path, plain);
    }
    assert_eq!(locate(&folder.join("none.zip"), &local).unwrap_err().kind(), ErrorKind::NotFound);
    // A folder may be called so.
    folder.write("b.zip/1.jpg", b"");
    assert_eq!(locate(&folder.join("b.zip"), &local).unwrap().address, "");
    let _ = folder.write("c.ZIP", &sample());
    assert!(locate(&folder.join("c.ZIP!/train"), &local).is_ok());
}
