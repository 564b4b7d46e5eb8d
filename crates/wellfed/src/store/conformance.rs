//! The suite that every [`Store`] passes, wrappers included. Public, so that stores of other crates can run it.

use super::{EntryKind, Store, join};
use crate::ErrorKind;

/// Checks `store` with objects below `folder`, an existing, writable folder of it.
///
/// # Panics
/// If the store breaks a rule; the message says which one.
pub fn check(store: &dyn Store, folder: &str) {
    let content: Vec<u8> = (0..100_003_u32).map(|i| (i % 251) as u8).collect();
    let path = join(folder, "conformance ü.bin");
    store.write(&path, &content).expect("write makes the object");
    let before = store.stat(&path).expect("stat of an object that exists");
    assert_eq!(
        (before.size, before.kind),
        (content.len() as u64, EntryKind::File),
        "stat gives size and kind"
    );
    assert_eq!(store.size(&path).expect("size"), content.len() as u64, "size is that of stat");
    assert!(store.is_folder(folder) && !store.is_folder(&path), "folders and files are told apart");

    let mut bytes = b"kept".to_vec();
    store.read(&path, content.len() as u64, &mut bytes).expect("an object exactly at the limit is read");
    assert!(bytes.starts_with(b"kept") && bytes[4..] == content, "read appends the whole object");
    let e = store.read(&path, content.len() as u64 - 1, &mut bytes).expect_err("above the limit");
    assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    assert!(e.message().contains(&path), "errors name the path: {e}");
    assert_eq!(bytes.len(), content.len() + 4, "an error leaves the buffer as it was");

    for (offset, len) in [(0, 0), (0, 1), (1, 4096), (99_999, 4), (100_003, 0), (0, 100_003)] {
        bytes.truncate(4);
        store.read_range(&path, offset, len, &mut bytes).expect("a range inside the object");
        let start = usize::try_from(offset).expect("small");
        assert_eq!(bytes[4..], content[start..start + len], "range {offset}+{len}");
    }
    for (offset, len) in [(100_003, 1), (0, 100_004), (200_000, 10)] {
        bytes.truncate(4);
        let e = store.read_range(&path, offset, len, &mut bytes).expect_err("a range beyond the end");
        assert_eq!((e.kind(), e.offset()), (ErrorKind::Corrupt, Some(offset)), "{e}");
        assert_eq!(bytes, b"kept", "an error leaves the buffer as it was");
    }

    let mut rows = vec![7; 5 * 3];
    store.read_rows(&path, &[(99_999, 4), (0, 1), (50, 2)], 3, &mut rows).expect("rows inside the object");
    let expected =
        [&[7; 3][..], &content[..3], &content[50..53], &[7; 3], &content[99_999..100_002]].concat();
    assert_eq!(rows, expected, "each range is in its row, and other rows are as they were");
    store.read_rows(&path, &[], 3, &mut rows).expect("no rows");
    let e = store.read_rows(&path, &[(0, 0), (100_001, 1)], 3, &mut rows).expect_err("beyond the end");
    assert_eq!((e.kind(), e.offset()), (ErrorKind::Corrupt, Some(100_001)), "{e}");
    let e = store.read_rows(&path, &[(0, 5)], 3, &mut rows).expect_err("there is no such row");
    assert_eq!(e.kind(), ErrorKind::Internal, "{e}");

    let missing = join(folder, "missing.bin");
    for e in [
        store.stat(&missing).err(),
        store.size(&missing).err(),
        store.read(&missing, 10, &mut bytes).err(),
        store.read_range(&missing, 0, 1, &mut bytes).err(),
        store.read_rows(&missing, &[(0, 0)], 1, &mut rows).err(),
        store.list(&missing, &mut |_| Ok(())).err(),
    ] {
        let e = e.expect("what does not exist cannot be used");
        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
        assert!(e.message().contains("missing.bin"), "errors name the path: {e}");
    }
    assert!(store.read(folder, 1 << 20, &mut bytes).is_err(), "a folder cannot be read");

    let mut names = Vec::new();
    store
        .list(folder, &mut |entry| {
            names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind));
            Ok(())
        })
        .expect("a folder is listed");
    assert!(names.contains(&("conformance ü.bin".to_owned(), EntryKind::File)), "{names:?}");
    let stop = store.list(folder, &mut |_| Err(crate::Error::config("stop")));
    assert_eq!(stop.expect_err("an error of the callback ends the listing").message(), "stop");

    store.write(&path, b"new").expect("write replaces the object");
    bytes.clear();
    store.read(&path, 10, &mut bytes).expect("the new object");
    assert_eq!(bytes, b"new", "write replaces all of it");
}
