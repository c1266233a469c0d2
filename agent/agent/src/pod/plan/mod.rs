//! Computes the actions for a pod from its spec and observed state. Pure: the worker executes the actions.

// All containers of a pod restart.
pub mod reset;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use std::collections::{BTreeMap, BTreeSet};

use super::backoff::Backoffs;
use super::observed::{Instance, Observed, State};
use super::spec::{self, Role};

/// What probes found out about one container instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The startup probe's result; `None` while it has none.
    pub started: Option<bool>,
    /// The liveness probe failed often enough.
    pub dead: bool,
}

/// Inputs of `plan`.
pub struct Facts<'a> {
    /// The pod's spec.
    pub spec: &'a PodSpec,
    /// What the runtime has of it.
    pub observed: &'a Observed,
    /// Probe verdicts by container id.
    pub verdicts: &'a BTreeMap<String, Verdict>,
    /// Container ids being stopped right now.
    pub stopping: &'a BTreeSet<String>,
    /// Container names being started right now.
    pub starting: &'a BTreeSet<String>,
    /// Container ids stopped in order to be replaced, whatever the restart policy says.
    pub replaced: &'a BTreeSet<String>,
    /// Restart delays.
    pub backoffs: &'a Backoffs,
    /// The restart count of a container's next instance where no earlier one is left.
    pub next_attempts: &'a BTreeMap<String, u32>,
    /// How many dead instances of a container are kept; by default the newest two instances, dead or not.
    pub max_dead: Option<usize>,
    /// Now, in nanoseconds since the epoch.
    pub now: i64,
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its liveness probe failed.
    Liveness,
    /// Its startup probe failed.
    Startup,
    /// Its definition changed.
    Changed,
    /// Its state is unknown.
    Unknown,
    /// Its postStart hook failed.
    PostStart,
    /// All containers of the pod restart.
    RestartAll,
    /// Its sandbox is gone or not the current one.
    Sandbox,
    /// The pod ends.
    PodEnds,
}

/// Stop one container instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Container id.
    pub id: String,
    /// Container name.
    pub name: String,
    /// Why.
    pub cause: Cause,
    /// Start another one afterwards whatever the restart policy says.
    pub replace: bool,
    /// The text of the event that people see.
    pub message: String,
}

/// Create and start one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Container name.
    pub name: String,
    /// What it is in the pod.
    pub role: Role,
    /// Restart count of the new instance.
    pub attempt: u32,
    /// When the instance before it ended, if it did.
    pub failed_at: Option<i64>,
}

/// A start delayed by back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayedStart {
    /// Container name.
    pub name: String,
    /// When it may start, nanoseconds since the epoch.
    pub until: i64,
}

/// Actions for a pod, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Containers to stop.
    pub kills: Vec<Kill>,
    /// Dead instances of no more use.
    pub remove: Vec<String>,
    /// Dead instances to be removed so that the pod starts anew, in this order; their logs stay.
    pub reset: Vec<String>,
    /// Sandboxes that are not the current one: stop them (their network), and remove those nothing refers to.
    pub stop_sandboxes: Vec<String>,
    /// Sandboxes to remove after they were stopped.
    pub remove_sandboxes: Vec<String>,
    /// Make a sandbox with this attempt number.
    pub create_sandbox: Option<u32>,
    /// Containers to start, in this order.
    pub starts: Vec<Start>,
    /// Containers waiting for their back-off.
    pub held: Vec<DelayedStart>,
    /// No container runs or will run: the pod has completed.
    pub finished: bool,
}

impl Plan {
    /// Whether nothing is to be done now.
    pub fn is_idle(&self) -> bool {
        self.kills.is_empty()
            && self.remove.is_empty()
            && self.reset.is_empty()
            && self.stop_sandboxes.is_empty()
            && self.remove_sandboxes.is_empty()
            && self.create_sandbox.is_none()
            && self.starts.is_empty()
    }
}

/// Key of a container's restart delay; another image begins anew.
pub fn backoff_key(container: &Container) -> String {
    format!("{}/{}", container.name, spec::container_hash(container))
}

