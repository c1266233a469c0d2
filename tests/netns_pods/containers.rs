//! Init containers, sidecars, restarts, hooks, probes, messages, resize.

use crate::cluster::{Cluster, IMAGE, condition};
use coracle_tests::eventually;
use std::time::Duration;

const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

#[test]
#[ignore = "run by in_namespaces"]
fn init_containers_and_sidecars_in_order() {
    let cluster = Cluster::start();
    let volume = "volumes: [{name: v, emptyDir: {}}]";
    let mount = "volumeMounts: [{name: v, mountPath: /v}]";
    cluster.pod(
        "order",
        &format!(
            "{volume}, initContainers: [{{name: i1, image: '{IMAGE}', {mount}, command: [sh, -c, 'echo i1 >> /v/o']}},
            {{name: side, image: '{IMAGE}', restartPolicy: Always, {mount}, command: [sh, -c, \"echo side >> /v/o; {FOREVER}\"],
              startupProbe: {{exec: {{command: [test, -f, /v/o]}}, periodSeconds: 1}}}},
            {{name: i2, image: '{IMAGE}', {mount}, command: [sh, -c, 'echo i2 >> /v/o']}}],
            containers: [{{name: main, image: '{IMAGE}', {mount}, command: [sh, -c, \"echo main >> /v/o; cat /v/o; {FOREVER}\"]}}]"
        ),
    );
    let status = cluster.wait_ready("order");
    assert_eq!(cluster.output("order", "main", 0), "i1\nside\ni2\nmain");
    assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    assert_eq!(status["initContainerStatuses"][1]["started"], true);
    cluster.delete("order");
}

#[test]
#[ignore = "run by in_namespaces"]
fn the_longest_back_off_is_a_setting_of_the_node() {
    let cluster = Cluster::start_with("--crash-loop-back-off-max 1s");
    cluster
        .pod("quick", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'exit 3']}}]"));
    let message = cluster.wait_waiting("quick", "CrashLoopBackOff");
    assert!(message.starts_with("back-off 1s restarting failed container=c pod=quick_default("), "{message}");
    // With the usual delays the fourth restart comes after more than a minute.
    cluster.wait("quick", "four restarts", |status| {
        status["containerStatuses"][0]["restartCount"].as_u64() >= Some(4)
    });
    cluster.delete("quick");
}

#[test]
#[ignore = "run by in_namespaces"]
fn restart_policies_back_off_and_messages() {
    let cluster = Cluster::start();
    cluster.pod("always", &format!("containers: [{{name: c, image: '{IMAGE}', terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, 'echo dying; exit 3']}}]"));
    cluster.pod("never", &format!("restartPolicy: Never, containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'echo -n bye > /dev/termination-log']}}]"));
    cluster.pod("failure", &format!("restartPolicy: OnFailure, containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'test -f /v/x && exit 0; touch /v/x; exit 1'], volumeMounts: [{{name: v, mountPath: /v}}]}}], volumes: [{{name: v, emptyDir: {{}}}}]"));
    cluster.pod(
        "deadline",
        &format!(
            "activeDeadlineSeconds: 2, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000']}}]"
        ),
    );
    let message = cluster.wait_waiting("always", "CrashLoopBackOff");
    assert!(
        message.starts_with("back-off 10s restarting failed container=c pod=always_default("),
        "{message}"
    );
    let last = cluster.get("always")["status"]["containerStatuses"][0]["lastState"]["terminated"].clone();
    assert_eq!((last["exitCode"].as_i64(), last["message"].as_str()), (Some(3), Some("dying\n")));
    let done = cluster.wait_phase("never", "Succeeded");
    assert_eq!(done["containerStatuses"][0]["state"]["terminated"]["message"], "bye");
    let retried = cluster.wait_phase("failure", "Succeeded");
    assert_eq!(retried["containerStatuses"][0]["restartCount"], 1);
    let late = cluster.wait_phase("deadline", "Failed");
    assert_eq!(late["reason"], "DeadlineExceeded");
    cluster.delete("always never failure deadline");
}

#[test]
#[ignore = "run by in_namespaces"]
fn probes_decide_ready_and_restart() {
    let cluster = Cluster::start();
    let web = "echo x > /tmp/ok; exec httpd -f -p 80 -h /tmp";
    cluster.pod(
        "probed",
        &format!(
            "containers: [{{name: web, image: '{IMAGE}', command: [sh, -c, '{web}'], startupProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1}},
              readinessProbe: {{httpGet: {{path: /ok, port: 80}}, periodSeconds: 1}}, livenessProbe: {{exec: {{command: [cat, /tmp/ok]}}, periodSeconds: 1}}}}]"
        ),
    );
    cluster.wait_ready("probed");
    cluster.pod(
        "sick",
        &format!(
            "containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], livenessProbe: {{exec: {{command: [cat, /none]}}, periodSeconds: 1, failureThreshold: 1}}}},
              {{name: d, image: '{IMAGE}', command: [sleep, '1000'], readinessProbe: {{httpGet: {{path: /, port: 81}}, periodSeconds: 1}}}}]"
        ),
    );
    let status = cluster.wait("sick", "a restart", |status| {
        status["containerStatuses"][0]["restartCount"].as_i64() >= Some(1)
    });
    assert_eq!(status["containerStatuses"][1]["ready"], false);
    let events = cluster.kubectl.run("get events -o jsonpath={range.items[*]}{.message}{\"\\n\"}{end}");
    assert!(events.contains("Liveness probe failed: cat: can't open '/none'"), "{events}");
    assert!(events.contains("Container c failed liveness probe, will be restarted"), "{events}");
    assert!(events.contains("connect: connection refused"), "{events}");
    cluster.delete("probed sick");
}

