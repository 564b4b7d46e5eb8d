//! [`Manifest`]: what was written, beside the shards, as JSON. By it a run goes on that was ended, a run with other samples
//! or options is told, and shards are checked.
//!
//! Invariant: every shard that it lists was whole, under its own name and safe from a crash before it was listed. Nothing
//! in it depends on time or on the number of threads.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    Format,
    disk::{Disk, Part},
    names::Place,
};
use crate::{Error, ErrorKind, Result};

/// Version of the form of manifests.
pub(super) const VERSION: u32 = 1;

/// Largest manifest that is read.
const MOST: u64 = 1 << 30;

/// What lies in a folder of shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    /// Whether all samples were written.
    pub(super) complete: bool,
    /// What tells samples and their order from others: the pipeline's fingerprint, in digits of base 16.
    pub(super) plan: String,
    /// What decides the bytes of shards beside that.
    pub(super) settings: Settings,
    /// Samples of the pipeline, with those that were left out.
    pub(super) elements: u64,
    /// Of the shuffle next to the end of the pipeline.
    pub(super) seed: Option<u64>,
    /// Names of classes by label.
    pub(super) classes: Option<Vec<String>>,
    /// Names, kinds and extensions of fields.
    pub(super) fields: serde_json::Value,
    pub(super) shards: Vec<Listed>,
    pub(super) skipped: Vec<Skipped>,
}

/// See [`super::WriteOptions`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) max_bytes: u64,
    pub(super) max_samples: Option<u64>,
    pub(super) resize_shorter: Option<usize>,
    pub(super) quality: Option<u8>,
    pub(super) packed: bool,
    /// Manifests of the first form know tar shards alone.
    #[serde(default)]
    pub(super) format: Format,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) row_group_size: Option<usize>,
}

/// A finished shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) name: String,
    /// Positions in the order of the pipeline: the first one, and the one after the last.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    /// CRC-32 of all bytes, in digits of base 16.
    pub(super) crc32: String,
    /// What the index of the format says of it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) about: Option<serde_json::Value>,
}

/// A sample that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its position in the order of the pipeline.
    pub position: u64,
    /// What it is called in its source.
    pub key: String,
    /// The kind of the error.
    pub kind: String,
    /// What is wrong with it.
    pub message: String,
}

impl Manifest {
    /// Reads the manifest at `path`; `None` if there is none.
    ///
    /// # Errors
    /// Those of reading; [`ErrorKind::Corrupt`] for what is no manifest, [`ErrorKind::Unsupported`] for one of another version.
    pub(super) fn load(path: &Path) -> Result<Option<Self>> {
        let shown = &path.to_string_lossy();
        let size = match fs::metadata(path) {
            Ok(meta) => meta.len(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("look at", shown, e)),
        };
        if size > MOST {
            return Err(Error::limit(&format!("manifest {shown}"), size, MOST, "bytes"));
        }
        let text = fs::read(path).map_err(|e| Error::io("read", shown, e))?;
        let version = serde_json::from_slice::<serde_json::Value>(&text)
            .ok()
            .and_then(|value| value.get("version").and_then(serde_json::Value::as_u64));
        if let Some(version) = version.filter(|version| *version != u64::from(VERSION)) {
            let message =
                format!("manifest {shown} has version {version}; this wellfed reads version {VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let this: Self = serde_json::from_slice(&text)
            .map_err(|e| Error::corrupt(format!("{shown} is no manifest of shards: {e}")))?;
        match this.shards.iter().find(|shard| shard.name.contains(['/', '\\']) || shard.name.is_empty()) {
            Some(shard) => Err(Error::corrupt(format!("manifest {shown} names a shard {:?}", shard.name))),
            None => Ok(Some(this)),
        }
    }

    /// Writes the manifest, all or nothing.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn save(&self, disk: &dyn Disk, place: &Place) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::new(ErrorKind::Internal, format!("a manifest has no JSON form: {e}")))?;
        text.push(b'\n');
        let mut part = Part::create(disk, &place.folder, &place.manifest())?;
        part.write(&text)?;
        part.finish().map(drop)
    }

    /// Refuses to go on with what `earlier` began if that is of other samples or options.
    pub(super) fn check_goes_on(&self, earlier: &Self, place: &Place) -> Result<()> {
        let what = if (&earlier.plan, earlier.elements) != (&self.plan, self.elements) {
            format!(
                "of another pipeline ({} samples in the order {}, and not {} in the order {})",
                earlier.elements, earlier.plan, self.elements, self.plan
            )
        } else if earlier.settings != self.settings {
            format!("with other options ({:?}, and not {:?})", earlier.settings, self.settings)
        } else if earlier.fields != self.fields {
            "with other fields".to_owned()
        } else {
            return Ok(());
        };
        let there = place.folder.join(place.manifest());
        Err(Error::config(format!("{} lists {} shards {what}", there.display(), earlier.shards.len()))
            .with_hint(
                "write to another folder or under other names, or remove those shards and their manifest",
            ))
    }

    /// Forgets shards from the first one on that is no longer there as it was, and what was skipped behind them.
    pub(super) fn keep_what_is_there(&mut self, folder: &Path) {
        let there = |shard: &Listed| {
            fs::metadata(folder.join(&shard.name))
                .is_ok_and(|meta| meta.is_file() && meta.len() == shard.bytes)
        };
        if let Some(missing) = self.shards.iter().position(|shard| !there(shard)) {
            self.shards.truncate(missing);
            self.complete = false;
        }
        let end = self.end();
        self.skipped.retain(|skipped| skipped.position < end || self.complete);
    }

    /// The position behind all finished shards.
    pub(super) fn end(&self) -> u64 {
        self.shards.last().map_or(0, |shard| shard.end)
    }

    /// Samples in all finished shards.
    pub(super) fn samples(&self) -> u64 {
        self.shards.iter().map(|shard| shard.samples).sum()
    }
}
