//! Node selectors: which nodes their terms match.

use super::node::NodeInfo;
use super::wire::{NodeRequirement, NodeSelector, NodeTerm};

/// Whether any term of a selector matches the node.
pub fn selects(selector: &NodeSelector, node: &NodeInfo) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

/// Whether all of a term matches; an empty one matches nothing.
pub fn term_matches(term: &NodeTerm, node: &NodeInfo) -> bool {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return false;
    }
    let label = |r: &NodeRequirement| holds(r, node.labels.get(&r.key).map(String::as_str));
    let field = |r: &NodeRequirement| r.key == "metadata.name" && holds(r, Some(&node.name));
    term.match_expressions.iter().all(label) && term.match_fields.iter().all(field)
}

fn holds(requirement: &NodeRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|v| v == value);
    let compare = |order: std::cmp::Ordering| {
        let bound: Option<i64> = requirement.values.first().and_then(|v| v.parse().ok());
        let value: Option<i64> = value.and_then(|v| v.parse().ok());
        matches!((value, bound), (Some(value), Some(bound)) if value.cmp(&bound) == order)
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(std::cmp::Ordering::Greater),
        "Lt" => compare(std::cmp::Ordering::Less),
        _ => false,
    }
}
