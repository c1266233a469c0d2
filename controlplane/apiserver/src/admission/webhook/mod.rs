//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook.

// Rules, selectors and conditions.
pub mod matching;
// AdmissionReview.
pub mod review;

use super::metrics::{RejectionCause, WebhookOutcome};
use super::permission_checks::PermissionChecks;
use super::versioned::{self, VersionedRequest, VersionedRequests};
use super::{Attributes, Phase, Plugin};
use crate::authz::Authorizer;
use crate::nodes::dial::ClusterDialer;
use crate::patch::json as json_patch;
use crate::webhook_call::{self, CallError, WebhookAddress};
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_fields::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use coracle_fields::{Made, View};
use coracle_proto::status::ApiError;
use coracle_trace::{Stage, Sum, add, tracked};
use matching::Matched;
use review::{ReviewError, Verdict};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";
/// The code of a call that failed, in metrics.
const UNAVAILABLE: u16 = 503;

/// What it takes to call webhooks.
#[derive(Clone)]
pub struct Calls {
    /// Dials them.
    pub dialer: Arc<ClusterDialer>,
    /// Answers the checks of match conditions.
    pub authz: Arc<dyn Authorizer>,
}

/// Calls mutating webhooks, one after the other.
pub struct MutatingAdmissionWebhook(pub Calls);
/// Calls validating webhooks, concurrently.
pub struct ValidatingAdmissionWebhook(pub Calls);

/// The calls of one request.
struct RequestCalls<'a> {
    dialer: &'a ClusterDialer,
    permissions: PermissionChecks<'a>,
}

