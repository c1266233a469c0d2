//! A node that records no spans, as a stock kubelet does.

use crate::commands::trace;
use crate::world::{World, outline, spans};
use serde_json::json;

const NODE: &str = "node-2";

/// What is not known is said: nothing is guessed. To be done last: the node stays as it is.
pub fn node(world: &World) {
    world.namespace("silent");
    world.cluster.kill_agent(NODE);
    world.cluster.up_with(3, &["--agent-flag=--trace-size=0"]);
    world.k.run(&format!("wait --for=condition=Ready node/{NODE} --timeout=120s"));
    let container = json!({"name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["/bin/sleep", "3600"]});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": NODE}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "quiet"}, "spec": spec});
    world.create("silent", &pod.to_string());
    world.k.run("wait --for=condition=Ready pod/quiet -n silent --timeout=120s");
    let view = world.trace("pods", "silent", "quiet", |view| view.objects.iter().any(|object| object.untold));
    assert!(view.end.is_none(), "it is not known when\n{}", outline(&view));
    assert!(view.spans.iter().all(|span| span.node != NODE), "{}", outline(&view));
    assert!(!spans(&view, "bind").is_empty(), "what the server did is known\n{}", outline(&view));
    let (code, drawn, told) = trace(world, &["pod/quiet", "-n", "silent"]);
    assert_eq!(code, Some(0), "{drawn}{told}");
    for part in ["ready, it is not known when", "the spans of pod/quiet have not arrived from node-2"] {
        assert!(drawn.contains(part) || told.contains(part), "{part}\n{drawn}{told}");
    }
    // Others know theirs.
    world.deploy("silent", 6);
    let pods = world.pods("silent");
    let on_node = pods.values().filter(|node| *node == NODE).count() - 1;
    assert!(on_node > 0, "{pods:?}");
    let (code, drawn, told) = trace(world, &["deployment/web", "-n", "silent"]);
    assert_eq!(code, Some(0), "{drawn}{told}");
    let part = format!("6 pods ready, of {on_node} it is not known when");
    assert!(drawn.contains(&part), "{part}\n{drawn}{told}");
}
