//! Selects the probes to run for a pod. Pure.

use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pod::observed::{Observed, State};
use crate::pod::plan::Verdict;
use crate::pod::spec::{self, Role};
use crate::probe::schedule::Target;
use crate::probe::threshold::ProbeKind;

/// What is known of the health of a pod's containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Startup and liveness verdicts by container id.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Ids of containers whose readiness probe succeeds.
    pub ready: BTreeSet<String>,
}

/// The verdicts of the probes. A container without any, which an earlier agent has started, is what that agent reported.
pub fn health(
    mut verdicts: BTreeMap<String, Verdict>,
    mut ready: BTreeMap<String, bool>,
    observed: &Observed,
    reported: &PodStatus,
) -> Health {
    let lists = [&reported.init_container_statuses, &reported.container_statuses];
    let reported = |id: &str| {
        let is = |reported: &str| reported.rsplit("//").next() == Some(id);
        lists.into_iter().flatten().flatten().find(|status| status.container_id.as_deref().is_some_and(is))
    };
    for instance in observed.instances.iter().filter(|instance| instance.state == State::Running) {
        let Some(status) = reported(&instance.id) else { continue };
        if status.started == Some(true) {
            verdicts.entry(instance.id.clone()).or_default().started.get_or_insert(true);
        }
        ready.entry(instance.id.clone()).or_insert(status.ready);
    }
    Health { verdicts, ready: ready.into_iter().filter(|(_, ready)| *ready).map(|(id, _)| id).collect() }
}

/// Probes of running containers. Until the startup probe has succeeded, only that one; for a terminating pod, only
/// readiness. A container whose postStart hook runs (`hooked`) is not probed yet.
pub fn targets(
    spec: &PodSpec,
    observed: &Observed,
    health: &Health,
    hooked: &BTreeSet<String>,
    ip: &str,
    ending: bool,
) -> Vec<Target> {
    let mut all = Vec::new();
    for (role, container) in spec::containers(spec) {
        if !matches!(role, Role::Regular | Role::Sidecar) || hooked.contains(&container.name) {
            continue;
        }
        let Some(instance) =
            observed.latest(&container.name).filter(|instance| instance.state == State::Running)
        else {
            continue;
        };
        let verdict = health.verdicts.get(&instance.id).copied().unwrap_or_default();
        let started = container.startup_probe.is_none() || verdict.started == Some(true);
        let wanted = [
            (ProbeKind::Startup, container.startup_probe.as_ref().filter(|_| !ending)),
            (ProbeKind::Liveness, container.liveness_probe.as_ref().filter(|_| started && !ending)),
            (ProbeKind::Readiness, container.readiness_probe.as_ref().filter(|_| started)),
        ];
        if wanted.iter().all(|(_, probe)| probe.is_none()) {
            continue;
        }
        let shared = Arc::new(container.clone().into_owned());
        for (kind, probe) in wanted {
            if let Some(probe) = probe {
                all.push(Target {
                    id: instance.id.clone(),
                    kind,
                    probe: probe.clone(),
                    container: shared.clone(),
                    ip: ip.to_owned(),
                    started_at: instance.started_at,
                    initial: match kind {
                        ProbeKind::Startup => verdict.started,
                        ProbeKind::Liveness => None,
                        ProbeKind::Readiness => Some(health.ready.contains(&instance.id)),
                    },
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pod::observed::Instance;
    use serde_json::json;

    #[test]
    fn startup_goes_first_and_readiness_stays_to_the_end() {
        let probe = json!({"exec": {"command": ["true"]}});
        let spec: PodSpec = serde_json::from_value(json!({"containers": [
            {"name": "a", "startupProbe": probe, "livenessProbe": probe, "readinessProbe": probe}, {"name": "b"}]}))
        .unwrap();
        let run = |name: &str| Instance {
            id: name.into(),
            name: name.into(),
            state: State::Running,
            ..Instance::default()
        };
        let observed = Observed { sandboxes: vec![], instances: vec![run("a"), run("b")] };
        let kinds = |started, ending| -> Vec<ProbeKind> {
            let verdicts = BTreeMap::from([("a".to_owned(), Verdict { started, dead: false })]);
            let health = Health { verdicts, ready: BTreeSet::new() };
            let targets = targets(&spec, &observed, &health, &BTreeSet::new(), "", ending);
            targets.iter().map(|target| target.kind).collect()
        };
        assert_eq!(kinds(None, false), [ProbeKind::Startup]);
        assert_eq!(kinds(Some(true), false), [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness]);
        assert_eq!(kinds(Some(true), true), [ProbeKind::Readiness]);
        let hooked = BTreeSet::from(["a".to_owned()]);
        assert!(targets(&spec, &observed, &Health::default(), &hooked, "", false).is_empty());
    }

    #[test]
    fn a_restarted_agent_keeps_started_and_ready() {
        let instance = |id: &str| Instance {
            id: id.into(),
            name: "a".into(),
            state: State::Running,
            ..Instance::default()
        };
        let observed = Observed { sandboxes: vec![], instances: vec![instance("new"), instance("same")] };
        let reported: PodStatus = serde_json::from_value(json!({"containerStatuses": [{"name": "a", "image": "",
            "imageID": "", "restartCount": 0, "containerID": "coracle://same", "started": true, "ready": true}]}))
        .unwrap();
        let got = health(BTreeMap::new(), BTreeMap::new(), &observed, &reported);
        assert_eq!(
            got.ready,
            BTreeSet::from(["same".to_owned()]),
            "another container is not what that one was"
        );
        assert_eq!(
            got.verdicts,
            BTreeMap::from([("same".to_owned(), Verdict { started: Some(true), dead: false })])
        );
        // What the probes of this agent found out comes first.
        let own = (
            BTreeMap::from([("same".to_owned(), Verdict { started: Some(false), dead: false })]),
            BTreeMap::from([("same".to_owned(), false)]),
        );
        let got = health(own.0, own.1, &observed, &reported);
        assert_eq!((got.verdicts["same"].started, got.ready.len()), (Some(false), 0));
        let probe = json!({"exec": {"command": ["true"]}});
        let spec: PodSpec = serde_json::from_value(
            json!({"containers": [{"name": "a", "startupProbe": probe, "readinessProbe": probe}]}),
        )
        .unwrap();
        let observed = Observed { sandboxes: vec![], instances: vec![instance("same")] };
        let known = health(BTreeMap::new(), BTreeMap::new(), &observed, &reported);
        let targets = targets(&spec, &observed, &known, &BTreeSet::new(), "", false);
        let initial: Vec<_> = targets.iter().map(|target| (target.kind, target.initial)).collect();
        assert_eq!(initial, [(ProbeKind::Startup, Some(true)), (ProbeKind::Readiness, Some(true))]);
    }
}
