//! Spec and status of an object.

use serde::Deserialize;
use serde_json::Value;

/// Spec and status; missing fields have their defaults.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "S: Default + Deserialize<'de>, T: Default + Deserialize<'de>"))]
pub struct Wire<S, T = Value> {
    /// Desired state.
    #[serde(default)]
    pub spec: S,
    /// Observed state.
    #[serde(default)]
    pub status: T,
}