/// Actions that bring a running pod to its spec.
pub fn plan(facts: &Facts<'_>) -> Plan {
    if let Some(plan) = reset::plan(facts) {
        return plan;
    }
    let mut planner = Planner { facts, sandbox: "", plan: Plan::default() };
    planner.garbage();
    let Some(sandbox) = facts.observed.ready_sandbox() else {
        planner.without_sandbox();
        return planner.plan;
    };
    planner.sandbox = &sandbox.id;
    planner.stop_outside_sandbox();
    planner.ephemeral();
    match planner.init() {
        Progress::Initialized => planner.regular(),
        Progress::Pending => {}
        Progress::Failed => planner.finish(),
    }
    planner.plan
}

/// Containers of a terminating pod to stop: all of them. [`stops_after`] says which of them wait.
pub fn plan_stop(observed: &Observed, stopping: &BTreeSet<String>) -> Vec<Kill> {
    let kill = |instance: &Instance| Kill {
        id: instance.id.clone(),
        name: instance.name.clone(),
        cause: Cause::PodEnds,
        replace: false,
        message: format!("Stopping container {}", instance.name),
    };
    observed.alive().filter(|instance| !stopping.contains(&instance.id)).map(kill).collect()
}

/// Containers that a container of a terminating pod outlives: a sidecar those that it serves, which are the regular
/// ones and the sidecars after it. Its preStop hook does not wait for them, only its stop signal does.
pub fn stops_after(spec: &PodSpec, name: &str) -> BTreeSet<String> {
    let sidecars = || spec.init_containers.iter().flatten().filter(|c| spec::is_sidecar(c));
    let Some(own) = sidecars().position(|sidecar| sidecar.name == name) else { return BTreeSet::new() };
    let later = sidecars().skip(own + 1);
    spec.containers.iter().chain(later).map(|container| container.name.clone()).collect()
}

enum Progress {
    Initialized,
    Pending,
    Failed,
}

struct Planner<'a> {
    facts: &'a Facts<'a>,
    sandbox: &'a str,
    plan: Plan,
}

impl<'a> Planner<'a> {
    /// Keeps the newest instance of each container, dead ones as many as there may be, and the newest sandbox.
    fn garbage(&mut self) {
        let observed = self.facts.observed;
        // Instances and dead instances so far, by container.
        let mut seen: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut kept: BTreeSet<&str> = BTreeSet::new();
        for instance in &observed.instances {
            let is_dead = instance.state == State::Exited;
            let (count, dead) = seen.entry(&instance.name).or_default();
            *count += 1;
            *dead += usize::from(is_dead);
            let is_surplus = match self.facts.max_dead {
                None => *count > 2,
                // What comes next depends on the newest one.
                Some(most) => *count > 1 && *dead > most,
            };
            if is_surplus && is_dead {
                self.plan.remove.push(instance.id.clone());
            } else {
                kept.insert(&instance.sandbox);
            }
        }
        for sandbox in observed.sandboxes.iter().skip(1) {
            if sandbox.ready {
                self.plan.stop_sandboxes.push(sandbox.id.clone());
            } else if !kept.contains(sandbox.id.as_str()) {
                self.plan.remove_sandboxes.push(sandbox.id.clone());
            }
        }
    }

    fn kill(&mut self, instance: &Instance, cause: Cause, replace: bool, message: String) {
        if !self.facts.stopping.contains(&instance.id) {
            let (id, name) = (instance.id.clone(), instance.name.clone());
            self.plan.kills.push(Kill { id, name, cause, replace, message });
        }
    }

    /// Instances alive in a sandbox that is not the current one.
    fn stop_outside_sandbox(&mut self) {
        let current = self.sandbox;
        for instance in self.facts.observed.alive().filter(|instance| instance.sandbox != current) {
            self.kill(
                instance,
                Cause::Sandbox,
                false,
                "Pod sandbox changed, it will be killed and re-created.".into(),
            );
        }
    }

