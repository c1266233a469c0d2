//! StatefulSets, DaemonSets, ReplicaSets and ReplicationControllers.

use super::{Room, shell};

const STATEFUL: &str = r"
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: busybox
        command: [sh, -c, 'echo $HOSTNAME >> /data/starts; sleep 3600']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
";

pub fn stateful(room: &Room) {
    room.apply(STATEFUL);
    room.run("rollout status statefulset db --timeout=120s");
    assert_eq!(room.pods(), ["db-0", "db-1", "db-2"]);
    // One after the other, each only when the one before was ready.
    let pods = room.json("get pods --sort-by=.metadata.name");
    let condition = |pod: usize, name: &str| {
        let all = pods["items"][pod]["status"]["conditions"].as_array().unwrap();
        all.iter().find(|c| c["type"] == name).unwrap()["lastTransitionTime"].as_str().unwrap().to_owned()
    };
    for pod in 1..3 {
        let made = pods["items"][pod]["metadata"]["creationTimestamp"].as_str().unwrap();
        assert!(made >= condition(pod - 1, "Ready").as_str(), "db-{pod} came too early");
    }

    // The same name gets the same volume.
    let uid = room.run("get pod db-1 -o jsonpath={.metadata.uid}");
    room.run("delete pod db-1 --wait=false");
    room.until_with("get pod db-1 -o jsonpath={.metadata.uid}", |now| now.len() == uid.len() && now != uid);
    room.run("wait --for=condition=Ready pod/db-1 --timeout=120s");
    assert_eq!(room.run("exec db-1 -- cat /data/starts"), "db-1\ndb-1\n");

    room.run("scale statefulset db --replicas=1");
    room.until("get pods -o jsonpath={.items[*].metadata.name}", "db-0");
    let claims = "get pvc --sort-by=.metadata.name -o jsonpath={.items[*].metadata.name}";
    assert_eq!(room.run(claims), "data-db-0 data-db-1 data-db-2");
    room.run("scale statefulset db --replicas=3");
    room.run("rollout status statefulset db --timeout=120s");
    assert_eq!(room.run("exec db-2 -- cat /data/starts"), "db-2\ndb-2\n");

    // Only what is at or above the partition is changed.
    room.run(r#"patch statefulset db -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}'"#);
    room.run("set env statefulset/db COLOUR=blue");
    let colours = "get pods --sort-by=.metadata.name -o jsonpath={.items[*].spec.containers[0].env[0].value}";
    room.until(colours, "blue");
    room.until("get pod db-2 -o jsonpath={.spec.containers[0].env[0].value}", "blue");
    room.run(r#"patch statefulset db -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'"#);
    room.run("rollout status statefulset db --timeout=120s");
    room.until(colours, "blue blue blue");

    room.run("delete statefulset db --wait");
    room.until("get pvc -o name", "");
}

pub fn daemons(room: &Room) {
    let set = |strategy: &str, selector: &str| {
        format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: each}}\nspec:\n  updateStrategy: {strategy}\n\
             \x20 selector: {{matchLabels: {{app: each}}}}\n  template:\n    metadata: {{labels: {{app: each}}}}\n\
             \x20   spec: {{terminationGracePeriodSeconds: 0, nodeSelector: {selector}, containers: [{{name: c, image: busybox, \
             command: [sleep, '3600']}}]}}\n"
        )
    };
    room.apply(&set("{type: RollingUpdate}", "{}"));
    room.run("rollout status daemonset each --timeout=120s");
    let nodes = "get pods -o jsonpath={.items[*].spec.nodeName}";
    let both = |text: &str| {
        text.split_whitespace().count() == 2 && text.contains("node-1") && text.contains("node-2")
    };
    room.until_with(nodes, both);
    room.run("set env daemonset/each COLOUR=blue");
    room.run("rollout status daemonset each --timeout=120s");
    room.until("get pods -o jsonpath={.items[*].spec.containers[0].env[0].value}", "blue blue");
    room.run("rollout undo daemonset each");
    room.run("rollout status daemonset each --timeout=120s");
    room.until("get pods -o jsonpath={.items[*].spec.containers[0].env[0].value}", "");

    // Changed only where somebody deletes.
    room.apply(&set("{type: OnDelete}", "{}"));
    room.run("set env daemonset/each COLOUR=red");
    room.until("get daemonset each -o jsonpath={.status.updatedNumberScheduled}", "");
    let first = room.pods().remove(0);
    room.run(&format!("delete pod {first} --wait"));
    room.until("get daemonset each -o jsonpath={.status.updatedNumberScheduled}", "1");

    // Nodes come and go by their labels.
    room.apply(&set("{type: RollingUpdate}", "{kubernetes.io/hostname: node-2}"));
    room.until(nodes, "node-2");
    room.until("get daemonset each -o jsonpath={.status.desiredNumberScheduled}", "1");
}

pub fn replicas_are_adopted_and_released(room: &Room) {
    room.run_pod("stray");
    room.apply(&format!(
        "apiVersion: v1\nkind: ReplicationController\nmetadata: {{name: rc}}\nspec:\n  replicas: 2\n  selector: {{app: rc}}\n\
         \x20 template:\n    metadata: {{labels: {{app: rc}}}}\n    spec: {}\n",
        shell("sleep 3600")
    ));
    room.until("get rc rc -o jsonpath={.status.readyReplicas}", "2");
    let pods = room.pods();
    assert!(pods.len() == 2 && pods.contains(&"stray".to_owned()), "{pods:?}");
    assert_eq!(room.run("get pod stray -o jsonpath={.metadata.ownerReferences[0].name}"), "rc");
    // A pod that leaves the selector is let go, and another takes its place.
    room.run("label pod stray app=other --overwrite");
    room.until("get pod stray -o jsonpath={.metadata.ownerReferences}", "");
    room.until("get rc rc -o jsonpath={.status.readyReplicas}", "2");
    assert_eq!(room.pods().len(), 3);
    room.run("scale rc rc --replicas=0");
    room.until("get pods -o name", "pod/stray");
}

impl Room {
    fn run_pod(&self, name: &str) {
        self.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: rc}}}}\nspec: {}\n",
            shell("sleep 3600")
        ));
    }
}
