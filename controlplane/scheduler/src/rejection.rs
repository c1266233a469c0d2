//! Why a node is refused: the rule, and its reasons in upstream's words.

use std::borrow::Cow;

/// The rule that refused, by upstream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Plugin {
    SchedulingGates,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    NodeDeclaredFeatures,
    /// A process of the operator that is asked by HTTP.
    Extender,
}

/// Why a node is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// By which rule.
    pub plugin: Plugin,
    /// In upstream's words.
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether removing pods from the node cannot help.
    pub hopeless: bool,
}

impl Rejection {
    /// Removing pods may help.
    pub fn new(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { plugin, reasons: vec![reason.into()], hopeless: false }
    }

    /// Removing pods cannot help.
    pub fn hopeless(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { hopeless: true, ..Self::new(plugin, reason) }
    }
}
