//! Label selectors as controllers hold them.

use super::wire::Wire;
use coracle_fields::{fields, meta};
use coracle_kinds::object::Object;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

fields! {
    /// A `metav1.LabelSelector`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Selector: meta::LabelSelector {
        match_labels: Labels,
        match_expressions: Vec<Requirement>,
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Requirement: meta::LabelSelectorRequirement {
        key: String,
        operator: String,
        values: Vec<String>,
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Selecting {
    #[serde(deserialize_with = "either")]
    selector: Selector,
}

/// The selector of a workload; none when it cannot be read.
pub fn of_workload(object: &Object) -> Option<Selector> {
    object.typed::<Wire<Selecting>>().ok().map(|wire| wire.spec.selector)
}

/// A ReplicationController's selector is a plain map.
pub fn either<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Selector, D::Error> {
    let value = Value::deserialize(d)?;
    let structured = value.as_object().is_some_and(|map| map.values().all(|v| !v.is_string()));
    if structured {
        serde_json::from_value(value).map_err(serde::de::Error::custom)
    } else {
        Labels::deserialize(value).map(Selector::of).map_err(serde::de::Error::custom)
    }
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

    /// Whether labels match. An empty selector matches everything; an unknown operator matches nothing.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

/// As events upstream show one.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("&LabelSelector{MatchLabels:map[string]string{")?;
        self.match_labels.iter().try_for_each(|(key, value)| write!(f, "{key}: {value},"))?;
        f.write_str("},MatchExpressions:[]LabelSelectorRequirement{")?;
        for Requirement { key, operator, values } in &self.match_expressions {
            let values = values.join(" ");
            write!(f, "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")?;
        }
        f.write_str("},}")
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
    fn as_events_show_it() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]});
        let selector: Selector = serde_json::from_value(selector).unwrap();
        assert_eq!(
            selector.to_string(),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:c,Operator:In,Values:[d e],},},}"
        );
    }

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
