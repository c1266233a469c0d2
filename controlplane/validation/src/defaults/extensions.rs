//! Defaults of webhooks, admission policies, custom resource definitions and aggregated servers.

use crate::tree::{Grow, Tree};
use serde_json::{Value, json};

/// A ValidatingWebhookConfiguration.
pub fn validating_webhooks(object: &mut Value) {
    object.each("webhooks", webhook);
}

/// A MutatingWebhookConfiguration.
pub fn mutating_webhooks(object: &mut Value) {
    object.each("webhooks", |hook| {
        webhook(hook);
        hook.default("reinvocationPolicy", "Never");
    });
}

fn webhook(hook: &mut Value) {
    hook.default("failurePolicy", "Fail");
    hook.default("timeoutSeconds", 10);
    matching(hook, "rules");
    if let Some(config) = hook.existing("clientConfig") {
        client_config(config);
    }
}

/// What a webhook or policy looks at.
fn matching(object: &mut Value, rules: &str) {
    object.default("matchPolicy", "Equivalent");
    object.section("namespaceSelector");
    object.section("objectSelector");
    object.each(rules, |rule| rule.default("scope", "*"));
}

fn client_config(config: &mut Value) {
    if let Some(service) = config.existing("service") {
        service.default("port", 443);
    }
}

/// A ValidatingAdmissionPolicy.
pub fn admission_policy(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("failurePolicy", "Fail");
    if let Some(constraints) = spec.existing("matchConstraints") {
        matching(constraints, "resourceRules");
        constraints.each("excludeResourceRules", |rule| rule.default("scope", "*"));
    }
}

/// A ValidatingAdmissionPolicyBinding.
pub fn policy_binding(object: &mut Value) {
    if let Some(resources) = object.section("spec").existing("matchResources") {
        matching(resources, "resourceRules");
        resources.each("excludeResourceRules", |rule| rule.default("scope", "*"));
    }
}

/// A CustomResourceDefinition.
pub fn definition(object: &mut Value) {
    let spec = object.section("spec");
    let names = spec.section("names");
    let kind = names.text("kind").to_owned();
    names.default("singular", kind.to_lowercase());
    if !kind.is_empty() {
        names.default("listKind", format!("{kind}List"));
    }
    let conversion = spec.section("conversion");
    conversion.default("strategy", "None");
    if let Some(config) = conversion.existing("webhook").and_then(|hook| hook.existing("clientConfig")) {
        client_config(config);
    }
    let stored = object.items("spec.versions").iter().find(|version| version.flag("storage"));
    let stored = stored.map(|version| version.text("name").to_owned());
    let status = object.section("status");
    if status.items("storedVersions").is_empty()
        && let Some(stored) = stored
    {
        status.put("storedVersions", json!([stored]));
    }
}

/// An APIService.
pub fn api_service(object: &mut Value) {
    client_config(object.section("spec"));
}
