//! PodSecurity: enforces the Pod Security Standards by level and mode, from labels of the namespace.

// Levels, versions, modes, labels.
pub mod policy;
// Pods as checks see them.
pub mod pod;
// Which checks there are.
pub mod checks;
// Those of the baseline level.
pub mod baseline;
// Those of the restricted level.
pub mod restricted;
#[cfg(test)]
mod tests;

use super::config::{Configuration, ConfigurationError};
use super::{Attributes, Operation, Phase, Plugin, containers};
use async_trait::async_trait;
use checks::{details, evaluate, reasons};
use coracle_fields::apps::v1 as apps;
use coracle_fields::batch::v1 as batch;
use coracle_fields::core::v1;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Doc, List, Schema as _, View};
use coracle_proto::status::ApiError;
use pod::{Finding, Pod};
use policy::{Level, Policy, Standard};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const NAME: &str = "PodSecurity";
/// Of labels and of notes in the audit log.
const PREFIX: &str = "pod-security.kubernetes.io/";
/// How many pods are looked at when a namespace becomes stricter, and for how long.
const MOST_PODS: usize = 3000;
const MOST_TIME: Duration = Duration::from_secs(1);
/// Subresources of pods that do not change what a pod may do.
const HARMLESS: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// The fields of `defaults`.
const DEFAULTS: [&str; 6] = ["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Exemptions {
    usernames: Vec<String>,
    runtime_classes: Vec<String>,
    namespaces: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    #[serde(deserialize_with = "defaults")]
    defaults: Policy,
    exemptions: Exemptions,
}

fn defaults<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
    let mut texts = BTreeMap::<String, String>::deserialize(deserializer)?;
    if let Some(unknown) = texts.keys().find(|key| !DEFAULTS.contains(&key.as_str())) {
        return Err(D::Error::unknown_field(unknown, &DEFAULTS));
    }
    texts.retain(|_, text| !text.is_empty());
    Policy::parse(&texts).map_err(D::Error::custom)
}

/// The plugin.
pub struct PodSecurity {
    defaults: Policy,
    exemptions: Exemptions,
}

impl PodSecurity {
    /// The plugin with its defaults and exemptions.
    pub fn new(configuration: &Configuration) -> Result<Self, ConfigurationError> {
        let settings: Settings = configuration.of(NAME)?;
        Ok(Self { defaults: settings.defaults, exemptions: settings.exemptions })
    }
}

