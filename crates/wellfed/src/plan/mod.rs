//! What the user asked for, as data, and how it is turned into what workers run.
//!
//! [`Plan`] is serializable, versioned and printable: a tree of [`Node`]s. [`lower`] pushes what happens to samples
//! down to the sources, so that each has one [`Program`], the plan after the passes in [`optimizer`]; what is left of
//! the tree is the [`crate::order`].

mod assembly;
pub(crate) mod audio;
pub(crate) mod field;
mod kept;
pub mod lower;
mod mixed;
mod node;
pub mod optimizer;
pub mod options;
mod outline;
mod pad;
mod place;
pub mod program;
mod zipped;

pub(crate) use assembly::Assembly;
pub use kept::Kept;
pub use mixed::Mixed;
pub(crate) use mixed::are_indices;
pub use node::{Decoded, Node, PythonKind};
pub use options::{Auto, Batching, Decoding, OnDevice, OnError, Options, RemoteCache, RowIndexing, bytes_of};
pub(crate) use outline::Outline;
pub use pad::{Pad, PadValue};
pub use place::{Device, Place, Run, Stage, Stages, Work, Workers};
pub use program::Program;
use serde::{Deserialize, Serialize};
pub(crate) use zipped::{batches_of_zip, not_straight_from_batch};

/// Version of the plan's JSON form.
pub const PLAN_VERSION: u32 = 2;

/// A pipeline as data: a tree of sources and verbs, and options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`] when it was written.
    pub version: u32,
    /// The last verb, or the source.
    pub root: Node,
    /// How it is run. Does not change which samples or pixels come out, except where an option says so.
    pub options: Options,
}
