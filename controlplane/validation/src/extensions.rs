//! Field rules of webhooks, admission policies and aggregated servers.

use super::field_errors::unique;
use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use super::meta;
use super::webhook_client::client_config;
use coracle_expressions::names::is_reserved;
use coracle_fields::admissionregistration::v1::{
    AuditAnnotation, MatchCondition, MatchResources, MutatingWebhook, MutatingWebhookConfiguration,
    ParamKind, ParamRef, RuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    Validation, Variable,
};
use coracle_fields::apiregistration::v1::APIService;
use coracle_fields::{List, Text};
use coracle_proto::names::{c_identifier, dns1035_label, dns1123_subdomain, path_segment, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

/// How many annotations of the audit log a policy may have.
const AUDIT_ANNOTATIONS: usize = 20;
/// Longest expression of such an annotation, in bytes.
const AUDIT_EXPRESSION: usize = 5 << 10;

/// A webhook configuration of either kind; webhooks that mutate have all fields of those that validate.
pub fn webhooks(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<MutatingWebhookConfiguration>(object, errors, |root| {
        let webhooks = root.webhooks();
        unique(webhooks.items().map(|hook| hook.name()));
        webhooks.items().for_each(|hook| webhook(&hook));
    });
}

fn webhook(hook: &Field<'_, MutatingWebhook>) {
    qualified_domain(&hook.name());
    for rule in hook.rules().items() {
        operations(&rule.operations());
        admission_rule(&rule);
    }
    if hook.failure_policy().is_set() {
        hook.failure_policy().one_of(&["Fail", "Ignore"]);
    }
    if hook.match_policy().is_set() {
        hook.match_policy().one_of(&["Equivalent", "Exact"]);
    }
    if hook.reinvocation_policy().is_set() {
        hook.reinvocation_policy().one_of(&["IfNeeded", "Never"]);
    }
    let effects = hook.side_effects();
    if effects.is_set() {
        effects.one_of(&["None", "NoneOnDryRun"]);
    } else {
        effects.required("must specify one of None, NoneOnDryRun");
    }
    if hook.timeout_seconds().int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        hook.timeout_seconds().invalid("the timeout value must be between 1 and 30 seconds");
    }
    meta::selector(&hook.namespace_selector());
    meta::selector(&hook.object_selector());
    client_config(&hook.client_config());
    match_conditions(&hook.match_conditions());
    let versions = hook.admission_review_versions();
    if versions.is_empty() {
        return versions.required("must specify one of v1, v1beta1");
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if !seen.insert(version.text()) {
            version.invalid("duplicate version");
        }
        version.follows(dns1035_label);
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        versions.invalid("must include at least one of v1, v1beta1");
    }
}

/// A domain name of at least three parts.
pub(super) fn qualified_domain(name: &Field<'_, Text>) {
    if !name.has_text("") {
        return;
    }
    let wrong = dns1123_subdomain(name.text());
    if !wrong.is_empty() {
        name.all_good(wrong);
    } else if name.text().split('.').count() < 3 {
        name.invalid("should be a domain with at least three segments separated by dots");
    }
}

fn operations(list: &Field<'_, List<Text>>) {
    if list.is_empty() {
        list.required("");
    }
    if list.len() > 1 && list.items().any(|operation| operation.text() == "*") {
        list.invalid("if '*' is present, must not specify other operations");
    }
    list.items().for_each(|operation| operation.one_of(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]));
}

fn admission_rule(rule: &Field<'_, RuleWithOperations>) {
    for (list, what) in [(rule.api_groups(), "API groups"), (rule.api_versions(), "API versions")] {
        if list.is_empty() {
            list.required("");
        }
        if list.len() > 1 && list.items().any(|item| item.text() == "*") {
            list.invalid(format!("if '*' is present, must not specify other {what}"));
        }
    }
    for version in rule.api_versions().items().filter(|version| version.text().is_empty()) {
        version.required("");
    }
    admission_resources(&rule.resources());
    if rule.scope().is_set() {
        rule.scope().one_of(&["*", "Cluster", "Namespaced"]);
    }
}

fn admission_resources(resources: &Field<'_, List<Text>>) {
    if resources.is_empty() {
        resources.required("");
    }
    let (mut all_of_resource, mut of_all_resources) = (HashSet::<&str>::new(), HashSet::<&str>::new());
    for resource in resources.items() {
        let text = resource.text();
        if text.is_empty() {
            resource.required("");
        }
        let Some((name, sub)) = text.split_once('/') else { continue };
        if all_of_resource.contains(name) {
            resource.invalid(format!("if '{name}/*' is present, must not specify {text}"));
        }
        if of_all_resources.contains(sub) {
            resource.invalid(format!("if '*/{sub}' is present, must not specify {text}"));
        }
        if sub == "*" {
            all_of_resource.insert(name);
        }
        if name == "*" {
            of_all_resources.insert(sub);
        }
    }
    let has = |name: &str| resources.items().any(|resource| resource.text() == name);
    if resources.len() > 1 && has("*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources");
    }
    // Upstream only looks at the last one that has no subresource.
    let plain = resources.items().map(|resource| resource.text());
    let last = plain.filter(|text| !text.is_empty() && !text.contains('/')).last();
    if has("*") && last != Some("*") {
        resources.invalid("if '*' is present, must not specify other resources without subresources");
    }
}

