//! ResourceClaims: the scheduler allocates them, a driver prepares them.

use crate::setting::{PATIENCE, Setting};
use coracle_tests::device_plugin::RESOURCE;
use coracle_tests::dra_driver::{DRIVER, DraDriver, Fault};
use coracle_tests::eventually;
use coracle_tests::pods::IMAGE;

impl Setting {
    /// A driver with one device on the node; it does not run yet.
    pub fn driver(&self) -> DraDriver {
        self.driver_of(&format!("{RESOURCE}=1"))
    }

    /// A driver that gives this CDI device.
    pub fn driver_of(&self, cdi: &str) -> DraDriver {
        self.cluster.apply(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {{name: card.example}}, \
             spec: {{selectors: [{{cel: {{expression: 'device.driver == \"{DRIVER}\"'}}}}]}}}}"
        ));
        self.cluster.apply(
            "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: card}, \
             spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: card.example}}]}}}}",
        );
        DraDriver::new(&self.cluster.path("kubelet"), &self.cluster.path("claims"), cdi)
    }

    /// What a driver does when it has found its devices.
    pub fn publish(&self) {
        self.publish_with("");
    }

    /// The same, with more about the device.
    fn publish_with(&self, more: &str) {
        self.cluster.apply(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: node1-cards}}, \
             spec: {{driver: {DRIVER}, nodeName: node1, pool: {{name: node1, generation: 1, resourceSliceCount: 1}}, \
             devices: [{{name: card-0{more}}}]}}}}"
        ));
    }

    pub fn claimant(&self, name: &str) {
        self.cluster.pod(
            name,
            &format!(
                "resourceClaims: [{{name: card, resourceClaimTemplateName: card}}], containers: [{{name: c, image: '{IMAGE}', \
                 command: [sh, -c, 'echo card=$CARD_1; trap exit TERM; sleep 1000 & wait'], \
                 resources: {{claims: [{{name: card, request: one}}]}}}}]"
            ),
        );
    }

    pub fn wait_card(&self, pod: &str) {
        self.cluster.wait_ready(pod);
        eventually("it has the device", PATIENCE, || {
            self.cluster.output(pod, "c", 0).trim() == "card=described"
        });
    }

    pub fn claim_of(&self, pod: &str) -> String {
        self.get(pod, ".status.resourceClaimStatuses[0].resourceClaimName")
    }
}

pub fn count(driver: &DraDriver, call: &str) -> usize {
    driver.calls().iter().filter(|made| made.starts_with(call)).count()
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_claim_is_allocated_and_prepared_before_its_pod_starts_and_undone_after() {
    let s = Setting::start();
    let mut driver = s.driver();
    driver.fault("prepare", Fault::Fails);
    driver.start();
    s.claimant("first");
    s.wait_event("FailedScheduling:0/1 nodes are available: 1 cannot allocate all claims.");
    s.publish();
    s.wait_event("FailedPrepareDynamicResources:Failed to prepare dynamic resources: ResourceClaim");
    s.wait_event(&format!("NodePrepareResources: cannot prepare default/{}", s.claim_of("first")));
    driver.mend();
    s.wait_card("first");
    s.claimant("second");
    let waits = || s.get("second", ".status.conditions[?(@.type==\"PodScheduled\")].message");
    eventually("the device is in use", PATIENCE, || waits().contains("cannot allocate all claims"));

    let (first, prepared) = (s.claim_of("first"), count(&driver, "prepare"));
    s.cluster.delete("first");
    assert!(driver.calls().contains(&format!("unprepare default/{first}")), "{:?}", driver.calls());
    s.wait_card("second");
    assert_eq!(count(&driver, "prepare"), prepared + 1, "{:?}", driver.calls());
    let claims = || s.cluster.kubectl.run("get resourceclaims -o name");
    eventually("its claim is gone", PATIENCE, || claims().lines().count() == 1);
    s.cluster.delete("second");
    eventually("claims are gone", PATIENCE, || claims().is_empty());
    // Nobody can use devices of a driver that is gone.
    driver.stop();
    let slices = || s.cluster.kubectl.run("get resourceslices -o name");
    eventually("slices are gone", PATIENCE, || slices().is_empty());
}

#[test]
#[ignore = "run by in_namespaces"]
fn an_agent_that_is_killed_during_a_call_prepares_again_and_forgets_nothing() {
    let mut s = Setting::start();
    let mut driver = s.driver();
    s.publish();
    s.claimant("p");
    s.wait_event(&format!("DRA driver {DRIVER} is not registered on this node"));
    driver.fault("prepare", Fault::Hangs);
    driver.start();
    eventually("the driver is called", PATIENCE, || count(&driver, "prepare") == 1);
    s.cluster.kill_agent();
    s.cluster.start_agent();
    eventually("it is called again", PATIENCE, || count(&driver, "prepare") == 2);
    driver.mend();
    s.wait_card("p");

    // What is prepared is known to the next agent, too: it does not ask again, and undoes it.
    s.cluster.kill_agent();
    s.cluster.start_agent();
    s.wait_allocatable("4");
    s.cluster.wait_ready("p");
    let claim = s.claim_of("p");
    s.cluster.delete("p");
    assert_eq!(count(&driver, "prepare"), 2, "{:?}", driver.calls());
    assert_eq!(driver.calls().last(), Some(&format!("unprepare default/{claim}")));
    assert_eq!(count(&driver, "unprepare"), 1, "{:?}", driver.calls());
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_tainted_device_evicts_its_pod() {
    let s = Setting::start();
    let mut driver = s.driver();
    driver.start();
    s.publish();
    s.claimant("p");
    s.wait_card("p");
    s.publish_with(", taints: [{key: dra.example/unhealthy, effect: NoExecute}]");
    s.wait_event("DeviceTaintManagerEviction:Marking for deletion");
    let pods = || s.cluster.kubectl.run("get pods -o name");
    eventually("the pod is gone", PATIENCE, || pods().is_empty());
    // The next pod waits until the device is well again.
    s.claimant("next");
    let waits = || s.get("next", ".status.conditions[?(@.type==\"PodScheduled\")].message");
    eventually("it waits", PATIENCE, || waits().contains("cannot allocate all claims"));
    s.publish_with(", taints: []");
    s.wait_card("next");
}

#[test]
#[ignore = "run by in_namespaces"]
fn an_extended_resource_is_a_device_of_a_class() {
    let s = Setting::start();
    let mut driver = s.driver();
    driver.start();
    s.publish();
    s.cluster.pod(
        "p",
        &format!(
            "containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'echo card=$CARD_1; trap exit TERM; sleep 1000 & wait'], \
             resources: {{limits: {{dra.example/card: 1}}}}}}]"
        ),
    );
    s.wait_event("FailedScheduling:0/1 nodes are available: 1 Insufficient dra.example/card.");
    s.cluster.apply(&format!(
        "{{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {{name: card.example}}, \
         spec: {{extendedResourceName: dra.example/card, selectors: [{{cel: {{expression: 'device.driver == \"{DRIVER}\"'}}}}]}}}}"
    ));
    s.wait_card("p");
    let claim = s.get("p", ".status.extendedResourceClaimStatus.resourceClaimName");
    assert!(claim.starts_with("p-extended-resources-"), "{claim}");
    s.cluster.delete("p");
    assert!(driver.calls().contains(&format!("unprepare default/{claim}")), "{:?}", driver.calls());
    let claims = || s.cluster.kubectl.run("get resourceclaims -o name");
    eventually("its claim is gone", PATIENCE, || claims().is_empty());
}