impl Calls {
    fn of<'a>(&'a self, at: &Attributes<'a>) -> RequestCalls<'a> {
        RequestCalls { dialer: &self.dialer, permissions: PermissionChecks::new(&*self.authz, at) }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum VerdictError {
    /// The webhook did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// What it said was not understood.
    #[error(transparent)]
    Review(#[from] ReviewError),
}

/// One webhook of a configuration. Validating webhooks have the same fields but `reinvocationPolicy`.
struct Webhook {
    configuration: String,
    spec: Made<MutatingWebhook>,
}

impl Webhook {
    fn spec(&self) -> View<'_, MutatingWebhook> {
        self.spec.view()
    }

    fn name(&self) -> &str {
        self.spec().name().text()
    }

    /// What tells the webhooks of one request apart.
    fn key(&self) -> String {
        format!("{}/{}", self.configuration, self.name())
    }

    fn ignores_failure(&self) -> bool {
        self.spec().failure_policy() == "Ignore"
    }

    fn timeout(&self) -> Duration {
        let seconds = self.spec().timeout_seconds().int().and_then(|seconds| u64::try_from(seconds).ok());
        Duration::from_secs(seconds.unwrap_or(10).clamp(1, 30))
    }
}

/// Every webhook of a kind of configuration, by the configurations' names.
fn webhooks(at: &Attributes<'_>, plural: &str) -> Vec<Webhook> {
    // A broken webhook must not prevent the removal of webhooks.
    if at.kind.group == GROUP {
        return Vec::new();
    }
    let mut all = at.cached(GROUP, plural, None);
    all.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    let mut hooks = Vec::new();
    for configuration in &all {
        let doc = configuration.doc();
        let own = doc.view::<MutatingWebhookConfiguration>().webhooks().items();
        hooks.extend(own.map(|hook| Webhook {
            configuration: configuration.meta.name.clone(),
            spec: Made::new(hook.to_value()),
        }));
    }
    hooks
}

/// What a webhook answered, and how the call counts.
struct Answer {
    verdict: Verdict,
    outcome: WebhookOutcome,
}

impl Answer {
    fn count(&self, hook: &Webhook, at: &Attributes<'_>, phase: Phase) {
        at.api.admission_metrics().webhook(hook.name(), phase, at.operation, &self.outcome);
    }
}

/// What a webhook says of a request in the form it knows; `None` when its conditions keep it out or its failure is ignored.
/// The caller counts the answer.
async fn ask(
    calls: &RequestCalls<'_>,
    hook: &Webhook,
    at: &Attributes<'_>,
    form: &VersionedRequest<'_>,
    phase: Phase,
) -> Result<Option<Answer>, ApiError> {
    let name = hook.name();
    match matching::conditions(hook.spec().match_conditions(), at, form, &calls.permissions).await {
        Matched::Yes => {}
        Matched::No => return Ok(None),
        Matched::Failed(why) if hook.ignores_failure() => {
            tracing::warn!(webhook = name, why, "a match condition failed and is ignored");
            return Ok(None);
        }
        Matched::Failed(why) => return Err(at.forbidden(format!("webhook {name:?}: {why}"))),
    }
    let effects = hook.spec().side_effects().or("Unknown");
    if at.dry_run && !matches!(effects, "None" | "NoneOnDryRun") {
        return Err(ApiError::bad_request(format!("admission webhook {name:?} does not support dry run")));
    }
    let (uid, body) = review::request(hook.spec(), at, form);
    let config = hook.spec().client_config().as_value();
    let place =
        WebhookAddress::of(&config, |group, plural, namespace| at.cached(group, plural, Some(namespace)));
    let begun = Instant::now();
    let answer = match place {
        Ok(place) => {
            let (body, timeout) = (body.to_string().into(), hook.timeout());
            let answer = webhook_call::post(calls.dialer, &config, place, body, timeout, at.trace_state);
            tracked(stage(phase), name, Box::pin(answer)).await
        }
        Err(unknown) => Err(unknown),
    };
    let took = begun.elapsed();
    let verdict = answer
        .map_err(VerdictError::from)
        .and_then(|answer| review::verdict(&answer, &uid).map_err(VerdictError::from));
    let outcome = outcome(hook, &verdict, took);
    if phase == Phase::Mutate {
        add(Sum::MutatingWebhook, took);
    }
    let why = match verdict {
        Ok(verdict) => return Ok(Some(Answer { verdict, outcome })),
        Err(why) => why,
    };
    at.api.admission_metrics().webhook(name, phase, at.operation, &outcome);
    if hook.ignores_failure() {
        tracing::warn!(webhook = name, why = %causes::chain(&why), "a webhook failed and is ignored");
        return Ok(None);
    }
    Err(ApiError::internal(format!("failed calling webhook {name:?}: {why}")))
}

fn stage(phase: Phase) -> Stage {
    match phase {
        Phase::Mutate => Stage::MutatingWebhook,
        Phase::Validate => Stage::ValidatingWebhook,
    }
}

/// How a call ended, for metrics.
fn outcome(hook: &Webhook, verdict: &Result<Verdict, VerdictError>, took: Duration) -> WebhookOutcome {
    let (code, rejected) = match verdict {
        Ok(verdict) if verdict.allowed => (200, None),
        Ok(verdict) => (verdict.refusal(hook.name()).code, Some(RejectionCause::Denied)),
        Err(_) if hook.ignores_failure() => (UNAVAILABLE, None),
        Err(_) => (UNAVAILABLE, Some(RejectionCause::Call)),
    };
    WebhookOutcome { took, code, rejected, failed_open: verdict.is_err() && rejected.is_none() }
}

/// The error of a request that cannot be converted for a webhook. As upstream, the failure policy does not apply.
fn conversion_failed(error: ApiError) -> ApiError {
    ApiError::internal(error.message)
}

/// Adds warnings and audit annotations of a webhook; an error if it denied the request.
fn apply_verdict(hook: &Webhook, at: &mut Attributes<'_>, verdict: &Verdict) -> Result<(), ApiError> {
    at.warnings.extend(verdict.warnings.iter().cloned());
    for (key, text) in &verdict.audit_annotations {
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

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && at.kind.group != GROUP && at.has_any(GROUP, MUTATING)
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        let hooks = webhooks(at, MUTATING);
        // Where nobody is asked, a write does not pay for the size of what asking takes.
        if hooks.is_empty() {
            return Ok(());
        }
        let calls = self.0.of(at);
        Box::pin(run_all(&calls, &hooks, at, object)).await
    }
}

/// Asks the webhooks one after the other.
async fn run_all(
    calls: &RequestCalls<'_>,
    hooks: &[Webhook],
    at: &mut Attributes<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    at.reinvocation.webhooks.begin(object);
    for hook in hooks {
        run(calls, hook, at, object).await?;
    }
    at.reinvocation.webhooks.end(object);
    Ok(())
}

/// Asks a webhook and applies its patch, in the form that the webhook knows.
async fn run(
    calls: &RequestCalls<'_>,
    hook: &Webhook,
    at: &mut Attributes<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    if at.reinvocation.webhooks.skips(&hook.key()) {
        return Ok(());
    }
    let Some(name) = matching::wanted(hook.spec(), at, object).await else { return Ok(()) };
    let form = VersionedRequests::default().get(&name, at, object).await.map_err(conversion_failed)?;
    let Some(mut answer) = ask(calls, hook, at, &form, Phase::Mutate).await? else { return Ok(()) };
    let patched = patched(hook.name(), &form.object, answer.verdict.patch.as_ref());
    if patched.is_err() {
        (answer.outcome.code, answer.outcome.rejected) = (0, Some(RejectionCause::Internal));
    }
    answer.count(hook, at, Phase::Mutate);
    apply_verdict(hook, at, &answer.verdict)?;
    let patched = patched?;
    let (is_changed, again) = (patched.is_some(), hook.spec().reinvocation_policy() == "IfNeeded");
    if let Some(changed) = patched {
        *object = versioned::convert_back(&name, at, changed).await?;
        at.reinvocation.needed();
    }
    at.reinvocation.webhooks.invoked(hook.key(), is_changed, again);
    Ok(())
}

/// The object as a webhook's patch changes it; `None` if it does not. As upstream, a patch that does not fit the object is
/// an error whatever the failure policy says: the webhook was called and allowed something else than what was asked for.
fn patched(webhook: &str, object: &Value, patch: Option<&Value>) -> Result<Option<Value>, ApiError> {
    let is_empty = |patch: &&Value| patch.as_array().is_some_and(Vec::is_empty);
    let Some(patch) = patch.filter(|patch| !is_empty(patch)) else { return Ok(None) };
    // A delete has no object.
    if object.is_null() {
        return Err(ApiError::internal(format!(
            "admission webhook {webhook:?} attempted to modify the object, which is not supported for this operation"
        )));
    }
    match json_patch::apply(object, patch) {
        Ok(changed) => Ok(Some(changed).filter(|changed| changed != object)),
        Err(error) => Err(ApiError::internal(format!(
            "patch of admission webhook {webhook:?} cannot be applied: {}",
            error.message
        ))),
    }
}

/// What a webhook that may only refuse says, if it wants to be asked.
async fn ask_if_matching(
    calls: &RequestCalls<'_>,
    hook: &Webhook,
    at: &Attributes<'_>,
    object: &Value,
    versions: &VersionedRequests,
) -> Result<Option<Verdict>, ApiError> {
    let Some(name) = matching::wanted(hook.spec(), at, object).await else { return Ok(None) };
    let form = versions.get(&name, at, object).await.map_err(conversion_failed)?;
    let answer = ask(calls, hook, at, &form, Phase::Validate).await?;
    Ok(answer.map(|answer| {
        answer.count(hook, at, Phase::Validate);
        answer.verdict
    }))
}

#[async_trait]
impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.kind.group != GROUP && at.has_any(GROUP, VALIDATING)
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        let hooks = webhooks(at, VALIDATING);
        if hooks.is_empty() {
            return Ok(());
        }
        let (calls, asked, versions) = (self.0.of(at), &*at, VersionedRequests::default());
        let answers = hooks.iter().map(|hook| ask_if_matching(&calls, hook, asked, object, &versions));
        let begun = Instant::now();
        let answers = futures::future::join_all(answers).await;
        // They are asked at the same time.
        add(Sum::ValidatingWebhook, begun.elapsed());
        for (hook, answer) in hooks.iter().zip(answers) {
            if let Some(verdict) = answer? {
                apply_verdict(hook, at, &verdict)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_that_does_not_fit_is_an_error_whatever_the_failure_policy() {
        let object = json!({"a": 1});
        let patched = |object: &Value, patch: Value| patched("w.example.com", object, Some(&patch));
        assert_eq!(
            patched(&object, json!([{"op": "add", "path": "/b", "value": 2}])),
            Ok(Some(json!({"a": 1, "b": 2})))
        );
        assert_eq!(patched(&object, json!([{"op": "test", "path": "/a", "value": 1}])), Ok(None));
        assert_eq!(patched(&Value::Null, json!([])), Ok(None));
        for (object, broken, why) in [
            (&object, json!([{"op": "test", "path": "/a", "value": 2}]), "cannot be applied: "),
            (&object, json!([{"op": "remove", "path": "/x/y"}]), "cannot be applied: "),
            (&object, json!([{"op": "nonsense", "path": "/a"}]), "cannot be applied: "),
            (
                &Value::Null,
                json!([{"op": "add", "path": "/b", "value": 2}]),
                "attempted to modify the object",
            ),
        ] {
            match patched(object, broken) {
                Err(error) => {
                    assert_eq!((error.code, error.reason), (500, "InternalError"));
                    assert!(error.message.contains(why), "{}", error.message);
                    assert!(
                        error.message.contains("admission webhook \"w.example.com\""),
                        "{}",
                        error.message
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
