//! Capacity of devices that several claims share: what a request takes of it, rounded as the policy of the device says.

use super::wire;
use coracle_proto::quantity::{Format, Quantity};
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by the name of a capacity.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Reads a quantity of the API; what cannot be read is nothing.
pub(super) fn quantity(value: &Value) -> Quantity {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().unwrap_or_else(|_| Quantity::zero())
}

/// Reads amounts by name.
pub(super) fn amounts(values: &BTreeMap<String, Value>) -> Amounts {
    values.iter().map(|(name, value)| (name.clone(), quantity(value))).collect()
}

/// A capacity of a device.
#[derive(Debug, Clone)]
pub(super) struct Capacity {
    value: Quantity,
    policy: Option<Policy>,
}

/// Which amounts can be taken.
#[derive(Debug, Clone)]
struct Policy {
    /// For requests that name no amount.
    default: Option<Quantity>,
    /// In ascending order.
    values: Vec<Quantity>,
    range: Option<Range>,
}

#[derive(Debug, Clone)]
struct Range {
    min: Option<Quantity>,
    max: Option<Quantity>,
    step: Option<Quantity>,
}

impl Range {
    /// The distance of an amount from the last step below it, and the step.
    fn beyond_step(&self, amount: &Quantity) -> Option<(i64, i64)> {
        let step = self.step.as_ref().map(Quantity::value).filter(|step| *step > 0)?;
        let min = self.min.as_ref().map_or(0, Quantity::value);
        Some((amount.value().saturating_sub(min).checked_rem(step)?, step))
    }

    fn round_up(&self, min: &Quantity, amount: &Quantity) -> Quantity {
        match self.beyond_step(amount) {
            _ if amount < min => min.clone(),
            Some((beyond, step)) if beyond != 0 => {
                Quantity::new(amount.value().saturating_sub(beyond).saturating_add(step), Format::BinarySi)
            }
            _ => amount.clone(),
        }
    }

    fn allows(&self, amount: &Quantity) -> bool {
        self.max.as_ref().is_none_or(|max| amount <= max)
            && self.beyond_step(amount).is_none_or(|(beyond, _)| beyond == 0)
    }
}

impl Policy {
    fn round_up(&self, amount: &Quantity) -> Quantity {
        match self.range.as_ref().and_then(|range| Some((range, range.min.as_ref()?))) {
            Some((range, min)) => range.round_up(min, amount),
            None => self.values.iter().find(|value| amount <= *value).unwrap_or(amount).clone(),
        }
    }

    fn allows(&self, amount: &Quantity) -> bool {
        match &self.range {
            _ if self.default.as_ref() == Some(amount) => true,
            Some(range) => range.allows(amount),
            None => self.values.is_empty() || self.values.contains(amount),
        }
    }
}

impl Capacity {
    pub(super) fn new(capacity: &wire::Capacity) -> Self {
        let policy = capacity.request_policy.as_ref().map(|policy| Policy {
            default: policy.default_.as_ref().map(quantity),
            values: policy.valid_values.iter().map(quantity).collect(),
            range: policy.valid_range.as_ref().map(|range| Range {
                min: range.min.as_ref().map(quantity),
                max: range.max.as_ref().map(quantity),
                step: range.step.as_ref().map(quantity),
            }),
        });
        Self { value: quantity(&capacity.value), policy }
    }

    /// What a request takes; nothing if the policy does not allow it. Without an amount it takes the default, or all.
    fn taken(&self, requested: Option<&Quantity>) -> Option<Quantity> {
        let policy = self.policy.as_ref();
        let default = || policy.and_then(|policy| policy.default.clone()).unwrap_or(self.value.clone());
        let amount = match (requested, policy) {
            (None, _) => default(),
            (Some(amount), None) => amount.clone(),
            (Some(amount), Some(policy)) => policy.round_up(amount),
        };
        policy.is_none_or(|policy| policy.allows(&amount)).then_some(amount)
    }
}

