//! What the containers of a pod have altogether.

use coracle_fields::core::v1::{Container, PodSpec, ResourceRequirements};
use coracle_fields::{Amount, Map, View};
use coracle_proto::quantity::Quantity;
use std::collections::BTreeMap;

/// Quantities by the name of the resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Requests or limits of a container.
type Pick = for<'a> fn(View<'a, ResourceRequirements>) -> View<'a, Map<Amount>>;

/// What the containers of a pod ask for together.
pub(crate) fn requests(spec: View<'_, PodSpec>) -> Amounts {
    sum(spec, |resources| resources.requests())
}

/// What the containers of a pod may have together.
pub(crate) fn limits(spec: View<'_, PodSpec>) -> Amounts {
    sum(spec, |resources| resources.limits())
}

/// Init containers run one at a time before the others; those that stay (sidecars) count from their turn on.
fn sum(spec: View<'_, PodSpec>, pick: Pick) -> Amounts {
    let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in spec.containers().items() {
        add(&mut total, &amounts(container, pick));
    }
    for container in spec.init_containers().items() {
        let own = amounts(container, pick);
        // Of what it has nothing itself, there is no more than the sidecars have, which count in the total.
        for (name, quantity) in &own {
            let now = match sidecars.get(name).cloned() {
                Some(mut sum) => {
                    sum.add(quantity);
                    sum
                }
                None => quantity.clone(),
            };
            raise(&mut peak, name, now);
        }
        if container.restart_policy() == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
        }
    }
    for (name, quantity) in peak {
        raise(&mut total, &name, quantity);
    }
    total
}

fn amounts(container: View<'_, Container>, pick: Pick) -> Amounts {
    let entries = pick(container.resources()).entries();
    entries.filter_map(|(name, text)| Some((name.to_owned(), text.get()?.parse().ok()?))).collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        total.entry(name.clone()).and_modify(|sum| sum.add(quantity)).or_insert_with(|| quantity.clone());
    }
}

/// The amount of a resource is at least `floor`.
fn raise(total: &mut Amounts, name: &str, floor: Quantity) {
    if total.get(name).is_none_or(|sum| *sum < floor) {
        total.insert(name.to_owned(), floor);
    }
}
