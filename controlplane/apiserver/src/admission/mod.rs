//! Admission. Mutating plugins run first, then the validating ones; the first rejection ends the request.
//!
//! A plugin is one file and its line in `chain()` of `plugins.rs`; one that is on by default is also in `DEFAULT_ON` there.

// The plugin chain.
pub mod plugins;
// What a request does, and the phase of its admission.
mod operation;
// The mutating and the validating phase.
pub mod phases;
// The second run of mutating plugins.
pub mod reinvocation;
// Times of plugins and webhooks.
pub mod metrics;
// AdmissionConfiguration.
pub mod config;
// Containers of a pod.
mod containers;
// NamespaceLifecycle.
pub mod namespace_lifecycle;
// InitialResources.
pub mod initial_resources;
// Which requests LimitRanges allow.
mod request_bounds;
// LimitRanger.
pub mod limit_ranger;
// ServiceAccount.
pub mod service_account;
// TaintNodesByCondition.
pub mod taint_nodes;
// AlwaysPullImages.
pub mod always_pull_images;
// ImagePolicyWebhook.
pub mod image_policy;
// PodSecurity.
pub mod pod_security;
// Priority.
pub mod priority;
// DefaultTolerationSeconds.
pub mod default_tolerations;
// PodTolerationRestriction.
pub mod pod_tolerations;
// EventRateLimit.
pub mod event_rate_limit;
// ExtendedResourceToleration.
pub mod extended_resources;
// DefaultStorageClass.
pub mod default_storage_class;
// StorageObjectInUseProtection.
pub mod storage_protection;
// OwnerReferencesPermissionEnforcement.
pub mod owner_references;
// PersistentVolumeClaimResize.
pub mod claim_resize;
// RuntimeClass.
pub mod runtime_class;
// CertificateApproval, CertificateSigning, CertificateSubjectRestriction.
pub mod certificates;
// DefaultIngressClass.
pub mod default_ingress_class;
// DenyServiceExternalIPs.
pub mod external_ips;
// PodTopologyLabels.
pub mod pod_topology_labels;
// NodeDeclaredFeatureValidator.
pub mod declared_features;
// PodResizeValidator.
pub mod pod_resize;
// NodeRestriction.
pub mod node_restriction;
// Audiences of the tokens that nodes request.
mod token_audience;
// Requests in the equivalent version that a webhook or policy matched.
pub mod versioned;
// Checks of permissions in CEL expressions.
pub mod permission_checks;
// MutatingAdmissionPolicy and ValidatingAdmissionPolicy.
pub mod policy;
// MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
pub mod webhook;
// Initializers.
pub mod initializers;
// ResourceQuota.
pub mod resource_quota;
// Escalation check of roles and bindings.
pub mod role_escalation;
// Protects the identity Leases of API servers.
pub mod server_leases;
// Namespaces whose claims may have admin access to devices.
pub mod device_admin_access;
// Permissions for the status of allocated devices.
pub mod device_status;

use super::conversion::Converter;
use super::objects::Objects;
use async_trait::async_trait;
use config::PluginError;
use coracle_client::audit_annotations::AuditAnnotations;
use coracle_client::pipeline::{Change, Target};
use coracle_client::user::User;
use coracle_kinds::object::Object;
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use metrics::AdmissionMetrics;
use reinvocation::Reinvocation;
use serde_json::Value;
use std::sync::Arc;

pub use operation::{Operation, Phase};
pub use phases::{Admitted, Chain, Mutated};

/// What plugins use of the API.
#[async_trait]
pub trait PluginApi: Send + Sync {
    /// Lookups of other objects.
    fn objects(&self) -> &Objects;

    /// Conversions to the version that a webhook or policy matched.
    fn converter(&self) -> &Converter;

    /// Metrics of plugins and webhooks.
    fn admission_metrics(&self) -> &AdmissionMetrics;

    /// Changes an object, such as the status of a quota.
    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<(), ApiError>;
}

