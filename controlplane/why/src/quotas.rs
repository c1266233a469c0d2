//! Quotas that are used up.

use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::ResourceQuota;
use coracle_proto::quantity::Quantity;

/// Resources of which a quota allows no more, such as `pods (2 of 2)`.
fn used_up(quota: View<'_, ResourceQuota>) -> Vec<String> {
    let status = quota.status();
    let full = status.hard().entries().filter_map(|(name, hard)| {
        let used = status.used().key(name).text();
        let (all, now) = (hard.text().parse::<Quantity>().ok()?, used.parse::<Quantity>().ok()?);
        (now >= all).then(|| format!("{name} ({used} of {})", hard.text()))
    });
    full.collect()
}

/// The quotas of a namespace that are used up, in words.
pub(crate) fn of_namespace(world: &World, namespace: &str) -> Vec<String> {
    let quotas = world.list::<ResourceQuota>(Some(namespace)).items.into_iter();
    let full = quotas.filter_map(|quota| {
        let full = used_up(quota);
        (!full.is_empty()).then(|| format!("{} is used up: {}", ObjectRef::to(quota), full.join(", ")))
    });
    full.collect()
}

/// Resources of which a quota allows no more.
pub fn explain(_world: &World, quota: View<'_, ResourceQuota>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let full = used_up(quota);
    if full.is_empty() {
        return Vec::new();
    }
    let object = ObjectRef::to(quota);
    let cause = format!("the quota is used up: {}", full.join(", "));
    let remedy = format!("raise spec.hard (kubectl edit {}), or delete what uses it", object.arguments());
    vec![
        Finding::new(object, Trouble::QuotaExhausted, cause)
            .evidence("status", full.join(", "))
            .remedy(remedy),
    ]
}
