//! Which requests the LimitRanges of a namespace allow in a container that names neither request nor limit of a resource.

use coracle_fields::core::v1::LimitRange;
use coracle_fields::{Amount, Map, View};
use coracle_kinds::registry::usage::quantity;
use coracle_proto::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet};

/// The bounds, by resource name.
#[derive(Debug, Default)]
pub(super) struct RequestBounds {
    /// The largest amount: that of the limit which the container gets, or of any limit that it may have.
    most: BTreeMap<String, Quantity>,
    /// The smallest amount.
    least: BTreeMap<String, Quantity>,
    /// Resources with rules that more than the request of one container decides about.
    undecided: BTreeSet<String>,
}

impl RequestBounds {
    /// Those of all LimitRanges of a namespace together.
    pub(super) fn of<'a>(ranges: impl Iterator<Item = View<'a, LimitRange>>) -> Self {
        let mut bounds = Self::default();
        for item in ranges.flat_map(|range| range.spec().limits().items()) {
            match item.type_().text() {
                "Container" => {
                    for (name, amount) in amounts(item.default_()).chain(amounts(item.max())) {
                        let most = bounds.most.entry(name).or_insert_with(|| amount.clone());
                        *most = amount.min(most.clone());
                    }
                    for (name, amount) in amounts(item.min()) {
                        let least = bounds.least.entry(name).or_insert_with(|| amount.clone());
                        *least = amount.max(least.clone());
                    }
                }
                "Pod" => bounds.undecided.extend(amounts(item.min()).map(|(name, _)| name)),
                _ => continue,
            }
            bounds.undecided.extend(amounts(item.max_limit_request_ratio()).map(|(name, _)| name));
        }
        bounds
    }

    /// The allowed amount that is nearest; `None` if that is for the LimitRanges to say.
    pub(super) fn nearest(&self, resource: &str, amount: &str) -> Option<String> {
        let (least, most) = (self.least.get(resource), self.most.get(resource));
        let is_contradictory = least.zip(most).is_some_and(|(least, most)| least > most);
        if self.undecided.contains(resource) || is_contradictory {
            return None;
        }
        let wanted: Quantity = amount.parse().ok()?;
        let bound = match (least, most) {
            (_, Some(most)) if wanted > *most => most.to_string(),
            (Some(least), _) if wanted < *least => least.to_string(),
            _ => amount.to_owned(),
        };
        Some(bound)
    }
}

fn amounts<'a>(list: View<'a, Map<Amount>>) -> impl Iterator<Item = (String, Quantity)> + 'a {
    list.entries().filter_map(|(name, amount)| Some((name.to_owned(), quantity(&amount.as_value())?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    #[test]
    fn amounts_are_bounded_by_all_ranges() {
        let container = |fields: Value| {
            let mut item = fields;
            item["type"] = json!("Container");
            json!({"spec": {"limits": [item]}})
        };
        let pod =
            json!({"spec": {"limits": [{"type": "Pod", "min": {"memory": "1Gi"}, "max": {"cpu": "9"}}]}});
        for (ranges, resource, amount, expected) in [
            (vec![], "cpu", "200m", Some("200m")),
            (vec![container(json!({"default": {"cpu": "100m"}}))], "cpu", "200m", Some("100m")),
            (vec![container(json!({"max": {"cpu": "1"}}))], "cpu", "200m", Some("200m")),
            (vec![container(json!({"max": {"cpu": "1"}}))], "cpu", "1001m", Some("1")),
            (vec![container(json!({"min": {"memory": "64Mi"}}))], "memory", "1024Ki", Some("64Mi")),
            (
                vec![container(json!({"default": {"cpu": "3"}})), container(json!({"max": {"cpu": "2"}}))],
                "cpu",
                "4000m",
                Some("2"),
            ),
            (
                vec![container(json!({"min": {"cpu": "3"}})), container(json!({"max": {"cpu": "2"}}))],
                "cpu",
                "1m",
                None,
            ),
            (vec![container(json!({"maxLimitRequestRatio": {"cpu": "2"}}))], "cpu", "200m", None),
            (vec![pod.clone()], "memory", "1024Ki", None),
            (vec![pod], "cpu", "200m", Some("200m")),
            (
                vec![json!({"spec": {"limits": [{"type": "Other", "max": {"cpu": "1m"}}]}})],
                "cpu",
                "2m",
                Some("2m"),
            ),
        ] {
            let bounds = RequestBounds::of(ranges.iter().map(LimitRange::of));
            assert_eq!(
                bounds.nearest(resource, amount).as_deref(),
                expected,
                "{ranges:?} {resource} {amount}"
            );
        }
    }
}
