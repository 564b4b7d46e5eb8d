//! Pushes what happens to samples down to the leaves: every leaf gets the transforms, the seed and the cache that stand
//! on its way to the root, and learns which columns of a batch it writes. What is left of the tree is order only.
//!
//! Invariant: what a leaf gets depends on its way to the root alone, so a sibling changes none of its draws.

use std::sync::Arc;

use super::{Decoded, Mixed, Node, PythonKind, not_straight_from_batch};
use crate::{
    Error, Result,
    sample::{FieldKind, Structure},
    source::{Source, SourceSpec},
    transform::{Mixing, Takes, Transform},
};

/// What the elements of a data set are.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Names of the columns, in order. No two are the same.
    pub names: Vec<String>,
    /// How they are handed out.
    pub structure: Structure,
    /// Kinds of the fields they come from.
    pub kinds: Vec<FieldKind>,
    /// Whether elements are batches.
    pub batched: bool,
    /// What is done to finished batches.
    pub mixed: Vec<Mixed>,
    /// Whether Python makes them, wholly or in part: then columns say nothing of them.
    pub python: bool,
}

/// Transforms of one `map`.
#[derive(Clone, Debug)]
pub(crate) struct LeafMap {
    /// The fields they work on, by their place in the schema of the leaf.
    pub(crate) fields: Vec<usize>,
    pub(crate) transforms: Vec<Transform>,
}

/// What is kept of a leaf's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafCache {
    pub(crate) path: Option<String>,
    pub(crate) max_bytes: Option<u64>,
    /// Leaves that share the limit.
    pub(crate) shared_by: u64,
}

/// A leaf and what happens to its samples on the way to the root.
#[derive(Clone, Debug)]
pub(crate) struct LeafPlan {
    pub(crate) maps: Vec<LeafMap>,
    /// Seed of the shuffle next to the root on the way there.
    pub(crate) seed: Option<u64>,
    pub(crate) cache: Option<LeafCache>,
    /// The first column that it writes.
    pub(crate) first_column: usize,
    /// What its fields are called where the walk stands.
    names: Vec<String>,
    kinds: Vec<FieldKind>,
}

/// A plan whose leaves have got what happens to their samples.
pub(crate) struct Lowered {
    /// Every leaf, those that count for `enumerate` included.
    pub(crate) sources: Vec<Arc<dyn Source>>,
    pub(crate) leaves: Vec<LeafPlan>,
    pub(crate) output: Output,
    /// What tells leaves apart: of equal ones each has another. Empty until it is asked for.
    pub(crate) identities: Vec<u64>,
    /// For every `filter`: of how many samples it keeps how many, and whether they had to be fetched.
    pub(crate) filtered: Vec<(u64, u64, bool)>,
}

/// Follows all leaves to the root. `sources` are those of the leaves, depth first, as [`leaves`] gives them.
pub(crate) fn lower(root: &Node, sources: &[Arc<dyn Source>]) -> Result<(Vec<LeafPlan>, Output)> {
    let mut lowering = Lowering { sources, leaves: Vec::new() };
    let output = lowering.node(root)?;
    Ok((lowering.leaves, output))
}

struct Lowering<'a> {
    sources: &'a [Arc<dyn Source>],
    leaves: Vec<LeafPlan>,
}

