//! Bytes of remote objects on local disk, chosen by what comes next.
//!
//! [`Policy`] says what stays, by what [`Future`] knows of the order; [`Folder`] keeps it, in files that all processes of a
//! machine share, with one download each; `Keeper` stands between it and the I/O layer, so that nobody waits for the disk.

mod folder;
mod future;
mod keeper;
mod policy;
#[cfg(test)]
mod simulation;

pub use folder::{Claim, Folder, Guard, Look, Owned};
pub use future::{Future, moment, visit};
pub(crate) use keeper::{Ask, Found, Keeper, Name, Need, READERS, Reply, Walk};
pub use policy::{IN_USE, Moment, NEVER, Policy, SOMETIME, User};