#[test]
#[ignore = "run by in_namespaces"]
fn hooks_image_change_and_resize() {
    let cluster = Cluster::start();
    let hooks = cluster.path("hooks");
    let dir = hooks.display();
    let hook = |word: &str| format!("{{exec: {{command: [sh, -c, 'echo {word} >> /h/log']}}}}");
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: hooked}}, spec: {{terminationGracePeriodSeconds: 5, volumes: [{{name: h, hostPath: {{path: {dir}, type: DirectoryOrCreate}}}}],
          containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, \"{FOREVER}\"], volumeMounts: [{{name: h, mountPath: /h}}],
          resources: {{requests: {{cpu: 50m}}}}, lifecycle: {{postStart: {}, preStop: {}}}}}]}}}}",
        hook("post"),
        hook("pre")
    ));
    let status = cluster.wait_ready("hooked");
    let id = status["containerStatuses"][0]["containerID"].clone();
    let patch = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"}}}]}}"#;
    cluster.kubectl.run(&format!("patch pod hooked --subresource resize -p '{patch}'"));
    let status = cluster.wait("hooked", "resized", |status| {
        status["containerStatuses"][0]["resources"]["requests"]["cpu"] == "100m"
    });
    assert_eq!(status["containerStatuses"][0]["containerID"], id, "not restarted");
    // All that the node has, of which another pod has some.
    cluster.pod("neighbour", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, \"{FOREVER}\"], resources: {{requests: {{cpu: 70m}}}}}}]"));
    cluster.wait_ready("neighbour");
    let all = cluster.kubectl.run("get node node1 -o jsonpath={.status.allocatable.cpu}");
    let patch = format!(
        r#"{{"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{all}"}}}}}}]}}}}"#
    );
    cluster.kubectl.run(&format!("patch pod hooked --subresource resize -p '{patch}'"));
    let status = cluster.wait("hooked", "deferred", |status| condition(status, "PodResizePending") == "True");
    assert!(status.to_string().contains("Node didn't have enough resource: cpu, requested: "), "{status}");
    assert!(status.to_string().contains("used: 70, capacity: "), "{status}");
    assert_eq!(status["containerStatuses"][0]["resources"]["requests"]["cpu"], "100m");
    let patch = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"120m"}}}]}}"#;
    cluster.kubectl.run(&format!("patch pod hooked --subresource resize -p '{patch}'"));
    cluster.wait("hooked", "resized after all", |status| {
        condition(status, "PodResizePending") != "True"
            && status["containerStatuses"][0]["resources"]["requests"]["cpu"] == "120m"
    });
    cluster.delete("hooked neighbour");
    assert_eq!(std::fs::read_to_string(hooks.join("log")).unwrap(), "post\npre\n");
}

