//! Runs actions: subresources and resources that perform an operation and store nothing themselves. Used by HTTP
//! handlers and the in-process client. Admission runs before the action.

use super::admission::Operation;
use super::api::Api;
use super::hook::Call;
use crate::verb::Verb;
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
use coracle_proto::status::ApiError;

/// Result of an action.
pub struct ActionResult {
    /// The response.
    pub reply: Reply,
    /// Texts for the `Warning` header.
    pub warnings: Vec<String>,
}

impl Api {
    /// Runs the action of a subresource or resource. For creates, admission runs on the body first and may change it.
    /// Actions that update an object run admission themselves, through [`Api::change`].
    pub async fn run_action(&self, mut call: Call<'_>) -> Result<ActionResult, ApiError> {
        let action = self.action(&call.kind.group, &call.kind.plural, call.subresource);
        let action = action.ok_or_else(ApiError::no_such_path)?;
        if call.verb != Verb::Create || action.skips_admission() {
            return Ok(ActionResult { reply: action.call(call).await?, warnings: Vec::new() });
        }
        action.set_defaults(&mut call.body);
        let named = call.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let target = Target {
            user: call.user,
            kind: call.kind,
            namespace: call.namespace,
            name: if call.name.is_empty() { &named } else { call.name },
            subresource: call.subresource,
            options: call.options,
            applied: false,
        };
        let mut at = self.attributes(&target, Operation::Create, None);
        call.admitted = Some(self.admission.admit(&mut at, &mut call.body).await?);
        let warnings = std::mem::take(&mut at.warnings);
        let (dry_run, done) = (call.options.dry_run, action.call(call).await);
        at.finish(done.is_ok() && !dry_run).await;
        Ok(ActionResult { reply: done?, warnings })
    }
}
