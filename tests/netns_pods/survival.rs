//! Killed agents, servers that are away: pods go on, and nothing leaks.

use crate::cluster::{Cluster, IMAGE};
use std::time::Duration;

fn sleeper(seconds: u32) -> String {
    format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '{seconds}']}}]")
}

fn ids(cluster: &Cluster) -> String {
    cluster.kubectl.run("get pods -o jsonpath={range.items[*]}{.metadata.name}={.status.containerStatuses[0].containerID}:{.status.containerStatuses[0].restartCount}{\"\\n\"}{end}")
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_killed_agent_disturbs_nothing() {
    let mut cluster = Cluster::start();
    for n in 0..10 {
        cluster.pod(&format!("p{n}"), &sleeper(1000 + n));
    }
    for n in 0..10 {
        cluster.wait_ready(&format!("p{n}"));
    }
    let before = ids(&cluster);
    cluster.kill_agent();
    cluster.kubectl.run("delete pod p9 --wait=false");
    cluster.pod("p10", &sleeper(1010));
    cluster.start_agent();
    cluster.wait_ready("p10");
    coracle_tests::eventually("the deleted pod is gone", Duration::from_secs(30), || {
        !cluster.kubectl.try_with("get pod p9", "").ok
    });
    cluster.delete("p10");
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
    std::thread::sleep(Duration::from_secs(6));
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
    for round in 0..12u64 {
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
