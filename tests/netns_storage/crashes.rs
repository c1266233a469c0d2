//! Agents that are killed while a driver works: nothing is mounted twice, and nothing is forgotten.

use crate::setting::{PATIENCE, Setting};
use coracle_tests::csi_driver::Fault;
use coracle_tests::eventually;

#[test]
#[ignore = "run by in_namespaces"]
fn killed_between_stage_and_publish() {
    let mut s = Setting::start("attachRequired: false");
    s.claim("data");
    s.driver.fault("publish", Fault::Hangs);
    s.pod("user", "data", "echo $HOSTNAME >> /v/starts");
    eventually("the agent waits for the driver", PATIENCE, || s.driver.count("publish") == 1);
    s.cluster.kill_agent();
    s.driver.mend();
    s.cluster.start_agent();
    s.cluster.wait_ready("user");
    assert_eq!((s.driver.count("stage"), s.driver.count("publish")), (1, 2), "{:?}", s.driver.calls());
    // What is published stays so, whoever is killed.
    s.cluster.kill_agent();
    s.cluster.start_agent();
    s.pod("next", "data", "true");
    s.cluster.wait_ready("next");
    assert_eq!((s.driver.count("stage"), s.driver.count("publish")), (1, 3), "{:?}", s.driver.calls());
    s.cluster.delete("user next");
    s.wait_clean();
}

#[test]
#[ignore = "run by in_namespaces"]
fn pods_that_end_while_the_agent_is_away_leave_nothing() {
    let mut s = Setting::start("attachRequired: false");
    s.claim("data");
    s.driver.fault("stage", Fault::LosesItsAnswer);
    s.pod("early", "data", "true");
    eventually("the agent waits for the driver", PATIENCE, || s.driver.count("stage") == 1);
    s.cluster.kill_agent();
    s.driver.mend();
    assert_eq!(s.mounts().len(), 1, "staged, and the agent does not know");
    s.cluster.kubectl.run("delete pod early --force --grace-period=0");
    s.cluster.start_agent();
    s.wait_clean();
    assert_eq!(s.driver.count("publish"), 0, "{:?}", s.driver.calls());

    s.pod("late", "data", "true");
    s.cluster.wait_ready("late");
    s.cluster.kill_agent();
    s.cluster.kubectl.run("delete pod late --force --grace-period=0");
    // The driver is away, too: the volume waits for it.
    s.driver.stop();
    s.cluster.start_agent();
    eventually("it says so", PATIENCE, || {
        s.cluster.log().contains("not found in the list of registered CSI drivers")
    });
    assert!(!s.mounts().is_empty());
    s.driver.start();
    s.wait_clean();
}
