//! Admission policies in CEL. The plugin ValidatingAdmissionPolicy is here, MutatingAdmissionPolicy in `mutating`. A policy has no
//! effect without a binding; the binding selects resources and parameters, and for validation says what happens to requests
//! that the policy denies.

// What expressions are evaluated with, match conditions and variables.
mod scope;
// The expressions of one policy.
mod rules;
// What a binding hands to it.
mod params;
// Compiled policies.
mod compiled;
// MutatingAdmissionPolicy.
pub mod mutating;

use super::permission_checks::PermissionChecks;
use super::phases::{NOTABLE, record};
use super::versioned::VersionedRequests;
use super::webhook::matching::{self, Subject};
use super::{Attributes, Phase, Plugin};
use crate::authz::Authorizer;
use async_trait::async_trait;
use compiled::Compiled;
use coracle_fields::admissionregistration::v1;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Doc, List, Schema as _, View};
use coracle_kinds::object::Object;
use coracle_kinds::registry::equivalent::Named;
use coracle_proto::status::{ApiError, FieldError};
use coracle_trace::{Stage, is_detailed};
use params::ParamsError;
use rules::{Denial, Rules};
use scope::Facts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const GROUP: &str = "admissionregistration.k8s.io";
const FAILURE_NOTE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The plugin; it keeps the compiled policies.
pub struct ValidatingAdmissionPolicy {
    compiled: Compiled<Rules>,
    authz: Arc<dyn Authorizer>,
}

/// What a request is refused with.
struct Refusal {
    message: String,
    reason: &'static str,
}

#[async_trait]
impl Plugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && !is_exempt(at) && at.has_any(GROUP, "validatingadmissionpolicybindings")
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if is_exempt(at) {
            return Ok(());
        }
        let mut bindings = at.cached(GROUP, "validatingadmissionpolicybindings", None);
        if bindings.is_empty() {
            return Ok(());
        }
        bindings.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        let bindings: Vec<Doc<'_>> = bindings.iter().map(|binding| binding.doc()).collect();
        let mut policies = at.cached(GROUP, "validatingadmissionpolicies", None);
        policies.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        let permissions = PermissionChecks::new(&*self.authz, at);
        let (mut refusals, shared) =
            (Vec::new(), Shared { versions: VersionedRequests::default(), permissions });
        for policy in &policies {
            let all = bindings.iter().map(|binding| binding.view::<v1::ValidatingAdmissionPolicyBinding>());
            let bound: Vec<_> =
                all.filter(|binding| binding.spec().policy_name() == policy.meta.name).collect();
            if !bound.is_empty() {
                let (begun, before) = (Instant::now(), refusals.len());
                Box::pin(self.apply(policy, &bound, at, object, &shared, &mut refusals)).await;
                let refuses = refusals.len() > before;
                if refuses || begun.elapsed() >= NOTABLE || is_detailed() {
                    record(Stage::ValidatingPolicy, &policy.meta.name, begun, refuses);
                }
            }
        }
        refusals.into_iter().next().map_or(Ok(()), |refusal| Err(refused(at, refusal)))
    }
}

/// What the policies of one request share.
struct Shared<'a> {
    versions: VersionedRequests,
    permissions: PermissionChecks<'a>,
}

impl ValidatingAdmissionPolicy {
    /// The plugin; expressions ask the authorizers.
    pub fn new(authz: Arc<dyn Authorizer>) -> Self {
        Self { compiled: Compiled::default(), authz }
    }

