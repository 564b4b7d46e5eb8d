//! Brace expansion of shard names: `train-{000000..000099}.tar`, `{train,val}-{a..c}.tar`.
//!
//! The rules are those of Bash and of Python's `braceexpand`, which WebDataset uses: ranges of numbers keep leading
//! zeros, ranges of letters and steps (`{0..10..2}`) work, lists nest, a backslash takes away a character's meaning,
//! and braces that form neither list nor range stand for themselves.

use crate::{Error, Result};

/// Names that one pattern may expand to.
const MOST: u64 = 1_000_000;

/// Nesting of lists that is followed.
const DEEPEST: usize = 16;

/// All names that `pattern` stands for, in the order in which Bash writes them.
///
/// # Errors
/// [`crate::ErrorKind::Limit`] for more than a million names; a configuration error for lists nested deeper than 16.
pub fn expand(pattern: &str) -> Result<Vec<String>> {
    let chars: Vec<char> = pattern.chars().collect();
    let parts = parse(&chars, 0)?;
    let count = count(&parts);
    if count > MOST {
        return Err(Error::limit(&format!("pattern {pattern}"), count, MOST, "names"));
    }
    Ok(write(&parts))
}

/// A piece of a pattern.
enum Part {
    Text(char),
    /// One of these.
    List(Vec<Vec<Part>>),
    /// From, to, step, and digits at least; letters if the last is `None`.
    Range(i64, i64, i64, Option<usize>),
}

fn parse(chars: &[char], depth: usize) -> Result<Vec<Part>> {
    if depth > DEEPEST {
        return Err(Error::config(format!("braces are nested deeper than {DEEPEST}")));
    }
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some(&c) = chars.get(at) {
        match (c, chars.get(at + 1)) {
            ('\\', Some(&next)) => {
                parts.push(Part::Text(next));
                at += 2;
                continue;
            }
            ('{', _) => {
                if let Some((commas, end)) = closing(&chars[at..]) {
                    let inner = &chars[at + 1..at + end];
                    if let Some(range) = range(inner) {
                        parts.push(range);
                        at += end + 1;
                        continue;
                    }
                    if !commas.is_empty() {
                        let mut items = Vec::with_capacity(commas.len() + 1);
                        let mut start = 1;
                        for comma in commas.into_iter().chain([end]) {
                            items.push(parse(&chars[at + start..at + comma], depth + 1)?);
                            start = comma + 1;
                        }
                        parts.push(Part::List(items));
                        at += end + 1;
                        continue;
                    }
                }
                parts.push(Part::Text(c));
            }
            _ => parts.push(Part::Text(c)),
        }
        at += 1;
    }
    Ok(parts)
}

/// Positions of the commas that belong to the brace at the start of `chars`, and of the one that closes it.
fn closing(chars: &[char]) -> Option<(Vec<usize>, usize)> {
    let (mut depth, mut commas, mut at) = (0_usize, Vec::new(), 0);
    while let Some(c) = chars.get(at) {
        match c {
            '\\' => at += 1,
            '{' => depth += 1,
            '}' if depth == 1 => return Some((commas, at)),
            '}' => depth -= 1,
            ',' if depth == 1 => commas.push(at),
            _ => {}
        }
        at += 1;
    }
    None
}

fn range(inner: &[char]) -> Option<Part> {
    let text: String = inner.iter().collect();
    let pieces: Vec<&str> = text.split("..").collect();
    let (from, to, step) = match pieces[..] {
        [from, to] => (from, to, 1),
        [from, to, step] => (from, to, step.parse::<i64>().ok()?.checked_abs()?.max(1)),
        _ => return None,
    };
    let letter = |text: &str| match text.as_bytes() {
        [c] if c.is_ascii_alphabetic() => Some(i64::from(*c)),
        _ => None,
    };
    if let (Some(from), Some(to)) = (letter(from), letter(to)) {
        return Some(Part::Range(from, to, step, None));
    }
    let padded = |text: &str| {
        let digits = text.trim_start_matches(['-', '+']);
        digits.len() > 1 && digits.starts_with('0')
    };
    let width = if padded(from) || padded(to) { from.len().max(to.len()) } else { 0 };
    Some(Part::Range(from.parse().ok()?, to.parse().ok()?, step, Some(width)))
}

fn count(parts: &[Part]) -> u64 {
    parts.iter().fold(1, |product, part| {
        product.saturating_mul(match part {
            Part::Text(_) => 1,
            Part::List(items) => items.iter().fold(0, |sum, item| sum.saturating_add(count(item))),
            Part::Range(from, to, step, _) => (from.abs_diff(*to) / step.unsigned_abs()).saturating_add(1),
        })
    })
}

fn write(parts: &[Part]) -> Vec<String> {
    let mut names = vec![String::new()];
    for part in parts {
        let choices = match part {
            Part::Text(c) => {
                names.iter_mut().for_each(|name| name.push(*c));
                continue;
            }
            Part::List(items) => items.iter().flat_map(|item| write(item)).collect(),
            Part::Range(from, to, step, width) => numbers(*from, *to, *step, *width),
        };
        names = names
            .iter()
            .flat_map(|name| choices.iter().map(move |choice| [name.as_str(), choice].concat()))
            .collect();
    }
    names
}

fn numbers(from: i64, to: i64, step: i64, width: Option<usize>) -> Vec<String> {
    let count = from.abs_diff(to) / step.unsigned_abs();
    (0..=count)
        .map(|i| {
            // At most as far from `from` as `to` is, so nothing overflows.
            let distance = i * step.unsigned_abs();
            let value = if from <= to {
                from.wrapping_add_unsigned(distance)
            } else {
                from.wrapping_sub_unsigned(distance)
            };
            match width {
                None => char::from(u8::try_from(value).unwrap_or(b'?')).to_string(),
                Some(width) => format!("{value:0width$}"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_expand_as_in_bash() {
        for (pattern, expected) in [
            ("a.tar", vec!["a.tar"]),
            ("t-{008..011}.tar", vec!["t-008.tar", "t-009.tar", "t-010.tar", "t-011.tar"]),
            ("{2..0}", vec!["2", "1", "0"]),
            ("{-1..1}", vec!["-1", "0", "1"]),
            ("{0..5..2}", vec!["0", "2", "4"]),
            ("{c..a}", vec!["c", "b", "a"]),
            ("{a,b{1,2},}x", vec!["ax", "b1x", "b2x", "x"]),
            ("{x,y}{1..2}", vec!["x1", "x2", "y1", "y2"]),
            ("{a}", vec!["{a}"]),
            ("{}", vec!["{}"]),
            ("{a,b", vec!["{a,b"]),
            ("a}b", vec!["a}b"]),
            ("{{a,b}", vec!["{a", "{b"]),
            (r"\{a,b\}", vec!["{a,b}"]),
            ("{1..x}", vec!["{1..x}"]),
            ("ü{é,日}", vec!["üé", "ü日"]),
            ("", vec![""]),
        ] {
            assert_eq!(expand(pattern).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn what_would_not_end_is_refused() {
        assert!(expand("{0..9223372036854775807}").is_err());
        assert!(expand("{-9223372036854775808..9223372036854775807}").is_err());
        assert!(expand(&"{0..9}".repeat(7)).is_err());
        assert!(expand(&"{a,".repeat(1000)).is_ok(), "never closed: text");
        assert!(expand(&("{a,".repeat(1000) + &"}".repeat(1000))).is_err());
        assert!(expand("{0..4..9223372036854775807}").is_ok());
    }
}