pub(super) fn match_conditions(list: &Field<'_, List<MatchCondition>>) {
    if list.len() > 64 {
        list.too_many(64);
    }
    unique(list.items().map(|condition| condition.name()));
    for condition in list.items() {
        condition.name().named(qualified_name);
        expression(&condition.expression(), "");
    }
}

/// A CEL expression that parses. Its types are checked in `compiled`.
pub(super) fn expression(field: &Field<'_, Text>, detail: &str) {
    if field.text().trim().is_empty() {
        return field.required(detail);
    }
    if let Err(why) = coracle_expressions::compile(field.text()) {
        field.invalid(format!("compilation failed: {why}"));
    }
}

/// A ValidatingAdmissionPolicy.
pub fn admission_policy(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ValidatingAdmissionPolicy>(object, errors, |root| {
        let spec = root.spec();
        failure_policy(&spec.failure_policy());
        param_kind(&spec.param_kind());
        constraints(&spec.match_constraints());
        match_conditions(&spec.match_conditions());
        variables(&spec.variables());
        let (validations, annotations) = (spec.validations(), spec.audit_annotations());
        if validations.is_empty() && annotations.is_empty() {
            let why = "validations or auditAnnotations must contain at least one item";
            validations.required(why);
            annotations.required(why);
        }
        validations.items().for_each(|one| validation(&one));
        audit_annotations(root.view().metadata().name().text(), &annotations);
    });
}

fn validation(one: &Field<'_, Validation>) {
    expression(&one.expression(), "expression is not specified");
    let (message, said) = (one.message(), one.message_expression());
    if !said.text().trim().is_empty() {
        expression(&said, "");
    } else if !said.text().is_empty() {
        said.invalid("must be non-empty if specified");
    }
    let text = message.text().trim();
    if !message.text().is_empty() && text.is_empty() {
        message.invalid("must be non-empty if specified");
    } else if text.contains(['\n', '\r']) {
        message.invalid("must not contain line breaks");
    }
    if one.reason().is_set() {
        one.reason().one_of(&["Forbidden", "Invalid", "RequestEntityTooLarge"]);
    }
}

/// Annotations of the audit log, whose names begin with that of the policy.
fn audit_annotations(policy: &str, annotations: &Field<'_, List<AuditAnnotation>>) {
    if annotations.len() > AUDIT_ANNOTATIONS {
        annotations.invalid(format!("must not have more than {AUDIT_ANNOTATIONS} auditAnnotations"));
    }
    let mut keys = HashSet::new();
    for annotation in annotations.items() {
        let (key, value) = (annotation.key(), annotation.value_expression());
        if policy.is_empty() {
            key.invalid_as(key.text(), "requires metadata.name be non-empty");
        } else {
            let name = format!("{policy}/{}", key.text());
            for message in qualified_name(&name) {
                key.invalid_as(name.as_str(), message);
            }
        }
        if value.text().trim().len() > AUDIT_EXPRESSION {
            value.required(&format!("must not exceed {AUDIT_EXPRESSION} bytes in length"));
        } else {
            expression(&value, "valueExpression is not specified");
        }
        if !keys.insert(key.text()) {
            key.duplicate();
        }
    }
}

pub(super) fn failure_policy(policy: &Field<'_, Text>) {
    if policy.is_set() {
        policy.one_of(&["Fail", "Ignore"]);
    } else {
        policy.required("");
    }
}

pub(super) fn param_kind(of: &Field<'_, ParamKind>) {
    if !of.is_set() {
        return;
    }
    let (version, kind) = (of.api_version(), of.kind());
    if version.has_text("") {
        group_version(&version);
    }
    if kind.has_text("") {
        let wrong = dns1035_label(&kind.text().to_lowercase());
        if !wrong.is_empty() {
            let wrong = wrong.join(",");
            kind.invalid(format!("may have mixed case, but should otherwise match: {wrong}"));
        }
    }
}

fn group_version(field: &Field<'_, Text>) {
    let text = field.text();
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    if version.contains('/') {
        return field.invalid(format!("unexpected GroupVersion string: {text}"));
    }
    let wrong = if group.is_empty() { Vec::new() } else { dns1123_subdomain(group) };
    if !wrong.is_empty() {
        field.invalid_as(group, wrong.join(","));
    }
    let wrong = dns1035_label(version);
    if version.is_empty() {
        field.invalid("version must be specified");
    } else if !wrong.is_empty() {
        field.invalid_as(version, wrong.join(","));
    }
}

