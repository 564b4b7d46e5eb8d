//! Mixes finished batches in the memory they lie in: what `map(MixUp(...))` after `batch` does.
//!
//! Labels that are indices of classes become rows of float32, one number a class. The column has room for those from the
//! beginning; workers write the index to the start of a sample's place.
//!
//! Invariant: what is drawn depends on the seed and the identity of the first sample's source, its epoch and index, and on
//! the place of the transform among those of batches: not on ranks, workers, or the batches before.

use wellfed_kernels::{
    image::Dtype,
    mix::{Runs, blend, paste},
};

use crate::{
    Error, ErrorKind, Result,
    column::{ColumnKind, ColumnSpec},
    plan::{Batching, Mixed, are_indices},
    rng::{Rng, stage},
    sample::DType,
    transform::{Blend, Mixing},
};

/// What the draws of a batch are keyed by: its first sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) seed: u64,
    pub(crate) epoch: u64,
    pub(crate) index: u64,
}

/// What is done to finished batches.
#[derive(Clone, Debug)]
pub(crate) struct Mixer {
    transforms: Vec<Mixing>,
    /// Number of the column of images.
    pub(crate) image: usize,
    /// Number of the column of labels.
    pub(crate) label: usize,
    dtype: DType,
    /// Channels, height, width.
    size: [usize; 3],
    layout: Batching,
    classes: usize,
    /// Whether labels are indices before they are mixed.
    indices: bool,
}

