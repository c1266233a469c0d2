//! What pods get from the cluster's network: policies that are in place before they start, and variables of Services.

use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

use crate::cluster::{Name, Reflector, Service};
use crate::pod::spec;
use crate::policy::{self, Policies, PolicyError};
use crate::services;

/// Network policies and Services, for pods of this node.
pub struct PodNetwork {
    node: String,
    /// `None` where the node does not enforce them.
    policies: Option<Policies>,
    services: Reflector<Service>,
}

impl PodNetwork {
    /// The network of a node's pods.
    pub fn new(node: String, policies: Option<Policies>, services: Reflector<Service>) -> Self {
        PodNetwork { node, policies, services }
    }

    /// Returns once the policies for a pod with these addresses are in place.
    pub async fn wait_enforced(&self, pod: &Pod, ips: &[String]) -> Result<(), PolicyError> {
        let Some(policies) = &self.policies else { return Ok(()) };
        if spec::spec(pod).host_network == Some(true) {
            return Ok(());
        }
        let name = Name::new(spec::namespace(pod), spec::name(pod));
        let starting = policy::pod_with_addresses(pod, ips, &self.node);
        policies.wait_enforced(spec::uid(pod), name, starting).await
    }

    /// The pod has ended.
    pub fn forget(&self, uid: &str) {
        if let Some(policies) = &self.policies {
            policies.forget(uid);
        }
    }

    /// Variables of Services for a pod of a namespace; `links` if it has those of its namespace.
    pub async fn service_variables(&self, namespace: &str, links: bool) -> BTreeMap<String, String> {
        services::variables(&self.services, namespace, links).await
    }
}
