//! [`Dataset`]: a source and the verbs on it, named as in tf.data.

use std::sync::Arc;

use crate::{
    Error, Result,
    engine::{
        Batch, Loader, Sampler,
        exec::Executor,
        image::{ImageScratch, Maker},
    },
    order::{Order, Pick},
    plan::{Assembly, Decoded, Options, PLAN_VERSION, Plan, Program, Verb, explain},
    sample::{Record, Structure, Value},
    source::Source,
    store::LocalStore,
    transform::Transform,
};

/// Samples looked at to find out the size of images that the plan does not settle.
const PROBES: u64 = 16;

/// A data set: samples of a source, and what is to happen to them. Immutable: every verb gives a new one.
///
/// Nothing is read until [`Dataset::loader`] (or [`Dataset::sample`]) is asked for.
#[derive(Clone, Debug)]
pub struct Dataset {
    source: Arc<dyn Source>,
    plan: Plan,
}

impl Dataset {
    /// The samples of `source` as they are.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let plan = Plan {
            version: PLAN_VERSION,
            source: source.spec(),
            verbs: Vec::new(),
            options: Options::default(),
        };
        Self { source, plan }
    }

    /// Opens the source that `plan` names.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for another version of the plan's form, and those of opening the source. Arrays in
    /// memory are not part of a plan: use [`Dataset::with_plan`] for them.
    pub fn from_plan(plan: Plan) -> Result<Self> {
        let source = plan.source.clone().open(Arc::new(LocalStore::default()))?;
        Self::with_plan(source, plan)
    }

    /// Puts a plan on an open source.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for another version of the plan's form.
    pub fn with_plan(source: Arc<dyn Source>, plan: Plan) -> Result<Self> {
        if plan.version != PLAN_VERSION {
            return Err(Error::config(format!(
                "the plan has version {}, this wellfed reads version {PLAN_VERSION}",
                plan.version
            )));
        }
        Ok(Self { source, plan })
    }

    fn verb(&self, verb: Verb) -> Self {
        let mut this = self.clone();
        this.plan.verbs.push(verb);
        this
    }

    /// A new global permutation in every epoch, and in every repetition. O(1) memory.
    #[must_use]
    pub fn shuffle(&self, seed: u64) -> Self {
        self.verb(Verb::Shuffle { seed })
    }

    /// Transforms every image field.
    #[must_use]
    pub fn map(&self, transforms: impl IntoIterator<Item = Transform>) -> Self {
        self.verb(Verb::Map { field: None, transforms: transforms.into_iter().collect() })
    }

    /// Transforms the image field called `field`.
    #[must_use]
    pub fn map_field(&self, field: &str, transforms: impl IntoIterator<Item = Transform>) -> Self {
        self.verb(Verb::Map { field: Some(field.to_owned()), transforms: transforms.into_iter().collect() })
    }

    /// Keeps samples from the first time they are made on, with JPEGs as coefficients without Huffman coding: half as
    /// large again as the files, and several times faster to decode, to the same bits. In memory, or in the folder
    /// `path` for later runs too. `max_bytes` as in [`Verb::Cache`]; what does not fit is decoded from files.
    ///
    /// In memory, files that change while the loader lives are not noticed. On disk, the path (or shard and place in
    /// it), size and time of change of a file are compared when it is first asked for by a loader.
    #[must_use]
    pub fn cache(&self, path: Option<&str>, max_bytes: Option<u64>) -> Self {
        let path = path.map(str::to_owned);
        self.verb(Verb::Cache { decoded: Decoded::Coefficients, path, max_bytes })
    }

    /// Stacks `batch_size` samples; with `drop_last` a smaller last batch is left out.
    #[must_use]
    pub fn batch(&self, batch_size: usize, drop_last: bool) -> Self {
        self.verb(Verb::Batch { batch_size, drop_last })
    }

    /// The data set `count` times over; `None` is without end.
    #[must_use]
    pub fn repeat(&self, count: Option<u64>) -> Self {
        self.verb(Verb::Repeat { count })
    }

    /// At most the first `count` elements.
    #[must_use]
    pub fn take(&self, count: u64) -> Self {
        self.verb(Verb::Take { count })
    }

    /// All but the first `count` elements.
    #[must_use]
    pub fn skip(&self, count: u64) -> Self {
        self.verb(Verb::Skip { count })
    }

    /// Every `world_size`-th element from `rank` on. All ranks get as many elements: where the length is no
    /// multiple of `world_size`, up to `world_size - 1` elements are given twice.
    #[must_use]
    pub fn shard(&self, rank: u64, world_size: u64) -> Self {
        self.verb(Verb::Shard { rank, world_size })
    }

    /// The same data set, run with other options.
    #[must_use]
    pub fn with_options(&self, options: Options) -> Self {
        let mut this = self.clone();
        this.plan.options = options;
        this
    }

    /// The plan as data.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The present options.
    pub fn options(&self) -> &Options {
        &self.plan.options
    }

    /// Where samples come from.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Elements of an epoch: samples, or batches after `batch`. `None` is without end.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for verbs that make no sense where they stand.
    pub fn len(&self) -> Result<Option<u64>> {
        Ok(self.order()?.len())
    }

    /// True if an epoch has no element.
    ///
    /// # Errors
    /// As [`Dataset::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.order()?.is_empty())
    }

    fn order(&self) -> Result<Order> {
        self.plan.cache()?;
        Order::new(self.source.len(), &self.plan.verbs)
    }

    /// The program. If transforms do not fix the size of an image, that of sample `first` does, or of the first
    /// readable one.
    fn program(&self, first: u64, assembly: Assembly<'_>) -> Result<Program> {
        Program::new(&self.plan, self.source.schema(), assembly, &mut |field, program| {
            let mut record = Record { limits: self.plan.options.limits, ..Record::default() };
            let mut scratch = ImageScratch::default();
            let mut last = None;
            for index in std::iter::once(first).chain(0..self.source.len().min(PROBES)) {
                let pick = Pick { index, epoch: 0 };
                let seed = self.plan.seed();
                let maker = Maker { program, seed, pick, limits: &self.plan.options.limits };
                let size = self.source.fetch(index, &mut record).and_then(|()| {
                    let bytes = match record.values.get(field) {
                        Some(Value::Bytes(bytes)) => bytes.as_slice(),
                        _ => self.source.resident(index, field).unwrap_or_default(),
                    };
                    maker.final_size(bytes, &mut scratch)
                });
                match size {
                    Ok(size) => return Ok(size),
                    Err(error) => {
                        last = Some(
                            error.with_sample(self.source.key(index), index).with_source(self.source.name()),
                        );
                    }
                }
            }
            Err(last.unwrap_or_else(|| Error::config(format!("{} has no samples", self.source.name()))).with_hint(
                "the size of a batch is settled by the first readable sample, since the transforms do not fix it",
            ))
        })
    }

    fn executor(&self, first: u64, given: bool) -> Result<Executor> {
        Ok(Executor::new(
            self.source.clone(),
            self.program(first, self.plan.assembly(given))?,
            self.plan.seed(),
            self.plan.options.limits,
        ))
    }

    /// The plan, what each optimizer pass did, and the program that workers run.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a plan that makes no sense.
    pub fn explain(&self) -> Result<String> {
        Ok(explain::explain(
            &self.plan,
            &self.program(0, self.plan.assembly(false))?,
            &self.order()?,
            &*self.source,
        ))
    }

    /// [`Dataset::explain`], then runs `batches` batches and adds time and bytes per stage.
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

    /// Makes one sample by itself, as it comes in `epoch`: for a look at it, or to replay a bad one.
    ///
    /// # Errors
    /// Whatever is wrong with this sample.
    pub fn sample(&self, index: u64, epoch: u64) -> Result<Batch> {
        self.sampler().sample(index, epoch)
    }

    /// Makes samples one by one, in the calling thread, and keeps what the next one needs too.
    pub fn sampler(&self) -> Sampler {
        Sampler::new(self.clone())
    }

    /// A loader for this data set. Threads start with its first epoch.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a plan that makes no sense, [`crate::ErrorKind::Limit`] if a batch is too large for the
    /// memory budget.
    pub fn loader(&self) -> Result<Loader> {
        self.make_loader(false)
    }

    /// A loader whose samples the caller chooses, batch by batch: [`Loader::begin`], [`Loader::submit`],
    /// [`Loader::finish`]. The plan says what happens to a sample; it must leave the order alone.
    ///
    /// A sample may occur several times in a pass, with different random draws. Under `on_error` skip, every batch is
    /// answered, if need be by an empty one; under replace, stand-ins come from the same batch.
    ///
    /// # Errors
    /// As [`Dataset::loader`]; [`crate::ErrorKind::Config`] if the plan has verbs other than `map` and `cache`.
    pub fn loader_given(&self) -> Result<Loader> {
        let ordering = |verb: &&Verb| !matches!(verb, Verb::Map { .. } | Verb::Cache { .. });
        if self.plan.verbs.iter().any(|verb| ordering(&verb)) {
            return Err(Error::config("the plan has an order of its own, and so takes none from the caller")
                .with_hint("leave out shuffle, batch, take, skip, repeat and shard"));
        }
        self.make_loader(true)
    }

    fn make_loader(&self, given: bool) -> Result<Loader> {
        let order = self.order()?;
        let fingerprint = self.plan.fingerprint(self.source.len());
        let cache = self.plan.cache()?;
        Loader::new(self.executor(0, given)?, order, fingerprint, self.plan.options.clone(), cache, given)
    }
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
