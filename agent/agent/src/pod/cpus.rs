//! CPU manager (`--cpu-manager-policy static`): exclusive cpus for Guaranteed pods with integer requests; other pods
//! share the rest. Assignments are stored in `cpu_manager_state`.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::spec::{self, Qos, Role};

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
    /// The state file could not be written.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Record(String),
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
    /// Cpus by physical core.
    cores: Vec<Set>,
    reserved: Set,
    given: Mutex<BTreeMap<String, BTreeMap<String, Set>>>,
}

impl Cpus {
    /// Loads the state file. `reserved` thousandths of a cpu are never assigned exclusively.
    pub fn open(dir: &Path, reserved: i64) -> Self {
        let cores = read_cores(Path::new("/sys/devices/system/cpu"));
        Self::with_cores(dir, cores, reserved)
    }

    fn with_cores(dir: &Path, cores: Vec<Set>, reserved: i64) -> Self {
        let path = dir.join("cpu_manager_state");
        let all: Set = cores.iter().flatten().copied().collect();
        // At least one cpu stays shared.
        let count = usize::try_from(reserved).unwrap_or(0).div_ceil(1000).max(1);
        let reserved = take(&all, &cores, count).unwrap_or_else(|| all.clone());
        let state: State =
            fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let pod = |(uid, containers): (String, BTreeMap<String, String>)| {
            let containers = containers.into_iter().map(|(name, cpus)| (name, parse(&cpus)));
            (uid, containers.collect::<BTreeMap<_, _>>())
        };
        let given = state.entries.into_iter().map(pod).collect();
        Self { path, cores, reserved, given: Mutex::new(given) }
    }

