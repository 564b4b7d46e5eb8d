//! The one error type: what happened, where, and a hint that comes after the facts.
//!
//! An [`Error`] is cheap to clone, because the same error is raised to the caller and kept in the loader's
//! list of bad samples.

use std::{fmt, io, sync::Arc};

use wellfed_kernels::write::GeometryError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of thing went wrong. Decides which Python exception an error becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A file, folder or sample does not exist (Python: `FileNotFoundError`).
    NotFound,
    /// The operating system refused or failed (Python: `OSError`).
    Io,
    /// Storage failed in a way that may pass: a time-out, a lost connection, EIO, an overloaded server (Python:
    /// `TransientError`). Says nothing about the sample, so it is never skipped or replaced: see [`crate::store::retry`].
    Transient,
    /// An object is no longer the one that was listed, or that was read before (Python: `ObjectChangedError`).
    Changed,
    /// The bytes are damaged, cut short or of another format than they claim (Python: `CorruptSampleError`).
    Corrupt,
    /// The bytes are valid but of a kind that is not supported (Python: `CorruptSampleError`).
    Unsupported,
    /// A size is above the limit set for it (Python: `LimitExceededError`).
    Limit,
    /// A parameter or a combination of parameters makes no sense (Python: `ValueError`).
    Config,
    /// Samples of one batch differ in shape or lack a field (Python: `ValueError`).
    Shape,
    /// There is no sample of that number (Python: `IndexError`).
    Index,
    /// Called at the wrong time or place, as after `fork()` (Python: `RuntimeError`).
    State,
    /// A worker panicked: a defect of wellfed itself (Python: `RuntimeError`).
    Internal,
}

impl ErrorKind {
    /// A short lower-case name, as shown in lists of errors.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not found",
            ErrorKind::Io => "i/o",
            ErrorKind::Transient => "transient",
            ErrorKind::Changed => "changed",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Limit => "limit",
            ErrorKind::Config => "configuration",
            ErrorKind::Shape => "shape",
            ErrorKind::Index => "index",
            ErrorKind::State => "state",
            ErrorKind::Internal => "internal",
        }
    }
}

/// Something that went wrong, with the place where it did.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<String>,
    key: Option<String>,
    index: Option<u64>,
    offset: Option<u64>,
    stage: Option<&'static str>,
    hint: Option<String>,
    cause: Option<Arc<io::Error>>,
    size: Option<u64>,
}

impl Error {
    /// An error of `kind` whose `message` states the fact, with numbers, in lower case and without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            source: None,
            key: None,
            index: None,
            offset: None,
            stage: None,
            hint: None,
            cause: None,
            size: None,
        }))
    }

    /// A [`ErrorKind::Config`] error.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// A [`ErrorKind::Corrupt`] error.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// A [`ErrorKind::Limit`] error: `what` has `actual` `unit`, of which `allowed` are allowed.
    pub fn limit(what: &str, actual: u64, allowed: u64, unit: &str) -> Self {
        Self::new(ErrorKind::Limit, format!("{what} has {actual} {unit}, above the limit of {allowed}"))
    }

    /// A [`ErrorKind::Transient`] error: a store's answer that may be another one later (5xx, 429, no answer in time).
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Transient, message)
    }

    /// A [`ErrorKind::Limit`] error: the system has no `bytes` of memory for `what`.
    pub fn memory(bytes: usize, what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Limit, format!("no memory for {bytes} bytes of {what}"))
    }

    /// An error of the operating system while doing `what` to `path`.
    pub fn io(what: &str, path: impl fmt::Display, error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ if may_pass(&error) => ErrorKind::Transient,
            _ => ErrorKind::Io,
        };
        let mut this = Self::new(kind, format!("cannot {what} {path}: {error}"));
        this.0.cause = Some(Arc::new(error));
        this
    }

    /// Names the source (`image_folder(data/train)`), unless one is named already.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.0.source.get_or_insert(source.into());
        self
    }

    /// Names the sample by key and index, unless it is named already.
    #[must_use]
    pub fn with_sample(mut self, key: impl Into<String>, index: u64) -> Self {
        self.0.key.get_or_insert(key.into());
        self.0.index.get_or_insert(index);
        self
    }

    /// States the byte offset in the file or shard, unless one is stated already.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Says that what failed lies at `start` in its file or shard: a stated byte offset, which counted from there,
    /// now counts from the beginning.
    #[must_use]
    pub fn within(mut self, start: u64) -> Self {
        self.0.offset = match self.0.offset {
            Some(offset) => Some(offset.saturating_add(start)),
            None if start > 0 => Some(start),
            None => None,
        };
        self
    }

    /// Names the stage (`read`, `decode`, `RandomCrop`, …), unless one is named already.
    #[must_use]
    pub fn with_stage(mut self, stage: &'static str) -> Self {
        self.0.stage.get_or_insert(stage);
        self
    }

    /// Adds advice. It is shown after the facts, on a line of its own.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint.get_or_insert(hint.into());
        self
    }

    /// States the fact and the hint of `other` about the sample and stage of this one.
    #[must_use]
    pub(crate) fn saying(mut self, other: Self) -> Self {
        self.0.message = other.0.message;
        self.0.hint = other.0.hint;
        self
    }

    /// States the size of what is above a limit.
    #[must_use]
    pub(crate) fn with_size(mut self, size: u64) -> Self {
        self.0.size = Some(size);
        self
    }

    /// The size of what is above a limit, where it is known.
    pub(crate) fn size(&self) -> Option<u64> {
        self.0.size
    }

    /// What sort of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The fact, without place and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Name of the source it happened in.
    pub fn source_name(&self) -> Option<&str> {
        self.0.source.as_deref()
    }

    /// Key of the sample it happened to.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// Index of that sample in its source.
    pub fn index(&self) -> Option<u64> {
        self.0.index
    }

    /// Byte offset in the file or shard.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Stage that failed.
    pub fn stage(&self) -> Option<&'static str> {
        self.0.stage
    }

    /// Advice, if there is any.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Raw number of the operating system's error (`errno`), if it was one.
    pub fn os_error(&self) -> Option<i32> {
        self.0.cause.as_ref().and_then(|e| e.raw_os_error())
    }
}

