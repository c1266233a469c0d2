//! What starting servers make of roles and bindings that are there.

#![allow(clippy::unwrap_used)]
use super::merge::plan;
use super::*;
use coracle_kinds::object::Name;
use coracle_kinds::registry::bootstrap;
use coracle_testing::Cluster;
use futures::future::join_all;
use serde_json::json;

const ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// The default roles and bindings.
fn defaults() -> Vec<Value> {
    let ranges = ["10.43.0.0/16".to_owned()];
    let cluster = bootstrap::Cluster { service_ranges: &ranges, service_address: "10.43.0.1", port: 6443 };
    let objects = bootstrap::objects(&cluster).into_iter();
    objects.filter(|object| object["apiVersion"] == "rbac.authorization.k8s.io/v1").collect()
}

/// Starts so many servers at once.
async fn start(cluster: &Cluster, servers: usize) {
    let objects = defaults();
    let all = objects.iter().cycle().take(servers * objects.len());
    join_all(all.map(|object| start_one(cluster, object))).await;
}

async fn start_one(cluster: &Cluster, object: &Value) {
    let kind = cluster.client.registry().kind(GROUP, "v1", object["kind"].as_str().unwrap()).unwrap();
    let done = reconcile(&cluster.client, &kind, object).await;
    done.unwrap_or_else(|error| panic!("{}: {error}", object["metadata"]["name"]));
}

/// A cluster on which two servers have started.
async fn started() -> Cluster {
    let cluster = Cluster::bare().await;
    cluster.create("", "namespaces", "", json!({"metadata": {"name": "kube-public"}})).await;
    start(&cluster, 2).await;
    cluster
}

/// The resource versions of all roles and bindings.
fn versions(cluster: &Cluster) -> Vec<Value> {
    let plurals = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];
    let objects = plurals.iter().flat_map(|plural| cluster.list(&format!("{GROUP}/{plural}"), ""));
    objects.map(|object| object["metadata"]["resourceVersion"].clone()).collect()
}

fn named(name: &str) -> Name {
    Name::new("", name)
}

fn core_rule(verbs: &[&str], resource: &str) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]})
}

fn user(name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": "User", "name": name})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_difference_nothing_is_written() {
    let cluster = started().await;
    let made = versions(&cluster);
    assert_eq!(made.len(), defaults().len());
    start(&cluster, 2).await;
    assert_eq!(versions(&cluster), made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_get_what_they_lack_and_keep_what_they_have() {
    let cluster = started().await;
    let dns = named("system:kube-dns");
    let (services, pods) = (core_rule(&["list", "watch"], "services"), core_rule(&["get"], "pods"));
    cluster.patch(ROLES, &dns, json!({"rules": [services, pods]})).await;
    let edit = named("edit");
    let own = json!({"matchLabels": {"own": "true"}});
    let changed = json!({"rules": [], "aggregationRule": {"clusterRoleSelectors": [own]},
        "metadata": {"labels": {"kubernetes.io/bootstrapping": null}}});
    cluster.patch(ROLES, &edit, changed).await;
    let proxier = named("system:node-proxier");
    let kept = json!({"rules": [pods],
        "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}});
    cluster.patch(ROLES, &proxier, kept).await;
    let kept = cluster.get(ROLES, &proxier);
    let deleted = named("system:basic-user");
    cluster.delete(ROLES, &deleted, "Background").await;

    start(&cluster, 3).await;
    let added = ["list", "watch"].map(|verb| core_rule(&[verb], "endpoints"));
    assert_eq!(cluster.get(ROLES, &dns)["rules"], json!([services, pods, added[0], added[1]]));
    let aggregated = cluster.get(ROLES, &edit);
    let selector = json!({"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}});
    assert_eq!(aggregated["aggregationRule"]["clusterRoleSelectors"], json!([own, selector]));
    assert!(aggregated["rules"].as_array().is_none_or(|rules| rules.is_empty()), "{aggregated}");
    assert_eq!(aggregated["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
    assert_eq!(cluster.get(ROLES, &proxier), kept);
    assert!(!cluster.get(ROLES, &deleted).is_null());
    let settled = versions(&cluster);
    start(&cluster, 1).await;
    assert_eq!(versions(&cluster), settled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_get_subjects_and_their_role() {
    let cluster = started().await;
    let dns = named("system:kube-dns");
    cluster.patch(BINDINGS, &dns, json!({"subjects": [user("jane")]})).await;
    let scheduler = named("system:kube-scheduler");
    let proxier = named("system:node-proxier");
    for (name, autoupdate) in [(&scheduler, "true"), (&proxier, "false")] {
        cluster.delete(BINDINGS, name, "Background").await;
        let other = json!({
            "metadata": {"name": name.name,
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": autoupdate}},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"}, "subjects": [user("jane")],
        });
        cluster.create(GROUP, "clusterrolebindings", "", other).await;
    }
    let kept = cluster.get(BINDINGS, &proxier);

    start(&cluster, 3).await;
    let account = json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": "kube-dns"});
    assert_eq!(cluster.get(BINDINGS, &dns)["subjects"], json!([user("jane"), account]));
    let recreated = cluster.get(BINDINGS, &scheduler);
    assert_eq!(recreated["roleRef"]["name"], "system:kube-scheduler");
    assert_eq!(recreated["subjects"], json!([user("system:kube-scheduler")]));
    assert_eq!(cluster.get(BINDINGS, &proxier), kept);
    let settled = versions(&cluster);
    start(&cluster, 1).await;
    assert_eq!(versions(&cluster), settled);
}

#[test]
fn labels_keep_their_values_and_a_plain_role_does_not_aggregate() {
    let rules = json!([core_rule(&["*"], "*")]);
    let wanted =
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "rules": [core_rule(&["get"], "pods/log")]});
    let existing = json!({"metadata": {"labels": {"a": "own", "c": "3"}}, "rules": rules,
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "own"}}]}});
    let merged = json!({"metadata": {"labels": {"a": "own", "b": "2", "c": "3"}}, "rules": rules});
    assert_eq!(plan(&existing, &wanted), Step::Update(merged.clone()));
    assert_eq!(plan(&merged, &wanted), Step::Nothing);
}
