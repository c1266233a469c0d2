//! Field rules of Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers and revisions.

use super::claim_spec::claim_spec;
use super::field_ref::{Field, FieldRef, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::meta;
use super::pods;
use crate::tree::same;
use coracle_fields::apps::v1::{
    ControllerRevision, DaemonSet, DaemonSetUpdateStrategy, Deployment, DeploymentStrategy, ReplicaSet,
    ReplicaSetStatus, StatefulSet, StatefulSetStatus, StatefulSetUpdateStrategy,
};
use coracle_fields::core::v1::{PodTemplateSpec, ReplicationController, Volume};
use coracle_fields::meta::LabelSelector;
use coracle_fields::{Int32, IntOrString, Schema, make};
use coracle_proto::names::{dns1123_label, percent};
use coracle_proto::selector::LabelSelector as Selector;
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::num::{IntErrorKind, ParseIntError};

const NO_MATCH: &str = "`selector` does not match template `labels`";

/// A Deployment.
pub fn deployment(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Deployment>(object, errors, |root| {
        let spec = root.spec();
        spec.replicas().non_negative();
        if selector(&spec.selector(), &spec.template(), "deployment") {
            lasting_template(&spec.template(), "ReplicaSet");
        }
        strategy(&spec.strategy());
        spec.min_ready_seconds().non_negative();
        spec.revision_history_limit().non_negative();
        let deadline = spec.progress_deadline_seconds();
        deadline.non_negative();
        let ready = spec.view().min_ready_seconds().or(0);
        if deadline.int().is_some_and(|seconds| seconds <= ready) {
            deadline.invalid("must be greater than minReadySeconds");
        }
    });
}

/// A Deployment, or another workload with such a template, that is new.
pub fn new_workload(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Deployment>(object, errors, |root| pods::new_template(&root.spec().template(), None));
}

/// The selector of a Deployment, or of another workload with such a selector, never changes: pods would be orphaned.
pub fn fixed_selector(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    changed_template(new, old, errors);
    let old = Deployment::of(old);
    walk_as::<Deployment>(new, errors, |root| {
        root.spec().selector().immutable(old.spec().selector());
    });
}

/// The template of a changed workload of any such kind.
pub fn changed_template(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = Deployment::of(old).spec().template();
    walk_as::<Deployment>(new, errors, |root| pods::new_template(&root.spec().template(), Some(before)));
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
    let old = Deployment::of(old);
    walk_as::<Deployment>(new, errors, |root| {
        let status = root.status();
        // Counts that only the other kinds have.
        let stateful = status.as_type::<StatefulSetStatus>();
        let labeled = status.as_type::<ReplicaSetStatus>().fully_labeled_replicas();
        let all = status.view().replicas().or(0);
        let parts = [
            status.updated_replicas(),
            stateful.current_replicas(),
            labeled,
            status.ready_replicas(),
            status.available_replicas(),
        ];
        parts.iter().for_each(|field| field.non_negative());
        status.observed_generation().non_negative();
        status.replicas().non_negative();
        status.unavailable_replicas().non_negative();
        status.terminating_replicas().non_negative();
        status.collision_count().non_negative();
        for field in parts {
            if field.int().is_some_and(|count| count > all) {
                field.invalid("cannot be greater than status.replicas");
            }
        }
        let ready = status.view().ready_replicas().or(0);
        if status.available_replicas().int().is_some_and(|count| count > ready) {
            status.available_replicas().invalid(more_than_ready);
        }
        collisions(&status.collision_count(), old.status().collision_count().int());
    });
}

fn collisions(count: &Field<'_, Int32>, before: Option<i64>) {
    let now = count.int();
    if before.is_some() && now.is_none_or(|now| Some(now) < before) {
        count.invalid_as(now.unwrap_or_default(), "cannot be decremented");
    }
}

/// Counts in the status of a DaemonSet.
pub fn daemon_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = DaemonSet::of(old);
    walk_as::<DaemonSet>(new, errors, |root| {
        let status = root.status();
        status.current_number_scheduled().non_negative();
        status.number_misscheduled().non_negative();
        status.desired_number_scheduled().non_negative();
        status.number_ready().non_negative();
        status.observed_generation().non_negative();
        status.updated_number_scheduled().non_negative();
        status.number_available().non_negative();
        status.number_unavailable().non_negative();
        status.collision_count().non_negative();
        collisions(&status.collision_count(), old.status().collision_count().int());
    });
}

