//! Changes as code of the user's script.
//!
//! Invariant: what is given as a change is whole lines that can stand in place of the lines at its place, or a comment. Names and
//! imports are the script's.

use std::{collections::BTreeMap, ops::Range};

use serde_json::Value;

use crate::{
    edit::Edit,
    evidence::{Evidence, StageTime},
    record::{Frame, Loader, Place},
    report::{Apply, Lines},
};

/// Arguments of torch's loader that may be given without their names, in order.
const POSITIONS: [&str; 13] = [
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
];

/// The text of a call, taken apart.
struct Call {
    /// Each argument, without spaces and comments around it.
    arguments: Vec<Range<usize>>,
    /// Where another argument can be put.
    end: usize,
    /// Whether something has to stand between that and the argument before.
    comma: bool,
}

/// Takes apart `name(…)`; nothing if it does not end with the bracket that its name opens.
fn parse(text: &str) -> Option<Call> {
    let bytes = text.as_bytes();
    let mut at = text.find('(')? + 1;
    let (mut depth, mut end, mut comma) = (1usize, at, false);
    let mut arguments: Vec<Range<usize>> = Vec::new();
    let mut begin: Option<usize> = None;
    while at < bytes.len() {
        let from = at;
        match bytes[at] {
            b'#' => {
                at += bytes[at..].iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'\'' | b'"' => at = string(bytes, at)?,
            b'(' | b'[' | b'{' => {
                depth += 1;
                at += 1;
            }
            b')' | b']' | b'}' => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    arguments.extend(begin.map(|begin| begin..end));
                    return text[at..].trim().is_empty().then_some(Call { arguments, end, comma });
                }
            }
            b',' if depth == 1 => {
                arguments.extend(begin.take().map(|begin| begin..end));
                at += 1;
                (end, comma) = (at, false);
                continue;
            }
            _ => at += 1,
        }
        begin.get_or_insert(from);
        (end, comma) = (at, true);
    }
    None
}

/// The byte after a string that begins here.
fn string(bytes: &[u8], begin: usize) -> Option<usize> {
    let quote = bytes[begin];
    let long = bytes[begin..].starts_with(&[quote; 3]);
    let mut at = begin + if long { 3 } else { 1 };
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote && !long => return Some(at + 1),
            _ if long && bytes[at..].starts_with(&[quote; 3]) => return Some(at + 3),
            _ => at += 1,
        }
    }
    None
}

/// The name of an argument, and where its value is.
fn named(text: &str, argument: &Range<usize>) -> Option<(String, Range<usize>)> {
    let given = &text[argument.clone()];
    let name = &given[..given.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(given.len())];
    let rest = given[name.len()..].trim_start();
    if name.is_empty() || !rest.starts_with('=') || rest.starts_with("==") {
        return None;
    }
    let value = rest[1..].trim_start();
    Some((name.to_owned(), argument.end - value.len()..argument.end))
}

/// The call with `name=value` in it, in place of another value if there is one; nothing where that cannot be told from its text.
fn with_argument(text: &str, name: &str, value: &str) -> Option<String> {
    let call = parse(text)?;
    let put = |at: Range<usize>, new: &str| Some(format!("{}{new}{}", &text[..at.start], &text[at.end..]));
    let mut packed = None;
    for (position, argument) in call.arguments.iter().enumerate() {
        let given = &text[argument.clone()];
        if let Some(rest) = given.strip_prefix("**") {
            packed = Some((argument.clone(), rest));
        } else if given.starts_with('*') {
            return None;
        } else if let Some((known, at)) = named(text, argument) {
            if known == name {
                return put(at, value);
            }
        } else if POSITIONS.get(position) == Some(&name) {
            return put(argument.clone(), value);
        }
    }
    // What is unpacked may hold that argument, too.
    if let Some((at, rest)) = packed {
        return put(at, &format!("**{{**{rest}, \"{name}\": {value}}}"));
    }
    let before = match (call.arguments.is_empty(), call.comma) {
        (true, _) => "",
        (false, true) => ", ",
        (false, false) => " ",
    };
    put(call.end..call.end, &format!("{before}{name}={value}"))
}

/// The lines at a place with another call in place of the one there; nothing if it is not known where that is.
fn with_call(place: &Place, change: impl FnOnce(&str) -> Option<String>) -> Option<String> {
    let [begin, end] = place.call?;
    let call = place.code.get(begin..end)?;
    Some(format!("{}{}{}", &place.code[..begin], change(call)?, &place.code[end..]))
}

/// The loader's lines with several arguments, and where they are; a comment where they are not known.
pub(super) fn loader_with(e: &Evidence, arguments: &[(&str, String)]) -> (String, Option<Place>) {
    let place = e.loader().and_then(|loader| loader.place.clone());
    let changed = place.as_ref().and_then(|place| {
        with_call(place, |call| {
            arguments
                .iter()
                .try_fold(call.to_owned(), |call, (name, value)| with_argument(&call, name, value))
        })
    });
    let list: Vec<String> = arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (changed.unwrap_or_else(|| format!("# the loader with {}", list.join(", "))), place)
}

