//! Actions: subresources and resources that perform an operation and store nothing themselves. Used by HTTP handlers and
//! the in-process client. Admission runs before the action.

use super::admission::{Admitted, Operation};
use super::api::Api;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::{Reply, Target};
use coracle_client::user::User;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// A call of a subresource.
pub struct Call<'a> {
    /// Objects.
    pub api: &'a Api,
    /// The authenticated user.
    pub user: &'a User,
    /// The parent's kind.
    pub kind: &'a Kind,
    /// Namespace.
    pub namespace: &'a str,
    /// Name of the parent.
    pub name: &'a str,
    /// The subresource; empty for a resource that is never stored.
    pub subresource: &'a str,
    /// The verb of the request.
    pub verb: Verb,
    /// Content type of the body; selects the patch format.
    pub content_type: &'a str,
    /// The decoded body; null if there is none.
    pub body: Value,
    /// Options of the request.
    pub options: &'a WriteOptions,
    /// Set by [`Actions::run`] for creates: the body was admitted.
    pub admitted: Option<Admitted>,
}

/// A subresource (`pods/binding`) or a resource that is never stored (`tokenreviews`, with an empty subresource).
#[async_trait]
pub trait Action: Send + Sync {
    /// Whether a create stores nothing and skips admission, as upstream does for access reviews.
    fn skips_admission(&self) -> bool {
        false
    }

    /// Sets defaults in the body of a create, before admission.
    fn set_defaults(&self, _body: &mut Value) {}

    /// Runs the action. Called only by [`Actions::run`], after admission.
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError>;
}

/// Result of an action.
pub struct ActionResult {
    /// The response.
    pub reply: Reply,
    /// Texts for the `Warning` header.
    pub warnings: Vec<String>,
}

/// All actions, by group, resource and subresource.
#[derive(Default)]
pub struct Actions(HashMap<(String, String, String), Arc<dyn Action>>);

impl Actions {
    /// Adds the action of a subresource, or of a resource when the subresource is empty.
    pub fn add(&mut self, group: &str, resource: &str, subresource: &str, action: Arc<dyn Action>) {
        self.0.insert((group.to_owned(), resource.to_owned(), subresource.to_owned()), action);
    }

    /// The action behind a subresource, or behind a virtual resource when the subresource is empty. [`Actions::run`] runs it.
    pub(super) fn find(
        &self,
        registry: &Registry,
        group: &str,
        resource: &str,
        subresource: &str,
    ) -> Option<Arc<dyn Action>> {
        let found = self.0.get(&(group.to_owned(), resource.to_owned(), subresource.to_owned()));
        if found.is_some() || subresource != "scale" {
            return found.cloned();
        }
        // Custom resources come after the actions were listed; all scale alike.
        let kind = registry.preferred(group, resource)?;
        let scales = kind.custom.as_ref().is_some_and(|custom| custom.scale.is_some());
        scales.then(|| self.0.iter().find(|((.., sub), _)| sub == "scale"))?.map(|(_, action)| action.clone())
    }

    /// Runs the action of a subresource or resource. For creates, admission runs on the body first and may change it.
    /// Actions that update an object run admission themselves, through [`Api::change`].
    pub async fn run(&self, mut call: Call<'_>) -> Result<ActionResult, ApiError> {
        let api = call.api;
        let action = self.find(&api.objects.registry, &call.kind.group, &call.kind.plural, call.subresource);
        let action = action.ok_or_else(ApiError::no_such_path)?;
        if call.verb != Verb::Create || action.skips_admission() {
            return Ok(ActionResult { reply: action.call(call).await?, warnings: Vec::new() });
        }
        action.set_defaults(&mut call.body);
        let named = PartialObjectMetadata::of(&call.body).metadata().name().text().to_owned();
        let target = Target {
            user: call.user,
            kind: call.kind,
            namespace: call.namespace,
            name: if call.name.is_empty() { &named } else { call.name },
            subresource: call.subresource,
            options: call.options,
            applied: false,
        };
        let mut at = api.attributes(&target, Operation::Create, None);
        call.admitted = Some(api.admission.admit(&mut at, &mut call.body).await?);
        let warnings = std::mem::take(&mut at.warnings);
        let (dry_run, done) = (call.options.dry_run, action.call(call).await);
        at.finish(done.is_ok() && !dry_run).await;
        Ok(ActionResult { reply: done?, warnings })
    }
}
