//! Who may know whom: a module of the crate imports only modules that stand before it in these lists, so that there are
//! no circles. What the layers are for says ARCHITECTURE.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Modules of the crate, the lowest first.
const CRATE: [&str; 22] = [
    // What everything stands on.
    "error",
    "limits",
    "rng",
    "budget",
    "memory",
    "meter",
    // Bytes.
    "store",
    "io",
    "groups",
    // Samples: what they are, and what can be done to one.
    "sample",
    "column",
    "codec",
    "transform",
    "source",
    // What to do, in which order, and doing it.
    "plan",
    "order",
    "engine",
    // What users hold.
    "explain",
    "dataset",
    "sampler",
    "sequence",
    "write",
];

/// Modules of `plan`.
const PLAN: [&str; 14] = [
    "options",
    "kept",
    "pad",
    "node",
    "place",
    "zipped",
    "outline",
    "audio",
    "field",
    "assembly",
    "mixed",
    "lower",
    "optimizer",
    "program",
];

/// Modules of `engine`.
const ENGINE: [&str; 32] = [
    "threads",
    "governor",
    "pace",
    "ring",
    "batch",
    "left",
    "mix",
    "stack",
    "job",
    "fold",
    "recipe",
    "kernel",
    "whole",
    "float",
    "tensorflow",
    "image",
    "audio",
    "cache",
    "single",
    "exec",
    "open",
    "leave",
    "recipes",
    "foresight",
    "shares",
    "schedule",
    "epochs",
    "ahead",
    "shared",
    "remote",
    "warm",
    "loader",
];

type ModulePath = Vec<String>;

/// Every module outside of tests, with its text. The crate's root is the empty path.
fn modules() -> BTreeMap<ModulePath, String> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path.strip_prefix(root).unwrap().with_extension(""));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    let mut all = BTreeMap::new();
    for file in found {
        let text = fs::read_to_string(root.join(&file).with_extension("rs")).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        // Tests stand last, and may use everything.
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        let mut path: ModulePath = file.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(path.last().map(String::as_str), Some("mod" | "lib")) {
            path.pop();
        }
        all.insert(path, code);
    }
    // Modules that only tests have.
    let only: BTreeSet<ModulePath> = all
        .iter()
        .flat_map(|(path, code)| {
            code.split("#[cfg(test)]\n").skip(1).filter_map(move |rest| {
                let name = rest.lines().next()?.trim().split("mod ").nth(1)?.strip_suffix(';')?;
                Some([&path[..], &[name.to_owned()]].concat())
            })
        })
        .collect();
    all.retain(|path, _| !only.contains(path));
    all
}

/// Reads the paths of a `use` tree, or a single path; gives what is left of the text.
fn paths<'a>(text: &'a str, before: &[String], found: &mut Vec<ModulePath>) -> &'a str {
    let mut path = before.to_vec();
    let mut text = text.trim_start();
    loop {
        if let Some(mut rest) = text.strip_prefix('{') {
            while !rest.trim_start().starts_with('}') && !rest.is_empty() {
                rest = paths(rest, &path, found);
                rest = rest.trim_start_matches(|c| c != ',' && c != '}');
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            return rest.trim_start().strip_prefix('}').unwrap_or_default();
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        path.push(text[..end].to_owned());
        match text[end..].strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                found.push(path);
                return &text[end..];
            }
        }
    }
}

/// All paths in `code` of module `at` that name something of this crate, from the crate's root on.
fn named(at: &[String], code: &str) -> Vec<ModulePath> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = ["crate::", "super::", "self::"].iter().filter_map(|word| rest.find(word)).min() {
        let whole_word = !rest[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        rest = if whole_word { paths(&rest[start..], &[], &mut found) } else { &rest[start + 1..] };
    }
    found.into_iter().map(|path| absolute(at, path)).collect()
}

