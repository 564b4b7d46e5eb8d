//! What can go wrong with sound: [`Error`] says what, and of which packet of the file.

use std::{fmt, io};

use symphonia::core::errors::Error as Symphonia;

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes break the rules of their format.
    Corrupt,
    /// The bytes end before the sound does.
    Truncated,
    /// No format or codec that is decoded here.
    Unsupported,
    /// The sound asks for more than [`Limits`](crate::Limits) allow.
    Limit,
    /// A segment, rate or parameter that makes no sense.
    Argument,
}

/// An error: the fact with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument, message)
    }

    /// What the decoding library says, and what was done then.
    pub(crate) fn of(error: &Symphonia, doing: &str) -> Self {
        let kind = match error {
            Symphonia::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => ErrorKind::Truncated,
            Symphonia::Unsupported(_) => ErrorKind::Unsupported,
            Symphonia::LimitError(_) => ErrorKind::Limit,
            _ => ErrorKind::Corrupt,
        };
        let message = match kind {
            ErrorKind::Truncated => format!("the bytes end while {doing}"),
            _ => format!("{error}, while {doing}"),
        };
        Self::new(kind, message)
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
