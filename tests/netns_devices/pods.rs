//! Pods that use devices.

use crate::setting::{PATIENCE, Setting};
use coracle_tests::device_plugin::{Fault, RESOURCE};
use coracle_tests::eventually;
use coracle_tests::pods::IMAGE;

#[test]
#[ignore = "run by in_namespaces"]
fn devices_reach_containers_and_plugins_that_fail_are_named() {
    let s = Setting::start();
    assert_eq!(s.amount("capacity"), "4");
    let script = "echo cards=$CARDS card=$CARD_3; ls -l /dev/card3 /dev/cardctl | cut -c1; \
                  dd if=/dev/card3 of=/dev/cardctl bs=1 count=1 2>/dev/null && echo reads; touch /opt/cards/seen";
    s.pod("user", 1, script);
    s.cluster.wait_ready("user");
    // The plugin prefers the last one.
    eventually("it has run", PATIENCE, || s.cluster.output("user", "c", 0).lines().count() >= 4);
    let output = s.cluster.output("user", "c", 0);
    assert_eq!(
        output.split_whitespace().collect::<Vec<_>>(),
        ["cards=3", "card=described", "c", "c", "reads"]
    );
    assert!(s.cluster.path("cards/seen").exists(), "its mount");
    assert!(s.cluster.path("hook-ran").exists(), "its hook");
    assert_eq!(s.gpus.calls(), ["allocate 3", "prestart 3"]);
    assert_eq!(s.devices_of("user").into_iter().collect::<Vec<_>>(), ["3"]);

    // A device that fails is reported where it is used.
    let health = || s.get("user", ".status.containerStatuses[0].allocatedResourcesStatus");
    assert_eq!(
        health(),
        format!(r#"[{{"name":"{RESOURCE}","resources":[{{"health":"Healthy","resourceID":"3"}}]}}]"#)
    );
    s.gpus.set_health(3, false);
    s.wait_allocatable("3");
    assert_eq!(s.amount("capacity"), "4");
    eventually("the pod is told", PATIENCE, || health().contains(r#""health":"Unhealthy""#));
    s.gpus.set_health(3, true);
    s.wait_allocatable("4");

    s.gpus.fault("allocate", Fault::Fails);
    s.pod("unlucky", 1, "true");
    eventually("it is rejected", PATIENCE, || s.get("unlucky", ".status.phase") == "Failed");
    assert_eq!(s.get("unlucky", ".status.reason"), "UnexpectedAdmissionError");
    let message = s.get("unlucky", ".status.message");
    assert!(message.contains(&format!("device plugin of {RESOURCE}: Allocate")), "{message}");
    assert!(message.contains("card 2 is on fire"), "{message}");
    s.gpus.mend();
    s.gpus.fault("prestart", Fault::Fails);
    s.pod("waits", 1, "true");
    s.wait_event("PreStartContainer: rpc error: code = Internal desc = card 2 is on fire");
    s.gpus.mend();
    s.cluster.wait_ready("waits");

    // A pod that bypasses the scheduler.
    s.cluster.pod(
        "greedy",
        &format!(
            "nodeName: node1, containers: [{{name: c, image: '{IMAGE}', resources: {{limits: {{{RESOURCE}: 3}}}}}}]"
        ),
    );
    eventually("it is rejected", PATIENCE, || {
        s.get("greedy", ".status.reason") == format!("OutOf{RESOURCE}")
    });
    s.cluster.pod(
        "much",
        &format!("containers: [{{name: c, image: '{IMAGE}', resources: {{limits: {{{RESOURCE}: 9}}}}}}]"),
    );
    s.wait_event(&format!("Insufficient {RESOURCE}"));

    let after = s.cluster.path("hook-ran.after");
    let _ = std::fs::remove_file(&after);
    s.cluster.delete("user");
    eventually("its last hook", PATIENCE, || {
        std::fs::read_to_string(&after).is_ok_and(|state| state.contains(r#""status":"stopped""#))
    });
}
