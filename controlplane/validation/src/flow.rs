//! Field rules of FlowSchemas and PriorityLevelConfigurations.

use super::field_ref::{FieldRef, walk};
use crate::tree::Tree;
use coracle_proto::names::{dns1123_label, dns1123_subdomain};
use coracle_proto::status::FieldError;
use serde_json::Value;

const VERBS: [&str; 12] = [
    "*",
    "connect",
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
    "post",
];

/// A FlowSchema.
pub fn schema(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let precedence = spec.at("matchingPrecedence");
        let number = precedence.int().unwrap_or_default();
        if number <= 0 {
            precedence.invalid_as(number, "must be a positive value");
        }
        if number > 10_000 {
            precedence.invalid("must not be greater than 10000");
        }
        if number == 1 && object.text("metadata.name") != "exempt" {
            precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1");
        }
        if spec.at("distinguisherMethod").is_set() {
            spec.at("distinguisherMethod.type").one_of(&["ByNamespace", "ByUser"]);
        }
        let level = spec.at("priorityLevelConfiguration.name");
        if level.has_text("must reference a priority level") {
            level.follows(dns1123_subdomain);
        }
        spec.each("rules").for_each(|rule| rule_with_subjects(&rule));
    });
}

fn rule_with_subjects(rule: &FieldRef<'_>) {
    if rule.at("subjects").is_empty() {
        rule.at("subjects").required("subjects must contain at least one value");
    }
    rule.each("subjects").for_each(|subject| flow_subject(&subject));
    if rule.at("resourceRules").is_empty() && rule.at("nonResourceRules").is_empty() {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for resources in rule.each("resourceRules") {
        verbs(&resources.at("verbs"));
        for (field, detail, what) in [
            ("apiGroups", "resource rules must supply at least one api group", "api groups"),
            ("resources", "resource rules must supply at least one resource", "resources"),
        ] {
            some(&resources.at(field), detail, what);
        }
        let namespaces = resources.at("namespaces");
        if namespaces.is_empty() {
            if !resources.value.flag("clusterScope") {
                namespaces.required(
                    "resource rules that are not cluster scoped must supply at least one namespace",
                );
            }
        } else {
            some(&namespaces, "", "namespaces");
            namespaces.items().filter(|name| name.text() != "*").for_each(|name| name.follows(dns1123_label));
        }
    }
    for urls in rule.each("nonResourceRules") {
        verbs(&urls.at("verbs"));
        some(
            &urls.at("nonResourceURLs"),
            "nonResourceURLs must contain at least one value",
            "non-resource URLs",
        );
    }
}

fn some(list: &FieldRef<'_>, detail: &str, what: &str) {
    if list.is_empty() {
        list.required(detail);
    }
    if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        list.invalid(format!("if '*' is present, must not specify other {what}"));
    }
}

fn verbs(list: &FieldRef<'_>) {
    some(list, "verbs must contain at least one value", "verbs");
    if list
        .items()
        .any(|verb| !VERBS.contains(&verb.text()) && !matches!(verb.text(), "put" | "head" | "options"))
    {
        list.unsupported(&VERBS[..11]);
    }
}

fn flow_subject(subject: &FieldRef<'_>) {
    let kind = subject.at("kind");
    let fields = [("User", "user"), ("Group", "group"), ("ServiceAccount", "serviceAccount")];
    let Some((name, field)) = fields.iter().find(|(name, _)| *name == kind.text()) else {
        return kind.unsupported(&["Group", "ServiceAccount", "User"]);
    };
    let own = subject.at(field);
    if !own.is_set() {
        own.required(&format!("{field} is required when subject kind is '{name}'"));
    } else {
        own.at("name").has_text("");
        if *field == "serviceAccount" {
            own.at("namespace").has_text("must specify namespace for service account");
        }
    }
    for (other_name, other) in fields.iter().filter(|(other, _)| other != name) {
        if subject.at(other).is_set() {
            subject
                .at(other)
                .forbidden(format!("{other} is forbidden when subject kind is not '{other_name}'"));
        }
    }
}

/// A PriorityLevelConfiguration.
pub fn level(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let kind = spec.at("type");
        if (object.text("metadata.name") == "exempt") != (kind.text() == "Exempt") {
            kind.invalid("must be 'Exempt' if and only if `name` is 'exempt'");
        }
        let (limited, exempt) = (spec.at("limited"), spec.at("exempt"));
        match kind.text() {
            "Exempt" => {
                if limited.is_set() {
                    limited.forbidden("must be nil if the type is not Limited");
                }
                shares(&exempt);
            }
            "Limited" => {
                if exempt.is_set() {
                    exempt.forbidden("must be nil if the type is Limited");
                }
                if limited.is_set() {
                    shares(&limited);
                    limit_response(&limited.at("limitResponse"));
                } else {
                    limited.required("must not be empty when type is Limited");
                }
            }
            _ => kind.unsupported(&["Exempt", "Limited"]),
        }
    });
}

fn shares(section: &FieldRef<'_>) {
    let nominal = section.at("nominalConcurrencyShares");
    if nominal.int().is_some_and(|count| count < 0) {
        nominal.invalid("must be a non-negative integer");
    }
    section.at("lendablePercent").in_range(0, 100);
    let borrowing = section.at("borrowingLimitPercent");
    if borrowing.int().is_some_and(|percent| percent < 0) {
        borrowing.invalid("if specified, must be a non-negative integer");
    }
}

fn limit_response(response: &FieldRef<'_>) {
    let queuing = response.at("queuing");
    match response.value.text("type") {
        "Reject" => {
            if queuing.is_set() {
                queuing.forbidden("must be nil if limited.limitResponse.type is not Limited");
            }
        }
        "Queue" => {
            if !queuing.is_set() {
                return queuing.required("must not be empty if limited.limitResponse.type is Limited");
            }
            let (hand, queues) = (queuing.at("handSize"), queuing.at("queues"));
            for field in [&hand, &queues, &queuing.at("queueLengthLimit")] {
                if field.int().is_some_and(|number| number <= 0) {
                    field.invalid("must be positive");
                }
            }
            if hand.int() > queues.int() {
                hand.invalid(format!(
                    "should not be greater than queues ({})",
                    queues.int().unwrap_or_default()
                ));
            }
        }
        _ => response.at("type").unsupported(&["Queue", "Reject"]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_and_levels() {
        let rule = json!({"subjects": [{"kind": "Group", "group": {"name": "g"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]});
        let good = json!({"metadata": {"name": "a"}, "spec": {"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "l"}, "rules": [rule]}});
        assert_eq!(errors(schema, &good), [""; 0]);
        assert_eq!(
            errors(
                schema,
                &json!({"metadata": {"name": "a"}, "spec": {"matchingPrecedence": 1, "priorityLevelConfiguration": {}}})
            ),
            [
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ]
        );
        assert_eq!(
            errors(level, &json!({"metadata": {"name": "x"}, "spec": {"type": "Limited"}})),
            ["spec.limited: Required value: must not be empty when type is Limited"]
        );
    }
}
