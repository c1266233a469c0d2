//! Label selectors as controllers hold them.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

/// A `metav1.LabelSelector`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    match_labels: Labels,
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl Selector {
    /// The selector of exactly these labels.
    pub fn of(labels: Labels) -> Self {
        Self { match_labels: labels, match_expressions: Vec::new() }
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether labels fit. An empty selector fits everything; an operator nobody knows fits nothing.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|v| self.values.contains(v)),
            "NotIn" => value.is_none_or(|v| !self.values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn operators() {
        let labels = Labels::from([("app".into(), "web".into())]);
        for (selector, fits) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}), true),
            (json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}), true),
        ] {
            let parsed: Selector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(parsed.matches(&labels), fits, "{selector}");
        }
    }
}
