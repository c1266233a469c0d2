//! Admission: what the cluster accepts. Mutating plugins run first, then the validating ones; the first refusal ends the
//! request. A plugin is one file and one line in the chain.

// The chain: which plugins, in which order.
pub mod plugins;
// Mutating first, then validating.
pub mod phases;
// What an AdmissionConfiguration says.
pub mod config;
// Namespaces that are there, and stay.
pub mod namespace_lifecycle;
// What containers and claims may ask for.
pub mod limit_ranger;
// Every pod is somebody.
pub mod service_account;
// New nodes wait.
pub mod taint_nodes;
// Images are always pulled.
pub mod always_pull_images;
// Somebody else decides about images.
pub mod image_policy;
// What pods may do to their node.
pub mod pod_security;
// Classes become numbers.
pub mod priority;
// Five minutes on a lost node.
pub mod default_tolerations;
// Tolerations by namespace.
pub mod pod_tolerations;
// Not too many events.
pub mod event_rate_limit;
// Pods that ask for a device tolerate its nodes.
pub mod extended_resources;
// A class for claims without one.
pub mod default_storage_class;
// Claims and volumes stay while they are used.
pub mod storage_protection;
// Owners that one may delete.
pub mod owner_references;
// Claims grow only where their class lets them.
pub mod claim_resize;
// Overhead and nodes of runtimes.
pub mod runtime_class;
// Who approves, signs and asks for certificates.
pub mod certificates;
// A class for ingresses without one.
pub mod default_ingress_class;
// No addresses that are somebody else's.
pub mod external_ips;
// Nodes change what is theirs.
pub mod node_restriction;
// A request by the names that others know it by.
pub mod forms;
// The cluster's own rules.
pub mod policy;
// Others have a say.
pub mod webhook;
// No more than a namespace may have.
pub mod resource_quota;
// Rights are not handed out by those who lack them.
pub mod role_escalation;
// Leases of API servers belong to them.
pub mod server_leases;

use super::api::Api;
use async_trait::async_trait;
use coracle_client::notes::Notes;
use coracle_client::user::User;
use coracle_kinds::object::Object;
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

pub use phases::{Admitted, Chain, Mutated};

/// What is being done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change, by update, patch or apply.
    Update,
    /// A removal.
    Delete,
    /// A stream: exec, attach, port-forward, proxy.
    Connect,
}

impl Operation {
    /// Upstream's name, as webhooks see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One request as plugins see it; the object is passed beside it.
pub struct Attributes<'a> {
    /// The server, for those who look things up.
    pub api: &'a Api,
    /// Who asks.
    pub user: &'a User,
    /// What is done.
    pub operation: Operation,
    /// The kind of the resource.
    pub kind: &'a Kind,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name; empty for a create with `generateName`.
    pub name: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// The stored object, for updates and deletes.
    pub old: Option<&'a Value>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// Sentences for the `Warning` header.
    pub warnings: Vec<String>,
    /// What refusals call the object when it has no name yet.
    pub called: String,
    /// What is noted for the audit log.
    pub notes: Notes,
    /// What plugins took and must know the fate of.
    pub claims: Vec<Box<dyn Claim>>,
}

/// Something that a plugin took for an object before it is stored, such as a share of a quota. Dropped without a word
/// when the request is given up half-way.
#[async_trait]
pub trait Claim: Send + Sync {
    /// The object was stored, or it was not.
    async fn settle(self: Box<Self>, api: &Api, stored: bool);
}

impl Attributes<'_> {
    /// 403 with upstream's shape: `pods "x" is forbidden: why`.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> ApiError {
        let name = match (self.name, self.called.as_str()) {
            ("", "") => "Unknown",
            ("", called) => called,
            (name, _) => name,
        };
        ApiError::forbidden(&self.kind.group, &self.kind.plural, name, why)
    }

    /// Notes something for the audit log, whatever becomes of the request.
    pub fn audit(&self, key: impl Into<String>, text: impl Into<String>) {
        self.notes.add(key, text);
    }

    /// Every object of a kind as this server last saw them; none when it is not served.
    pub fn cached(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let kind = self.api.registry.preferred(group, plural);
        let cache = kind.and_then(|kind| self.api.cache(&kind).ok());
        cache.map(|cache| cache.list(namespace)).unwrap_or_default()
    }

    /// One object: as this server last saw it, or, when it does not know it, as the store has it.
    pub async fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let kind = self.api.registry.preferred(group, plural)?;
        match self.api.cached(&kind, namespace, name) {
            Ok(object) => Some(object),
            Err(_) => self.api.get(&kind, namespace, name).await.ok(),
        }
    }

    /// Tells plugins that took something whether the object was stored.
    pub async fn settle(&mut self, stored: bool) {
        for claim in std::mem::take(&mut self.claims) {
            claim.settle(self.api, stored).await;
        }
    }

    /// The kind of the object, for a request that is known by `name`: that of the resource, or what its subresource takes
    /// (a Scale, an Eviction, PodExecOptions).
    pub fn object_kind(&self, name: &Named) -> Named {
        self.kind.taken_by(self.subresource).unwrap_or_else(|| name.clone())
    }

    /// Whether the request is about this resource itself (no subresource).
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.kind.group == group && self.kind.plural == plural
    }
}

/// One admission plugin. Both methods are called only for what they do not decline by returning at once.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Upstream's plugin name, for `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Why the plugin cannot be on with the settings that it has.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    /// May change the object.
    async fn mutate(&self, _at: &mut Attributes<'_>, _object: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// May refuse it. `object` is null for deletes.
    async fn validate(&self, _at: &mut Attributes<'_>, _object: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}
