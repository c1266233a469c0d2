//! Drivers that crash in a call, are slow or register twice.

use crate::setting::{DRIVER, PATIENCE, Setting};
use coracle_tests::csi_driver::Fault;
use coracle_tests::eventually;
use coracle_tests::pods::condition;

#[test]
#[ignore = "run by in_namespaces"]
fn a_driver_that_is_killed_is_asked_again_and_nothing_is_mounted_twice() {
    let mut s = Setting::without_driver("attachRequired: false");
    s.driver.start_process();
    s.wait_registered();
    s.claim("data");
    // It stages the volume, and is gone before it says so.
    s.driver.fault("stage", Fault::Crashes);
    s.pod("user", "data", "echo kept > /v/file");
    s.driver.wait_crashed();
    assert_eq!(s.mounts().len(), 1, "staged, and the agent does not know");
    s.wait_event("FailedMount:MountVolume.SetUp failed for volume \"v\" : ");
    // And is gone again after it has published it.
    s.driver.fault("publish", Fault::Crashes);
    s.driver.start_process();
    s.driver.wait_crashed();
    s.driver.start_process();
    s.cluster.wait_ready("user");
    s.assert_mounted_once();
    assert!(s.driver.count("stage") >= 2, "{:?}", s.driver.calls());

    // Between two calls: pods go on, and the next pod waits for the driver.
    s.driver.kill();
    s.pod("next", "data", "cat /v/file");
    let events = "get events --field-selector involvedObject.name=next -o jsonpath={.items[*].reason}";
    eventually("it waits", PATIENCE, || s.cluster.kubectl.run(events).contains("FailedMount"));
    assert_eq!(s.cluster.get("user")["status"]["phase"], "Running");
    s.driver.start_process();
    s.cluster.wait_ready("next");
    eventually("it read", PATIENCE, || s.cluster.output("next", "c", 0) == "kept");
    s.assert_mounted_once();

    s.driver.fault("unpublish", Fault::Crashes);
    s.cluster.kubectl.run("delete pod user next --wait=false");
    s.driver.wait_crashed();
    assert!(!s.mounts().is_empty());
    s.driver.fault("unstage", Fault::Crashes);
    s.driver.start_process();
    s.driver.wait_crashed();
    s.driver.start_process();
    s.wait_clean();
    let pods = || s.cluster.kubectl.run("get pods -o name");
    eventually("the pods are gone", PATIENCE, || pods().is_empty());
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_slow_driver_is_told_and_holds_up_nobody_else() {
    let mut s = Setting::without_driver("attachRequired: false");
    // Longer than the agent waits for an answer.
    s.driver.fault("info", Fault::Slow(60));
    s.driver.start();
    eventually("the driver is told", PATIENCE, || {
        s.driver.registrations().iter().any(|error| error.contains("NodeGetInfo: no answer from"))
    });
    assert_eq!(s.drivers(), "");
    s.driver.mend();
    s.wait_registered();

    // Long, but not too long: the answer counts, and other volumes do not wait for it.
    s.claim("slow");
    s.claim("fast");
    s.driver.fault("stage", Fault::Slow(100));
    s.pod("slow", "slow", "true");
    eventually("it is being staged", PATIENCE, || s.driver.count("stage vol-slow") == 1);
    s.driver.mend();
    s.pod("fast", "fast", "true");
    s.cluster.wait_ready("fast");
    assert_eq!(s.driver.count("publish vol-slow"), 0, "{:?}", s.driver.calls());
    s.cluster.wait_for(2 * PATIENCE, "slow", "Ready", |status| condition(status, "Ready") == "True");
    assert_eq!(s.driver.count("stage vol-slow"), 1, "{:?}", s.driver.calls());
    s.cluster.delete("slow fast");
    s.wait_clean();
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_driver_that_registers_twice_is_one_driver() {
    let mut s = Setting::without_driver("attachRequired: false");
    s.driver.register_twice();
    s.driver.start_process();
    let successes = || s.driver.registrations().iter().filter(|error| error.is_empty()).count();
    eventually("both are told", PATIENCE, || successes() >= 2);
    assert_eq!(s.drivers(), DRIVER);
    s.claim("data");
    s.pod("user", "data", "true");
    s.cluster.wait_ready("user");
    assert_eq!((s.driver.count("stage"), s.driver.count("publish")), (1, 1), "{:?}", s.driver.calls());
    s.assert_mounted_once();
    s.cluster.delete("user");
    s.wait_clean();
    s.driver.stop();
    eventually("the driver is unregistered", PATIENCE, || s.drivers().is_empty());
}
