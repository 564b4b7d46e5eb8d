//! Mixes finished batches in the memory they lie in: what `map(MixUp(...))` after `batch` does, and what a caller who gives
//! batches has drawn for each.
//!
//! Images that are left to a device are mixed there: what was drawn for them goes with the batch. Their labels are mixed here.
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

use super::left::LeftImage;
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

/// The images of a batch: values of one size, side by side in a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Images {
    /// Number of the column.
    pub(crate) column: usize,
    dtype: DType,
    /// Channels, height, width.
    pub(crate) size: [usize; 3],
    layout: Batching,
}

impl Images {
    /// Those in column `number`, if that has values of one size with three sides.
    pub(crate) fn of(columns: &[ColumnSpec], number: usize, layout: Batching) -> Option<Self> {
        let ColumnKind::Array { dtype, shape } = &columns.get(number)?.kind else { return None };
        let &[a, b, c] = &shape[..] else { return None };
        let size = match layout {
            Batching::Nchw => [a, b, c],
            Batching::Nhwc => [c, a, b],
        };
        Some(Self { column: number, dtype: *dtype, size, layout })
    }

    /// Whether they can be mixed so.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if they cannot.
    pub(crate) fn check(&self, blend: Blend) -> Result<()> {
        let [_, height, width] = self.size;
        match blend {
            Blend::Sum { lam } if !lam.is_finite() => Err(Error::config(format!("lam is {lam}"))),
            Blend::Sum { .. } if float(self.dtype).is_none() => Err(Error::config(format!(
                "weighted sums are of float32, float16 and bfloat16 images, and these are {}",
                self.dtype.name()
            ))),
            Blend::Box { corners: [x1, y1, x2, y2], .. }
                if !(x1 <= x2 && x2 <= width && y1 <= y2 && y2 <= height) =>
            {
                Err(Error::config(format!(
                    "columns {x1} to {x2} of rows {y1} to {y2} are no rectangle of images of {height} x {width}"
                )))
            }
            Blend::Sum { .. } | Blend::Box { .. } => Ok(()),
        }
    }

    /// Mixes the `samples` at the beginning of a column's `bytes`.
    pub(crate) fn mix(&self, samples: usize, bytes: &mut [u8], drawn: Blend) -> Result<()> {
        let own = self.dtype.size() * self.size.iter().product::<usize>();
        let bytes = &mut bytes[..samples * own];
        if bytes.is_empty() {
            return Ok(());
        }
        match drawn {
            Blend::Sum { lam } => {
                let dtype = float(self.dtype)
                    .ok_or_else(|| Error::new(ErrorKind::Internal, "whole numbers are not blended"))?;
                blend(bytes, samples, dtype, lam);
            }
            Blend::Box { corners, .. } => {
                self.runs(corners).into_iter().for_each(|runs| paste(bytes, samples, &runs));
            }
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

/// What is done to finished batches.
#[derive(Clone, Debug)]
pub(crate) struct Mixer {
    transforms: Vec<Mixing>,
    pub(crate) images: Images,
    /// Number of the column of labels.
    pub(crate) label: usize,
    classes: usize,
    /// Whether labels are indices before they are mixed.
    indices: bool,
    /// Whether images are left to a device.
    left: bool,
}

/// What the column of labels is after mixing.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// What was drawn for images that are left to a device, in order.
    pub(crate) blends: Vec<Blend>,
}

impl Mixer {
    /// For batches of `columns`, whose images have this layout; of some columns images are left to a device.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for images and labels that cannot be mixed.
    pub(crate) fn new(
        mixed: &[Mixed],
        columns: &[ColumnSpec],
        left: &[Option<LeftImage>],
        layout: Batching,
    ) -> Result<Option<Self>> {
        let Some(&Mixed { image, label, .. }) = mixed.first() else { return Ok(None) };
        let left = left.get(image).and_then(Option::as_ref);
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
        let images = match left {
            Some(&LeftImage { size, dtype, .. }) => Images { column: image, dtype, size, layout },
            None => {
                let (_, sides) = shape_of(image)?;
                Images::of(columns, image, layout).ok_or_else(|| {
                    Error::config(format!(
                        "{name}: {} has shape {sides:?}, and images have 3 sides",
                        columns[image].name
                    ))
                })?
            }
        };
        let Images { size, dtype, .. } = images;
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
        Ok(Some(Self { transforms, images, label, classes, indices, left: left.is_some() }))
    }

    /// What the column of labels must be while samples are made; `None`: what it is.
    pub(crate) fn label_column(&self) -> Option<ColumnKind> {
        // An index takes as much as two classes.
        let shape = vec![self.classes.max(2)];
        self.indices.then_some(ColumnKind::Array { dtype: DType::Float32, shape })
    }

    /// Whether images are left to a device, which mixes them.
    pub(crate) fn leaves_images(&self) -> bool {
        self.left
    }

    /// Mixes `samples` samples, which stand at the beginning of both columns; of images that are left to a device there are
    /// no bytes.
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
        let [_, height, width] = self.images.size;
        let soft = |dtype, sides: &[usize]| Labels {
            dtype,
            shape: [&[samples], sides].concat(),
            blends: Vec::new(),
        };
        let mut hard = self.indices;
        if samples == 0 {
            return Ok(soft(DType::Float32, &[self.classes]));
        }
        if hard {
            let place = 4 * self.classes.max(2);
            (0..samples).for_each(|at| labels.copy_within(at * place..at * place + 8, at * 8));
        }
        let mut blends = draw_blends(&self.transforms, (height, width), key.seed, key.epoch, key.index);
        for &drawn in &blends {
            if std::mem::take(&mut hard) {
                self.one_hot(samples, labels)?;
            }
            if !self.left {
                self.images.mix(samples, images, drawn)?;
            }
            let (Blend::Sum { lam } | Blend::Box { lam, .. }) = drawn;
            blend(&mut labels[..samples * 4 * self.classes], samples, Dtype::F32, lam);
        }
        blends.truncate(if self.left { blends.len() } else { 0 });
        let made = if hard { soft(DType::Int64, &[]) } else { soft(DType::Float32, &[self.classes]) };
        Ok(Labels { blends, ..made })
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
}

/// What `transforms` do to a batch of images of so many rows and columns, of which the first one has this index in this
/// epoch: of no more than 64 transforms.
pub fn draw_blends(
    transforms: &[Mixing],
    size: (usize, usize),
    seed: u64,
    epoch: u64,
    index: u64,
) -> Vec<Blend> {
    let mut blends = Vec::new();
    for (transform, stage) in transforms.iter().zip(stage::BATCHES) {
        transform.draw(size, &mut Rng::for_stage(seed, epoch, index, stage), &mut blends);
    }
    blends
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
