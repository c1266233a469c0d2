//! What people do to a Deployment, and what follows from it.

use crate::world::{NODES, World, deployment, outline, spans, text, uid_of};
use crate::{audit, checks, commands};
use coracle_timeline::TraceView;
use std::collections::{BTreeMap, BTreeSet};

/// The writes of a resource with a verb.
fn writes(view: &TraceView, verb: &str, resource: &str) -> usize {
    let of_resource = |object: usize| view.objects[object].resource == resource;
    spans(view, "write")
        .iter()
        .filter(|span| span.name == verb && span.object.is_some_and(of_resource))
        .count()
}

/// Whether all of these pods became ready in the tree.
pub fn all_ready(view: &TraceView, pods: &BTreeMap<String, String>) -> bool {
    let ready: BTreeSet<&str> = spans(view, "ready").into_iter().map(|span| uid_of(view, span)).collect();
    pods.keys().all(|uid| ready.contains(uid.as_str()))
}

pub fn root_name(view: &TraceView) -> &str {
    view.spans.iter().find(|span| span.parent.is_none()).map_or("", |span| span.name.as_str())
}

/// The uids of all pods of a tree are those that kubectl has, each on its node.
fn same_pods(view: &TraceView, pods: &BTreeMap<String, String>) {
    let of_tree = view.objects.iter().filter(|object| object.resource == "pods" && !object.uid.is_empty());
    let of_tree: BTreeMap<String, String> =
        of_tree.map(|object| (object.uid.clone(), object.node.clone())).collect();
    assert_eq!(of_tree, *pods, "{}", outline(view));
}

pub fn create(world: &World) {
    world.namespace("create");
    let line =
        "create deployment web -n create --image=busybox --replicas=6 -- /bin/httpd -f -p 8080 -h /tmp";
    checks::complete(&commands::kubectl(world, line));
    let pods = world.pods("create");
    assert_eq!(pods.len(), 6);
    let view = world.trace("deployments.apps", "create", "web", |view| all_ready(view, &pods));
    checks::complete(&view);
    checks::pods_started(&view, pods.keys());
    same_pods(&view, &pods);
    assert_eq!(root_name(&view), "POST /apis/apps/v1/namespaces/create/deployments");
    assert_eq!(writes(&view, "create", "deployments.apps"), 1, "{}", outline(&view));
    assert_eq!(writes(&view, "create", "replicasets.apps"), 1, "{}", outline(&view));
    assert_eq!(writes(&view, "create", "pods"), 6, "{}", outline(&view));
    assert_eq!(writes(&view, "bind", "pods"), 6, "{}", outline(&view));
    let replica_set = world.json("get replicasets -n create");
    let uid = text(&replica_set["items"][0]["metadata"]["uid"]);
    assert!(view.objects.iter().any(|object| object.uid == uid), "the ReplicaSet is in it");
    audit::check(world, &view, "create", |_| false);
    // A pod's tree is the branch of that pod, from the same request on.
    let pod = text(&world.json("get pods -n create")["items"][0]["metadata"]["name"]);
    let of_pod = world.trace("pods", "create", &pod, |view| !spans(view, "ready").is_empty());
    checks::complete(&of_pod);
    assert_eq!((root_name(&of_pod), &of_pod.trace), (root_name(&view), &view.trace));
    assert_eq!(writes(&of_pod, "create", "pods"), 1, "{}", outline(&of_pod));
}

pub fn expose(world: &World) {
    world.namespace("expose");
    world.deploy("expose", 3);
    let line = "expose deployment web -n expose --port=80 --target-port=8080";
    checks::complete(&commands::kubectl(world, line));
    let programmed = |view: &TraceView| -> BTreeSet<String> {
        spans(view, "rules-programmed").into_iter().map(|span| span.node.clone()).collect()
    };
    let all: BTreeSet<String> = NODES.map(str::to_owned).into();
    let view = world.trace("services", "expose", "web", |view| programmed(view) == all);
    checks::complete(&view);
    assert_eq!(root_name(&view), "POST /api/v1/namespaces/expose/services");
    assert_eq!(writes(&view, "create", "services"), 1, "{}", outline(&view));
    assert_eq!(writes(&view, "create", "endpointslices.discovery.k8s.io"), 1, "{}", outline(&view));
    let slices = world.json("get endpointslices -n expose -l kubernetes.io/service-name=web");
    let uid = text(&slices["items"][0]["metadata"]["uid"]);
    let slice = spans(&view, "rules-programmed").into_iter().filter(|span| uid_of(&view, span) == uid);
    let nodes: BTreeSet<String> = slice.map(|span| span.node.clone()).collect();
    assert_eq!(nodes, all, "every node has the endpoints\n{}", outline(&view));
    audit::check(world, &view, "expose", |event| event["objectRef"]["resource"] != "services");
}

pub fn rolling_update(world: &World) {
    world.namespace("rolling");
    world.deploy("rolling", 4);
    let old = world.pods("rolling");
    checks::complete(&commands::kubectl(world, "set env deployment/web -n rolling COLOUR=blue"));
    world.rolled_out("rolling");
    let new = world.pods("rolling");
    assert!(new.len() == 4 && new.keys().all(|uid| !old.contains_key(uid)));
    let ended = |view: &TraceView| -> BTreeSet<String> {
        let ended = spans(view, "terminate").into_iter().filter(|span| span.end.is_some());
        ended.map(|span| uid_of(view, span).to_owned()).collect()
    };
    let all_old: BTreeSet<String> = old.keys().cloned().collect();
    let view = world
        .trace("deployments.apps", "rolling", "web", |view| all_ready(view, &new) && ended(view) == all_old);
    checks::complete(&view);
    checks::pods_started(&view, new.keys());
    assert_eq!(root_name(&view), "PATCH /apis/apps/v1/namespaces/rolling/deployments/web");
    assert_eq!(writes(&view, "create", "replicasets.apps"), 1, "{}", outline(&view));
    assert_eq!(writes(&view, "create", "pods"), 4, "{}", outline(&view));
    audit::check(world, &view, "rolling", |_| false);
}

pub fn scale(world: &World) {
    world.namespace("scale");
    world.create("scale", &deployment(2, ""));
    world.rolled_out("scale");
    let before = world.pods("scale");
    checks::complete(&commands::kubectl(world, "scale deployment web -n scale --replicas=20"));
    world.rolled_out("scale");
    let mut new = world.pods("scale");
    new.retain(|uid, _| !before.contains_key(uid));
    assert_eq!(new.len(), 18);
    let view = world.trace("deployments.apps", "scale", "web", |view| all_ready(view, &new));
    checks::complete(&view);
    checks::pods_started(&view, new.keys());
    same_pods(&view, &new);
    assert!(root_name(&view).ends_with("/deployments/web/scale"), "{}", outline(&view));
    assert_eq!(writes(&view, "create", "pods"), 18, "{}", outline(&view));
    audit::check(world, &view, "scale", |_| false);
    world.k.run("delete namespace scale --wait=false");
}
