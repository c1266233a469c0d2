//! Where connections may go.

use coracle_tests::eventually;
use std::collections::BTreeSet;

use crate::world::{Pod, WAIT, World, names};

pub fn affinity(world: &World) {
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: sticky}, spec: {selector: {app: web}, sessionAffinity: ClientIP, \
         sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}, ports: [{port: 80, targetPort: 8080}]}}",
    );
    let pods = world.pods("web");
    let to = format!("{}:80", world.cluster_ip("sticky"));
    eventually("it answers", WAIT, || pods[0].place.get(&to).is_ok());
    // A client whose endpoint is on another node: an agent that starts tells pods with probes ready only after a while.
    let node_of = |name: &str| pods.iter().find(|pod| pod.name == name).unwrap().node.clone();
    let nodes = ["node-1", "node-2", "node-3"].map(|node| (node.to_owned(), world.node(node)));
    let clients = pods.iter().map(|pod| (pod.node.clone(), pod.place.clone())).chain(nodes);
    let (node, client) =
        clients.into_iter().find(|(node, place)| node_of(&place.get(&to).unwrap()) != *node).unwrap();
    let answers = || -> BTreeSet<String> { (0..20).map(|_| client.get(&to).unwrap()).collect() };
    let first = answers();
    assert_eq!(first.len(), 1, "one client, one endpoint");
    // The agent's restart does not move anybody.
    world.cluster.kill_agent(&node);
    world.cluster.up(3);
    let log = world.cluster.data_dir().join(&node).join("agent.log");
    eventually("rules are built again", WAIT, || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("service rules built"))
    });
    assert_eq!(answers(), first);
    // Its end does.
    let gone = first.first().unwrap().clone();
    world.k.run(&format!("delete pod {gone} --wait=true"));
    world.k.run("rollout status deployment web --timeout=240s");
    let client = &world.pods("web")[0].place;
    let now: BTreeSet<String> = (0..20).map(|_| client.get(&to).unwrap()).collect();
    assert!(now.len() == 1 && !now.contains(&gone), "{now:?}");
    world.k.run("delete service sticky");
}

pub fn local(world: &World) {
    let pods = world.pods("web");
    let (here, elsewhere) = (&pods[0], &pods[1]);
    world.k.run(&format!("label pod {} local=yes", here.name));
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: near}, spec: {type: LoadBalancer, selector: {local: 'yes'}, \
         externalTrafficPolicy: Local, internalTrafficPolicy: Local, ports: [{name: a, port: 8082, targetPort: 8080}, \
         {name: b, port: 8083, targetPort: 9007, protocol: UDP}]}}",
    );
    let service = world.json("get service near");
    let (ports, health) = (&service["spec"]["ports"], &service["spec"]["healthCheckNodePort"]);
    let to = |node: &str, port: &serde_json::Value| format!("{}:{port}", world.address(node));
    let reached = to(&here.node, &ports[0]["nodePort"]);
    world.all_answer(&world.hub, &reached, &names(&pods[..1]));
    assert!(world.hub.get(&to(&elsewhere.node, &ports[0]["nodePort"])).is_err(), "no endpoint there");
    // The client's address is seen as it is.
    let _server = here.place.answer_udp(here.ip, 9007, "near");
    let socket = world.hub.udp(&to(&here.node, &ports[1]["nodePort"]));
    eventually("an answer by UDP", WAIT, || {
        crate::place::ask(&socket).is_some_and(|answer| answer == "near 10.89.0.1")
    });
    // From inside: only on the node itself.
    let inside = format!("{}:8082", world.cluster_ip("near"));
    world.all_answer(&world.node(&here.node), &inside, &names(&pods[..1]));
    assert!(elsewhere.place.get(&inside).is_err(), "no endpoint there");
    // The balancer has the address of the node with the endpoint only, which leads there for pods of other nodes too.
    let ingress = || world.json("get service near")["status"]["loadBalancer"]["ingress"].clone();
    eventually("one address", WAIT, || {
        ingress().as_array().is_some_and(|all| all.len() == 1 && all[0]["ip"] == world.address(&here.node))
    });
    world.all_answer(&elsewhere.place, &to(&here.node, &8082.into()), &names(&pods[..1]));
    // Balancers are told.
    eventually("health of the node with the endpoint", WAIT, || {
        world.hub.get(&to(&here.node, health)).is_ok_and(|text| text.contains("\"localEndpoints\":1"))
    });
    let other = world.hub.get(&to(&elsewhere.node, health)).unwrap_err().to_string();
    assert!(other.contains("503"), "{other}");
    world.k.run("delete service near");
    world.k.run(&format!("label pod {} local-", here.name));
}

/// Connections stay in the zone, or on the node, when the Service prefers that.
pub fn near(world: &World) {
    let pods = world.pods("web");
    let zone = |node: &str| if node == "node-3" { "c" } else { "a" };
    for node in ["node-1", "node-2", "node-3"] {
        world.k.run(&format!("label node {node} topology.kubernetes.io/zone={}", zone(node)));
    }
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: close}, spec: {selector: {app: web}, \
         trafficDistribution: PreferSameZone, ports: [{port: 80, targetPort: 8080}]}}",
    );
    let to = format!("{}:80", world.cluster_ip("close"));
    // Exactly the pods that are near answer, each place of them.
    let only = |what: &str, near: &dyn Fn(&Pod, &Pod) -> bool| {
        for pod in &pods {
            let wanted: BTreeSet<String> =
                pods.iter().filter(|other| near(pod, other)).map(|other| other.name.clone()).collect();
            for place in [&pod.place, &world.node(&pod.node)] {
                eventually(what, WAIT, || {
                    let seen: BTreeSet<String> = (0..40).filter_map(|_| place.get(&to).ok()).collect();
                    seen == wanted
                });
            }
        }
    };
    only("the zone answers", &|from, to| zone(&from.node) == zone(&to.node));
    let slice = world.json("get endpointslices -l kubernetes.io/service-name=close")["items"][0].clone();
    assert!(slice["endpoints"].as_array().unwrap().iter().all(|e| e["hints"]["forZones"].is_array()));
    let patch = |how: &str| {
        let patch = format!("{{\"spec\": {{\"trafficDistribution\": {how}}}}}");
        world.k.run_with("patch service close --patch-file=/dev/stdin", &patch);
    };
    // Clients that stay with an endpoint stay in their zone.
    world.k.run_with(
        "patch service close --patch-file=/dev/stdin",
        "{\"spec\": {\"sessionAffinity\": \"ClientIP\"}}",
    );
    let one = |what: &str, near: &dyn Fn(&Pod, &Pod) -> bool| {
        for pod in &pods {
            eventually(what, WAIT, || {
                let seen: BTreeSet<String> = (0..20).filter_map(|_| pod.place.get(&to).ok()).collect();
                let is_near =
                    |name: &String| pods.iter().any(|other| other.name == *name && near(pod, other));
                seen.len() == 1 && seen.iter().all(is_near)
            });
        }
    };
    one("one endpoint of the zone answers", &|from, to| zone(&from.node) == zone(&to.node));
    patch("\"PreferSameNode\"");
    one("one endpoint of the node answers", &|from, to| from.node == to.node);
    world.k.run_with(
        "patch service close --patch-file=/dev/stdin",
        "{\"spec\": {\"sessionAffinity\": \"None\"}}",
    );
    only("the node answers", &|from, to| from.node == to.node);
    patch("null");
    only("everybody answers again", &|_, _| true);
    world.k.run("delete service close");
    world.k.run("label node --all topology.kubernetes.io/zone-");
}
