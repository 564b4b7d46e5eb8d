//! The documents about `--json`, generated from the report's types: `docs/doctor.schema.json` and `docs/doctor-json.md`.
//!
//! The tests here fail when the committed documents are not those of the types; with `UPDATE_DOCS=1` they write them.

use std::{env, fmt::Write as _, fs, path::Path};

use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Map, Value};

use crate::report::{Report, SCHEMA};

/// What stands before the tables.
const INTRODUCTION: &str = r#"# What `wellfed doctor run --json` writes

One JSON object, the report: what the terminal and the page show, with all digits. [doctor.schema.json](doctor.schema.json)
is its JSON Schema (draft 2020-12). Both are generated from the types in `crates/wellfed-doctor/src/report.rs`; a test
keeps them so (`UPDATE_DOCS=1 cargo test -p wellfed-doctor schema` writes them anew).

```console
$ wellfed doctor run --json report.json train.py
$ jq -r '.verdict | .id, .fix.change, .gain.factor' report.json
serial-loading
loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=2)
1.83
```

- Times are seconds, rates are per second, shares go from 0 to 1, sizes are bytes, unless a field says otherwise.
- All fields are always there; what is not known is `null`, an empty list, an empty string or 0, as its field says.
- `schema` changes its number when a field changes its meaning or goes. New fields come without notice: readers ignore
  those they do not know.
- Text that comes from the script (paths, code, exceptions) is as the script has it. Escape it before you show it.
"#;

fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema: Schema = generator.into_root_schema_for::<Report>();
    schema.insert("$id".to_owned(), SCHEMA.into());
    let mut schema = schema.to_value();
    tidy(&mut schema);
    schema
}

/// Leaves out what only repeats the type: formats of numbers, and defaults, which are what an empty report has.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let is_schema =
                object.contains_key("type") || object.contains_key("$ref") || object.contains_key("anyOf");
            if is_schema && !object.get("type").is_some_and(Value::is_object) {
                object.remove("default");
                object.remove("format");
            }
            object.values_mut().for_each(tidy);
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// The page: a table for each type, in the order in which they come up.
fn page(schema: &Value) -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut names = vec!["Report".to_owned()];
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        next += 1;
        let object = if name == "Report" { schema } else { &schema["$defs"][&name] };
        let object = object.as_object().expect("a type");
        write!(page, "\n## {name}\n\n{}\n", text(object)).expect("strings take all");
        page.push_str("\n| field | type | meaning |\n| --- | --- | --- |\n");
        let properties = object["properties"].as_object().expect("a struct");
        for field in in_order(object, properties) {
            let property = properties[&field].as_object().expect("a property");
            let mut used = Vec::new();
            let kind = kind(property, &mut used);
            for name in used {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            writeln!(page, "| `{field}` | {kind} | {} |", text(property).replace('|', "\\|"))
                .expect("strings take all");
        }
    }
    page
}

/// Fields as they were declared, those that can be left out last.
fn in_order(object: &Map<String, Value>, properties: &Map<String, Value>) -> Vec<String> {
    let required = object.get("required").and_then(Value::as_array).into_iter().flatten();
    let mut fields: Vec<_> = required.filter_map(|field| Some(field.as_str()?.to_owned())).collect();
    let rest: Vec<_> = properties.keys().filter(|field| !fields.contains(field)).cloned().collect();
    fields.extend(rest);
    fields
}

/// A description on one line, without the brackets of links to other items.
fn text(object: &Map<String, Value>) -> String {
    let text = object.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text == "[`SCHEMA`]." {
        return format!("`{SCHEMA}`.");
    }
    text.replace("[`", "`").replace("`]", "`")
}

/// A type in words. Types that have a table of their own are added to `used`.
fn kind(property: &Map<String, Value>, used: &mut Vec<String>) -> String {
    if let Some(reference) = property.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().expect("there is one").to_owned();
        used.push(name.clone());
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = property.get("anyOf").and_then(Value::as_array) {
        let choices: Vec<_> =
            choices.iter().map(|choice| kind(choice.as_object().expect("a type"), used)).collect();
        return choices.join(" or ");
    }
    let one = |name: &str, used: &mut Vec<String>| match name {
        "array" => {
            let inner = property.get("items").and_then(Value::as_object).map(|items| kind(items, used));
            match property.get("maxItems") {
                Some(n) => format!("{n} times {}", inner.unwrap_or_default()),
                None => format!("list of {}", inner.unwrap_or_else(|| "anything".to_owned())),
            }
        }
        "object" => {
            let inner = property
                .get("additionalProperties")
                .and_then(Value::as_object)
                .map(|value| kind(value, used));
            format!(
                "object of {}",
                inner.filter(|inner| !inner.is_empty()).unwrap_or_else(|| "anything".to_owned())
            )
        }
        name => name.to_owned(),
    };
    match property.get("type") {
        Some(Value::String(name)) => one(name, used),
        Some(Value::Array(names)) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).map(|name| one(name, used)).collect();
            names.join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

/// Compares a committed document with what it must be.
fn check(name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(&path, wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    let hint = "UPDATE_DOCS=1 cargo test -p wellfed-doctor schema";
    assert!(found == wanted, "docs/{name} is not what the types say\nhint: {hint}");
}

#[test]
fn the_schema_is_current() {
    check("doctor.schema.json", &(serde_json::to_string_pretty(&schema()).unwrap() + "\n"));
}

#[test]
fn the_page_is_current_and_says_what_each_field_is() {
    let page = page(&schema());
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        assert!(!line.ends_with("|  |"), "no meaning: {line}");
    }
    check("doctor-json.md", &page);
}

#[test]
fn kept_reports_have_the_fields_that_are_documented() {
    fn compare(name: &str, value: &Value, schema: &Value, root: &Value) {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = reference.rsplit('/').next().unwrap();
            return compare(name, value, &root["$defs"][target], root);
        }
        if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
            if !value.is_null() {
                compare(name, value, &choices[0], root);
            }
            return;
        }
        match value {
            Value::Object(object) => {
                let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
                for (key, value) in object {
                    let property =
                        properties.get(key).unwrap_or_else(|| panic!("{name}.{key} is not documented"));
                    compare(&format!("{name}.{key}"), value, property, root);
                }
            }
            Value::Array(list) => {
                list.iter().for_each(|value| compare(&format!("{name}[]"), value, &schema["items"], root));
            }
            _ => {}
        }
    }
    let schema = schema();
    for name in ["input_bound", "healthy", "failed", "two_ranks"] {
        let written = serde_json::to_value(super::tests::kept(name)).unwrap();
        compare(name, &written, &schema, &schema);
    }
}
