//! What workloads notice of a kubelet beyond conformance: restarts of the agent, hooks, termination order, preemption,
//! restart rules, variables from files, resolver limits, the health port of the service proxy, image garbage collection.

use crate::cluster::{Cluster, IMAGE, condition, import, run};
use coracle_tests::eventually;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
const WAIT: Duration = Duration::from_secs(60);

/// A directory of the host that the test shares with a pod, and the volume and mount for it.
fn shared(cluster: &Cluster, name: &str) -> (std::path::PathBuf, String, &'static str) {
    let dir = cluster.path(name);
    fs::create_dir(&dir).unwrap();
    let volume = format!("volumes: [{{name: h, hostPath: {{path: {}}}}}]", dir.display());
    (dir, volume, "volumeMounts: [{name: h, mountPath: /h}]")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_restarted_agent_keeps_started_and_ready() {
    let mut cluster = Cluster::start();
    let (dir, volume, mount) = shared(&cluster, "once");
    cluster.pod(
        "probed",
        &format!(
            "{volume}, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], {mount},
            startupProbe: {{exec: {{command: [test, -f, /h/up]}}, periodSeconds: 1, failureThreshold: 60}},
            readinessProbe: {{exec: {{command: [test, -f, /h/up]}}, periodSeconds: 300}}}}]"
        ),
    );
    fs::write(dir.join("up"), "").unwrap();
    let before = cluster.wait_ready("probed");
    // From now on both probes would fail.
    fs::remove_file(dir.join("up")).unwrap();
    cluster.kill_agent();
    cluster.start_agent();
    cluster.pod("other", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000']}}]"));
    cluster.wait_ready("other");
    let after = cluster.get("probed")["status"].clone();
    assert_eq!(after["containerStatuses"], before["containerStatuses"]);
    assert_eq!(after["conditions"], before["conditions"]);
    cluster.delete("probed other");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_post_start_hook_that_hangs_or_fails() {
    let cluster = Cluster::start();
    let (dir, volume, mount) = shared(&cluster, "hooks");
    let pod = |name: &str, hook: &str| {
        cluster.pod(
            name,
            &format!(
                "{volume}, containers: [{{name: c, image: '{IMAGE}', {mount}, command: [sh, -c, \"touch /h/{name}; {FOREVER}\"],
                lifecycle: {{postStart: {{exec: {{command: [sh, -c, '{hook}']}}}}, preStop: {{exec: {{command: [sh, -c, 'echo {name} >> /h/log']}}}}}}}}]"
            ),
        );
    };
    pod("hangs", "while [ ! -f /h/go ]; do sleep 0.1; done");
    eventually("its process runs", WAIT, || dir.join("hangs").exists());
    cluster.wait("hangs", "being created", |status| {
        status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    });
    // Long enough for a status that says otherwise.
    std::thread::sleep(Duration::from_secs(1));
    let status = cluster.get("hangs")["status"].clone();
    assert_eq!(
        (status["phase"].as_str(), condition(&status, "Ready")),
        (Some("Pending"), "False"),
        "{status}"
    );
    fs::write(dir.join("go"), "").unwrap();
    cluster.wait_ready("hangs");
    pod("fails", "exit 1");
    eventually("its preStop hook has run", WAIT, || text(&dir.join("log")).starts_with("fails\n"));
    cluster.delete("hangs fails");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_sidecar_runs_its_pre_stop_at_once_and_is_asked_to_stop_when_the_grace_is_used_up() {
    let cluster = Cluster::start();
    let (dir, volume, mount) = shared(&cluster, "order");
    // The main container ends only when it is killed, and sees what the sidecar does before.
    let main = "trap 'while [ ! -f /h/pre ]; do sleep 0.1; done; echo main >> /h/log; while :; do sleep 1; done' TERM; touch /h/main; while :; do sleep 0.1; done";
    let side = "trap 'echo side >> /h/log; exit 0' TERM; while :; do sleep 0.1; done";
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: order}}, spec: {{terminationGracePeriodSeconds: 3, {volume},
        initContainers: [{{name: side, image: '{IMAGE}', restartPolicy: Always, {mount}, command: [sh, -c, \"{side}\"],
            lifecycle: {{preStop: {{exec: {{command: [touch, /h/pre]}}}}}}}}],
        containers: [{{name: main, image: '{IMAGE}', {mount}, command: [sh, -c, \"{main}\"]}}]}}}}"
    ));
    cluster.wait_ready("order");
    eventually("main has its trap", WAIT, || dir.join("main").exists());
    cluster.delete("order");
    assert_eq!(text(&dir.join("log")), "main\nside\n");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_critical_pod_preempts() {
    let cluster = Cluster::start();
    let cpus = cluster.kubectl.run("get node node1 -o jsonpath={.status.allocatable.cpu}");
    let sleeper = |rest: &str, cpu: &str| {
        format!(
            "{rest}, nodeName: node1, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'],
            resources: {{requests: {{cpu: '{cpu}'}}}}}}]"
        )
    };
    cluster.pod("victim", &sleeper("restartPolicy: Always", &cpus));
    cluster.wait_ready("victim");
    cluster.pod("usual", &sleeper("restartPolicy: Always", "1m"));
    let status = cluster.wait_phase("usual", "Failed");
    assert_eq!(status["reason"], "OutOfcpu");
    cluster.pod("critical", &sleeper("priorityClassName: system-node-critical", "1m"));
    cluster.wait_ready("critical");
    let status = cluster.wait_phase("victim", "Failed");
    assert_eq!(status["reason"], "Preempting");
    assert_eq!(condition(&status, "DisruptionTarget"), "True");
    let misplaced = "priorityClassName: system-node-critical, nodeSelector: {disk: ssd}";
    cluster.pod("misplaced", &sleeper(misplaced, "1m"));
    let status = cluster.wait_phase("misplaced", "Failed");
    assert_eq!(status["reason"], "NodeAffinity");
    cluster.delete("victim usual critical misplaced");
}

#[test]
#[ignore = "run by in_namespaces"]
fn restart_all_containers_and_variables_from_files() {
    let cluster = Cluster::start();
    let (dir, volume, mount) = shared(&cluster, "all");
    let rule = "[{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]";
    cluster.pod(
        "anew",
        &format!(
            "restartPolicy: Never, {volume},
            initContainers: [{{name: init, image: '{IMAGE}', {mount}, command: [sh, -c, 'echo init >> /h/log']}}],
            containers: [{{name: main, image: '{IMAGE}', {mount}, command: [sh, -c, \"echo main >> /h/log; {FOREVER}\"]}},
                {{name: watcher, image: '{IMAGE}', {mount}, restartPolicy: Never, restartPolicyRules: {rule},
                command: [sh, -c, \"while [ ! -f /h/go ]; do sleep 0.1; done; [ -f /h/once ] || {{ touch /h/once; exit 88; }}; {FOREVER}\"]}}]"
        ),
    );
    let status = cluster.wait_ready("anew");
    assert_eq!(condition(&status, "AllContainersRestarting"), "False");
    fs::write(dir.join("go"), "").unwrap();
    let count = |status: &serde_json::Value, list: &str, at: usize| status[list][at]["restartCount"].as_i64();
    let status = cluster.wait("anew", "started anew", |status| {
        condition(status, "Ready") == "True" && count(status, "containerStatuses", 1) == Some(1)
    });
    assert_eq!(count(&status, "containerStatuses", 0), Some(1), "{status:#}");
    assert_eq!(count(&status, "initContainerStatuses", 0), Some(1), "{status:#}");
    let ended = &status["containerStatuses"][1]["lastState"]["terminated"];
    assert_eq!(ended["exitCode"], 88, "{status:#}");
    eventually("both ran twice", WAIT, || text(&dir.join("log")) == "init\nmain\ninit\nmain\n");
    let features = cluster.kubectl.run("get node node1 -o jsonpath={.status.declaredFeatures}");
    let declared = [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ];
    assert_eq!(features, serde_json::json!(declared).to_string());
    cluster.pod(
        "filed",
        &format!(
            "restartPolicy: Never, volumes: [{{name: v, emptyDir: {{}}}}],
            initContainers: [{{name: init, image: '{IMAGE}', volumeMounts: [{{name: v, mountPath: /v}}], command: [sh, -c, \"echo \\\"A='x y'\\\" > /v/env\"]}}],
            containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'echo $A'],
                env: [{{name: A, valueFrom: {{fileKeyRef: {{volumeName: v, path: env, key: A}}}}}}]}}]"
        ),
    );
    cluster.wait_phase("filed", "Succeeded");
    assert_eq!(cluster.output("filed", "c", 0), "x y");
    cluster.delete("anew filed");
}

#[test]
#[ignore = "run by in_namespaces"]
fn resolver_limits_and_the_health_port_of_the_proxy() {
    let cluster = Cluster::start();
    cluster.pod(
        "names",
        &format!(
            "restartPolicy: Never, dnsConfig: {{nameservers: [192.0.2.1, 192.0.2.2, 192.0.2.3]}},
            containers: [{{name: c, image: '{IMAGE}', command: [grep, nameserver, /etc/resolv.conf]}}]"
        ),
    );
    cluster.wait_phase("names", "Succeeded");
    let servers = "nameserver 10.96.0.10\nnameserver 192.0.2.1\nnameserver 192.0.2.2";
    assert_eq!(cluster.output("names", "c", 0), servers);
    eventually("the event", WAIT, || {
        let events = cluster.kubectl.run("get events --field-selector reason=DNSConfigForming");
        events.contains("the applied nameserver line is: 10.96.0.10 192.0.2.1 192.0.2.2")
    });
    // With those of the cluster, one too many of the one pod, and too many characters of the other.
    let many: Vec<String> = (0..30).map(|number| format!("s{number}.example")).collect();
    let label = "x".repeat(61);
    let long: Vec<String> =
        (0..8).map(|number| format!("s{number}.{label}.{label}.{label}.{label}")).collect();
    for (name, searches) in [("many", many), ("long", long)] {
        cluster.pod(
            name,
            &format!(
                "restartPolicy: Never, dnsConfig: {{searches: [{}]}},
                containers: [{{name: c, image: '{IMAGE}', command: [grep, search, /etc/resolv.conf]}}]",
                searches.join(", ")
            ),
        );
        cluster.wait_phase(name, "Succeeded");
        let line = cluster.output(name, "c", 0);
        let own = "search default.svc.cluster.local svc.cluster.local cluster.local";
        assert!(line.starts_with(own), "{line}");
        let found = line.split(' ').filter(|word| searches.iter().any(|search| search == word)).count();
        // Domains of the machine come before those of the pod.
        let others = line.split(' ').count() - 1 - found;
        assert_eq!(found, if name == "many" { 32 - others } else { 7 }, "{line}");
        eventually("the event", WAIT, || {
            let events = cluster.kubectl.run("get events --field-selector reason=DNSConfigForming");
            events.contains("Search Line limits were exceeded, some search paths have been omitted")
                && events.contains(&format!("pod/{name}"))
        });
    }
    let get = |path: &str| -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", 10256)).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: node1\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    for path in ["/healthz", "/livez"] {
        eventually("the proxy is healthy", WAIT, || {
            get(path).is_some_and(|answer| {
                answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"healthy\":true")
            })
        });
    }
    assert!(get("/healthz").unwrap().contains("\"nodeEligible\":true"));
    cluster.delete("names many long");
}

#[test]
#[ignore = "run by in_namespaces"]
fn containers_and_logs_of_ended_pods_go_when_the_disk_is_short() {
    let cluster = Cluster::start_on(
        Some(256),
        "--eviction-pressure-transition-period 1s --eviction-hard memory.available<1Mi,imagefs.available<20%",
    );
    cluster.pod(
        "ended",
        &format!(
            "restartPolicy: Never, initContainers: [{{name: i, image: '{IMAGE}', command: ['true']}}],
            containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'echo ended; exit 3']}}]"
        ),
    );
    let before = cluster.wait("ended", "without a sandbox", |status| {
        status["phase"] == "Failed" && condition(status, "PodReadyToStartContainers") == "False"
    });
    let uid = cluster.get("ended")["metadata"]["uid"].as_str().unwrap().to_owned();
    let log = cluster.path("logs").join(format!("default_ended_{uid}/c/0.log"));
    let id = before["containerStatuses"][0]["containerID"].as_str().unwrap().rsplit('/').next().unwrap();
    let container = cluster.path("engine/containers").join(id);
    let link = cluster.path("log-links").join(format!("ended_default_c-{id}.log"));
    eventually("the link", WAIT, || link.is_symlink());
    assert_eq!(text(&log).lines().count(), 1);
    assert_eq!(text(&link), text(&log));
    assert!(container.exists(), "{container:?}");
    let disk = nix::sys::statvfs::statvfs(&cluster.path("")).unwrap();
    let fill = (disk.blocks_available() - disk.blocks() / 10) * disk.fragment_size();
    run(&format!("head -c {fill} /dev/zero > {}", cluster.path("fill").display()));
    eventually("its log and its container are removed", WAIT, || !log.exists() && !container.exists());
    eventually("and the link to the log", WAIT, || !link.is_symlink());
    eventually("the node says what it does", WAIT, || {
        let events = cluster.kubectl.run("get events --field-selector reason=EvictionThresholdMet");
        events.contains("Attempting to reclaim ephemeral-storage")
    });
    fs::remove_file(cluster.path("fill")).unwrap();
    cluster.wait("ended", "unchanged", |status| status["containerStatuses"] == before["containerStatuses"]);
    let after = cluster.get("ended")["status"].clone();
    for key in ["phase", "initContainerStatuses", "containerStatuses", "podIPs", "conditions"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    cluster.delete("ended");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_that_uses_up_the_inodes_is_evicted() {
    let cluster = Cluster::start_on(
        Some(256),
        "--eviction-pressure-transition-period 1s --eviction-hard memory.available<1Mi,nodefs.inodesFree<20%",
    );
    let dir = cluster.path("");
    let used = || {
        let disk = nix::sys::statvfs::statvfs(&dir).unwrap();
        disk.files() - disk.files_available()
    };
    let sleeper = |name: &str, script: &str| {
        let mount = "volumeMounts: [{name: v, mountPath: /v}]";
        cluster.pod(
            name,
            &format!(
                "terminationGracePeriodSeconds: 0, volumes: [{{name: v, emptyDir: {{}}}}], \
                 containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, '{script} exec sleep 1000'], {mount}}}]"
            ),
        );
    };
    sleeper("modest", ": > /v/one;");
    cluster.wait_ready("modest");
    let all = (used() * 2).max(5000);
    run(&format!("mount -o remount,nr_inodes={all} {}", dir.display()));
    let fill = all - used() - all / 10;
    sleeper("greedy", &format!("i=0; while [ $i -lt {fill} ]; do : > /v/$i; i=$((i + 1)); done;"));
    let status = cluster.wait("greedy", "evicted", |status| status["reason"] == "Evicted");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("The node was low on resource: inodes. Threshold quantity: "), "{message}");
    assert_eq!(condition(&status, "DisruptionTarget"), "True", "the node is the cause");
    eventually("the inodes are free again", WAIT, || used() < all / 10 * 8);
    assert_eq!(cluster.get("modest")["status"]["phase"], "Running");
    cluster.delete("modest greedy");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_that_a_soft_threshold_evicts_has_time_to_end() {
    let cluster = Cluster::start_on(
        Some(256),
        "--eviction-pressure-transition-period 1s --eviction-hard memory.available<1Mi \
         --eviction-soft nodefs.available<20% --eviction-soft-grace-period nodefs.available=3s \
         --eviction-minimum-reclaim nodefs.available=1% --eviction-max-pod-grace-period 60",
    );
    let dir = cluster.path("");
    let free = || {
        let disk = nix::sys::statvfs::statvfs(&dir).unwrap();
        (disk.blocks_available() * disk.fragment_size(), disk.blocks() * disk.fragment_size())
    };
    let (available, all) = free();
    let fill = available - all / 10;
    let script = format!(
        "trap \"sleep 5; exit 7\" TERM; head -c {fill} /dev/zero > /v/fill; while :; do sleep 0.1; done"
    );
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: greedy}}, spec: {{terminationGracePeriodSeconds: 600, \
         restartPolicy: Never, volumes: [{{name: v, emptyDir: {{}}}}], containers: [{{name: c, image: '{IMAGE}', \
         command: [sh, -c, '{script}'], volumeMounts: [{{name: v, mountPath: /v}}]}}]}}}}"
    ));
    let status = cluster.wait("greedy", "evicted", |status| {
        status["reason"] == "Evicted" && status["containerStatuses"][0]["state"]["terminated"].is_object()
    });
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 7, "a hard threshold would have killed it: {ended}");
    assert_eq!(condition(&status, "DisruptionTarget"), "True", "the node is the cause");
    let message = status["message"].as_str().unwrap_or_default();
    let start = "The node was low on resource: ephemeral-storage. Threshold quantity: ";
    assert!(message.starts_with(start), "{message}");
    eventually("the disk is free again", WAIT, || free().0 > all / 5);
    cluster.delete("greedy");
}

