//! Containers of a pod with their statuses.

use coracle_fields::core::v1::{Container, ContainerStatus, Pod};
use coracle_fields::{Json, List, View};
use serde_json::Value;

static NOTHING: Value = Value::Null;

/// A container of a pod.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    /// From the pod's spec.
    pub spec: View<'a, Container>,
    /// From its status; empty when there is none yet.
    pub status: View<'a, ContainerStatus>,
    /// Whether it is an init container.
    pub init: bool,
}

impl<'a> Slot<'a> {
    /// The container's name.
    pub fn name(&self) -> &'a str {
        self.spec.name().text()
    }

    /// Why it waits, empty when it does not.
    pub fn waiting(&self) -> &'a str {
        self.status.state().waiting().reason().text()
    }

    /// What it is called in a sentence.
    pub fn title(&self) -> String {
        let role = if self.init { "init container" } else { "container" };
        format!("{role} {}", self.name())
    }

    /// Whether it is an init container that runs beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.init && self.spec.restart_policy() == "Always"
    }
}

fn slots<'a>(
    specs: View<'a, List<Container>>,
    statuses: View<'a, List<ContainerStatus>>,
    init: bool,
) -> impl Iterator<Item = Slot<'a>> {
    specs.items().map(move |spec| {
        let name = spec.name().text();
        let status = statuses.items().find(|status| status.name() == name);
        Slot { spec, status: status.unwrap_or(View::<Json>::from(&NOTHING).as_type()), init }
    })
}

/// The containers of a pod, init containers first.
pub fn containers(pod: View<'_, Pod>) -> Vec<Slot<'_>> {
    let (spec, status) = (pod.spec(), pod.status());
    let init = slots(spec.init_containers(), status.init_container_statuses(), true);
    init.chain(slots(spec.containers(), status.container_statuses(), false)).collect()
}
