//! Field rules of FlowSchemas and PriorityLevelConfigurations.

use super::field_ref::{Field, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use coracle_fields::flowcontrol::v1::{
    FlowSchema, LimitResponse, LimitedPriorityLevelConfiguration, PolicyRulesWithSubjects,
    PriorityLevelConfiguration, Subject,
};
use coracle_fields::{List, Text};
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

/// Most queues of a priority level.
const MAX_QUEUES: i64 = 10_000_000;
/// How many bits of the hash of a flow may choose its queues.
const HASH_BITS: f64 = 60.0;

/// A FlowSchema.
pub fn schema(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<FlowSchema>(object, errors, |root| {
        let spec = root.spec();
        let precedence = spec.matching_precedence();
        let number = precedence.or(0);
        if number <= 0 {
            precedence.invalid_as(number, "must be a positive value");
        }
        if number > 10_000 {
            precedence.invalid("must not be greater than 10000");
        }
        if number == 1 && root.view().metadata().name().text() != "exempt" {
            precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1");
        }
        if spec.distinguisher_method().is_set() {
            spec.distinguisher_method().type_().one_of(&["ByNamespace", "ByUser"]);
        }
        let level = spec.priority_level_configuration().name();
        if level.has_text("must reference a priority level") {
            level.follows(dns1123_subdomain);
        }
        spec.rules().items().for_each(|rule| rule_with_subjects(&rule));
    });
}

fn rule_with_subjects(rule: &Field<'_, PolicyRulesWithSubjects>) {
    if rule.subjects().is_empty() {
        rule.subjects().required("subjects must contain at least one value");
    }
    rule.subjects().items().for_each(|subject| flow_subject(&subject));
    if rule.resource_rules().is_empty() && rule.non_resource_rules().is_empty() {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for resources in rule.resource_rules().items() {
        verbs(&resources.verbs());
        let detail = "resource rules must supply at least one api group";
        some(&resources.api_groups(), detail, "api groups");
        some(&resources.resources(), "resource rules must supply at least one resource", "resources");
        let namespaces = resources.namespaces();
        if namespaces.is_empty() {
            if !resources.view().cluster_scope().flag() {
                namespaces.required(
                    "resource rules that are not cluster scoped must supply at least one namespace",
                );
            }
        } else {
            some(&namespaces, "", "namespaces");
            namespaces.items().filter(|name| name.text() != "*").for_each(|name| name.follows(dns1123_label));
        }
    }
    for urls in rule.non_resource_rules().items() {
        verbs(&urls.verbs());
        some(
            &urls.non_resource_urls(),
            "nonResourceURLs must contain at least one value",
            "non-resource URLs",
        );
        let paths = urls.non_resource_urls();
        if paths.items().all(|path| path.text() != "*") {
            paths.items().for_each(|path| url_path(&path));
        }
    }
}

/// A path of URLs; `*` may stand for what follows a slash at its end.
fn url_path(path: &Field<'_, Text>) {
    let text = path.text();
    if text.is_empty() {
        path.invalid_as("", "must not be empty");
    } else if !text.starts_with('/') {
        path.invalid("must start with slash");
    } else if text.contains(' ') {
        path.invalid("must not contain white-space");
    } else if text.contains("//") {
        path.invalid("must not contain double slash");
    } else if text.strip_suffix("/*").unwrap_or(text).contains('*') {
        path.invalid("wildcard can only do suffix matching");
    }
}

fn some(list: &Field<'_, List<Text>>, detail: &str, what: &str) {
    if list.is_empty() {
        list.required(detail);
    }
    if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        list.invalid(format!("if '*' is present, must not specify other {what}"));
    }
}

fn verbs(list: &Field<'_, List<Text>>) {
    some(list, "verbs must contain at least one value", "verbs");
    if list
        .items()
        .any(|verb| !VERBS.contains(&verb.text()) && !matches!(verb.text(), "put" | "head" | "options"))
    {
        list.unsupported(&VERBS[..11]);
    }
}

fn flow_subject(subject: &Field<'_, Subject>) {
    let kind = subject.kind();
    let (user, group, account) = (subject.user(), subject.group(), subject.service_account());
    let own_name = match kind.text() {
        "User" => user.name(),
        "Group" => group.name(),
        _ => account.name(),
    };
    let fields = [
        ("User", "user", user.erased()),
        ("Group", "group", group.erased()),
        ("ServiceAccount", "serviceAccount", account.erased()),
    ];
    let Some((name, field, own)) = fields.iter().find(|(name, ..)| *name == kind.text()) else {
        return kind.unsupported(&["Group", "ServiceAccount", "User"]);
    };
    if !own.is_set() {
        own.required(&format!("{field} is required when subject kind is '{name}'"));
    } else {
        own_name.has_text("");
        if *name == "ServiceAccount" {
            let namespace = subject.service_account().namespace();
            namespace.has_text("must specify namespace for service account");
        }
    }
    for (other_name, other, place) in fields.iter().filter(|(other, ..)| other != name) {
        if place.is_set() {
            place.forbidden(format!("{other} is forbidden when subject kind is not '{other_name}'"));
        }
    }
}

/// A PriorityLevelConfiguration.
pub fn level(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PriorityLevelConfiguration>(object, errors, |root| {
        let spec = root.spec();
        let kind = spec.type_();
        if (root.view().metadata().name().text() == "exempt") != (kind.text() == "Exempt") {
            kind.invalid("must be 'Exempt' if and only if `name` is 'exempt'");
        }
        let (limited, exempt) = (spec.limited(), spec.exempt());
        match kind.text() {
            "Exempt" => {
                if limited.is_set() {
                    limited.forbidden("must be nil if the type is not Limited");
                }
                shares(&exempt.as_type());
            }
            "Limited" => {
                if exempt.is_set() {
                    exempt.forbidden("must be nil if the type is Limited");
                }
                if limited.is_set() {
                    shares(&limited);
                    limit_response(&limited.limit_response());
                } else {
                    limited.required("must not be empty when type is Limited");
                }
            }
            _ => kind.unsupported(&["Exempt", "Limited"]),
        }
    });
}

fn shares(section: &Field<'_, LimitedPriorityLevelConfiguration>) {
    let nominal = section.nominal_concurrency_shares();
    if nominal.int().is_some_and(|count| count < 0) {
        nominal.invalid("must be a non-negative integer");
    }
    section.lendable_percent().in_range(0, 100);
    let borrowing = section.borrowing_limit_percent();
    if borrowing.int().is_some_and(|percent| percent < 0) {
        borrowing.invalid("if specified, must be a non-negative integer");
    }
}

fn limit_response(response: &Field<'_, LimitResponse>) {
    let queuing = response.queuing();
    match response.view().type_().text() {
        "Reject" => {
            if queuing.is_set() {
                queuing.forbidden("must be nil if limited.limitResponse.type is not Limited");
            }
        }
        "Queue" => {
            if !queuing.is_set() {
                return queuing.required("must not be empty if limited.limitResponse.type is Limited");
            }
            let (hand, queues) = (queuing.hand_size(), queuing.queues());
            for field in [&hand, &queues, &queuing.queue_length_limit()] {
                if field.int().is_some_and(|number| number <= 0) {
                    field.invalid("must be positive");
                }
            }
            let (cards, deck) = (hand.or(0), queues.or(0));
            if deck > MAX_QUEUES {
                queues.invalid(format!("must not be greater than {MAX_QUEUES}"));
            }
            if cards > 0 && cards > deck {
                hand.invalid(format!("should not be greater than queues ({deck})"));
            } else if cards > 0 && entropy_bits(deck, cards) > HASH_BITS {
                hand.invalid(format!(
                    "required entropy bits of deckSize {deck} and handSize {cards} should not be greater than {HASH_BITS}"
                ));
            }
        }
        _ => response.type_().unsupported(&["Queue", "Reject"]),
    }
}

/// How many bits of a hash it takes to choose a hand of queues.
fn entropy_bits(deck: i64, hand: i64) -> f64 {
    // Both are numbers of 32 bits, which have no rounded form.
    ((deck as f64).log2() * hand as f64).ceil()
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

    #[test]
    fn paths_of_urls() {
        for (path, why) in [
            ("*", ""),
            ("/", ""),
            ("/*", ""),
            ("/a/b", ""),
            ("/a/*", ""),
            ("/a/", ""),
            ("", "must not be empty"),
            ("x", "must start with slash"),
            ("/a b", "must not contain white-space"),
            ("/x//", "must not contain double slash"),
            ("/a/*/b", "wildcard can only do suffix matching"),
            ("/a*", "wildcard can only do suffix matching"),
            ("/*/*", "wildcard can only do suffix matching"),
        ] {
            let object = json!({"metadata": {"name": "a"}, "spec": {"matchingPrecedence": 5,
                "priorityLevelConfiguration": {"name": "l"}, "rules": [{
                    "subjects": [{"kind": "Group", "group": {"name": "g"}}],
                    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": [path]}]}]}});
            let place = "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]";
            let wanted = format!("{place}: Invalid value: {path:?}: {why}");
            let wanted = if why.is_empty() { Vec::new() } else { vec![wanted] };
            assert_eq!(errors(schema, &object), wanted, "{path}");
        }
    }

    #[test]
    fn hands_and_decks() {
        for (hand, queues, why) in [
            (8, 64, ""),
            (10, 64, ""),
            (1, 10_000_000, ""),
            (
                11,
                64,
                "handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be greater than 60",
            ),
            (100, 64, "handSize: Invalid value: 100: should not be greater than queues (64)"),
            (0, 64, "handSize: Invalid value: 0: must be positive"),
            (1, 20_000_000, "queues: Invalid value: 20000000: must not be greater than 10000000"),
        ] {
            let queuing = json!({"handSize": hand, "queues": queues, "queueLengthLimit": 5});
            let object = json!({"metadata": {"name": "x"}, "spec": {"type": "Limited",
                "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}}});
            let wanted = format!("spec.limited.limitResponse.queuing.{why}");
            let wanted = if why.is_empty() { Vec::new() } else { vec![wanted] };
            assert_eq!(errors(level, &object), wanted, "{hand} of {queues}");
        }
    }
}
