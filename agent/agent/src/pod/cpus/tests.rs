#![allow(clippy::unwrap_used)]
use super::*;
use crate::numa::{Hint, MachineNode};
use serde_json::json;

fn pod(uid: &str, cpus: &[&str]) -> Pod {
    let container = |(at, cpu): (usize, &&str)| json!({"name": format!("c{at}"), "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}}});
    let containers: Vec<_> = cpus.iter().enumerate().map(container).collect();
    serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid}, "spec": {"containers": containers}}))
        .unwrap()
}

/// Two NUMA nodes of two cores of two threads each.
fn machine() -> Machine {
    let node = |cores: [u32; 2]| MachineNode {
        cpus: cores.into_iter().flat_map(|c| [c, c + 4]).collect(),
        memory: 0,
    };
    Machine { nodes: [(0, node([0, 1])), (1, node([2, 3]))].into(), ..Machine::default() }
}

fn open(dir: &Path, reserved: i64, options: CpuOptions) -> Cpus {
    Cpus::with_topology(dir, Topology::of(2, 1, 1, 2, 2), machine(), reserved, options)
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
    let cpus = open(dir.path(), 500, CpuOptions::default());
    assert_eq!(cpus.of("any", "c0"), "0-7");
    assert!(cpus.admit(&pod("a", &["2", "500m"])).unwrap());
    assert_eq!((cpus.of("a", "c0").as_str(), cpus.of("a", "c1").as_str()), ("1,5", "0,2-4,6-7"));
    assert_eq!((cpus.exclusive("a", "c0"), cpus.exclusive("a", "c1")), ([1, 5].into(), [].into()));
    assert!(cpus.has_exclusive("a") && !cpus.has_exclusive("any"));
    assert_eq!(cpus.allocatable(), (1..8).collect::<Set>());
    assert!(!cpus.admit(&pod("a", &["2"])).unwrap(), "it has them already");
    assert!(!cpus.admit(&pod("shared", &["1500m"])).unwrap());
    assert!(cpus.admit(&pod("b", &["3"])).unwrap());
    assert_eq!(cpus.of("b", "c0"), "2,4,6", "a whole core, and the thread of the one with the reserved cpu");
    assert_eq!(
        cpus.admit(&pod("c", &["4"])),
        Err(CpusError::TooFew { requested: 4, available: 2 }),
        "the reserved cpu is nobody's own"
    );
    // A new agent knows all that.
    let again = open(dir.path(), 500, CpuOptions::default());
    assert_eq!((again.of("a", "c0").as_str(), again.of("any", "x").as_str()), ("1,5", "0,3,7"));
    assert!(again.release("a") && !again.release("a"));
    assert_eq!(again.of("any", "x"), "0-1,3,5,7");
}

#[test]
fn burstable_pods_and_parts_of_cpus_share() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = open(dir.path(), 1000, CpuOptions::default());
    let burstable: Pod = serde_json::from_value(json!({"metadata": {"uid": "x"}, "spec": {"containers": [
        {"name": "c0", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}))
    .unwrap();
    assert!(!cpus.admit(&burstable).unwrap() && !cpus.has_exclusive("x"));
    assert_eq!(cpus.of("x", "c0"), "0-7");
}

fn hint(nodes: &[u32], is_preferred: bool) -> Hint {
    Hint { nodes: Some(Nodes::of(nodes.iter().copied())), is_preferred }
}

#[test]
fn hints_name_the_nodes_with_enough_free_cpus() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = open(dir.path(), 1000, CpuOptions::default());
    assert_eq!(cpus.hints(&pod("a", &["1500m"]), Some("c0")), None, "it shares cpus");
    // One cpu of the first node is reserved.
    let two = pod("a", &["2", "2"]);
    assert_eq!(
        cpus.hints(&two, Some("c0")),
        Some(vec![hint(&[0], true), hint(&[1], true), hint(&[0, 1], false)])
    );
    assert_eq!(cpus.hints(&two, None), Some(vec![hint(&[1], true), hint(&[0, 1], false)]));
    assert_eq!(cpus.hints(&pod("b", &["5"]), Some("c0")), Some(vec![hint(&[0, 1], true)]));
    assert_eq!(cpus.hints(&pod("b", &["8"]), Some("c0")), Some(vec![]), "there are seven");

    assert!(cpus.admit_near(&two, "c0", Some(Nodes::of([1]))).unwrap());
    assert_eq!(cpus.of("a", "c0"), "2,6");
    assert_eq!(cpus.hints(&pod("b", &["3"]), Some("c0")), Some(vec![hint(&[0], true), hint(&[0, 1], false)]));
    assert!(cpus.admit_near(&two, "c1", Some(Nodes::of([1]))).unwrap());
    assert_eq!(cpus.of("a", "c1"), "3,7");
    assert!(!cpus.admit_near(&two, "c1", None).unwrap(), "it has them already");
    // The node is used up: the rest comes from the other one.
    assert!(cpus.release("a"));
    assert!(cpus.admit_near(&pod("d", &["5"]), "c0", Some(Nodes::of([1]))).unwrap());
    assert_eq!(cpus.of("d", "c0"), "2-4,6-7");
    assert_eq!(
        cpus.admit_near(&pod("e", &["3"]), "c0", None),
        Err(CpusError::TooFew { requested: 3, available: 2 })
    );
}

#[test]
fn containers_reuse_the_cpus_of_init_containers() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = open(dir.path(), 1000, CpuOptions::default());
    let of = |name: &str, cpu: &str| json!({"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}}});
    let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u", "name": "u"}, "spec": {
        "initContainers": [of("i", "3")], "containers": [of("c", "2"), of("d", "1")]}}))
    .unwrap();
    assert!(cpus.admit_near(&pod, "i", Some(Nodes::of([1]))).unwrap());
    assert_eq!(
        cpus.hints(&pod, Some("c")).map(|hints| hints[0]),
        Some(hint(&[1], true)),
        "its cpus are there"
    );
    assert!(cpus.admit_near(&pod, "c", Some(Nodes::of([1]))).unwrap());
    assert!(cpus.admit_near(&pod, "d", Some(Nodes::of([1]))).unwrap());
    let own = |name: &str| cpus.exclusive("u", name);
    assert!(own("c").is_subset(&own("i")) && own("d").is_subset(&own("i")));
    assert!(own("c").is_disjoint(&own("d")));
}

