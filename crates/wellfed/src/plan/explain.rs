//! The plan, the passes and the program as text.

use std::fmt::Write as _;

use super::{Plan, Program, RowIndexing, Verb};
use crate::{order::Order, source::Source, transform::Transform};

/// What `explain()` shows: nothing hidden.
pub(crate) fn explain(plan: &Plan, program: &Program, order: &Order, source: &dyn Source) -> String {
    let mut text = String::new();
    let count = order.len().map_or("without end".to_owned(), |n| n.to_string());
    let unit = if order.batched() { "batches" } else { "samples" };
    let _ = writeln!(text, "plan");
    let _ = writeln!(text, "  {}: {} samples", source.name(), source.len());
    for verb in &plan.verbs {
        let _ = writeln!(text, "  .{}", describe(verb));
    }
    let _ = writeln!(text, "  = {count} {unit} an epoch; transforms seeded with {}", plan.seed());
    if order.padded() > 0 {
        let _ = writeln!(
            text,
            "  {} samples at the end of an epoch are given twice, so that all ranks have as many",
            order.padded()
        );
    }
    let _ = writeln!(text, "passes");
    if !plan.options.optimize {
        let _ = writeln!(text, "  none: optimize=False");
    } else if program.notes.is_empty() {
        let _ = writeln!(text, "  nothing to do");
    }
    for note in &program.notes {
        let _ = writeln!(text, "  {} ({}): {}", note.pass, note.field, note.change);
    }
    let _ = writeln!(text, "program, for one sample on one worker, all of it native");
    let _ = write!(text, "{program}");
    if let Ok(Some((path, _))) = plan.cache() {
        let place = path.map_or("in memory".to_owned(), |path| format!("in {path}"));
        let _ = writeln!(
            text,
            "cache: JPEGs are kept as coefficients without Huffman coding {place} when they are first made; later \
             epochs decode from them what fits, and the rest from files"
        );
    }
    let place = match &plan.options.row_index {
        RowIndexing::Memory => "in memory".to_owned(),
        RowIndexing::Beside => "in memory and in files beside the images".to_owned(),
        RowIndexing::Folder(folder) => format!("in memory and in files of {folder}"),
        RowIndexing::Off => return text,
    };
    if program.decodes_regions() {
        let _ = writeln!(
            text,
            "row indexes: where the rows of a JPEG begin is noted when it is first decoded and kept {place}; \
             later decodes start at the first row they need"
        );
    }
    text
}

/// A verb as it is written in Python.
pub(crate) fn describe(verb: &Verb) -> String {
    match verb {
        Verb::Shuffle { seed } => format!("shuffle(seed={seed})"),
        Verb::Map { field, transforms } => {
            let mut parts: Vec<String> = transforms.iter().map(Transform::to_string).collect();
            parts.extend(field.as_ref().map(|name| format!("field={name:?}")));
            format!("map({})", parts.join(", "))
        }
        Verb::Cache { path, max_bytes, .. } => {
            let mut parts = vec!["decoded=\"coefficients\"".to_owned()];
            parts.extend(path.as_ref().map(|path| format!("path={path:?}")));
            parts.extend(max_bytes.map(|bytes| format!("max_bytes={bytes}")));
            format!("cache({})", parts.join(", "))
        }
        Verb::Batch { batch_size, drop_last: false } => format!("batch({batch_size})"),
        Verb::Batch { batch_size, drop_last: true } => format!("batch({batch_size}, drop_last=True)"),
        Verb::Repeat { count: None } => "repeat()".to_owned(),
        Verb::Repeat { count: Some(count) } => format!("repeat({count})"),
        Verb::Take { count } => format!("take({count})"),
        Verb::Skip { count } => format!("skip({count})"),
        Verb::Shard { rank, world_size } => format!("shard(rank={rank}, world_size={world_size})"),
    }
}
