//! Finds the statistics that loaders of a process publish, among its open files.

use wellfed::{Error, Result};

use super::rates::Look;

/// One loader, as it was when it was looked at.
#[derive(Clone, Debug)]
pub(super) struct Attached {
    /// Tells loaders of a process apart.
    pub(super) file: u64,
    /// Number of the snapshot.
    pub(super) sequence: u64,
    /// What it says.
    pub(super) snapshot: wellfed::meter::publish::Snapshot,
}

/// Looks at all loaders of `process`.
///
/// # Errors
/// `NotFound` if there is no such process, `Io` if it belongs to somebody else, `State` if it has no loader,
/// `Unsupported` where processes cannot be looked at, or the loaders are of another wellfed.
#[cfg(not(target_os = "linux"))]
pub(super) fn look(process: u32) -> Result<Look> {
    let _ = process;
    Err(Error::new(
        wellfed::ErrorKind::Unsupported,
        "wellfed top finds loaders in /proc, which only Linux has",
    )
    .with_hint("loader.stats() gives the same numbers inside of the process, on every system"))
}

#[cfg(target_os = "linux")]
pub(super) use linux::look;

#[cfg(target_os = "linux")]
mod linux {
    use std::{fs::File, io, os::unix::fs::MetadataExt, path::Path};

    use wellfed::{
        ErrorKind,
        meter::publish::{self, NAME},
    };

    use super::{Attached, Error, Look, Result};

    /// Looks at all loaders of `process`; the errors are told above.
    pub(in crate::top) fn look(process: u32) -> Result<Look> {
        look_in(Path::new("/proc"), process)
    }

    fn look_in(proc: &Path, process: u32) -> Result<Look> {
        let home = proc.join(process.to_string());
        let entries = std::fs::read_dir(home.join("fd")).map_err(|e| refused(&home, process, e))?;
        let link = format!("/memfd:{NAME} (deleted)");
        let own = names_of(&home, process);
        let (mut loaders, mut inherited) = (Vec::new(), None);
        let mut unwritten = false;
        for entry in entries {
            let path = entry.map_err(|e| refused(&home, process, e))?.path();
            // A file that is closed meanwhile is none of the process any more.
            if !std::fs::read_link(&path).is_ok_and(|to| to.as_os_str() == link.as_str()) {
                continue;
            }
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(refused(&home, process, e)),
            };
            let inode = file.metadata().map_err(|e| refused(&home, process, e))?.ino();
            match publish::read(&file)? {
                None => unwritten = true,
                Some((_, snapshot)) if !own.contains(&snapshot.process) => inherited = Some(snapshot.process),
                Some((sequence, snapshot)) => loaders.push(Attached { file: inode, sequence, snapshot }),
            }
        }
        if loaders.is_empty() {
            return Err(none(process, inherited, unwritten));
        }
        // By age: the clock of a loader begins with it.
        loaders.sort_by(|a, b| b.snapshot.stats.elapsed.total_cmp(&a.snapshot.stats.elapsed));
        loaders.dedup_by_key(|loader| loader.file);
        Ok(Look { loaders })
    }

    /// The numbers the process has, in the container it lives in, too.
    fn names_of(home: &Path, process: u32) -> Vec<u32> {
        let status = std::fs::read_to_string(home.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        line.split_whitespace().filter_map(|number| number.parse().ok()).chain([process]).collect()
    }

    fn none(process: u32, inherited: Option<u32>, unwritten: bool) -> Error {
        let what = match inherited {
            Some(parent) => {
                format!(
                    "process {process} has no loader of its own, only what process {parent} left it at a fork"
                )
            }
            None if unwritten => format!("the loaders of process {process} have written nothing yet"),
            None => format!("process {process} has no loader of wellfed at work"),
        };
        Error::new(ErrorKind::State, what).with_hint(
            "loaders show themselves from their first epoch until they are closed; samples that Python finishes \
             (workers of wellfed.torch, see explain()) are made without one",
        )
    }

    pub(super) fn refused(home: &Path, process: u32, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, format!("there is no process {process}"))
            }
            io::ErrorKind::PermissionDenied => {
                let owner = std::fs::metadata(home)
                    .map_or_else(|_| "another user".to_owned(), |m| format!("user {}", m.uid()));
                Error::new(
                    ErrorKind::Io,
                    format!("process {process} belongs to {owner}, and the system does not let others look into it"),
                )
                .with_hint("run wellfed top as the same user, on the same machine and in the same container")
            }
            _ => Error::io("look into", format!("process {process}"), error),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_cannot_be_looked_at_is_told_apart() {
            let gone = look(u32::MAX).unwrap_err();
            assert_eq!(
                (gone.kind(), gone.message()),
                (ErrorKind::NotFound, "there is no process 4294967295")
            );
            let this = std::process::id();
            let home = Path::new("/proc/self");
            let foreign = refused(home, this, io::ErrorKind::PermissionDenied.into());
            assert_eq!(foreign.kind(), ErrorKind::Io);
            assert!(foreign.message().contains("belongs to user "), "{foreign}");
            assert!(names_of(home, 1).contains(&this));
            assert_eq!(none(7, Some(3), false).kind(), ErrorKind::State);
        }
    }
}
