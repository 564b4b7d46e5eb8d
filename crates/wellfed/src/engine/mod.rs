//! Runs a program: worker threads, the ring of batch buffers, and the [`Loader`] the consumer holds.
//!
//! ```text
//! readers --records--> schedule <--claims--> workers --samples--> ring --batches--> Loader::next
//! ```
//!
//! `schedule` decides who does what, `shared` runs the threads, `exec` makes one sample, `ring` owns the
//! batches' `memory`, `governor` and `pace` tune. The loader keeps making batches of the next epoch while the last ones of this
//! epoch are consumed.

mod ahead;
pub(crate) mod audio;
mod batch;
pub(crate) mod cache;
mod epochs;
pub(crate) mod exec;
mod float;
mod fold;
mod foresight;
pub(crate) mod governor;
pub(crate) mod image;
pub(crate) mod job;
mod kernel;
mod leave;
mod left;
mod loader;
pub(crate) mod mix;
mod open;
mod pace;
mod recipe;
mod recipes;
mod remote;
pub(crate) mod ring;
mod schedule;
mod shared;
mod shares;
mod single;
pub(crate) mod stack;
mod tensorflow;
pub(crate) mod threads;
mod warm;
mod whole;

pub use batch::{Batch, Column, ColumnData};
pub use cache::{Indexed, RowIndexes, SeenRows, index_rows};
pub use left::LeftImage;
pub use loader::{BadSample, Epoch, Loader, Next};
pub use mix::draw_blends;
pub use recipes::Recipes;
pub use ring::Buffer;
pub use single::{Form, Single, SingleScratch, Values};
