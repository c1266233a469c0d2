//! Node selectors: whether a node's labels and name satisfy them. Pure.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use std::collections::BTreeMap;

/// Whether any of the selector's terms matches; one without requirements matches nothing.
pub fn matches(selector: &NodeSelector, labels: &BTreeMap<String, String>, node: &str) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, labels, node))
}

fn term_matches(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, node: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|rule| rule_matches(rule, labels.get(&rule.key).map(String::as_str)))
        && fields.iter().all(|rule| rule.key == "metadata.name" && rule_matches(rule, Some(node)))
}

fn rule_matches(rule: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.iter().any(|other| other == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compare = |wanted: std::cmp::Ordering| {
        let (own, other) = (number(value), number(values.first().map(String::as_str)));
        own.zip(other).is_some_and(|(own, other)| own.cmp(&other) == wanted)
    };
    match rule.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(std::cmp::Ordering::Greater),
        "Lt" => compare(std::cmp::Ordering::Less),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn operators() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("n".to_owned(), "5".to_owned())]);
        for (rule, want) in [
            (json!({"key": "zone", "operator": "In", "values": ["a", "b"]}), true),
            (json!({"key": "zone", "operator": "NotIn", "values": ["a"]}), false),
            (json!({"key": "none", "operator": "NotIn", "values": ["a"]}), true),
            (json!({"key": "none", "operator": "DoesNotExist"}), true),
            (json!({"key": "zone", "operator": "Exists"}), true),
            (json!({"key": "n", "operator": "Gt", "values": ["4"]}), true),
            (json!({"key": "n", "operator": "Lt", "values": ["4"]}), false),
            (json!({"key": "zone", "operator": "Gt", "values": ["4"]}), false),
        ] {
            let selector: NodeSelector =
                serde_json::from_value(json!({"nodeSelectorTerms": [{"matchExpressions": [rule]}]})).unwrap();
            assert_eq!(matches(&selector, &labels, "node"), want, "{rule}");
        }
        let field: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": [{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}]})).unwrap();
        assert!(matches(&field, &labels, "node") && !matches(&field, &labels, "other"));
    }
}
