//! [`Disk`]: what writing asks of a file system, so that tests can have one that fails.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// A file system.
pub(super) trait Disk: Sync {
    /// A new, empty file in the place of any other.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;

    /// Gives a file its name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes sure that names in a folder outlive the machine's end.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Removes a file, if it can be.
    fn remove(&self, path: &Path);
}

/// A file that is written from its start on.
pub(super) trait Output: Send {
    /// Appends all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes sure that what was written outlives the machine's end.
    fn sync(&mut self) -> io::Result<()>;
}

/// The machine's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalDisk;

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(File::create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // Elsewhere folders cannot be opened, nor need to be.
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }

    fn remove(&self, path: &Path) {
        let _ = fs::remove_file(path);
    }
}

impl Output for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// The error of writing `path`.
pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    );
    let made = Error::io("write", path.display(), error);
    let hint = "finished shards stay, and the same call goes on behind them";
    made.with_hint(if full { format!("make room; {hint}") } else { hint.to_owned() })
}

/// A file under another name until it is whole. Vanishes unless it was finished.
pub(super) struct Part<'a> {
    disk: &'a dyn Disk,
    out: Option<Box<dyn Output>>,
    part: PathBuf,
    whole: PathBuf,
}

impl<'a> Part<'a> {
    /// Begins the file `name` in `folder`.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn create(disk: &'a dyn Disk, folder: &Path, name: &str) -> Result<Self> {
        let part = folder.join(super::names::Place::part(name));
        let mut this = Self { disk, out: None, part, whole: folder.join(name) };
        this.out = Some(disk.create(&this.part).map_err(|e| failed(&this.whole, e))?);
        Ok(this)
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.out {
            Some(out) => out.write(bytes).map_err(|e| failed(&self.whole, e)),
            None => Ok(()),
        }
    }

    /// Makes the file appear, whole.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn finish(mut self) -> Result<PathBuf> {
        let folder = self.whole.parent().unwrap_or(Path::new(".")).to_owned();
        let result = match &mut self.out {
            Some(out) => out.sync(),
            None => Ok(()),
        };
        result
            .and_then(|()| self.disk.rename(&self.part, &self.whole))
            .map_err(|e| failed(&self.whole, e))?;
        // From here on there is nothing to remove.
        self.part = PathBuf::new();
        self.disk.sync_folder(&folder).map_err(|e| failed(&self.whole, e))?;
        Ok(std::mem::take(&mut self.whole))
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        drop(self.out.take());
        if !self.part.as_os_str().is_empty() {
            self.disk.remove(&self.part);
        }
    }
}
