//! Admission: what the cluster accepts. Mutating plugins run first, then the validating ones; the first refusal ends the
//! request. A plugin is one file and one line in the chain.

// Namespaces that are there, and stay.
pub mod namespace_lifecycle;
// Every pod is somebody.
pub mod service_account;
// Classes become numbers.
pub mod priority;
// Five minutes on a lost node.
pub mod default_tolerations;
// New nodes wait.
pub mod taint_nodes;

use super::api::Api;
use super::user::User;
use crate::registry::kinds::Kind;
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::Value;

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
}

impl Attributes<'_> {
    /// 403 with upstream's shape: `pods "x" is forbidden: why`.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> ApiError {
        ApiError::forbidden(&self.kind.group, &self.kind.plural, self.name, why)
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

    /// May change the object.
    async fn mutate(&self, _at: &mut Attributes<'_>, _object: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// May refuse it. `object` is null for deletes.
    async fn validate(&self, _at: &mut Attributes<'_>, _object: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}

/// The chain, in order.
#[derive(Default)]
pub struct Chain(pub Vec<Box<dyn Plugin>>);

/// The plugins that are on by default, in upstream's order, without those that are disabled by name.
pub fn default_chain(disabled: &[String]) -> Chain {
    let all: Vec<Box<dyn Plugin>> = vec![
        Box::new(namespace_lifecycle::NamespaceLifecycle),
        Box::new(service_account::ServiceAccount),
        Box::new(taint_nodes::TaintNodesByCondition),
        Box::new(priority::Priority),
        Box::new(default_tolerations::DefaultTolerationSeconds),
    ];
    Chain(all.into_iter().filter(|plugin| !disabled.iter().any(|name| name == plugin.name())).collect())
}

impl Chain {
    /// Runs the mutating half.
    pub async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        for plugin in &self.0 {
            plugin.mutate(at, object).await?;
        }
        Ok(())
    }

    /// Runs the validating half.
    pub async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        for plugin in &self.0 {
            plugin.validate(at, object).await?;
        }
        Ok(())
    }
}
