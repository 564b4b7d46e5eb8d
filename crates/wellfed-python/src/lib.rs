//! The module `wellfed._native`: what Python calls.
//!
//! It parses, enters the engine and converts; it decides nothing. `enter` is the only way in, `error` the only
//! way out for errors. Python objects and the engine meet in `memory` (arrays that come in without a copy) and
//! `array` (arrays that go out without one).

mod array;
mod augment;
mod command;
mod dataset;
mod enter;
mod error;
mod finish;
mod finisher;
mod leaves;
mod loader;
mod memory;
mod page_lock;
mod picture;
mod secrets;
mod sequence;
mod sound;
mod writing;

/// The module `wellfed._native`.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::{Array, RaggedColumn};
    #[pymodule_export]
    use crate::augment::{AugmentPlan, Augmentation, draw_blends};
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::dataset::{Dataset, apply, check_transform, default_options, device_has_streams};
    #[pymodule_export]
    use crate::finish::{FinishPlan, mix_images, open_nvjpeg};
    #[pymodule_export]
    use crate::finisher::{DeviceArray, Finisher};
    #[pymodule_export]
    use crate::leaves::{Leaves, RowIndexes};
    #[pymodule_export]
    use crate::loader::Loader;
    #[pymodule_export]
    use crate::page_lock::{PageLocks, end_page_locks};
    #[pymodule_export]
    use crate::picture::{Picture, SeenRows, Values, jpeg_head};
    #[pymodule_export]
    use crate::secrets::{keep_secrets, referred_secrets};
    #[pymodule_export]
    use crate::sequence::Order;
    #[pymodule_export]
    use crate::sound::{Sound, whisper_log_mel};
    #[pymodule_export]
    use crate::writing::{Writing, verify};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        wellfed_stores::register();
        wellfed_hdf5::register();
        wellfed_tables::register();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
