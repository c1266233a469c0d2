//! What a status is made from.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::config::cpu_quotas::CpuQuotas;
use crate::devices::inventory::ContainerHealth;
use crate::pod::observed::Observed;
use crate::pod::plan::Verdict;
use crate::pod::pod_limits::PodLimits;

/// What keeps containers from having the resources of their spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The node cannot give them: now (`Deferred`) or ever (`Infeasible`).
    Pending {
        /// Which of both.
        reason: &'static str,
        /// What is missing.
        message: String,
    },
    /// The runtime did not take them.
    Failing(String),
}

/// Everything a status is made from.
pub struct StatusFacts<'a> {
    /// The pod as the API has it.
    pub pod: &'a Pod,
    /// Its spec.
    pub spec: Cow<'a, PodSpec>,
    /// The status reported last, or the API's.
    pub previous: &'a PodStatus,
    /// What the runtime has.
    pub observed: &'a Observed,
    /// Why containers wait: reason and message by container name.
    pub waiting: &'a BTreeMap<String, (String, String)>,
    /// Startup and liveness verdicts by container id.
    pub verdicts: &'a BTreeMap<String, Verdict>,
    /// Ids of containers whose readiness probe succeeds.
    pub ready: &'a BTreeSet<String>,
    /// Names of containers whose postStart hook runs: they count as being created.
    pub hooked: &'a BTreeSet<String>,
    /// Ids of containers stopped to be replaced.
    pub replaced: &'a BTreeSet<String>,
    /// No container will be started again.
    pub ended: bool,
    /// The node decided that the pod failed: reason and message.
    pub failure: Option<(&'a str, &'a str)>,
    /// It did so for its own sake: message of the condition `DisruptionTarget`.
    pub disruption: Option<&'a str>,
    /// What keeps resizes from being accepted or done.
    pub resizes: &'a [Resize],
    /// The pod's own limits, as far as they are known.
    pub limits: PodLimits,
    /// How its limit of cpus is enforced.
    pub cpu_quotas: CpuQuotas,
    /// Health of devices, by container.
    pub devices: &'a BTreeMap<String, ContainerHealth>,
    /// The node's addresses.
    pub host_ips: &'a [String],
    /// The runtime's name, the scheme of container ids.
    pub runtime: &'a str,
    /// Now.
    pub now: Timestamp,
}
