//! Where a command's results and errors go.
//!
//! A reader that closes the pipe early (`wellfed inspect data | head`) has seen enough: that is no error.

use std::{
    borrow::Cow,
    io::{self, BufWriter, ErrorKind, StdoutLock, Write},
};

use wellfed::Error;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What the engine says.
    Engine(Error),
    /// The results could not be written.
    Output(io::Error),
    /// The results are there, and say that something is wrong.
    Found,
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

/// `text` with control characters escaped: names of files and classes come from the data set, and must neither break
/// lines nor steer the terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Prints what is no result. Line ends separate lines; other control characters are escaped.
pub(crate) fn note(text: impl std::fmt::Display) {
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    // Without a standard error there is nobody to tell.
    drop(writeln!(io::stderr(), "{}", lines.join("\n")));
}

/// Prints what went wrong, if anything; gives the exit status.
pub(crate) fn status(result: Result<(), Failure>) -> i32 {
    let found = matches!(result, Err(Failure::Found));
    let text = complaint(result);
    if let Some(text) = &text {
        note(text);
    }
    i32::from(found || text.is_some())
}

/// What a user is told about `result`; `None` if there is nothing to complain of.
fn complaint(result: Result<(), Failure>) -> Option<String> {
    match result {
        // What was found is in the results.
        Ok(()) | Err(Failure::Found) => None,
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => None,
        Err(Failure::Output(error)) => Some(format!("error: cannot write the results: {error}")),
        Err(Failure::Engine(error)) => Some(format!("error: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is() {
        assert_eq!(complaint(Ok(())), None);
        assert_eq!(complaint(Err(io::Error::from(ErrorKind::BrokenPipe).into())), None);
        let full = complaint(Err(io::Error::from(ErrorKind::StorageFull).into())).unwrap();
        assert!(full.starts_with("error: cannot write the results: "), "{full}");
        assert_eq!(complaint(Err(Error::config("p is 2").into())).unwrap(), "error: p is 2");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(printable("größe/日本.jpg"), "größe/日本.jpg");
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{9b}"), "a\\u{1b}[2Jb\\nc\\u{9b}");
    }
}
