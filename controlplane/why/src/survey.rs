//! Everything in the cluster that is not well.

use crate::explain::{Explain, explain};
use crate::finding::Finding;
use crate::kinds::Resource;
use crate::trouble::{Severity, Trouble};
use crate::world::World;
use crate::{
    api_services, autoscalers, budgets, claims, clock, conditions, deletion, ingress, namespaces, nodes, pod,
    quotas, services, signing, webhooks, workloads,
};
use coracle_fields::Kind;
use coracle_fields::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use coracle_fields::apiextensions::v1::CustomResourceDefinition;
use coracle_fields::apiregistration::v1::APIService;
use coracle_fields::apps::v1::{DaemonSet, Deployment, StatefulSet};
use coracle_fields::autoscaling_v2::HorizontalPodAutoscaler;
use coracle_fields::batch::v1::{CronJob, Job};
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_fields::core::v1::{
    ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    ResourceQuota, Service, ServiceAccount,
};
use coracle_fields::networking::v1::{Ingress, NetworkPolicy};
use coracle_fields::policy::v1::PodDisruptionBudget;

fn each<K: Kind>(world: &World, namespace: Option<&str>, how: Explain<K>) -> Vec<Finding> {
    world.list::<K>(namespace).items.into_iter().flat_map(|object| explain(world, object, how)).collect()
}

/// Objects of which only the metadata matters here: finalizers may keep them.
fn kept(world: &World, namespace: Option<&str>) -> Vec<Finding> {
    let resources =
        [Resource::of::<ConfigMap>(), Resource::of::<ServiceAccount>(), Resource::of::<NetworkPolicy>()];
    resources.iter().flat_map(|resource| deletion::kept(world, resource, namespace)).collect()
}

/// What is not well, in one namespace or in the whole cluster. What is intended is left out.
pub fn survey(world: &World, namespace: Option<&str>) -> Vec<Finding> {
    let mut findings = if namespace.is_none() { of_cluster(world) } else { Vec::new() };
    findings.extend(of_namespaces(world, namespace));
    findings.retain(|finding| finding.severity > Severity::Notice);
    without_consequences(findings)
}

/// Leaves out what only repeats another line: a failed Job beside the cause of its pod, what holds a namespace that is being deleted
/// beside the namespace, a quota that is used up beside the workload that it refuses.
fn without_consequences(findings: Vec<Finding>) -> Vec<Finding> {
    let repeats = |finding: &Finding| {
        let (object, namespace) = (&finding.object, finding.object.namespace.as_str());
        findings.iter().any(|other| match finding.trouble {
            Trouble::JobBackoffLimit => other.object.kind == "Pod" && other.via.contains(object),
            Trouble::FinalizerBlocks => other.object.is::<Namespace>() && other.object.name == namespace,
            Trouble::QuotaExhausted => {
                let refuses = format!("the quota {} refuses", object.name);
                other.object.namespace == namespace && other.cause.starts_with(&refuses)
            }
            _ => false,
        })
    };
    let keep: Vec<bool> = findings.iter().map(|finding| !repeats(finding)).collect();
    findings.into_iter().zip(keep).filter_map(|(finding, keep)| keep.then_some(finding)).collect()
}

fn of_cluster(world: &World) -> Vec<Finding> {
    let mut findings: Vec<Finding> = clock::explain(world).into_iter().collect();
    findings.extend(each::<Node>(world, None, nodes::explain));
    findings.extend(each::<APIService>(world, None, api_services::explain));
    findings.extend(each::<MutatingWebhookConfiguration>(world, None, webhooks::explain_mutating));
    findings.extend(each::<ValidatingWebhookConfiguration>(world, None, webhooks::explain_validating));
    findings.extend(each::<CustomResourceDefinition>(world, None, conditions::explain_definition));
    findings.extend(each::<Namespace>(world, None, namespaces::explain));
    findings.extend(each::<PersistentVolume>(world, None, claims::explain_volume));
    findings.extend(each::<CertificateSigningRequest>(world, None, signing::explain));
    findings
}

fn of_namespaces(world: &World, namespace: Option<&str>) -> Vec<Finding> {
    let mut findings = each::<Pod>(world, namespace, pod::explain);
    findings.extend(each::<PersistentVolumeClaim>(world, namespace, claims::explain));
    findings.extend(each::<Deployment>(world, namespace, workloads::deployment::explain));
    findings.extend(each::<StatefulSet>(world, namespace, workloads::stateful_set::explain));
    findings.extend(each::<DaemonSet>(world, namespace, workloads::daemon_set::explain));
    findings.extend(each::<ReplicationController>(world, namespace, workloads::replicas::explain_controller));
    findings.extend(each::<Job>(world, namespace, workloads::job::explain));
    findings.extend(each::<CronJob>(world, namespace, workloads::cron_job::explain));
    findings.extend(each::<Service>(world, namespace, services::explain));
    findings.extend(each::<Ingress>(world, namespace, ingress::explain));
    findings.extend(each::<PodDisruptionBudget>(world, namespace, budgets::explain));
    findings.extend(each::<HorizontalPodAutoscaler>(world, namespace, autoscalers::explain));
    findings.extend(each::<ResourceQuota>(world, namespace, quotas::explain));
    findings.extend(kept(world, namespace));
    findings
}
