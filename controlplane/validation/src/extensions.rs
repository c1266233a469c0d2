//! Field rules of webhooks, admission policies, custom resource definitions and aggregated servers.

use super::conversion;
use super::field_ref::{FieldRef, walk};
use super::meta;
use crate::tree::Tree;
use coracle_proto::names::{dns1035_label, dns1123_subdomain, port_number, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;

/// A webhook configuration of either kind.
pub fn webhooks(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        root.at("webhooks").unique("name");
        root.each("webhooks").for_each(|hook| webhook(&hook));
    });
}

fn webhook(hook: &FieldRef<'_>) {
    qualified_domain(&hook.at("name"));
    for rule in hook.each("rules") {
        operations(&rule.at("operations"));
        admission_rule(&rule);
    }
    if hook.at("failurePolicy").is_set() {
        hook.at("failurePolicy").one_of(&["Fail", "Ignore"]);
    }
    if hook.at("matchPolicy").is_set() {
        hook.at("matchPolicy").one_of(&["Equivalent", "Exact"]);
    }
    if hook.at("reinvocationPolicy").is_set() {
        hook.at("reinvocationPolicy").one_of(&["IfNeeded", "Never"]);
    }
    let effects = hook.at("sideEffects");
    if effects.is_set() {
        effects.one_of(&["None", "NoneOnDryRun"]);
    } else {
        effects.required("must specify one of None, NoneOnDryRun");
    }
    if hook.at("timeoutSeconds").int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        hook.at("timeoutSeconds").invalid("the timeout value must be between 1 and 30 seconds");
    }
    meta::selector(&hook.at("namespaceSelector"));
    meta::selector(&hook.at("objectSelector"));
    client_config(&hook.at("clientConfig"));
    match_conditions(&hook.at("matchConditions"));
    let versions = hook.at("admissionReviewVersions");
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
fn qualified_domain(name: &FieldRef<'_>) {
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

fn operations(list: &FieldRef<'_>) {
    if list.is_empty() {
        list.required("");
    }
    if list.len() > 1 && list.items().any(|operation| operation.text() == "*") {
        list.invalid("if '*' is present, must not specify other operations");
    }
    list.items().for_each(|operation| operation.one_of(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]));
}

fn admission_rule(rule: &FieldRef<'_>) {
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = rule.at(field);
        if list.is_empty() {
            list.required("");
        }
        if list.len() > 1 && list.items().any(|item| item.text() == "*") {
            list.invalid(format!("if '*' is present, must not specify other {what}"));
        }
    }
    for version in rule.each("apiVersions").filter(|version| version.text().is_empty()) {
        version.required("");
    }
    let resources = rule.at("resources");
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
    if rule.at("scope").is_set() {
        rule.at("scope").one_of(&["*", "Cluster", "Namespaced"]);
    }
}

/// Where a webhook is.
pub(super) fn client_config(config: &FieldRef<'_>) {
    let (url, service) = (config.at("url"), config.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => web_address(&url),
        (false, true) => webhook_service(&service),
        _ => config.required("exactly one of url or service is required"),
    }
}

fn web_address(url: &FieldRef<'_>) {
    let form = "; desired format: https://host[/path]";
    let Some(rest) = url.text().strip_prefix("https://") else {
        return url.invalid(format!("'https' is the only allowed URL scheme{form}"));
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        url.invalid(format!("host must be specified{form}"));
    }
    if host.contains('@') {
        url.invalid("user information is not permitted in the URL");
    }
    if rest.contains('#') {
        url.invalid("fragments are not permitted in the URL");
    }
    if rest.contains('?') {
        url.invalid("query parameters are not permitted in the URL");
    }
}

fn webhook_service(service: &FieldRef<'_>) {
    service.at("name").has_text("service name is required");
    service.at("namespace").has_text("service namespace is required");
    let port = service.at("port").int().unwrap_or(443);
    let wrong = port_number(port);
    if !wrong.is_empty() {
        service.at("port").invalid(format!("port is not valid: {}", wrong.join(",")));
    }
    let path = service.at("path");
    service_path(&path);
}

/// The path of a webhook behind a Service; none, an empty one and `/` are the same.
fn service_path(path: &FieldRef<'_>) {
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return path.invalid("segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        path.invalid("must start with a '/'");
    }
    let mut segments: Vec<&str> = text.trim_start_matches('/').split('/').collect();
    if segments.last() == Some(&"") {
        segments.pop();
    }
    for (i, segment) in segments.into_iter().enumerate() {
        if segment.is_empty() {
            path.invalid(format!("segment[{i}] may not be empty"));
            continue;
        }
        for why in dns1123_subdomain(segment) {
            path.invalid(format!("segment[{i}]: {why}"));
        }
    }
}

fn match_conditions(list: &FieldRef<'_>) {
    if list.len() > 64 {
        list.too_many(64);
    }
    list.unique("name");
    for condition in list.items() {
        condition.at("name").named(qualified_name);
        expression(&condition.at("expression"), "");
    }
}