/// What a request takes of a device beside what others took; nothing if it asks for a capacity that the device does not have,
/// for an amount that a policy does not allow, or for more than is left.
pub(super) fn take<'a>(
    capacity: &BTreeMap<String, Capacity>,
    requested: &Amounts,
    others: impl Iterator<Item = &'a Amounts>,
) -> Option<Amounts> {
    if requested.keys().any(|name| !capacity.contains_key(name)) {
        return None;
    }
    let mut taken = Amounts::new();
    for (name, capacity) in capacity {
        taken.insert(name.clone(), capacity.taken(requested.get(name))?);
    }
    let mut sums = taken.clone();
    for other in others {
        sums.iter_mut().for_each(|(name, sum)| other.get(name).into_iter().for_each(|more| sum.add(more)));
    }
    capacity
        .iter()
        .all(|(name, capacity)| sums.get(name).is_some_and(|sum| *sum <= capacity.value))
        .then_some(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn capacity(value: Value) -> Capacity {
        Capacity::new(&serde_json::from_value(value).unwrap())
    }

    fn taken(capacity: &Capacity, requested: Option<&str>) -> Option<String> {
        let requested = requested.map(|text| text.parse().unwrap());
        capacity.taken(requested.as_ref()).map(|amount| amount.to_string())
    }

    #[test]
    fn requests_are_rounded_up_to_what_the_policy_allows() {
        let free = capacity(json!({"value": "10Gi"}));
        let values = capacity(
            json!({"value": "10Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}}),
        );
        let range = capacity(json!({"value": "10Gi", "requestPolicy": {"default": "1Gi",
            "validRange": {"min": "1Gi", "max": "8Gi", "step": "2Gi"}}}));
        let open = capacity(json!({"value": "10Gi", "requestPolicy": {"validRange": {"min": "1Gi"}}}));
        let odd_default =
            capacity(json!({"value": "10Gi", "requestPolicy": {"default": "3Gi", "validValues": ["1Gi"]}}));
        let broken =
            capacity(json!({"value": "10Gi", "requestPolicy": {"validRange": {"min": "1Gi", "step": "0"}}}));
        for (what, capacity, requested, want) in [
            ("all of it", &free, None, Some("10Gi")),
            ("as asked", &free, Some("3Gi"), Some("3Gi")),
            ("the default", &values, None, Some("1Gi")),
            ("the next value", &values, Some("3Gi"), Some("4Gi")),
            ("a value", &values, Some("2Gi"), Some("2Gi")),
            ("beyond the values", &values, Some("5Gi"), None),
            ("below the range", &range, Some("1Mi"), Some("1Gi")),
            ("between steps", &range, Some("2Gi"), Some("3Gi")),
            ("on a step", &range, Some("5Gi"), Some("5Gi")),
            ("rounded beyond the range", &range, Some("7500Mi"), None),
            ("without a step", &open, Some("1500Mi"), Some("1500Mi")),
            ("a default that is no value", &odd_default, None, Some("3Gi")),
            ("a step that is none", &broken, Some("1500Mi"), Some("1500Mi")),
        ] {
            assert_eq!(taken(capacity, requested).as_deref(), want, "{what}");
        }
    }

    #[test]
    fn shares_fit_while_every_capacity_suffices() {
        let device: BTreeMap<String, Capacity> = [
            ("memory".to_owned(), capacity(json!({"value": "10Gi"}))),
            ("slots".to_owned(), capacity(json!({"value": "2", "requestPolicy": {"default": "1"}}))),
        ]
        .into();
        let asked = |memory: &str| Amounts::from([("memory".to_owned(), memory.parse().unwrap())]);
        let first = take(&device, &asked("6Gi"), [].iter()).unwrap();
        assert_eq!(first["slots"].to_string(), "1");
        let second = take(&device, &asked("4Gi"), [first.clone()].iter()).unwrap();
        assert!(take(&device, &asked("5Gi"), [first.clone()].iter()).is_none(), "memory is short");
        assert!(take(&device, &asked("0"), [first.clone(), second].iter()).is_none(), "slots are short");
        assert!(take(&device, &asked("11Gi"), [].iter()).is_none(), "there is not so much");
        let unknown = Amounts::from([("cores".to_owned(), Quantity::zero())]);
        assert!(take(&device, &unknown, [].iter()).is_none(), "it has no such capacity");
    }
}