#[async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        let checked = match at.kind.stored_group() {
            "" => matches!(
                at.kind.plural.as_str(),
                "namespaces" | "pods" | "podtemplates" | "replicationcontrollers"
            ),
            group => matches!(group, "apps" | "batch"),
        };
        phase == Phase::Validate && at.writes() && checked
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if !matches!(at.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        match (at.kind.stored_group(), at.kind.plural.as_str()) {
            ("", "namespaces") if at.subresource.is_empty() => self.namespace(at, object),
            ("", "pods") if !HARMLESS.contains(&at.subresource) => self.pod(at, object).await,
            kind if at.subresource.is_empty() => match template(kind, object) {
                Some(template) => self.workload(at, template).await,
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// The pod template of a workload.
fn template<'a>((group, plural): (&str, &str), object: &'a Value) -> Option<View<'a, v1::PodTemplateSpec>> {
    let template = match (group, plural) {
        ("", "podtemplates") => v1::PodTemplate::of(object).template(),
        ("", "replicationcontrollers") => v1::ReplicationController::of(object).spec().template(),
        ("apps", "replicasets") => apps::ReplicaSet::of(object).spec().template(),
        ("apps", "deployments") => apps::Deployment::of(object).spec().template(),
        ("apps", "statefulsets") => apps::StatefulSet::of(object).spec().template(),
        ("apps", "daemonsets") => apps::DaemonSet::of(object).spec().template(),
        ("batch", "jobs") => batch::Job::of(object).spec().template(),
        ("batch", "cronjobs") => batch::CronJob::of(object).spec().job_template().spec().template(),
        _ => return None,
    };
    Some(template).filter(|template| template.is_object())
}

impl PodSecurity {
    /// Whether nobody asks about this request, which the audit log is told.
    fn exempt(&self, at: &Attributes<'_>) -> bool {
        let why = if self.exemptions.namespaces.iter().any(|n| n == at.namespace) {
            "namespace"
        } else if self.exemptions.usernames.contains(&at.user.name) {
            "user"
        } else {
            return false;
        };
        at.audit(format!("{PREFIX}exempt"), why);
        true
    }

    fn exempt_class(&self, spec: View<'_, v1::PodSpec>) -> bool {
        let class = spec.runtime_class_name().get();
        class.is_some_and(|class| self.exemptions.runtime_classes.iter().any(|c| c == class))
    }

    /// The same for the pod of a request, which the audit log is told.
    fn exempt_pod(&self, at: &Attributes<'_>, pod: &Pod<'_>) -> bool {
        let exempt = self.exempt_class(pod.spec);
        if exempt {
            at.audit(format!("{PREFIX}exempt"), "runtimeClass");
        }
        exempt
    }

    /// The labels of the namespace of a request.
    async fn policy(&self, at: &Attributes<'_>) -> Option<Policy> {
        let namespace = at.find("", "namespaces", "", at.namespace).await?;
        let doc = namespace.doc();
        Some(self.defaults.with_labels(doc.view::<PartialObjectMetadata>().metadata().labels()).0)
    }

    async fn pod(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        // In a pod that nobody has seen, every field can change.
        let is_checked = at.is_new() || at.old.is_none_or(|old| is_significant(object, old));
        if self.exempt(at) || !is_checked {
            return Ok(());
        }
        let Some(policy) = self.policy(at).await else {
            return Err(ApiError::internal(format!("failed to lookup namespace {:?}", at.namespace)));
        };
        let pod = pod_of(v1::Pod::of(object));
        if self.exempt_pod(at, &pod) {
            return Ok(());
        }
        at.audit(format!("{PREFIX}enforce-policy"), policy.enforce.to_string());
        audit(at, &policy, &pod);
        let findings = evaluate(policy.enforce, &pod);
        if !findings.is_empty() {
            return Err(at.forbidden(format!(
                "violates PodSecurity \"{}\": {}",
                policy.enforce,
                details(&findings)
            )));
        }
        at.warnings.extend(violation_text(policy.warn, &pod));
        Ok(())
    }

    /// Workloads are never refused: their pods will be.
    async fn workload(
        &self,
        at: &mut Attributes<'_>,
        template: View<'_, v1::PodTemplateSpec>,
    ) -> Result<(), ApiError> {
        if self.exempt(at) {
            return Ok(());
        }
        let Some(policy) = self.policy(at).await else { return Ok(()) };
        let pod = Pod { meta: template.metadata(), spec: template.spec() };
        if !self.exempt_pod(at, &pod) {
            audit(at, &policy, &pod);
            at.warnings.extend(violation_text(policy.warn, &pod));
        }
        Ok(())
    }

    fn namespace(&self, at: &mut Attributes<'_>, namespace: &Value) -> Result<(), ApiError> {
        let meta = v1::Namespace::of(namespace).metadata();
        let (labels, name) = (meta.labels(), meta.name().text());
        let (new, errors) = self.defaults.with_labels(labels);
        let old = at.old.map(|old| self.defaults.with_labels(v1::Namespace::of(old).metadata().labels()));
        if !errors.is_empty() && old.as_ref().is_none_or(|(_, before)| *before != errors) {
            return Err(ApiError::invalid("", "Namespace", name, errors));
        }
        let stricter = match &old {
            None => true,
            Some((old, _)) => {
                new.enforce != old.enforce
                    && new.enforce.level != Level::Privileged
                    && (new.enforce.version != old.enforce.version || new.enforce.level > old.enforce.level)
            }
        };
        if !stricter {
            return Ok(());
        }
        if self.exemptions.namespaces.iter().any(|n| n == name) {
            if !new.fully_privileged() && !new.equivalent(&self.defaults) {
                at.warnings.push(format!(
                    "namespace {name:?} is exempt from Pod Security, and the policy ({}) will be ignored",
                    new.explicit(labels)
                ));
            }
            return Ok(());
        }
        if old.is_some() {
            let pods = at.cached("", "pods", Some(name));
            let pods: Vec<Doc<'_>> = pods.iter().map(|pod| pod.doc()).collect();
            let pods = pods.iter().map(|pod| pod.view()).collect();
            let warnings = self.evaluate_existing(name, pods, new.enforce);
            at.warnings.extend(warnings);
        }
        Ok(())
    }

    /// Which of the pods that are there a stricter level would refuse.
    fn evaluate_existing(
        &self,
        namespace: &str,
        pods: Vec<View<'_, v1::Pod>>,
        standard: Standard,
    ) -> Vec<String> {
        let (start, mut owners) = (Instant::now(), BTreeSet::new());
        let pods = pods.into_iter().filter(|pod| !self.exempt_class(pod.spec()));
        // One pod of each owner first: the others are likely the same.
        let (first, rest): (Vec<_>, Vec<_>) =
            pods.partition(|pod| controller(*pod).is_none_or(|uid| owners.insert(uid)));
        let all: Vec<View<'_, v1::Pod>> = first.into_iter().chain(rest).collect();
        let (total, mut looked) = (all.len(), 0);
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in all.iter().take(MOST_PODS) {
            looked += 1;
            let findings: Vec<Finding> = evaluate(standard, &pod_of(*pod));
            if !findings.is_empty() {
                let name = pod.metadata().name().text().to_owned();
                found.entry(reasons(&findings)).or_default().push(name);
            }
            if start.elapsed() > MOST_TIME {
                break;
            }
        }
        let mut warnings = Vec::new();
        if looked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {looked} of {total} existing pods"
            ));
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{standard}\""
            ));
        }
        let mut lines: Vec<String> = found.into_iter().map(|(why, names)| one_line(&why, names)).collect();
        lines.sort();
        warnings.extend(lines);
        warnings
    }
}

