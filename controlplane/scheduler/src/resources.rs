//! Amounts of resources.

use super::wire::Quantities;
use coracle_proto::quantity::Quantity;
use serde_json::Value;
use std::sync::Arc;

/// The largest amount that is told from larger ones: 2^50. No machine has more, sums over all pods of a node stay far from
/// the end of the number's range, and so do products with weights. A pod cannot make a sum overflow by what it asks for.
pub const LARGEST: i64 = 1 << 50;

/// An amount of each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral: i64,
    /// Everything else, by name, sorted.
    pub extended: Vec<(Arc<str>, i64)>,
}

impl Resources {
    /// From a resource list; CPU to the next millicore, what cannot be read counts as nothing.
    pub fn parse(list: &Quantities) -> Self {
        let mut made = Self::default();
        for (name, value) in list {
            match name.as_str() {
                "cpu" => made.cpu = milli(value),
                "memory" => made.memory = whole(value),
                "ephemeral-storage" => made.ephemeral = whole(value),
                "pods" => {}
                other => made.extended.push((other.into(), whole(value))),
            }
        }
        made
    }

    /// Adds, or with -1 takes away.
    pub fn add(&mut self, other: &Self, sign: i64) {
        self.cpu = self.cpu.saturating_add(sign * other.cpu);
        self.memory = self.memory.saturating_add(sign * other.memory);
        self.ephemeral = self.ephemeral.saturating_add(sign * other.ephemeral);
        for (name, amount) in &other.extended {
            match self.extended.binary_search_by(|(n, _)| n.cmp(name)) {
                Ok(at) => self.extended[at].1 = self.extended[at].1.saturating_add(sign * amount),
                Err(at) => self.extended.insert(at, (name.clone(), sign * amount)),
            }
        }
    }

    /// No more of each than is told apart.
    pub fn clamp(&mut self) {
        let amounts = [&mut self.cpu, &mut self.memory, &mut self.ephemeral].into_iter();
        for amount in amounts.chain(self.extended.iter_mut().map(|(_, amount)| amount)) {
            *amount = (*amount).clamp(-LARGEST, LARGEST);
        }
    }

    /// The larger of each.
    pub fn max(&mut self, other: &Self) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral = self.ephemeral.max(other.ephemeral);
        for (name, amount) in &other.extended {
            match self.extended.binary_search_by(|(n, _)| n.cmp(name)) {
                Ok(at) => self.extended[at].1 = self.extended[at].1.max(*amount),
                Err(at) => self.extended.insert(at, (name.clone(), *amount)),
            }
        }
    }

    /// The amount of a resource that has no field of its own.
    pub fn extended(&self, name: &str) -> i64 {
        self.extended.binary_search_by(|(n, _)| n.as_ref().cmp(name)).map_or(0, |at| self.extended[at].1)
    }

    /// Whether nothing is asked for.
    pub fn is_zero(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.ephemeral == 0 && self.extended.iter().all(|(_, n)| *n == 0)
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// A quantity in thousandths.
pub fn milli(value: &Value) -> i64 {
    quantity(value).map_or(0, |q| q.milli_value()).clamp(-LARGEST, LARGEST)
}

/// A quantity in whole units.
pub fn whole(value: &Value) -> i64 {
    quantity(value).map_or(0, |q| q.value()).clamp(-LARGEST, LARGEST)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn extended_resources_add_up() {
        let mut a = Resources::parse(
            &serde_json::from_value(json!({"x.io/gpu": "2", "hugepages-2Mi": "4Mi"})).unwrap(),
        );
        a.add(&Resources::parse(&serde_json::from_value(json!({"x.io/gpu": 1, "a.io/b": 1})).unwrap()), 1);
        assert_eq!(
            (a.extended("x.io/gpu"), a.extended("a.io/b"), a.extended("hugepages-2Mi"), a.extended("no")),
            (3, 1, 4 << 20, 0)
        );
    }
}
