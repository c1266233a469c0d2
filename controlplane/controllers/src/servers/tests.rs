//! Servers on one store, through the real pipeline; time is passed in.

use super::*;
use crate::test_cluster::Cluster;
use coracle_client::user::User;
use coracle_informer::informer::Name;
use serde_json::{Value, json};

fn server(cluster: &Cluster, address: &str, shared: bool) -> Announcement {
    let names = vec![format!("api-{address}.example")];
    let own = Identity::new(&[address], format!("{address}:6443").parse().ok(), names);
    Announcement::new(cluster.client.clone(), own, shared)
}

/// The addresses in Endpoints and slice, which must be the same.
fn published_ips(cluster: &Cluster) -> Vec<String> {
    let name = Name::new("default", "kubernetes");
    let texts = |value: &Value, path: &str| {
        let list = value.as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|item| item.pointer(path)?.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let endpoints = cluster.get("endpoints", &name);
    let slice = cluster.get("discovery.k8s.io/endpointslices", &name);
    let ips = texts(&endpoints["subsets"][0]["addresses"], "/ip");
    assert_eq!(ips, texts(&slice["endpoints"], "/addresses/0"));
    ips
}

/// The versions of everything that announcements write.
fn versions(cluster: &Cluster) -> Vec<String> {
    let kinds = [
        ("coordination.k8s.io/leases", "kube-system"),
        ("endpoints", "default"),
        ("discovery.k8s.io/endpointslices", "default"),
    ];
    let objects = kinds.iter().flat_map(|(kind, namespace)| cluster.list(kind, namespace));
    let version =
        |object: Value| format!("{} {}", object["metadata"]["name"], object["metadata"]["resourceVersion"]);
    objects.map(version).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_come_die_and_leave() {
    let cluster = Cluster::without_nodes().await;
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let (mut one, mut two) = (server(&cluster, "192.0.2.1", true), server(&cluster, "192.0.2.2", true));
    one.reconcile(at(0)).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.1"]);
    two.reconcile(at(1)).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.1", "192.0.2.2"], "the second does not displace the first");
    one.reconcile(at(2)).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.1", "192.0.2.2"]);
    let before = versions(&cluster);
    one.reconcile(at(3)).await.expect("published");
    assert_eq!(versions(&cluster), before, "nothing is due");
    let reserved = lease::reserved_names(&cluster.client);
    for name in ["api-192.0.2.1.example", "192.0.2.1", "api-192.0.2.2.example", "192.0.2.2"] {
        assert!(reserved.iter().any(|taken| taken == name), "{name} in {reserved:?}");
    }

    // The second dies: its lease stands still, and only its address goes.
    one.reconcile(at(9)).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.1", "192.0.2.2"], "its lease holds");
    one.reconcile(at(11)).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.1"]);
    assert!(
        lease::reserved_names(&cluster.client).iter().any(|name| name == "192.0.2.2"),
        "it may come back"
    );
    // A server that starts now does not publish the dead one again.
    let mut three = server(&cluster, "192.0.2.3", true);
    three.reconcile(at(12)).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.1", "192.0.2.3"]);

    three.withdraw(at(13)).await.expect("withdrawn");
    assert_eq!(published_ips(&cluster), ["192.0.2.1"], "who stops leaves at once");
    one.reconcile(at(14)).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.1"]);
    one.reconcile(at(3 + 3600)).await.expect("published");
    let names: Vec<String> =
        lease::all(&one.leases.cache).iter().map(|lease| lease.meta.name.clone()).collect();
    assert_eq!(names, [one.own.name.clone()], "the lease of the dead one is collected");
    one.withdraw(at(3700)).await.expect("withdrawn");
    assert_eq!(published_ips(&cluster), ["192.0.2.1"], "an empty list is never published");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_alone_writes_once() {
    let cluster = Cluster::without_nodes().await;
    let start = Instant::now();
    let mut former = server(&cluster, "192.0.2.1", false);
    former.reconcile(start).await.expect("published");
    let mut now = server(&cluster, "192.0.2.2", false);
    now.reconcile(start).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.2"], "the address before is of the past");
    assert_eq!(lease::all(&now.leases.cache).len(), 1);
    let before = versions(&cluster);
    for hour in 1..4 {
        now.reconcile(start + Duration::from_secs(3600 * hour)).await.expect("published");
    }
    assert_eq!(versions(&cluster), before, "nothing is renewed");
    let name = Name::new("default", "kubernetes");
    cluster.delete("endpoints", &name, "Background").await;
    now.reconcile(start).await.expect("published");
    assert_eq!(published_ips(&cluster), ["192.0.2.2"], "what somebody deleted is put right");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_wake_a_server_for_which_nothing_is_due() {
    let cluster = Cluster::without_nodes().await;
    let mut server = server(&cluster, "192.0.2.1", false);
    server.turn().await;
    assert_eq!((server.failure.take(), server.due(Instant::now())), (None, None));
    let shutdown = Shutdown::default();
    let kept = tokio::spawn(server.keep(shutdown.clone()));
    let name = Name::new("default", "kubernetes");
    for resource in ["endpoints", "discovery.k8s.io/endpointslices"] {
        let uid = cluster.get(resource, &name)["metadata"]["uid"].clone();
        cluster.delete(resource, &name, "Background").await;
        let again = |cluster: &Cluster| {
            let objects = cluster.list(resource, "default");
            objects
                .iter()
                .any(|object| object["metadata"]["name"] == "kubernetes" && object["metadata"]["uid"] != uid)
        };
        cluster.until("published again", again).await;
    }
    shutdown.stop.cancel();
    kept.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_cannot_pass_for_a_server() {
    let cluster = Cluster::without_nodes().await;
    server(&cluster, "192.0.2.1", true).reconcile(Instant::now()).await.expect("published");
    let elector = cluster.client.acting_as(User::service_account("kube-system", "elector"));
    let kind = elector.kind("coordination.k8s.io", "leases");
    let evil = Identity::new(&["evil"], "192.0.2.66:6443".parse().ok(), Vec::new());
    let lease = evil.lease(None, true, Timestamp::now());
    let refused = elector.create(&kind, NAMESPACE, lease).await.expect_err("not an API server");
    assert_eq!(refused.code, 403, "{refused}");
    let own = json!({"metadata": {"name": "mine", "namespace": NAMESPACE}, "spec": {}});
    let mine = elector.create(&kind, NAMESPACE, own).await.expect("a lease without the label");
    let labelled = evil.lease(Some(&mine), true, Timestamp::now());
    let refused =
        elector.update(&kind, NAMESPACE, "mine", "", labelled).await.expect_err("not an API server");
    assert_eq!(refused.code, 403, "{refused}");
    let server = lease::all(&cluster.client.cache(&kind)).remove(0);
    let options = DeleteOptions::default();
    let refused =
        elector.delete(&kind, NAMESPACE, &server.meta.name, options).await.expect_err("not its lease");
    assert_eq!(refused.code, 403, "{refused}");
}
