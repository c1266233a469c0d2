//! Agents and plugins that are killed: pods keep their devices, and nobody else gets them.

use std::collections::BTreeSet;

use crate::setting::{PATIENCE, Setting};
use coracle_tests::device_plugin::{Fault, RESOURCE};
use coracle_tests::eventually;

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
