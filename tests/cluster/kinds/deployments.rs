//! Deployments.

use super::{Room, shell};

fn deployment(name: &str, replicas: u32, more: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n{more}\
         \x20 selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec: {}\n",
        shell("sleep 3600")
    )
}

pub fn rolled_and_undone(room: &Room) {
    room.apply(&deployment("web", 3, ""));
    room.run("rollout status deployment web --timeout=120s");
    room.run("scale deployment web --replicas=5");
    room.run("rollout status deployment web --timeout=120s");
    assert_eq!(room.pods().len(), 5);

    // Changes made while it is paused come in one revision.
    room.run("rollout pause deployment web");
    room.run("set env deployment/web COLOUR=blue");
    room.run("set env deployment/web SIZE=large");
    assert_eq!(room.json("get replicasets")["items"].as_array().unwrap().len(), 1);
    room.run("rollout resume deployment web");
    room.run("rollout status deployment web --timeout=120s");
    let history = room.run("rollout history deployment web");
    assert!(history.contains("\n2 ") && !history.contains("\n3 "), "{history}");

    room.run("rollout restart deployment web");
    room.run("rollout status deployment web --timeout=120s");
    room.run("rollout undo deployment web --to-revision=1");
    room.run("rollout status deployment web --timeout=120s");
    assert_eq!(room.run("get deployment web -o jsonpath={.spec.template.spec.containers[0].env}"), "");
    room.until(
        "get deployment web -o jsonpath={.metadata.annotations.deployment\\.kubernetes\\.io/revision}",
        "4",
    );

    // All old pods go before the first new one comes.
    room.run(r#"patch deployment web -p '{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}'"#);
    room.run("set env deployment/web COLOUR=red");
    room.run("rollout status deployment web --timeout=120s");
    let events = room.run("get events -o jsonpath={.items[*].reason}");
    assert!(events.contains("ScalingReplicaSet") && events.contains("SuccessfulCreate"), "{events}");
}

pub fn deleted_in_every_way(room: &Room) {
    for how in ["background", "foreground"] {
        room.apply(&deployment("gone", 2, ""));
        room.run("rollout status deployment gone --timeout=120s");
        room.run(&format!("delete deployment gone --cascade={how} --wait"));
        if how == "foreground" {
            assert!(room.json("get replicasets")["items"].as_array().unwrap().is_empty());
        }
        room.until("get replicasets,pods -o name", "");
    }
    room.apply(&deployment("kept", 2, ""));
    room.run("rollout status deployment kept --timeout=120s");
    let pods = room.pods();
    room.run("delete deployment kept --cascade=orphan --wait");
    let sets = room.json("get replicasets");
    assert!(sets["items"][0]["metadata"]["ownerReferences"].is_null(), "{sets}");
    assert_eq!(room.pods(), pods);
    // The same Deployment takes its own back.
    room.apply(&deployment("kept", 2, ""));
    room.run("rollout status deployment kept --timeout=120s");
    assert_eq!(room.pods(), pods);
    room.run("delete deployment kept --wait");
}

pub fn a_rollout_that_cannot_end_says_so(room: &Room) {
    room.apply(&deployment("stuck", 2, "  progressDeadlineSeconds: 3\n"));
    room.run("rollout status deployment stuck --timeout=120s");
    room.run("set image deployment/stuck c=nowhere.invalid/none:1");
    room.until_with(
        "get deployment stuck -o jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}",
        |reason| reason == "ProgressDeadlineExceeded",
    );
    let said = room.kubectl.fails("-n stuck rollout status deployment stuck --timeout=60s");
    assert!(said.contains("exceeded its progress deadline"), "{said}");
    // What worked goes on: at most a quarter, rounded down, may be missing.
    assert_eq!(room.run("get deployment stuck -o jsonpath={.status.availableReplicas}"), "2");
    room.run("rollout undo deployment stuck");
    room.run("rollout status deployment stuck --timeout=120s");
}
