//! Selects the probes to run for a pod. Pure.

use k8s_openapi::api::core::v1::PodSpec;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pod::observed::{Observed, State};
use crate::pod::plan::Verdict;
use crate::pod::spec::{self, Role};
use crate::probe::schedule::Target;
use crate::probe::threshold::ProbeKind;

/// Probes of running containers. Until the startup probe has succeeded, only that one; for a terminating pod, only readiness.
pub fn targets(
    spec: &PodSpec,
    observed: &Observed,
    verdicts: &BTreeMap<String, Verdict>,
    ip: &str,
    ending: bool,
) -> Vec<Target> {
    let mut all = Vec::new();
    for (role, container) in spec::containers(spec) {
        if !matches!(role, Role::Regular | Role::Sidecar) {
            continue;
        }
        let Some(instance) =
            observed.latest(&container.name).filter(|instance| instance.state == State::Running)
        else {
            continue;
        };
        let started = container.startup_probe.is_none()
            || verdicts.get(&instance.id).is_some_and(|v| v.started == Some(true));
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
            targets(&spec, &observed, &verdicts, "", ending).iter().map(|target| target.kind).collect()
        };
        assert_eq!(kinds(None, false), [ProbeKind::Startup]);
        assert_eq!(kinds(Some(true), false), [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness]);
        assert_eq!(kinds(Some(true), true), [ProbeKind::Readiness]);
    }
}