const UNUSED: &str = "example.test/unused:1";

/// A node with an image that a pod uses, and one that nothing uses.
fn with_unused_image() -> Cluster {
    let cluster = Cluster::start();
    cluster.pod("user", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000']}}]"));
    cluster.wait_ready("user");
    let dir = cluster.path("image");
    for (file, from, to) in
        [("config.json", "PATH=/bin", "PATH=/bin:/sbin"), ("manifest.json", IMAGE, UNUSED)]
    {
        fs::write(dir.join(file), text(&dir.join(file)).replace(from, to)).unwrap();
    }
    let archive = cluster.path("unused.tar");
    run(&format!("tar -C {} -cf {} .", dir.display(), archive.display()));
    import(&cluster.path("engine/images"), &archive);
    eventually("the node reports it", WAIT, || images(&cluster).contains(UNUSED));
    cluster
}

fn images(cluster: &Cluster) -> String {
    cluster.kubectl.run("get node node1 -o jsonpath={.status.images[*].names}")
}

#[test]
#[ignore = "run by in_namespaces"]
fn images_that_nothing_used_for_too_long_go_however_much_of_the_disk_is_free() {
    let mut cluster = with_unused_image();
    cluster.restart_agent_with(
        "--image-gc-high-threshold 100 --image-minimum-gc-age 0s --image-maximum-gc-age 2s",
    );
    eventually("it is removed", WAIT, || !images(&cluster).contains(UNUSED));
    assert!(images(&cluster).contains(IMAGE), "the image of a container stays");
    cluster.delete("user");
}

#[test]
#[ignore = "run by in_namespaces"]
fn unused_images_are_collected() {
    let mut cluster = with_unused_image();
    // Every disk is fuller than that.
    let policy = "--image-gc-high-threshold 1 --image-gc-low-threshold 0 --image-minimum-gc-age 0s";
    cluster.restart_agent_with(policy);
    eventually("it is removed", WAIT, || !images(&cluster).contains(UNUSED));
    assert!(images(&cluster).contains(IMAGE), "the image of a container stays");
    eventually("the event", WAIT, || {
        let events = cluster.kubectl.run("get events --field-selector reason=FreeDiskSpaceFailed");
        events.contains("Insufficient free disk space on the node's image filesystem")
    });
    assert_eq!(cluster.get("user")["status"]["containerStatuses"][0]["restartCount"], 0);
    cluster.delete("user");
}
