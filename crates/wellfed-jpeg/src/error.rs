//! What can go wrong: [`Error`] says what, and where in the file.

use std::fmt;

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes break the rules of JPEG where no sense can be made of them.
    Corrupt,
    /// The bytes end before the end marker.
    Truncated,
    /// A valid kind of JPEG that this crate does not decode, or a conversion that it does not make.
    Unsupported,
    /// The image asks for more than [`Limits`](crate::Limits) allow.
    Limit,
    /// There is no memory, or [`Ask`](crate::Ask) did not allow it.
    Memory,
    /// A region, buffer or index that does not fit the image.
    Argument,
}

/// An error: the fact with its numbers, and the offset of the bytes that showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    offset: Option<usize>,
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), offset: None }
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn at(self, offset: usize) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened, without the offset.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The byte of the file where it showed, if there is one.
    pub fn offset(&self) -> Option<usize> {
        self.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.offset {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