impl Lowering<'_> {
    fn node(&mut self, node: &Node) -> Result<Output> {
        let first = self.leaves.len();
        match node {
            Node::Source { .. } => self.leaf(),
            Node::Enumerate { input, .. } => {
                let number = self.leaf()?;
                let output = self.node(input)?;
                if output.batched {
                    return Err(after_batch("enumerate"));
                }
                Ok(self.side_by_side(vec![(first, number), (first + 1, output)]))
            }
            Node::Zip { inputs } => {
                let mut parts = Vec::new();
                for input in inputs {
                    let part = (self.leaves.len(), self.node(input)?);
                    not_mixed("zip", &part.1)?;
                    if part.1.batched {
                        return Err(not_straight_from_batch(inputs));
                    }
                    parts.push(part);
                }
                Ok(self.side_by_side(parts))
            }
            Node::Concatenate { inputs }
            | Node::Interleave { inputs, .. }
            | Node::SampleFromDatasets { inputs, .. } => {
                let mut outputs = Vec::new();
                for input in inputs {
                    let output = self.node(input)?;
                    not_mixed(node.name(), &output)?;
                    outputs.push(output);
                }
                let mut outputs = outputs.into_iter();
                let one = outputs.next().ok_or_else(|| Error::config("there is no data set"))?;
                let mut python = one.python;
                for (other, number) in outputs.zip(1..) {
                    python |= other.python;
                    if python {
                        same_kind(node.name(), &one, &other, number)?;
                    } else {
                        same(node.name(), &one, &other, number)?;
                    }
                }
                Ok(Output { python, ..one })
            }
            Node::Map { field, transforms, input } => {
                let output = self.node(input)?;
                if output.batched {
                    return Err(after_batch("map"));
                }
                if output.python {
                    // Python calls the engine for these.
                    return Ok(output);
                }
                self.map(first, field.as_deref(), transforms, &output)?;
                Ok(output)
            }
            Node::Mix { transforms, input } => {
                let mut output = self.node(input)?;
                let name = transforms.first().map_or("map()", Mixing::name);
                if !output.batched {
                    return Err(Error::config(format!("{name} works on batches, and stands before batch()"))
                        .with_stage(name)
                        .with_hint("batch(n).map(...)"));
                }
                if output.python {
                    return Err(Error::config(format!(
                        "{name} comes after a Python step, which makes the batches"
                    ))
                    .with_stage(name)
                    .with_hint("call torchvision's transform of this name in a map() after batch()"));
                }
                let mixed = Mixed::new(transforms, (&output.names, &output.kinds), &output.structure)?;
                output.mixed.push(mixed);
                Ok(output)
            }
            Node::Cache { decoded: Decoded::Coefficients, path, max_bytes, input } => {
                let output = self.node(input)?;
                if output.python {
                    return Err(
                        Error::config("cache() comes after a Python step").with_hint("put it before map()")
                    );
                }
                self.cache(first, path.as_deref(), *max_bytes, output.batched)?;
                Ok(output)
            }
            Node::Shuffle { seed, input, .. } => {
                let output = self.node(input)?;
                self.leaves[first..].iter_mut().for_each(|leaf| leaf.seed = Some(*seed));
                Ok(output)
            }
            Node::Batch { input, .. }
            | Node::PaddedBatch { input, .. }
            | Node::RaggedBatch { input, .. }
            | Node::BucketBySequenceLength { input, .. }
            | Node::BatchByTokens { input, .. }
            | Node::BatchByDuration { input, .. } => {
                let output = self.node(input)?;
                if output.batched {
                    return Err(after_batch(node.name()));
                }
                if output.python && !matches!(node, Node::Batch { .. }) {
                    return Err(Error::config(format!("{}() comes after a Python step", node.name()))
                        .with_hint("pad in a collate function: batch(n, collate_fn=...)"));
                }
                Ok(Output { batched: true, ..output })
            }
            Node::Unbatch { input } => {
                let output = self.node(input)?;
                if !output.batched {
                    return Err(Error::config("unbatch() of samples").with_hint("it undoes batch()"));
                }
                not_mixed("unbatch", &output)?;
                Ok(Output { batched: false, ..output })
            }
            Node::PythonFilter { input, .. } => {
                let output = self.node(input)?;
                if output.batched {
                    return Err(after_batch("filter"));
                }
                Ok(output)
            }
            Node::Python { kind, input, .. } => {
                let output = self.node(input)?;
                not_mixed("map", &output)?;
                if *kind == PythonKind::Collate && !matches!(**input, Node::Batch { .. }) {
                    return Err(Error::config("a collate function stands directly above batch()"));
                }
                let plain = |verb: &Node| matches!(verb, Node::Batch { .. });
                if let Some(verb) = batching(input).into_iter().find(|verb| output.batched && !plain(verb)) {
                    return Err(Error::config(format!(
                        "map() with a Python function comes after {}(), whose batches Python cannot make",
                        verb.name()
                    ))
                    .with_hint(
                        "call the function in the loop over the loader, or pad in a collate function: batch(n, collate_fn=...)",
                    ));
                }
                Ok(Output { python: true, ..output })
            }
            Node::Filter { field, input, .. } => {
                let output = self.node(input)?;
                if output.batched {
                    return Err(after_batch("filter"));
                }
                match output.names.iter().position(|name| name == field) {
                    _ if output.python => Err(Error::config("filter(field=...) comes after a Python step")
                        .with_hint("call it before map(), or give filter() a callable")),
                    Some(at) if output.kinds[at] == FieldKind::LABEL => Ok(output),
                    Some(at) => Err(Error::config(format!(
                        "filter(): field {field:?} is {:?}, not an int64",
                        output.kinds[at]
                    ))),
                    None => Err(Error::config(format!(
                        "filter(): there is no field {field:?}; fields are {:?}",
                        output.names
                    ))),
                }
            }
            Node::Repeat { input, .. }
            | Node::Take { input, .. }
            | Node::Skip { input, .. }
            | Node::Shard { input, .. } => self.node(input),
        }
    }

    fn leaf(&mut self) -> Result<Output> {
        let source = self
            .sources
            .get(self.leaves.len())
            .ok_or_else(|| Error::config("the plan names more sources than were opened"))?;
        let schema = source.schema();
        let names: Vec<String> = schema.fields.iter().map(|field| field.name.clone()).collect();
        let kinds: Vec<FieldKind> = schema.fields.iter().map(|field| field.kind.clone()).collect();
        self.leaves.push(LeafPlan {
            maps: Vec::new(),
            seed: None,
            cache: None,
            first_column: 0,
            names: names.clone(),
            kinds: kinds.clone(),
        });
        let python = matches!(source.spec(), SourceSpec::Python(_));
        let structure = schema.structure.clone();
        Ok(Output { names, kinds, structure, batched: false, mixed: Vec::new(), python })
    }

    /// Puts the columns of several inputs, each with its first leaf, side by side. Names that occur in more than one
    /// of them get the number of the input in front.
    fn side_by_side(&mut self, parts: Vec<(usize, Output)>) -> Output {
        let ends: Vec<usize> =
            parts.iter().skip(1).map(|(first, _)| *first).chain([self.leaves.len()]).collect();
        let renamed: Vec<Vec<String>> = parts
            .iter()
            .enumerate()
            .map(|(number, (_, output))| {
                let elsewhere = |name: &String| {
                    parts
                        .iter()
                        .enumerate()
                        .any(|(other, (_, output))| other != number && output.names.contains(name))
                };
                let name = |name: &String| {
                    if elsewhere(name) { format!("{number}.{name}") } else { name.clone() }
                };
                output.names.iter().map(name).collect()
            })
            .collect();
        let structure = Structure::Tuple(Vec::new());
        let mut all = Output {
            names: Vec::new(),
            kinds: Vec::new(),
            structure,
            batched: false,
            mixed: Vec::new(),
            python: false,
        };
        let mut structures = Vec::new();
        for (((first, output), end), names) in parts.into_iter().zip(ends).zip(renamed) {
            for leaf in &mut self.leaves[first..end] {
                for name in &mut leaf.names {
                    if let Some(at) = output.names.iter().position(|known| known == name) {
                        name.clone_from(&names[at]);
                    }
                }
                leaf.first_column += all.names.len();
            }
            structures.push(output.structure.shifted(all.names.len()));
            all.python |= output.python;
            all.names.extend(names);
            all.kinds.extend(output.kinds);
        }
        all.structure = Structure::Tuple(structures);
        all
    }

    fn map(
        &mut self,
        first: usize,
        field: Option<&str>,
        transforms: &[Transform],
        output: &Output,
    ) -> Result<()> {
        let mut found = false;
        for leaf in &mut self.leaves[first..] {
            let chosen = |(at, name): (usize, &String)| {
                (is_transformed(&leaf.kinds[at]) && field.is_none_or(|field| field == name)).then_some(at)
            };
            let fields: Vec<usize> = leaf.names.iter().enumerate().filter_map(chosen).collect();
            found |= !fields.is_empty();
            // Also where no field is chosen: the place of a transform on the way to the root keys its draws.
            leaf.maps.push(LeafMap { fields, transforms: transforms.to_vec() });
        }
        if found {
            return self.check_fields(first, transforms);
        }
        let images = output.names.iter().zip(&output.kinds).filter(|(_, kind)| is_transformed(kind));
        let sounds = output.kinds.contains(&FieldKind::Audio);
        let (kind, fields) = if sounds { ("image or sound", "these") } else { ("image", "image fields") };
        let names: Vec<&str> = images.map(|(name, _)| name.as_str()).collect();
        let what = match field {
            Some(name) => format!("map(): there is no {kind} field {name:?}; {fields} are {names:?}"),
            None => "map(): the source has no image field".to_owned(),
        };
        Err(Error::config(what)
            .with_hint("transforms work on encoded images, on uint8 arrays of images, and on encoded sounds"))
    }

    /// Checks that the transforms of the last `map` have fields to work on, and that masks, boxes and points have the image
    /// beside them that they follow.
    fn check_fields(&self, first: usize, transforms: &[Transform]) -> Result<()> {
        let chosen = |leaf: &LeafPlan| -> Vec<FieldKind> {
            let fields = leaf.maps.last().map_or(&[][..], |map| &map.fields);
            fields.iter().map(|&at| leaf.kinds[at].clone()).collect()
        };
        let leaves: Vec<Vec<FieldKind>> = self.leaves[first..].iter().map(chosen).collect();
        let images = |kinds: &Vec<FieldKind>| kinds.iter().any(is_image);
        let pixels = |kinds: &Vec<FieldKind>| {
            images(kinds) || kinds.iter().any(|kind| matches!(kind, FieldKind::Mask { .. }))
        };
        if leaves.iter().any(images) && leaves.iter().any(|kinds| !kinds.is_empty() && !images(kinds)) {
            return Err(Error::config(
                "map(): masks, boxes or points come from another source than the images, and would not move with them",
            )
            .with_hint("annotated_images() has them in one source; map(field=...) works on one field alone"));
        }
        for transform in Transform::flatten(transforms) {
            transform.as_operation().check().map_err(|e| e.with_stage(transform.name()))?;
            let takes = transform.as_operation().takes();
            if takes == Takes::ImagesAlone
                && let Some(kind) =
                    leaves.iter().flatten().find(|kind| works_on(Takes::Geometry, kind) && !is_image(kind))
            {
                let what = match kind {
                    FieldKind::Mask { .. } => "masks",
                    FieldKind::Boxes { .. } => "boxes",
                    _ => "points",
                };
                let name = transform.name();
                return Err(Error::config(format!(
                    "{name} moves pixels, and says nothing of the {what} beside them"
                ))
                .with_stage(name)
                .with_hint(format!(
                    "map({name}(...), field=...) works on the image alone, and leaves {what} where they are"
                )));
            }
            let taken = leaves.iter().flatten().any(|kind| works_on(takes, kind));
            let alone =
                takes == Takes::Geometry && leaves.iter().any(|kinds| !kinds.is_empty() && !pixels(kinds));
            if taken && !alone {
                continue;
            }
            let sounds = !taken && leaves.iter().flatten().any(|kind| matches!(kind, FieldKind::Audio));
            let what = match takes {
                Takes::Images | Takes::ImagesAlone => "works on images",
                Takes::Geometry if sounds => "works on images",
                Takes::Geometry => "moves boxes and points with their image, and this map() has none",
                Takes::Boxes => "works on boxes",
                Takes::Sounds => "works on sounds",
                Takes::Types => "works on images and sounds",
            };
            return Err(Error::config(format!("{} {what}", transform.name()))
                .with_stage(transform.name())
                .with_hint("map() without field= works on all fields of a sample together"));
        }
        Ok(())
    }

    fn cache(
        &mut self,
        first: usize,
        path: Option<&str>,
        max_bytes: Option<u64>,
        batched: bool,
    ) -> Result<()> {
        let encoded = |leaf: &LeafPlan| leaf.kinds.contains(&FieldKind::Image);
        let leaves = &mut self.leaves[first..];
        let shared_by = leaves.iter().filter(|leaf| encoded(leaf)).count().max(1) as u64;
        let alone = leaves.len() == 1;
        for leaf in leaves {
            if batched || !leaf.maps.is_empty() {
                return Err(Error::config(
                    "cache(decoded=\"coefficients\") keeps images as they are stored, not as map() makes them",
                )
                .with_hint("put it before map() and batch()"));
            }
            // Of several sources those without encoded images pass; a single one is told so when it is opened.
            if !alone && !encoded(leaf) {
                continue;
            }
            let cache = LeafCache { path: path.map(str::to_owned), max_bytes, shared_by };
            if leaf.cache.replace(cache).is_some() {
                return Err(Error::config("cache() stands twice"));
            }
        }
        Ok(())
    }
}