/// What a policy is about.
pub(super) fn constraints(resources: &Field<'_, MatchResources>) {
    if !resources.is_set() {
        return resources.required("");
    }
    matching(resources);
    if resources.resource_rules().is_empty() {
        resources.resource_rules().required("");
    }
}

pub(super) fn variables(list: &Field<'_, List<Variable>>) {
    for variable in list.items() {
        let name = variable.name();
        if name.text().trim().is_empty() {
            name.required("name is not specified");
        } else if !c_identifier(name.text()).is_empty() || is_reserved(name.text()) {
            name.invalid("must be a valid CEL identifier");
        }
        expression(&variable.expression(), "expression is not specified");
    }
}

pub(super) fn matching(resources: &Field<'_, MatchResources>) {
    if resources.match_policy().is_set() {
        resources.match_policy().one_of(&["Equivalent", "Exact"]);
    } else {
        resources.match_policy().required("");
    }
    meta::selector(&resources.namespace_selector());
    meta::selector(&resources.object_selector());
    for rules in [resources.resource_rules(), resources.exclude_resource_rules()] {
        for rule in rules.items() {
            let mut names = HashSet::new();
            for name in rule.resource_names().items() {
                name.follows(path_segment);
                if !names.insert(name.text()) {
                    name.duplicate();
                }
            }
            operations(&rule.operations());
            admission_rule(&rule.as_type());
        }
    }
}

pub(super) fn param_ref(parameter: &Field<'_, ParamRef>) {
    if !parameter.is_set() {
        return;
    }
    let (name, selector) = (parameter.name(), parameter.selector());
    name.follows(path_segment);
    meta::selector(&selector);
    match (!name.is_empty(), selector.is_set()) {
        (true, true) => {
            name.forbidden("name and selector are mutually exclusive");
            selector.forbidden("name and selector are mutually exclusive");
        }
        (false, false) => parameter.required("one of name or selector must be specified"),
        _ => {}
    }
    parameter.parameter_not_found_action().required_one_of(&["Deny", "Allow"]);
}

/// A ValidatingAdmissionPolicyBinding.
pub fn policy_binding(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ValidatingAdmissionPolicyBinding>(object, errors, |root| {
        let spec = root.spec();
        spec.policy_name().named(dns1123_subdomain);
        param_ref(&spec.param_ref());
        if spec.match_resources().is_set() {
            matching(&spec.match_resources());
        }
        let actions = spec.validation_actions();
        if actions.is_empty() {
            actions.required("");
        }
        let mut seen = HashSet::new();
        for action in actions.items() {
            action.one_of(&["Audit", "Deny", "Warn"]);
            if !seen.insert(action.text()) {
                action.duplicate();
            }
        }
        if seen.contains("Deny") && seen.contains("Warn") {
            actions.invalid("must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
        }
    });
}

/// An APIService.
pub fn api_service(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<APIService>(object, errors, |root| {
        let spec = root.spec();
        let (group, version) = (spec.view().group().text(), spec.view().version().text());
        let expected = format!("{version}.{group}");
        let name = root.metadata().name();
        if !name.text().is_empty() && name.text() != expected {
            name.invalid(format!("must be `spec.version+\".\"+spec.group`: {expected:?}"));
        }
        if group.is_empty() {
            if version != "v1" {
                spec.group().required("only v1 may have an empty group and it better be legacy kube");
            }
        } else {
            spec.group().follows(dns1123_subdomain);
        }
        for message in dns1035_label(version) {
            spec.version().invalid_as(version, message);
        }
        for (field, max) in [(spec.group_priority_minimum(), 20_000), (spec.version_priority(), 1000)] {
            let number = field.or(0);
            if number <= 0 || number > max {
                field.invalid_as(number, format!("must be positive and less than {max}"));
            }
        }
        let service = spec.service();
        if !service.is_set() {
            if !spec.ca_bundle().is_empty() {
                let length = spec.ca_bundle().text().len() * 3 / 4;
                spec.ca_bundle()
                    .invalid_as(format!("{length} bytes"), "local APIServices may not have a caBundle");
            }
            if spec.view().insecure_skip_tls_verify().flag() {
                spec.insecure_skip_tls_verify()
                    .invalid("local APIServices may not have insecureSkipTLSVerify");
            }
            return;
        }
        service.namespace().has_text("");
        service.name().has_text("");
        if spec.view().insecure_skip_tls_verify().flag() && !spec.ca_bundle().is_empty() {
            spec.insecure_skip_tls_verify().invalid("may not be true if caBundle is present");
        }
    });
}

#[cfg(test)]
mod tests;
