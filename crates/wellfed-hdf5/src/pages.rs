//! [`Pages`]: the metadata of one file through its store, a page at a time, so that a file in a bucket opens with few requests.
//!
//! Pages are kept while the file is opened, up to [`MOST`] bytes. Blocks of one level of an index are asked for together
//! ([`Pages::prepare`]): neighbours are one request, and several requests are under way at once.

use std::{cell::RefCell, collections::HashMap};

use wellfed::{
    Error, ErrorKind, Result,
    store::{Store, listing},
};

use crate::checksum::lookup3;

/// Bytes of a page.
const PAGE: u64 = 32 << 10;
/// Bytes of pages that are kept.
const MOST: u64 = 64 << 20;
/// Pages of one request, at most.
const RUN: u64 = 256;
/// Pages between two that are wanted which are read along.
const GAP: u64 = 2;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    store: &'a dyn Store,
    path: &'a str,
    size: u64,
    /// Where the HDF5 file begins: addresses count from there.
    base: u64,
    pages: RefCell<HashMap<u64, Vec<u8>>>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(store: &'a dyn Store, path: &'a str, size: u64) -> Self {
        Self { store, path, size, base: 0, pages: RefCell::default() }
    }

    pub(crate) fn with_base(self, base: u64) -> Self {
        Self { base, ..self }
    }

    /// Bytes of the file, what lies before its beginning included.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where address `address` lies in the file, if it has `len` bytes from there on.
    pub(crate) fn absolute(&self, address: u64, len: u64) -> Option<u64> {
        let start = address.checked_add(self.base)?;
        (start.checked_add(len)? <= self.size).then_some(start)
    }

    /// `len` bytes from `address`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file has none there; those of the store.
    pub(crate) fn read(&self, address: u64, len: u64) -> Result<Vec<u8>> {
        let start = self.absolute(address, len).ok_or_else(|| {
            Error::corrupt(format!(
                "it refers to {len} bytes at {address}, outside of its {} bytes",
                self.size - self.base.min(self.size)
            ))
        })?;
        let mut bytes = Vec::new();
        // It lies in the file, so that the file's size bounds it.
        let count = usize::try_from(len).ok().filter(|count| bytes.try_reserve_exact(*count).is_ok());
        let count = count
            .ok_or_else(|| Error::new(ErrorKind::Limit, format!("no memory for {len} bytes of metadata")))?;
        if len > 4 * PAGE {
            self.store.read_range(self.path, start, count, &mut bytes)?;
            return Ok(bytes);
        }
        self.load(start / PAGE..(start + len).div_ceil(PAGE))?;
        let pages = self.pages.borrow();
        let mut at = start;
        while at < start + len {
            let page = pages.get(&(at / PAGE)).map(Vec::as_slice).unwrap_or_default();
            let from = (at % PAGE) as usize;
            let part = page.get(from..).unwrap_or_default();
            let part = &part[..part.len().min((start + len - at) as usize)];
            if part.is_empty() {
                return Err(Error::new(ErrorKind::Internal, "a page of metadata was not read"));
            }
            bytes.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(bytes)
    }

    /// Bytes whose last four are the checksum of those before, which are given.
    ///
    /// # Errors
    /// As of [`Pages::read`]; [`ErrorKind::Corrupt`] for another checksum.
    pub(crate) fn checked(&self, address: u64, len: u64, what: &str) -> Result<Vec<u8>> {
        let mut bytes = self.read(address, len)?;
        check(&mut bytes, what, address)?;
        Ok(bytes)
    }

    /// Reads the pages of all these (address, length), as far as the file has them.
    pub(crate) fn prepare(&self, blocks: &[(u64, u64)]) -> Result<()> {
        let mut wanted: Vec<u64> = Vec::new();
        for (address, len) in blocks {
            let Some(start) = self.absolute(*address, *len).filter(|_| *len <= 4 * PAGE) else { continue };
            wanted.extend(start / PAGE..(start + len).div_ceil(PAGE));
        }
        wanted.sort_unstable();
        wanted.dedup();
        // What would not be kept is read when it is wanted.
        if wanted.len() as u64 * PAGE > MOST {
            return Ok(());
        }
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        {
            let pages = self.pages.borrow();
            for page in wanted.into_iter().filter(|page| !pages.contains_key(page)) {
                match runs.last_mut() {
                    Some(run) if page <= run.end + GAP && page - run.start < RUN => run.end = page + 1,
                    _ => runs.push(page..page + 1),
                }
            }
        }
        let (store, path, size) = (self.store, self.path, self.size);
        let read = listing::parallel(&runs, |run| {
            let (start, end) = (run.start * PAGE, (run.end * PAGE).min(size));
            let mut bytes = Vec::new();
            store.read_range(path, start, (end - start) as usize, &mut bytes)?;
            Ok(bytes)
        })?;
        for (run, bytes) in runs.into_iter().zip(read) {
            self.keep(run, &bytes);
        }
        Ok(())
    }

    fn load(&self, wanted: std::ops::Range<u64>) -> Result<()> {
        let missing = |page: &u64| !self.pages.borrow().contains_key(page);
        if !wanted.clone().any(|page| missing(&page)) {
            return Ok(());
        }
        let (start, end) = (wanted.start * PAGE, (wanted.end * PAGE).min(self.size));
        let mut bytes = Vec::new();
        self.store.read_range(self.path, start, (end - start) as usize, &mut bytes)?;
        self.keep(wanted, &bytes);
        Ok(())
    }

    fn keep(&self, run: std::ops::Range<u64>, bytes: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        if (pages.len() as u64 + run.end - run.start) * PAGE > MOST {
            pages.clear();
        }
        pages.extend(run.zip(bytes.chunks(PAGE as usize).map(<[u8]>::to_vec)));
    }
}

/// Takes the checksum off the end of `bytes`.
pub(crate) fn check(bytes: &mut Vec<u8>, what: &str, address: u64) -> Result<()> {
    let damaged = |why: &str| Error::corrupt(format!("{what} is damaged: {why}")).with_offset(address);
    let start = bytes.len().checked_sub(4).ok_or_else(|| damaged("it has no checksum"))?;
    let stated = bytes.split_off(start);
    if lookup3(bytes).to_le_bytes() != stated[..] {
        return Err(damaged("its checksum is another one"));
    }
    Ok(())
}
