//! [`Shard`]: one tar shard as whoever wrote it looks at it again: what is in it, whether it makes sense, and the index
//! beside it.

use wellfed_kernels::image::Image;

use super::{
    npy,
    tar_index::{Damage, ShardIndex},
    tar_sidecar, webdataset,
};
use crate::{
    Error, Limits, Result,
    codec::{self, Mode, Request},
    sample::FieldKind,
    store::Store,
};

/// The headers of one shard.
#[derive(Debug)]
pub(crate) struct Shard {
    path: String,
    index: ShardIndex,
}

/// One file in a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// Of its sample.
    pub(crate) key: &'a str,
    pub(crate) extension: &'a str,
    /// Where its data begin.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Shard {
    /// Reads all headers of the shard `path`.
    ///
    /// # Errors
    /// As a source of the shard; [`crate::ErrorKind::Corrupt`] where it is cut or damaged.
    pub(crate) fn open(store: &dyn Store, path: &str) -> Result<Self> {
        let index = ShardIndex::scan(store, path)?;
        if let Some(Damage { offset, message, hint }) = &index.damage {
            return Err(Error::corrupt(format!("shard {path} is damaged: {message}"))
                .with_offset(*offset)
                .with_hint(*hint));
        }
        if let Some(what) = index.unlike_a_stream() {
            return Err(Error::corrupt(format!("shard {path} has {what}")));
        }
        Ok(Self { path: path.to_owned(), index })
    }

    /// Writes the index beside the shard. That it cannot be written is no error: readers do without.
    pub(crate) fn keep_index(&self, store: &dyn Store) {
        if let Ok(stat) = store.stat(&self.path) {
            tar_sidecar::save(store, &self.path, &stat, &self.index);
        }
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> u64 {
        self.index.len() as u64
    }

    /// Files of one sample.
    pub(crate) fn entries(&self, sample: u64) -> impl Iterator<Item = Entry<'_>> {
        let sample = usize::try_from(sample).unwrap_or(usize::MAX);
        let key = if sample < self.index.len() { self.index.keys.get(sample) } else { "" };
        self.index.sample(sample).iter().map(move |member| Entry {
            key,
            extension: self.index.extension(*member),
            offset: member.offset(),
            size: member.size(),
        })
    }

    /// Reads a file of the shard and makes of it what a reader would: decodes images, parses numbers, texts and arrays.
    ///
    /// # Errors
    /// Those of reading and of what it holds.
    pub(crate) fn check(
        &self,
        store: &dyn Store,
        entry: Entry<'_>,
        limits: &Limits,
        scratch: &mut CheckScratch,
    ) -> Result<()> {
        let what = format!("field {}", entry.extension);
        limits.check_bytes(&what, entry.size)?;
        let size = usize::try_from(entry.size).map_err(|_| Error::memory(usize::MAX, &what))?;
        let CheckScratch { bytes, codec, image } = scratch;
        bytes.clear();
        store.read_range(&self.path, entry.offset, size, bytes)?;
        let kind = webdataset::kind_of(entry.extension);
        match &kind {
            FieldKind::Image => decode(bytes, limits, codec, image),
            FieldKind::Text | FieldKind::Json => webdataset::convert(&kind, bytes),
            _ if kind == FieldKind::LABEL => {
                let text = std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse::<i64>().ok());
                let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned();
                text.map(drop).ok_or_else(|| {
                    Error::corrupt(format!("{what} is {:?}, which is no whole number", shown()))
                })
            }
            _ if entry.extension.rsplit('.').next() == Some("npy") => npy::Header::parse(bytes).map(drop),
            _ => Ok(()),
        }
    }
}

/// Decodes an image, for what its decoder says of it.
fn decode(bytes: &[u8], limits: &Limits, codec: &mut codec::Scratch, image: &mut Image) -> Result<()> {
    let request = Request { mode: Mode::Unchanged, ..Request::default() };
    codec::decode_image(bytes, &request, limits, codec, image).map(drop)
}

impl CheckScratch {
    /// Decodes an image, for what its decoder says of it.
    ///
    /// # Errors
    /// Those of the decoder.
    pub(crate) fn decode(&mut self, bytes: &[u8], limits: &Limits) -> Result<()> {
        decode(bytes, limits, &mut self.codec, &mut self.image)
    }
}

/// Memory that is used again from file to file.
#[derive(Debug, Default)]
pub(crate) struct CheckScratch {
    bytes: Vec<u8>,
    codec: codec::Scratch,
    image: Image,
}
