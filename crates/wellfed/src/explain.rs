//! The plan, the passes and the program as text.

use std::{fmt::Write as _, sync::Arc};

use crate::{
    Limits,
    groups::GroupSizes,
    io,
    order::Order,
    plan::{Node, Place, Plan, Program, PythonKind, RemoteCache, RowIndexing, Stages, Work, lower::Lowered},
    source::Source,
    transform::Transform,
};

/// What `explain()` shows: nothing hidden.
pub(crate) fn explain(
    (plan, sources): (&Plan, &[Arc<dyn Source>]),
    lowered: &Lowered,
    programs: &[Program],
    seeds: &[u64],
    order: &Order,
    stages: &Stages<'_>,
) -> String {
    let mut text = String::new();
    let count = order.len().map_or("without end".to_owned(), |n| n.to_string());
    let unit = if order.batched() { "batches" } else { "samples" };
    let _ = writeln!(text, "plan");
    tree(&mut text, &plan.root, 1, &mut Leaves { lowered, next: 0 });
    let mut different = seeds.to_vec();
    different.dedup();
    let different: Vec<String> = different.iter().map(u64::to_string).collect();
    let _ = writeln!(text, "  = {count} {unit} an epoch; transforms seeded with {}", different.join(", "));
    if let Some((verb, field)) = order.cut_by() {
        let _ = writeln!(
            text,
            "  {verb} cuts batches by the length of {field}: it walks the order once an epoch, at about 0.1 microseconds a \
             sample; len() and going on from a state walk from the beginning of the epoch"
        );
    }
    if order.padded() > 0 {
        let _ = writeln!(
            text,
            "  {} {} at the end of an epoch are given twice, so that all ranks have as many",
            order.padded(),
            if order.shards_batches() { "batches" } else { "samples" },
        );
    }
    for (samples, kept, fetched) in &lowered.filtered {
        let how = if *fetched { "each sample was fetched once for it" } else { "nothing was read for it" };
        let _ = writeln!(
            text,
            "  filter: {kept} of {samples} samples, found out when it was called; {how}; 8 bytes a kept sample"
        );
    }
    run(&mut text, stages, sources);
    let _ = writeln!(text, "passes");
    let notes: Vec<_> =
        programs.iter().enumerate().flat_map(|(leaf, p)| p.notes.iter().map(move |n| (leaf, n))).collect();
    let several = programs.len() > 1;
    if !plan.options.optimize {
        let _ = writeln!(text, "  none: optimize=False");
    } else if notes.is_empty() {
        let _ = writeln!(text, "  nothing to do");
    }
    for (leaf, note) in notes {
        let source = if several { format!(" of {}", lowered.sources[leaf].name()) } else { String::new() };
        let _ = writeln!(text, "  {} ({}{source}): {}", note.pass, note.field, note.change);
    }
    for (leaf, program) in programs.iter().enumerate() {
        let source = if several { format!(" of {}", lowered.sources[leaf].name()) } else { String::new() };
        let _ = writeln!(text, "program, for one sample{source} on one worker, all of it native");
        let _ = write!(text, "{program}");
    }
    for mixed in &lowered.output.mixed {
        let (image, label) = (&lowered.output.names[mixed.image], &lowered.output.names[mixed.label]);
        let _ = writeln!(text, "batches, by the worker that finishes one, in its place, all of it native");
        for transform in &mixed.transforms {
            let _ = writeln!(
                text,
                "  {transform}: each {image} and {label} with those before, drawn once a batch"
            );
        }
    }
    for source in &lowered.sources {
        storage(&mut text, &**source, plan, stages);
        for note in source.notes() {
            let _ = writeln!(text, "note: {}: {note}", source.name());
        }
        groups(&mut text, &**source);
    }
    for (leaf, cache) in lowered.leaves.iter().enumerate() {
        let Some(cache) = &cache.cache else { continue };
        let place = cache.path.as_ref().map_or("in memory".to_owned(), |path| format!("in {path}"));
        let source = if several { format!(" of {}", lowered.sources[leaf].name()) } else { String::new() };
        let _ = writeln!(
            text,
            "cache: JPEGs{source} are kept as coefficients without Huffman coding {place} when they are first made; \
             later epochs decode from them what fits, and the rest from files"
        );
    }
    let place = match &plan.options.row_index {
        RowIndexing::Memory => "in memory".to_owned(),
        RowIndexing::Beside => "in memory and in files beside the images".to_owned(),
        RowIndexing::Folder(folder) => format!("in memory and in files of {folder}"),
        RowIndexing::Off => return text,
    };
    if programs.iter().any(Program::decodes_regions) {
        let _ = writeln!(
            text,
            "row indexes: where the rows of a JPEG begin is noted when it is first decoded and kept {place}; \
             later decodes start at the first row they need"
        );
    }
    text
}

