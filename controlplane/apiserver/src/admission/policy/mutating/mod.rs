//! MutatingAdmissionPolicy: changes to objects in CEL. A policy has no effect without a binding, which selects resources and
//! parameters. Policies are applied in the order of their names, each to the object that those before it left.

// The expressions of one policy.
mod mutations;
// Applies what an expression evaluated to.
mod patch;

use super::compiled::Compiled;
use super::params::{self, ParamsError};
use super::scope::{Facts, RuleError};
use super::{GROUP, concerns, is_exempt, namespace, with_type_meta};
use crate::admission::permission_checks::PermissionChecks;
use crate::admission::phases::{NOTABLE, record};
use crate::admission::versioned::{self, VersionedRequests};
use crate::admission::webhook::matching;
use crate::admission::{Attributes, Operation, Phase, Plugin};
use crate::authz::Authorizer;
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_expressions::PatchError;
use coracle_fields::admissionregistration::v1;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Doc, Schema as _, View};
use coracle_kinds::object::Object;
use coracle_kinds::registry::equivalent::Named;
use coracle_proto::status::{ApiError, FieldError};
use coracle_trace::{Stage, is_detailed};
use mutations::Mutations;
use patch::{ApplyError, Target};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

const POLICIES: &str = "mutatingadmissionpolicies";
const BINDINGS: &str = "mutatingadmissionpolicybindings";

/// The plugin; it keeps the compiled policies.
pub struct MutatingAdmissionPolicy {
    compiled: Compiled<Mutations>,
    authz: Arc<dyn Authorizer>,
}

/// Why a policy does not change an object that it is about. Its failure policy decides whether the request goes on.
#[derive(Debug, thiserror::Error)]
enum MutationError {
    #[error("failed to configure binding: {0}")]
    Binding(#[from] ParamsError),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Conditions(Vec<RuleError>),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Patch(#[from] PatchError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Failures that the failure policy does not ignore.
#[derive(Default)]
struct Failures {
    messages: Vec<String>,
    /// Whether the first of them is about the binding and not about the object.
    configuration: bool,
}

/// One policy with a binding, for one request.
struct Invocation<'a> {
    policy: &'a Object,
    binding: View<'a, v1::MutatingAdmissionPolicyBinding>,
    mutations: &'a Mutations,
    /// The name by which the policy knows the request.
    known: &'a Named,
    permissions: &'a PermissionChecks<'a>,
}

#[async_trait]
impl Plugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    /// A delete has no object that could be changed.
    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate
            && at.operation != Operation::Delete
            && !is_exempt(at)
            && at.has_any(GROUP, BINDINGS)
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        if object.is_null() || is_exempt(at) {
            return Ok(());
        }
        // Where there are no policies, a write does not pay for the size of what applying them takes.
        Box::pin(self.apply_all(at, object)).await
    }
}

impl MutatingAdmissionPolicy {
    /// The plugin; expressions ask the authorizers.
    pub fn new(authz: Arc<dyn Authorizer>) -> Self {
        Self { compiled: Compiled::default(), authz }
    }

    async fn apply_all(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        let mut bindings = at.cached(GROUP, BINDINGS, None);
        bindings.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        let bindings: Vec<Doc<'_>> = bindings.iter().map(|binding| binding.doc()).collect();
        let mut policies = at.cached(GROUP, POLICIES, None);
        policies.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        let permissions = PermissionChecks::new(&*self.authz, at);
        let mut failures = Failures::default();
        at.reinvocation.policies.begin(object);
        for policy in &policies {
            let all = bindings.iter().map(|binding| binding.view::<v1::MutatingAdmissionPolicyBinding>());
            let bound: Vec<_> =
                all.filter(|binding| binding.spec().policy_name() == policy.meta.name).collect();
            if !bound.is_empty() {
                let (begun, before) = (Instant::now(), failures.messages.len());
                let applied = self.apply(policy, &bound, at, object, (&permissions, &mut failures)).await;
                let failed = applied.is_err() || failures.messages.len() > before;
                if failed || begun.elapsed() >= NOTABLE || is_detailed() {
                    record(Stage::MutatingPolicy, &policy.meta.name, begun, failed);
                }
                applied?;
            }
        }
        at.reinvocation.policies.end(object);
        failures.refusal(at).map_or(Ok(()), Err)
    }

