//! From wanted endpoints to EndpointSlices with few writes: what is in a slice stays in it. No clock, no tasks.

use coracle_fields::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use coracle_fields::meta::OwnerReference;
use coracle_fields::{Made, Schema as _, make};
use coracle_informer::selector::Labels;
use coracle_informer::template::same;
use coracle_kinds::object::Object;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// How many endpoints a slice holds at most.
pub const CAPACITY: usize = 100;

/// Endpoints that share address type and ports.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// `IPv4` or `IPv6`.
    pub address_type: String,
    /// Ports, in the order of the service.
    pub ports: Vec<Value>,
    /// Endpoints as the API spells them.
    pub endpoints: Vec<Value>,
}

/// What to write.
#[derive(Debug, Default)]
pub struct Plan {
    /// New slices: address type, ports, endpoints.
    pub create: Vec<Group>,
    /// Slices with their new endpoints.
    pub update: Vec<(Arc<Object>, Vec<Value>)>,
    /// Slices that go.
    pub delete: Vec<Arc<Object>>,
}

struct Slice {
    object: Arc<Object>,
    endpoints: Vec<Value>,
    changed: bool,
}

/// What an endpoint stands for: its pod, or else its address.
fn identity(endpoint: &Value) -> String {
    let endpoint = Endpoint::of(endpoint);
    let address = endpoint.addresses().nth(0);
    endpoint.target_ref().uid().or(address.text()).to_owned()
}

/// Which group a slice or wanted endpoints belong to.
fn group_key(address_type: &str, ports: &[Value]) -> String {
    let mut names: Vec<String> = ports
        .iter()
        .map(|port| {
            let port = EndpointPort::of(port);
            let (protocol, application) = (port.protocol().get(), port.app_protocol().get());
            format!("{}/{:?}/{protocol:?}/{application:?}", port.name().text(), port.port().int())
        })
        .collect();
    names.sort();
    format!("{address_type} {}", names.join(","))
}

/// Plans the slices of one service. `existing` are the slices this controller manages for it.
pub fn plan(existing: &[Arc<Object>], wanted: Vec<Group>) -> Plan {
    let mut plan = Plan::default();
    let mut by_group: BTreeMap<String, Vec<Slice>> = BTreeMap::new();
    for object in existing {
        let doc = object.doc();
        let read = doc.view::<EndpointSlice>();
        let key = group_key(read.address_type().text(), &read.ports().to_values());
        let endpoints = read.endpoints().to_values();
        let slice = Slice { object: object.clone(), endpoints, changed: false };
        by_group.entry(key).or_default().push(slice);
    }
    for group in wanted {
        let slices = by_group.remove(&group_key(&group.address_type, &group.ports)).unwrap_or_default();
        plan_group(slices, group, &mut plan);
    }
    plan.delete.extend(by_group.into_values().flatten().map(|s| s.object));
    plan
}

fn plan_group(mut slices: Vec<Slice>, group: Group, plan: &mut Plan) {
    let mut wanted: BTreeMap<String, &Value> = group.endpoints.iter().map(|e| (identity(e), e)).collect();
    // What is there stays where it is, changed or not; what is no longer wanted, or there twice, goes.
    for slice in &mut slices {
        let before = slice.endpoints.len();
        let mut kept = Vec::with_capacity(before);
        for endpoint in slice.endpoints.drain(..) {
            if let Some(now) = wanted.remove(&identity(&endpoint)) {
                slice.changed |= !same(&endpoint, now);
                kept.push(now.clone());
            }
        }
        slice.changed |= kept.len() != before;
        slice.endpoints = kept;
    }
    let mut seen = HashSet::new();
    let mut new: Vec<Value> = group
        .endpoints
        .iter()
        .filter(|e| wanted.contains_key(&identity(e)) && seen.insert(identity(e)))
        .cloned()
        .collect();
    // Slices that are written anyway take new endpoints first, the fullest before the others; then full slices are
    // made; the rest goes where there is room.
    slices.sort_by_key(|s| (!s.changed, std::cmp::Reverse(s.endpoints.len())));
    for slice in slices.iter_mut().filter(|s| s.changed) {
        let room = CAPACITY.saturating_sub(slice.endpoints.len()).min(new.len());
        slice.endpoints.extend(new.drain(..room));
    }
    let make = |endpoints: Vec<Value>| Group {
        endpoints,
        ports: group.ports.clone(),
        address_type: group.address_type.clone(),
    };
    while new.len() >= CAPACITY {
        plan.create.push(make(new.drain(..CAPACITY).collect()));
    }
    if !new.is_empty() {
        match slices.iter_mut().find(|s| s.endpoints.len() + new.len() <= CAPACITY) {
            Some(slice) => {
                slice.endpoints.append(&mut new);
                slice.changed = true;
            }
            None => plan.create.push(make(new)),
        }
    }
    // One empty slice may stay: a service without endpoints has one that says so.
    let mut placeholder = group.endpoints.is_empty() && plan.create.is_empty();
    if placeholder && slices.is_empty() {
        plan.create.push(make(Vec::new()));
        return;
    }
    for slice in slices {
        if slice.endpoints.is_empty() && !std::mem::take(&mut placeholder) {
            plan.delete.push(slice.object);
        } else if slice.changed {
            plan.update.push((slice.object, slice.endpoints));
        }
    }
}