/// What is done to data, under the place where it is done. `sources` are those of the plan.
fn run(text: &mut String, stages: &Stages<'_>, sources: &[Arc<dyn Source>]) {
    let _ = writeln!(text, "stages, in the order of the data, by where they run");
    let mut sources = sources.iter();
    for (place, segment) in stages.segments() {
        let locked = stages.page_locked() && !matches!(place, Place::Device(_));
        let memory = if locked { "; batches in page-locked memory" } else { "" };
        let _ = writeln!(text, "  {place}{memory}");
        for stage in segment {
            let what = match (stage.work, place) {
                (Work::Node(Node::Source { .. }), _) => {
                    sources.next().map_or_else(String::new, |it| it.name())
                }
                (Work::Node(node), _) => describe(node),
                (Work::Copy, Place::Device(to)) if to.has_streams() => {
                    "copy, while the batch before it is used".to_owned()
                }
                (Work::Copy, _) => "copy, when a batch is asked for".to_owned(),
            };
            let _ = writeln!(text, "    {what}");
        }
    }
}

/// How the bytes of a source in a store that answers later are got. Nothing of local files: workers read them.
fn storage(text: &mut String, source: &dyn Source, plan: &Plan, stages: &Stages<'_>) {
    let groups = source.groups_store();
    let Some(remote) = groups.or(source.store()).and_then(|store| store.remote()) else { return };
    let _ = writeln!(text, "storage: {} lies in a store that answers later", source.name());
    if !stages.native() {
        let _ =
            writeln!(text, "  each worker reads by itself and waits, as it makes samples for Python steps");
        return;
    }
    let _ = writeln!(
        text,
        "  one thread asks for it ahead of the workers{}",
        needs(source, &plan.options.limits)
    );
    for fact in io::describe(&remote.retry(), remote.connections()) {
        let _ = writeln!(text, "  {fact}");
    }
    if let Ok(Some(RemoteCache { path, max_bytes })) = plan.options.remote_cache() {
        let most = max_bytes
            .map_or("half of what is free there".to_owned(), |bytes| format!("{:.1} MB", bytes as f64 / 1e6));
        let _ = writeln!(
            text,
            "  what has come is kept in {path} for all processes, in {most}: what is needed last goes first"
        );
    }
}

/// What it takes to reach a sample of a source that decodes many at once.
fn groups(text: &mut String, source: &dyn Source) {
    let Some(GroupSizes { count, samples, largest, all }) = source.groups().filter(|sizes| sizes.count > 0)
    else {
        return;
    };
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let _ = writeln!(
        text,
        "groups: {} decodes up to {samples} samples at once, about {} MiB; all of its {count} groups are {} MiB",
        source.name(),
        mib(largest),
        mib(all)
    );
    let _ = writeln!(
        text,
        "  they are kept in up to half of memory_budget; where not all fit, a shuffle of everything decodes groups over and \
         over, and shuffle(block_size={samples}, window=...) each group once an epoch"
    );
    if source.groups_store().is_some() {
        let _ = writeln!(
            text,
            "  those that are wanted next are asked for and decoded ahead, as far as there is room"
        );
    }
}

/// What the first sample needs, if that is known.
fn needs(source: &dyn Source, limits: &Limits) -> String {
    let mut extents = Vec::new();
    if source.is_empty() || source.locate(0, limits, &mut extents).is_err() {
        return String::new();
    }
    match (&extents[..], extents.len()) {
        ([], _) => String::new(),
        ([one], _) if one.range.is_none() => "; a sample is one object".to_owned(),
        (_, 1) => "; a sample is one range of an object".to_owned(),
        (_, ranges) => format!("; a sample like the first one is {ranges} ranges"),
    }
}

struct Leaves<'a> {
    lowered: &'a Lowered,
    next: usize,
}

/// A tree, verbs with one input below it and those with several above them, further in.
fn tree(text: &mut String, node: &Node, depth: usize, leaves: &mut Leaves<'_>) {
    let indent = "  ".repeat(depth);
    match node {
        Node::Source { .. } => {
            let source = &leaves.lowered.sources[leaves.next];
            leaves.next += 1;
            let _ = writeln!(text, "{indent}{}: {} samples", source.name(), source.len());
        }
        _ if node.takes_several() => {
            let _ = writeln!(text, "{indent}{}", describe(node));
            node.inputs().iter().for_each(|input| tree(text, input, depth + 1, leaves));
        }
        _ => {
            leaves.next += usize::from(matches!(node, Node::Enumerate { .. }));
            node.inputs().iter().for_each(|input| tree(text, input, depth, leaves));
            let _ = writeln!(text, "{indent}.{}", describe(node));
        }
    }
}

