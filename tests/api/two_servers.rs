//! Two servers on one etcd: each sees what the other writes, at once and in the same order.

use crate::kube_rs::{client, config_map};
use coracle_tests::etcd::Etcd;
use coracle_tests::server::Server;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use std::collections::BTreeSet;

/// The revisions and names that a watch shows until it has seen the removal of `last`.
async fn seen_until(api: Api<ConfigMap>, from: String, last: &'static str) -> Vec<(String, String, String)> {
    let mut seen = Vec::new();
    let mut events = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    while let Some(event) = events.try_next().await.unwrap() {
        let (what, object) = match event {
            WatchEvent::Added(object) => ("ADDED", object),
            WatchEvent::Modified(object) => ("MODIFIED", object),
            WatchEvent::Deleted(object) => ("DELETED", object),
            other => panic!("{other:?}"),
        };
        seen.push((what.to_owned(), object.name_any(), object.resource_version().unwrap()));
        if what == "DELETED" && object.name_any() == last {
            break;
        }
    }
    seen
}

#[test]
fn two_servers_on_one_etcd_are_one_cluster() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let first = Server::with(&["--api-only", "--datastore", &store]);
    let second = first.beside(&["--api-only", "--datastore", &store]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (one, two) = (client(&first).await, client(&second).await);
        objects(Api::default_namespaced(one.clone()), Api::default_namespaced(two.clone())).await;
        races(Api::default_namespaced(one.clone()), Api::default_namespaced(two.clone())).await;
        addresses(Api::default_namespaced(one), Api::default_namespaced(two)).await;
    });
}

/// A read after a write sees it, whichever server did which; watches on both agree.
async fn objects(one: Api<ConfigMap>, two: Api<ConfigMap>) {
    let post = PostParams::default();
    let start = two.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let watches = tokio::spawn({
        let (one, two, start) = (one.clone(), two.clone(), start.clone());
        async move { tokio::join!(seen_until(one, start.clone(), "last"), seen_until(two, start, "last")) }
    });
    for i in 0..10 {
        let (writer, reader) = if i % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let name = format!("shared-{i}");
        let made = writer.create(&post, &config_map(&name, "1")).await.unwrap();
        let read = reader.get(&name).await.unwrap();
        assert_eq!(read.resource_version(), made.resource_version());
        let patch = Patch::Merge(json!({"data": {"a": "2"}}));
        reader.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(writer.get(&name).await.unwrap().data.unwrap()["a"], "2");
        let listed = writer.list(&ListParams::default()).await.unwrap();
        assert!(listed.items.iter().any(|o| o.name_any() == name));
        if i >= 5 {
            reader.delete(&name, &DeleteParams::default()).await.unwrap();
            assert!(writer.get_opt(&name).await.unwrap().is_none());
        }
    }
    one.create(&post, &config_map("last", "1")).await.unwrap();
    two.delete("last", &DeleteParams::default()).await.unwrap();
    let (here, there) = watches.await.unwrap();
    assert_eq!(here, there, "the same events in the same order");
    assert_eq!(here.len(), 10 + 10 + 5 + 2);
    let versions: Vec<u64> = here.iter().map(|(.., version)| version.parse().unwrap()).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    // What one server began, the other goes on with: pages.
    let page = one.list(&ListParams::default().limit(2)).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    let next = two.list(&ListParams::default().limit(100).continue_token(&token)).await.unwrap();
    assert_eq!(next.metadata.resource_version, page.metadata.resource_version);
}

/// Of two updates of one version exactly one wins.
async fn races(one: Api<ConfigMap>, two: Api<ConfigMap>) {
    let post = PostParams::default();
    let mut object = one.create(&post, &config_map("contended", "0")).await.unwrap();
    for round in 0..10 {
        let (mut a, mut b) = (object.clone(), object.clone());
        a.data = Some([("a".to_owned(), format!("one-{round}"))].into());
        b.data = Some([("a".to_owned(), format!("two-{round}"))].into());
        let (a, b) = tokio::join!(one.replace("contended", &post, &a), two.replace("contended", &post, &b));
        let (won, lost) = match (a, b) {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            other => panic!("exactly one wins: {other:?}"),
        };
        assert!(matches!(&lost, kube::Error::Api(status) if status.code == 409), "{lost}");
        object = one.get("contended").await.unwrap();
        assert_eq!(object.resource_version(), won.resource_version());
    }
}

/// Both servers give out addresses of Services, none twice.
async fn addresses(one: Api<Service>, two: Api<Service>) {
    let service = |name: String| -> Service {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
        )
        .unwrap()
    };
    let post = PostParams::default();
    let (mut ips, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for i in 0..10 {
        let (a, b) = (service(format!("a{i}")), service(format!("b{i}")));
        let (a, b) = tokio::join!(one.create(&post, &a), two.create(&post, &b));
        for made in [a.unwrap(), b.unwrap()] {
            let spec = made.spec.unwrap();
            assert!(ips.insert(spec.cluster_ip.unwrap()), "an address twice");
            assert!(ports.insert(spec.ports.unwrap()[0].node_port.unwrap()), "a port twice");
        }
    }
}
