//! How pods get from one template to the next.

use super::int_or_percent::IntOrPercent;
use coracle_fields::FromField;
use coracle_fields::apps::v1::{DaemonSetUpdateStrategy, DeploymentStrategy};
use serde::Deserialize;

/// How to get from one template to the next.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    /// `RollingUpdate`; a Deployment's may be `Recreate`, a DaemonSet's `OnDelete`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Limits of a rolling update.
    pub rolling_update: Limits,
}

impl FromField<DeploymentStrategy> for Strategy {}
impl FromField<DaemonSetUpdateStrategy> for Strategy {}

/// Limits of a rolling update.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Pods above the wanted number, or nodes with a second, newer pod.
    pub max_surge: Option<IntOrPercent>,
    /// Pods below the wanted number, or nodes without an available pod.
    pub max_unavailable: Option<IntOrPercent>,
}
