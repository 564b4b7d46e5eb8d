//! Quotes the source of the frames that probes saw.
//!
//! Probes write positions only: reading files would cost the script's processes time, and each of them anew.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::record::{Frame, Record};

/// Longer files are not quoted.
const MOST_BYTES: u64 = 16 << 20;

/// Lines of an expression that are quoted.
const MOST_LINES: usize = 20;

/// Characters that are quoted.
const MOST_CHARS: usize = 200;

/// Source files, each read once.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Files that were changed later are not those that ran.
    until: Option<SystemTime>,
    files: HashMap<PathBuf, Option<Vec<u8>>>,
}

impl Sources {
    /// Quotes files as they were at `until`.
    pub(crate) fn new(until: Option<SystemTime>) -> Self {
        Self { until, files: HashMap::new() }
    }

    /// Adds the source of the frames in one process's records, where it can be read.
    pub(crate) fn quote(&mut self, records: &mut [Record]) {
        let cwd = records.iter().find_map(|record| match record {
            Record::Hello(hello) => Some(PathBuf::from(&hello.cwd)),
            _ => None,
        });
        for record in records {
            let Record::Frames(frames) = record else { continue };
            for frame in frames.rows.iter_mut().filter(|frame| frame.call.is_empty()) {
                let path = cwd.as_deref().unwrap_or(Path::new("")).join(&frame.file);
                let until = self.until;
                let text = self.files.entry(path).or_insert_with_key(|path| read(path, until).ok().flatten());
                frame.call = text.as_deref().map(|text| expression(text, frame)).unwrap_or_default();
            }
        }
    }
}

/// The file; `None` if it is not the one that ran.
fn read(path: &Path, until: Option<SystemTime>) -> io::Result<Option<Vec<u8>>> {
    // Before it is opened: opening a named pipe would wait for somebody who writes.
    let about = fs::metadata(path)?;
    let changed = until.is_some_and(|until| about.modified().is_ok_and(|modified| modified > until));
    if changed || !about.is_file() || about.len() > MOST_BYTES {
        return Ok(None);
    }
    let mut text = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Source from the begin of a frame's expression to its end, in one line; the whole line where there are no columns.
fn expression(text: &[u8], frame: &Frame) -> String {
    let first = (frame.line as usize).saturating_sub(1);
    let (last, begin, end) = frame.span.map_or((first, 0, usize::MAX), |(last, begin, end)| {
        ((last as usize).saturating_sub(1), begin as usize, end as usize)
    });
    let mut found = String::new();
    let lines =
        text.split(|byte| *byte == b'\n').enumerate().skip(first).take(last.saturating_sub(first) + 1);
    for (number, line) in lines.take(MOST_LINES) {
        let end = if number == last { end.min(line.len()) } else { line.len() };
        let begin = if number == first { begin.min(end) } else { 0 };
        for word in String::from_utf8_lossy(&line[begin..end]).split_whitespace() {
            if !found.is_empty() {
                found.push(' ');
            }
            found.push_str(word);
        }
    }
    if let Some((at, _)) = found.char_indices().nth(MOST_CHARS) {
        let last = found[..at].char_indices().next_back().map_or(0, |(last, _)| last);
        found.truncate(last);
        found.push('…');
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::{Frames, Hello};

    fn quoted(text: &str, line: u32, span: Option<(u32, u32, u32)>) -> String {
        expression(text.as_bytes(), &Frame { line, span, ..Frame::default() })
    }

    #[test]
    fn expressions_are_quoted_in_one_line() {
        let text = "total = sum(\n    [1,\n     2]) + len('ä')\n";
        assert_eq!(quoted(text, 1, Some((3, 8, 8))), "sum( [1, 2])");
        assert_eq!(quoted(text, 3, None), "2]) + len('ä')");
        assert_eq!(quoted(text, 3, Some((3, 11, 20))), "len('ä')");
        assert_eq!(quoted(text, 2, Some((2, 30, 40))), "");
        assert_eq!(quoted(text, 9, None), "");
        // A column in the middle of a character: the file is not the one that ran.
        assert_eq!(quoted("'ä'", 1, Some((1, 2, 4))), "\u{fffd}'");
        let long = quoted(&"ä".repeat(300), 1, None);
        assert_eq!((long.chars().count(), long.ends_with("ä…")), (MOST_CHARS, true));
        assert_eq!(quoted(&"ä".repeat(MOST_CHARS), 1, None), "ä".repeat(MOST_CHARS));
    }

    #[test]
    fn only_files_that_ran_are_read() {
        let dir = std::env::temp_dir().join(format!("wellfed-source-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("train.py"), "import torch\nstep()\n").unwrap();
        let frame = |file: &str, call: &str| Frame {
            file: file.to_owned(),
            line: 2,
            call: call.to_owned(),
            ..Frame::default()
        };
        let quote = |until: Option<SystemTime>| -> Vec<String> {
            let hello = Hello { cwd: dir.display().to_string(), ..Hello::default() };
            let rows =
                vec![frame("train.py", ""), frame("train.py", "cell()"), frame("gone.py", ""), frame("", "")];
            let mut records = [Record::Hello(hello), Record::Frames(Frames { rows })];
            Sources::new(until).quote(&mut records);
            let [_, Record::Frames(frames)] = records else { unreachable!() };
            frames.rows.into_iter().map(|frame| frame.call).collect()
        };
        let (now, earlier) = (quote(None), quote(Some(SystemTime::now() - Duration::from_secs(3600))));
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(now, ["step()", "cell()", "", ""]);
        assert_eq!(earlier, ["", "cell()", "", ""]);
    }
}
