//! Field rules of Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers and revisions.

use super::field_ref::{FieldRef, walk};
use super::meta;
use super::pods;
use super::storage;
use crate::tree::{Grow, Tree, same};
use coracle_proto::names::{dns1123_label, percent};
use coracle_proto::selector::LabelSelector;
use coracle_proto::status::FieldError;
use serde_json::{Value, json};

const NO_MATCH: &str = "`selector` does not match template `labels`";

/// A Deployment.
pub fn deployment(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        spec.at("replicas").non_negative();
        selector(&spec, "deployment");
        lasting_template(&spec, "ReplicaSet");
        strategy(&spec.at("strategy"));
        spec.at("minReadySeconds").non_negative();
        spec.at("revisionHistoryLimit").non_negative();
        let deadline = spec.at("progressDeadlineSeconds");
        deadline.non_negative();
        let ready = spec.value.int("minReadySeconds").unwrap_or_default();
        if deadline.int().is_some_and(|seconds| seconds <= ready) {
            deadline.invalid("must be greater than minReadySeconds");
        }
    });
}

/// A selector never changes: pods would be orphaned.
pub fn fixed_selector(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        root.at("spec.selector").immutable(old.at("spec.selector"));
    });
}

/// Counts in the status of a Deployment, ReplicaSet or ReplicationController.
pub fn replica_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    counts(new, old, errors, "cannot be greater than readyReplicas");
}

/// Counts in the status of a StatefulSet.
pub fn stateful_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    counts(new, old, errors, "cannot be greater than status.readyReplicas");
}

fn counts(new: &Value, old: &Value, errors: &mut Vec<FieldError>, more_than_ready: &str) {
    walk(new, errors, |root| {
        let status = root.at("status");
        let all = status.value.int("replicas").unwrap_or_default();
        let parts = [
            "updatedReplicas",
            "currentReplicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
        ];
        for field in parts.iter().chain(&[
            "observedGeneration",
            "replicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ]) {
            status.at(field).non_negative();
        }
        for field in parts {
            if status.at(field).int().is_some_and(|count| count > all) {
                status.at(field).invalid("cannot be greater than status.replicas");
            }
        }
        let ready = status.value.int("readyReplicas").unwrap_or_default();
        if status.at("availableReplicas").int().is_some_and(|count| count > ready) {
            status.at("availableReplicas").invalid(more_than_ready);
        }
        collisions(&status, old);
    });
}

fn collisions(status: &FieldRef<'_>, old: &Value) {
    let before = old.int("status.collisionCount");
    let now = status.value.int("collisionCount");
    if before.is_some() && now.is_none_or(|now| Some(now) < before) {
        status.at("collisionCount").invalid_as(now.unwrap_or_default(), "cannot be decremented");
    }
}

/// Counts in the status of a DaemonSet.
pub fn daemon_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let status = root.at("status");
        for field in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ] {
            status.at(field).non_negative();
        }
        collisions(&status, old);
    });
}

/// A ReplicaSet.
pub fn replica_set(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        spec.at("replicas").non_negative();
        spec.at("minReadySeconds").non_negative();
        selector(&spec, "deployment");
        lasting_template(&spec, "ReplicaSet");
    });
}

/// A ReplicationController, which selects by plain labels.
pub fn replication_controller(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        spec.at("minReadySeconds").non_negative();
        if spec.at("selector").is_empty() {
            spec.at("selector").required("");
        }
        spec.at("replicas").non_negative();
        if !spec.at("template").is_set() {
            return spec.at("template").required("");
        }
        let labels = spec.value.at("template.metadata.labels");
        if !LabelSelector::from_map(spec.value.at("selector")).matches_value(labels) {
            labels_differ(&spec.at("template.metadata.labels"));
        }
        template(&spec, "ReplicationController");
    });
}