/// A ReplicaSet.
pub fn replica_set(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ReplicaSet>(object, errors, |root| {
        let spec = root.spec();
        spec.replicas().non_negative();
        spec.min_ready_seconds().non_negative();
        if selector(&spec.selector(), &spec.template(), "deployment") {
            lasting_template(&spec.template(), "ReplicaSet");
        }
    });
}

/// A ReplicationController, which selects by plain labels.
pub fn replication_controller(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ReplicationController>(object, errors, |root| {
        let spec = root.spec();
        spec.min_ready_seconds().non_negative();
        if spec.selector().is_empty() {
            spec.selector().required("");
        }
        spec.replicas().non_negative();
        if !spec.template().is_set() {
            return spec.template().required("");
        }
        let labels = spec.template().metadata().labels().value;
        if !Selector::from_map(spec.selector().value).matches_value(labels) {
            labels_differ(&spec.template().metadata().labels());
        }
        template(&spec.template(), "ReplicationController");
    });
}

/// A StatefulSet.
pub fn stateful_set(object: &Value, errors: &mut Vec<FieldError>) {
    // Claims are volumes to the pods; hostname and subdomain are the controller's to set.
    let mut seen = object.clone();
    if let Some(mut pod) = StatefulSet::edit(&mut seen).spec().template().spec().existing() {
        pod.hostname().clear();
        pod.subdomain().clear();
        let claims = StatefulSet::of(object).spec().volume_claim_templates().items();
        let names: Vec<Option<&str>> = claims.map(|claim| claim.metadata().name().get()).collect();
        if !names.is_empty() {
            let volumes = pod.view().volumes().items();
            let others = volumes.filter(|volume| !names.contains(&volume.name().get()));
            let others: Vec<Value> = others.map(|volume| volume.to_value()).collect();
            let claims = names.iter().map(|name| claimed(*name));
            pod.volumes().put(claims.chain(others).collect());
        }
    }
    walk_as::<StatefulSet>(&seen, errors, |root| {
        let spec = root.spec();
        let policy = spec.pod_management_policy();
        if policy.has_text("") && !matches!(policy.text(), "OrderedReady" | "Parallel") {
            policy.invalid("must be 'OrderedReady' or 'Parallel'");
        }
        stateful_strategy(&spec.update_strategy());
        let retention = spec.persistent_volume_claim_retention_policy();
        if retention.is_set() {
            retention.when_deleted().one_of(&["Retain", "Delete"]);
            retention.when_scaled().one_of(&["Retain", "Delete"]);
        }
        for claim in spec.volume_claim_templates().items() {
            claim_spec(&claim.spec());
        }
        spec.replicas().non_negative();
        spec.min_ready_seconds().non_negative();
        spec.ordinals().start().non_negative();
        if !spec.service_name().is_empty() {
            spec.service_name().follows(dns1123_label);
        }
        if selector(&spec.selector(), &spec.template(), "statefulset") {
            lasting_template(&spec.template(), "StatefulSet");
        } else {
            lasting(&spec.template(), "StatefulSet");
        }
    });
}

/// The volume of a claim that a StatefulSet makes for each pod.
fn claimed(name: Option<&str>) -> Value {
    let claim_name = name.unwrap_or_default();
    make!(part Volume { name, persistent_volume_claim: { claim_name } }).into_value()
}