    /// No sandbox to put containers in: first everything stops, then, if anything is left to run, a new one.
    fn without_sandbox(&mut self) {
        let facts = self.facts;
        self.stop_outside_sandbox();
        if facts.observed.alive().next().is_some() || !facts.starting.is_empty() {
            return;
        }
        let attempt = facts.observed.sandboxes.first().map(|sandbox| sandbox.attempt + 1).unwrap_or(0);
        if attempt > 0 {
            let any_ran = !facts.observed.instances.is_empty();
            let never_again = facts.spec.containers.iter().all(|c| !spec::restarts_on_failure(facts.spec, c));
            let created = facts.spec.containers.iter().any(|c| facts.observed.latest(&c.name).is_some());
            let wanted = facts.spec.containers.iter().any(|c| match facts.observed.latest(&c.name) {
                None => true,
                Some(last) => {
                    last.state != State::Exited
                        || facts.replaced.contains(&last.id)
                        || spec::restarts_after(facts.spec, Role::Regular, c, last.exit_code)
                }
            });
            if (never_again && any_ran) || (created && !wanted) {
                self.plan.finished = true;
                return;
            }
            if let Some(old) = facts.observed.sandboxes.first() {
                self.plan.stop_sandboxes.push(old.id.clone());
            }
        }
        self.plan.create_sandbox = Some(attempt);
    }

    fn ephemeral(&mut self) {
        for container in self.facts.spec.ephemeral_containers.iter().flatten() {
            let known = self.facts.observed.latest(&container.name).is_some();
            if !known && !self.facts.starting.contains(&container.name) {
                let name = container.name.clone();
                self.plan.starts.push(Start { name, role: Role::Ephemeral, attempt: 0, failed_at: None });
            }
        }
    }

    /// Starts a container, now or when its back-off is over.
    fn start(&mut self, container: &Container, role: Role) {
        let facts = self.facts;
        let last = facts.observed.latest(&container.name);
        let attempt = facts.next_attempts.get(&container.name).copied().unwrap_or(0);
        let mut start = Start { name: container.name.clone(), role, attempt, failed_at: None };
        if let Some(last) = last {
            start.attempt = last.attempt + 1;
            match last.state {
                // It never ran: the same attempt again, under the same name.
                State::Created => {
                    start.attempt = last.attempt;
                    self.plan.remove.push(last.id.clone());
                }
                State::Exited => {
                    start.failed_at = Some(last.finished_at);
                    let until = facts.backoffs.until(&backoff_key(container), last.finished_at);
                    let delay = facts.backoffs.delay(&backoff_key(container));
                    // The clock was set back: starts without delay instead of waiting for hours.
                    if let Some(until) = until.filter(|until| (1..=delay).contains(&(until - facts.now)))
                        && !facts.replaced.contains(&last.id)
                    {
                        self.plan.held.push(DelayedStart { name: container.name.clone(), until });
                        return;
                    }
                }
                State::Running | State::Unknown => return,
            }
        }
        self.plan.starts.push(start);
    }

    /// Whether a running instance must be replaced; plans its stop if so.
    fn must_replace(&mut self, container: &Container, role: Role, instance: &Instance) -> bool {
        let kind = if role == Role::Sidecar { "Init container" } else { "Container" };
        let verdict = self.facts.verdicts.get(&instance.id).copied().unwrap_or_default();
        let (cause, what) = if instance.hash != spec::container_hash(container) {
            (Cause::Changed, "definition changed")
        } else if verdict.dead {
            (Cause::Liveness, "failed liveness probe")
        } else if verdict.started == Some(false) {
            (Cause::Startup, "failed startup probe")
        } else {
            return false;
        };
        let replace = cause == Cause::Changed;
        let again = replace || role == Role::Sidecar || spec::restarts_on_failure(self.facts.spec, container);
        let tail = if again { ", will be restarted" } else { "" };
        self.kill(instance, cause, replace, format!("{kind} {} {what}{tail}", container.name));
        true
    }

    /// Plans a sidecar; returns whether it has started, so that the next init container may start.
    fn sidecar(&mut self, container: &Container) -> bool {
        let facts = self.facts;
        if facts.starting.contains(&container.name) {
            return false;
        }
        let Some(instance) = facts.observed.latest_in(self.sandbox, &container.name) else {
            self.start(container, Role::Sidecar);
            return false;
        };
        if facts.stopping.contains(&instance.id) {
            return false;
        }
        match instance.state {
            State::Running => {
                let started = facts.verdicts.get(&instance.id).and_then(|verdict| verdict.started);
                let started = container.startup_probe.is_none() || started == Some(true);
                !self.must_replace(container, Role::Sidecar, instance) && started
            }
            State::Unknown => {
                let message =
                    "Init container is in \"unknown\" state, try killing it before restart".to_owned();
                self.kill(instance, Cause::Unknown, false, message);
                false
            }
            State::Created | State::Exited => {
                self.start(container, Role::Sidecar);
                false
            }
        }
    }

