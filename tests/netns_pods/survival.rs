//! Killed agents, servers that are away: pods go on, and nothing leaks.

use crate::cluster::{Cluster, IMAGE, run};
use std::path::PathBuf;
use std::time::Duration;

fn sleeper(seconds: u32) -> String {
    format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '{seconds}']}}]")
}

/// How often or how long; the environment asks for more.
fn times(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn ids(cluster: &Cluster) -> String {
    cluster.kubectl.run("get pods -o jsonpath={range.items[*]}{.metadata.name}={.status.containerStatuses[0].containerID}:{.status.containerStatuses[0].restartCount}{\"\\n\"}{end}")
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_killed_agent_disturbs_nothing() {
    let mut cluster = Cluster::start();
    for n in 0..30 {
        cluster.pod(&format!("p{n}"), &sleeper(1000 + n));
    }
    for n in 0..30 {
        cluster.wait_ready(&format!("p{n}"));
    }
    let before = ids(&cluster);
    cluster.kill_agent();
    cluster.kubectl.run("delete pod p9 --wait=false");
    cluster.pod("p30", &sleeper(1030));
    cluster.start_agent();
    cluster.wait_ready("p30");
    coracle_tests::eventually("the deleted pod is gone", Duration::from_secs(30), || {
        !cluster.kubectl.try_with("get pod p9", "").ok
    });
    cluster.delete("p30");
    let kept: Vec<&str> = before.lines().filter(|line| !line.starts_with("p9=")).collect();
    assert_eq!(ids(&cluster).lines().collect::<Vec<_>>(), kept);
    cluster.kubectl.run("delete pod --all");
}

#[test]
#[ignore = "run by in_namespaces"]
fn pods_go_on_without_the_server_and_catch_up() {
    let mut cluster = Cluster::start();
    cluster.pod("steady", &sleeper(1000));
    cluster.pod(
        "short",
        &format!("restartPolicy: Never, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '3']}}]"),
    );
    let before = cluster.wait_ready("steady");
    cluster.wait_phase("short", "Running");
    cluster.server.kill();
    std::thread::sleep(Duration::from_secs(times("CORACLE_AWAY_SECONDS", 6)));
    cluster.server.restart();
    cluster.wait_phase("short", "Succeeded");
    let after = cluster.get("steady")["status"].clone();
    assert_eq!(before["containerStatuses"], after["containerStatuses"]);
    cluster.delete("steady short");
}

#[test]
#[ignore = "run by in_namespaces"]
fn killed_at_any_moment_nothing_leaks() {
    let mut cluster = Cluster::start();
    cluster.pod("warm", &sleeper(1000));
    cluster.wait_ready("warm");
    cluster.delete("warm");
    let before = cluster.picture();
    for round in 0..times("CORACLE_POD_CRASHES", 12) {
        let name = format!("r{round}");
        cluster.pod(&name, &sleeper(1000));
        std::thread::sleep(Duration::from_millis(round * 37 % 400));
        cluster.kill_agent();
        cluster.start_agent();
        cluster.wait_ready(&name);
        cluster.kubectl.run(&format!("delete pod {name} --wait=false"));
        std::thread::sleep(Duration::from_millis(round * 61 % 700));
        cluster.kill_agent();
        cluster.start_agent();
        coracle_tests::eventually("the pod is gone", Duration::from_secs(60), || {
            !cluster.kubectl.try_with(&format!("get pod {name}"), "").ok
        });
    }
    let mut left = Vec::new();
    for _ in 0..50 {
        let after = cluster.picture();
        left = after.difference(&before).cloned().collect();
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("left behind: {left:#?}");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_full_data_directory_is_said_and_forgotten_once_there_is_room() {
    let mut cluster = Cluster::start();
    cluster.kill_agent();
    let agent = cluster.path("agent");
    run(&format!("mount -t tmpfs -o size=16k,nr_inodes=6 none {}", agent.display()));
    cluster.start_agent();
    cluster.kubectl.run("create configmap big --from-literal=a=b");
    cluster.pod("full", &format!("volumes: [{{name: v, configMap: {{name: big}}}}], containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], volumeMounts: [{{name: v, mountPath: /v}}]}}]"));
    coracle_tests::eventually("the pod is told", Duration::from_secs(60), || {
        cluster.kubectl.run("get events").contains("No space left on device")
    });
    run(&format!("mount -o remount,size=16m,nr_inodes=10000 {}", agent.display()));
    cluster.wait_ready("full");
    cluster.delete("full");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_clock_that_jumps_harms_no_pod_and_tokens_are_renewed() {
    let mut cluster = Cluster::start();
    let library = faketime().expect("libfaketime is installed: scripts/deps test");
    cluster.kill_agent();
    let clock = cluster.path("clock");
    std::fs::write(&clock, "+0").unwrap();
    cluster.environment = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    cluster.start_agent();
    let token = "volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600}}]}}]";
    cluster.pod("steady", &format!("{token}, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], volumeMounts: [{{name: t, mountPath: /t}}]}}]"));
    cluster.pod(
        "crashing",
        &format!("containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'sleep 0.5; exit 1']}}]"),
    );
    cluster.wait_ready("steady");
    cluster.wait_waiting("crashing", "CrashLoopBackOff");
    let uid = cluster.get("steady")["metadata"]["uid"].as_str().unwrap().to_owned();
    let file = cluster.path("memory").join(format!("{uid}/t/token"));
    let first = std::fs::read_to_string(&file).unwrap();
    let restarts = |name: &str| cluster.get(name)["status"]["containerStatuses"][0]["restartCount"].as_i64();
    let (steady, crashing) = (restarts("steady"), restarts("crashing"));

    // Nine minutes ahead: four fifths of a token's life are over.
    std::fs::write(&clock, "+540").unwrap();
    cluster.kubectl.run("label pod steady jump=ahead");
    coracle_tests::eventually("a new token", Duration::from_secs(30), || {
        std::fs::read_to_string(&file).is_ok_and(|now| now != first)
    });
    // An hour back: what crashed does not wait for an hour.
    std::fs::write(&clock, "-3600").unwrap();
    cluster.kubectl.run("label pod crashing jump=back");
    coracle_tests::eventually("a restart", Duration::from_secs(60), || restarts("crashing") > crashing);
    assert_eq!(restarts("steady"), steady);
    std::fs::write(&clock, "+0").unwrap();
    cluster.delete("steady crashing");
}

/// What is mounted for a pod. The agent works in its keeper's mount namespace.
fn mounts_of(cluster: &Cluster, uid: &str) -> Vec<String> {
    let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", cluster.keeper_pid())).unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.contains(uid)).map(str::to_owned).collect()
}

#[test]
#[ignore = "run by in_namespaces"]
fn volumes_of_running_pods_are_renewed_after_the_agent_was_killed() {
    let mut cluster = Cluster::start();
    cluster.kubectl.run("create configmap cm --from-literal=a=one");
    cluster.pod(
        "p",
        &format!(
            "volumes: [{{name: own, emptyDir: {{medium: Memory}}}}, {{name: cm, configMap: {{name: cm}}}},
              {{name: t, projected: {{sources: [{{serviceAccountToken: {{path: token}}}}]}}}},
              {{name: d, downwardAPI: {{items: [{{path: l, fieldRef: {{fieldPath: 'metadata.labels[''l'']'}}}}]}}}}],
             containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'chmod 700 /own; exec sleep 1000'],
              volumeMounts: [{{name: own, mountPath: /own}}, {{name: cm, mountPath: /cm}}, {{name: t, mountPath: /t}},
               {{name: cm, mountPath: /part, subPath: a}}, {{name: d, mountPath: /d}}]}}]"
        ),
    );
    let before = cluster.wait_ready("p");
    let uid = cluster.get("p")["metadata"]["uid"].as_str().unwrap().to_owned();
    let mounted = mounts_of(&cluster, &uid);
    assert!(mounted.len() >= 2, "the emptyDir and the subPath: {mounted:?}");
    let token = cluster.path("memory").join(format!("{uid}/t/token"));
    let first = std::fs::read_to_string(&token).unwrap();
    cluster.kill_agent();
    cluster.kubectl.run(r#"patch configmap cm -p {"data":{"a":"two"}}"#);
    cluster.kubectl.run("label pod p l=new");
    cluster.start_agent();
    let inside = |file: &str| cluster.kubectl.try_with(&format!("exec p -- cat {file}"), "").out;
    coracle_tests::eventually("what changed meanwhile", Duration::from_secs(60), || {
        inside("/cm/a") == "two" && inside("/d/l") == "new"
    });
    // The new agent does not know when the token of the old one expires.
    coracle_tests::eventually("a new token", Duration::from_secs(60), || {
        let now = inside("/t/token");
        !now.is_empty() && now != first
    });
    cluster.kubectl.run(r#"patch configmap cm -p {"data":{"a":"three"}}"#);
    coracle_tests::eventually("what changes from now on", Duration::from_secs(60), || {
        inside("/cm/a") == "three"
    });
    assert_eq!(mounts_of(&cluster, &uid), mounted, "nothing is mounted twice");
    let mode = cluster.kubectl.run("exec p -- stat -c %a /own");
    assert_eq!(mode.trim(), "700", "what a container made of its directory stays");
    assert_eq!(before["containerStatuses"], cluster.get("p")["status"]["containerStatuses"]);
    cluster.delete("p");
}

fn faketime() -> Option<String> {
    let found = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let paths = found.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    paths
        .chain([PathBuf::from("/usr/lib/faketime/libfaketimeMT.so.1")])
        .find(|path| path.exists())?
        .to_str()
        .map(str::to_owned)
}