/// Fails, naming the first difference, unless elements of both inputs can stand in one batch.
fn same(verb: &str, one: &Output, other: &Output, number: usize) -> Result<()> {
    let differ = |what: String| {
        Err(Error::config(format!("{verb}(): {what}"))
            .with_hint("all data sets must have the same fields in the same structure"))
    };
    same_kind(verb, one, other, number)?;
    if one.names.len() != other.names.len() {
        return differ(format!(
            "data set 0 has the fields {:?}, data set {number} has {:?}",
            one.names, other.names
        ));
    }
    for at in 0..one.names.len() {
        if one.names[at] != other.names[at] {
            return differ(format!(
                "field {at} is {:?} in data set 0 and {:?} in data set {number}",
                one.names[at], other.names[at]
            ));
        }
        let (a, b) = (&one.kinds[at], &other.kinds[at]);
        // What becomes of images is known when their transforms are: then columns are compared.
        if a != b && !(is_image(a) && is_image(b)) {
            return differ(format!(
                "field {:?} is {a:?} in data set 0 and {b:?} in data set {number}",
                one.names[at]
            ));
        }
    }
    if one.structure != other.structure {
        return differ(format!(
            "data set 0 gives {:?}, data set {number} gives {:?}",
            one.structure, other.structure
        ));
    }
    Ok(())
}

