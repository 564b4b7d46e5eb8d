//! A fix as a unified diff against the script's files.
//!
//! Invariant: what is written is taken by `git apply` and `patch -p1`, and has the lines that the report shows; where that cannot be,
//! there is a reason in place of a diff.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::report::{Fix, Lines, Verdict};

/// Lines around a change.
const CONTEXT: usize = 3;

/// A diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Folder that its paths are relative to.
    pub base: PathBuf,
    /// Its bytes: the script's need not be UTF-8 beside the changed lines.
    pub diff: Vec<u8>,
}

/// Lines of one file, and what stands in their place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// The file, as the probes name it.
    pub file: String,
    /// The lines, those of the file's beginning first.
    pub lines: Vec<Lines>,
}

impl Changed {
    /// All lines that a verdict's fix changes; nothing if it is no edit.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        let fix = verdict.fix.as_ref()?;
        let place = fix.place.as_ref().filter(|place| place.call.is_some())?;
        if only_comments(fix) {
            return None;
        }
        let first = Lines { line: place.line, code: place.code.clone(), change: fix.change.clone() };
        let mut lines: Vec<Lines> = std::iter::once(first).chain(verdict.more.iter().cloned()).collect();
        lines.sort_by_key(|lines| lines.line);
        Some(Self { file: place.file.clone(), lines })
    }

    /// The number that a line of the file has after the change: what is changed above it moves it.
    pub fn line(&self, line: u32) -> u32 {
        let length = |text: &str| text.split('\n').count() as i64;
        let above =
            self.lines.iter().filter(|lines| i64::from(lines.line) + length(&lines.code) <= line.into());
        let moved: i64 = above.map(|lines| length(&lines.change) - length(&lines.code)).sum();
        u32::try_from(i64::from(line) + moved).unwrap_or(line)
    }
}

fn only_comments(fix: &Fix) -> bool {
    fix.change.lines().all(|line| line.trim_start().starts_with('#') || line.trim().is_empty())
}

/// The diff of a verdict's fix, against files as they are now.
///
/// # Errors
///
/// In words: why there is none.
pub fn patch(verdict: &Verdict, cwd: &Path) -> Result<Patch, String> {
    let Some(fix) = &verdict.fix else {
        return Err("the report advises no change".to_owned());
    };
    let Some(changed) = Changed::of(verdict) else {
        return Err(match &fix.apply {
            Some(apply) if !apply.env.is_empty() => {
                format!("the fix is set outside of the script: {}", fix.change)
            }
            _ => format!("the fix (\"{}\") takes an edit that only its author can make", fix.title),
        });
    };
    let file = cwd.join(&changed.file);
    let bytes = fs::read(&file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let (base, name) = relative(&file, cwd);
    let diff = diff(&bytes, &changed.lines, &name).map_err(|line| {
        format!("line {line} of {} is not what ran: it was changed since, or is not UTF-8", file.display())
    })?;
    Ok(Patch { base, diff })
}

/// The folder in which a diff is applied, and the file's path from there: the current one, or the file's repository.
fn relative(file: &Path, cwd: &Path) -> (PathBuf, String) {
    let parent = file.parent().unwrap_or(cwd);
    let repository = || parent.ancestors().find(|folder| folder.join(".git").exists());
    let base = if file.starts_with(cwd) { cwd } else { repository().unwrap_or(parent) };
    let parts = file.strip_prefix(base).unwrap_or(file).components();
    let names: Vec<_> = parts
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    (base.to_owned(), names.join("/"))
}

/// A name as git writes it in a diff.
fn quoted(prefix: &str, name: &str) -> String {
    let odd = |c: char| c.is_control() || c == '"' || c == '\\';
    if name.contains(odd) {
        let escaped: String = name
            .chars()
            .map(|c| match c {
                '"' | '\\' => format!("\\{c}"),
                '\n' => "\\n".to_owned(),
                '\t' => "\\t".to_owned(),
                c if c.is_control() => format!("\\{:03o}", u32::from(c)),
                c => c.to_string(),
            })
            .collect();
        return format!("\"{prefix}/{escaped}\"");
    }
    // A tab says where a name with spaces ends.
    let end = if name.contains(' ') { "\t" } else { "" };
    format!("{prefix}/{name}{end}")
}

/// The diff of one file; the number of a line that is not what it was thought to be, if there is one.
fn diff(bytes: &[u8], changes: &[Lines], name: &str) -> Result<Vec<u8>, u32> {
    let old: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let end = old.first().map_or(&b"\n"[..], |line| ending(line));
    let mut edits: Vec<(usize, usize, Vec<Vec<u8>>)> = Vec::new();
    for change in changes {
        let code: Vec<&str> = change.code.split('\n').collect();
        let first = (change.line as usize).checked_sub(1).ok_or(change.line)?;
        for (i, line) in code.iter().enumerate() {
            let is = old.get(first + i).map(|old| content(old));
            if is != Some(line.as_bytes()) {
                return Err(change.line + i as u32);
            }
        }
        let last = first + code.len();
        let mut new: Vec<Vec<u8>> =
            change.change.split('\n').map(|line| [line.as_bytes(), end].concat()).collect();
        // The end of the file stays as it is.
        if let Some(line) = new.last_mut() {
            line.truncate(line.len() - end.len());
            line.extend_from_slice(ending(old[last - 1]));
        }
        let same = old[first..last].iter().zip(&new).take_while(|(old, new)| **old == new.as_slice()).count();
        let (old_rest, new_rest) = (&old[first + same..last], &new[same..]);
        let tail = old_rest
            .iter()
            .rev()
            .zip(new_rest.iter().rev())
            .take_while(|(old, new)| **old == new.as_slice())
            .count();
        let kept = new_rest[..new_rest.len() - tail].to_vec();
        edits.push((first + same, last - tail, kept));
    }
    let mut out = format!("--- {}\n+++ {}\n", quoted("a", name), quoted("b", name)).into_bytes();
    let mut at = 0;
    let mut moved: isize = 0;
    while at < edits.len() {
        // Edits whose context touches are one hunk.
        let mut until = at + 1;
        while until < edits.len() && edits[until].0 <= edits[until - 1].1 + 2 * CONTEXT {
            until += 1;
        }
        let group = &edits[at..until];
        let begin = group[0].0.saturating_sub(CONTEXT);
        let end = (group[group.len() - 1].1 + CONTEXT).min(old.len());
        let more: isize = group.iter().map(|(from, to, new)| new.len() as isize - (to - from) as isize).sum();
        let count = end - begin;
        let new_count = count.saturating_add_signed(more);
        let new_begin = begin.saturating_add_signed(moved);
        out.extend(format!("@@ -{},{count} +{},{new_count} @@\n", begin + 1, new_begin + 1).into_bytes());
        let mut from = begin;
        for (first, last, new) in group {
            old[from..*first].iter().for_each(|line| put(&mut out, b' ', line));
            old[*first..*last].iter().for_each(|line| put(&mut out, b'-', line));
            new.iter().for_each(|line| put(&mut out, b'+', line));
            from = *last;
        }
        old[from..end].iter().for_each(|line| put(&mut out, b' ', line));
        moved += more;
        at = until;
    }
    Ok(out)
}

/// A line without its end.
fn content(line: &[u8]) -> &[u8] {
    &line[..line.len() - ending(line).len()]
}

/// The end of a line.
fn ending(line: &[u8]) -> &'static [u8] {
    if line.ends_with(b"\r\n") {
        b"\r\n"
    } else if line.ends_with(b"\n") {
        b"\n"
    } else {
        b""
    }
}

