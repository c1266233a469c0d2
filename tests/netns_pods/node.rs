//! What the node does for its pods: users and cpus of their own, disk limits, claims, images as volumes, shutdown.

use std::time::Duration;

use coracle_tests::eventually;

use crate::cluster::{Cluster, IMAGE, condition};

const PATIENCE: Duration = Duration::from_secs(60);

fn one(rest: &str) -> String {
    format!("containers: [{{name: c, image: '{IMAGE}', {rest}}}]")
}

#[test]
#[ignore = "run by in_namespaces"]
fn whole_cores_are_given_or_the_pod_fails() {
    let options = "full-pcpus-only=true,strict-cpu-reservation=true";
    let cluster = Cluster::start_with(&format!(
        "--cpu-manager-policy static --cpu-manager-policy-options {options} --reserved cpu=500m"
    ));
    let cpus = |count: usize| {
        let resources = format!("{{limits: {{cpu: '{count}', memory: 64Mi}}}}");
        format!("nodeName: node1, {}", one(&format!("command: [sleep, '1000'], resources: {resources}")))
    };
    let siblings =
        std::fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").unwrap();
    let threads = siblings.trim().split([',', '-']).count();
    let all: usize =
        cluster.kubectl.run("get node node1 -o jsonpath={.status.capacity.cpu}").parse().unwrap();
    let status = |name: &str, count: usize| {
        cluster.pod(name, &cpus(count));
        cluster.wait_phase(name, "Failed")
    };
    if threads > 1 {
        let part = status("part", 1);
        assert_eq!(
            (part["reason"].as_str(), part["message"].as_str().unwrap_or_default()),
            (
                Some("SMTAlignmentError"),
                &*format!(
                    "Pod was rejected: SMT Alignment Error: requested 1 cpus not multiple cpus per core = {threads}"
                )
            )
        );
        cluster.delete("part");
    }
    // All cores but the one with the reserved cpu.
    let most = all - threads;
    if most > 0 {
        cluster.pod("whole", &cpus(most));
        cluster.wait_ready("whole");
        let state = std::fs::read_to_string(cluster.path("agent/cpu_manager_state")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        let uid = cluster.get("whole")["metadata"]["uid"].as_str().unwrap().to_owned();
        assert!(state["entries"][&uid]["c"].as_str().is_some_and(|own| !own.is_empty()), "{state}");
        cluster.delete("whole");
    }
    cluster.pod("shared", &one("command: [sleep, '1000']"));
    cluster.wait_ready("shared");
    let configz = cluster.kubectl.run("get --raw /api/v1/nodes/node1/proxy/configz");
    let configz: serde_json::Value = serde_json::from_str(&configz).unwrap();
    assert_eq!(
        configz["kubeletconfig"]["cpuManagerPolicyOptions"],
        serde_json::json!({"full-pcpus-only": "true", "strict-cpu-reservation": "true"})
    );
    cluster.delete("shared");
}

#[test]
#[ignore = "run by in_namespaces"]
fn users_cpus_and_disk_of_their_own() {
    let cluster = Cluster::start_with("--cpu-manager-policy static --reserved cpu=500m");
    let inside = "cat /proc/self/uid_map; echo x > /v/f; ls -ln /v/f /etc/hosts | { while read a b c d e; do echo owner $c $d; done; }; sleep 1000";
    cluster.pod(
        "mapped",
        &format!(
            "hostUsers: false, volumes: [{{name: v, emptyDir: {{}}}}], {}",
            one(&format!("command: [sh, -c, '{inside}'], volumeMounts: [{{name: v, mountPath: /v}}]"))
        ),
    );
    cluster.pod(
        "greedy",
        &format!(
            "volumes: [{{name: v, emptyDir: {{sizeLimit: 1Mi}}}}], {}",
            one("command: [sh, -c, 'dd if=/dev/zero of=/v/big bs=1M count=4; sleep 1000'], volumeMounts: [{name: v, mountPath: /v}]")
        ),
    );
    cluster.pod("exclusive", &one("command: [sleep, '1000'], resources: {limits: {cpu: '1', memory: 64Mi}}"));
    cluster.wait_ready("mapped");
    eventually("output", PATIENCE, || cluster.output("mapped", "c", 0).matches("owner").count() == 2);
    let output = cluster.output("mapped", "c", 0);
    let words: Vec<&str> = output.split_whitespace().collect();
    assert_eq!((words[0], words[2]), ("0", "65536"), "{output}");
    assert_ne!(words[1], "0", "root is not the host's");
    assert_eq!(output.matches("owner 0 0").count(), 2, "{output}");

    cluster.wait_ready("exclusive");
    let state = || std::fs::read_to_string(cluster.path("agent/cpu_manager_state")).unwrap_or_default();
    let uid = cluster.get("exclusive")["metadata"]["uid"].as_str().unwrap().to_owned();
    let of = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let own = of(&state())["entries"][&uid]["c"].as_str().unwrap_or_default().to_owned();
    assert!(!own.is_empty() && own != of(&state())["defaultCpuSet"], "{}", state());
    cluster.pod(
        "second",
        &format!(
            "nodeName: node1, {}",
            one("command: [sleep, '1000'], resources: {limits: {cpu: '100', memory: 64Mi}}")
        ),
    );
    assert_eq!(cluster.wait_phase("second", "Failed")["reason"], "OutOfcpu");

    let status = cluster.wait_phase("greedy", "Failed");
    assert_eq!(
        (status["reason"].as_str(), status["message"].as_str()),
        (Some("Evicted"), Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "))
    );
    assert_eq!(condition(&status, "DisruptionTarget"), "", "the pod exceeded its own limit");
    cluster.delete("mapped exclusive greedy second");
    eventually("the cpus are free", PATIENCE, || !state().contains(&uid));
}

#[test]
#[ignore = "run by in_namespaces"]
fn claims_images_and_grpc_probes() {
    let cluster = Cluster::start();
    let dir = cluster.path("claimed");
    std::fs::create_dir(&dir).unwrap();
    // A whole line: the rest of a line is not in the log while its container may go on with it.
    std::fs::write(dir.join("there"), "already\n").unwrap();
    let at = dir.display();
    let local = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]}]}}";
    for (name, source) in
        [("host", format!("hostPath: {{path: {at}}}")), ("local", format!("local: {{path: {at}}}, {local}"))]
    {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{storageClassName: {name}, capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], {source}}}}}"
        ));
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{storageClassName: {name}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}"
        ));
        let script = format!("cat /v/there; echo {name} > /v/{name}; sleep 1000");
        cluster.pod(
            &format!("claim-{name}"),
            &format!(
                "volumes: [{{name: v, persistentVolumeClaim: {{claimName: {name}}}}}], {}",
                one(&format!("command: [sh, -c, '{script}'], volumeMounts: [{{name: v, mountPath: /v}}]"))
            ),
        );
    }
    cluster.pod(
        "image",
        &format!(
            "volumes: [{{name: v, image: {{reference: '{IMAGE}', pullPolicy: IfNotPresent}}}}], {}",
            one("command: [sh, -c, 'ls /v/bin/busybox; touch /v/x || echo refused; sleep 1000'], volumeMounts: [{name: v, mountPath: /v}]")
        ),
    );
    let port = health_server();
    let probe = |service: &str| format!("{{grpc: {{port: {port}, service: {service}}}, periodSeconds: 1}}");
    cluster.pod(
        "grpc",
        &format!(
            "hostNetwork: true, {}",
            one(&format!("command: [sleep, '1000'], readinessProbe: {}", probe("good")))
        ),
    );
    cluster.pod(
        "grpc-bad",
        &format!(
            "hostNetwork: true, {}",
            one(&format!("command: [sleep, '1000'], readinessProbe: {}", probe("bad")))
        ),
    );
    for name in ["host", "local"] {
        cluster.wait_ready(&format!("claim-{name}"));
        eventually("it wrote", PATIENCE, || dir.join(name).exists());
        eventually("it read", PATIENCE, || cluster.output(&format!("claim-{name}"), "c", 0) == "already");
    }
    cluster.wait_ready("image");
    eventually("output", PATIENCE, || cluster.output("image", "c", 0).contains("refused"));
    assert!(cluster.output("image", "c", 0).starts_with("/v/bin/busybox"));
    cluster.wait_ready("grpc");
    eventually("the failed probe is told", PATIENCE, || {
        let events = cluster.kubectl.run("get events -o jsonpath={range.items[*]}{.message}{\"\\n\"}{end}");
        events.contains("Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")")
    });
    assert_eq!(condition(&cluster.get("grpc-bad")["status"], "Ready"), "False");
    cluster.delete("claim-host claim-local image grpc grpc-bad");
    assert!(dir.join("there").exists(), "a claim's data outlives its pods");
}