/// The lines of the loader, or of the last step of a tf.data pipeline, with it given to wellfed, and with the import if the script
/// has none.
pub(super) fn fed(e: &Evidence) -> (String, Option<Place>) {
    let whole = e.fed.as_ref().and_then(|fed| fed.place.clone());
    let place = whole.or_else(|| e.loader().and_then(|loader| loader.place.clone()));
    let changed = place
        .as_ref()
        .and_then(|place| with_wellfed(place, |name, call| Some(format!("{name}.feed({call})"))));
    (changed.unwrap_or_else(|| "# import wellfed, and give the loader to wellfed.feed()".to_owned()), place)
}

/// The lines that make the loader, with others before them.
pub(super) fn before_loader(e: &Evidence, lines: &[&str]) -> (String, Option<Place>) {
    let place = e.loader().and_then(|loader| loader.place.clone());
    let changed =
        place.as_ref().and_then(|place| with_call(place, |call| Some(call.to_owned()))).map(|code| {
            let indent = &code[..code.len() - code.trim_start().len()];
            let before: String = lines.iter().map(|line| format!("{indent}{line}\n")).collect();
            before + &code
        });
    (changed.unwrap_or_else(|| format!("# before the loader is made: {}", lines.join("; "))), place)
}

/// The lines that make a data set by `make_csv_dataset`, with wellfed's parser in its place.
pub(super) fn csv(e: &Evidence) -> (String, Option<Place>) {
    const THEIRS: &str = "make_csv_dataset(";
    let place = e.loader().and_then(|loader| loader.place.clone());
    let ours = |name: &str, call: &str| {
        let (before, arguments) = call.split_once(THEIRS)?;
        let plain = before.chars().all(|c| c.is_alphanumeric() || "_.".contains(c));
        plain.then(|| format!("{name}.csv({arguments}.tf()"))
    };
    let changed = place.as_ref().and_then(|place| with_wellfed(place, ours));
    let otherwise = || "# import wellfed, and wellfed.csv(...).tf() in place of the data set".to_owned();
    (changed.unwrap_or_else(otherwise), place)
}

/// The lines at a place with another call in place of the one there, in which wellfed has a name; with its import, if the script has
/// none.
fn with_wellfed(place: &Place, change: impl FnOnce(&str, &str) -> Option<String>) -> Option<String> {
    let name = place.wellfed.as_deref().unwrap_or("wellfed");
    let code = with_call(place, |call| change(name, call))?;
    let indent = &code[..code.len() - code.trim_start().len()];
    let import = if place.wellfed.is_none() { format!("{indent}import wellfed\n") } else { String::new() };
    Some(import + &code)
}

/// A command in a terminal that runs the same script.
pub(super) fn command(e: &Evidence) -> String {
    let quoted = |word: &String| {
        let plain = |c: char| c.is_alphanumeric() || "_-./=:,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    if e.command.is_empty() {
        return "python train.py".to_owned();
    }
    e.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
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

/// The change of one of these kinds for the lines at which a stage spends its time.
pub(super) fn known<'e>(e: &'e Evidence, kinds: &[&str], stages: &[&StageTime]) -> Option<&'e Edit> {
    let culprits = stages.iter().flat_map(|stage| &stage.culprits);
    let frames: Vec<&Frame> = culprits
        .filter(|culprit| culprit.time > 0.0)
        .flat_map(|culprit| [Some(&culprit.frame), culprit.call.as_ref()])
        .flatten()
        .collect();
    let mut edits = e.edits.iter().filter(|edit| kinds.contains(&edit.kind.as_str()));
    edits.find(|edit| frames.iter().any(|frame| edit.is_at(frame)))
}

/// Whether a change is of a method of the loader's data set, or of one that it wraps.
pub(super) fn of_data_set(edit: &Edit, loader: &Loader) -> bool {
    let class = edit.func.split('.').next().unwrap_or_default();
    let mut words = loader.dataset.split(|c: char| !c.is_alphanumeric() && c != '_');
    !class.is_empty() && words.any(|word| word == class)
}

/// Whether a change can be made together with one of the lines at a place: it is in the same file, and in other lines.
pub(super) fn beside(edit: &Edit, place: &Place) -> bool {
    let last = |line: u32, code: &str| line + code.split('\n').count() as u32 - 1;
    let end = last(place.line, &place.code);
    let apart = |lines: &Lines| last(lines.line, &lines.code) < place.line || end < lines.line;
    place.call.is_some() && edit.file == place.file && edit.hunks.iter().all(apart)
}

