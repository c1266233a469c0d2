//! Subresources and resources that do something instead of storing something, for HTTP handlers and the in-process client
//! alike. No action runs before admission was asked about it.

use super::admission::Operation;
use super::api::Api;
use super::hook::Call;
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
use coracle_proto::status::ApiError;

/// What an action gave back.
pub struct Acted {
    /// The answer.
    pub reply: Reply,
    /// Sentences for the `Warning` header.
    pub warnings: Vec<String>,
}

impl Api {
    /// Does what the subresource or resource of a call stands for. Admission is asked about the body of a create first, and
    /// may change it; actions that update an object ask it themselves, through [`Api::change`] and the like.
    pub async fn act(&self, mut call: Call<'_>) -> Result<Acted, ApiError> {
        let action = self.action(&call.kind.group, &call.kind.plural, call.subresource);
        let action = action.ok_or_else(ApiError::no_such_path)?;
        if call.verb != "create" || action.only_answers() {
            return Ok(Acted { reply: action.call(call).await?, warnings: Vec::new() });
        }
        action.fill(&mut call.body);
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
        at.settle(done.is_ok() && !dry_run).await;
        Ok(Acted { reply: done?, warnings })
    }
}
