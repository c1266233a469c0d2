//! Field rules of webhooks, admission policies and aggregated servers.

use super::field_errors::unique;
use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use super::meta;
use super::webhook_client::client_config;
use coracle_fields::admissionregistration::v1::{
    MatchCondition, MatchResources, MutatingWebhook, MutatingWebhookConfiguration, ParamKind, ParamRef,
    RuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Variable,
};
use coracle_fields::apiregistration::v1::APIService;
use coracle_fields::{List, Text};
use coracle_proto::names::{dns1035_label, dns1123_subdomain, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

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
    let resources = rule.resources();
    if resources.is_empty() {
        resources.required("");
    }
    for resource in resources.items().filter(|resource| resource.text().is_empty()) {
        resource.required("");
    }
    let has = |name: &str| resources.items().any(|resource| resource.text() == name);
    if resources.len() > 1 && has("*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources");
    }
    if has("*") && resources.items().any(|resource| resource.text() != "*" && !resource.text().contains('/'))
    {
        resources.invalid("if '*' is present, must not specify other resources without subresources");
    }
    if rule.scope().is_set() {
        rule.scope().one_of(&["*", "Cluster", "Namespaced"]);
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
            validations.required("validations or auditAnnotations must be non-empty");
            annotations.required("validations or auditAnnotations must be non-empty");
        }
        for validation in validations.items() {
            expression(&validation.expression(), "expression is not specified");
            if !validation.message_expression().text().trim().is_empty() {
                expression(&validation.message_expression(), "");
            }
            if !validation.reason().is_empty() {
                validation.reason().one_of(&[
                    "Forbidden",
                    "Invalid",
                    "RequestEntityTooLarge",
                    "Unauthorized",
                ]);
            }
        }
        unique(annotations.items().map(|annotation| annotation.key()));
        for annotation in annotations.items() {
            annotation.key().has_text("");
            expression(&annotation.value_expression(), "valueExpression is not specified");
        }
    });
}

pub(super) fn failure_policy(policy: &Field<'_, Text>) {
    if policy.is_set() {
        policy.one_of(&["Fail", "Ignore"]);
    } else {
        policy.required("");
    }
}

pub(super) fn param_kind(kind: &Field<'_, ParamKind>) {
    if kind.is_set() {
        kind.api_version().has_text("");
        kind.kind().has_text("");
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
    unique(list.items().map(|variable| variable.name()));
    for variable in list.items() {
        variable.name().has_text("name is not specified");
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
            operations(&rule.operations());
            admission_rule(&rule.as_type());
        }
    }
}

pub(super) fn param_ref(parameter: &Field<'_, ParamRef>) {
    if !parameter.is_set() {
        return;
    }
    match (!parameter.name().is_empty(), parameter.selector().is_set()) {
        (true, true) => parameter.name().forbidden("name and selector are mutually exclusive"),
        (false, false) => parameter.required("one of name or selector must be specified"),
        _ => {}
    }
    if parameter.parameter_not_found_action().is_set() {
        parameter.parameter_not_found_action().one_of(&["Deny", "Allow"]);
    } else {
        parameter.parameter_not_found_action().required("");
    }
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
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn hooks() {
        let hook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
        assert_eq!(errors(webhooks, &json!({"webhooks": [hook]})), [""; 0]);
        for (path, wrong) in
            [("", 0), ("/", 0), ("/a/b", 0), ("/a/", 0), ("a", 1), ("//", 1), ("/a//b", 1), ("/a?b", 1)]
        {
            let mut hook = hook.clone();
            hook["clientConfig"]["service"]["path"] = json!(path);
            assert_eq!(errors(webhooks, &json!({"webhooks": [hook]})).len(), wrong, "{path}");
        }
        let cases = [
            (
                "name",
                json!("short"),
                "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
            ),
            (
                "sideEffects",
                json!("Some"),
                "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
            ),
            (
                "clientConfig",
                json!({}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                "clientConfig",
                json!({"url": "http://x"}),
                "webhooks[0].clientConfig.url: Invalid value: \"http://x\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            (
                "timeoutSeconds",
                json!(31),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ),
            (
                "admissionReviewVersions",
                json!(["v2"]),
                "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
            ),
        ];
        for (field, value, expected) in cases {
            let mut bad = hook.clone();
            bad[field] = value;
            assert_eq!(errors(webhooks, &json!({"webhooks": [bad]})), [expected]);
        }
    }
}
