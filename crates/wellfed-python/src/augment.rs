//! `_native.Augmentation` and `_native.AugmentPlan`: transforms on batches of images where these lie, on a device or in
//! the host's memory.
//!
//! The engine says what is drawn ([`Recipes`]), wellfed-cuda how kernels do it ([`Plan`]). All memory is the caller's,
//! and comes as addresses: `wellfed.torch._augment` is the only caller, and keeps what they belong to.

use std::time::{Duration, Instant};

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use wellfed::{
    Error, ErrorKind, Result,
    engine::{Recipes, draw_blends as draw},
    transform::{Blend, Mixing, Size, Transform},
};
use wellfed_cuda::augment::{Output, Plan, Source};
use wellfed_kernels::image::{Dtype, Layout};

use crate::{
    dataset, enter,
    finish::{place, run},
};

/// Images that one thread makes at least.
const SHARE: usize = 4;

/// What is drawn within this time is drawn by the calling thread: 256 common chains take 0.2 ms, and a thread to start
/// half of that. Random noise takes 0.3 ms an image.
const ALONE: Duration = Duration::from_micros(500);

/// What transforms of batches (a JSON list of them) do to one of images of `size` (height, width), whose first image has this
/// index: for each blend, in order, the weight of an image itself, and the rectangle `x1, y1, x2, y2` if it comes from the
/// image before.
#[pyfunction]
pub(crate) fn draw_blends(
    py: Python<'_>,
    transforms: &str,
    size: (usize, usize),
    seed: u64,
    epoch: u64,
    index: u64,
) -> PyResult<Vec<(f64, Option<[usize; 4]>)>> {
    let transforms: Vec<Mixing> = dataset::parse(py, "transforms", transforms)?;
    enter::quick(py, || {
        transforms.iter().try_for_each(Mixing::check)?;
        if size.0 == 0 || size.1 == 0 {
            return Err(Error::config(format!("images of {} x {} have nothing to mix", size.0, size.1)));
        }
        let blend = |blend| match blend {
            Blend::Sum { lam } => (lam, None),
            Blend::Box { corners, lam } => (lam, Some(corners)),
        };
        Ok(draw(&transforms, size, seed, epoch, index).into_iter().map(blend).collect())
    })
}

/// A chain of transforms for images of one size.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Augmentation {
    recipes: Recipes,
}

#[pymethods]
impl Augmentation {
    /// The transform of the JSON text, for images whose `size` is channels, height and width; finished images are interleaved if
    /// `channels_last`.
    #[new]
    fn new(
        py: Python<'_>,
        transform: &str,
        size: (usize, usize, usize),
        channels_last: bool,
        seed: u64,
    ) -> PyResult<Self> {
        let transform: Transform = dataset::parse(py, "transform", transform)?;
        let layout = if channels_last { Layout::Hwc } else { Layout::Chw };
        let (channels, height, width) = size;
        let size = Size { height, width, channels };
        enter::quick(py, || Ok(Self { recipes: Recipes::new([transform], size, layout, seed)? }))
    }

    /// Channels, height and width of finished images, and the name of their elements' type.
    #[getter]
    fn output(&self) -> (usize, usize, usize, &'static str) {
        let Size { height, width, channels } = self.recipes.output();
        let dtype = match self.recipes.map().dtype() {
            Dtype::U8 => "uint8",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
        };
        (channels, height, width, dtype)
    }

    /// Plans the kernels for images of these indices: `address` and `strides` (bytes from image to image, channel to
    /// channel, row to row, pixel to pixel) say where they lie, `output` where finished ones go, one behind the other.
    fn plan(
        &self,
        py: Python<'_>,
        indices: Vec<u64>,
        epoch: u64,
        address: u64,
        strides: [i64; 4],
        output: u64,
    ) -> PyResult<AugmentPlan> {
        let recipes = &self.recipes;
        let plan = enter::quick(py, || {
            let mut drawn = vec![None; indices.len()];
            let (begun, mut done) = (Instant::now(), 0);
            while done < drawn.len() && begun.elapsed() < ALONE {
                drawn[done] = Some(recipes.draw(epoch, indices[done])?);
                done += 1;
            }
            shared(&mut drawn[done..], 1, |first, part| {
                for (recipe, index) in part.iter_mut().zip(&indices[done + first..]) {
                    *recipe = Some(recipes.draw(epoch, *index)?);
                }
                Ok(())
            })?;
            let drawn: Vec<_> = drawn.into_iter().flatten().collect();
            let Size { height, width, channels } = recipes.input();
            let [image, plane, row, pixel] = strides;
            let sources: Vec<Source> = (0..indices.len() as i64)
                .map(|i| Source {
                    address: address.wrapping_add_signed(i * image),
                    height,
                    width,
                    channels,
                    plane,
                    row,
                    pixel,
                })
                .collect();
            let size = recipes.output();
            let output = Output {
                address: output,
                map: recipes.map(),
                layout: recipes.layout(),
                height: size.height,
                width: size.width,
            };
            Plan::new(&drawn, &sources, output).map_err(|e| Error::new(ErrorKind::Shape, e.to_string()))
        })?;
        Ok(AugmentPlan { plan })
    }

