//! Bytes of remote objects on local disk, chosen by what comes next.
//!
//! [`Policy`] says what stays, [`Folder`] keeps it: in files that all processes of a machine share, with one download each.

mod folder;
mod policy;

pub use folder::{Claim, Folder};
pub use policy::{Moment, NEVER, Policy};
