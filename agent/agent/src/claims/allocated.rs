//! Claims of a pod, as the API has them. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use std::collections::BTreeSet;

use super::error::ClaimError;
use super::records::{Record, State};
use crate::pod::spec;

/// The name in a pod of the claim for its extended resources; no claim of a spec can have it.
const EXTENDED: &str = "<extended-resources>";

/// A claim that a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// Name in the pod.
    pub name: String,
    /// Name of the ResourceClaim.
    pub claim: String,
    /// Whether it was made for the pod.
    pub is_generated: bool,
}

/// The claims of a pod; those that are not needed are left out.
pub fn claims(pod: &Pod) -> Result<Vec<PodClaim>, ClaimError> {
    let spec = spec::spec(pod);
    let statuses =
        pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref()).unwrap_or_default();
    let mut all = Vec::new();
    for claim in spec.resource_claims.iter().flatten() {
        let name = claim.name.clone();
        if let Some(own) = &claim.resource_claim_name {
            all.push(PodClaim { name, claim: own.clone(), is_generated: false });
            continue;
        }
        match statuses.iter().find(|status| status.name == claim.name) {
            None => return Err(ClaimError::NotGenerated { claim: name }),
            Some(status) => all.extend(status.resource_claim_name.clone().map(|claim| PodClaim {
                name,
                claim,
                is_generated: true,
            })),
        }
    }
    let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    all.extend(extended.map(|status| PodClaim {
        name: EXTENDED.to_owned(),
        claim: status.resource_claim_name.clone(),
        is_generated: true,
    }));
    Ok(all)
}

/// What a container uses of the pod's claims: the name in the pod, and the request, empty for all.
pub fn wanted(pod: &Pod, container: &Container) -> Vec<(String, String)> {
    let claims = container.resources.iter().filter_map(|resources| resources.claims.as_ref()).flatten();
    let named = claims.map(|claim| (claim.name.clone(), claim.request.clone().unwrap_or_default()));
    let extended = spec::extended_mappings(pod).filter(|(name, ..)| *name == container.name);
    named.chain(extended.map(|(_, _, request)| (EXTENDED.to_owned(), request.to_owned()))).collect()
}

/// The drivers of a claim that this pod may use.
pub fn drivers(pod: &Pod, of: &PodClaim, claim: &ResourceClaim) -> Result<BTreeSet<String>, ClaimError> {
    let uid = spec::uid(pod);
    let name = of.claim.clone();
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    if of.is_generated && !owners.iter().any(|owner| owner.controller == Some(true) && owner.uid == uid) {
        return Err(ClaimError::NotOwner { claim: name });
    }
    let status = claim.status.clone().unwrap_or_default();
    let Some(allocation) = status.allocation else { return Err(ClaimError::NotAllocated { claim: name }) };
    let reserved = status.reserved_for.unwrap_or_default();
    if !reserved.iter().any(|consumer| consumer.resource == "pods" && consumer.uid == uid) {
        return Err(ClaimError::NotReserved { claim: name });
    }
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    Ok(results.into_iter().map(|result| result.driver).collect())
}

