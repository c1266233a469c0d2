//! Defaults of webhooks, admission policies, custom resource definitions and aggregated servers.

use coracle_fields::admissionregistration::v1::{
    MatchResources, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use coracle_fields::apiextensions::v1::CustomResourceDefinition;
use coracle_fields::apiregistration::v1::APIService;
use coracle_fields::{Edit, Schema};
use serde_json::Value;

/// Port of a Service that serves webhooks or an API.
const HTTPS: i32 = 443;

/// A ValidatingWebhookConfiguration.
pub fn validating_webhooks(object: &mut Value) {
    ValidatingWebhookConfiguration::edit(object).webhooks().each_object(webhook);
}

/// A MutatingWebhookConfiguration, whose webhooks have all fields of validating ones.
pub fn mutating_webhooks(object: &mut Value) {
    validating_webhooks(object);
    MutatingWebhookConfiguration::edit(object)
        .webhooks()
        .each_object(|mut hook| hook.reinvocation_policy().default("Never"));
}

fn webhook(mut hook: Edit<'_, ValidatingWebhook>) {
    hook.failure_policy().default("Fail");
    hook.timeout_seconds().default(10);
    hook.match_policy().default("Equivalent");
    hook.namespace_selector().section();
    hook.object_selector().section();
    hook.rules().each_object(|mut rule| rule.scope().default("*"));
    if let Some(mut service) = hook.client_config().service().existing() {
        service.port().default(HTTPS);
    }
}

/// What a policy or its binding looks at.
fn matching(resources: Edit<'_, MatchResources>) {
    let Some(mut resources) = resources.existing() else { return };
    resources.match_policy().default("Equivalent");
    resources.namespace_selector().section();
    resources.object_selector().section();
    resources.resource_rules().each_object(|mut rule| rule.scope().default("*"));
    resources.exclude_resource_rules().each_object(|mut rule| rule.scope().default("*"));
}

/// A MutatingAdmissionPolicy.
pub fn mutating_policy(object: &mut Value) {
    let mut policy = MutatingAdmissionPolicy::edit(object);
    let mut spec = policy.spec().section();
    spec.failure_policy().default("Fail");
    matching(spec.match_constraints());
}

/// A MutatingAdmissionPolicyBinding.
pub fn mutating_policy_binding(object: &mut Value) {
    let mut binding = MutatingAdmissionPolicyBinding::edit(object);
    matching(binding.spec().section().match_resources());
}

/// A ValidatingAdmissionPolicy.
pub fn admission_policy(object: &mut Value) {
    let mut policy = ValidatingAdmissionPolicy::edit(object);
    let mut spec = policy.spec().section();
    spec.failure_policy().default("Fail");
    matching(spec.match_constraints());
}

/// A ValidatingAdmissionPolicyBinding.
pub fn policy_binding(object: &mut Value) {
    let mut binding = ValidatingAdmissionPolicyBinding::edit(object);
    matching(binding.spec().section().match_resources());
}

/// A CustomResourceDefinition.
pub fn definition(object: &mut Value) {
    let mut definition = CustomResourceDefinition::edit(object);
    let mut spec = definition.spec().section();
    let mut names = spec.names().section();
    let kind = names.view().kind().text().to_owned();
    names.singular().default(kind.to_lowercase());
    if !kind.is_empty() {
        names.list_kind().default(format!("{kind}List"));
    }
    let mut conversion = spec.conversion().section();
    conversion.strategy().default("None");
    if let Some(mut service) = conversion.webhook().client_config().service().existing() {
        service.port().default(HTTPS);
    }
    let mut versions = spec.view().versions().items();
    let stored = versions.find(|version| version.storage().flag());
    let stored = stored.map(|version| version.name().text().to_owned());
    let mut status = definition.status().section();
    if status.view().stored_versions().is_empty()
        && let Some(stored) = stored
    {
        status.stored_versions().set([stored]);
    }
}

/// An APIService.
pub fn api_service(object: &mut Value) {
    let mut service = APIService::edit(object);
    let mut spec = service.spec().section();
    if let Some(mut service) = spec.service().existing() {
        service.port().default(HTTPS);
    }
}