/// The lines of a change, those at what is slow apart from the others.
pub(super) fn edited(edit: &Edit) -> (Option<Lines>, Vec<Lines>) {
    let mut lines = edit.hunks.clone();
    let at = lines.iter().rposition(|lines| lines.line <= edit.line);
    let first = at.map(|at| lines.remove(at));
    (first, lines)
}

/// A place of a frame.
pub(super) fn place_of(frame: &Frame) -> Place {
    Place { file: frame.file.clone(), line: frame.line, code: frame.call.clone(), ..Place::default() }
}

/// ` (its loader: file.py:12)`.
pub(super) fn where_made(place: &Place) -> String {
    let frame = Frame { file: place.file.clone(), line: place.line, ..Frame::default() };
    format!(" (its loader: {})", where_is(&frame))
}

/// `file.py:12`, by the last part of the path.
pub(super) fn where_is(frame: &Frame) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
    format!("{file}:{}", frame.line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{evidence::LoaderUse, record};

    #[test]
    fn arguments_are_added_or_replaced() {
        let add = |code| with_argument(code, "num_workers", "2");
        for (code, changed) in [
            ("DataLoader(train, 64)", "DataLoader(train, 64, num_workers=2)"),
            (
                "DataLoader(train, num_workers=0, shuffle=True)",
                "DataLoader(train, num_workers=2, shuffle=True)",
            ),
            ("DataLoader(train, num_workers = f(1, 2))", "DataLoader(train, num_workers = 2)"),
            ("DataLoader(train,)", "DataLoader(train, num_workers=2)"),
            ("DataLoader()", "DataLoader(num_workers=2)"),
            ("D(x, my_num_workers=1)", "D(x, my_num_workers=1, num_workers=2)"),
            ("D(Own(num_workers=1), 8)", "D(Own(num_workers=1), 8, num_workers=2)"),
            ("D(x, 8, True, None, None, 4)", "D(x, 8, True, None, None, 2)"),
            ("D(x, **options)", "D(x, **{**options, \"num_workers\": 2})"),
            ("D(x, num_workers=1, **options)", "D(x, num_workers=2, **options)"),
            (
                "D(\n    x,  # num_workers=1, (as before)\n    8  # small\n)",
                "D(\n    x,  # num_workers=1, (as before)\n    8, num_workers=2  # small\n)",
            ),
            ("D(x[')'], \"a, num_workers=3\")", "D(x[')'], \"a, num_workers=3\", num_workers=2)"),
            ("D('''a')''', key == 3)", "D('''a')''', key == 3, num_workers=2)"),
        ] {
            assert_eq!(add(code).as_deref(), Some(changed));
        }
        for unknown in ["loader", "D(*parts)", "D(x", "D(x) + D(y)", "D('x)"] {
            assert_eq!(add(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn lines_are_the_scripts_and_have_the_import_they_need() {
        let code = "    for x in DataLoader(ds, 4):  # all";
        let of = |call, wellfed: Option<&str>| {
            let place = Place {
                code: code.to_owned(),
                call,
                wellfed: wellfed.map(str::to_owned),
                ..Place::default()
            };
            let loader = record::Loader { place: Some(place), ..record::Loader::default() };
            let loaders = vec![LoaderUse { loader, ..LoaderUse::default() }];
            Evidence { loaders, subject: Some(0), ..Evidence::default() }
        };
        let e = of(Some([13, 30]), None);
        let workers = [("num_workers", "2".to_owned())];
        assert_eq!(loader_with(&e, &workers).0, "    for x in DataLoader(ds, 4, num_workers=2):  # all");
        assert_eq!(fed(&e).0, "    import wellfed\n    for x in wellfed.feed(DataLoader(ds, 4)):  # all");
        assert_eq!(fed(&of(Some([13, 30]), Some("wf"))).0, "    for x in wf.feed(DataLoader(ds, 4)):  # all");
        let given = |code: &str, name: Option<&str>| {
            let mut e = of(Some([7, code.len()]), name);
            e.loaders[0].loader.place.as_mut().unwrap().code = code.to_owned();
            csv(&e).0
        };
        let theirs = "data = tf.data.experimental.make_csv_dataset(\"a.csv\", 8)";
        assert_eq!(given(theirs, None), "import wellfed\ndata = wellfed.csv(\"a.csv\", 8).tf()");
        assert!(given("data = files.interleave(f(make_csv_dataset(x)))", Some("wf")).starts_with("# "));
        for unknown in [None, Some([13, 300])] {
            assert!(fed(&of(unknown, None)).0.starts_with("# "));
            assert!(loader_with(&of(unknown, None), &workers).0.starts_with("# "));
        }
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let command = ["python", "my train.py", "--name='a'"].map(str::to_owned).to_vec();
        let e = Evidence { command, ..Evidence::default() };
        assert_eq!(super::command(&e), r"python 'my train.py' '--name='\''a'\'''");
    }
}
