//! Which fields are written; and in tar shards, which files they become: an extension for every field, by which readers know
//! what it is.
//!
//! Invariant: what is read back has the kind of what was written, and no two fields have one extension.

use std::collections::HashMap;

use serde::Serialize;

use crate::{
    Error, Result,
    sample::{DType, FieldKind},
    source::kind_of_extension as kind_of,
};

/// Longest name of a field.
const LONGEST: usize = 64;

/// A field that is written.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// Its place among the columns.
    pub(super) column: usize,
    pub(super) name: String,
    pub(super) kind: FieldKind,
}

/// What the file of a field is called behind the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Extension {
    /// This, and what the bytes are: `jpg`, `png`, `wfpc`, or `npy` for what is no longer an 8-bit image.
    Image(String),
    /// This.
    Is(String),
}

/// Fields that go by the plain extension of their kind.
fn usual(kind: &str) -> &'static [&'static str] {
    match kind {
        "image" => &["image", "img", "picture", "photo", "pixels"],
        "cls" => &["label", "labels", "target", "targets", "class", "y"],
        "txt" => &["text", "caption"],
        "json" => &["json", "meta", "metadata"],
        "npy" => &["array"],
        _ => &[],
    }
}

/// The fields that samples with these columns are written as. Keys and addresses of other shards are no fields.
///
/// # Errors
/// [`crate::ErrorKind::Config`] if there is none, or one has no name.
pub(super) fn fields(names: &[String], kinds: &[FieldKind]) -> Result<Vec<Field>> {
    let there = names.iter().zip(kinds).enumerate().filter(|(_, (name, _))| !is_about_shards(name));
    let field = |(column, (name, kind)): (usize, (&String, &FieldKind))| Field {
        column,
        name: name.clone(),
        kind: kind.clone(),
    };
    let all: Vec<Field> = there.map(field).collect();
    if all.is_empty() {
        return Err(Error::config("samples have no field to write"));
    }
    if let Some(field) = all.iter().find(|field| field.kind == FieldKind::Audio) {
        return Err(Error::config(format!("{} is a sound, and sounds are not written", field.name)));
    }
    if all.iter().any(|field| field.name.is_empty()) {
        return Err(Error::config("a field without a name cannot be written").with_hint("give it a name"));
    }
    Ok(all)
}

/// What the files of these fields are called.
///
/// # Errors
/// [`crate::ErrorKind::Config`] for a kind or a name that has no form in a shard.
pub(super) fn extensions(fields: &[Field]) -> Result<Vec<Extension>> {
    let there = || fields.iter().map(|field| (field.column, &field.name, &field.kind));
    // The first of the usual names gets the plain extension, if no other field has that for its name.
    let mut plain: HashMap<&str, usize> = HashMap::new();
    for (column, name, kind) in there() {
        let of = class(kind);
        let own = own_extension(&name.to_lowercase(), of).is_some_and(|e| e == of || e.is_empty());
        if own || (usual(of).contains(&&*name.to_lowercase()) && !plain.contains_key(of)) {
            plain.insert(of, column);
        }
    }
    let mut taken: HashMap<String, &str> = HashMap::new();
    let mut all = Vec::new();
    for (column, name, kind) in there() {
        check(name, kind)?;
        let (lower, of) = (name.to_lowercase(), class(kind));
        let extension = match own_extension(&lower, of) {
            _ if plain.get(of) == Some(&column) && of == "image" => Extension::Image(String::new()),
            Some(prefix) if of == "image" => Extension::Image(prefix),
            None if of == "image" || of == "mask" => Extension::Image(format!("{lower}.")),
            Some(own) => Extension::Is(own),
            None if plain.get(of) == Some(&column) => Extension::Is(of.to_owned()),
            None => Extension::Is(format!("{lower}.{of}")),
        };
        let files = match &extension {
            Extension::Is(extension) => vec![extension.clone()],
            Extension::Image(prefix) => {
                ["jpg", "jpeg", "png", "wfpc", "npy"].map(|e| format!("{prefix}{e}")).to_vec()
            }
        };
        for file in files {
            if let Some(other) = taken.insert(file.clone(), name) {
                return Err(Error::config(format!("fields {other} and {name} would both be files .{file}"))
                    .with_hint("give them other names"));
            }
        }
        all.push(extension);
    }
    Ok(all)
}

fn is_about_shards(name: &str) -> bool {
    matches!(name, "__key__" | "__url__")
}

/// The usual extension of a kind; `image` and `mask` where the bytes decide.
fn class(kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::Image | FieldKind::Pixels { .. } => "image",
        FieldKind::Mask { .. } => "mask",
        FieldKind::Scalar { dtype: DType::Int64 } => "cls",
        FieldKind::Text => "txt",
        FieldKind::Json => "json",
        FieldKind::Bytes | FieldKind::Audio => "bin",
        FieldKind::Scalar { .. }
        | FieldKind::Array { .. }
        | FieldKind::Boxes { .. }
        | FieldKind::BoxLabels { .. }
        | FieldKind::Keypoints => "npy",
    }
}

