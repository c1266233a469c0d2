//! Pods that are resized: what they ask for, what their node gave them and what they have counts, whichever is more, as for the
//! scheduler.

use super::amounts::Amounts;
use super::condition;
use coracle_fields::core::v1::Pod;
use coracle_fields::{Amount, Map, View};

/// What the node of a pod reports of its resources.
pub struct Reported<'a> {
    pod: View<'a, Pod>,
    /// The node can never do what is asked for: that does not count.
    is_infeasible: bool,
}

impl<'a> Reported<'a> {
    /// From a pod.
    pub fn of(pod: View<'a, Pod>) -> Self {
        let pending = condition(pod, "PodResizePending");
        Self { pod, is_infeasible: pending.is_some_and(|pending| pending.reason() == "Infeasible") }
    }

    /// What a container or a sidecar counts for that asks for this.
    pub fn container(&self, name: &str, asked: Amounts) -> Amounts {
        let status = self.pod.status();
        let mut all = status.container_statuses().items().chain(status.init_container_statuses().items());
        match all.find(|status| status.name() == name && status.resources().is_set()) {
            Some(status) => self.most(asked, status.resources().requests(), status.allocated_resources()),
            None => asked,
        }
    }

    /// The same of the pod as a whole.
    pub fn whole(&self, asked: Amounts) -> Amounts {
        let status = self.pod.status();
        match status.resources().is_set() {
            true => self.most(asked, status.resources().requests(), status.allocated_resources()),
            false => asked,
        }
    }

    fn most(&self, asked: Amounts, has: View<'_, Map<Amount>>, given: View<'_, Map<Amount>>) -> Amounts {
        let mut most = if self.is_infeasible { Amounts::default() } else { asked };
        most.at_least(&Amounts::read(has));
        most.at_least(&Amounts::read(given));
        most
    }
}
