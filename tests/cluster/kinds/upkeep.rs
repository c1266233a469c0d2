//! What the cluster does by itself.

use super::{Room, shell};

pub fn budgets_hold_evictions_back(room: &Room) {
    room.run("create deployment kept --image=busybox --replicas=2 -- sleep 3600");
    room.run(
        r#"patch deployment kept -p '{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":0}}}}'"#,
    );
    room.run("rollout status deployment kept --timeout=120s");
    room.run("create pdb kept --selector=app=kept --min-available=2");
    room.until("get pdb kept -o jsonpath={.status.disruptionsAllowed},{.status.currentHealthy}", "0,2");
    let pod = room.pods().remove(0);
    let refused = room.evict(&pod, "");
    assert!(
        refused.err.contains("Cannot evict pod as it would violate the pod's disruption budget"),
        "{refused:?}"
    );
    room.run(r#"patch pdb kept --type=merge -p '{"spec":{"minAvailable":1}}'"#);
    room.until("get pdb kept -o jsonpath={.status.disruptionsAllowed}", "1");
    // A dry run takes nothing, however it is asked for.
    let tried = room.evict(&pod, r#","deleteOptions":{"dryRun":["All"]}"#);
    assert!(tried.ok, "{tried:?}");
    for node in ["node-1", "node-2"] {
        let drained = format!("drain {node} --dry-run=server --pod-selector=app=kept --force --timeout=60s");
        assert!(room.kubectl.run(&drained).contains("drained (server dry run)"));
    }
    assert_eq!(room.run(&format!("get pod {pod} -o jsonpath={{.metadata.deletionTimestamp}}")), "");
    assert_eq!(room.run("get pdb kept -o jsonpath={.status.disruptionsAllowed}"), "1");
    let evicted = room.evict(&pod, "");
    assert!(evicted.ok, "{evicted:?}");
    room.run(&format!("wait --for=delete pod/{pod} --timeout=60s"));
    room.until("get pdb kept -o jsonpath={.status.currentHealthy}", "2");
}

pub fn owners_take_theirs_along(room: &Room) {
    let uid = |name: &str| room.run(&format!("get configmap {name} -o jsonpath={{.metadata.uid}}"));
    let owned = |name: &str, owner: &str| {
        let owner = format!(
            r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"{owner}","uid":"{}","blockOwnerDeletion":true}}]}}}}"#,
            uid(owner)
        );
        room.run(&format!("patch configmap {name} --type=merge -p '{owner}'"));
    };
    // Two that own each other end all the same.
    for how in ["background", "foreground"] {
        for name in ["hen", "egg"] {
            room.run(&format!("create configmap {name}"));
        }
        owned("hen", "egg");
        owned("egg", "hen");
        room.run(&format!("delete configmap hen --cascade={how} --wait=false"));
        room.until("get configmap hen egg --ignore-not-found -o name", "");
    }
    // An owner that was never there takes nobody in: the orphan is collected.
    room.run("create configmap lost");
    room.run(
        r#"patch configmap lost --type=merge -p '{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nobody","uid":"11111111-2222-3333-4444-555555555555"}]}}'"#,
    );
    room.run("wait --for=delete configmap/lost --timeout=60s");
    assert!(
        room.run("get configmap kube-root-ca.crt -o jsonpath={.data.ca\\.crt}").contains("BEGIN CERTIFICATE")
    );
    room.run("delete configmap kube-root-ca.crt");
    room.until("get configmap kube-root-ca.crt -o name", "configmap/kube-root-ca.crt");
}

pub fn namespaces_end(room: &Room) {
    room.apply(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {}\n", shell("sleep 3600")));
    room.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n");
    room.run("wait --for=condition=Ready pod/p --timeout=120s");
    room.kubectl.run("delete namespace closing --wait=false");
    let why = "get namespace closing -o jsonpath={.status.conditions[?(@.type==\"NamespaceFinalizersRemaining\")].message}";
    room.until_with(why, |text| text.contains("example.com/hold in 1 resource instances"));
    assert_eq!(room.run("get namespace closing -o jsonpath={.status.phase}"), "Terminating");
    let refused = room.refused("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\n");
    assert!(refused.contains("because it is being terminated"), "{refused}");
    room.run(r#"patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}'"#);
    room.kubectl.run("wait --for=delete namespace/closing --timeout=120s");
}

pub fn load_brings_pods(room: &Room) {
    // Enough to notice, and the machine stays usable.
    let busy = shell("while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.1; done")
        .replace("name: c,", "name: c, resources: {requests: {cpu: 10m}},");
    room.apply(&format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: busy}}\nspec:\n  selector: {{matchLabels: {{app: busy}}}}\n\
         \x20 template:\n    metadata: {{labels: {{app: busy}}}}\n    spec: {busy}\n"
    ));
    room.run("autoscale deployment busy --min=1 --max=2 --cpu-percent=50");
    room.until("get deployment busy -o jsonpath={.spec.replicas}", "2");
    room.until("get hpa busy -o jsonpath={.status.desiredReplicas}", "2");
    let limited =
        room.run("get hpa busy -o jsonpath={.status.conditions[?(@.type==\"ScalingLimited\")].reason}");
    assert_eq!(limited, "TooManyReplicas");
    room.run("delete hpa,deployment busy --wait");
}
