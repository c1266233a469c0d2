//! Approves and denies requests of nodes, from what the cluster knows of them.

use super::approval::{Approval, evaluate};
use super::subject::{Subject, compared};
use super::wire::Spec;
use crate::servers::lease::reserved_names;
use coracle_client::Client;
use coracle_fields::authorization::v1::SubjectAccessReview;
use coracle_fields::core::v1::{Endpoints, Node};
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::{Schema as _, View, make};
use coracle_informer::conditions::Condition;
use coracle_informer::runner::Failure;
use coracle_informer::time;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use std::sync::Arc;

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

/// Decides on requests by what the cluster knows of nodes.
pub(super) struct Approver {
    client: Client,
    nodes: Arc<Cache>,
    /// Where API servers are, in the newer and in the older form.
    slices: Arc<Cache>,
    endpoints: Arc<Cache>,
    /// Names and addresses of this API server.
    reserved: Vec<String>,
}

impl Approver {
    /// An approver; `reserved` are the names and addresses of this API server.
    pub(super) fn new(client: Client, reserved: Vec<String>) -> Self {
        let cache = |group: &str, plural: &str| client.cache(&client.kind(group, plural));
        let nodes = cache("", "nodes");
        let slices = cache("discovery.k8s.io", "endpointslices");
        let endpoints = cache("", "endpoints");
        Self { client, nodes, slices, endpoints, reserved }
    }

    /// Whether the requestor may have such certificates without a person looking.
    async fn may(&self, spec: &Spec, subresource: &str) -> Result<bool, ApiError> {
        let mut review = make!(SubjectAccessReview {
            spec: {
                user: &spec.username,
                uid: &spec.uid,
                groups: &spec.groups,
                resource_attributes: {
                    group: "certificates.k8s.io",
                    resource: "certificatesigningrequests",
                    verb: "create",
                    subresource,
                    version: "*",
                },
            },
        });
        if spec.extra.is_object() {
            review.edit().spec().extra().put(spec.extra.clone());
        }
        let kind = self.client.kind("authorization.k8s.io", "subjectaccessreviews");
        let answer = self.client.call(&kind, "", "", "", review.into_value()).await?.value();
        Ok(SubjectAccessReview::of(&answer).status().allowed().flag())
    }

    /// Names and addresses that no node may serve under: this API server's, those in the Leases of all API servers, and those
    /// behind their Service.
    fn reserved(&self) -> Vec<String> {
        let mut all = self.reserved.clone();
        all.extend(reserved_names(&self.client));
        for slice in self.slices.list(Some("default")) {
            if slice.meta.labels.get(SERVICE_NAME).map(String::as_str) == Some(API_SERVICE) {
                all.extend(slice_addresses(slice.doc().view()));
            }
        }
        if let Some(endpoints) = self.endpoints.get("default", API_SERVICE) {
            all.extend(endpoints_addresses(endpoints.doc().view()));
        }
        all
    }

    /// Whether another Node than `own` is called so or says that it has this address.
    fn claimed(&self, own: &str, wanted: &str) -> bool {
        self.nodes.list(None).iter().filter(|node| node.meta.name != own).any(|node| {
            let doc = node.doc();
            let mut addresses = doc.view::<Node>().status().addresses().items();
            node.meta.name == wanted
                || addresses.any(|a| a.address().get().map(compared).as_deref() == Some(wanted))
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
        let verdict = evaluate(spec, subject, node.as_ref().map(Node::of), &self.reserved(), &claimed);
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

/// The addresses in an EndpointSlice, ready or not.
fn slice_addresses(slice: View<'_, EndpointSlice>) -> Vec<String> {
    slice.endpoints().items().flat_map(|endpoint| endpoint.addresses().texts()).map(str::to_owned).collect()
}

/// The addresses in an Endpoints object, ready or not.
fn endpoints_addresses(endpoints: View<'_, Endpoints>) -> Vec<String> {
    let addresses = endpoints
        .subsets()
        .items()
        .flat_map(|subset| subset.addresses().items().chain(subset.not_ready_addresses().items()));
    addresses.filter_map(|address| address.ip().get().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_of_api_servers_are_found_in_both_forms() {
        let slice = json!({"endpoints": [{"addresses": ["192.0.2.1"]}, {},
            {"addresses": ["192.0.2.2", "2001:db8::1"]}]});
        let slice = EndpointSlice::of(&slice);
        assert_eq!(slice_addresses(slice), ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "192.0.2.3"}]},
            {"notReadyAddresses": [{"ip": "192.0.2.4"}, {}]}]});
        assert_eq!(endpoints_addresses(Endpoints::of(&endpoints)), ["192.0.2.3", "192.0.2.4"]);
        assert_eq!(slice_addresses(EndpointSlice::of(&json!({}))), Vec::<String>::new());
        assert_eq!(endpoints_addresses(Endpoints::of(&json!({}))), Vec::<String>::new());
    }
}