/// A verb as it is written in Python.
pub(crate) fn describe(node: &Node) -> String {
    match node {
        Node::Source { .. } => "source".to_owned(),
        Node::Shuffle { seed, block_size, window, reshuffle_each_iteration: anew, .. } => {
            let blocks = block_size.map(|size| format!(", block_size={size}, window={window}"));
            let fixed = if *anew { "" } else { ", reshuffle_each_iteration=False" };
            format!("shuffle(seed={seed}{}{fixed})", blocks.unwrap_or_default())
        }
        Node::Map { field, transforms, .. } => {
            let mut parts: Vec<String> = transforms.iter().map(Transform::to_string).collect();
            parts.extend(field.as_ref().map(|name| format!("field={name:?}")));
            format!("map({})", parts.join(", "))
        }
        Node::Mix { transforms, .. } => {
            let parts: Vec<String> = transforms.iter().map(ToString::to_string).collect();
            format!("map({})", parts.join(", "))
        }
        Node::Cache { path, max_bytes, .. } => {
            let mut parts = vec!["decoded=\"coefficients\"".to_owned()];
            parts.extend(path.as_ref().map(|path| format!("path={path:?}")));
            parts.extend(max_bytes.map(|bytes| format!("max_bytes={bytes}")));
            format!("cache({})", parts.join(", "))
        }
        Node::Batch { batch_size, drop_last: false, .. } => format!("batch({batch_size})"),
        Node::Batch { batch_size, drop_last: true, .. } => format!("batch({batch_size}, drop_last=True)"),
        Node::PaddedBatch { batch_size, .. } => format!("padded_batch({batch_size})"),
        Node::RaggedBatch { batch_size, .. } => format!("ragged_batch({batch_size})"),
        Node::BucketBySequenceLength { field, bucket_boundaries, bucket_batch_sizes, .. } => format!(
            "bucket_by_sequence_length({}, {bucket_boundaries:?}, {bucket_batch_sizes:?})",
            field.as_ref().map_or("None".to_owned(), |field| format!("{field:?}"))
        ),
        Node::BatchByTokens { max_tokens, .. } => format!("batch_by_tokens({max_tokens})"),
        Node::BatchByDuration { max_duration, max_samples, bucket_boundaries, .. } => {
            let mut parts = vec![max_duration.map_or("None".to_owned(), |seconds| seconds.to_string())];
            match max_samples[..] {
                [] => {}
                [one] => parts.push(format!("max_samples={one}")),
                _ => parts.push(format!("max_samples={max_samples:?}")),
            }
            if !bucket_boundaries.is_empty() {
                parts.push(format!("bucket_boundaries={bucket_boundaries:?}"));
            }
            format!("batch_by_duration({})", parts.join(", "))
        }
        Node::Repeat { count: None, .. } => "repeat()".to_owned(),
        Node::Repeat { count: Some(count), .. } => format!("repeat({count})"),
        Node::Take { count, .. } => format!("take({count})"),
        Node::Skip { count, .. } => format!("skip({count})"),
        Node::Shard { rank, world_size, .. } => format!("shard(rank={rank}, world_size={world_size})"),
        Node::Filter { field, values, min, max, .. } => {
            let mut parts = vec![format!("field={field:?}")];
            parts.extend(values.as_ref().map(|values| format!("values={values:?}")));
            parts.extend(min.map(|min| format!("min={min}")));
            parts.extend(max.map(|max| format!("max={max}")));
            format!("filter({})", parts.join(", "))
        }
        Node::Unbatch { .. } => "unbatch()".to_owned(),
        Node::Enumerate { start, .. } => format!("enumerate({start})"),
        Node::PythonFilter { name, kept, .. } => {
            format!(
                "filter({name}): keeps {} of {}, as one pass over them found",
                kept.positions().len(),
                kept.of()
            )
        }
        Node::Python { kind: PythonKind::Map, name, field, .. } => {
            let field = field.as_ref().map_or(String::new(), |name| format!(", field={name:?}"));
            format!("map({name}{field})  # Python")
        }
        Node::Python { kind: PythonKind::Collate, name, .. } => format!("collate_fn={name}  # Python"),
        Node::Zip { inputs } => format!("zip of {}", inputs.len()),
        Node::Concatenate { inputs } => format!("concatenate of {}", inputs.len()),
        Node::Interleave { block_length, inputs } => {
            format!("interleave(block_length={block_length}) of {}", inputs.len())
        }
        Node::SampleFromDatasets { weights, seed, stop_on_empty_dataset, inputs } => format!(
            "sample_from_datasets(weights={weights:?}, seed={seed}{}) of {}",
            if *stop_on_empty_dataset { ", stop_on_empty_dataset=True" } else { "" },
            inputs.len()
        ),
    }
}
