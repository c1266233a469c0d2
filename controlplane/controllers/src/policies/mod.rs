//! Status of ValidatingAdmissionPolicies: type errors of their expressions.

// Checks the expressions of a policy. Pure.
mod type_check;

use async_trait::async_trait;
use coracle_client::Client;
use coracle_fields::admissionregistration::v1::ValidatingAdmissionPolicy;
use coracle_fields::make;
use coracle_informer::identity::Identity;
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use jiff::Timestamp;
use serde_json::json;

const NAME: &str = "validatingadmissionpolicy-status";
const IDENTITY: Identity =
    Identity::of("validatingadmissionpolicy-status-controller").with_events(NAME).with_manager(NAME);

struct PolicyStatus {
    client: Client,
    policies: Resource,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let client = setup.client(IDENTITY);
    let policies = setup.resource(IDENTITY, "admissionregistration.k8s.io", "validatingadmissionpolicies");
    let queue = setup.enqueue_on_change(&policies).queue.clone();
    setup.run(PolicyStatus { client, policies }, &queue, 1);
}

#[async_trait]
impl Controller for PolicyStatus {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Each generation of a policy is checked once, against the kinds that are served then.
    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(policy) = self.policies.get(name) else { return Ok(Requeue::No) };
        let doc = policy.doc();
        let object = doc.view::<ValidatingAdmissionPolicy>();
        let generation = object.metadata().generation().int().unwrap_or_default();
        if generation <= object.status().observed_generation().int().unwrap_or_default() {
            return Ok(Requeue::No);
        }
        let warnings = type_check::warnings(object.spec(), self.client.registry());
        let mut checked = json!({});
        if !warnings.is_empty() {
            checked["expressionWarnings"] = json!(warnings);
        }
        let mut config =
            make!(ValidatingAdmissionPolicy { metadata: { name: &name.name, uid: &policy.meta.uid } });
        config.edit().status().put(json!({"observedGeneration": generation, "typeChecking": checked}));
        self.policies.apply(NAME, name, "status", config).await?;
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_cluster::Cluster;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_policy_has_the_warnings_of_its_generation() {
        let cluster = Cluster::without_nodes().await;
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "p"}, "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["deployments"]}]},
                "validations": [{"expression": "object.spec.replicas > 'x'"}]}});
        cluster.create("admissionregistration.k8s.io", "validatingadmissionpolicies", "", policy).await;
        let name = Name::new("", "p");
        let kind = "admissionregistration.k8s.io/validatingadmissionpolicies";
        let status = |c: &Cluster| c.get(kind, &name)["status"].clone();
        cluster.until("a warning", |c| status(c)["observedGeneration"] == 1).await;
        let warning = &status(&cluster)["typeChecking"]["expressionWarnings"][0];
        assert_eq!(warning["fieldRef"], "spec.validations[0].expression");
        assert!(warning["warning"].as_str().unwrap().contains("applied to '(int, string)'"), "{warning}");
        let mended = json!({"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}});
        cluster.patch(kind, &name, mended).await;
        cluster.until("no warning", |c| status(c)["observedGeneration"] == 2).await;
        // An applied map goes with the last field that was taken away, as on a stock cluster.
        assert_eq!(status(&cluster), json!({"observedGeneration": 2}));
    }
}
