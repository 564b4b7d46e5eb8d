//! `wellfed demo`: trains a network, and so belongs to the Python package.

use clap::Args;

use crate::output::note;

/// Train a small network on generated photographs (needs the Python package)
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Passed on to the Python package.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<std::ffi::OsString>,
}

impl Demo {
    /// Says where the demo is.
    pub(crate) fn run(self) -> i32 {
        drop(self.rest);
        note(
            "error: the demo trains a network with PyTorch and is part of the Python package\n\
             hint: run `pip install .` and `python -m wellfed demo`, or `make demo`, in the repository",
        );
        2
    }
}
