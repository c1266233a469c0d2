//! What a worker remembers of its containers between passes.

use coracle_proto::cri;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::pod::backoff::Backoffs;
use crate::pod::pod_limits::PodLimits;
use crate::status::facts::Resize;

/// Retries of containers and of the sandbox.
pub(super) struct Retries {
    pub(super) backoffs: Backoffs,
    /// No new attempt before this time: by container, `""` for the sandbox.
    pub(super) not_before: HashMap<String, Instant>,
    /// Why containers wait: reason and message by name.
    pub(super) waiting: BTreeMap<String, (String, String)>,
    /// Instances whose back-off was recorded as an event.
    pub(super) told: BTreeSet<String>,
}

impl Retries {
    /// Nothing was tried yet.
    pub(super) fn new(crash_loop_max: Duration) -> Self {
        Self {
            backoffs: Backoffs::up_to(crash_loop_max),
            not_before: HashMap::new(),
            waiting: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }
}

/// Resources of running containers.
#[derive(Default)]
pub(super) struct Resizes {
    /// What they have, by id.
    pub(super) applied: HashMap<String, Applied>,
    /// Why a resize is pending.
    pub(super) pending: Option<Resize>,
    /// Why a resize that was accepted is not done.
    pub(super) failing: Option<Resize>,
    /// Whether a resize was accepted that is not done.
    pub(super) started: bool,
    /// Whether the pod's own limits are known to be those that it was given.
    pub(super) verified: bool,
    /// The pod's own limits.
    pub(super) whole: PodLimits,
}

/// The numbers a resize changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) cpus: String,
    pub(super) shares: i64,
    pub(super) quota: i64,
    pub(super) memory: i64,
}

impl From<&cri::LinuxContainerResources> for Applied {
    fn from(from: &cri::LinuxContainerResources) -> Self {
        Applied {
            cpus: from.cpuset_cpus.clone(),
            shares: from.cpu_shares,
            quota: from.cpu_quota,
            memory: from.memory_limit_in_bytes,
        }
    }
}
