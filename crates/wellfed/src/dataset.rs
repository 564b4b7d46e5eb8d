//! [`Dataset`]: a source and the verbs on it, named as in tf.data.

use std::sync::Arc;

use crate::{
    Error, Result,
    engine::{
        Batch, Loader, audio,
        cache::KeptCaches,
        exec::{Executor, LeafExecutor},
        image::{ImageScratch, Maker},
    },
    explain,
    memory::{PageLock, allocator::Allocator},
    order::{Batches, Fields, Order, Pick},
    plan::{
        Assembly, Batching, Decoded, Device, Node, Options, Outline, PLAN_VERSION, Plan, Program, Run,
        Stages, batches_of_zip,
        lower::{Lowered, Output, is_image, is_transformed, lower},
        program::Unsettled,
    },
    sample::{FieldKind, FieldSpec, Record, Structure, Value},
    source::{Source, counter::Counter, durations, tables::Stack},
    store::LocalStore,
    transform::{Size, Transform},
};

/// Samples looked at to find out the size of images, or the channels of sounds, that the plan does not settle.
const PROBES: u64 = 16;

/// A data set: samples of one or several sources, and what is to happen to them. Immutable: every verb gives a new one.
///
/// Nothing is read until [`Dataset::loader`] (or [`Dataset::sample`]) is asked for.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Those of the plan's leaves, depth first.
    sources: Vec<Arc<dyn Source>>,
    plan: Plan,
    /// What every `filter` of the plan keeps, those further down first.
    filters: Vec<Filtered>,
    /// What loaders of this data set, and of others made from it, cached in memory.
    caches: Arc<KeptCaches>,
}

/// What a `filter` keeps.
#[derive(Clone, Debug)]
struct Filtered {
    kept: Arc<[u64]>,
    /// Samples that it was asked of.
    samples: u64,
    /// Whether they had to be fetched.
    fetched: bool,
}

