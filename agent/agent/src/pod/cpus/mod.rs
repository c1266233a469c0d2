//! CPU manager (`--cpu-manager-policy static`): exclusive cpus for Guaranteed pods with integer requests; other pods
//! share the rest. Assignments are stored in `cpu_manager_state`.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

// Where cpus are.
pub mod topology;
// Reads where they are.
mod read;
// Chooses few groups of cpus.
mod pack;
// Chooses as many of each of several nodes.
mod distribute;
// Chooses cpus as the options say.
mod take;

use self::take::take;
use self::topology::Topology;
use super::spec::{self, Qos, Role};
use crate::config::cpu_options::CpuOptions;
use crate::numa::{self, Hints, Machine, Nodes, parse_list as parse};

/// Numbers of cpus.
pub type Set = BTreeSet<u32>;

/// Why cpus cannot be assigned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpusError {
    /// Not enough free cpus.
    #[error(
        "Allocate failed due to not enough cpus available to satisfy request: requested={requested}, available={available}, which is unexpected"
    )]
    TooFew {
        /// Asked for.
        requested: usize,
        /// Free.
        available: usize,
    },
    /// Containers get whole cores, and this is no number of them.
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {threads}")]
    PartOfCore {
        /// Asked for.
        requested: usize,
        /// Cpus of a core.
        threads: usize,
    },
    /// Containers get whole cores, and there are too few.
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {threads}"
    )]
    TooFewCores {
        /// Asked for.
        requested: usize,
        /// Cpus of free cores.
        available: usize,
        /// Cpus of a core.
        threads: usize,
    },
    /// The state file could not be written.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Record(String),
}

impl CpusError {
    /// The reason of the pod's status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::PartOfCore { .. } | Self::TooFewCores { .. } => "SMTAlignmentError",
            Self::TooFew { .. } | Self::Record(_) => "UnexpectedAdmissionError",
        }
    }
}

/// Assignments: pod uid → container → cpus, in the format `4-7,9`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    policy_name: String,
    default_cpu_set: String,
    #[serde(default)]
    entries: BTreeMap<String, BTreeMap<String, String>>,
}

/// The cpus of this node.
#[derive(Debug)]
pub struct Cpus {
    path: PathBuf,
    topology: Topology,
    machine: Machine,
    options: CpuOptions,
    reserved: Set,
    given: Mutex<BTreeMap<String, BTreeMap<String, Set>>>,
}

impl Cpus {
    /// Loads the state file. `reserved` thousandths of a cpu are never assigned exclusively; `system` is the directory of sysfs
    /// that describes the machine.
    pub fn open(dir: &Path, system: &Path, machine: Machine, reserved: i64, options: CpuOptions) -> Self {
        let topology = read::read(&system.join("cpu"), &machine);
        Self::with_topology(dir, topology, machine, reserved, options)
    }

    fn with_topology(
        dir: &Path,
        topology: Topology,
        machine: Machine,
        reserved: i64,
        options: CpuOptions,
    ) -> Self {
        let path = dir.join("cpu_manager_state");
        let all = topology.cpus();
        // At least one cpu stays shared.
        let count = usize::try_from(reserved).unwrap_or(0).div_ceil(1000).max(1);
        let reserved = take(&topology, &all, count, options).unwrap_or(all);
        let state: State =
            fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let pod = |(uid, containers): (String, BTreeMap<String, String>)| {
            let containers = containers.into_iter().map(|(name, cpus)| (name, parse(&cpus)));
            (uid, containers.collect::<BTreeMap<_, _>>())
        };
        let given = state.entries.into_iter().map(pod).collect();
        Self { path, topology, machine, options, reserved, given: Mutex::new(given) }
    }

    /// Assigns cpus to a pod, all or none; existing assignments stay. `true` if the shared cpus changed.
    pub fn admit(&self, pod: &Pod) -> Result<bool, CpusError> {
        let wanted = wanted(pod);
        let mut given = self.given.lock();
        if wanted.is_empty() || given.contains_key(spec::uid(pod)) {
            return Ok(false);
        }
        let free = self.free(&given);
        let mut own: BTreeMap<String, Set> = BTreeMap::new();
        // In the order in which they start: init containers leave their cpus to those that come after them.
        for (name, _, count) in &wanted {
            let cpus = self.pick(&free, &own, &wanted, *count, None)?;
            own.insert(name.clone(), cpus);
        }
        self.record(&mut given, spec::uid(pod), own)
    }