/// Whether the operating system failed for a reason that lies in storage, network or machine, not in the file: the same
/// call may succeed later.
fn may_pass(error: &io::Error) -> bool {
    #[cfg(unix)]
    if let Some(number) = error.raw_os_error() {
        return matches!(
            number,
            // Disks and network file systems.
            libc::EIO
                | libc::ESTALE
                | libc::ENOTCONN
                | libc::EBUSY
                | libc::ETIMEDOUT
                | libc::EAGAIN
                | libc::EINTR
                // Connections.
                | libc::ECONNRESET
                | libc::ECONNABORTED
                | libc::ECONNREFUSED
                | libc::EPIPE
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::ENETRESET
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                // What the process or the machine has run out of.
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::ENOBUFS
        );
    }
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::TimedOut
            | Kind::Interrupted
            | Kind::WouldBlock
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::ConnectionRefused
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::NetworkDown
            | Kind::NetworkUnreachable
            | Kind::HostUnreachable
            | Kind::StaleNetworkFileHandle
            | Kind::ResourceBusy
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &*self.0;
        f.write_str(&e.message)?;
        let mut separator = " (";
        let mut part = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            let result = write!(f, "{separator}{name} {value}");
            separator = ", ";
            result
        };
        if let Some(stage) = e.stage {
            part(f, "stage", &stage)?;
        }
        if let Some(key) = &e.key {
            part(f, "sample", key)?;
        }
        if let Some(index) = e.index {
            part(f, "index", &index)?;
        }
        if let Some(offset) = e.offset {
            part(f, "byte", &offset)?;
        }
        if let Some(source) = &e.source {
            part(f, "in", source)?;
        }
        if separator == ", " {
            f.write_str(")")?;
        }
        if let Some(hint) = &e.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|e| e.as_ref() as _)
    }
}

impl From<GeometryError> for Error {
    fn from(error: GeometryError) -> Self {
        match error {
            GeometryError::Memory { bytes } => Self::memory(bytes, "pixels"),
            error => Self::new(ErrorKind::Shape, error.to_string()),
        }
        .with_stage("resample")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_first_then_the_place_then_the_hint() {
        let e = Error::corrupt("JPEG ends after 12 of 480 rows")
            .with_hint("the file may have been cut during a copy")
            .with_stage("decode")
            .with_sample("cats/3.jpg", 3)
            .with_source("image_folder(data)");
        assert_eq!(
            e.to_string(),
            "JPEG ends after 12 of 480 rows (stage decode, sample cats/3.jpg, index 3, in image_folder(data))\n\
             hint: the file may have been cut during a copy"
        );
        assert_eq!(Error::config("p is 2").to_string(), "p is 2");
    }

    #[test]
    fn the_innermost_place_wins() {
        let e = Error::corrupt("x").with_stage("decode").with_stage("worker");
        assert_eq!(e.stage(), Some("decode"));
    }

    #[test]
    fn offsets_count_from_the_beginning_of_the_file() {
        let offset = |e: Error, start| e.within(start).offset();
        assert_eq!(offset(Error::corrupt("x").with_offset(33), 1024), Some(1057));
        assert_eq!(offset(Error::corrupt("x").with_offset(33), 0), Some(33));
        assert_eq!(offset(Error::corrupt("x"), 512), Some(512));
        assert_eq!(offset(Error::corrupt("x"), 0), None);
    }

    #[cfg(unix)]
    #[test]
    fn what_may_pass_is_told_apart_from_what_is_wrong_with_a_file() {
        let kind = |number| Error::io("read", "a.jpg", io::Error::from_raw_os_error(number)).kind();
        let transient = [
            libc::EIO,
            libc::ESTALE,
            libc::ETIMEDOUT,
            libc::ECONNRESET,
            libc::EAGAIN,
            libc::EINTR,
            libc::ENOTCONN,
            libc::EMFILE,
        ];
        for number in transient {
            assert_eq!(kind(number), ErrorKind::Transient, "errno {number}");
        }
        for number in [libc::EACCES, libc::EISDIR, libc::ELOOP, libc::ENAMETOOLONG, libc::EINVAL] {
            assert_eq!(kind(number), ErrorKind::Io, "errno {number}");
        }
        let e = Error::io("read", "a.jpg", io::ErrorKind::TimedOut.into());
        assert_eq!(e.kind(), ErrorKind::Transient);
    }

    #[test]
    fn a_missing_file_is_not_found() {
        let e = Error::io("read", "a.jpg", io::Error::from_raw_os_error(2));
        assert_eq!((e.kind(), e.os_error()), (ErrorKind::NotFound, Some(2)));
    }
}
