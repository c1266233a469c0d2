//! `kill -9` anywhere.

use std::time::Duration;

use coracle_engine::runtime::{Containers, Sandboxes};
use coracle_proto::cri::{ContainerState, PodSandboxState};

use crate::node::{Node, kill, processes};

const COUNTING: &str = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.01; done";

/// The numbers in a counting container's log, in order.
fn counted(log: &str) -> Vec<u32> {
    log.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
}

fn assert_gapless(log: &str) {
    let numbers = counted(log);
    assert!(numbers.len() > 5, "{log}");
    for (at, number) in numbers.iter().enumerate() {
        assert_eq!(*number as usize, at + 1, "a gap in the log");
    }
}

/// Waits until nothing is left of a process.
async fn gone(pid: i32) {
    let begun = std::time::Instant::now();
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{pid} does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Makes a container that waits for `/tmp/go` go on, with or without an engine.
fn tell(pid: i32) {
    std::fs::write(format!("/proc/{pid}/root/tmp/go"), "").unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn containers_do_not_notice_a_killed_engine() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox("calm").await;
    let counter = node.run(&sandbox, "calm", node.container_config("count", &["sh", "-c", COUNTING])).await;
    let wait = "while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 42";
    let ending = node.run(&sandbox, "calm", node.container_config("end", &["sh", "-c", wait])).await;
    let pid = node.pid(&counter).await;
    let end = node.pid(&ending).await;
    node.kill_engine();
    tell(end);
    gone(end).await;
    node.start_engine().await;
    assert_eq!(node.pid(&counter).await, pid);
    let status = node.status(&counter).await;
    assert_eq!(status.state(), ContainerState::ContainerRunning);
    let ended = node.status(&ending).await;
    assert_eq!(
        (ended.state(), ended.exit_code),
        (ContainerState::ContainerExited, 42),
        "while the engine was away"
    );
    assert_eq!(node.exec(&counter, "exit 5").await.exit_code, 5);
    node.cri.stop_container(&counter, Duration::from_secs(0)).await.unwrap();
    assert_gapless(&node.container_log("calm", "count"));
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_new_keeper_takes_over_from_a_killed_one() {
    let node = Node::start().await;
    let sandbox = node.sandbox("heir").await;
    let counter = node.run(&sandbox, "heir", node.container_config("count", &["sh", "-c", COUNTING])).await;
    let wait = "while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 9";
    let ending = node.run(&sandbox, "heir", node.container_config("end", &["sh", "-c", wait])).await;
    let quick_exit = "while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 3";
    let quick = node.run(&sandbox, "heir", node.container_config("quick", &["sh", "-c", quick_exit])).await;
    let pid = node.pid(&counter).await;
    let quick_pid = node.pid(&quick).await;
    let old = node.kill_keeper();
    node.other_keeper(old).await;
    assert_eq!(node.pid(&counter).await, pid);
    assert_eq!(node.status(&counter).await.state(), ContainerState::ContainerRunning);
    assert_eq!(node.exec(&ending, "(sleep 0.2; touch /tmp/go) >/dev/null 2>&1 & exit 6").await.exit_code, 6);
    assert_eq!(node.exited(&ending).await.exit_code, 9);
    tell(quick_pid);
    assert_eq!(node.exited(&quick).await.exit_code, 3, "ended under the new keeper");
    node.cri.stop_container(&counter, Duration::from_secs(0)).await.unwrap();
    assert_gapless(&node.container_log("heir", "count"));
    let later = node.run(&sandbox, "heir", node.container_config("later", &["sh", "-c", "exit 4"])).await;
    assert_eq!(node.exited(&later).await.exit_code, 4);
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn both_killed_at_once_containers_are_found_again() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox("both").await;
    let counter = node.run(&sandbox, "both", node.container_config("count", &["sh", "-c", COUNTING])).await;
    let wait = "while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 42";
    let ending = node.run(&sandbox, "both", node.container_config("end", &["sh", "-c", wait])).await;
    let pid = node.pid(&counter).await;
    let end = node.pid(&ending).await;
    node.kill_keeper();
    node.kill_engine();
    tell(end);
    gone(end).await;
    node.start_engine().await;
    assert_eq!(node.pid(&counter).await, pid);
    assert_eq!(node.status(&counter).await.state(), ContainerState::ContainerRunning);
    let ended = node.exited(&ending).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (255, "Unknown"), "nobody saw it");
    let status = node.cri.pod_sandbox_status(&sandbox, false).await.unwrap().status.unwrap();
    assert_eq!(status.state(), PodSandboxState::SandboxReady);
    node.cri.stop_container(&counter, Duration::from_secs(0)).await.unwrap();
    assert_eq!(node.status(&counter).await.exit_code, 137);
    assert_gapless(&node.container_log("both", "count"));
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_killed_pause_makes_its_sandbox_not_ready() {
    let node = Node::start().await;
    let sandbox = node.sandbox("tired").await;
    let pause = processes().into_iter().find(|(_, command)| command == "/pause").unwrap().0;
    kill(pause, 9);
    let begun = std::time::Instant::now();
    loop {
        let status = node.cri.pod_sandbox_status(&sandbox, false).await.unwrap().status.unwrap();
        if status.state() == PodSandboxState::SandboxNotready {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

const CROWD: u32 = 30;

/// Thirty counting containers in ten pods: (id, pod, name, pid).
async fn crowd(node: &Node) -> Vec<(String, String, String, i32)> {
    let mut all = Vec::new();
    for pod in 0..CROWD / 3 {
        let pod = format!("crowd{pod}");
        let sandbox = node.sandbox(&pod).await;
        for name in ["a", "b", "c"] {
            // Slowly, so that thirty of them do not keep the machine busy.
            let script = COUNTING.replace("0.01", "0.1");
            let id = node.run(&sandbox, &pod, node.container_config(name, &["sh", "-c", &script])).await;
            let pid = node.pid(&id).await;
            all.push((id, pod.clone(), name.to_owned(), pid));
        }
    }
    all
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn thirty_containers_outlive_engine_keeper_and_both() {
    let mut node = Node::start().await;
    let all = crowd(&node).await;
    for round in ["engine", "keeper", "both"] {
        if round != "engine" {
            node.kill_keeper();
        }
        if round != "keeper" {
            node.kill_engine();
            tokio::time::sleep(Duration::from_millis(200)).await;
            node.start_engine().await;
        }
        let begun = std::time::Instant::now();
        for (id, pod, name, pid) in &all {
            // A new keeper is told of them one after the other.
            while node.status(id).await.state() != ContainerState::ContainerRunning {
                assert!(begun.elapsed() < Duration::from_secs(60), "{round}: {pod}/{name}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(node.pid(id).await, *pid, "{round}: {pod}/{name}");
        }
        let (id, ..) = &all[7];
        assert_eq!(node.exec(id, "exit 5").await.exit_code, 5, "{round}");
    }
    // Exits are still told, each with its own code.
    for (number, (id, pod, name, pid)) in all.iter().enumerate() {
        if number % 2 == 0 {
            kill(*pid, 9);
            assert_eq!(node.exited(id).await.exit_code, 137);
        } else {
            node.cri.stop_container(id, Duration::ZERO).await.unwrap();
        }
        assert_gapless(&node.container_log(pod, name));
    }
    for sandbox in node.cri.list_pod_sandboxes(None).await.unwrap() {
        node.cri.remove_pod_sandbox(&sandbox.id).await.unwrap();
    }
}
