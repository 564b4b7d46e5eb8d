//! How a script ended: written down by whoever started it, and said in the report.

use serde::{Deserialize, Serialize};

/// How the script ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Exit {
    /// Exit status, if it exited.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
    /// `finished`, `steps`, `time`, `interrupt`, `exception`, `running`.
    pub reason: String,
    /// Type and text of the exception that ended it.
    pub exception: Option<String>,
}
