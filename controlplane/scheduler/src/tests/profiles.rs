use super::*;
use crate::config::Configuration;
use crate::event_handlers::{Source, State};
use crate::queue::Queue;

/// A placer with one profile, by the part of the file that makes it.
fn with_profile(profile: &str, nodes: Vec<NodeInfo>) -> Placer {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let config = Configuration::parse(&format!("{head}profiles:\n- {profile}\n")).unwrap();
    let mut placer = Placer::with_profiles(config.profiles);
    nodes.into_iter().for_each(|node| _ = placer.snapshot.set_node(node));
    placer
}

/// Places a pod by the rules of its profile.
fn put_by(placer: &mut Placer, pod: &Arc<PodInfo>) -> Result<String, String> {
    let mut adapted = (**pod).clone();
    placer.adapt(&mut adapted);
    put(placer, &Arc::new(adapted))
}

#[test]
fn filters_that_are_off_refuse_nothing() {
    let tainted = || {
        node_with("n", |n| {
            n["spec"] = json!({"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]});
            n["metadata"]["labels"]["zone"] = json!("a");
        })
    };
    let everything = || {
        pod_with("p", |p| {
            p["spec"]["nodeSelector"] = json!({"zone": "b"});
            p["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
            p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("64");
            anti(p, "web", "zone");
            p["spec"]["topologySpreadConstraints"] =
                json!([{"maxSkew": 1, "topologyKey": "none", "whenUnsatisfiable": "DoNotSchedule"}]);
        })
    };
    let off = [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
    ];
    // One rule less each time, in the order in which they are asked.
    for (n, refusing) in off.iter().enumerate() {
        let list: Vec<String> = off[..n].iter().map(|name| format!("{{name: {name}}}")).collect();
        let profile = format!("plugins: {{filter: {{disabled: [{}]}}}}", list.join(", "));
        let mut placer = with_profile(&profile, vec![tainted()]);
        let other = pod_with("other", |p| p["spec"]["nodeName"] = json!("n"));
        placer.snapshot.set_pod(other);
        let mut pod = (*everything()).clone();
        placer.adapt(&mut pod);
        let why = placer.place(&Arc::new(pod));
        let why = why.unwrap_err();
        let rule = why.rejections[0].1.plugin;
        assert_eq!(format!("{rule:?}"), *refusing, "{}", why.message(""));
    }
    let list: Vec<String> = off.iter().map(|name| format!("{{name: {name}}}")).collect();
    let profile = format!("plugins: {{filter: {{disabled: [{}]}}}}", list.join(", "));
    let mut placer = with_profile(&profile, vec![tainted()]);
    assert_eq!(put_by(&mut placer, &everything()), Ok("n".into()));
}

#[test]
fn strategies_pack_and_shape() {
    let nodes = || vec![node("a"), node("b")];
    let fit = |strategy: &str| {
        format!(
            "{{plugins: {{score: {{disabled: [{{name: NodeResourcesBalancedAllocation}}]}}}}, pluginConfig: [{{name: NodeResourcesFit, args: {{scoringStrategy: {strategy}}}}}]}}"
        )
    };
    let two = |strategy: &str| {
        let mut placer = with_profile(&fit(strategy), nodes());
        let first = put_by(&mut placer, &cpu("p", "1")).unwrap();
        first == put_by(&mut placer, &cpu("q", "1")).unwrap()
    };
    assert!(two("{type: MostAllocated}"), "packed");
    assert!(!two("{type: LeastAllocated}"), "spread");
    let shape = |points: &str| {
        format!(
            "{{type: RequestedToCapacityRatio, resources: [{{name: cpu}}], requestedToCapacityRatio: {{shape: [{points}]}}}}"
        )
    };
    assert!(two(&shape("{utilization: 0, score: 0}, {utilization: 100, score: 10}")), "packed");
    assert!(!two(&shape("{utilization: 0, score: 10}, {utilization: 100, score: 0}")), "spread");
    // By a resource that only one of them has left.
    let gpu = |name: &str| {
        pod_with(name, |p| p["spec"]["containers"][0]["resources"]["requests"]["x.io/gpu"] = json!("1"))
    };
    let mut placer =
        with_profile(&fit("{type: MostAllocated, resources: [{name: x.io/gpu, weight: 5}]}"), nodes());
    let first = put_by(&mut placer, &gpu("p")).unwrap();
    assert_eq!(put_by(&mut placer, &gpu("q")).unwrap(), first);
}

#[test]
fn affinity_of_the_profile_is_added_to_that_of_the_pod() {
    let pool = |name: &str, pool: &str| node_with(name, |n| n["metadata"]["labels"]["pool"] = json!(pool));
    let profile = "pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [x]}]}]}}}}]";
    let mut placer = with_profile(profile, vec![pool("a", "x"), pool("b", "y")]);
    for name in ["p", "q", "r"] {
        assert_eq!(put_by(&mut placer, &pod(name)).unwrap(), "a");
    }
    let other = pod_with("s", |p| p["spec"]["nodeSelector"] = json!({"pool": "y"}));
    let why = put_by(&mut placer, &other).unwrap_err();
    assert_eq!(
        why,
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match scheduler-enforced node affinity."
    );
}

#[test]
fn default_constraints_of_the_profile_spread_replicas() {
    let profile = "pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]}}]";
    let full = |name: &str| {
        let mut node = zoned(name, "b");
        node.max_pods = 1;
        node
    };
    let mut placer = with_profile(profile, vec![zoned("a", "a"), full("b")]);
    let replica = |name: &str| {
        pod_with(name, |p| p["metadata"]["ownerReferences"] = json!([{"uid": "rs", "controller": true}]))
    };
    let mut nodes: Vec<String> = ["p", "q"].map(|name| put_by(&mut placer, &replica(name)).unwrap()).into();
    nodes.sort();
    assert_eq!(nodes, ["a", "b"]);
    put_by(&mut placer, &replica("r")).unwrap();
    let why = put_by(&mut placer, &replica("s")).unwrap_err();
    assert!(why.contains("1 Too many pods, 1 node(s) didn't match pod topology spread constraints"), "{why}");
    put_by(&mut placer, &pod("of nobody")).unwrap();
}

#[test]
fn ignored_resources_are_not_checked() {
    let profile = "pluginConfig: [{name: NodeResourcesFit, args: {ignoredResourceGroups: [x.io]}}]";
    let gpus =
        pod_with("p", |p| p["spec"]["containers"][0]["resources"]["requests"]["x.io/gpu"] = json!("9"));
    assert_eq!(put_by(&mut with_profile(profile, vec![node("a")]), &gpus), Ok("a".into()));
    assert!(put(&mut with_nodes(vec![node("a")]), &gpus).unwrap_err().contains("Insufficient x.io/gpu"));
}

#[test]
fn extenders_choose_among_what_fits() {
    let mut placer = with_nodes(vec![node("a"), node("b"), node("c")]);
    let id = |placer: &Placer, name: &str| placer.snapshot.node_named(name).unwrap();
    let (a, b, c) = (id(&placer, "a"), id(&placer, "b"), id(&placer, "c"));
    let big = cpu("big", "4");
    assert_eq!(placer.feasible(&big).unwrap().len(), 3);
    assert_eq!(placer.place_among(&big, &[(a, 0), (b, 10_000_000)]), Some(b), "their scores count");
    placer.snapshot.assume(&big, b);
    let next = cpu("next", "4");
    assert_eq!(placer.place_among(&next, &[(a, 0), (b, 10_000_000)]), Some(a), "its room was taken");
    assert_eq!(placer.place_among(&next, &[(b, 0)]), None);
    let nominated = pod_with("n", |p| p["status"]["nominatedNodeName"] = json!("c"));
    assert_eq!(placer.place_among(&nominated, &[(a, 10_000_000), (c, 0)]), Some(c));
    let why = placer.feasible(&cpu("huge", "64")).unwrap_err();
    assert_eq!(why.message(""), "0/3 nodes are available: 3 Insufficient cpu.");
}

#[test]
fn a_pod_is_adapted_when_it_is_read() {
    let placer = with_profile(
        "plugins: {preEnqueue: {disabled: [{name: SchedulingGates}]}, postFilter: {disabled: [{name: DefaultPreemption}]}}",
        vec![node("a")],
    );
    let mut state = State::new(placer, Queue::default());
    let json = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"schedulerName": "default-scheduler", "priority": 10, "schedulingGates": [{"name": "x"}], "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}});
    let stored = bytes::Bytes::from(serde_json::to_vec(&json).unwrap());
    let object = coracle_kinds::object::Object::from_stored(&[], &stored, 1).unwrap();
    state.set(Source::Pods, &object, None, 0);
    let pod = state.queue.pop(0).expect("gates do not hold it");
    state.placer.snapshot.set_pod(Arc::new(PodInfo { node: "a".into(), ..(*cpu("low", "4")).clone() }));
    let why = state.placer.place(&pod).unwrap_err();
    let preemption = state.placer.preempt(&pod, &why, &[]).unwrap_err();
    assert_eq!(why.message(&preemption.to_string()), "0/1 nodes are available: 1 Insufficient cpu.");
}