/// CDI devices of a container, from the records of its pod's claims.
pub fn cdi_devices(
    pod: &Pod,
    claims: &[PodClaim],
    container: &Container,
    records: &[(String, Record)],
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, request) in wanted(pod, container) {
        let Some(claim) = claims.iter().find(|claim| claim.name == name) else { continue };
        let own = records.iter().filter(|(_, record)| record.name == claim.claim);
        let devices = own.flat_map(|(_, record)| record.drivers.values()).flat_map(|state| match state {
            State::Prepared(devices) => devices.as_slice(),
            State::Called => &[],
        });
        // A device for an alternative is named `request/alternative`.
        let is_for = |name: &String| name.split('/').next() == Some(request.as_str());
        for device in devices {
            if request.is_empty() || device.requests.is_empty() || device.requests.iter().any(is_for) {
                names.extend(
                    device
                        .cdi_devices
                        .iter()
                        .filter(|name| !names.contains(name))
                        .cloned()
                        .collect::<Vec<_>>(),
                );
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::records::PreparedDevice;
    use super::*;
    use serde_json::{Value, json};

    fn pod(claims: Value, statuses: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses}}))
        .unwrap()
    }

    #[test]
    fn names_are_those_of_the_spec_and_of_the_status() {
        let both = json!([{"name": "a", "resourceClaimName": "mine"}, {"name": "b", "resourceClaimTemplateName": "t"}]);
        let made = claims(&pod(both.clone(), json!([{"name": "b", "resourceClaimName": "p-b-x"}]))).unwrap();
        let names: Vec<_> = made.iter().map(|claim| (claim.claim.as_str(), claim.is_generated)).collect();
        assert_eq!(names, [("mine", false), ("p-b-x", true)]);
        assert_eq!(claims(&pod(both.clone(), json!([{"name": "b"}]))).unwrap().len(), 1, "it is not needed");
        let error = claims(&pod(both, json!([]))).unwrap_err();
        assert!(matches!(error, ClaimError::NotGenerated { claim } if claim == "b"));
    }

    #[test]
    fn a_claim_is_used_only_by_those_it_is_reserved_for() {
        let pod = pod(json!([]), json!([]));
        let of = |is_generated| PodClaim { name: "a".into(), claim: "c".into(), is_generated };
        let claim = |owner: &str, status: Value| -> ResourceClaim {
            serde_json::from_value(json!({"metadata": {"name": "c", "ownerReferences":
                [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]},
                "spec": {"devices": {}}, "status": status}))
            .unwrap()
        };
        let result = |driver: &str| json!({"request": "r", "driver": driver, "pool": "p", "device": "d"});
        let allocation = json!({"devices": {"results": [result("x"), result("y"), result("x")]}});
        let reserved = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
        let whole = json!({"allocation": allocation, "reservedFor": reserved});
        let found = drivers(&pod, &of(true), &claim("u", whole.clone())).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["x", "y"]);
        let error = drivers(&pod, &of(true), &claim("other", whole.clone())).unwrap_err();
        assert!(matches!(error, ClaimError::NotOwner { .. }), "{error}");
        drivers(&pod, &of(false), &claim("other", whole)).unwrap();
        let error = drivers(&pod, &of(false), &claim("u", json!({"reservedFor": reserved}))).unwrap_err();
        assert!(matches!(error, ClaimError::NotAllocated { .. }), "{error}");
        let error = drivers(&pod, &of(false), &claim("u", json!({"allocation": allocation}))).unwrap_err();
        assert!(matches!(error, ClaimError::NotReserved { .. }), "{error}");
    }

    #[test]
    fn a_container_gets_the_devices_of_its_requests() {
        let device = |requests: &[&str], cdi: &str| PreparedDevice {
            requests: requests.iter().map(|name| (*name).to_owned()).collect(),
            cdi_devices: vec![cdi.to_owned()],
            ..PreparedDevice::default()
        };
        let devices =
            vec![device(&["one"], "v/c=1"), device(&["two/large"], "v/c=2"), device(&[], "v/c=all")];
        let mut record = Record { name: "c".into(), ..Record::default() };
        record.drivers.insert("d".into(), State::Prepared(devices));
        let records = [("uid".to_owned(), record)];
        let claims = [PodClaim { name: "gpu".into(), claim: "c".into(), is_generated: false }];
        let pod = pod(json!([]), json!([]));
        let of = |wanted: Value| {
            let container: Container =
                serde_json::from_value(json!({"name": "c", "resources": {"claims": wanted}})).unwrap();
            cdi_devices(&pod, &claims, &container, &records)
        };
        assert_eq!(of(json!([{"name": "gpu"}])), ["v/c=1", "v/c=2", "v/c=all"]);
        assert_eq!(of(json!([{"name": "gpu", "request": "two"}])), ["v/c=2", "v/c=all"]);
        assert_eq!(
            of(json!([{"name": "gpu", "request": "one"}, {"name": "gpu", "request": "two"}])),
            ["v/c=1", "v/c=all", "v/c=2"]
        );
        assert_eq!(of(json!([{"name": "other"}])), [""; 0]);
    }
    #[test]
    fn extended_resources_are_those_of_a_claim() {
        let mut pod = pod(json!([]), json!([]));
        let status = json!({"resourceClaimName": "p-extended-resources-x", "requestMappings": [
            {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}]});
        pod.status.get_or_insert_default().extended_resource_claim_status =
            Some(serde_json::from_value(status).unwrap());
        let claims = claims(&pod).unwrap();
        assert_eq!((claims[0].claim.as_str(), claims[0].is_generated), ("p-extended-resources-x", true));
        assert!(spec::is_claimed(&pod, "example.com/gpu") && !spec::is_claimed(&pod, "example.com/nic"));
        let device = |request: &str, cdi: &str| PreparedDevice {
            requests: vec![request.to_owned()],
            cdi_devices: vec![cdi.to_owned()],
            ..PreparedDevice::default()
        };
        let devices =
            vec![device("container-0-request-0", "v/c=1"), device("container-1-request-0", "v/c=2")];
        let mut record = Record { name: "p-extended-resources-x".into(), ..Record::default() };
        record.drivers.insert("d".into(), State::Prepared(devices));
        let records = [("uid".to_owned(), record)];
        let of = |name: &str| {
            let container: Container = serde_json::from_value(json!({"name": name})).unwrap();
            cdi_devices(&pod, &claims, &container, &records)
        };
        assert_eq!(of("c"), ["v/c=1"]);
        assert_eq!(of("other"), [""; 0]);
    }
}
