//! What containers count for while their pod is resized: what they ask for, what their node gave them, or what they have,
//! whichever is more.

use super::{Amounts, listed, raise};
use coracle_fields::View;
use coracle_fields::core::v1::{ContainerStatus, Pod};
use std::collections::HashMap;

/// What the node of a pod reports of its containers.
pub(super) struct Reported<'a> {
    containers: HashMap<&'a str, View<'a, ContainerStatus>>,
    /// The node can never do what is asked for: that does not count.
    is_infeasible: bool,
}

impl<'a> Reported<'a> {
    /// From a pod. What the node said of an earlier version of the pod is nothing about this one: what is asked for then counts,
    /// or a resize that can be done would not be charged after one that could not.
    pub(super) fn of(pod: View<'a, Pod>) -> Self {
        let (status, generation) = (pod.status(), pod.metadata().generation().or(0));
        let is_current = |seen: i64| seen == 0 || seen >= generation;
        let all = status.container_statuses().items().chain(status.init_container_statuses());
        let pending = status.conditions().items().find(|one| one.type_() == "PodResizePending");
        Self {
            containers: all
                .filter(|container| container.resources().is_set())
                .map(|container| (container.name().text(), container))
                .collect(),
            is_infeasible: pending.is_some_and(|pending| {
                pending.reason() == "Infeasible" && is_current(pending.observed_generation().or(0))
            }),
        }
    }

    /// Requests of a container.
    pub(super) fn requests(&self, name: &str, asked: Amounts) -> Amounts {
        self.most(name, asked, |status| {
            let mut most = listed(status.resources().requests());
            raise(&mut most, &listed(status.allocated_resources()));
            most
        })
    }

    /// Limits of a container.
    pub(super) fn limits(&self, name: &str, asked: Amounts) -> Amounts {
        self.most(name, asked, |status| listed(status.resources().limits()))
    }

    fn most(
        &self,
        name: &str,
        asked: Amounts,
        has: impl Fn(View<'a, ContainerStatus>) -> Amounts,
    ) -> Amounts {
        let Some(status) = self.containers.get(name) else { return asked };
        let mut most = has(*status);
        if !self.is_infeasible {
            raise(&mut most, &asked);
        }
        most
    }
}
