//! Init containers that do not end.

use super::containers::containers;
use super::crash::{last_lines, log_command};
use crate::finding::{Finding, ObjectRef};
use crate::report::duration;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::Pod;

/// Seconds that an init container may run before it is worth a line.
const PATIENCE: i64 = 60;

/// An init container that has been running for long: the others wait for its end.
pub fn explain(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let running = containers(pod)
        .into_iter()
        .find(|slot| slot.init && !slot.is_sidecar() && slot.status.state().running().is_set());
    let Some(slot) = running else { return Vec::new() };
    let started = slot.status.state().running().started_at().text();
    let Some(age) = world.age(started).filter(|age| *age >= PATIENCE) else { return Vec::new() };
    let cause = format!(
        "{} has been running for {} and has not ended, so the other containers do not start",
        slot.title(),
        duration(age)
    );
    let log = world.log(pod.metadata(), slot.name(), false).unwrap_or_default();
    let command = log_command(pod, slot, false);
    let finding = Finding::new(ObjectRef::to(pod), Trouble::InitContainerRuns, cause)
        .since(started)
        .evidence(
            format!("{}, command", slot.title()),
            slot.spec.command().texts().collect::<Vec<_>>().join(" "),
        )
        .with(last_lines(slot, log, false));
    vec![finding.remedy(format!(
        "provide what its messages say that it waits for ({command} -f), or correct its command: it has to end"
    ))]
}