/// Fails if one input gives batches and the other one samples.
fn same_kind(verb: &str, one: &Output, other: &Output, number: usize) -> Result<()> {
    if one.batched == other.batched {
        return Ok(());
    }
    let what = |output: &Output| if output.batched { "batches" } else { "samples" };
    Err(Error::config(format!(
        "{verb}(): data set 0 gives {}, data set {number} gives {}",
        what(one),
        what(other)
    ))
    .with_hint("all data sets must have the same fields in the same structure"))
}

/// Whether an operation works on a field.
pub(crate) fn works_on(takes: Takes, kind: &FieldKind) -> bool {
    match kind {
        FieldKind::Image | FieldKind::Pixels { .. } => !matches!(takes, Takes::Boxes | Takes::Sounds),
        FieldKind::Audio => matches!(takes, Takes::Sounds | Takes::Types),
        FieldKind::Mask { .. } | FieldKind::Keypoints => takes == Takes::Geometry,
        FieldKind::Boxes { .. } => matches!(takes, Takes::Geometry | Takes::Boxes),
        _ => false,
    }
}

/// The verbs that make the batches of `node`.
fn batching(node: &Node) -> Vec<&Node> {
    match node {
        Node::Batch { .. }
        | Node::PaddedBatch { .. }
        | Node::RaggedBatch { .. }
        | Node::BucketBySequenceLength { .. }
        | Node::BatchByTokens { .. }
        | Node::BatchByDuration { .. } => vec![node],
        _ => node.inputs().iter().flat_map(batching).collect(),
    }
}

/// Whether transforms work on a field.
pub(crate) fn is_transformed(kind: &FieldKind) -> bool {
    [Takes::Images, Takes::Geometry, Takes::Boxes, Takes::Sounds]
        .into_iter()
        .any(|takes| works_on(takes, kind))
}

pub(crate) fn is_image(kind: &FieldKind) -> bool {
    matches!(kind, FieldKind::Image | FieldKind::Pixels { .. })
}

/// Fails for a verb that takes batches apart, or puts them beside others, after they were mixed.
fn not_mixed(verb: &str, output: &Output) -> Result<()> {
    let Some(name) = output.mixed.iter().flat_map(|mixed| &mixed.transforms).map(Mixing::name).next() else {
        return Ok(());
    };
    Err(Error::config(format!("{verb}() comes after {name}, which mixes whole batches"))
        .with_stage(name)
        .with_hint(format!("call map({name}(...)) last; what works on batches by Python goes into the loop")))
}

fn after_batch(verb: &str) -> Error {
    Error::config(format!("{verb}() comes after batch(), where it would work on whole batches"))
        .with_hint(format!("call {verb}() before batch()"))
}