    /// Makes images of these indices with the engine's own code. `address` is of C-contiguous images, `output` where
    /// finished ones go; both are the host's memory.
    fn run(
        &self,
        py: Python<'_>,
        indices: Vec<u64>,
        epoch: u64,
        address: usize,
        output: usize,
    ) -> PyResult<()> {
        let recipes = &self.recipes;
        let bytes = |size: Size| size.height * size.width * size.channels;
        let (one, made) = (bytes(recipes.input()), bytes(recipes.output()) * recipes.map().dtype().size());
        enter::quick(py, || {
            if indices.is_empty() {
                return Ok(());
            }
            // SAFETY: the caller holds so many images on either side, and nobody writes to them meanwhile.
            let (given, slots) = unsafe {
                (
                    std::slice::from_raw_parts(
                        std::ptr::with_exposed_provenance::<u8>(address),
                        one * indices.len(),
                    ),
                    std::slice::from_raw_parts_mut(
                        std::ptr::with_exposed_provenance_mut::<u8>(output),
                        made * indices.len(),
                    ),
                )
            };
            shared(slots, made, |first, part| {
                for (i, slot) in part.chunks_exact_mut(made).enumerate() {
                    let at = first + i;
                    recipes.run(&given[at * one..][..one], epoch, indices[at], slot)?;
                }
                Ok(())
            })
        })
    }
}

/// A batch, ready to run once its memory is there.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct AugmentPlan {
    pub(crate) plan: Plan,
}

#[pymethods]
impl AugmentPlan {
    /// Bytes that are copied to the beginning of the parameters' memory.
    #[getter]
    fn copied(&self) -> usize {
        self.plan.parameters().len()
    }

    /// Bytes of the parameters' memory.
    #[getter]
    fn memory(&self) -> usize {
        self.plan.memory()
    }

    /// Bytes of scratch memory.
    #[getter]
    fn scratch(&self) -> usize {
        self.plan.scratch()
    }

    /// Kernels that run, by name.
    #[getter]
    fn kernels(&self) -> Vec<&'static str> {
        self.plan.launches(0, 0).map(|launch| launch.name).collect()
    }

    /// Writes what is copied to memory of the host of `size` bytes.
    fn write(&self, address: usize, size: usize) -> PyResult<()> {
        let bytes = self.plan.parameters();
        if size < bytes.len() {
            let what = format!("{} bytes of parameters do not fit into {size}", bytes.len());
            return Err(PyRuntimeError::new_err(what));
        }
        // SAFETY: the caller holds `size` bytes there, which nobody else looks at.
        let to = unsafe {
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(address), bytes.len())
        };
        to.copy_from_slice(bytes);
        Ok(())
    }

    /// Submits the work to a stream of CUDA device `device`; None is the host, where it is done when this returns.
    fn run(
        &self,
        py: Python<'_>,
        device: Option<u32>,
        stream: u64,
        parameters: u64,
        scratch: u64,
    ) -> PyResult<()> {
        run(py, || {
            let place = place(device, stream)?;
            for launch in self.plan.launches(parameters, scratch) {
                // SAFETY: the plan was made of images and for an output that the caller holds, and so is memory as large
                // as it says.
                unsafe { place.launch(launch.name, launch.grid, launch.threads, &launch.args)? };
            }
            Ok(())
        })
    }
}

/// Runs `work` on shares of `items`, of which each image has `size`, in as many threads as are of use. It gets the number
/// of the first image of its share.
fn shared<T: Send>(
    items: &mut [T],
    size: usize,
    work: impl Fn(usize, &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let images = items.len() / size.max(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(images / SHARE).max(1);
    if threads == 1 {
        return work(0, items);
    }
    let share = images.div_ceil(threads);
    std::thread::scope(|scope| {
        let parts = items.chunks_mut(share * size).enumerate();
        let work = &work;
        let running: Vec<_> =
            parts.map(|(i, part)| scope.spawn(move || enter::guarded(|| work(i * share, part)))).collect();
        running.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "a thread panicked")))
        })
    })
}
