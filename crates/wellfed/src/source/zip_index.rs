//! The samples of one zip archive: members of one key, as in tar shards (`tar_index.rs`).
//!
//! An archive is no stream, so the members of a sample need not stand side by side: samples come in the order of the first
//! member of each. [`Member::block`] is the number of the member in the directory. A directory that makes no sense from some
//! place on is the damage of the shard.

use std::collections::HashMap;

use super::tar_index::{Damage, Member, ShardIndex, shown, split_key};
use crate::{
    Error, Result,
    store::zip::{CUT, Directory},
};

/// The samples whose members `directory` has.
pub(super) fn index(directory: &Directory) -> Result<ShardIndex> {
    let mut index = ShardIndex::default();
    let (mut keys, mut extensions) = (HashMap::<&[u8], usize>::new(), HashMap::<String, u32>::new());
    let mut samples: Vec<Vec<Member>> = Vec::new();
    let too_many = || Error::limit("zip archive", directory.len() as u64, u64::from(u32::MAX), "members");
    for number in 0..directory.len() {
        let name = directory.name(number);
        if name.ends_with(b"/") {
            continue;
        }
        let Some((key, extension)) = split_key(name) else {
            index.ignored += 1;
            continue;
        };
        let lower = shown(extension).to_lowercase();
        let extension = match extensions.get(&lower) {
            Some(id) => *id,
            None => {
                let id = u32::try_from(index.extensions.len()).map_err(|_| too_many())?;
                index.extensions.push(&lower)?;
                extensions.insert(lower, id);
                id
            }
        };
        let sample = *keys.entry(key).or_insert(samples.len());
        if sample == samples.len() {
            index.keys.push(&shown(key))?;
            samples.push(Vec::new());
        }
        let block = u32::try_from(number).map_err(|_| too_many())?;
        // The upper bits have a meaning in tar shards. No member has so many bytes that could be read.
        let size = directory.size(number).min(1 << 60);
        samples[sample].push(Member { block, extension, size });
    }
    for members in samples {
        // There are no more members than the directory has.
        index.firsts.push(index.members.len() as u32);
        index.members.extend(members);
    }
    index.damage = directory.damage().map(|damage| Damage {
        offset: damage.offset,
        message: damage.message.clone(),
        hint: CUT,
    });
    Ok(index)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Source, WebDataset, WebDatasetSpec, conformance};
    use super::*;
    use crate::{
        ErrorKind,
        sample::{Record, Value},
        store::{
            LocalStore,
            zip::testing::{DEFLATED, How, STORED, STREAMED, zip},
        },
        testing::TempFolder,
    };

    fn open(url: &str) -> Result<WebDataset> {
        let fields = Some(vec!["jpg".to_owned(), "cls".to_owned()]);
        WebDataset::open(Arc::new(LocalStore::new()), WebDatasetSpec { fields, ..WebDatasetSpec::new(url) })
    }

    fn fetch(source: &WebDataset, index: u64) -> Result<Vec<Value>> {
        let mut record = Record::default();
        source.fetch(index, &mut record).map(|()| record.values)
    }

    fn sample() -> Vec<u8> {
        zip(&[
            ("x/", b"", STORED),
            ("x/a.jpg", &[1; 900], DEFLATED),
            ("x/b.jpg", b"two", STORED),
            ("x/b.cls", b"2", STORED),
            ("x/a.cls", b" 1\n", STREAMED),
            ("x/.hidden.jpg", b"no", STORED),
            ("x/c.cls", b"3", STORED),
            ("x/c.jpg", b"three", STORED),
        ])
    }

    #[test]
    fn members_of_one_key_are_a_sample_wherever_they_stand() {
        let folder = TempFolder::new();
        for shard in 0..2 {
            folder.write(&format!("s-{shard}.zip"), &sample());
        }
        let url = folder.join("s-{0..1}.zip");
        for url in [url.clone(), format!("delayed+file://{url}")] {
            let source = open(&url).unwrap();
            assert_eq!((source.len(), source.ignored()), (6, 2));
            assert!(source.key(3).ends_with("s-1.zip/x/a"), "{}", source.key(3));
            assert_eq!(fetch(&source, 3).unwrap(), [Value::Bytes(vec![1; 900]), Value::Int(1)]);
            assert_eq!(fetch(&source, 1).unwrap(), [Value::Bytes(b"two".to_vec()), Value::Int(2)]);
            conformance::check(&source);
        }
        let dict = WebDataset::open(Arc::new(LocalStore::new()), WebDatasetSpec::new(url)).unwrap();
        assert_eq!(dict.extensions(), ["jpg", "cls"]);
        conformance::check(&dict);
        let spec = dict.spec();
        assert_eq!(spec.open(Arc::new(LocalStore::new())).unwrap().fingerprint(), dict.fingerprint());
    }

    #[test]
    fn bad_members_are_errors_of_their_samples() {
        let folder = TempFolder::new();
        let encrypted = How { flags: 1, ..STORED };
        let url = folder.write(
            "s.zip",
            &zip(&[
                ("a.jpg", b"x", encrypted),
                ("a.cls", b"1", STORED),
                ("b.jpg", b"x", STORED),
                ("b.jpg", b"y", STORED),
                ("b.cls", b"1", STORED),
                ("c.jpg", b"x", STORED),
                ("d.jpg", b"x", STORED),
                ("d.cls", b"one", STORED),
            ]),
        );
        let source = open(&url).unwrap();
        for (index, what) in [(0, "encrypted"), (1, "twice"), (2, "lacks field cls"), (3, "no whole number")]
        {
            let e = fetch(&source, index).unwrap_err();
            assert!(e.message().contains(what), "{e}");
        }
        conformance::check(&source);
    }

    #[test]
    fn what_is_cut_or_changed_is_never_handed_out() {
        let (folder, whole) = (TempFolder::new(), sample());
        let expected: Vec<_> = {
            let source = open(&folder.write("s.zip", &whole)).unwrap();
            (0..source.len()).map(|i| fetch(&source, i).unwrap()).collect()
        };
        for cut in 0..whole.len() {
            let source = open(&folder.write("s.zip", &whole[..cut])).unwrap();
            assert_eq!(source.len(), 1, "an archive that was cut has one sample, which is an error");
            assert_eq!(fetch(&source, 0).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let mut random = crate::rng::Rng::for_stage(1, 2, 3, 4);
        let mut found = 0;
        for _ in 0..1000 {
            let mut bytes = whole.clone();
            let at = random.next_u32() as usize % bytes.len();
            bytes[at] ^= (1 + random.next_u32() % 255) as u8;
            // A directory whose names changed may lack a field altogether.
            let Ok(source) = open(&folder.write("s.zip", &bytes)) else { continue };
            let good: Vec<_> = (0..source.len()).filter_map(|i| fetch(&source, i).ok()).collect();
            assert!(good.iter().all(|sample| expected.contains(sample)), "byte {at}");
            let told = (good.len() as u64) < source.len();
            assert!(told || good == expected, "byte {at}: nothing says that samples are lost");
            found += usize::from(good.len() < 3);
        }
        assert!(found > 300, "damage was found {found} times");
    }
}
