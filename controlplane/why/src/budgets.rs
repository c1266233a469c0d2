//! PodDisruptionBudgets that block the drain of nodes.

use crate::finding::{Finding, ObjectRef};
use crate::pod::{has_ended, is_ready};
use crate::select::{selector, selects};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::core::v1::Pod;
use coracle_fields::policy::v1::PodDisruptionBudget;
use coracle_fields::{IntOrString, View};

/// Why the pods of a budget cannot be evicted.
pub fn explain(world: &World, budget: View<'_, PodDisruptionBudget>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let status = budget.status();
    let current = status.observed_generation().or(0) >= budget.metadata().generation().or(0);
    let expected = status.expected_pods().or(0);
    if !current || expected == 0 || status.disruptions_allowed().or(0) > 0 {
        return Vec::new();
    }
    let chosen = selector(budget.spec().selector());
    let pods = world.list::<Pod>(Some(budget.metadata().namespace().text())).items.into_iter();
    let pods: Vec<View<'_, Pod>> =
        pods.filter(|pod| !has_ended(*pod) && selects(&chosen, pod.metadata())).collect();
    let (healthy, desired) = (status.current_healthy().or(0), status.desired_healthy().or(0));
    // A budget that never allows an eviction is a mistake; one that waits for pods is not, but blocks as well.
    let never = desired >= expected;
    let unready: Vec<&str> =
        pods.iter().filter(|pod| !is_ready(**pod)).map(|pod| pod.metadata().name().text()).collect();
    let cause = if never {
        format!(
            "the budget never allows an eviction: it wants {desired} of {expected} pods ({}), so their nodes cannot be drained",
            rule(budget)
        )
    } else {
        format!(
            "the budget allows no eviction: {healthy} pods are healthy, it wants {desired} ({}), so their nodes cannot be drained",
            rule(budget)
        )
    };
    let mut nodes: Vec<&str> =
        pods.iter().map(|pod| pod.spec().node_name().text()).filter(|node| !node.is_empty()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let remedy = if never {
        "lower minAvailable, raise maxUnavailable, or run more replicas"
    } else {
        "make the pods ready"
    };
    let allowed = status.conditions().items().find(|condition| condition.type_() == "DisruptionAllowed");
    let blocked = allowed.filter(|condition| condition.status() == "False");
    let finding = Finding::new(ObjectRef::to(budget), Trouble::BudgetBlocksDrain, cause)
        .since(blocked.map_or("", |condition| condition.last_transition_time().text()))
        .evidence("status", format!("{healthy} of {expected} pods are healthy, {desired} are wanted"))
        .evidence("pods that are not ready", unready.join(", "))
        .evidence("nodes that cannot be drained", nodes.join(", "))
        .remedy(remedy);
    vec![finding]
}

fn rule(budget: View<'_, PodDisruptionBudget>) -> String {
    let text = |value: View<'_, IntOrString>| {
        value.int().map_or_else(|| value.text().to_owned(), |number| number.to_string())
    };
    let (least, most) = (budget.spec().min_available(), budget.spec().max_unavailable());
    if least.is_set() {
        format!("minAvailable {}", text(least))
    } else {
        format!("maxUnavailable {}", text(most))
    }
}
