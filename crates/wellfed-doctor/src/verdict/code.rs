//! Changes as code of the user's script.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    evidence::Evidence,
    record::{Frame, Place},
    report::Apply,
};

/// The call that made the loader with `name=value` in it, in place of another value if there is one.
pub(super) fn with_argument(code: &str, name: &str, value: &str) -> String {
    if let Some(at) = find_argument(code, name) {
        let rest = &code[at + name.len()..];
        let Some(equal) = rest.find('=') else { return code.to_owned() };
        let begin = at + name.len() + equal + 1;
        let end = begin + argument_end(&code[begin..]);
        return format!("{}{value}{}", &code[..begin], &code[end..]);
    }
    match code.rfind(')') {
        Some(end) => {
            let before = code[..end].trim_end();
            let comma = if before.ends_with(['(', ',']) { "" } else { ", " };
            let space = if before.ends_with(',') { " " } else { "" };
            format!("{before}{comma}{space}{name}={value}{}", &code[end..])
        }
        None => format!("DataLoader(..., {name}={value})"),
    }
}

/// Where `name` is given as a keyword.
fn find_argument(code: &str, name: &str) -> Option<usize> {
    code.match_indices(name).map(|(at, _)| at).find(|&at| {
        let alone = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        let rest = code[at + name.len()..].trim_start();
        alone && rest.starts_with('=') && !rest.starts_with("==")
    })
}

/// Length of an argument's value: to the next comma or the closing bracket outside of inner brackets.
fn argument_end(text: &str) -> usize {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return i,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => return i,
            _ => {}
        }
    }
    text.len()
}

/// The loader's call with several arguments, and where it is.
pub(super) fn loader_with(e: &Evidence, arguments: &[(&str, String)]) -> (String, Option<Place>) {
    let place = e.loader().and_then(|loader| loader.place.clone());
    let code = place.as_ref().map_or("", |place| place.code.as_str());
    let code = if code.contains('(') { code.to_owned() } else { "DataLoader(...)".to_owned() };
    (arguments.iter().fold(code, |code, (name, value)| with_argument(&code, name, value)), place)
}

/// The change as `try` makes it.
pub(super) fn apply_loader(arguments: &[(&str, Value)]) -> Apply {
    Apply {
        loader: arguments
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect::<BTreeMap<_, _>>(),
        ..Apply::default()
    }
}

/// A place of a frame.
pub(super) fn place_of(frame: &Frame) -> Place {
    Place { file: frame.file.clone(), line: frame.line, code: frame.call.clone() }
}

/// `file.py:12`, by the last part of the path.
pub(super) fn where_is(frame: &Frame) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
    format!("{file}:{}", frame.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_added_or_replaced() {
        let add = |code| with_argument(code, "num_workers", "2");
        assert_eq!(add("DataLoader(train, 64)"), "DataLoader(train, 64, num_workers=2)");
        assert_eq!(
            add("DataLoader(train, num_workers=0, shuffle=True)"),
            "DataLoader(train, num_workers=2, shuffle=True)"
        );
        assert_eq!(add("DataLoader(train, num_workers=f(1, 2))"), "DataLoader(train, num_workers=2)");
        assert_eq!(add("DataLoader(train,)"), "DataLoader(train, num_workers=2)");
        assert_eq!(
            add("x = DataLoader(train, my_num_workers=1)"),
            "x = DataLoader(train, my_num_workers=1, num_workers=2)"
        );
        assert_eq!(add("loader"), "DataLoader(..., num_workers=2)");
    }
}
