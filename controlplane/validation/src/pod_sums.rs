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
        let mut now = sidecars.clone();
        add(&mut now, &own);
        raise(&mut peak, &now);
        if container.restart_policy() == "Always" {
            add(&mut total, &own);
            sidecars = now;
        }
    }
    raise(&mut total, &peak);
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

/// Each amount is at least what `floor` says.
fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, quantity) in floor {
        if total.get(name).is_none_or(|sum| sum < quantity) {
            total.insert(name.clone(), quantity.clone());
        }
    }
}
