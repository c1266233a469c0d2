//! What starting servers make of flow schemas and priority levels that are there.

#![allow(clippy::unwrap_used)]
use super::*;
use coracle_kinds::object::Name;
use coracle_kinds::registry::bootstrap;
use coracle_testing::Cluster;
use serde_json::json;

const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

fn defaults() -> Vec<Value> {
    let ranges = ["10.43.0.0/16".to_owned()];
    let cluster = bootstrap::Cluster { service_ranges: &ranges, service_address: "10.43.0.1", port: 6443 };
    let objects = bootstrap::objects(&cluster).into_iter();
    objects.filter(|object| object["apiVersion"] == "flowcontrol.apiserver.k8s.io/v1").collect()
}

/// What a server does when it starts.
async fn start(cluster: &Cluster) {
    let objects = defaults();
    for object in &objects {
        let kind = cluster.client.registry().kind(GROUP, "v1", object["kind"].as_str().unwrap()).unwrap();
        let done = reconcile(&cluster.client, &kind, object).await;
        done.unwrap_or_else(|error| panic!("{}: {error}", object["metadata"]["name"]));
    }
    remove_obsolete(&cluster.client, &names(&objects)).await.unwrap();
}

fn versions(cluster: &Cluster) -> Vec<Value> {
    let objects = [SCHEMAS, LEVELS].into_iter().flat_map(|resource| cluster.list(resource, ""));
    objects.map(|object| object["metadata"]["resourceVersion"].clone()).collect()
}

fn named(name: &str) -> Name {
    Name::new("", name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_and_without_a_difference_nothing_is_written() {
    let cluster = Cluster::bare().await;
    start(&cluster).await;
    let made = versions(&cluster);
    assert_eq!(made.len(), defaults().len());
    start(&cluster).await;
    assert_eq!(versions(&cluster), made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn specs_are_brought_up_to_date_unless_users_keep_theirs() {
    let cluster = Cluster::bare().await;
    start(&cluster).await;
    let shares = |shares: i64| json!({"spec": {"limited": {"nominalConcurrencyShares": shares}}});
    let said = |value: Value| json!({"metadata": {"annotations": {AUTOUPDATE: value}}});
    // As of another version, kept by a user, and changed by one who did not say so.
    for (name, annotation) in
        [("system", json!("true")), ("node-high", json!("false")), ("workload-low", Value::Null)]
    {
        cluster.patch(LEVELS, &named(name), shares(7)).await;
        cluster.patch(LEVELS, &named(name), said(annotation)).await;
    }
    cluster.patch(SCHEMAS, &named("catch-all"), said(json!("false"))).await;
    cluster.delete(SCHEMAS, &named("probes"), "Background").await;

    start(&cluster).await;
    let level = |name: &str| {
        let level = cluster.get(LEVELS, &named(name));
        let shares = level["spec"]["limited"]["nominalConcurrencyShares"].clone();
        (shares, level["metadata"]["annotations"][AUTOUPDATE].clone())
    };
    assert_eq!(level("system"), (json!(30), json!("true")));
    assert_eq!(level("node-high"), (json!(7), json!("false")));
    assert_eq!(level("workload-low"), (json!(7), json!("false")));
    let mandatory = cluster.get(SCHEMAS, &named("catch-all"));
    assert_eq!(mandatory["metadata"]["annotations"][AUTOUPDATE], "true");
    assert!(!cluster.get(SCHEMAS, &named("probes")).is_null());
    let settled = versions(&cluster);
    start(&cluster).await;
    assert_eq!(versions(&cluster), settled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn obsolete_objects_are_removed_but_not_those_of_users() {
    let cluster = Cluster::bare().await;
    start(&cluster).await;
    let spec = cluster.get(LEVELS, &named("workload-low"))["spec"].clone();
    for (name, annotations) in [
        ("obsolete", json!({AUTOUPDATE: "true"})),
        ("kept", json!({AUTOUPDATE: "false"})),
        ("odd", json!({AUTOUPDATE: "maybe"})),
        ("own", json!({})),
    ] {
        let level = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
        cluster.create(GROUP, "prioritylevelconfigurations", "", level).await;
    }
    start(&cluster).await;
    let left = ["obsolete", "kept", "odd", "own"].map(|name| !cluster.get(LEVELS, &named(name)).is_null());
    assert_eq!(left, [false, true, true, true]);
    assert_eq!(versions(&cluster).len(), defaults().len() + 3);
}
