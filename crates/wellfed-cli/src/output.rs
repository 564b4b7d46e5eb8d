//! Where a command's results and errors go.
//!
//! A reader that closes the pipe early (`wellfed inspect data | head`) has seen enough: that is no error.

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use wellfed::Error;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What the engine says.
    Engine(Error),
    /// The results could not be written.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}

/// Standard output, for a whole report.
pub(crate) fn results() -> BufWriter<StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Writes `value` as JSON, indented, as all of a command's results.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut out = results();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Prints a line that is no result.
pub(crate) fn note(line: impl std::fmt::Display) {
    // Without a standard error there is nobody to tell.
    drop(writeln!(io::stderr(), "{line}"));
}

/// Prints what went wrong, if anything; gives the exit status.
pub(crate) fn status(result: Result<(), Failure>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => 0,
        Err(Failure::Output(error)) => {
            note(format_args!("error: cannot write the results: {error}"));
            1
        }
        Err(Failure::Engine(error)) => {
            note(format_args!("error: {error}"));
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is() {
        assert_eq!(status(Err(io::Error::from(ErrorKind::BrokenPipe).into())), 0);
        assert_eq!(status(Err(io::Error::from(ErrorKind::StorageFull).into())), 1);
        assert_eq!(status(Err(Error::config("p is 2").into())), 1);
    }
}