impl Dataset {
    /// The samples of `source` as they are.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let root = Node::source(source.spec());
        let plan = Plan { version: PLAN_VERSION, root, options: Options::default() };
        Self { sources: vec![source], plan, filters: Vec::new(), caches: Arc::default() }
    }

    /// Opens the sources that `plan` names.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for another version of the plan's form, and those of opening a source. Arrays in
    /// memory are not part of a plan: use [`Dataset::with_plan`] for them.
    pub fn from_plan(plan: Plan) -> Result<Self> {
        let open = |spec: &crate::source::SourceSpec| spec.clone().open(Arc::new(LocalStore::default()));
        let sources = plan.root.sources().into_iter().map(open).collect::<Result<_>>()?;
        Self::with_plan(sources, plan)
    }

    /// Puts a plan on open sources: those of its leaves, depth first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for another version of the plan's form, or another number of sources.
    pub fn with_plan(sources: Vec<Arc<dyn Source>>, mut plan: Plan) -> Result<Self> {
        if plan.version != PLAN_VERSION {
            return Err(Error::config(format!(
                "the plan has version {}, this wellfed reads version {PLAN_VERSION}",
                plan.version
            )));
        }
        let named = plan.root.sources().len();
        if named != sources.len() {
            return Err(Error::config(format!(
                "the plan names {named} sources, and {} were given",
                sources.len()
            )));
        }
        plan.root.check()?;
        plan.root.seal();
        let mut this = Self { sources, plan, filters: Vec::new(), caches: Arc::default() };
        this.run_filters()?;
        Ok(this)
    }

    fn wrap(&self, verb: impl FnOnce(Node) -> Node) -> Self {
        let mut this = self.clone();
        this.plan.root = verb(this.plan.root);
        this
    }

    /// A verb with one input on this data set; what it was on before does not count.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if it takes another number of data sets, or makes no sense here.
    pub fn verb(&self, verb: Node) -> Result<Self> {
        let root = verb.with_inputs(vec![self.plan.root.clone()])?;
        let plan = Plan { root, ..self.plan.clone() };
        let mut this = Self { plan, ..self.clone() };
        if matches!(this.plan.root, Node::Filter { .. }) {
            this.run_filters()?;
        }
        this.checked()
    }

    /// A verb on several data sets; what it was on before does not count. Its options are theirs, which must agree.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if their fields differ where they must not, or their options do.
    pub fn combine(verb: Node, datasets: &[Dataset]) -> Result<Self> {
        let Some(first) = datasets.first() else {
            return Err(Error::config(format!("{}() needs at least one data set", verb.name())));
        };
        let mut options = first.plan.options.clone();
        for other in &datasets[1..] {
            options = options.merged(&other.plan.options)?;
        }
        let mut inputs = Vec::new();
        for dataset in datasets {
            match (&verb, &dataset.plan.root) {
                // One after the other is one after the other, however it was put together.
                (Node::Concatenate { .. }, Node::Concatenate { inputs: parts }) => {
                    inputs.extend(parts.clone())
                }
                (_, root) => inputs.push(root.clone()),
            }
        }
        let zipped = if matches!(verb, Node::Zip { .. }) { Self::zipped_batches(datasets)? } else { None };
        let root = zipped.map_or_else(|| verb.with_inputs(inputs), Ok)?;
        let sources = datasets.iter().flat_map(|dataset| dataset.sources.clone()).collect();
        let filters = datasets.iter().flat_map(|dataset| dataset.filters.clone()).collect();
        let plan = Plan { version: PLAN_VERSION, root, options };
        Self { sources, plan, filters, caches: Arc::default() }.checked()
    }

    /// Batches that are zipped as batches of a zip; `None` where not all data sets end with `batch`.
    fn zipped_batches(datasets: &[Dataset]) -> Result<Option<Node>> {
        let mut samples = Vec::new();
        for dataset in datasets {
            let Node::Batch { batch_size, drop_last, input } = &dataset.plan.root else { return Ok(None) };
            let plan = Plan { root: (**input).clone(), ..dataset.plan.clone() };
            let below = Self { plan, ..dataset.clone() };
            let len = below.len()?;
            samples.push((below.plan.root, (*batch_size, *drop_last), len));
        }
        batches_of_zip(samples).map(Some)
    }

    fn checked(self) -> Result<Self> {
        self.plan.root.check()?;
        let lowered = self.lowered()?;
        self.order(&lowered)?;
        let assembly = self.assembly(&lowered)?;
        let Output { names, kinds, .. } = &lowered.output;
        for (number, (name, kind)) in names.iter().zip(kinds).enumerate() {
            if !is_transformed(kind) && !matches!(kind, FieldKind::BoxLabels { .. }) {
                assembly.column(number, &FieldSpec { name: name.clone(), kind: kind.clone() })?;
            }
        }
        Ok(self)
    }

    /// Tuples of what the data sets give, as long as the shortest of them.
    ///
    /// # Errors
    /// As [`Dataset::combine`].
    pub fn zip(datasets: &[Dataset]) -> Result<Self> {
        Self::combine(Node::Zip { inputs: Vec::new() }, datasets)
    }

    /// This data set, and then `other`.
    ///
    /// # Errors
    /// As [`Dataset::combine`].
    pub fn concatenate(&self, other: &Dataset) -> Result<Self> {
        Self::combine(Node::Concatenate { inputs: Vec::new() }, &[self.clone(), other.clone()])
    }

    /// Blocks of `block_length` elements of each data set in turn; what has ended drops out.
    ///
    /// # Errors
    /// As [`Dataset::combine`].
    pub fn interleave(datasets: &[Dataset], block_length: u64) -> Result<Self> {
        Self::combine(Node::Interleave { block_length, inputs: Vec::new() }, datasets)
    }

    /// Each element from a data set that is chosen at random, in proportion to `weights`. With `stop_on_empty_dataset`
    /// the first one that has ended ends it; otherwise the others go on.
    ///
    /// # Errors
    /// As [`Dataset::combine`]; [`crate::ErrorKind::Config`] for weights that make no sense.
    pub fn sample_from_datasets(
        datasets: &[Dataset],
        weights: &[f64],
        seed: u64,
        stop_on_empty_dataset: bool,
    ) -> Result<Self> {
        let weights = weights.to_vec();
        let verb = Node::SampleFromDatasets { weights, seed, stop_on_empty_dataset, inputs: Vec::new() };
        Self::combine(verb, datasets)
    }

    /// A new global permutation in every epoch, and in every repetition. O(1) memory.
    #[must_use]
    pub fn shuffle(&self, seed: u64) -> Self {
        self.wrap(|input| input.shuffle(seed))
    }

    /// Blocks of `block_size` neighbours in a new order in every epoch, and everything permuted inside of each window
    /// of `window` blocks. For sources whose blocks are expensive to open, such as shards or groups of rows.
    #[must_use]
    pub fn shuffle_blocks(&self, seed: u64, block_size: u64, window: u64) -> Self {
        self.wrap(|input| Node::Shuffle {
            seed,
            block_size: Some(block_size),
            window,
            reshuffle_each_iteration: true,
            input: Box::new(input),
        })
    }

    /// Transforms every image field.
    #[must_use]
    pub fn map(&self, transforms: impl IntoIterator<Item = Transform>) -> Self {
        let transforms = transforms.into_iter().collect();
        self.wrap(|input| Node::Map { field: None, transforms, input: Box::new(input) })
    }

    /// Transforms the image field called `field`.
    #[must_use]
    pub fn map_field(&self, field: &str, transforms: impl IntoIterator<Item = Transform>) -> Self {
        let (field, transforms) = (Some(field.to_owned()), transforms.into_iter().collect());
        self.wrap(|input| Node::Map { field, transforms, input: Box::new(input) })
    }

    /// Keeps samples from the first time they are made on, with JPEGs as coefficients without Huffman coding: half as
    /// large again as the files, and several times faster to decode, to the same bits. In memory, or in the folder
    /// `path` for later runs too. `max_bytes` as in [`Node::Cache`]; what does not fit is decoded from files.
    ///
    /// In memory it is there as long as this data set and those made from it, for one loader after the other; of two at a
    /// time, one begins anew. Files that change meanwhile are not noticed. On disk, the path (or shard and place in
    /// it), size and time of change of a file are compared when it is first asked for by a loader.
    #[must_use]
    pub fn cache(&self, path: Option<&str>, max_bytes: Option<u64>) -> Self {
        let path = path.map(str::to_owned);
        self.wrap(|input| Node::Cache {
            decoded: Decoded::Coefficients,
            path,
            max_bytes,
            input: Box::new(input),
        })
    }

    /// Stacks `batch_size` samples; with `drop_last` a smaller last batch is left out.
    #[must_use]
    pub fn batch(&self, batch_size: usize, drop_last: bool) -> Self {
        self.wrap(|input| input.batch(batch_size, drop_last))
    }

    /// Keeps samples whose number in `field` is one of `values`, at least `min` and at most `max`; `None` is all. Goes
    /// through all samples once, at once; sources that know their labels are not read for it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for no field of whole numbers, or after `shuffle`; those of samples that cannot be
    /// read.
    pub fn filter(
        &self,
        field: &str,
        values: Option<&[i64]>,
        min: Option<i64>,
        max: Option<i64>,
    ) -> Result<Self> {
        self.verb(Node::Filter {
            field: field.to_owned(),
            values: values.map(<[i64]>::to_vec),
            min,
            max,
            input: Box::new(self.plan.root.clone()),
        })
    }

    /// Undoes `batch`.
    #[must_use]
    pub fn unbatch(&self) -> Self {
        self.wrap(|input| Node::Unbatch { input: Box::new(input) })
    }

    /// Columns of a table as one field, an array of numbers a row: see [`Stack`]. It stands before whatever looks at samples.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if it stands elsewhere, the source has no columns, or the stack does not fit them.
    pub fn stack(&self, stack: &Stack) -> Result<Self> {
        if let Some(verb) = self.plan.root.first_that(|node| !node.only_orders()) {
            let text =
                format!("stack() stands right behind the source, and here it comes after {}()", verb.name());
            return Err(Error::config(text).with_hint(
                "stack() first, then shuffle(), map(), batch(); csv() without batch_size gives rows",
            ));
        }
        let Some(stacked) = self.sources[0].stacked(stack) else {
            let name = self.sources[0].name();
            let text = format!("stack() needs a table, and {name} has no columns");
            return Err(Error::config(text).with_hint("csv, parquet and arrow read tables"));
        };
        let source = stacked?;
        let mut plan = self.plan.clone();
        plan.root.replace_source(source.spec());
        let mut this = Self { sources: vec![source], plan, filters: Vec::new(), caches: Arc::default() };
        this.plan.root.seal();
        this.checked()
    }

    /// Pairs of a number, from `start` on, and a sample.
    #[must_use]
    pub fn enumerate(&self, start: i64) -> Self {
        self.wrap(|input| Node::Enumerate { start, input: Box::new(input) })
    }

    /// The data set `count` times over; `None` is without end.
    #[must_use]
    pub fn repeat(&self, count: Option<u64>) -> Self {
        self.wrap(|input| input.repeat(count))
    }

    /// At most the first `count` elements.
    #[must_use]
    pub fn take(&self, count: u64) -> Self {
        self.wrap(|input| input.take(count))
    }

    /// All but the first `count` elements.
    #[must_use]
    pub fn skip(&self, count: u64) -> Self {
        self.wrap(|input| input.skip(count))
    }

    /// Every `world_size`-th element from `rank` on. All ranks get as many elements: where the length is no
    /// multiple of `world_size`, up to `world_size - 1` elements are given twice.
    #[must_use]
    pub fn shard(&self, rank: u64, world_size: u64) -> Self {
        self.wrap(|input| input.shard(rank, world_size))
    }

    /// Replaces all options.
    #[must_use]
    pub fn with_options(&self, options: Options) -> Self {
        let mut this = self.clone();
        this.plan.options = options;
        this
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.plan.options
    }

    /// Where samples come from: of several sources the first one.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.sources[0]
    }

    /// All sources, in the order of the plan's leaves, depth first.
    pub fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    /// What elements are.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for verbs that make no sense where they stand.
    pub fn output(&self) -> Result<Output> {
        Ok(self.lowered()?.output)
    }

    /// Elements of an epoch: samples, or batches after `batch`. `None` is without end.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for verbs that make no sense where they stand.
    pub fn len(&self) -> Result<Option<u64>> {
        Ok(self.order(&self.lowered()?)?.len())
    }

    /// True if an epoch has no element.
    ///
    /// # Errors
    /// As [`Dataset::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == Some(0))
    }

    /// Follows all leaves to the root.
    pub(crate) fn lowered(&self) -> Result<Lowered> {
        let mut sources = Vec::new();
        leaves(&self.plan.root, &mut self.sources.iter(), &mut sources);
        let (leaves, output) = lower(&self.plan.root, &sources)?;
        let filtered = self.filters.iter().map(|f| (f.samples, f.kept.len() as u64, f.fetched)).collect();
        Ok(Lowered { sources, leaves, output, identities: Vec::new(), filtered })
    }

    /// As [`Dataset::lowered`], with the identities of the leaves, for which all names are looked at.
    pub(crate) fn identified(&self) -> Result<Lowered> {
        let mut lowered = self.lowered()?;
        for source in &lowered.sources {
            // Of equal sources the n-th one has its number mixed in.
            let fingerprint = source.fingerprint();
            let mut identity = fingerprint;
            while lowered.identities.contains(&identity) {
                identity = mixed(identity, fingerprint);
            }
            lowered.identities.push(identity);
        }
        Ok(lowered)
    }

    pub(crate) fn order(&self, lowered: &Lowered) -> Result<Order> {
        let lens: Vec<u64> = lowered.sources.iter().map(|source| source.len()).collect();
        let kept: Vec<Arc<[u64]>> = self.filters.iter().map(|filtered| filtered.kept.clone()).collect();
        let firsts = lowered.leaves.iter().map(|leaf| leaf.first_column);
        let fields = Fields {
            sources: lowered.sources.iter().cloned().zip(firsts).collect(),
            names: lowered.output.names.clone(),
            kinds: lowered.output.kinds.clone(),
        };
        Order::over(&self.plan.root, &lens, &fields, &kept)
    }

    /// Finds out what those filters keep of which it is not known yet, those further down first.
    fn run_filters(&mut self) -> Result<()> {
        let root = self.plan.root.clone();
        let mut found = 0;
        self.run_filters_of(&root, &mut 0, &mut found)
    }

    fn run_filters_of(&mut self, node: &Node, first: &mut usize, found: &mut usize) -> Result<()> {
        let (start, below) = (*first, *found);
        if matches!(node, Node::Source { .. }) {
            *first += 1;
        }
        for input in node.inputs() {
            self.run_filters_of(input, first, found)?;
        }
        let Node::Filter { field, values, min, max, input } = node else { return Ok(()) };
        *found += 1;
        if self.filters.len() >= *found {
            return Ok(());
        }
        let part = Self {
            sources: self.sources[start..*first].to_vec(),
            plan: Plan { root: (**input).clone(), ..self.plan.clone() },
            filters: self.filters[below..].to_vec(),
            caches: Arc::default(),
        };
        let keeps = |number: i64| {
            values.as_ref().is_none_or(|values| values.contains(&number))
                && min.is_none_or(|min| number >= min)
                && max.is_none_or(|max| number <= max)
        };
        let filtered = part.positions(field, keeps)?;
        self.filters.push(filtered);
        Ok(())
    }

    /// The positions at which the number in `field` is one that `keeps` wants.
    fn positions(&self, field: &str, keeps: impl Fn(i64) -> bool) -> Result<Filtered> {
        let wanted = Node::Filter {
            field: field.to_owned(),
            values: None,
            min: None,
            max: None,
            input: Box::new(self.plan.root.clone()),
        };
        // Refuses what cannot be filtered, before anything is read.
        Self { plan: Plan { root: wanted, ..self.plan.clone() }, ..self.clone() }.checked()?;
        let lowered = self.lowered()?;
        let order = self.order(&lowered)?;
        let column = lowered.output.names.iter().position(|name| name == field).unwrap_or(0);
        let samples = order.len().unwrap_or(0);
        let (mut kept, mut picks, mut fetched) = (Vec::new(), Vec::new(), false);
        let mut record = Record { limits: self.plan.options.limits, ..Record::default() };
        for position in 0..samples {
            order.sample_at(position, 0, &mut picks)?;
            for pick in &picks {
                let first = lowered.leaves[pick.leaf].first_column;
                let source = &lowered.sources[pick.leaf];
                if column < first || column >= first + source.schema().fields.len() {
                    continue;
                }
                let known = source.number(pick.index, column - first);
                let number = match known {
                    Some(number) => number,
                    None => {
                        fetched |= !source.in_memory();
                        source.fetch(pick.index, &mut record)?;
                        match record.values.get(column - first) {
                            Some(Value::Int(number)) => *number,
                            _ => continue,
                        }
                    }
                };
                if keeps(number) {
                    kept.push(position);
                }
            }
        }
        Ok(Filtered { kept: kept.into(), samples, fetched })
    }

    /// Of sources that are in the plan, and not made for `enumerate`.
    pub(crate) fn outline(&self, lowered: &Lowered) -> Outline {
        let counts = |source: &Arc<dyn Source>| self.sources.iter().any(|known| Arc::ptr_eq(known, source));
        let identities = lowered.sources.iter().zip(&lowered.identities);
        let identities: Vec<u64> = identities
            .filter(|(source, _)| counts(source))
            // Other durations are other batches.
            .map(|(source, identity)| match self.plan.root.cuts_by_duration() {
                true => durations_of(source).fold(*identity, mixed),
                false => *identity,
            })
            .collect();
        Outline::new(&self.plan, &identities)
    }

    /// Seed of the random numbers of a leaf: the option, or that of the shuffle next to the root on its way there, or
    /// else 0; with what tells the leaf from others.
    pub(crate) fn leaf_seed(&self, lowered: &Lowered, leaf: usize) -> u64 {
        let seed = self.plan.options.seed.or(lowered.leaves[leaf].seed).unwrap_or(0);
        mixed(seed, lowered.identities[leaf])
    }

    /// How the plan puts samples together.
    fn assembly<'a>(&'a self, lowered: &Lowered) -> Result<Assembly<'a>> {
        let assembly = Assembly::of(&self.plan.root)?;
        assembly.check(lowered.output.names.len())?;
        Ok(assembly)
    }

    /// The program of a leaf. If transforms do not fix the size of an image, that of its first readable sample does.
    fn program(&self, lowered: &Lowered, leaf: usize, assembly: Assembly<'_>) -> Result<Program> {
        let source = &lowered.sources[leaf];
        let options = &self.plan.options;
        let seed = self.leaf_seed(lowered, leaf);
        let assembly = (assembly, lowered.leaves[leaf].first_column);
        Program::new(
            &lowered.leaves[leaf].maps,
            options,
            source.schema(),
            assembly,
            &mut |field, unsettled| {
                let mut record = Record { limits: options.limits, ..Record::default() };
                let mut scratch = ImageScratch::default();
                let mut last = None;
                for index in 0..source.len().min(PROBES) {
                    let pick = Pick { leaf, index, epoch: 0 };
                    let size = source.fetch(index, &mut record).and_then(|()| {
                        let bytes = match record.values.get(field) {
                            Some(Value::Bytes(bytes)) => bytes.as_slice(),
                            _ => source.resident(index, field).unwrap_or_default(),
                        };
                        match unsettled {
                            Unsettled::Image(program) => {
                                let limits = &options.limits;
                                Maker { program, seed, pick, limits, beside: None }
                                    .final_size(bytes, &mut scratch)
                            }
                            Unsettled::Sound => {
                                let channels = audio::channels(bytes, &options.limits)?;
                                Ok(Size { height: 1, width: 1, channels })
                            }
                        }
                    });
                    match size {
                        Ok(size) => return Ok(size),
                        Err(error) => {
                            let error =
                                error.with_sample(source.key(index), index).with_source(source.name());
                            if error.kind() == crate::ErrorKind::Transient {
                                // An outage must not let another sample settle the size.
                                return Err(error);
                            }
                            last = Some(error);
                        }
                    }
                }
                Err(last.unwrap_or_else(|| Error::config(format!("{} has no samples", source.name()))).with_hint(
                match unsettled {
                    Unsettled::Image(_) => {
                        "the size of a batch is settled by the first readable sample, since the transforms do not fix it"
                    }
                    Unsettled::Sound => {
                        "the channels of a batch are those of the first readable sample, unless map() begins with ToMono()"
                    }
                },
            ))
            },
        )
    }

    fn executor(&self, lowered: &Lowered, assembly: Assembly<'_>) -> Result<Executor> {
        let mut leaves = Vec::new();
        for (number, leaf) in lowered.leaves.iter().enumerate() {
            leaves.push(LeafExecutor::new(
                lowered.sources[number].clone(),
                self.program(lowered, number, assembly)?,
                self.leaf_seed(lowered, number),
                self.plan.options.limits,
                leaf.first_column,
            ));
        }
        Executor::new(leaves, &lowered.output.names)
    }

    /// The plan, what each optimizer pass did, and the program that workers run.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a plan that makes no sense.
    pub fn explain(&self) -> Result<String> {
        self.explain_run(&Run::default())
    }

    /// What is done to data and where, as `run` says: the stages of the plan.
    pub fn stages(&self, run: &Run) -> Stages<'_> {
        Stages::of(&self.plan.root, run)
    }

    /// As [`Dataset::explain`], with stages where `run` puts them.
    ///
    /// # Errors
    /// As [`Dataset::explain`].
    pub fn explain_run(&self, run: &Run) -> Result<String> {
        let lowered = self.identified()?;
        let order = self.order(&lowered)?;
        let assembly = self.assembly(&lowered)?;
        let mut programs = Vec::new();
        for leaf in 0..lowered.leaves.len() {
            programs.push(self.program(&lowered, leaf, assembly)?);
        }
        let seeds: Vec<u64> =
            lowered.leaves.iter().map(|leaf| self.plan.options.seed.or(leaf.seed).unwrap_or(0)).collect();
        Ok(explain::explain(
            (&self.plan, &self.sources),
            &lowered,
            &programs,
            &seeds,
            &order,
            &self.stages(run),
        ))
    }

    /// [`Dataset::explain`], then runs `batches` batches and adds time and bytes per phase.
    ///
    /// # Errors
    /// As [`Dataset::explain`], and those of bad samples.
    pub fn analyze(&self, batches: u64) -> Result<String> {
        let loader = self.loader()?;
        for batch in loader.epoch()?.take(usize::try_from(batches).unwrap_or(usize::MAX)) {
            batch?;
        }
        Ok(format!("{}analysis of up to {batches} batches\n{}\n", self.explain()?, loader.stats()))
    }

    /// A loader for this data set. Threads start with its first epoch.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a plan that makes no sense, [`crate::ErrorKind::Limit`] if a batch is too large for the
    /// memory budget.
    pub fn loader(&self) -> Result<Loader> {
        self.loader_for(None, None)
    }

    /// As [`Dataset::loader`], for batches that the caller copies to `device`. Where the plan says that they lie in
    /// page-locked memory ([`Stages::page_locked`]), `page_lock` locks it; what it refuses is pageable, and
    /// [`Loader::stats`] says so. What comes out is the same.
    ///
    /// # Errors
    /// As [`Dataset::loader`].
    pub fn loader_for(&self, device: Option<Device>, page_lock: Option<Arc<dyn PageLock>>) -> Result<Loader> {
        let run = Run { device, ..Run::default() };
        self.make_loader(Self::assembly, Batches::planned, &run, page_lock)
    }

    /// A loader whose samples the caller chooses, batch by batch: [`Loader::begin`], [`Loader::submit`],
    /// [`Loader::finish`]. The plan says what happens to a sample; it must leave the order alone.
    ///
    /// A sample may occur several times in a pass, with different random draws. Under `on_error` skip, every batch is
    /// answered, if need be by an empty one; under replace, replacements come from the same batch.
    ///
    /// # Errors
    /// As [`Dataset::loader`]; [`crate::ErrorKind::Config`] if the plan has verbs other than `map` and `cache`.
    pub fn loader_given(&self) -> Result<Loader> {
        self.loader_given_with(false, Run::default(), None)
    }

    /// As [`Dataset::loader_given`], with batches for `device`, in memory that `page_lock` locks if it reads that.
    ///
    /// # Errors
    /// As [`Dataset::loader_given`].
    pub fn loader_given_for(
        &self,
        device: Option<Device>,
        page_lock: Option<Arc<dyn PageLock>>,
    ) -> Result<Loader> {
        self.loader_given_with(false, Run { device, ..Run::default() }, page_lock)
    }

    /// As [`Dataset::loader_given`]; where transforms do not settle the size of images, they come as a list, and may differ
    /// in size.
    ///
    /// # Errors
    /// As [`Dataset::loader_given`].
    pub fn loader_given_lists(&self) -> Result<Loader> {
        self.loader_given_with(true, Run::default(), None)
    }

    fn loader_given_with(
        &self,
        images: bool,
        run: Run,
        page_lock: Option<Arc<dyn PageLock>>,
    ) -> Result<Loader> {
        let mut node = &self.plan.root;
        while let Node::Map { input, .. } | Node::Cache { input, .. } = node {
            node = input;
        }
        if !matches!(node, Node::Source { .. }) {
            return Err(Error::config("the plan has an order of its own, and so takes none from the caller")
                .with_hint("leave out shuffle, batch, take, skip, repeat and shard, and use one source"));
        }
        self.make_loader(|_, _| Ok(Assembly::List { images }), |_| Batches::given(), &run, page_lock)
    }

    /// A loader that puts samples together as `assembly` says, in the batches that `batches` makes of the order.
    fn make_loader(
        &self,
        assembly: impl for<'a> FnOnce(&'a Self, &Lowered) -> Result<Assembly<'a>>,
        batches: impl FnOnce(Arc<Order>) -> Batches,
        run: &Run,
        page_lock: Option<Arc<dyn PageLock>>,
    ) -> Result<Loader> {
        let stages = self.stages(run);
        if !stages.native() {
            return Err(Error::config("the pipeline has Python steps, which the engine cannot run")
                .with_hint("iterate it in Python, by torch() or numpy()"));
        }
        let lowered = self.identified()?;
        let order = Arc::new(self.order(&lowered)?);
        let caches: Vec<_> = lowered.leaves.iter().map(|leaf| leaf.cache.clone()).collect();
        let outline = self.outline(&lowered);
        let mut executor = self.executor(&lowered, assembly(self, &lowered)?)?;
        // The sides of arrays that are no images stand as torch has them.
        let layout = match lowered.output.mixed.first() {
            Some(mixed) if !is_image(&lowered.output.kinds[mixed.image]) => Batching::Nchw,
            _ => self.plan.options.layout,
        };
        executor.check_left()?;
        executor.mix(&lowered.output.mixed, layout)?;
        Loader::new(
            executor,
            order.clone(),
            batches(order),
            outline,
            self.plan.options.clone(),
            (&caches, &self.caches),
            Allocator::new(page_lock.filter(|_| stages.page_locked())),
        )
    }
}

