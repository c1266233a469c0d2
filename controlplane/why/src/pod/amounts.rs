//! Amounts of resources.

use coracle_fields::{Amount, Map, View};
use coracle_proto::quantity::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource.
#[derive(Debug, Clone, Default)]
pub struct Amounts(pub(super) BTreeMap<String, Quantity>);

impl Amounts {
    pub(super) fn read(map: View<'_, Map<Amount>>) -> Self {
        let parsed = map.entries().filter_map(|(name, amount)| {
            Some((name.to_owned(), amount.text().parse::<Quantity>().ok().or_else(|| whole(amount))?))
        });
        Self(parsed.collect())
    }

    pub(super) fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            self.0.entry(name.clone()).or_insert_with(Quantity::zero).add(amount);
        }
    }

    pub(super) fn at_least(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_insert_with(Quantity::zero);
            if *own < *amount {
                *own = amount.clone();
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Quantity {
        self.0.get(name).cloned().unwrap_or_else(Quantity::zero)
    }
}

/// A quantity that is a number in JSON.
fn whole(amount: View<'_, Amount>) -> Option<Quantity> {
    amount.to_value().as_i64().map(|number| Quantity::new(number, coracle_proto::quantity::Format::DecimalSi))
}