/// `grpc.health.v1` on all addresses: `good` serves, anything else does not.
fn health_server() -> u16 {
    use bytes::Bytes;
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::Frame;
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let service =
                    hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                        let body = request.into_body().collect().await?.to_bytes();
                        let serving = body.windows(4).any(|word| word == b"good");
                        let message = Bytes::from(vec![0, 0, 0, 0, 2, 8, if serving { 1 } else { 2 }]);
                        let mut trailers = http::HeaderMap::new();
                        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                        let frames = [
                            Ok::<_, std::convert::Infallible>(Frame::data(message)),
                            Ok(Frame::trailers(trailers)),
                        ];
                        let body = StreamBody::new(futures::stream::iter(frames));
                        let response =
                            http::Response::builder().header("content-type", "application/grpc").body(body);
                        Ok::<_, hyper::Error>(response.unwrap())
                    });
                tokio::spawn(
                    hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
                        .serve_connection(hyper_util::rt::TokioIo::new(stream), service),
                );
            }
        });
    });
    port
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_machine_that_goes_down_ends_its_pods_in_order() {
    let mut cluster =
        Cluster::start_with("--shutdown-grace-period-by-pod-priority 0=10s,1000=10s,2000000000=10s");
    cluster.apply(
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: wanted}, value: 5000}",
    );
    let last = |word: &str| {
        format!(
            "terminationGracePeriodSeconds: 8, {}",
            one(&format!(
                "command: [sh, -c, \"trap 'read up idle < /proc/uptime; echo $up > /h/{word}; exit 0' TERM; touch /h/{word}.ready; while :; do sleep 0.1; done\"], volumeMounts: [{{name: h, mountPath: /h}}]"
            ))
        )
    };
    let volume = format!(
        "volumes: [{{name: h, hostPath: {{path: {}, type: DirectoryOrCreate}}}}]",
        cluster.path("h").display()
    );
    for (name, rest) in [
        ("plain", ""),
        ("wanted", "priorityClassName: wanted, "),
        ("critical", "priorityClassName: system-node-critical, "),
    ] {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{rest}{volume}, {}}}}}",
            last(name)
        ));
        cluster.wait_ready(name);
    }
    // Ready is the process, not its trap.
    eventually("the shells have set their traps", PATIENCE, || {
        ["plain.ready", "wanted.ready", "critical.ready"]
            .iter()
            .all(|mark| cluster.path("h").join(mark).exists())
    });
    let agent = nix::unistd::Pid::from_raw(cluster.agent_pid() as i32);
    nix::sys::signal::kill(agent, nix::sys::signal::Signal::SIGPWR).unwrap();
    for name in ["plain", "wanted", "critical"] {
        let status = cluster.wait_phase(name, "Failed");
        assert_eq!(status["reason"], "Terminated");
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(status["message"], message);
        let mut conditions = status["conditions"].as_array().unwrap().iter();
        let disrupted = conditions.find(|one| one["type"] == "DisruptionTarget").expect("a condition");
        assert_eq!(disrupted["reason"], "TerminationByKubelet");
        assert_eq!(disrupted["message"], message);
    }
    // The machine's own clock: busybox does not know parts of a second of any other.
    let at = |name: &str| -> f64 {
        std::fs::read_to_string(cluster.path("h").join(name)).unwrap().trim().parse().unwrap()
    };
    assert!(at("plain") < at("wanted") && at("wanted") < at("critical"));
    let message =
        cluster.kubectl.run("get node node1 -o jsonpath={.status.conditions[?(@.type==\"Ready\")].message}");
    assert_eq!(message, "node is shutting down");
    cluster.wait_agent_ended();
    cluster.start_agent();
    cluster.pod("after", &one("command: [sleep, '1000']"));
    cluster.wait_ready("after");
    cluster.kubectl.run("delete pod --all");
}
