//! Node authorizer: a node may read the objects that its pods reference and write its own objects. NodeRestriction
//! limits what it may write into them.

use super::graph::Graph;
use super::rbac::Rule;
use super::{Authorizer, Decision, Rules};
use crate::objects::Objects;
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::user::{NODES, User};
use coracle_kinds::registry::bootstrap;
use std::sync::Arc;

/// The authorizer.
pub struct NodeAuthorizer {
    graph: Graph,
    /// What all nodes may alike: the rules of `system:node`.
    rules: Vec<Rule>,
}

fn no(why: impl Into<String>) -> Decision {
    Decision::NoOpinion(why.into())
}

impl NodeAuthorizer {
    /// On the caches of a server.
    pub fn new(objects: Arc<Objects>) -> Self {
        let rules = bootstrap::role_rules("system:node").into_iter();
        let rules = rules.filter_map(|rule| serde_json::from_value(rule).ok()).collect();
        Self { graph: Graph::new(objects), rules }
    }

    fn related(&self, node: &str, request: &RequestInfo) -> Decision {
        if request.name.is_empty() {
            return no("No Object name found");
        }
        if self.graph.has_path(node, &request.resource, &request.namespace, &request.name) {
            return Decision::Allow;
        }
        no(format!("no relationship found between node '{node}' and this object"))
    }

    fn get(&self, node: &str, request: &RequestInfo) -> Decision {
        match (&request.verb, request.subresource.as_str()) {
            (Verb::Get, "") => self.related(node, request),
            (Verb::Get, _) => no("cannot get subresource"),
            _ => no("can only get individual resources of this type"),
        }
    }

    fn read(&self, node: &str, request: &RequestInfo) -> Decision {
        if !matches!(request.verb, Verb::Get | Verb::List | Verb::Watch) {
            return no("can only read resources of this type");
        }
        if !request.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if request.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, request)
    }

    fn account(&self, node: &str, request: &RequestInfo) -> Decision {
        if request.verb == Verb::Get && request.subresource.is_empty() {
            return self.read(node, request);
        }
        if request.verb != Verb::Create || request.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if request.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related(node, request)
    }

    fn slice(&self, node: &str, request: &RequestInfo) -> Decision {
        if !request.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match request.verb {
            Verb::Create => Decision::Allow,
            Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => self.related(node, request),
            Verb::Watch | Verb::List | Verb::DeleteCollection if selects(request, "spec.nodeName", node) => {
                Decision::Allow
            }
            Verb::Watch | Verb::List | Verb::DeleteCollection => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod(&self, node: &str, request: &RequestInfo) -> Decision {
        match (request.subresource.as_str(), &request.verb) {
            ("", Verb::Get) => self.get(node, request),
            ("", Verb::List | Verb::Watch) if selects(request, "spec.nodeName", node) => Decision::Allow,
            ("", Verb::List | Verb::Watch) if !request.name.is_empty() => self.related(node, request),
            ("", Verb::List | Verb::Watch) => {
                no("can only list/watch pods with spec.nodeName field selector")
            }
            // Mirror pods of its own, as the plugin sees to.
            ("", Verb::Create | Verb::Delete)
            | ("status", Verb::Update | Verb::Patch)
            | ("eviction", Verb::Create) => Decision::Allow,
            _ => no(""),
        }
    }
}

/// Whether the request's field selector asks for one value.
fn selects(request: &RequestInfo, field: &str, value: &str) -> bool {
    request.selected.iter().any(|(f, v)| f == field && v == value)
}

/// An object that has the node's own name; creates are for the plugin, which sees the name.
fn own(node: &str, request: &RequestInfo, what: &str, which: &str) -> Decision {
    match request.verb {
        Verb::Create => Decision::Allow,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete if request.name == node => Decision::Allow,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => {
            no(format!("can only access {which} with the same name as the requesting node"))
        }
        _ => no(format!("can only get, create, update, patch, or delete a {what}")),
    }
}

fn node_object(node: &str, request: &RequestInfo) -> Decision {
    match (request.subresource.as_str(), &request.verb) {
        ("", Verb::Create | Verb::Update | Verb::Patch) | ("status", Verb::Update | Verb::Patch) => {
            Decision::Allow
        }
        ("", Verb::Get | Verb::List | Verb::Watch) if request.name == node => Decision::Allow,
        ("", Verb::Get | Verb::List | Verb::Watch) if request.name.is_empty() => {
            no(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", Verb::Get | Verb::List | Verb::Watch) => {
            no(format!("node '{node}' cannot read '{}', only its own Node object", request.name))
        }
        _ => no(""),
    }
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
        if !user.in_group(NODES) {
            return no("");
        }
        let Some(node) = user.node().filter(|node| !node.is_empty()) else {
            return no(if user.name.starts_with("system:node:") {
                format!("unknown node for user {:?}", user.name)
            } else {
                String::new()
            });
        };
        if request.is_resource {
            match (request.group.as_str(), request.resource.as_str()) {
                ("", "secrets" | "configmaps") => return self.read(node, request),
                ("", "persistentvolumeclaims") if request.subresource == "status" => {
                    return match request.verb {
                        Verb::Update | Verb::Patch => self.related(node, request),
                        _ => no("can only get/update/patch this type"),
                    };
                }
                ("", "persistentvolumeclaims" | "persistentvolumes")
                | ("resource.k8s.io", "resourceclaims")
                | ("storage.k8s.io", "volumeattachments") => return self.get(node, request),
                ("", "serviceaccounts") => return self.account(node, request),
                ("coordination.k8s.io", "leases") if request.namespace != "kube-node-lease" => {
                    return no("can only access leases in the \"kube-node-lease\" system namespace");
                }
                ("coordination.k8s.io", "leases") => return own(node, request, "node lease", "node lease"),
                ("storage.k8s.io", "csinodes") if !request.subresource.is_empty() => {
                    return no("cannot authorize CSINode subresources");
                }
                ("storage.k8s.io", "csinodes") => return own(node, request, "CSINode", "CSINode"),
                ("resource.k8s.io", "resourceslices") => return self.slice(node, request),
                ("", "nodes") => return node_object(node, request),
                ("", "pods") => return self.pod(node, request),
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(request)) { Decision::Allow } else { no("") }
    }

    fn rules(&self, user: &User, _namespace: &str) -> Rules {
        Rules { incomplete: user.in_group(NODES), ..Rules::default() }
    }
}