/// A group without endpoints, for a service that has none.
pub fn placeholder(address_type: &str) -> Group {
    Group { address_type: address_type.into(), ..Group::default() }
}

/// The body of a new slice.
pub fn body(
    name_prefix: &str,
    namespace: &str,
    labels: &Labels,
    owner: Made<OwnerReference>,
    group: &Group,
) -> Made<EndpointSlice> {
    let mut body = make!(EndpointSlice {
        metadata: {
            generate_name: format!("{name_prefix}-"),
            namespace,
            labels,
            owner_references: [owner],
        },
        address_type: &group.address_type,
    });
    body.edit().ports().put(Value::Array(group.ports.clone()));
    body.edit().endpoints().put(Value::Array(group.endpoints.clone()));
    body
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use proptest::prelude::*;
    use serde_json::json;

    fn endpoint(n: usize) -> Value {
        json!({"addresses": [format!("10.0.0.{n}")], "targetRef": {"uid": format!("u{n}")}, "conditions": {"ready": true}})
    }

    fn group(ids: &[usize]) -> Group {
        let ports = vec![json!({"name": "", "port": 80, "protocol": "TCP"})];
        Group { address_type: "IPv4".into(), ports, endpoints: ids.iter().map(|n| endpoint(*n)).collect() }
    }

    /// Carries a plan out.
    fn apply(slices: &[Arc<Object>], plan: Plan, serial: &mut usize) -> (Vec<Arc<Object>>, usize) {
        let writes = plan.create.len() + plan.update.len() + plan.delete.len();
        let mut all: Vec<Arc<Object>> = slices
            .iter()
            .filter(|s| !plan.delete.iter().any(|d| d.meta.name == s.meta.name))
            .map(|s| match plan.update.iter().find(|(u, _)| u.meta.name == s.meta.name) {
                Some((_, endpoints)) => {
                    let mut value = s.value();
                    value["endpoints"] = json!(endpoints);
                    object(value)
                }
                None => s.clone(),
            })
            .collect();
        for group in plan.create {
            *serial += 1;
            let mut value = body("web", "d", &Labels::new(), Made::default(), &group).into_value();
            value["metadata"] = json!({"name": format!("s{serial}")});
            all.push(object(value));
        }
        (all, writes)
    }

    fn contents(slices: &[Arc<Object>]) -> Vec<Value> {
        slices.iter().flat_map(|s| s.value()["endpoints"].as_array().cloned().unwrap_or_default()).collect()
    }

    #[test]
    fn a_service_without_endpoints_has_one_empty_slice() {
        let mut serial = 0;
        let (slices, _) = apply(&[], plan(&[], vec![placeholder("IPv4")]), &mut serial);
        assert_eq!(slices.len(), 1);
        let (slices, writes) = apply(&slices, plan(&slices, vec![placeholder("IPv4")]), &mut serial);
        assert_eq!((slices.len(), writes), (1, 0));
        let (slices, _) = apply(&slices, plan(&slices, vec![group(&[1])]), &mut serial);
        assert_eq!(contents(&slices).len(), 1);
    }

    #[test]
    fn one_change_is_one_write() {
        let mut serial = 0;
        let ids: Vec<usize> = (0..250).collect();
        let (slices, _) = apply(&[], plan(&[], vec![group(&ids)]), &mut serial);
        assert_eq!(slices.len(), 3);
        let fewer: Vec<usize> = (0..250).filter(|n| *n != 120).collect();
        let (slices, writes) = apply(&slices, plan(&slices, vec![group(&fewer)]), &mut serial);
        assert_eq!(writes, 1);
        let (_, writes) = apply(&slices, plan(&slices, vec![group(&ids)]), &mut serial);
        assert_eq!(writes, 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn slices_hold_exactly_what_is_wanted(steps in prop::collection::vec(prop::collection::btree_set(0..400usize, 0..350), 1..6)) {
            let mut slices = Vec::new();
            let mut serial = 0;
            for ids in steps {
                let ids: Vec<usize> = ids.into_iter().collect();
                let wanted = if ids.is_empty() { placeholder("IPv4") } else { group(&ids) };
                (slices, _) = apply(&slices, plan(&slices, vec![wanted.clone()]), &mut serial);
                let mut have: Vec<String> = contents(&slices).iter().map(identity).collect();
                let mut want: Vec<String> = wanted.endpoints.iter().map(identity).collect();
                have.sort();
                want.sort();
                prop_assert_eq!(have, want, "each endpoint once");
                let sizes: Vec<usize> = slices.iter().map(|s| s.value()["endpoints"].as_array().map_or(0, Vec::len)).collect();
                prop_assert!(sizes.iter().all(|n| *n <= CAPACITY));
                let (_, writes) = apply(&slices, plan(&slices, vec![wanted]), &mut serial);
                prop_assert_eq!(writes, 0, "settled");
            }
        }
    }
}