#[test]
#[ignore = "run by in_namespaces"]
fn init_containers_sidecars_and_whole_pods_are_resized() {
    let cluster = Cluster::start();
    let dir = cluster.path("resized");
    let sizes =
        |cpu: &str| format!("{{requests: {{cpu: {cpu}, memory: 16Mi}}, limits: {{cpu: '1', memory: 64Mi}}}}");
    let mount = "volumeMounts: [{name: h, mountPath: /h}]";
    cluster.pod(
        "sized",
        &format!(
            "volumes: [{{name: h, hostPath: {{path: {}, type: DirectoryOrCreate}}}}], terminationGracePeriodSeconds: 1,
             resources: {{requests: {{cpu: 200m, memory: 64Mi}}, limits: {{cpu: '1', memory: 128Mi}}}},
             initContainers: [{{name: side, image: '{IMAGE}', restartPolicy: Always, command: [sh, -c, \"{FOREVER}\"], resources: {},
                 resizePolicy: [{{resourceName: memory, restartPolicy: RestartContainer}}]}},
               {{name: once, image: '{IMAGE}', {mount}, resources: {}, command: [sh, -c, 'while ! test -f /h/go; do sleep 0.1; done']}},
               {{name: later, image: '{IMAGE}', resources: {}, command: ['true']}}],
             containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, \"{FOREVER}\"]}}]",
            dir.display(),
            sizes("20m"),
            sizes("30m"),
            sizes("40m"),
        ),
    );
    let resize = |spec: &str| {
        cluster.kubectl.run(&format!("patch pod sized --subresource resize -p '{{\"spec\":{spec}}}'"));
    };
    let init = |name: &str, resources: &str| {
        resize(&format!(r#"{{"initContainers":[{{"name":"{name}","resources":{resources}}}]}}"#));
    };
    let running = |status: &serde_json::Value, at: usize| {
        status["initContainerStatuses"][at]["state"]["running"].is_object()
    };
    let cpu = |status: &serde_json::Value, at: usize| {
        status["initContainerStatuses"][at]["resources"]["requests"]["cpu"].clone()
    };
    let status = cluster.wait("sized", "an init container runs", |status| running(status, 1));
    let id =
        |status: &serde_json::Value, at: usize| status["initContainerStatuses"][at]["containerID"].clone();
    // One that runs, and one that has not begun.
    init("once", r#"{"requests":{"cpu":"35m"}}"#);
    init("later", r#"{"requests":{"cpu":"45m"}}"#);
    let resized = cluster.wait("sized", "the init container is resized", |status| cpu(status, 1) == "35m");
    assert_eq!(id(&resized, 1), id(&status, 1), "not restarted");
    std::fs::write(dir.join("go"), "").unwrap();
    let status = cluster.wait_ready("sized");
    assert_eq!(cpu(&status, 2), "45m");
    assert_eq!(
        (&status["resources"]["limits"]["memory"], &status["allocatedResources"]["cpu"]),
        (&"128Mi".into(), &"200m".into())
    );
    // A sidecar goes on with other CPUs, and is restarted for other memory.
    init("side", r#"{"requests":{"cpu":"25m"}}"#);
    let same = cluster.wait("sized", "the sidecar is resized", |status| cpu(status, 0) == "25m");
    assert_eq!(id(&same, 0), id(&status, 0), "not restarted");
    init("side", r#"{"limits":{"memory":"96Mi"}}"#);
    cluster.wait("sized", "the sidecar is restarted", |status| {
        let side = &status["initContainerStatuses"][0];
        side["restartCount"] == 1 && side["resources"]["limits"]["memory"] == "96Mi" && running(status, 0)
    });
    // The pod as a whole.
    resize(r#"{"resources":{"requests":{"cpu":"300m"},"limits":{"memory":"160Mi"}}}"#);
    let status = cluster.wait("sized", "the pod is resized", |status| {
        status["allocatedResources"]["cpu"] == "300m" && status["resources"]["limits"]["memory"] == "160Mi"
    });
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    cluster.pod("neighbour", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, \"{FOREVER}\"], resources: {{requests: {{cpu: 70m}}}}}}]"));
    cluster.wait_ready("neighbour");
    let all = cluster.kubectl.run("get node node1 -o jsonpath={.status.allocatable.cpu}");
    resize(&format!(r#"{{"resources":{{"requests":{{"cpu":"{all}"}},"limits":{{"cpu":"{all}"}}}}}}"#));
    let status = cluster.wait("sized", "deferred", |status| condition(status, "PodResizePending") == "True");
    assert!(status.to_string().contains("used: 70, capacity: "), "{status}");
    assert_eq!(status["allocatedResources"]["cpu"], "300m", "it has what it had");
    let line = "get events --field-selector involvedObject.name=sized -o jsonpath={.items[*].reason}";
    eventually("the events are there", Duration::from_secs(60), || {
        let events = cluster.kubectl.run(line);
        ["ResizeStarted", "ResizeCompleted"].iter().all(|reason| events.contains(reason))
    });
    cluster.delete("sized neighbour");
}
