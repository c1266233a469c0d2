//! Ranges of addresses that ServiceCIDRs supply.

use crate::both::{PATIENCE, on_both};
use coracle_tests::eventually;
use serde_json::json;

#[test]
fn service_cidrs_supply_addresses_and_stay_while_they_are_used() {
    on_both("servicecidr", |place| {
        let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": place.name},
            "spec": {"cidrs": ["10.211.0.0/28"]}});
        let service = |name: &str, address: &str| {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": {"clusterIP": address, "ports": [{"port": 80}]}})
            .to_string()
        };
        place.see("create -f - --dry-run=none", &service("early", "10.211.0.5"));
        place.create_cluster("servicecidr", &range);
        let ready =
            "{.status.conditions[0].type}/{.status.conditions[0].status}/{.status.conditions[0].reason}";
        let object = format!("servicecidr/{}", place.name);
        place.saw("ready", place.until(&object, ready, |said| said.starts_with("Ready/True")));
        place.saw("finalizers", place.value(&object, "{.metadata.finalizers}"));
        eventually("an address of the range is given", PATIENCE, || {
            place.try_run("create -f -", &service("a", "10.211.0.5")).ok
        });
        let owner = place.get("ipaddress/10.211.0.5")["spec"]["parentRef"].clone();
        place.saw("owner", owner);
        place.see("create -f - --save-config=false", &service("taken", "10.211.0.5"));
        place.see("create -f - --output=name", &service("outside", "10.212.0.5"));
        place.see("create -f - --validate=true", &service("network", "10.211.0.0"));
        place.run(&format!("delete servicecidr {} --wait=false", place.name));
        let ends = place.until(&object, ready, |said| said.contains("False"));
        place.saw("while it is used", ends);
        let path = "{.status.conditions[0].message}";
        place.saw("because", place.value(&object, path));
        place.run("delete service a");
        eventually("the range goes with its last address", PATIENCE, || {
            !place.try_run(&format!("get {object}"), "").ok
        });
        place.see("create -f - --validate=strict", &service("late", "10.211.0.5"));
    });
}