/// A StatefulSet.
pub fn stateful_set(object: &Value, errors: &mut Vec<FieldError>) {
    // Claims are volumes to the pods; hostname and subdomain are the controller's to set.
    let mut seen = object.clone();
    if let Some(pod) = seen.pointer_mut("/spec/template/spec").filter(|spec| spec.is_object()) {
        pod.drop_key("hostname");
        pod.drop_key("subdomain");
        let claims: Vec<Value> = object
            .items("spec.volumeClaimTemplates")
            .iter()
            .map(|claim| json!({"name": claim.at("metadata.name"), "persistentVolumeClaim": {"claimName": claim.at("metadata.name")}}))
            .collect();
        let names: Vec<Value> = claims.iter().map(|claim| claim["name"].clone()).collect();
        let others = pod.items("volumes").iter().filter(|volume| !names.contains(volume.at("name"))).cloned();
        let volumes: Vec<Value> = claims.iter().cloned().chain(others).collect();
        if !claims.is_empty() {
            pod.put("volumes", volumes);
        }
    }
    walk(&seen, errors, |root| {
        let spec = root.at("spec");
        let policy = spec.at("podManagementPolicy");
        if policy.has_text("") && !matches!(policy.text(), "OrderedReady" | "Parallel") {
            policy.invalid("must be 'OrderedReady' or 'Parallel'");
        }
        stateful_strategy(&spec.at("updateStrategy"));
        for field in ["whenDeleted", "whenScaled"] {
            let retention = spec.at("persistentVolumeClaimRetentionPolicy");
            if retention.is_set() {
                retention.at(field).one_of(&["Retain", "Delete"]);
            }
        }
        for claim in spec.each("volumeClaimTemplates") {
            storage::claim_spec(&claim.at("spec"));
        }
        spec.at("replicas").non_negative();
        spec.at("minReadySeconds").non_negative();
        spec.at("ordinals.start").non_negative();
        if !spec.at("serviceName").is_empty() {
            spec.at("serviceName").follows(dns1123_label);
        }
        selector(&spec, "statefulset");
        lasting_template(&spec, "StatefulSet");
    });
}

