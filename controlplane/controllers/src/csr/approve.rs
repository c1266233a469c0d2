//! Approves and denies requests of nodes, from what the cluster knows of them.

use super::Requests;
use super::approval::{Approval, evaluate};
use super::subject::{Subject, compared};
use super::wire::Spec;
use crate::servers::lease::reserved_names;
use coracle_informer::conditions::Condition;
use coracle_informer::runner::Failure;
use coracle_informer::time;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The label that ties an EndpointSlice to its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The Service of the API servers, in the namespace `default`.
const API_SERVICE: &str = "kubernetes";

/// What was decided on a request.
pub(super) enum Decided {
    Now(Box<Condition>),
    Later,
    Not,
}

impl Requests {
    /// Whether the requestor may have such certificates without a person looking.
    async fn may(&self, spec: &Spec, subresource: &str) -> Result<bool, ApiError> {
        let mut subject = json!({"user": spec.username, "uid": spec.uid, "groups": spec.groups,
            "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests",
                "verb": "create", "subresource": subresource, "version": "*"}});
        if spec.extra.is_object() {
            subject["extra"] = spec.extra.clone();
        }
        let kind = self.client.kind("authorization.k8s.io", "subjectaccessreviews");
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": subject});
        let answer = self.client.call(&kind, "", "", "", review).await?.value();
        Ok(answer["status"]["allowed"] == true)
    }

    /// Names and addresses that no node may serve under: this API server's, those in the Leases of all API servers, and those
    /// behind their Service.
    fn reserved(&self) -> Vec<String> {
        let mut all = self.signer.reserved.clone();
        all.extend(reserved_names(&self.client));
        for slice in self.slices.list(Some("default")) {
            if slice.meta.labels.get(SERVICE_NAME).map(String::as_str) == Some(API_SERVICE) {
                all.extend(endpoint_addresses(&slice.value()));
            }
        }
        if let Some(endpoints) = self.endpoints.get("default", API_SERVICE) {
            all.extend(endpoint_addresses(&endpoints.value()));
        }
        all
    }

    /// Whether another Node than `own` is called so or says that it has this address.
    fn claimed(&self, own: &str, wanted: &str) -> bool {
        self.nodes.list(None).iter().filter(|node| node.meta.name != own).any(|node| {
            let value = node.value();
            let mut addresses = value["status"]["addresses"].as_array().into_iter().flatten();
            node.meta.name == wanted
                || addresses.any(|a| a["address"].as_str().map(compared).as_deref() == Some(wanted))
        })
    }

    /// Decides on a request; the new condition, if there is one.
    pub(super) async fn decide(
        &self,
        spec: &Spec,
        subject: &Subject,
        now: Timestamp,
    ) -> Result<Decided, Failure> {
        let node = subject.node().and_then(|name| self.nodes.get("", name)).map(|node| node.value());
        let own = subject.node().unwrap_or_default();
        let claimed = |wanted: &str| self.claimed(own, wanted);
        let verdict = evaluate(spec, subject, node.as_ref(), &self.reserved(), &claimed);
        let (kind, reason, message) = match verdict {
            Approval::Leave => return Ok(Decided::Not),
            Approval::Wait => return Ok(Decided::Later),
            Approval::Approve(sub) if !sub.is_empty() && !self.may(spec, sub).await? => {
                return Ok(Decided::Not);
            }
            Approval::Approve(_) => {
                let message = "Auto approving kubelet certificate after its identity was checked.".to_owned();
                ("Approved", "AutoApproved", message)
            }
            Approval::Deny(reason, message) => ("Denied", reason, message),
        };
        let mut condition = Condition::new(kind, true, reason, message, now);
        condition.last_update_time = Some(time::seconds(now));
        Ok(Decided::Now(Box::new(condition)))
    }
}

/// The addresses in an EndpointSlice or in an Endpoints object, ready or not.
fn endpoint_addresses(object: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let slice = list(&object["endpoints"]).into_iter().flat_map(|endpoint| list(&endpoint["addresses"]));
    let subsets = list(&object["subsets"]).into_iter().flat_map(|subset| {
        let both = [list(&subset["addresses"]), list(&subset["notReadyAddresses"])].concat();
        both.into_iter().map(|address| address["ip"].clone())
    });
    slice.chain(subsets).filter_map(|address| address.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_api_servers_are_found_in_both_forms() {
        let slice = json!({"endpoints": [{"addresses": ["192.0.2.1"]}, {},
            {"addresses": ["192.0.2.2", "2001:db8::1"]}]});
        assert_eq!(endpoint_addresses(&slice), ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "192.0.2.3"}]},
            {"notReadyAddresses": [{"ip": "192.0.2.4"}, {}]}]});
        assert_eq!(endpoint_addresses(&endpoints), ["192.0.2.3", "192.0.2.4"]);
        assert_eq!(endpoint_addresses(&json!({})), Vec::<String>::new());
    }
}
