//! Where pods go.

use super::{Room, shell};
use std::time::Instant;

pub fn waits_for_its_node(room: &Room) {
    let pod = |name: &str, more: &str| {
        let spec = shell("sleep 3600").replacen('{', &format!("{{{more}, "), 1);
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    };
    room.apply(&pod("picky", "nodeSelector: {placement-disk: ssd}"));
    let message = "get pod picky -o jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}";
    room.until_with(message, |text| {
        text.starts_with("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
    });
    let events =
        room.run("get events --field-selector reason=FailedScheduling -o jsonpath={.items[0].message}");
    assert!(events.starts_with("0/2 nodes are available: 2 node(s) didn't match"), "{events}");
    let table = room.kubectl.run(&format!("get --raw /debug/scheduler/{}/picky", room.name));
    let verdict = "   NodeAffinity   cannot help   node(s) didn't match Pod's node affinity/selector";
    for node in ["node-1", "node-2"] {
        assert!(table.lines().any(|line| line == format!("{node}{verdict}")), "{table}");
    }
    // The cause goes away and nobody waits for a timer.
    let begun = Instant::now();
    room.kubectl.run("label node node-2 placement-disk=ssd");
    room.run("wait --for=condition=PodScheduled pod/picky --timeout=60s");
    println!("scheduled {:?} after the node was labelled", begun.elapsed());
    assert_eq!(room.run("get pod picky -o jsonpath={.spec.nodeName}"), "node-2");
    room.kubectl.run("label node node-2 placement-disk-");

    room.apply(&pod("gated", "schedulingGates: [{name: example.com/wait}]"));
    room.until(
        "get pod gated -o jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}",
        "SchedulingGated",
    );
    room.run(r#"patch pod gated --type=json -p '[{"op":"remove","path":"/spec/schedulingGates"}]'"#);
    room.run("wait --for=condition=Ready pod/gated --timeout=120s");

    room.apply(&pod("foreign", "schedulerName: somebody-else"));
    // Two that must not meet, and a third that finds no place.
    let apart = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: \
                 kubernetes.io/hostname, labelSelector: {matchLabels: {shy: 'yes'}}}]}}";
    for name in ["shy-1", "shy-2", "shy-3"] {
        room.apply(
            &pod(name, apart)
                .replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, labels: {{shy: 'yes'}}}}")),
        );
    }
    room.until_with(
        "get pod shy-3 -o jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}",
        |text| text.starts_with("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."),
    );
    room.run("wait --for=condition=Ready pod/shy-1 pod/shy-2 --timeout=120s");
    let at = |name: &str| room.run(&format!("get pod {name} -o jsonpath={{.spec.nodeName}}"));
    assert_ne!(at("shy-1"), at("shy-2"));
    room.run("delete pod shy-1 --wait");
    room.run("wait --for=condition=Ready pod/shy-3 --timeout=120s");
    assert_eq!(room.run("get pod foreign -o jsonpath={.spec.nodeName}"), "");
}

pub fn the_important_goes_first(room: &Room) {
    let k = &room.kubectl;
    let patch = |value: &str| {
        k.run(&format!(
            "patch node node-1 --subresource=status --type=merge -p '{{\"status\":{{\"capacity\":{{\"example.com/berth\":{value}}},\
             \"allocatable\":{{\"example.com/berth\":{value}}}}}}}'"
        ))
    };
    patch("\"1\"");
    k.run("create priorityclass preempt-important --value=1000");
    let pod = |name: &str, class: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n{class}  containers:\n\
             \x20 - {{name: c, image: busybox, command: [sleep, '3600'], resources: {{limits: {{example.com/berth: 1}}}}}}\n"
        )
    };
    room.apply(&pod("humble", ""));
    room.run("wait --for=condition=Ready pod/humble --timeout=120s");
    room.apply(&pod("waiting", ""));
    room.until_with("get pod waiting -o jsonpath={.status.conditions[0].message}", |text| {
        text.contains("Insufficient example.com/berth")
    });
    room.apply(&pod("important", "  priorityClassName: preempt-important\n"));
    room.run("wait --for=condition=Ready pod/important --timeout=120s");
    room.run("wait --for=delete pod/humble --timeout=60s");
    let events = room.run("get events -o jsonpath={.items[*].reason}");
    assert!(events.contains("Preempted"), "{events}");
    room.run("delete pod important waiting --wait");
    patch("null");
    k.run("delete priorityclass preempt-important");
}
