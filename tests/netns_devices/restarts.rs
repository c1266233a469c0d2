//! Agents and plugins that are killed: pods keep their devices, and nobody else gets them.

use std::collections::BTreeSet;
use std::fs;

use crate::setting::{PATIENCE, Setting};
use coracle_tests::device_plugin::{Fault, RESOURCE, write_cdi_hooks};
use coracle_tests::eventually;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

#[test]
#[ignore = "run by in_namespaces"]
fn devices_stay_with_their_pods() {
    let mut s = Setting::start();
    s.pod("first", 2, "true");
    s.cluster.wait_ready("first");
    let first = s.devices_of("first");
    assert_eq!(first.len(), 2);

    // The agent is killed while a plugin works for a pod.
    s.gpus.fault("allocate", Fault::Hangs);
    s.pod("second", 1, "true");
    eventually("the agent waits for the plugin", PATIENCE, || s.gpus.calls().len() == 3);
    s.cluster.kill_agent();
    s.gpus.mend();
    s.cluster.start_agent();
    s.cluster.wait_ready("second");
    assert_eq!(s.devices_of("first"), first);
    let second = s.devices_of("second");
    assert!(second.is_disjoint(&first) && second.len() == 1, "{second:?} {first:?}");

    // The plugin is away: its devices are unhealthy, pods go on.
    s.gpus.stop();
    s.wait_allocatable("0");
    assert_eq!(s.amount("capacity"), "4");
    assert_eq!(s.get("first", ".status.phase"), "Running");
    s.pod("third", 1, "true");
    s.wait_event(&format!("Insufficient {RESOURCE}"));
    s.gpus.start();
    s.wait_allocatable("4");
    s.cluster.wait_ready("third");
    let third = s.devices_of("third");
    let all: BTreeSet<_> = first.iter().chain(&second).chain(&third).collect();
    assert_eq!(all.len(), 4, "{first:?} {second:?} {third:?}");

    // Both are away while a pod is deleted, and its devices are free afterwards.
    s.cluster.kill_agent();
    s.gpus.stop();
    let uid = s.get("first", ".metadata.uid");
    s.cluster.kubectl.run("delete pod first --force --grace-period=0");
    s.cluster.start_agent();
    s.gpus.start();
    s.wait_allocatable("4");
    let record = s.cluster.path("kubelet/device-plugins/kubelet_internal_checkpoint");
    eventually("its devices are free", PATIENCE, || {
        !std::fs::read_to_string(&record).unwrap().contains(&uid)
    });
    s.pod("fourth", 2, "true");
    s.cluster.wait_ready("fourth");
    assert_eq!(s.devices_of("fourth"), first);
}

#[test]
#[ignore = "run by in_namespaces"]
fn the_next_attempt_waits_for_the_hooks_of_the_one_before() {
    let mut s = Setting::start();
    let (log, pid, go) = (s.cluster.path("cards/log"), s.cluster.path("hook-pid"), s.cluster.path("go"));
    let hook = format!(
        "echo $$ > {}; echo begin >> {log}; while [ ! -e {} ]; do sleep 0.05; done; echo end >> {log}",
        pid.display(),
        go.display(),
        log = log.display()
    );
    write_cdi_hooks(
        &s.specs,
        &serde_json::json!([{"hookName": "poststop", "path": "/bin/sh", "args": ["sh", "-c", hook],
            "env": ["PATH=/usr/bin:/bin"]}]),
    );
    let script = "echo start >> /opt/cards/log; while [ ! -e /opt/cards/stop ]; do sleep 0.1; done; \
                  rm /opt/cards/stop; exit 0";
    s.pod("user", 4, script);
    s.cluster.wait_ready("user");
    let written = || fs::read_to_string(&log).unwrap_or_default();
    let wait_written =
        |text: &str| eventually(&format!("{text:?} is written"), PATIENCE, || written() == text);
    wait_written("start\n");
    fs::write(s.cluster.path("cards/stop"), "").unwrap();
    wait_written("start\nbegin\n");

    // Killed while the hook runs; the next agent would wait for the hook.
    s.cluster.kill_agent();
    let hook: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    killpg(Pid::from_raw(hook), Signal::SIGKILL).unwrap();
    s.cluster.start_agent();
    wait_written("start\nbegin\nbegin\n");
    assert_eq!(s.get("user", ".status.containerStatuses[0].restartCount"), "0");
    assert!(!s.get("user", ".status.containerStatuses[0].state.running.startedAt").is_empty());
    fs::write(&go, "").unwrap();
    wait_written("start\nbegin\nbegin\nend\nstart\n");
    eventually("the restart is reported", PATIENCE, || {
        s.get("user", ".status.containerStatuses[0].restartCount") == "1"
    });
}
