//! What cannot be done is said in events and conditions that name it.

use crate::setting::{PATIENCE, Setting};
use coracle_tests::eventually;
use coracle_tests::pods::IMAGE;

#[test]
#[ignore = "run by in_namespaces"]
fn a_cdi_spec_with_an_error_is_named_with_file_and_field() {
    let s = Setting::start();
    let file = s.specs.join("broken.json");
    let spec = serde_json::json!({"cdiVersion": "0.6.0", "kind": "broken.example/card", "devices": [
        {"name": "0", "containerEdits": {"env": ["X"]}}]});
    std::fs::write(&file, spec.to_string()).unwrap();
    let mut driver = s.driver_of("broken.example/card=0");
    driver.start();
    s.publish();
    s.claimant("p");
    let message = s.cluster.wait_waiting("p", "CreateContainerError");
    let want = format!(
        "unresolvable CDI devices broken.example/card=0; {}: devices[0].containerEdits.env: \"X\" is not NAME=value",
        file.display()
    );
    assert!(message.contains(&want), "{message}");
    s.wait_event(&want);
    // Once it is repaired the container starts.
    let spec = spec.to_string().replace("[\"X\"]", "[\"CARD_1=described\"]");
    std::fs::write(&file, spec).unwrap();
    s.cluster.wait_ready("p");
}

#[test]
#[ignore = "run by in_namespaces"]
fn claims_that_nobody_can_satisfy_say_why() {
    let s = Setting::start();
    let _driver = s.driver();
    s.publish();
    let said = |pod: &str, exactly: &str, want: &str| {
        s.cluster.apply(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {pod}}}, \
             spec: {{devices: {{requests: [{{name: one, exactly: {{{exactly}}}}}]}}}}}}"
        ));
        s.cluster.pod(
            pod,
            &format!(
                "resourceClaims: [{{name: card, resourceClaimName: {pod}}}], containers: [{{name: c, image: '{IMAGE}', \
                 resources: {{claims: [{{name: card}}]}}}}]"
            ),
        );
        s.wait_event(&format!("FailedScheduling:0/1 nodes are available: {want}"));
        let condition = || s.get(pod, ".status.conditions[?(@.type==\"PodScheduled\")].message");
        eventually("the condition says so", PATIENCE, || condition().contains(want));
    };
    said("many", "deviceClassName: card.example, count: 2", "1 cannot allocate all claims.");
    said(
        "classless",
        "deviceClassName: none.example",
        "request one: device class none.example does not exist.",
    );
    said(
        "large",
        "deviceClassName: card.example, capacity: {requests: {memory: 1Gi}}",
        "1 cannot allocate all claims.",
    );
    said(
        "odd",
        "deviceClassName: card.example, selectors: [{cel: {expression: 'device.attributes[\"x.example\"].model == \"y\"'}}]",
        "1 claim default/odd: selector #0: CEL runtime error: ",
    );
}