/// What a field is called as a file if its name says its kind already: `count`, `caption.txt`. Of images what stands before
/// that: `left.` of `left.png`.
fn own_extension(lower: &str, class: &str) -> Option<String> {
    let last = lower.rsplit('.').next().unwrap_or(lower);
    let array = last == "npy";
    let kind = kind_of(lower);
    match class {
        "image" => (kind == FieldKind::Image).then(|| lower[..lower.len() - last.len()].to_owned()),
        "cls" => (kind == FieldKind::LABEL).then(|| lower.to_owned()),
        "txt" => (kind == FieldKind::Text && last == "txt").then(|| lower.to_owned()),
        "json" => (kind == FieldKind::Json).then(|| lower.to_owned()),
        "bin" => (kind == FieldKind::Bytes && !array).then(|| lower.to_owned()),
        "npy" => array.then(|| lower.to_owned()),
        _ => None,
    }
}

fn check(name: &str, kind: &FieldKind) -> Result<()> {
    let fine = !name.is_empty() && name.len() <= LONGEST && !name.starts_with('.') && !name.ends_with('.');
    if !fine || name.contains(|c: char| c == '/' || c.is_control()) {
        return Err(Error::config(format!("field {name:?} cannot be written: its name is no extension"))
            .with_hint("give it another name, of letters and digits"));
    }
    let dtype = match kind {
        FieldKind::Array { dtype, .. }
        | FieldKind::Scalar { dtype }
        | FieldKind::Boxes { dtype, .. }
        | FieldKind::BoxLabels { dtype } => Some(*dtype),
        _ => None,
    };
    if dtype == Some(DType::BFloat16) {
        return Err(Error::config(format!("field {name} cannot be written: npy files know no bfloat16"))
            .with_hint("convert it to float32"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(given: &[(&str, FieldKind)]) -> Result<Vec<String>> {
        let names: Vec<String> = given.iter().map(|(name, _)| (*name).to_owned()).collect();
        let kinds: Vec<FieldKind> = given.iter().map(|(_, kind)| kind.clone()).collect();
        let shown = |extension: Extension| match extension {
            Extension::Image(prefix) => format!("{prefix}*"),
            Extension::Is(extension) => extension,
        };
        Ok(extensions(&fields(&names, &kinds)?)?.into_iter().map(shown).collect())
    }

    #[test]
    fn extensions_say_what_fields_are() {
        use FieldKind::{Bytes, Image, Json, Text};
        const LABEL: FieldKind = FieldKind::LABEL;
        let float = FieldKind::array(DType::Float32, &[2]);
        for (given, expected) in [
            (vec![("image", Image), ("label", LABEL)], vec!["*", "cls"]),
            (vec![("__key__", Text), ("jpg", Image), ("cls", LABEL), ("__url__", Text)], vec!["*", "cls"]),
            (vec![("left.png", Image), ("right.png", Image)], vec!["left.*", "right.*"]),
            (vec![("image", Image), ("image_1", Image)], vec!["*", "image_1.*"]),
            (vec![("image", Image), ("jpg", Image)], vec!["image.*", "*"]),
            (vec![("0", LABEL), ("1", float.clone())], vec!["0.cls", "1.npy"]),
            (vec![("label", LABEL), ("cls", LABEL)], vec!["label.cls", "cls"]),
            (vec![("count", LABEL), ("label", LABEL)], vec!["count", "cls"]),
            (
                vec![("text", Text), ("caption", Text), ("Title", Text)],
                vec!["txt", "caption.txt", "title.txt"],
            ),
            (vec![("meta", Json), ("x.json", Json)], vec!["json", "x.json"]),
            (vec![("mp3", Bytes), ("npy", Bytes), ("jpg", Bytes)], vec!["mp3.bin", "npy.bin", "jpg.bin"]),
            (vec![("array", float.clone()), ("x.npy", float.clone())], vec!["npy", "x.npy"]),
            (vec![("w", FieldKind::Scalar { dtype: DType::Float32 })], vec!["w.npy"]),
            (vec![("mask", FieldKind::Mask { dtype: DType::UInt8, grey: false })], vec!["mask.*"]),
        ] {
            assert_eq!(made(&given).unwrap(), expected, "{given:?}");
        }
        for wrong in [
            vec![("a/b", LABEL)],
            vec![("", LABEL)],
            vec![("X", LABEL), ("x", LABEL)],
            vec![("__key__", Text)],
            vec![("x", FieldKind::array(DType::BFloat16, &[2]))],
        ] {
            assert_eq!(made(&wrong).unwrap_err().kind(), crate::ErrorKind::Config, "{wrong:?}");
        }
    }
}
