//! cgroups of QoS classes: cpu weights by the requests of their pods, minimum weight for BestEffort. Without it a class
//! of a hundred pods would have the weight of a class of one.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

use super::resources::{class, shares};
use super::spec::{self, Qos};
use coracle_engine::cgroup::Hierarchy;
use coracle_engine::limits::{Files, weight_of_shares};

/// `cpu.weight` of every class; pods that ended ask for nothing any more.
pub fn weights<'a>(pods: impl Iterator<Item = &'a Pod>) -> [(&'static str, u64); 3] {
    let (mut guaranteed, mut burstable) = (0i64, 0i64);
    for pod in pods.filter(|pod| !ended(pod)) {
        let spec = spec::spec(pod);
        let asked = spec::totals(&spec, false).get("cpu").copied().unwrap_or(0);
        match spec::qos(&spec) {
            Qos::Guaranteed => guaranteed = guaranteed.saturating_add(asked),
            Qos::Burstable => burstable = burstable.saturating_add(asked),
            Qos::BestEffort => {}
        }
    }
    [(Qos::Guaranteed, guaranteed), (Qos::Burstable, burstable), (Qos::BestEffort, 0)]
        .map(|(qos, asked)| (class(qos), weight_of_shares(shares(asked))))
}

fn ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Writes the weights of existing classes. Errors are logged.
pub fn write_weights(hierarchy: &Hierarchy, parent: &str, pods: &[Arc<Pod>]) {
    if !hierarchy.controllers().contains("cpu") {
        return;
    }
    for (class, weight) in weights(pods.iter().map(Arc::as_ref)) {
        let Ok(cgroup) = hierarchy.cgroup(&format!("{parent}/kubepods/{class}")) else { continue };
        if !cgroup.path().exists() || cgroup.number("cpu.weight") == Some(weight) {
            continue;
        }
        let files = Files::from([("cpu.weight".to_owned(), weight.to_string())]);
        if let Err(error) = cgroup.apply(files, hierarchy.controllers()) {
            tracing::warn!(class, error = %causes::chain(&error), "cpu weight of QoS class not set");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn classes_weigh_what_their_pods_ask_for() {
        let pod = |phase: &str, resources: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"uid": "u"}, "status": {"phase": phase},
                "spec": {"containers": [{"name": "a", "resources": resources}]}}))
            .unwrap()
        };
        let whole =
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        let half = json!({"requests": {"cpu": "500m"}});
        let one = weight_of_shares(1024);
        for (pods, want) in [
            (vec![], [1, 1, 1]),
            (vec![pod("Running", json!({}))], [1, 1, 1]),
            (
                vec![pod("Running", whole.clone()), pod("Pending", half.clone()), pod("Running", half)],
                [one, one, 1],
            ),
            (vec![pod("Failed", whole)], [1, 1, 1]),
        ] {
            assert_eq!(weights(pods.iter()).map(|(_, weight)| weight), want, "{pods:?}");
        }
    }
}