/// What the column of labels is after mixing.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl Mixer {
    /// For batches of `columns`, whose images have this layout.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for images and labels that cannot be mixed.
    pub(crate) fn new(mixed: &[Mixed], columns: &[ColumnSpec], layout: Batching) -> Result<Option<Self>> {
        let Some(&Mixed { image, label, .. }) = mixed.first() else { return Ok(None) };
        let transforms: Vec<Mixing> = mixed.iter().flat_map(|one| one.transforms.clone()).collect();
        if transforms.len() > stage::BATCHES.len() {
            let (count, most) = (transforms.len(), stage::BATCHES.len());
            return Err(Error::config(format!(
                "map(): a batch has {count} transforms; at most {most} can be"
            )));
        }
        if let Some(other) = mixed.iter().find(|one| (one.image, one.label) != (image, label)) {
            return Err(Error::config(format!(
                "{} mixes other fields than the one before it",
                other.transforms[0].name()
            )));
        }
        let name = transforms[0].name();
        let shape_of = |at: usize| match &columns[at].kind {
            ColumnKind::Array { dtype, shape } => Ok((*dtype, &shape[..])),
            _ => Err(Error::config(format!(
                "{name}: {} differs in size from sample to sample",
                columns[at].name
            ))
            .with_hint("end with one size, as by Resize((h, w)) or a crop")),
        };
        let (dtype, sides) = shape_of(image)?;
        let &[a, b, c] = sides else {
            let what =
                format!("{name}: {} has shape {sides:?}, and images have 3 sides", columns[image].name);
            return Err(Error::config(what));
        };
        let size = match layout {
            Batching::Nchw => [a, b, c],
            Batching::Nhwc => [c, a, b],
        };
        let mixes: Vec<_> = transforms.iter().flat_map(Mixing::mixes).collect();
        if mixes.iter().any(|(_, sums)| *sums) && float(dtype).is_none() {
            return Err(Error::config(format!(
                "MixUp works on float32, float16 and bfloat16 images, and {} is {}",
                columns[image].name,
                dtype.name()
            ))
            .with_stage("MixUp")
            .with_hint("put ToDtype(\"float32\", scale=True) before batch()"));
        }
        let mut given = mixes.iter().filter_map(|(mix, _)| mix.num_classes);
        let classes = given.next();
        if let Some(other) = given.find(|other| Some(*other) != classes) {
            return Err(Error::config(format!("num_classes is {} and {other}", classes.unwrap_or(0))));
        }
        let (kind, sides) = shape_of(label)?;
        let indices = are_indices(kind, sides);
        let classes = match (sides, classes) {
            ([], Some(classes)) if indices => classes,
            ([], None) if indices => {
                return Err(Error::config("num_classes must be passed if the labels are index-based (1D)")
                    .with_stage(name));
            }
            (&[own], classes) if kind == DType::Float32 => {
                if let Some(classes) = classes.filter(|classes| *classes != own) {
                    return Err(Error::config(format!(
                        "labels have {own} classes, and num_classes is {classes}"
                    ))
                    .with_stage(name)
                    .with_hint("num_classes can be left out where labels are probabilities"));
                }
                own
            }
            _ => {
                return Err(Error::config(format!(
                    "{name}: labels are {} of shape {sides:?}, and must be int64 numbers or float32 [num_classes]",
                    kind.name()
                )));
            }
        };
        if size.contains(&0) || classes == 0 {
            return Err(Error::config(format!("{name}: images of {size:?}, {classes} classes")));
        }
        Ok(Some(Self { transforms, image, label, dtype, size, layout, classes, indices }))
    }

    /// What the column of labels must be while samples are made; `None`: what it is.
    pub(crate) fn label_column(&self) -> Option<ColumnKind> {
        // An index takes as much as two classes.
        let shape = vec![self.classes.max(2)];
        self.indices.then_some(ColumnKind::Array { dtype: DType::Float32, shape })
    }

    /// Mixes `samples` samples, which stand at the beginning of both columns.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for a label that is none of the classes.
    pub(crate) fn run(
        &self,
        samples: usize,
        images: &mut [u8],
        labels: &mut [u8],
        key: Key,
    ) -> Result<Labels> {
        let [_, height, width] = self.size;
        let soft = |dtype, sides: &[usize]| Labels { dtype, shape: [&[samples], sides].concat() };
        let mut hard = self.indices;
        if samples == 0 {
            return Ok(soft(DType::Float32, &[self.classes]));
        }
        let own = self.dtype.size() * self.size.iter().product::<usize>();
        let images = &mut images[..samples * own];
        if hard {
            let place = 4 * self.classes.max(2);
            (0..samples).for_each(|at| labels.copy_within(at * place..at * place + 8, at * 8));
        }
        let mut blends = Vec::new();
        for (transform, stage) in self.transforms.iter().zip(stage::BATCHES) {
            let mut rng = Rng::for_stage(key.seed, key.epoch, key.index, stage);
            transform.draw((height, width), &mut rng, &mut blends);
        }
        for drawn in blends {
            if std::mem::take(&mut hard) {
                self.one_hot(samples, labels)?;
            }
            let lam = match drawn {
                Blend::Sum { lam } => {
                    let dtype = float(self.dtype)
                        .ok_or_else(|| Error::new(ErrorKind::Internal, "whole numbers are not blended"))?;
                    blend(images, samples, dtype, lam);
                    lam
                }
                Blend::Box { corners, lam } => {
                    self.runs(corners).into_iter().for_each(|runs| paste(images, samples, &runs));
                    lam
                }
            };
            blend(&mut labels[..samples * 4 * self.classes], samples, Dtype::F32, lam);
        }
        Ok(if hard { soft(DType::Int64, &[]) } else { soft(DType::Float32, &[self.classes]) })
    }

    /// Makes rows of numbers of the indices at the beginning of `labels`.
    fn one_hot(&self, samples: usize, labels: &mut [u8]) -> Result<()> {
        let (indices, _) = labels[..8 * samples].as_chunks::<8>();
        let indices: Vec<i64> = indices.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect();
        labels[..samples * 4 * self.classes].fill(0);
        for (at, index) in indices.into_iter().enumerate() {
            let class =
                usize::try_from(index).ok().filter(|class| *class < self.classes).ok_or_else(|| {
                    let what = format!(
                        "label {index} at place {at} of its batch is none of {} classes",
                        self.classes
                    );
                    Error::new(ErrorKind::Shape, what)
                        .with_stage(self.transforms[0].name())
                        .with_hint("labels go from 0 to num_classes - 1")
                })?;
            let start = 4 * (at * self.classes + class);
            labels[start..start + 4].copy_from_slice(&1.0_f32.to_ne_bytes());
        }
        Ok(())
    }

    /// Where a rectangle lies in an image: one entry a channel, or one for all where these lie together.
    fn runs(&self, [x1, y1, x2, y2]: [usize; 4]) -> Vec<Runs> {
        let [channels, height, width] = self.size;
        let (planes, pixel) = match self.layout {
            Batching::Nchw => (channels, self.dtype.size()),
            Batching::Nhwc => (1, self.dtype.size() * channels),
        };
        let stride = width * pixel;
        let plane = |number: usize| Runs {
            first: (number * height + y1) * stride + x1 * pixel,
            run: (x2 - x1) * pixel,
            stride,
            count: y2 - y1,
        };
        (0..planes).map(plane).collect()
    }
}

/// The element type of the kernels that blend.
fn float(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::Float32 => Some(Dtype::F32),
        DType::Float16 => Some(Dtype::F16),
        DType::BFloat16 => Some(Dtype::Bf16),
        _ => None,
    }
}
