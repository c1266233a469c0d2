//! `RestartAllContainers`: a container exited as a rule of its own says that the whole pod starts anew, init containers
//! too, in the same sandbox. Pure.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{Cause, Facts, Kill, Plan};
use crate::pod::observed::{Instance, Observed, State};
use crate::pod::spec;

const ACTION: &str = "RestartAllContainers";

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Whether a container has a rule that restarts all.
pub fn has_rule(spec: &PodSpec) -> bool {
    containers(spec).any(|c| c.restart_policy_rules.iter().flatten().any(|rule| rule.action == ACTION))
}

fn is_source(container: &Container, instance: &Instance) -> bool {
    instance.state == State::Exited && spec::restart_action(container, instance.exit_code) == Some(ACTION)
}

/// Whether a container has exited so, and not everything of that run is removed yet.
pub fn is_due(spec: &PodSpec, observed: &Observed) -> bool {
    containers(spec).any(|c| observed.latest(&c.name).is_some_and(|latest| is_source(c, latest)))
}

/// What is to be done before the pod starts anew; `None` if it need not. First all containers stop, without grace, then all
/// instances are removed. Those that are the cause go last: an agent that is restarted meanwhile finds them and goes on.
pub(super) fn plan(facts: &Facts<'_>) -> Option<Plan> {
    if !is_due(facts.spec, facts.observed) {
        return None;
    }
    let mut plan = Plan::default();
    let of = |instance: &Instance| containers(facts.spec).find(|c| c.name == instance.name);
    let alive: Vec<&Instance> = facts.observed.alive().filter(|instance| of(instance).is_some()).collect();
    if !alive.is_empty() || !facts.starting.is_empty() {
        let stops = alive.into_iter().filter(|instance| !facts.stopping.contains(&instance.id));
        plan.kills = stops
            .map(|instance| Kill {
                id: instance.id.clone(),
                name: instance.name.clone(),
                cause: Cause::RestartAll,
                replace: false,
                message: format!("Stopping container {}: all containers of the pod restart", instance.name),
            })
            .collect();
        return Some(plan);
    }
    let instances = facts.observed.instances.iter().filter_map(|instance| Some((of(instance)?, instance)));
    let (sources, others): (Vec<_>, Vec<_>) =
        instances.partition(|(container, instance)| is_source(container, instance));
    plan.reset = others.into_iter().chain(sources).map(|(_, instance)| instance.id.clone()).collect();
    Some(plan)
}