fn put(out: &mut Vec<u8>, sign: u8, line: &[u8]) {
    out.push(sign);
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Place;

    fn lines(line: u32, code: &str, change: &str) -> Lines {
        Lines { line, code: code.to_owned(), change: change.to_owned() }
    }

    fn text(bytes: &[u8], changes: &[Lines]) -> String {
        String::from_utf8(diff(bytes, changes, "my train.py").unwrap()).unwrap()
    }

    #[test]
    fn changes_far_apart_are_hunks_of_their_own_and_line_numbers_move() {
        let file: String = (1..=20).map(|i| format!("{i}\n")).collect();
        let changes = [lines(2, "2", "import x\n2"), lines(4, "4\n5", "four\n5"), lines(18, "18", "b")];
        let expected = "--- a/my train.py\t\n+++ b/my train.py\t\n@@ -1,7 +1,8 @@\n 1\n+import x\n 2\n 3\n-4\n+four\n 5\n 6\n 7\n\
                        @@ -15,6 +16,6 @@\n 15\n 16\n 17\n-18\n+b\n 19\n 20\n";
        assert_eq!(text(file.as_bytes(), &changes), expected);
    }

    #[test]
    fn ends_of_lines_and_of_the_file_stay() {
        let got = text(b"a\r\nb", &[lines(2, "b", "c\nd")]);
        assert!(got.ends_with(
            "@@ -1,2 +1,3 @@\n a\r\n-b\n\\ No newline at end of file\n+c\r\n+d\n\\ No newline at end of file\n"
        ));
    }

    #[test]
    fn what_is_changed_above_moves_a_line() {
        let changed = Changed {
            file: "train.py".to_owned(),
            lines: vec![lines(2, "2", "import x\n2"), lines(5, "5\n6", "b")],
        };
        assert_eq!([1, 2, 3, 5, 7].map(|line| changed.line(line)), [1, 2, 4, 6, 7]);
    }

    #[test]
    fn a_file_that_changed_gets_no_diff() {
        assert_eq!(diff(b"a\nb\n", &[lines(2, "c", "d")], "x"), Err(2));
        assert_eq!(diff(b"a\n", &[lines(2, "c", "d")], "x"), Err(2));
        assert_eq!(diff(b"\xff\n", &[lines(1, "\u{fffd}", "d")], "x"), Err(1));
    }

    #[test]
    fn what_is_no_edit_says_why() {
        let fix = |change: &str, call| {
            let place = Some(Place { file: "/none/train.py".to_owned(), call, ..Place::default() });
            let fix = Fix { title: "do it".to_owned(), change: change.to_owned(), place, ..Fix::default() };
            patch(&Verdict { fix: Some(fix), ..Verdict::default() }, Path::new("/")).unwrap_err()
        };
        assert!(fix("# one array", Some([0, 1])).contains("only its author"));
        assert!(fix("x = 1", None).contains("only its author"));
        assert!(fix("x = 1", Some([0, 1])).contains("cannot be read"));
        assert!(patch(&Verdict::default(), Path::new("/")).unwrap_err().contains("no change"));
    }

    #[test]
    fn odd_names_are_quoted() {
        assert_eq!(quoted("a", "b\"\n.py"), r#""a/b\"\n.py""#);
        assert_eq!(quoted("a", "ä.py"), "a/ä.py");
    }
}