/// The sources of all leaves, depth first: those of the plan, and for every `enumerate` one that counts.
fn leaves<'a>(
    node: &Node,
    given: &mut impl Iterator<Item = &'a Arc<dyn Source>>,
    out: &mut Vec<Arc<dyn Source>>,
) {
    match node {
        Node::Source { .. } => out.extend(given.next().cloned()),
        Node::Enumerate { start, .. } => out.push(Arc::new(Counter::new(*start))),
        _ => {}
    }
    node.inputs().iter().for_each(|input| leaves(input, given, out));
}

/// Hashes of the durations of its sounds, which are known once an order was made of them.
fn durations_of(source: &Arc<dyn Source>) -> impl Iterator<Item = u64> + '_ {
    let fields = 0..source.schema().fields.len();
    fields.filter_map(|field| Some(durations(&**source, field).ok().flatten()?.fingerprint()))
}

/// Two numbers as one, in which each bit depends on all.
fn mixed(a: u64, b: u64) -> u64 {
    rapidhash::v3::rapidhash_v3(&[a.to_le_bytes(), b.to_le_bytes()].concat())
}

/// Applies `transforms` to one 8-bit image of `height` x `width` x `channels` interleaved pixels, with the random
/// numbers of `seed`. For trying transforms out, and for comparing them with others.
///
/// # Errors
/// [`crate::ErrorKind::Config`] or [`crate::ErrorKind::Shape`] for what does not fit.
pub fn apply(
    transforms: impl IntoIterator<Item = Transform>,
    pixels: &[u8],
    (height, width, channels): (usize, usize, usize),
    options: Options,
) -> Result<Batch> {
    use crate::source::{ArrayData, Pixels, TensorSlices};
    let array =
        ArrayData::from_vec(pixels.to_vec(), crate::sample::DType::UInt8, vec![1, height, width, channels])?;
    let source = TensorSlices::new(vec![("image".to_owned(), array, Pixels::Hwc)], Structure::Field(0))?;
    Dataset::new(Arc::new(source)).map(transforms).with_options(options).sample(0, 0)
}