    /// Assigns cpus to one container, those of some NUMA nodes first. `true` if the shared cpus changed.
    pub fn admit_near(&self, pod: &Pod, container: &str, near: Option<Nodes>) -> Result<bool, CpusError> {
        let wanted = wanted(pod);
        let mut given = self.given.lock();
        let mut own = given.get(spec::uid(pod)).cloned().unwrap_or_default();
        let Some((name, _, count)) = wanted.iter().find(|(name, ..)| name == container) else {
            return Ok(false);
        };
        if own.contains_key(name) {
            return Ok(false);
        }
        let free = self.free(&given);
        let cpus = self.pick(&free, &own, &wanted, *count, near)?;
        own.insert(name.clone(), cpus);
        self.record(&mut given, spec::uid(pod), own)
    }

    /// Hints for the exclusive cpus of a container, or without one for those of all containers of the pod together.
    pub fn hints(&self, pod: &Pod, container: Option<&str>) -> Hints {
        let wanted = wanted(pod);
        let given = self.given.lock();
        let own = given.get(spec::uid(pod)).cloned().unwrap_or_default();
        let count = match container {
            Some(container) => wanted.iter().find(|(name, ..)| name == container)?.2,
            None => together(&wanted)?,
        };
        let reusable = reusable(&own, &wanted);
        let free: Set = self.free(&given).union(&reusable).copied().collect();
        let amount = |cpus: usize| u64::try_from(cpus).unwrap_or(u64::MAX);
        let total = |nodes: Nodes| amount(self.machine.cpus(nodes).len());
        let free = |nodes: Nodes| {
            let cpus = self.machine.cpus(nodes);
            reusable.is_subset(&cpus).then(|| amount(cpus.intersection(&free).count()))
        };
        Some(numa::hints(self.machine.all(), amount(count), total, free))
    }

    /// Chooses cpus for a container of a pod that has `own` ones: first those that init containers leave.
    fn pick(
        &self,
        free: &Set,
        own: &BTreeMap<String, Set>,
        wanted: &[(String, Role, usize)],
        count: usize,
        near: Option<Nodes>,
    ) -> Result<Set, CpusError> {
        let reusable = reusable(own, wanted);
        let taken: Set = own.values().flatten().copied().collect();
        let free = free.difference(&taken).copied();
        let all: Set = free.chain(reusable.iter().copied()).collect();
        self.check_cores(count, all.len())?;
        let candidates = if reusable.len() >= count { reusable } else { all };
        let too_few = CpusError::TooFew { requested: count, available: candidates.len() };
        let take = |from: &Set, count: usize| take(&self.topology, from, count, self.options);
        let Some(near) = near.map(|nodes| self.machine.cpus(nodes)) else {
            return take(&candidates, count).ok_or(too_few);
        };
        let close: Set = candidates.intersection(&near).copied().collect();
        let mut cpus = take(&close, count.min(close.len())).unwrap_or_default();
        let rest: Set = candidates.difference(&cpus).copied().collect();
        cpus.extend(take(&rest, count - cpus.len()).ok_or(too_few)?);
        Ok(cpus)
    }

    /// Whether a container can have whole cores, where the node gives only such.
    fn check_cores(&self, requested: usize, available: usize) -> Result<(), CpusError> {
        let threads = self.topology.threads();
        if !self.options.full_cores_only {
            Ok(())
        } else if !requested.is_multiple_of(threads) {
            Err(CpusError::PartOfCore { requested, threads })
        } else if requested > available {
            Err(CpusError::TooFewCores { requested, available, threads })
        } else {
            Ok(())
        }
    }

    fn record(
        &self,
        given: &mut BTreeMap<String, BTreeMap<String, Set>>,
        uid: &str,
        own: BTreeMap<String, Set>,
    ) -> Result<bool, CpusError> {
        let before = given.insert(uid.to_owned(), own);
        if let Err(error) = self.write(given) {
            match before {
                Some(before) => drop(given.insert(uid.to_owned(), before)),
                None => drop(given.remove(uid)),
            }
            return Err(CpusError::Record(error.to_string()));
        }
        Ok(true)
    }