/// A CEL expression that parses.
pub(super) fn expression(field: &FieldRef<'_>, detail: &str) {
    if field.text().trim().is_empty() {
        return field.required(detail);
    }
    if let Err(why) = coracle_expressions::compile(field.text()) {
        field.invalid(format!("compilation failed: {why}"));
    }
}

/// A ValidatingAdmissionPolicy.
pub fn admission_policy(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        if !spec.at("failurePolicy").is_set() {
            spec.at("failurePolicy").required("");
        } else {
            spec.at("failurePolicy").one_of(&["Fail", "Ignore"]);
        }
        let kind = spec.at("paramKind");
        if kind.is_set() {
            kind.at("apiVersion").has_text("");
            kind.at("kind").has_text("");
        }
        let constraints = spec.at("matchConstraints");
        if constraints.is_set() {
            matching(&constraints);
            if constraints.at("resourceRules").is_empty() {
                constraints.at("resourceRules").required("");
            }
        } else {
            constraints.required("");
        }
        match_conditions(&spec.at("matchConditions"));
        spec.at("variables").unique("name");
        for variable in spec.each("variables") {
            variable.at("name").has_text("name is not specified");
            expression(&variable.at("expression"), "expression is not specified");
        }
        let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
        if validations.is_empty() && annotations.is_empty() {
            validations.required("validations or auditAnnotations must be non-empty");
            annotations.required("validations or auditAnnotations must be non-empty");
        }
        for validation in validations.items() {
            expression(&validation.at("expression"), "expression is not specified");
            if !validation.at("messageExpression").text().trim().is_empty() {
                expression(&validation.at("messageExpression"), "");
            }
            if !validation.at("reason").is_empty() {
                validation.at("reason").one_of(&[
                    "Forbidden",
                    "Invalid",
                    "RequestEntityTooLarge",
                    "Unauthorized",
                ]);
            }
        }
        annotations.unique("key");
        for annotation in annotations.items() {
            annotation.at("key").has_text("");
            expression(&annotation.at("valueExpression"), "valueExpression is not specified");
        }
    });
}

fn matching(resources: &FieldRef<'_>) {
    if resources.at("matchPolicy").is_set() {
        resources.at("matchPolicy").one_of(&["Equivalent", "Exact"]);
    } else {
        resources.at("matchPolicy").required("");
    }
    meta::selector(&resources.at("namespaceSelector"));
    meta::selector(&resources.at("objectSelector"));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in resources.each(list) {
            operations(&rule.at("operations"));
            admission_rule(&rule);
        }
    }
}

/// A ValidatingAdmissionPolicyBinding.
pub fn policy_binding(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        spec.at("policyName").named(dns1123_subdomain);
        let parameter = spec.at("paramRef");
        if parameter.is_set() {
            match (!parameter.at("name").is_empty(), parameter.at("selector").is_set()) {
                (true, true) => parameter.at("name").forbidden("name and selector are mutually exclusive"),
                (false, false) => parameter.required("one of name or selector must be specified"),
                _ => {}
            }
            if parameter.at("parameterNotFoundAction").is_set() {
                parameter.at("parameterNotFoundAction").one_of(&["Deny", "Allow"]);
            } else {
                parameter.at("parameterNotFoundAction").required("");
            }
        }
        if spec.at("matchResources").is_set() {
            matching(&spec.at("matchResources"));
        }
        let actions = spec.at("validationActions");
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

/// A CustomResourceDefinition; its schema is checked where schemas are understood.
pub fn definition(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let expected = format!("{}.{}", object.text("spec.names.plural"), object.text("spec.group"));
        let name = root.at("metadata.name");
        if !name.text().is_empty() && name.text() != expected {
            name.invalid("must be spec.names.plural+\".\"+spec.group");
        }
        let group = spec.at("group");
        if group.has_text("") {
            let wrong = dns1123_subdomain(group.text());
            if !wrong.is_empty() {
                group.invalid(wrong.join(","));
            } else if !group.text().contains('.') {
                group.invalid("should be a domain with at least one dot");
            }
        }
        spec.at("scope").required_one_of(&["Cluster", "Namespaced"]);
        versions(&spec.at("versions"));
        definition_names(&spec.at("names"));
        conversion::strategy(&spec);
        stored_versions(&root.at("status.storedVersions"), &spec.at("versions"));
    });
}

fn versions(list: &FieldRef<'_>) {
    let mut names = HashSet::new();
    let mut unique = true;
    for version in list.items() {
        unique &= names.insert(version.value.text("name"));
        let name = version.at("name");
        let wrong = dns1035_label(name.text());
        if !wrong.is_empty() {
            name.invalid_as(name.text(), wrong.join(","));
        }
        if !version.at("schema.openAPIV3Schema").is_set() {
            version.at("schema.openAPIV3Schema").required("");
        }
        let warning = version.at("deprecationWarning");
        if warning.is_set() && !version.value.flag("deprecated") {
            warning.invalid("can only be set for deprecated versions");
        }
        conversion::selectable(&version);
        for column in version.each("additionalPrinterColumns") {
            column.at("name").has_text("");
            column.at("type").required_one_of(&["integer", "number", "string", "boolean", "date"]);
            let path = column.at("jsonPath");
            if path.has_text("") && !path.text().starts_with('.') {
                path.invalid("must be a simple json path starting with .");
            }
        }
    }
    if !unique {
        list.invalid("must contain unique version names");
    }
    if list.items().filter(|version| version.value.flag("storage")).count() != 1 {
        list.invalid("must have exactly one version marked as storage version");
    }
}