    /// Applies a policy with each of its bindings.
    async fn apply(
        &self,
        policy: &Object,
        bindings: &[View<'_, v1::MutatingAdmissionPolicyBinding>],
        at: &mut Attributes<'_>,
        object: &mut Value,
        (permissions, failures): (&PermissionChecks<'_>, &mut Failures),
    ) -> Result<(), ApiError> {
        let doc = policy.doc();
        let spec = doc.view::<v1::MutatingAdmissionPolicy>().spec();
        let Some(known) = concerns(spec.match_constraints(), at, object).await else { return Ok(()) };
        let mutations = self.compiled.get(policy, || Mutations::of(spec));
        for binding in bindings {
            let wanted = binding.spec().match_resources();
            if wanted.is_object() && concerns(wanted, at, object).await.is_none() {
                continue;
            }
            let invocation =
                Invocation { policy, binding: *binding, mutations: &mutations, known: &known, permissions };
            match params::collect(spec.param_kind(), binding.spec().param_ref(), at).await {
                Ok(all) => {
                    for params in &all {
                        invocation.run(at, object, params, failures).await?;
                    }
                }
                Err(why) => failures.add(&invocation, &why.into()),
            }
        }
        Ok(())
    }
}

impl Invocation<'_> {
    /// Applies the mutations with one parameter object. The error is an answer that no failure policy changes.
    async fn run(
        &self,
        at: &mut Attributes<'_>,
        object: &mut Value,
        params: &Value,
        failures: &mut Failures,
    ) -> Result<(), ApiError> {
        let key = self.key(params);
        if at.reinvocation.policies.skips(&key) {
            return Ok(());
        }
        let (request, space) = (matching::request(at, self.known), namespace(at).await);
        let kind = at.object_kind(self.known);
        let form = VersionedRequests::default();
        let (before, old) = match form.get(self.known, at, object).await {
            Ok(form) => (with_type_meta(&kind, &form.object), with_type_meta(&kind, &form.old)),
            Err(error) => {
                failures.add(self, &ParamsError::Object(error).into());
                return Ok(());
            }
        };
        let permissions = self.permissions;
        let facts = Facts {
            request: &request,
            object: &before,
            old: &old,
            namespace: &space,
            params,
            checks: &permissions.checks,
            resource: &permissions.resource,
        };
        match permissions.answered(|| self.mutations.wanted(&facts)).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(errors) => {
                failures.add(self, &MutationError::Conditions(errors));
                return Ok(());
            }
        }
        let target = Target::new(at, self.known, &kind);
        let mut now = before.clone();
        for index in 0..self.mutations.len() {
            let facts = Facts { object: &now, ..facts };
            let patch = permissions.answered(|| self.mutations.patch(index, &facts)).await;
            match patch {
                Ok((form, patch)) => match target.apply(form, patch, &now) {
                    Ok(changed) => now = changed,
                    Err(ApplyError::Unfit(error)) => return Err(error),
                    Err(why) => failures.add(self, &why.into()),
                },
                Err(why) => failures.add(self, &why),
            }
        }
        let changed = now != before;
        if changed {
            *object = versioned::convert_back(self.known, at, now).await?;
        }
        at.reinvocation.policies.invoked(key, changed, self.mutations.reinvokes());
        if changed {
            at.reinvocation.needed();
        }
        Ok(())
    }

    /// What tells invocations of one request apart.
    fn key(&self, params: &Value) -> String {
        let params = PartialObjectMetadata::of(params).metadata();
        let binding = self.binding.metadata().name().text();
        let (namespace, name) = (params.namespace().text(), params.name().text());
        format!("{}/{binding}/{namespace}/{name}", self.policy.meta.name)
    }
}

impl Failures {
    fn add(&mut self, of: &Invocation<'_>, why: &MutationError) {
        if of.mutations.ignores_failure() {
            let binding = of.binding.metadata().name().text();
            tracing::warn!(policy = of.policy.meta.name.as_str(), binding, why = %causes::chain(why), "mutating policy failed and is ignored");
            return;
        }
        if self.messages.is_empty() {
            self.configuration = matches!(why, MutationError::Binding(_));
        }
        let (policy, binding) = (&of.policy.meta.name, of.binding.metadata().name().text());
        self.messages.push(format!("policy '{policy}' with binding '{binding}' denied request: {why}"));
    }

    /// The answer, with the first failure as its message and all of them as causes.
    fn refusal(self, at: &Attributes<'_>) -> Option<ApiError> {
        let mut error = at.forbidden("");
        error.message = self.messages.first()?.clone();
        if !self.configuration {
            error.reason = "Invalid";
        }
        error.details.causes =
            self.messages.into_iter().map(|message| FieldError::new("", "", message)).collect();
        Some(error)
    }
}
