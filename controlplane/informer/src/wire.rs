//! The halves of an object: what is wanted, and what was told of it.

use serde::Deserialize;
use serde_json::Value;

/// Wanted and told; what is not there is as a new one has it.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "S: Default + Deserialize<'de>, T: Default + Deserialize<'de>"))]
pub struct Wire<S, T = Value> {
    /// Wanted.
    #[serde(default)]
    pub spec: S,
    /// Told.
    #[serde(default)]
    pub status: T,
}