fn absolute(at: &[String], path: ModulePath) -> ModulePath {
    let mut base = at.to_vec();
    let mut names = path.into_iter().peekable();
    while let Some(word) = names.next_if(|name| matches!(name.as_str(), "crate" | "self" | "super")) {
        match word.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            _ => {}
        }
    }
    base.extend(names);
    base
}

/// What modules hand on by `pub use`: the name where it stands, and what it is.
fn handed_on(modules: &BTreeMap<ModulePath, String>) -> BTreeMap<ModulePath, ModulePath> {
    let mut all = BTreeMap::new();
    for (at, code) in modules {
        for word in ["pub use ", "pub(crate) use ", "pub(super) use "] {
            for text in code.split(word).skip(1) {
                let mut found = Vec::new();
                paths(text, &[], &mut found);
                for path in found {
                    let name = [&at[..], &[path.last().unwrap().clone()]].concat();
                    all.insert(name, absolute(at, path));
                }
            }
        }
    }
    all
}

/// Pairs of modules of which the first imports the second.
fn imports() -> BTreeSet<(ModulePath, ModulePath)> {
    let modules = modules();
    let handed_on = handed_on(&modules);
    let home = |mut path: ModulePath| {
        let mut len = path.len();
        loop {
            // A module may hand on something of its own name.
            if let Some(target) =
                handed_on.get(&path[..len]).filter(|target| !target.starts_with(&path[..len]))
            {
                path = target.clone();
                len = path.len();
            } else if modules.contains_key(&path[..len]) {
                return path[..len].to_vec();
            } else {
                len -= 1;
            }
        }
    };
    let of = |(at, code): (&ModulePath, &String)| -> Vec<(ModulePath, ModulePath)> {
        named(at, code).into_iter().map(|path| (at.clone(), home(path))).collect()
    };
    modules.iter().flat_map(of).collect()
}

/// Checks the modules below `parent`: all of them stand in `layers`, and none imports what stands after it.
fn check(parent: &[&str], layers: &[&str]) {
    let child = |path: &ModulePath| -> Option<String> {
        let below = path.len() > parent.len() && path.iter().zip(parent).all(|(a, b)| a == b);
        below.then(|| path[parent.len()].clone())
    };
    let place = |name: &str| {
        layers
            .iter()
            .position(|layer| *layer == name)
            .unwrap_or_else(|| panic!("{name} stands in no layer of {parent:?}: add it to tests/layers.rs"))
    };
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (from, to) in imports() {
        let (Some(upper), Some(lower)) = (child(&from), child(&to)) else { continue };
        if place(&lower) > place(&upper) {
            wrong.push(format!("{} imports {}", from.join("::"), to.join("::")));
        }
        seen.extend([upper, lower]);
    }
    assert!(wrong.is_empty(), "a lower layer imports an upper one:\n{}", wrong.join("\n"));
    assert!(seen.len() * 2 > layers.len(), "only {seen:?} import anything: are imports found at all?");
}

#[test]
fn no_module_imports_what_stands_above_it() {
    check(&[], &CRATE);
}

#[test]
fn no_module_of_the_plan_imports_what_stands_above_it() {
    check(&["plan"], &PLAN);
}

#[test]
fn no_module_of_the_engine_imports_what_stands_above_it() {
    check(&["engine"], &ENGINE);
}

#[test]
fn nested_imports_and_names_that_are_handed_on_are_found() {
    let at = ["engine".to_owned(), "exec".to_owned()];
    let code = "use super::{\n    cache::{Caches, self},\n    image as other,\n};\nlet x = crate::plan::Node::leaf(); my_crate::no();";
    let found: Vec<String> = named(&at, code).into_iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["engine::cache::Caches", "engine::cache::self", "engine::image", "plan::Node::leaf"]);
    let loader = (vec!["sampler".to_owned()], vec!["engine".to_owned(), "batch".to_owned()]);
    assert!(imports().contains(&loader), "engine::Batch is of engine::batch");
}