    async fn apply(
        &self,
        policy: &Object,
        bindings: &[View<'_, v1::ValidatingAdmissionPolicyBinding>],
        at: &mut Attributes<'_>,
        object: &Value,
        shared: &Shared<'_>,
        refusals: &mut Vec<Refusal>,
    ) {
        let Shared { versions, permissions } = shared;
        let doc = policy.doc();
        let spec = doc.view::<v1::ValidatingAdmissionPolicy>().spec();
        let Some(known) = concerns(spec.match_constraints(), at, object).await else { return };
        let rules = self.compiled.get(policy, || Rules::of(spec));
        let mut audit_annotations = BTreeMap::<String, Vec<String>>::new();
        for binding in bindings {
            let name = binding.metadata().name().text();
            let head = format!("ValidatingAdmissionPolicy '{}' with binding '{name}'", policy.meta.name);
            let wanted = binding.spec().match_resources();
            if wanted.is_object() && concerns(wanted, at, object).await.is_none() {
                continue;
            }
            let params = params::collect(spec.param_kind(), binding.spec().param_ref(), at).await;
            let ready = match params {
                Ok(params) if params.is_empty() => continue,
                Ok(params) => match versions.get(&known, at, object).await {
                    Ok(form) => Ok((params, form)),
                    Err(error) => Err(ParamsError::Object(error)),
                },
                Err(error) => Err(error),
            };
            let (params, form) = match ready {
                Ok(ready) => ready,
                Err(_) if rules.ignores_failure() => continue,
                Err(why) => {
                    let message = format!("{head} denied request: failed to configure binding: {why}");
                    refusals.push(Refusal { message, reason: "Invalid" });
                    continue;
                }
            };
            let (request, namespace) = (matching::request(at, &known), namespace(at).await);
            let kind = at.object_kind(&known);
            let (object, old) = (with_type_meta(&kind, &form.object), with_type_meta(&kind, &form.old));
            for params in &params {
                let facts = Facts {
                    request: &request,
                    object: &object,
                    old: &old,
                    namespace: &namespace,
                    params,
                    checks: &permissions.checks,
                    resource: &permissions.resource,
                };
                let outcome = permissions.answered(|| rules.evaluate_all(&facts)).await;
                for denial in outcome.denials {
                    enforce(&head, policy, *binding, denial, at, refusals);
                }
                for why in outcome.broken {
                    refusals.push(Refusal {
                        message: format!("{head} denied request: {why}"),
                        reason: "Invalid",
                    });
                }
                for (key, text) in outcome.audit_annotations {
                    let texts = audit_annotations.entry(key).or_default();
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
            }
        }
        for (key, texts) in audit_annotations {
            at.audit(format!("{}/{key}", policy.meta.name), texts.join(", "));
        }
    }
}

/// Policies do not apply to policies, so that a broken one can be removed, nor to reviews.
fn is_exempt(at: &Attributes<'_>) -> bool {
    match at.kind.group.as_str() {
        GROUP => !at.kind.plural.ends_with("webhookconfigurations"),
        "authentication.k8s.io" | "authorization.k8s.io" => true,
        _ => false,
    }
}

/// The name by which a policy, or a binding, knows the request, if it is about it.
async fn concerns(
    criteria: View<'_, v1::MatchResources>,
    at: &Attributes<'_>,
    object: &Value,
) -> Option<Named> {
    let rules = criteria.resource_rules();
    let known = if rules.is_empty() { Some(Named::of(at.kind)) } else { first(rules, criteria, at) }?;
    let about = first(criteria.exclude_resource_rules(), criteria, at).is_none()
        && matching::labelled(criteria.object_selector(), at, object)
        && matching::in_namespaces(criteria.namespace_selector(), at, object).await;
    about.then_some(known)
}

/// The name by which rules know the request.
fn first(
    rules: View<'_, List<v1::NamedRuleWithOperations>>,
    criteria: View<'_, v1::MatchResources>,
    at: &Attributes<'_>,
) -> Option<Named> {
    let named = |rule: &View<'_, v1::NamedRuleWithOperations>| {
        rule.resource_names().is_empty() || rule.resource_names().has(at.name)
    };
    let rules = rules.items().filter(named).map(|rule| rule.erased().as_type());
    let rules: Vec<View<'_, v1::RuleWithOperations>> = rules.collect();
    let policy = criteria.match_policy().text();
    matching::known(&rules, policy, &at.api.objects().registry, at.kind, &Subject::of(at))
}

/// The namespace that a namespaced object is in.
async fn namespace(at: &Attributes<'_>) -> Value {
    let own = at.kind.group.is_empty() && at.kind.plural == "namespaces";
    if own || at.namespace.is_empty() {
        return Value::Null;
    }
    at.find("", "namespaces", "", at.namespace).await.map_or(Value::Null, |namespace| namespace.value())
}

/// The object with `apiVersion` and `kind`.
fn with_type_meta(name: &Named, object: &Value) -> Value {
    let mut object = object.clone();
    if object.is_object() && !PartialObjectMetadata::of(&object).kind().is_set() {
        let mut root = PartialObjectMetadata::edit(&mut object);
        root.kind().set(&name.kind);
        root.api_version().set(name.api_version());
    }
    object
}

/// Applies the validation actions of a binding to a denial.
fn enforce(
    head: &str,
    policy: &Object,
    binding: View<'_, v1::ValidatingAdmissionPolicyBinding>,
    denial: Denial,
    at: &mut Attributes<'_>,
    refusals: &mut Vec<Refusal>,
) {
    let Denial { index, message, reason } = denial;
    let actions = binding.spec().validation_actions();
    for action in actions.texts() {
        match action {
            "Deny" => refusals.push(Refusal { message: format!("{head} denied request: {message}"), reason }),
            "Warn" => at.warnings.push(format!("Validation failed for {head}: {message}")),
            "Audit" => {
                let failure = json!([{"message": message, "policy": policy.meta.name, "expressionIndex": index,
                    "binding": binding.metadata().name(), "validationActions": actions}]);
                at.audit(FAILURE_NOTE, failure.to_string());
            }
            _ => {}
        }
    }
}

fn refused(at: &Attributes<'_>, refusal: Refusal) -> ApiError {
    let mut error = at.forbidden(&refusal.message);
    error.reason = refusal.reason;
    error.code = match refusal.reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    error.details.causes.push(FieldError::new("", "", refusal.message));
    error
}