    /// Plans init containers. Only instances in the current sandbox count.
    fn init(&mut self) -> Progress {
        let facts = self.facts;
        let Some(containers) = facts.spec.init_containers.as_deref().filter(|list| !list.is_empty()) else {
            return Progress::Initialized;
        };
        let here = |name: &str| {
            facts.observed.latest_in(self.sandbox, name).is_some() || facts.starting.contains(name)
        };
        let initialized = facts.spec.containers.iter().any(|container| here(&container.name));
        // Instances of finished init containers may have been removed: the last one seen says how far it got.
        let reached = if initialized {
            containers.len()
        } else {
            containers.iter().rposition(|c| here(&c.name)).unwrap_or(0)
        };
        for container in containers.iter().take(reached).filter(|c| spec::is_sidecar(c)) {
            self.sidecar(container);
        }
        let mut index = reached;
        while let Some(container) = containers.get(index) {
            let done = if spec::is_sidecar(container) {
                self.sidecar(container)
            } else {
                match self.init_container(container) {
                    Progress::Initialized => true,
                    other => return other,
                }
            };
            if !done {
                return Progress::Pending;
            }
            index += 1;
            // What comes next has no instance in this sandbox: it is started and waited for.
        }
        Progress::Initialized
    }

    fn init_container(&mut self, container: &Container) -> Progress {
        let facts = self.facts;
        if facts.starting.contains(&container.name) {
            return Progress::Pending;
        }
        let Some(instance) = facts.observed.latest_in(self.sandbox, &container.name) else {
            self.start(container, Role::Init);
            return Progress::Pending;
        };
        if facts.stopping.contains(&instance.id) {
            return Progress::Pending;
        }
        match instance.state {
            State::Running => Progress::Pending,
            State::Exited if instance.exit_code == 0 => Progress::Initialized,
            State::Exited if !spec::restarts_after(facts.spec, Role::Init, container, instance.exit_code) => {
                Progress::Failed
            }
            State::Created | State::Exited => {
                self.start(container, Role::Init);
                Progress::Pending
            }
            State::Unknown => {
                let message =
                    "Init container is in \"unknown\" state, try killing it before restart".to_owned();
                self.kill(instance, Cause::Unknown, false, message);
                Progress::Pending
            }
        }
    }

    fn regular(&mut self) {
        let facts = self.facts;
        let mut keep = false;
        for container in &facts.spec.containers {
            keep |= self.regular_container(container);
        }
        if !keep {
            self.finish();
        }
    }

    /// Whether the container keeps its pod going: it runs, or will.
    fn regular_container(&mut self, container: &Container) -> bool {
        let facts = self.facts;
        if facts.starting.contains(&container.name) {
            return true;
        }
        let Some(instance) = facts.observed.latest(&container.name) else {
            self.start(container, Role::Regular);
            return true;
        };
        if facts.stopping.contains(&instance.id) {
            return true;
        }
        match instance.state {
            State::Running => {
                self.must_replace(container, Role::Regular, instance);
                true
            }
            State::Unknown => {
                let message = "Container is in \"unknown\" state, try killing it before restart".to_owned();
                self.kill(instance, Cause::Unknown, false, message);
                true
            }
            State::Created => {
                self.start(container, Role::Regular);
                true
            }
            State::Exited => {
                let again = facts.replaced.contains(&instance.id)
                    || spec::restarts_after(facts.spec, Role::Regular, container, instance.exit_code);
                if again {
                    self.start(container, Role::Regular);
                }
                again
            }
        }
    }

    /// All regular containers have completed: sidecars are not restarted.
    fn finish(&mut self) {
        self.plan.finished = true;
        self.plan.starts.clear();
        self.plan.held.clear();
    }
}

#[cfg(test)]
mod tests;