/// One request as plugins see it; the object is passed beside it.
pub struct Attributes<'a> {
    /// For lookups of other objects.
    pub api: &'a dyn PluginApi,
    /// The authenticated user.
    pub user: &'a User,
    /// The operation.
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
    /// Whether the request changes an object whose initializers are pending.
    pub initializes: bool,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// Texts for the `Warning` header.
    pub warnings: Vec<String>,
    /// Name of the object in errors while it has none.
    pub called: String,
    /// Annotations of the audit event.
    pub audit_annotations: AuditAnnotations,
    /// `tracestate` of the request, which webhooks get.
    pub trace_state: &'a str,
    /// Reservations to finish when the write has succeeded or failed.
    pub reservations: Vec<Box<dyn Reservation>>,
    /// Which webhooks and policies are invoked a second time.
    pub reinvocation: Reinvocation,
}

/// Something that a plugin reserved for an object before it is stored, such as quota. Dropped without
/// [`Reservation::finish`] if the request is cancelled.
#[async_trait]
pub trait Reservation: Send + Sync {
    /// Keeps the reservation if the object was `stored`, and releases it otherwise.
    async fn finish(self: Box<Self>, api: &dyn PluginApi, stored: bool);
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

    /// Adds an annotation to the audit event, also if the request fails.
    pub fn audit(&self, key: impl Into<String>, text: impl Into<String>) {
        self.audit_annotations.add(key, text);
    }

    /// All cached objects of a kind; none if it is not served.
    pub fn cached(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let objects = self.api.objects();
        let kind = objects.registry.preferred(group, plural);
        let cache = kind.and_then(|kind| objects.cache(&kind).ok());
        cache.map(|cache| cache.list(namespace)).unwrap_or_default()
    }

    /// Whether a cluster-scoped kind, such as webhook configurations, has objects.
    pub fn has_any(&self, group: &str, plural: &str) -> bool {
        let objects = self.api.objects();
        let kind = objects.registry.preferred(group, plural);
        kind.and_then(|kind| objects.cache(&kind).ok()).is_some_and(|cache| !cache.is_empty())
    }

    /// One object from the cache, or from the store if it is not cached.
    pub async fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let objects = self.api.objects();
        let kind = objects.registry.preferred(group, plural)?;
        match objects.cached(&kind, namespace, name) {
            Ok(object) => Some(object),
            Err(_) => objects.get(&kind, namespace, name).await.ok(),
        }
    }

    /// Finishes the reservations of plugins.
    pub async fn finish(&mut self, stored: bool) {
        for reservation in std::mem::take(&mut self.reservations) {
            reservation.finish(self.api, stored).await;
        }
    }

    /// The kind of the object, for a request that is known by `name`: that of the resource, or what its subresource takes
    /// (a Scale, an Eviction, PodExecOptions).
    pub fn object_kind(&self, name: &Named) -> Named {
        self.kind.taken_by(self.subresource).unwrap_or_else(|| name.clone())
    }

    /// Whether the request creates or changes something.
    pub fn writes(&self) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update)
    }

    /// Whether everything in the object is new: it is created, or nobody has seen it because its initializers are pending. Such a
    /// change has the rules of a create, also in plugins that rely on fields that other changes cannot touch.
    pub fn is_new(&self) -> bool {
        self.operation == Operation::Create || self.initializes
    }

    /// Whether the request is about this resource itself (no subresource), also by the name that it has in another group.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.kind.stored_group() == group && self.kind.plural == plural
    }
}

/// One admission plugin. Each of its phases is called for the requests that the plugin handles in that phase.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Name for `--enable-admission-plugins` and `--disable-admission-plugins`: that of Kubernetes, if Kubernetes has the plugin.
    fn name(&self) -> &'static str;

    /// An error if the plugin cannot run with its configuration.
    fn ready(&self) -> Result<(), PluginError> {
        Ok(())
    }

    /// Whether the plugin is called for a request, in a phase. The object is not passed: this decides by resource, operation and
    /// user, and the phase need not do so again.
    fn handles(&self, _at: &Attributes<'_>, _phase: Phase) -> bool {
        true
    }

    /// May change the object of a request that is handled in [`Phase::Mutate`]; it is null for deletes.
    async fn mutate(&self, _at: &mut Attributes<'_>, _object: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// May reject a request that is handled in [`Phase::Validate`]. `object` is null for deletes.
    async fn validate(&self, _at: &mut Attributes<'_>, _object: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}