    /// Assigns cpus to a pod, all or none; existing assignments stay. `true` if the shared cpus changed.
    pub fn admit(&self, pod: &Pod) -> Result<bool, CpusError> {
        let wanted = wanted(pod);
        let mut given = self.given.lock();
        if wanted.is_empty() || given.contains_key(spec::uid(pod)) {
            return Ok(false);
        }
        let mut free = self.free(&given);
        let mut own: BTreeMap<String, Set> = BTreeMap::new();
        let mut reusable = Set::new();
        // Init containers run before the others and leave their cpus to them.
        let order =
            wanted.iter().filter(|w| w.1 == Role::Init).chain(wanted.iter().filter(|w| w.1 != Role::Init));
        for (name, role, count) in order {
            let candidates: Set = if reusable.len() >= *count {
                reusable.clone()
            } else {
                free.union(&reusable).copied().collect()
            };
            let cpus = take(&candidates, &self.cores, *count)
                .ok_or(CpusError::TooFew { requested: *count, available: candidates.len() })?;
            free.retain(|cpu| !cpus.contains(cpu));
            match role {
                Role::Init => reusable.extend(&cpus),
                _ => reusable.retain(|cpu| !cpus.contains(cpu)),
            }
            own.insert(name.clone(), cpus);
        }
        given.insert(spec::uid(pod).to_owned(), own);
        if let Err(error) = self.write(&given) {
            given.remove(spec::uid(pod));
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

    /// Every cpu that can be assigned exclusively, whether it is or not.
    pub fn allocatable(&self) -> Set {
        self.cores.iter().flatten().filter(|cpu| !self.reserved.contains(cpu)).copied().collect()
    }

    /// Cpus available for exclusive assignment.
    fn free(&self, given: &BTreeMap<String, BTreeMap<String, Set>>) -> Set {
        self.shared(given).difference(&self.reserved).copied().collect()
    }

    fn shared(&self, given: &BTreeMap<String, BTreeMap<String, Set>>) -> Set {
        let mut all: Set = self.cores.iter().flatten().copied().collect();
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

/// Selects `count` cpus: whole cores first, then threads of partially used cores.
fn take(free: &Set, cores: &[Set], count: usize) -> Option<Set> {
    if free.len() < count {
        return None;
    }
    let mut taken = Set::new();
    let (mut whole, mut broken): (Vec<Set>, Vec<Set>) = (vec![], vec![]);
    for core in cores {
        let left: Set = core.intersection(free).copied().collect();
        if left == *core { whole.push(left) } else { broken.push(left) }
    }
    let mut spare = whole.into_iter().peekable();
    while let Some(core) = spare.next_if(|core| taken.len() + core.len() <= count) {
        taken.extend(core);
    }
    let rest = broken.into_iter().flatten().chain(spare.flatten());
    for cpu in rest {
        if taken.len() == count {
            break;
        }
        taken.insert(cpu);
    }
    (taken.len() == count).then_some(taken)
}

fn read_cores(dir: &Path) -> Vec<Set> {
    let online = parse(fs::read_to_string(dir.join("online")).unwrap_or_default().trim());
    let mut cores: BTreeSet<Vec<u32>> = BTreeSet::new();
    for cpu in &online {
        let list = fs::read_to_string(dir.join(format!("cpu{cpu}/topology/thread_siblings_list")));
        let siblings: Set = parse(list.unwrap_or_default().trim()).intersection(&online).copied().collect();
        let core = if siblings.is_empty() { vec![*cpu] } else { siblings.into_iter().collect() };
        cores.insert(core);
    }
    cores.into_iter().map(|core| core.into_iter().collect()).collect()
}

/// Parses `0-3,8`; invalid parts are skipped.
fn parse(text: &str) -> Set {
    let part = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(part).flatten().collect()
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, cpus: &[&str]) -> Pod {
        let container = |(at, cpu): (usize, &&str)| json!({"name": format!("c{at}"), "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}}});
        let containers: Vec<_> = cpus.iter().enumerate().map(container).collect();
        serde_json::from_value(
            json!({"metadata": {"uid": uid, "name": uid}, "spec": {"containers": containers}}),
        )
        .unwrap()
    }

    /// Four cores of two threads, numbered as most machines do.
    fn cores() -> Vec<Set> {
        (0..4).map(|core| [core, core + 4].into()).collect()
    }

    #[test]
    fn lists_of_cpus() {
        for (text, cpus) in [("0-3,8", vec![0, 1, 2, 3, 8]), ("5", vec![5]), ("", vec![])] {
            assert_eq!(parse(text), cpus.into_iter().collect::<Set>());
            assert_eq!(format(&parse(text)), text);
        }
        assert_eq!(parse("x,1-,2"), [2].into());
    }

    #[test]
    fn whole_cores_first_and_everybody_else_shares_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let cpus = Cpus::with_cores(dir.path(), cores(), 500);
        assert_eq!(cpus.of("any", "c0"), "0-7");
        assert!(cpus.admit(&pod("a", &["2", "500m"])).unwrap());
        assert_eq!((cpus.of("a", "c0").as_str(), cpus.of("a", "c1").as_str()), ("1,5", "0,2-4,6-7"));
        assert_eq!((cpus.exclusive("a", "c0"), cpus.exclusive("a", "c1")), ([1, 5].into(), [].into()));
        assert_eq!(cpus.allocatable(), (1..8).collect::<Set>());
        assert!(!cpus.admit(&pod("a", &["2"])).unwrap(), "it has them already");
        assert!(!cpus.admit(&pod("shared", &["1500m"])).unwrap());
        assert!(cpus.admit(&pod("b", &["3"])).unwrap());
        assert_eq!(
            cpus.of("b", "c0"),
            "2,4,6",
            "a whole core, and the thread of the one with the reserved cpu"
        );
        assert_eq!(
            cpus.admit(&pod("c", &["4"])),
            Err(CpusError::TooFew { requested: 4, available: 2 }),
            "the reserved cpu is nobody's own"
        );
        // A new agent knows all that.
        let again = Cpus::with_cores(dir.path(), cores(), 500);
        assert_eq!((again.of("a", "c0").as_str(), again.of("any", "x").as_str()), ("1,5", "0,3,7"));
        assert!(again.release("a") && !again.release("a"));
        assert_eq!(again.of("any", "x"), "0-1,3,5,7");
    }

    #[test]
    fn burstable_pods_and_parts_of_cpus_share() {
        let dir = tempfile::tempdir().unwrap();
        let cpus = Cpus::with_cores(dir.path(), cores(), 1000);
        let burstable: Pod =
            serde_json::from_value(json!({"metadata": {"uid": "x"}, "spec": {"containers": [
            {"name": "c0", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}))
            .unwrap();
        assert!(!cpus.admit(&burstable).unwrap());
        assert_eq!(cpus.of("x", "c0"), "0-7");
    }
}
