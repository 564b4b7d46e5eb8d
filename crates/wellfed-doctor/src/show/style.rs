//! What the terminal can show: width, colours, characters. Text passes [`Style::clean`] once, before it is measured.

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    io::{IsTerminal, Stderr, Stdout},
};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width where nobody says how wide the terminal is.
const UNKNOWN_WIDTH: usize = 80;

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns; 60 to 120 are used.
    pub width: usize,
    /// Whether colours are written.
    pub colour: bool,
    /// Whether more than ASCII is written.
    pub unicode: bool,
}

/// What text means; decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// As it is.
    Plain,
    /// What should be read first.
    Strong,
    /// What need not be read.
    Faint,
    /// What is wrong.
    Bad,
    /// What is right.
    Good,
    /// What to do.
    Accent,
}

impl Style {
    /// Plain text of this width.
    pub fn plain(width: usize) -> Self {
        Self { width, colour: false, unicode: true }
    }

    /// As standard error can show it.
    pub fn of_stderr(stream: &Stderr) -> Self {
        Self::detect(stream.is_terminal(), &|name| env::var_os(name))
    }

    /// As standard output can show it.
    pub fn of_stdout(stream: &Stdout) -> Self {
        Self::detect(stream.is_terminal(), &|name| env::var_os(name))
    }

    fn detect<T: AsRef<OsStr>>(terminal: bool, variable: &dyn Fn(&str) -> Option<T>) -> Self {
        // As the NO_COLOR convention and POSIX say: an empty variable counts as none.
        let get = |name| {
            variable(name)
                .map(|value| value.as_ref().to_string_lossy().into_owned())
                .filter(|v| !v.is_empty())
        };
        let dumb = get("TERM").is_none_or(|term| term == "dumb");
        let forced = get("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let colour = (forced || terminal && !dumb) && get("NO_COLOR").is_none();
        let locale = get("LC_ALL").or_else(|| get("LC_CTYPE")).or_else(|| get("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let unicode = (locale.contains("utf-8") || locale.contains("utf8")) && !(terminal && dumb);
        let columns = get("COLUMNS").and_then(|columns| columns.parse().ok());
        let size = || ratatui::crossterm::terminal::size().ok().map(|(width, _)| usize::from(width));
        let width = columns.or_else(|| if terminal { size() } else { None }).unwrap_or(UNKNOWN_WIDTH);
        Self { width: width.clamp(60, 120), colour, unicode }
    }

    /// `text` on one line, without control characters, in characters that can be shown.
    pub(super) fn clean(self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '\n' | '\t' => clean.push(' '),
                c if c.is_ascii_graphic() || c == ' ' => clean.push(c),
                // Marks that turn the direction of text could make a line of code look like another.
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    escape(&mut clean, c)
                }
                c if !c.is_control() && self.unicode => clean.push(c),
                'µ' => clean.push('u'),
                '×' => clean.push('x'),
                '–' | '—' | '·' => clean.push('-'),
                '…' => clean.push_str("..."),
                '≤' => clean.push_str("<="),
                '≥' => clean.push_str(">="),
                '→' => clean.push_str("->"),
                '‘' | '’' => clean.push('\''),
                '“' | '”' => clean.push('"'),
                c => escape(&mut clean, c),
            }
        }
        clean
    }

    /// `text` in the colour of `ink`.
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Plain => "",
            Ink::Strong => "1",
            Ink::Faint => "2",
            Ink::Bad => "31",
            Ink::Good => "32",
            Ink::Accent => "1;36",
        };
        if !self.colour || code.is_empty() || text.is_empty() {
            return text.to_owned();
        }
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

fn escape(text: &mut String, c: char) {
    write!(text, "{}", c.escape_default()).expect("strings take all");
}

/// Columns that `text` takes; it was cleaned.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

/// `text` broken between words into lines of at most `width` columns; a longer word is broken inside.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let size = columns(word);
        if used > 0 && used + 1 + size <= width {
            let line = lines.last_mut().expect("there is one");
            line.push(' ');
            line.push_str(word);
            used += 1 + size;
            continue;
        }
        if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let size = c.width().unwrap_or(0);
            if used + size > width {
                lines.push(String::new());
                used = 0;
            }
            lines.last_mut().expect("there is one").push(c);
            used += size;
        }
    }
    lines
}

/// `text` cut to `width` columns at its end, with `..` where something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 2;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        short.push(c);
    }
    short + ".."
}

/// `text` cut to `width` columns at its begin: of a path, the end says more.
pub(super) fn cut_front(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut used = 2;
    let mut kept: Vec<char> = Vec::new();
    for c in text.chars().rev() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(c);
    }
    "..".chars().chain(kept.into_iter().rev()).collect()
}

/// `text` with spaces up to `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(terminal: bool, variables: &[(&str, &str)]) -> Style {
        let all = [&[("COLUMNS", "100")], variables].concat();
        let get =
            move |name: &str| all.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        Style::detect(terminal, &get)
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let xterm = ("TERM", "xterm-256color");
        assert!(detect(true, &[xterm]).colour);
        assert!(!detect(false, &[xterm]).colour);
        assert!(!detect(true, &[xterm, ("NO_COLOR", "1")]).colour);
        assert!(detect(true, &[xterm, ("NO_COLOR", "")]).colour);
        assert!(!detect(true, &[("TERM", "dumb")]).colour);
        assert!(detect(false, &[("CLICOLOR_FORCE", "1")]).colour);
        assert!(!detect(false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).colour);
    }

    #[test]
    fn the_locale_says_which_characters_there_are() {
        assert!(detect(false, &[("LANG", "de_DE.UTF-8")]).unicode);
        assert!(!detect(false, &[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]).unicode);
        assert!(!detect(false, &[]).unicode);
        assert!(!detect(true, &[("LANG", "C.utf8"), ("TERM", "dumb")]).unicode);
    }

    #[test]
    fn width_stays_readable() {
        assert_eq!(detect(true, &[("COLUMNS", "20")]).width, 60);
        assert_eq!(detect(true, &[("COLUMNS", "400")]).width, 120);
        assert_eq!(detect(false, &[("COLUMNS", "x")]).width, UNKNOWN_WIDTH);
    }

    #[test]
    fn text_cannot_steer_the_terminal() {
        let style = Style::plain(80);
        assert_eq!(style.clean("a\u{1b}[2Jb\r\u{9b}c\u{202e}"), "a\\u{1b}[2Jb\\r\\u{9b}c\\u{202e}");
        assert_eq!(style.clean("größe 日本\nzwei"), "größe 日本 zwei");
        let ascii = Style { unicode: false, ..style };
        assert_eq!(ascii.clean("≤ 3× größe …"), "<= 3x gr\\u{f6}\\u{df}e ...");
    }

    #[test]
    fn lines_are_broken_between_words_and_measured_in_columns() {
        assert_eq!(wrap("to be or not", 5), ["to be", "or", "not"]);
        assert_eq!(wrap("a abcdefgh", 4), ["a", "abcd", "efgh"]);
        assert_eq!(wrap("日本 語", 4), ["日本", "語"]);
        assert_eq!(wrap("", 9), [""]);
        assert_eq!((cut("abcdef", 4), cut_front("abcdef", 4)), ("ab..".into(), "..ef".into()));
        assert_eq!(cut("日本語", 5), "日..");
    }
}
