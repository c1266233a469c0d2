//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: others have a say, over HTTPS.

// Which requests a webhook wants to see.
pub mod matching;
// What is sent and what comes back.
pub mod review;
// The connection.
pub mod call;

use super::forms::{self, Form, Forms};
use super::{Attributes, Plugin};
use crate::connect::reach::Reach;
use crate::patch::json as json_patch;
use async_trait::async_trait;
use call::{CallError, Place};
use coracle_proto::status::ApiError;
use matching::Matched;
use review::Verdict;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "admissionregistration.k8s.io";

/// Those that may change objects, one after the other.
pub struct MutatingAdmissionWebhook(pub Arc<Reach>);
/// Those that may only refuse them, all at the same time.
pub struct ValidatingAdmissionWebhook(pub Arc<Reach>);

/// One webhook of a configuration.
struct Webhook {
    spec: Value,
}

impl Webhook {
    fn name(&self) -> &str {
        self.spec["name"].as_str().unwrap_or_default()
    }

    fn ignores_failure(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.spec["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30))
    }
}

/// Every webhook of a kind of configuration, by the configurations' names.
fn webhooks(at: &Attributes<'_>, plural: &str) -> Vec<Webhook> {
    // Nobody may lock the door from which webhooks are thrown out.
    if at.kind.group == GROUP {
        return Vec::new();
    }
    let mut all = at.cached(GROUP, plural, None);
    all.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    let each = all
        .iter()
        .flat_map(|configuration| configuration.value()["webhooks"].as_array().cloned().unwrap_or_default());
    each.map(|spec| Webhook { spec }).collect()
}

/// What a webhook says of a request in the form it knows; `None` when its conditions keep it out or its failure is ignored.
async fn ask(
    reach: &Reach,
    hook: &Webhook,
    at: &Attributes<'_>,
    form: &Form<'_>,
) -> Result<Option<Verdict>, ApiError> {
    let name = hook.name();
    match matching::conditions(&hook.spec["matchConditions"], at, form) {
        Matched::Yes => {}
        Matched::No => return Ok(None),
        Matched::Failed(why) if hook.ignores_failure() => {
            tracing::warn!(webhook = name, why, "a match condition failed and is ignored");
            return Ok(None);
        }
        Matched::Failed(why) => return Err(at.forbidden(format!("webhook {name:?}: {why}"))),
    }
    let effects = hook.spec["sideEffects"].as_str().unwrap_or("Unknown");
    if at.dry_run && !matches!(effects, "None" | "NoneOnDryRun") {
        return Err(ApiError::bad_request(format!("admission webhook {name:?} does not support dry run")));
    }
    let (uid, body) = review::request(&hook.spec, at, form);
    let config = &hook.spec["clientConfig"];
    let place = Place::of(config, |group, plural, namespace| at.cached(group, plural, Some(namespace)));
    let answer = match place {
        Ok(place) => call::post(reach, config, place, body.to_string().into(), hook.patience()).await,
        Err(unknown) => Err(unknown),
    };
    let verdict = answer.and_then(|answer| review::verdict(&answer, &uid).map_err(CallError::Unasked));
    match verdict {
        Ok(verdict) => Ok(Some(verdict)),
        Err(why) if hook.ignores_failure() => {
            tracing::warn!(webhook = name, %why, "a webhook failed and is ignored");
            Ok(None)
        }
        Err(why) => Err(ApiError::internal(format!("failed calling webhook {name:?}: {why}"))),
    }
}

/// A request that cannot be shown to a webhook fails, as upstream also where the webhook's own failures are ignored.
fn unshown(error: ApiError) -> ApiError {
    ApiError::internal(error.message)
}

/// Takes over what a webhook said besides its patch; its refusal.
fn heed(hook: &Webhook, at: &mut Attributes<'_>, verdict: &Verdict) -> Result<(), ApiError> {
    at.warnings.extend(verdict.warnings.iter().cloned());
    for (key, text) in &verdict.notes {
        at.audit(format!("{}/{key}", hook.name()), text.as_str());
    }
    if verdict.allowed {
        return Ok(());
    }
    Err(verdict.refusal(hook.name()))
}

#[async_trait]
impl Plugin for MutatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        let hooks = webhooks(at, "mutatingwebhookconfigurations");
        // Where nobody is asked, a write does not pay for the size of what asking takes.
        if hooks.is_empty() { Ok(()) } else { Box::pin(run_all(&self.0, &hooks, at, object)).await }
    }
}

/// Asks the webhooks one after the other.
async fn run_all(
    reach: &Reach,
    hooks: &[Webhook],
    at: &mut Attributes<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    let mut after = vec![None; hooks.len()];
    for (i, hook) in hooks.iter().enumerate() {
        run(reach, hook, at, object).await?;
        after[i] = Some(object.clone());
    }
    // Who wants to see what others changed after it is asked once more.
    for (hook, seen) in hooks.iter().zip(after) {
        let again = hook.spec["reinvocationPolicy"] == "IfNeeded";
        if again && seen.is_some_and(|seen| seen != *object) {
            run(reach, hook, at, object).await?;
        }
    }
    Ok(())
}

/// Asks a webhook and applies its patch, in the form that the webhook knows.
async fn run(
    reach: &Reach,
    hook: &Webhook,
    at: &mut Attributes<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    let Some(name) = matching::wanted(&hook.spec, at, object).await else { return Ok(()) };
    let form = Forms::default().of(&name, at, object).await.map_err(unshown)?;
    let Some(verdict) = ask(reach, hook, at, &form).await? else { return Ok(()) };
    heed(hook, at, &verdict)?;
    let is_empty = |patch: &&Value| patch.as_array().is_some_and(Vec::is_empty);
    let Some(patch) = verdict.patch.as_ref().filter(|patch| !is_empty(patch)) else { return Ok(()) };
    // A delete has no object; as upstream this fails also where the webhook's own failures are ignored.
    if form.object.is_null() {
        return Err(ApiError::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name()
        )));
    }
    match json_patch::apply(&form.object, patch) {
        Ok(changed) if changed == *form.object => Ok(()),
        Ok(changed) => {
            *object = forms::asked(&name, at, changed).await?;
            Ok(())
        }
        Err(error) if hook.ignores_failure() => {
            tracing::warn!(webhook = hook.name(), %error, "a patch that does not apply is ignored");
            Ok(())
        }
        Err(error) => Err(ApiError::internal(format!("failed calling webhook {:?}: {error}", hook.name()))),
    }
}

/// What a webhook that may only refuse says, if it wants to be asked.
async fn consult(
    reach: &Reach,
    hook: &Webhook,
    at: &Attributes<'_>,
    object: &Value,
    forms: &Forms,
) -> Result<Option<Verdict>, ApiError> {
    let Some(name) = matching::wanted(&hook.spec, at, object).await else { return Ok(None) };
    let form = forms.of(&name, at, object).await.map_err(unshown)?;
    ask(reach, hook, at, &form).await
}

#[async_trait]
impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        let hooks = webhooks(at, "validatingwebhookconfigurations");
        if hooks.is_empty() {
            return Ok(());
        }
        let (asked, forms) = (&*at, Forms::default());
        let answers = hooks.iter().map(|hook| consult(&self.0, hook, asked, object, &forms));
        let answers = futures::future::join_all(answers).await;
        for (hook, answer) in hooks.iter().zip(answers) {
            if let Some(verdict) = answer? {
                heed(hook, at, &verdict)?;
            }
        }
        Ok(())
    }
}