fn one_line(why: &str, mut names: Vec<String>) -> String {
    names.sort();
    let first = names.first().cloned().unwrap_or_default();
    match names.len() {
        1 => format!("{first}: {why}"),
        2 => format!("{first} (and 1 other pod): {why}"),
        many => format!("{first} (and {} other pods): {why}", many - 1),
    }
}

/// The pod as the checks read it.
fn pod_of(pod: View<'_, v1::Pod>) -> Pod<'_> {
    Pod { meta: pod.metadata(), spec: pod.spec() }
}

fn controller(pod: View<'_, v1::Pod>) -> Option<String> {
    let mut owners = pod.metadata().owner_references().items();
    let owner = owners.find(|owner| owner.controller().flag())?;
    owner.uid().get().map(str::to_owned)
}

/// What a pod would do against a standard that does not refuse it.
fn violation_text(standard: Standard, pod: &Pod<'_>) -> Option<String> {
    let findings = evaluate(standard, pod);
    (!findings.is_empty())
        .then(|| format!("would violate PodSecurity \"{standard}\": {}", details(&findings)))
}

/// Notes for the audit log what the audit level has against a pod, also when another level refuses it.
fn audit(at: &Attributes<'_>, policy: &Policy, pod: &Pod<'_>) {
    if let Some(text) = violation_text(policy.audit, pod) {
        at.audit(format!("{PREFIX}audit-violations"), text);
    }
}

/// The annotations that choose AppArmor or seccomp profiles.
fn profiles(pod: View<'_, v1::Pod>) -> BTreeMap<&str, Cow<'_, Value>> {
    let all = pod.metadata().annotations().entries();
    all.filter(|(key, _)| baseline::chooses_profile(key))
        .map(|(key, value)| (key, value.as_value()))
        .collect()
}

/// Names and images of containers.
fn images(list: View<'_, List<v1::Container>>) -> Vec<(&str, Cow<'_, Value>)> {
    list.items().map(|container| (container.name().text(), container.image().as_value())).collect()
}

/// Whether a change of a pod can change what it may do: other images, containers or profiles.
fn is_significant(new: &Value, old: &Value) -> bool {
    let (new, old) = (v1::Pod::of(new), v1::Pod::of(old));
    let (spec, before) = (new.spec(), old.spec());
    let changed = |new: View<'_, List<v1::Container>>, old: View<'_, List<v1::Container>>| {
        let (new, old) = (images(new), images(old));
        new.len() != old.len() || new.iter().zip(&old).any(|(a, b)| a.1 != b.1)
    };
    let had = images(containers::ephemeral(before));
    profiles(new) != profiles(old)
        || changed(spec.containers(), before.containers())
        || changed(spec.init_containers(), before.init_containers())
        || images(containers::ephemeral(spec)).iter().any(|container| !had.contains(container))
}
