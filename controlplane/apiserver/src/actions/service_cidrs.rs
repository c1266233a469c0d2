//! Which ranges Services get their addresses from: those of the ServiceCIDRs that are ready. Pure.

use crate::service_ranges::Range;
use coracle_fields::View;
use coracle_fields::networking::v1::ServiceCIDR;
use coracle_kinds::object::Object;
use std::sync::Arc;

/// The ServiceCIDR that is made from the options of the server.
const DEFAULT: &str = "kubernetes";

/// The ranges in which addresses may be allocated, in the order in which they are tried. `configured` are those of the server,
/// which are used as long as no object says anything.
pub(super) fn usable(configured: &[Range], objects: &[Arc<Object>]) -> Vec<Range> {
    if objects.is_empty() {
        return configured.to_vec();
    }
    let mut sorted: Vec<&Arc<Object>> = objects.iter().filter(|object| is_ready(object)).collect();
    let order = |object: &Object| (object.meta.name != DEFAULT, object.meta.name.clone());
    sorted.sort_by_cached_key(|object| order(object));
    let mut ranges = Vec::new();
    for object in sorted {
        let doc = object.doc();
        let cidrs = doc.view::<ServiceCIDR>().spec().cidrs();
        for range in cidrs.texts().filter_map(|text| Range::parse(text).ok()) {
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
    }
    ranges
}

/// Whether addresses may be taken from a ServiceCIDR. The one of the server is ready from its beginning, because the first
/// Services are made before controllers run.
fn is_ready(object: &Object) -> bool {
    let doc = object.doc();
    let view: View<'_, ServiceCIDR> = doc.view();
    let ready = view.status().conditions().items().find(|condition| condition.type_() == "Ready");
    let ready = match ready {
        Some(condition) => condition.status() == "True",
        None => object.meta.name == DEFAULT,
    };
    ready && object.meta.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::{Value, json};

    fn cidr(name: &str, cidrs: Value, ready: Option<&str>) -> Arc<Object> {
        let conditions: Vec<Value> =
            ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
        object(
            json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}, "status": {"conditions": conditions}}),
        )
    }

    #[test]
    fn service_cidrs_supply_addresses_when_they_are_ready() {
        let range = |text: &str| Range::parse(text).unwrap();
        let flag = [range("10.96.0.0/16")];
        assert_eq!(usable(&flag, &[]), flag);
        let default = cidr("kubernetes", json!(["10.96.0.0/16"]), None);
        let more = cidr("a", json!(["10.1.0.9/24", "fd00::/112"]), Some("True"));
        let all = [
            more,
            default.clone(),
            cidr("b", json!(["10.2.0.0/24"]), None),
            cidr("c", json!(["10.3.0.0/24"]), Some("False")),
        ];
        assert_eq!(usable(&flag, &all), [range("10.96.0.0/16"), range("10.1.0.0/24"), range("fd00::/112")]);
        let deleted = object(
            json!({"metadata": {"name": "kubernetes", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"cidrs": ["10.96.0.0/16"]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        assert!(usable(&flag, &[deleted]).is_empty());
        let other = cidr("kubernetes", json!(["10.97.0.0/16"]), Some("True"));
        assert_eq!(usable(&flag, &[other]), [range("10.97.0.0/16")], "the objects count, not the option");
    }
}
