//! NamespaceLifecycle: rejects creation in missing or terminating namespaces, and deletion of system namespaces.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The plugin.
pub struct NamespaceLifecycle;

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        match phase {
            Phase::Mutate => at.operation == Operation::Create && !at.namespace.is_empty() && at.kind.stored,
            Phase::Validate => at.operation == Operation::Delete && at.is("", "namespaces"),
        }
    }

    async fn mutate(&self, at: &mut Attributes<'_>, _object: &mut Value) -> Result<(), ApiError> {
        if at.operation != Operation::Create || at.namespace.is_empty() || !at.kind.stored {
            return Ok(());
        }
        let Some(kind) = at.api.objects().registry.resource("", "v1", "namespaces") else { return Ok(()) };
        let namespace = match at.api.objects().cached(&kind, "", at.namespace) {
            Ok(namespace) => namespace,
            // Perhaps another server made it a moment ago.
            Err(_) => at.api.objects().get(&kind, "", at.namespace).await?,
        };
        if namespace.meta.deletion_timestamp.is_some() {
            let mut error = at.forbidden(format!(
                "unable to create new content in namespace {} because it is being terminated",
                at.namespace
            ));
            let why = format!("namespace {} is being terminated", at.namespace);
            error.details.causes.push(FieldError::new("NamespaceTerminating", "metadata.namespace", why));
            return Err(error);
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, _object: &Value) -> Result<(), ApiError> {
        if at.operation == Operation::Delete && at.is("", "namespaces") && IMMORTAL.contains(&at.name) {
            return Err(at.forbidden("this namespace may not be deleted"));
        }
        Ok(())
    }
}