    /// Releases the pod's cpus. `true` if the shared cpus changed.
    pub fn release(&self, uid: &str) -> bool {
        let mut given = self.given.lock();
        let changed = given.remove(uid).is_some();
        if changed && let Err(error) = self.write(&given) {
            tracing::warn!(uid, error = %causes::chain(&error), "released cpus not removed from the state file");
        }
        changed
    }

    /// The cpus a container may run on.
    pub fn of(&self, uid: &str, container: &str) -> String {
        let given = self.given.lock();
        match given.get(uid).and_then(|pod| pod.get(container)) {
            Some(own) => format(own),
            None => format(&self.shared(&given)),
        }
    }

    /// The cpus that only this container runs on.
    pub fn exclusive(&self, uid: &str, container: &str) -> Set {
        let given = self.given.lock();
        given.get(uid).and_then(|pod| pod.get(container)).cloned().unwrap_or_default()
    }

    /// Whether a container of the pod has cpus of its own.
    pub fn has_exclusive(&self, uid: &str) -> bool {
        self.given.lock().get(uid).is_some_and(|pod| pod.values().any(|cpus| !cpus.is_empty()))
    }

    /// Every cpu that can be assigned exclusively, whether it is or not.
    pub fn allocatable(&self) -> Set {
        self.topology.cpus().difference(&self.reserved).copied().collect()
    }

    /// Cpus available for exclusive assignment: none of a core of which a part is reserved, where the node gives only whole cores.
    fn free(&self, given: &BTreeMap<String, BTreeMap<String, Set>>) -> Set {
        let shared = self.shared(given);
        match self.options.full_cores_only {
            true => shared.difference(&self.topology.with_siblings(&self.reserved)).copied().collect(),
            false => shared.difference(&self.reserved).copied().collect(),
        }
    }

    /// The cpus of containers without cpus of their own.
    fn shared(&self, given: &BTreeMap<String, BTreeMap<String, Set>>) -> Set {
        let mut all = self.topology.cpus();
        if self.options.strict_reservation {
            all.retain(|cpu| !self.reserved.contains(cpu));
        }
        for cpu in given.values().flat_map(BTreeMap::values).flatten() {
            all.remove(cpu);
        }
        all
    }

    fn write(&self, given: &BTreeMap<String, BTreeMap<String, Set>>) -> std::io::Result<()> {
        let pod = |pod: &BTreeMap<String, Set>| {
            pod.iter().map(|(name, cpus)| (name.clone(), format(cpus))).collect()
        };
        let state = State {
            policy_name: "static".into(),
            default_cpu_set: format(&self.shared(given)),
            entries: given.iter().map(|(uid, containers)| (uid.clone(), pod(containers))).collect(),
        };
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec(&state)?)?;
        fs::rename(fresh, &self.path)
    }
}

/// Cpus of init containers that no later container has.
fn reusable(own: &BTreeMap<String, Set>, wanted: &[(String, Role, usize)]) -> Set {
    let of = |is_init: bool| -> Set {
        let names = wanted.iter().filter(|(_, role, _)| (*role == Role::Init) == is_init);
        names.filter_map(|(name, ..)| own.get(name)).flatten().copied().collect()
    };
    of(true).difference(&of(false)).copied().collect()
}

/// How many cpus a pod needs at the same time: an init container runs with the sidecars before it, the others with all sidecars.
fn together(wanted: &[(String, Role, usize)]) -> Option<usize> {
    let (mut running, mut most) = (0, 0);
    for (_, role, count) in wanted {
        if *role == Role::Init {
            most = most.max(running + count);
        } else {
            running += count;
        }
    }
    Some(most.max(running)).filter(|count| *count > 0)
}

/// Containers that get cpus of their own, and how many.
fn wanted(pod: &Pod) -> Vec<(String, Role, usize)> {
    let spec = spec::spec(pod);
    if spec::qos(&spec) != Qos::Guaranteed {
        return vec![];
    }
    let count = |container: &Container| {
        let requests = container.resources.as_ref()?.requests.as_ref().or(container
            .resources
            .as_ref()?
            .limits
            .as_ref())?;
        let milli = spec::amount("cpu", requests.get("cpu")?);
        (milli > 0 && milli % 1000 == 0).then(|| usize::try_from(milli / 1000).unwrap_or(0))
    };
    spec::containers(&spec)
        .filter(|(role, _)| *role != Role::Ephemeral)
        .filter_map(|(role, c)| Some((c.name.clone(), role, count(&c)?)))
        .collect()
}

fn format(cpus: &Set) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