/// A change of a StatefulSet.
pub fn stateful_set_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    changed_template(new, old, errors);
    const CHANGEABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |set: &Value| {
        let mut spec = StatefulSet::of(set).spec().to_value();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|name, _| !CHANGEABLE.contains(&name.as_str()));
        }
        spec
    };
    if !same(&fixed(&with_copied_sources(new, old)), &fixed(old)) {
        errors.push(FieldError::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

/// The changed set with the sources of its claims in both fields where the old set has them so. Earlier versions copied them: who
/// applies the same manifest again sends one.
fn with_copied_sources(new: &Value, old: &Value) -> Value {
    let mut set = new.clone();
    let mut templates = StatefulSet::of(old).spec().volume_claim_templates().items();
    StatefulSet::edit(&mut set).spec().volume_claim_templates().each_object(|mut claim| {
        let Some(template) = templates.next() else { return };
        let before = template.spec();
        let (source, reference) = (before.data_source().to_value(), before.data_source_ref().to_value());
        if !same(&source, &reference) {
            return;
        }
        let mut spec = claim.spec();
        let has_source = spec.view().data_source().is_set();
        let has_reference = spec.view().data_source_ref().is_set();
        if has_source && !has_reference {
            spec.data_source_ref().put(reference);
        } else if has_reference && !has_source {
            spec.data_source().put(source);
        }
    });
    set
}

fn stateful_strategy(strategy: &Field<'_, StatefulSetUpdateStrategy>) {
    let rolling = strategy.rolling_update();
    match strategy.view().type_().text() {
        "" => strategy.required(""),
        "OnDelete" => {
            if rolling.is_set() {
                rolling.invalid("only allowed for updateStrategy 'RollingUpdate'");
            }
        }
        "RollingUpdate" => {
            rolling.partition().non_negative();
            let unavailable = rolling.max_unavailable();
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
    walk_as::<DaemonSet>(object, errors, |root| {
        let spec = root.spec();
        selector(&spec.selector(), &spec.template(), "daemonset");
        lasting_template(&spec.template(), "DaemonSet");
        spec.min_ready_seconds().non_negative();
        daemon_strategy(&spec.update_strategy());
        spec.revision_history_limit().non_negative();
    });
}

fn daemon_strategy(strategy: &Field<'_, DaemonSetUpdateStrategy>) {
    let rolling = strategy.rolling_update();
    match strategy.view().type_().text() {
        "OnDelete" => return,
        "RollingUpdate" if !rolling.is_set() => return rolling.required(""),
        "RollingUpdate" => {}
        _ => return strategy.unsupported(&["RollingUpdate", "OnDelete"]),
    }
    let (unavailable, surge) = (rolling.max_unavailable(), rolling.max_surge());
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

fn strategy(strategy: &Field<'_, DeploymentStrategy>) {
    let rolling = strategy.rolling_update();
    match strategy.view().type_().text() {
        "Recreate" => {
            if rolling.is_set() {
                rolling.forbidden("may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.max_unavailable(), rolling.max_surge());
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
pub(super) fn count_or_percent(share: &Field<'_, IntOrString>) {
    match share.value {
        Value::String(text) => share.all_good(percent(text)),
        _ => share.non_negative(),
    }
}

/// At most `100%`.
pub(super) fn at_most_all(share: &FieldRef<'_>) {
    let is_share = share.value.as_str().is_some_and(|text| text.ends_with('%'));
    if is_share && amount(share.value) > 100 {
        share.invalid("must not be greater than 100%");
    }
}

/// The number of a share as Go reads it: zero if it is none, the bounds of 64 bits when it is beyond.
fn amount(share: &Value) -> i64 {
    let Value::String(text) = share else { return share.as_i64().unwrap_or_default() };
    let number = text.strip_suffix('%').filter(|_| percent(text).is_empty()).unwrap_or(text);
    number.parse().unwrap_or_else(|why: ParseIntError| match why.kind() {
        IntErrorKind::PosOverflow => i64::MAX,
        IntErrorKind::NegOverflow => i64::MIN,
        _ => 0,
    })
}

/// A selector that selects something, and the template's labels among it. Returns whether it is a selector: upstream does not
/// look at the templates of Deployments, ReplicaSets and StatefulSets otherwise.
fn selector(selector: &Field<'_, LabelSelector>, template: &Field<'_, PodTemplateSpec>, kind: &str) -> bool {
    if !selector.is_set() {
        if kind != "daemonset" {
            selector.required("");
        }
        // No selector selects nothing, so also not what the template makes.
        if template.is_set() {
            labels_differ(&template.metadata().labels());
        }
        return true;
    }
    let before = selector.errors();
    meta::selector(selector);
    if selector.match_labels().is_empty() && selector.match_expressions().is_empty() {
        selector.invalid(format!("empty selector is invalid for {kind}"));
        return true;
    }
    if selector.errors() == before {
        matches_template(selector, template);
        return true;
    }
    match kind {
        "daemonset" => return true,
        "deployment" => selector.invalid("invalid label selector"),
        _ => selector.invalid(""),
    }
    false
}

/// The template's labels match the selector.
pub(super) fn matches_template(selector: &Field<'_, LabelSelector>, template: &Field<'_, PodTemplateSpec>) {
    let labels = template.metadata().labels();
    let Ok(selector) = Selector::from_object(selector.value) else { return };
    if !selector.matches_value(labels.value) {
        labels_differ(&labels);
    }
}

fn labels_differ(labels: &FieldRef<'_>) {
    let none = json!({});
    let shown = if labels.is_set() { labels.value } else { &none };
    labels.with(shown).invalid(NO_MATCH);
}

/// A required pod template.
fn lasting_template(place: &Field<'_, PodTemplateSpec>, owner: &str) {
    if !place.is_set() {
        return place.required("");
    }
    template(place, owner);
}

fn template(template: &Field<'_, PodTemplateSpec>, owner: &str) {
    pods::template(template);
    lasting(template, owner);
}

/// The pods of a template run until they are deleted.
fn lasting(template: &Field<'_, PodTemplateSpec>, owner: &str) {
    let policy = template.spec().restart_policy();
    if policy.text() != "Always" {
        policy.unsupported(&["Always"]);
    }
    let deadline = template.spec().active_deadline_seconds();
    if deadline.is_set() {
        deadline.forbidden(format!("activeDeadlineSeconds in {owner} is not Supported"));
    }
}

/// A ControllerRevision.
pub fn controller_revision(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ControllerRevision>(object, errors, |root| {
        root.revision().non_negative();
    });
}

/// A new ControllerRevision carries an object.
pub fn new_controller_revision(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ControllerRevision>(object, errors, |root| match root.data().value {
        Value::Null => root.data().required("data is mandatory"),
        Value::Object(_) => {}
        _ => root.data().required("data must be a valid JSON object"),
    });
}

/// What a ControllerRevision carries never changes.
pub fn controller_revision_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = ControllerRevision::of(old);
    walk_as::<ControllerRevision>(new, errors, |root| {
        root.data().immutable(old.data());
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
    fn templates_are_checked_where_the_selector_is_one() {
        let odd = json!({"matchLabels": {"a": "b c"}});
        let with = |kind: fn(&Value, &mut Vec<FieldError>), selector: &Value| {
            let mut object = deployment_with(json!({"selector": selector}));
            object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("");
            object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
            object["spec"]["podManagementPolicy"] = json!("Parallel");
            let fields = errors(kind, &object).into_iter().filter_map(|error| {
                error
                    .split_once(": ")
                    .map(|(field, _)| field.strip_prefix("spec.").unwrap_or(field).to_owned())
            });
            fields.collect::<Vec<String>>()
        };
        let image = "template.spec.containers[0].image";
        let twice = ["selector.matchLabels", "selector"];
        assert_eq!(with(deployment, &odd), twice);
        assert_eq!(with(replica_set, &odd), twice);
        assert_eq!(with(stateful_set, &odd), twice);
        assert_eq!(with(daemon_set, &odd), ["selector.matchLabels", image]);
        assert_eq!(with(daemon_set, &Value::Null), ["template.metadata.labels", image]);
    }

    #[test]
    fn shares_have_a_sign() {
        let with = |unavailable: Value| {
            let rolling = json!({"maxSurge": 0, "maxUnavailable": unavailable});
            errors(deployment, &deployment_with(json!({"strategy": {"rollingUpdate": rolling}}))).len()
        };
        for (unavailable, wrong) in [
            (json!("5"), 1),
            (json!("500"), 1),
            (json!("5%"), 0),
            (json!("101%"), 1),
            (json!("x"), 2),
            (json!("+5%"), 2),
        ] {
            assert_eq!(with(unavailable.clone()), wrong, "{unavailable}");
        }
        assert_eq!(amount(&json!("99999999999999999999%")), i64::MAX);
        assert_eq!(amount(&json!("-500%")), 0);
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

    #[test]
    fn sources_of_claims_that_an_earlier_version_copied_may_stand_in_one_field() {
        let (source, other) = (
            json!({"kind": "PersistentVolumeClaim", "name": "a"}),
            json!({"kind": "PersistentVolumeClaim", "name": "b"}),
        );
        let set = |claim: Value| {
            json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
                "template": {}}})
        };
        let copied = set(json!({"dataSource": source, "dataSourceRef": source}));
        let one = set(json!({"dataSource": source}));
        for (new, old, refused) in [
            (&one, &copied, false),
            (&set(json!({"dataSourceRef": source})), &copied, false),
            (&copied, &copied, false),
            (&set(json!({"dataSource": other})), &copied, true),
            (&set(json!({})), &copied, true),
            (&copied, &one, true),
        ] {
            let said = changes(stateful_set_update, new, old);
            assert_eq!(
                said.iter().any(|error| error.starts_with("spec: Forbidden: ")),
                refused,
                "{new} {said:?}"
            );
        }
    }
}