fn definition_names(names: &FieldRef<'_>) {
    let mut resources = HashSet::new();
    for field in ["plural", "singular"] {
        let name = names.at(field);
        if name.has_text("") {
            let wrong = dns1035_label(name.text());
            if !wrong.is_empty() {
                name.invalid(wrong.join(","));
            }
            resources.insert(name.text());
        }
    }
    for name in names.each("shortNames").chain(names.each("categories")) {
        let wrong = dns1035_label(name.text());
        if !wrong.is_empty() {
            name.invalid(wrong.join(","));
        }
    }
    for field in ["kind", "listKind"] {
        let name = names.at(field);
        if name.has_text("") {
            let wrong = dns1035_label(&name.text().to_lowercase());
            if !wrong.is_empty() {
                name.invalid(format!("may have mixed case, but should otherwise match: {}", wrong.join(",")));
            }
        }
    }
    if !names.at("kind").is_empty() && names.value.at("kind") == names.value.at("listKind") {
        names.at("listKind").invalid("kind and listKind may not be the same");
    }
}

fn stored_versions(stored: &FieldRef<'_>, versions: &FieldRef<'_>) {
    if stored.is_empty() {
        return stored.with(&json!([])).invalid("must have at least one stored version");
    }
    let known: HashSet<&str> = versions.items().map(|version| version.value.text("name")).collect();
    for version in versions.items().filter(|version| version.value.flag("storage")) {
        if !stored.items().any(|name| name.value == version.value.at("name")) {
            stored.invalid(format!("must have the storage version {}", version.value.text("name")));
        }
    }
    for name in stored.items().filter(|name| !known.contains(name.text())) {
        name.invalid(format!(
            "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions",
            name.text()
        ));
    }
}

/// A definition that serves objects keeps its group, scope and names.
pub fn definition_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let spec = root.at("spec");
        spec.at("group").immutable(old.at("spec.group"));
        spec.at("names.plural").immutable(old.at("spec.names.plural"));
        let mut conditions = old.items("status.conditions").iter();
        if conditions.any(|c| c.text("type") == "Established" && c.text("status") == "True") {
            spec.at("scope").immutable(old.at("spec.scope"));
            spec.at("names.kind").immutable(old.at("spec.names.kind"));
        }
        conversion::authority(&spec, old);
    });
    super::schemas::changed(new, old, errors);
}

/// An APIService.
pub fn api_service(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let (group, version) = (object.text("spec.group"), object.text("spec.version"));
        let expected = format!("{version}.{group}");
        let name = root.at("metadata.name");
        if !name.text().is_empty() && name.text() != expected {
            name.invalid(format!("must be `spec.version+\".\"+spec.group`: {expected:?}"));
        }
        if group.is_empty() {
            if version != "v1" {
                spec.at("group").required("only v1 may have an empty group and it better be legacy kube");
            }
        } else {
            spec.at("group").follows(dns1123_subdomain);
        }
        for message in dns1035_label(version) {
            spec.at("version").invalid_as(version, message);
        }
        for (field, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let number = spec.value.int(field).unwrap_or_default();
            if number <= 0 || number > max {
                spec.at(field).invalid_as(number, format!("must be positive and less than {max}"));
            }
        }
        let service = spec.at("service");
        if !service.is_set() {
            if !spec.at("caBundle").is_empty() {
                let length = spec.at("caBundle").text().len() * 3 / 4;
                spec.at("caBundle")
                    .invalid_as(format!("{length} bytes"), "local APIServices may not have a caBundle");
            }
            if spec.value.flag("insecureSkipTLSVerify") {
                spec.at("insecureSkipTLSVerify")
                    .invalid("local APIServices may not have insecureSkipTLSVerify");
            }
            return;
        }
        service.at("namespace").has_text("");
        service.at("name").has_text("");
        if spec.value.flag("insecureSkipTLSVerify") && !spec.at("caBundle").is_empty() {
            spec.at("insecureSkipTLSVerify").invalid("may not be true if caBundle is present");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;

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

    #[test]
    fn definitions() {
        let mut object = json!({"metadata": {"name": "boats.demo.io"}, "spec": {"group": "demo.io", "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        crate::defaults::extensions::definition(&mut object);
        assert_eq!(errors(definition, &object), [""; 0]);
        object["metadata"]["name"] = json!("x");
        object["spec"]["versions"][0]["storage"] = json!(false);
        let wrong = errors(definition, &object);
        assert_eq!(
            wrong[0],
            "metadata.name: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group"
        );
        assert!(wrong[1].ends_with("must have exactly one version marked as storage version"));
    }
}
