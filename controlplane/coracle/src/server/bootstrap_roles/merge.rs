//! What an existing role or binding lacks of a default one. Nothing is removed, with one exception: the aggregation rule of a
//! role that should have none.

use coracle_apiserver::authz::cover::missing;
use coracle_apiserver::authz::rbac::Rule;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::rbac::v1::{ClusterRole, RoleBinding, RoleRef, Subject};
use coracle_fields::{Edit, List, Map, Schema as _, Text, View};
use serde_json::{Value, json};

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What is to be done with an existing object.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// It lacks nothing.
    Nothing,
    /// It is to be replaced by this object: itself, with what it lacked.
    Update(Value),
    /// The role of a binding cannot be changed: the binding is to be deleted and created.
    Recreate,
}

/// Whether an administrator keeps the object as it is.
pub(super) fn is_protected(existing: &Value) -> bool {
    PartialObjectMetadata::of(existing).metadata().annotations().key(AUTOUPDATE) == "false"
}

/// Compares an existing role or binding with the default one.
pub(super) fn plan(existing: &Value, wanted: &Value) -> Step {
    let mut merged = existing.clone();
    add_metadata(&mut merged, PartialObjectMetadata::of(wanted));
    let (bound, binding) = (RoleBinding::of(existing), RoleBinding::of(wanted));
    if binding.role_ref().is_set() {
        if reference(bound.role_ref()) != reference(binding.role_ref()) {
            return Step::Recreate;
        }
        add_subjects(&mut merged, bound, binding);
    } else {
        let (held, role) = (ClusterRole::of(existing), ClusterRole::of(wanted));
        // The rules of a role that aggregates are those that the controller gathers, also from roles of users.
        if !role.aggregation_rule().is_set() {
            add_rules(&mut merged, held, role);
        }
        add_selectors(&mut merged, held, role);
    }
    if merged == *existing { Step::Nothing } else { Step::Update(merged) }
}

fn reference(role: View<'_, RoleRef>) -> [&str; 3] {
    [role.api_group().text(), role.kind().text(), role.name().text()]
}

fn subject(of: View<'_, Subject>) -> [&str; 4] {
    [of.api_group().text(), of.kind().text(), of.namespace().text(), of.name().text()]
}

fn rules(role: View<'_, ClusterRole>) -> Vec<Rule> {
    role.rules().items().filter_map(|rule| rule.read().ok()).collect()
}

/// Labels and annotations; one that has another value keeps it.
fn add_metadata(merged: &mut Value, wanted: View<'_, PartialObjectMetadata>) {
    let wanted = wanted.metadata();
    add_entries(PartialObjectMetadata::edit(merged).metadata().labels(), wanted.labels());
    add_entries(PartialObjectMetadata::edit(merged).metadata().annotations(), wanted.annotations());
}

fn add_subjects(merged: &mut Value, held: View<'_, RoleBinding>, wanted: View<'_, RoleBinding>) {
    let present: Vec<[&str; 4]> = held.subjects().items().map(subject).collect();
    let lacking = wanted.subjects().items().filter(|new| !present.contains(&subject(*new)));
    let lacking: Vec<Value> = lacking.map(|new| new.to_value()).collect();
    append(RoleBinding::edit(merged).subjects(), lacking);
}

/// Adds what no rule grants, each verb on each resource as a rule of its own.
fn add_rules(merged: &mut Value, held: View<'_, ClusterRole>, wanted: View<'_, ClusterRole>) {
    let lacking = missing(&rules(held), &rules(wanted));
    append(ClusterRole::edit(merged).rules(), lacking.iter().map(|rule| json!(rule)).collect());
}

fn add_selectors(merged: &mut Value, held: View<'_, ClusterRole>, wanted: View<'_, ClusterRole>) {
    let (held, wanted) = (held.aggregation_rule(), wanted.aggregation_rule());
    if held.is_set() && !wanted.is_set() {
        ClusterRole::edit(merged).aggregation_rule().clear();
        return;
    }
    let present = held.cluster_role_selectors();
    let lacking = wanted
        .cluster_role_selectors()
        .items()
        .filter(|new| !present.items().any(|selector| selector.same_as(*new)));
    let lacking: Vec<Value> = lacking.map(|new| new.to_value()).collect();
    append(ClusterRole::edit(merged).aggregation_rule().cluster_role_selectors(), lacking);
}

fn add_entries(mut entries: Edit<'_, Map<Text>>, wanted: View<'_, Map<Text>>) {
    for (key, value) in wanted.entries() {
        if !entries.view().key(key).is_set() {
            entries.insert(key, value.text());
        }
    }
}

/// Adds to the end of a list; without values a list that is not there stays away.
fn append<T>(mut list: Edit<'_, List<T>>, values: Vec<Value>) {
    if values.is_empty() {
        return;
    }
    let mut all = list.view().to_values();
    all.extend(values);
    list.put(Value::Array(all));
}