/// A change of a StatefulSet.
pub fn stateful_set_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    const CHANGEABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        for key in CHANGEABLE {
            spec.drop_key(key);
        }
        spec
    };
    if !same(&fixed(new.at("spec")), &fixed(old.at("spec"))) {
        errors.push(FieldError::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

fn stateful_strategy(strategy: &FieldRef<'_>) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.value.text("type") {
        "" => strategy.required(""),
        "OnDelete" => {
            if rolling.is_set() {
                rolling.invalid("only allowed for updateStrategy 'RollingUpdate'");
            }
        }
        "RollingUpdate" => {
            rolling.at("partition").non_negative();
            let unavailable = rolling.at("maxUnavailable");
            if unavailable.is_set() {
                count_or_percent(&unavailable);
                if amount(unavailable.value) == 0 {
                    unavailable.invalid("cannot be 0");
                }
                at_most_all(&unavailable);
            }
        }
        _ => strategy.invalid("must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// A DaemonSet.
pub fn daemon_set(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        if !spec.at("selector").is_set() {
            spec.at("selector").required("");
        }
        selector(&spec, "daemonset");
        lasting_template(&spec, "DaemonSet");
        spec.at("minReadySeconds").non_negative();
        daemon_strategy(&spec.at("updateStrategy"));
        spec.at("revisionHistoryLimit").non_negative();
    });
}

fn daemon_strategy(strategy: &FieldRef<'_>) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.value.text("type") {
        "OnDelete" => return,
        "RollingUpdate" if !rolling.is_set() => return rolling.required(""),
        "RollingUpdate" => {}
        _ => return strategy.unsupported(&["RollingUpdate", "OnDelete"]),
    }
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    for share in [&unavailable, &surge] {
        count_or_percent(share);
    }
    for share in [&unavailable, &surge] {
        at_most_all(share);
    }
    match (amount(unavailable.value) != 0, amount(surge.value) != 0) {
        (true, true) => surge.invalid("may not be set when maxUnavailable is non-zero"),
        (false, false) => unavailable.required("cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

fn strategy(strategy: &FieldRef<'_>) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.value.text("type") {
        "Recreate" => {
            if rolling.is_set() {
                rolling.forbidden("may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            count_or_percent(&unavailable);
            count_or_percent(&surge);
            if amount(unavailable.value) == 0 && amount(surge.value) == 0 {
                unavailable.invalid("may not be 0 when `maxSurge` is 0");
            }
            at_most_all(&unavailable);
        }
        _ => strategy.unsupported(&["Recreate", "RollingUpdate"]),
    }
}

/// A number that is not negative, or a percentage.
pub(super) fn count_or_percent(share: &FieldRef<'_>) {
    match share.value {
        Value::String(text) => share.all_good(percent(text)),
        _ => share.non_negative(),
    }
}

/// At most `100%`.
pub(super) fn at_most_all(share: &FieldRef<'_>) {
    if share.value.is_string() && amount(share.value) > 100 {
        share.invalid("must not be greater than 100%");
    }
}

fn amount(share: &Value) -> i64 {
    match share {
        Value::String(text) => {
            text.strip_suffix('%').and_then(|digits| digits.parse().ok()).unwrap_or_default()
        }
        other => other.as_i64().unwrap_or_default(),
    }
}

/// A selector that selects something, and the template's labels among it.
fn selector(spec: &FieldRef<'_>, kind: &str) {
    let selector = spec.at("selector");
    if !selector.is_set() {
        if kind != "daemonset" {
            selector.required("");
        }
        // No selector selects nothing, so also not what the template makes.
        if spec.at("template").is_set() {
            labels_differ(&spec.at("template.metadata.labels"));
        }
        return;
    }
    let before = selector.errors();
    meta::selector(&selector);
    if selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
        return selector.invalid(format!("empty selector is invalid for {kind}"));
    }
    if selector.errors() > before {
        if kind == "deployment" {
            selector.invalid("invalid label selector");
        }
        return;
    }
    matches_template(spec);
}

/// The template's labels match the selector.
pub(super) fn matches_template(spec: &FieldRef<'_>) {
    let labels = spec.value.at("template.metadata.labels");
    let Ok(selector) = LabelSelector::from_object(spec.value.at("selector")) else { return };
    if !selector.matches_value(labels) {
        labels_differ(&spec.at("template.metadata.labels"));
    }
}

fn labels_differ(labels: &FieldRef<'_>) {
    let none = json!({});
    let shown = if labels.is_set() { labels.value } else { &none };
    labels.with(shown).invalid(NO_MATCH);
}

/// A required pod template.
fn lasting_template(spec: &FieldRef<'_>, owner: &str) {
    if !spec.at("template").is_set() {
        return spec.at("template").required("");
    }
    template(spec, owner);
}

fn template(spec: &FieldRef<'_>, owner: &str) {
    let template = spec.at("template");
    pods::template(&template);
    let policy = template.at("spec.restartPolicy");
    if policy.text() != "Always" {
        policy.unsupported(&["Always"]);
    }
    let deadline = template.at("spec.activeDeadlineSeconds");
    if deadline.is_set() {
        deadline.forbidden(format!("activeDeadlineSeconds in {owner} is not Supported"));
    }
}

/// A ControllerRevision.
pub fn controller_revision(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        root.at("revision").non_negative();
    });
}

/// A new ControllerRevision carries an object.
pub fn new_controller_revision(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| match root.at("data").value {
        Value::Null => root.at("data").required("data is mandatory"),
        Value::Object(_) => {}
        _ => root.at("data").required("data must be a valid JSON object"),
    });
}

/// What a ControllerRevision carries never changes.
pub fn controller_revision_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        root.at("data").immutable(old.at("data"));
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;

    fn deployment_with(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "d", "namespace": "n"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        crate::defaults::workloads::deployment(&mut object);
        object
    }

    #[test]
    fn deployments() {
        assert_eq!(errors(deployment, &deployment_with(json!({}))), [""; 0]);
        let cases = [
            (json!({"replicas": -1}), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
            (
                json!({"selector": {"matchLabels": {"a": "c"}}}),
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ),
            (
                json!({"selector": {}}),
                "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
            ),
            (
                json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
            ),
            (
                json!({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "101%"}}}),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
            (
                json!({"progressDeadlineSeconds": 5, "minReadySeconds": 5}),
                "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(errors(deployment, &deployment_with(spec.clone())), [expected], "{spec}");
        }
        assert_eq!(
            errors(deployment, &deployment_with(json!({"selector": null}))),
            [
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ]
        );
        let odd = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}});
        let wrong = errors(deployment, &deployment_with(odd));
        assert!(wrong.last().is_some_and(|last| last.ends_with("invalid label selector")), "{wrong:?}");
    }

    #[test]
    fn selectors_are_fixed() {
        let old = deployment_with(json!({}));
        let new = deployment_with(json!({"selector": {"matchLabels": {"a": "c"}}}));
        assert_eq!(
            changes(fixed_selector, &new, &old),
            ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable"]
        );
    }

    #[test]
    fn stateful_sets_mount_their_claims() {
        let mut set = json!({"spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}],
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i",
                "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}}}});
        crate::defaults::workloads::stateful_set(&mut set);
        assert_eq!(errors(stateful_set, &set), [""; 0]);
        let mut new = set.clone();
        new["spec"]["replicas"] = json!(3);
        assert_eq!(changes(stateful_set_update, &new, &set), [""; 0]);
        new["spec"]["serviceName"] = json!("t");
        assert!(
            changes(stateful_set_update, &new, &set)[0]
                .starts_with("spec: Forbidden: updates to statefulset spec")
        );
    }
}
