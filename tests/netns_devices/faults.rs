//! Plugins and drivers that crash in a call, are slow or say everything twice.

use crate::claims::count;
use crate::setting::{PATIENCE, Setting};
use coracle_tests::device_plugin::Fault;
use coracle_tests::eventually;

impl Setting {
    /// Replaces the plugin in this process by one that can be killed.
    pub fn plugin_process(&mut self) {
        self.gpus.stop();
        self.wait_allocatable("0");
        self.gpus.start_process();
        self.wait_allocatable("4");
    }
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_plugin_that_crashes_in_a_call_loses_no_device() {
    let mut s = Setting::start();
    s.plugin_process();
    s.gpus.fault("allocate", Fault::Crashes);
    s.pod("unlucky", 3, "true");
    s.gpus.wait_crashed();
    eventually("it is rejected", PATIENCE, || s.get("unlucky", ".status.phase") == "Failed");
    assert_eq!(s.get("unlucky", ".status.reason"), "UnexpectedAdmissionError");
    s.wait_allocatable("0");
    s.gpus.start_process();
    s.wait_allocatable("4");
    // All of them, also those of the pod that did not start; and the plugin is gone again before the container starts.
    s.gpus.fault("prestart", Fault::Crashes);
    s.pod("user", 4, "true");
    s.gpus.wait_crashed();
    s.gpus.start_process();
    s.cluster.wait_ready("user");
    assert_eq!(s.devices_of("user").len(), 4);
    let prepared = s.gpus.calls().iter().filter(|call| call.starts_with("prestart")).count();
    assert!(prepared >= 2, "started without its plugin: {:?}", s.gpus.calls());
    // Killed between two calls.
    s.gpus.kill();
    s.wait_allocatable("0");
    assert_eq!(s.get("user", ".status.phase"), "Running");
    s.gpus.start_process();
    s.wait_allocatable("4");
    assert_eq!(s.devices_of("user").len(), 4);
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_slow_plugin_is_named_and_keeps_no_device() {
    let s = Setting::start();
    // Longer than the agent waits.
    s.gpus.fault("allocate", Fault::Slow(60));
    s.pod("rejected", 1, "true");
    eventually("it is rejected", PATIENCE, || s.get("rejected", ".status.phase") == "Failed");
    let message = s.get("rejected", ".status.message");
    assert!(message.contains("Allocate: no answer from"), "{message}");
    s.gpus.mend();
    s.gpus.fault("prestart", Fault::Slow(60));
    s.pod("waits", 4, "true");
    s.wait_event("PreStartContainer: no answer from");
    s.gpus.mend();
    s.cluster.wait_ready("waits");
    assert_eq!(s.devices_of("waits").len(), 4);
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_plugin_that_says_everything_twice_has_its_devices_once() {
    let mut s = Setting::start();
    s.gpus.say_everything_twice();
    s.plugin_process();
    assert_eq!(s.amount("capacity"), "4");
    s.pod("user", 4, "true");
    s.cluster.wait_ready("user");
    assert_eq!(s.devices_of("user").into_iter().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    s.pod("more", 1, "true");
    s.wait_event("Insufficient gpu.example/card");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_dra_driver_that_crashes_or_is_slow_is_asked_again() {
    let s = Setting::start();
    let mut driver = s.driver();
    s.publish();
    driver.say_everything_twice();
    driver.start_process();
    // It prepares the claim, and is gone before it says so.
    driver.fault("prepare", Fault::Crashes);
    s.claimant("p");
    driver.wait_crashed();
    s.wait_event("NodePrepareResources: ");
    driver.start_process();
    s.wait_card("p");
    assert_eq!(count(&driver, "prepare"), 2, "{:?}", driver.calls());

    driver.fault("unprepare", Fault::Crashes);
    s.cluster.kubectl.run("delete pod p --wait=false");
    driver.wait_crashed();
    driver.start_process();
    let left = || s.cluster.kubectl.run("get pods,resourceclaims -o name");
    eventually("the pod and its claim are gone", PATIENCE, || left().is_empty());

    // Longer than the agent waits.
    driver.fault("prepare", Fault::Slow(90));
    s.claimant("slow");
    s.wait_event("NodePrepareResources: no answer from");
    driver.mend();
    s.wait_card("slow");
}