#[test]
fn containers_get_whole_cores_or_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let options = CpuOptions { full_cores_only: true, ..CpuOptions::default() };
    // The other thread of the core with the reserved cpu is nobody's own either.
    let cpus = open(dir.path(), 500, options);
    assert_eq!(cpus.allocatable(), (1..8).collect::<Set>());
    let part = cpus.admit(&pod("part", &["3"])).unwrap_err();
    assert_eq!(
        (part.reason(), part.to_string().as_str()),
        ("SMTAlignmentError", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2")
    );
    assert!(cpus.admit(&pod("a", &["2", "2"])).unwrap());
    assert_eq!((cpus.of("a", "c0").as_str(), cpus.of("a", "c1").as_str()), ("1,5", "2,6"));
    let few = cpus.admit(&pod("few", &["4"])).unwrap_err();
    assert_eq!(
        (few.reason(), few.to_string().as_str()),
        (
            "SMTAlignmentError",
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2"
        )
    );
    assert_eq!(cpus.hints(&pod("b", &["2"]), Some("c0")), Some(vec![hint(&[1], true), hint(&[0, 1], false)]));
    assert!(cpus.admit_near(&pod("b", &["2"]), "c0", Some(Nodes::of([0]))).unwrap());
    assert_eq!(cpus.of("b", "c0"), "3,7", "the first node has no whole core left");
    assert_eq!(cpus.of("any", "c0"), "0,4");
}

#[test]
fn nothing_of_pods_runs_on_cpus_that_are_strictly_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let strict = CpuOptions { strict_reservation: true, ..CpuOptions::default() };
    let cpus = open(dir.path(), 2000, strict);
    assert_eq!(cpus.of("any", "c0"), "1-3,5-7");
    assert!(cpus.admit(&pod("a", &["6"])).unwrap());
    assert_eq!((cpus.of("a", "c0").as_str(), cpus.of("any", "c0").as_str()), ("1-3,5-7", ""));
    let state = fs::read_to_string(dir.path().join("cpu_manager_state")).unwrap();
    assert!(state.contains("\"defaultCpuSet\":\"\""), "{state}");
}

#[test]
fn cpus_come_from_both_nodes_where_one_has_too_few() {
    let dir = tempfile::tempdir().unwrap();
    let spread = CpuOptions { across_nodes: true, full_cores_only: true, ..CpuOptions::default() };
    let cpus = open(dir.path(), 2000, spread);
    assert!(cpus.admit(&pod("a", &["4"])).unwrap());
    assert_eq!(cpus.of("a", "c0"), "2-3,6-7", "one node is enough");
    assert!(cpus.release("a") && cpus.admit(&pod("b", &["6"])).unwrap());
    assert_eq!(cpus.of("b", "c0"), "1-3,5-7");
}

#[test]
fn sidecars_keep_their_cpus_while_init_containers_run() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = open(dir.path(), 1000, CpuOptions::default());
    let of = |name: &str, cpu: &str, policy: serde_json::Value| json!({"name": name, "restartPolicy": policy, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}}});
    let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u", "name": "u"}, "spec": {
        "initContainers": [of("s", "2", json!("Always")), of("i", "4", json!(null))], "containers": [of("c", "3", json!(null))]}}))
    .unwrap();
    assert_eq!(together(&wanted(&pod)), Some(6), "sidecar and init container");
    assert!(cpus.admit(&pod).unwrap());
    let own = |name: &str| cpus.exclusive("u", name);
    assert!(own("s").is_disjoint(&own("i")) && own("s").is_disjoint(&own("c")));
    assert!(own("c").is_subset(&own("i")));
}
