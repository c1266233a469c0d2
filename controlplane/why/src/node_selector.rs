//! Node selectors of volumes and of node affinity.

use coracle_fields::View;
use coracle_fields::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// Whether a node selector selects a node: one of its terms must match.
pub fn selects(selector: View<'_, NodeSelector>, node: View<'_, Node>) -> bool {
    selector.node_selector_terms().items().any(|term| term_selects(term, node))
}

fn term_selects(term: View<'_, NodeSelectorTerm>, node: View<'_, Node>) -> bool {
    if term.match_expressions().is_empty() && term.match_fields().is_empty() {
        return false;
    }
    let labels = node.metadata().labels();
    let name = node.metadata().name().text();
    let by_label = |r: View<'_, NodeSelectorRequirement>| holds(r, labels.key(r.key().text()).get());
    let by_field = |r: View<'_, NodeSelectorRequirement>| r.key() == "metadata.name" && holds(r, Some(name));
    term.match_expressions().items().all(by_label) && term.match_fields().items().all(by_field)
}

fn holds(requirement: View<'_, NodeSelectorRequirement>, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| requirement.values().has(value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = number(requirement.values().texts().next());
    match requirement.operator().text() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound).is_some_and(|(value, bound)| value > bound),
        "Lt" => number(value).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// A node selector in one line.
pub fn text_of(selector: View<'_, NodeSelector>) -> String {
    let terms = selector.node_selector_terms().items().map(|term| {
        let all = term.match_expressions().items().chain(term.match_fields().items());
        let all = all.map(|r| {
            let values: Vec<&str> = r.values().texts().collect();
            format!("{} {} {}", r.key().text(), r.operator().text(), values.join("|")).trim_end().to_owned()
        });
        all.collect::<Vec<_>>().join(" and ")
    });
    terms.collect::<Vec<_>>().join(", or ")
}
