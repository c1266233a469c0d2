//! The pod's phase, from the states of its containers. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec};

use crate::pod::spec::{self, Role};

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not every container was started yet.
    Pending,
    /// At least one container runs or will again.
    Running,
    /// Every container ended well and none runs again.
    Succeeded,
    /// Every container ended, at least one badly.
    Failed,
}

impl Phase {
    /// The name the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
        }
    }

    /// Nothing comes after it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }

    /// Reads the API's name.
    pub fn parse(name: &str) -> Option<Phase> {
        [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed]
            .into_iter()
            .find(|p| p.as_str() == name)
    }
}

enum Seen {
    Running { started: bool },
    Ended(i32),
    Again(i32),
    Waiting,
    Unknown,
}

fn seen(status: Option<&ContainerStatus>) -> Seen {
    let Some(status) = status else { return Seen::Unknown };
    let Some(state) = &status.state else { return Seen::Unknown };
    if state.running.is_some() {
        return Seen::Running { started: status.started == Some(true) };
    }
    if let Some(ended) = &state.terminated {
        return Seen::Ended(ended.exit_code);
    }
    if state.waiting.is_some() {
        return match status.last_state.as_ref().and_then(|last| last.terminated.as_ref()) {
            Some(ended) => Seen::Again(ended.exit_code),
            None => Seen::Waiting,
        };
    }
    Seen::Unknown
}

/// The phase. `ended` says that no container will be started again; `initialized` that a regular one has started.
pub fn phase(spec: &PodSpec, statuses: &[ContainerStatus], ended: bool, initialized: bool) -> Phase {
    let mut init_pending = false;
    let mut sidecar_pending = false;
    let (mut unknown, mut running, mut waiting) = (0, 0, 0);
    let (mut stopped, mut final_stops, mut succeeded) = (0, 0, 0);
    for (role, container) in spec::containers(spec) {
        let seen = seen(statuses.iter().find(|status| status.name == container.name));
        match role {
            Role::Ephemeral => {}
            Role::Init => match seen {
                Seen::Ended(code) | Seen::Again(code) => {
                    if code != 0 && !spec::restarts_after(spec, role, &container, code) {
                        return Phase::Failed;
                    }
                    // One that failed and runs again holds the pod back like one that has not run.
                    init_pending |= code != 0;
                }
                _ => init_pending = true,
            },
            Role::Sidecar => match seen {
                Seen::Running { started } => {
                    sidecar_pending |= !started;
                    running += 1;
                }
                Seen::Ended(_) | Seen::Again(_) => {}
                Seen::Waiting => {
                    sidecar_pending = true;
                    waiting += 1;
                }
                Seen::Unknown => {
                    sidecar_pending = true;
                    unknown += 1;
                }
            },
            Role::Regular => match seen {
                Seen::Running { .. } => running += 1,
                Seen::Ended(code) | Seen::Again(code) => {
                    stopped += 1;
                    final_stops += usize::from(!spec::restarts_after(spec, role, &container, code));
                    succeeded += usize::from(code == 0);
                }
                Seen::Waiting => waiting += 1,
                Seen::Unknown => unknown += 1,
            },
        }
    }
    if (init_pending || sidecar_pending) && !initialized || waiting > 0 || unknown > 0 {
        return Phase::Pending;
    }
    if running > 0 {
        return Phase::Running;
    }
    match (stopped > 0, ended || stopped == final_stops, stopped == succeeded) {
        (false, ..) => Phase::Pending,
        (true, false, _) => Phase::Running,
        (true, true, true) => Phase::Succeeded,
        (true, true, false) => Phase::Failed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn every_phase() {
        let run = || json!({"running": {}});
        let end = |code: i32| json!({"terminated": {"exitCode": code}});
        let wait = || json!({"waiting": {}});
        let one = |policy: &str| json!({"restartPolicy": policy, "containers": [{"name": "a"}]});
        let two =
            |policy: &str| json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]});
        let init = |policy: &str| json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
        let side = |policy: &str| json!({"restartPolicy": policy, "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
        #[allow(clippy::type_complexity)]
        let table: Vec<(Value, Vec<(&str, Value)>, bool, bool, Phase)> = vec![
            (one("Always"), vec![], false, false, Phase::Pending),
            (one("Always"), vec![("a", wait())], false, false, Phase::Pending),
            (one("Always"), vec![("a", run())], false, true, Phase::Running),
            (one("Always"), vec![("a", end(1))], false, true, Phase::Running),
            (one("Always"), vec![("a", end(0))], true, true, Phase::Succeeded),
            (one("Never"), vec![("a", end(0))], false, true, Phase::Succeeded),
            (one("Never"), vec![("a", end(1))], false, true, Phase::Failed),
            (one("OnFailure"), vec![("a", end(1))], false, true, Phase::Running),
            (two("Never"), vec![("a", end(1)), ("b", run())], false, true, Phase::Running),
            (two("Never"), vec![("a", end(1)), ("b", wait())], false, true, Phase::Pending),
            (two("Never"), vec![("a", end(1)), ("b", end(0))], false, true, Phase::Failed),
            (init("Never"), vec![("i", end(1)), ("a", wait())], false, false, Phase::Failed),
            (init("Always"), vec![("i", end(1)), ("a", wait())], false, false, Phase::Pending),
            (init("Always"), vec![("i", end(0)), ("a", run())], false, true, Phase::Running),
            (side("Never"), vec![("s", run()), ("a", wait())], false, false, Phase::Pending),
            (side("Never"), vec![("s", run()), ("a", end(0))], false, true, Phase::Running),
            (side("Never"), vec![("s", end(137)), ("a", end(0))], true, true, Phase::Succeeded),
        ];
        for (spec, states, ended, initialized, want) in table {
            let statuses: Vec<ContainerStatus> = states
                .iter()
                .map(|(name, state)| {
                    serde_json::from_value(json!({"name": name, "image": "", "imageID": "", "ready": false,
                        "restartCount": 0, "state": state, "started": true}))
                    .unwrap()
                })
                .collect();
            let parsed: PodSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(phase(&parsed, &statuses, ended, initialized), want, "{spec} {states:?}");
        }
    }
}
