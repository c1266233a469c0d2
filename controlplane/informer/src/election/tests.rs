//! Candidates on one store, through the real pipeline. A suspended leader is one that takes no turns; the time of the others is
//! passed in.

#![allow(clippy::unwrap_used)]

use super::*;
use coracle_client::options::DeleteOptions;
use coracle_client::patch::Patch;
use coracle_client::pipeline::Placement;
use coracle_testing::Cluster;
use coracle_trace::Scope;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ELECTION: &str = "kube-controller-manager";
const LONG: Duration = Duration::from_secs(3600);

fn candidate(cluster: &Cluster, me: &str) -> Candidate {
    Candidate::new(cluster.client.clone(), ELECTION, me.to_owned())
}

/// The fence of a leader whose own clock has not noticed anything.
fn unaware(standing: &Standing) -> Fence {
    match standing {
        Standing::Elected(revision) => Fence::new(ELECTION, *revision, boot_time() + LONG),
        other => panic!("not elected: {other:?}"),
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

/// Every kind of write that control loops make, by name, and how it ends.
async fn writes(client: &Client) -> Vec<(&'static str, Result<(), ApiError>)> {
    let maps = client.kind("", "configmaps");
    let changed = Patch::Merge(json!({"data": {"a": "2"}}));
    let pod = client.cache(&client.kind("", "pods")).get("default", "pod").unwrap();
    let uid = &pod.meta.uid;
    let placement = Placement { namespace: "default", name: "pod", uid, node: "n", scope: Scope::NONE };
    let mut bound = client.bind(&[placement]).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let modify = |value: &mut Value| value["data"]["b"] = json!("3");
    vec![
        ("create", client.create(&maps, "default", map("new")).await.map(drop)),
        ("service", client.create(&client.kind("", "services"), "default", service).await.map(drop)),
        ("patch", client.patch(&maps, "default", "old", "", changed).await.map(drop)),
        ("modify", client.modify(&maps, "default", "old", "", modify).await.map(drop)),
        ("bind", bound.remove(0)),
        ("delete", client.delete(&maps, "default", "old", DeleteOptions::default()).await.map(drop)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_suspended_writes_nothing() {
    let cluster = Cluster::bare().await;
    let start = Instant::now();
    let at = |seconds: u64| move || start + Duration::from_secs(seconds);
    cluster.create("", "configmaps", "default", map("old")).await;
    let pod = json!({"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.create("", "pods", "default", pod).await;
    let (mut one, mut two) = (candidate(&cluster, "one"), candidate(&cluster, "two"));
    let first = unaware(&one.turn(false, at(0)).await.unwrap());
    let old_leader = cluster.client.fenced(first.clone()).controller("some-controller");
    let maps = cluster.client.kind("", "configmaps");
    old_leader.create(&maps, "default", map("while-leading")).await.expect("it leads");
    assert_eq!(one.turn(true, at(3)).await.unwrap(), Standing::Renewed);
    old_leader.create(&maps, "default", map("after-renewal")).await.expect("the term goes on");

    // The first is suspended.
    assert!(matches!(two.turn(false, at(4)).await.unwrap(), Standing::Waiting(_)));
    assert!(matches!(two.turn(false, at(15)).await.unwrap(), Standing::Waiting(_)), "seen 11 s ago");
    let second = unaware(&two.turn(false, at(16)).await.unwrap());
    assert!(second.revision() > first.revision());

    // It wakes up and goes on with what it was doing.
    let revision = cluster.api.store.revision().await.unwrap();
    for (what, ended) in writes(&old_leader).await {
        let refused = ended.expect_err(what);
        assert_eq!(refused.code, 409, "{what}: {refused}");
        assert!(refused.message.contains(ELECTION), "{what}: {refused}");
    }
    assert_eq!(cluster.api.store.revision().await.unwrap(), revision, "nothing was stored");
    assert_eq!(first.check(), Err(FenceError::Lost), "and it knows by now");
    assert!(matches!(one.turn(true, at(17)).await.unwrap(), Standing::Waiting(_)));

    let leader = cluster.client.fenced(second.clone());
    for (what, ended) in writes(&leader).await {
        ended.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert_eq!(second.check(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_could_not_renew_does_not_ask_the_store() {
    let cluster = Cluster::bare().await;
    let Standing::Elected(revision) = candidate(&cluster, "one").turn(false, Instant::now).await.unwrap()
    else {
        panic!("alone")
    };
    let late = Fence::new(ELECTION, revision, boot_time());
    let maps = cluster.client.kind("", "configmaps");
    let refused = cluster.client.fenced(late).create(&maps, "default", map("new")).await.unwrap_err();
    assert_eq!(refused.code, 409);
    assert!(refused.message.contains("not renewed in time"), "{refused}");
    cluster.client.create(&maps, "default", map("new")).await.expect("it was not stored");
}

/// A candidate gets the Lease and is suspended before it takes the fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_is_not_taken_for_a_lease_that_is_lost() {
    let cluster = Cluster::bare().await;
    let (start, leases) = (Instant::now(), cluster.client.kind("coordination.k8s.io", "leases"));
    let at = |seconds: u64| move || start + Duration::from_secs(seconds);
    let (mut one, mut two) = (candidate(&cluster, "one"), candidate(&cluster, "two"));
    one.turn(false, at(0)).await.unwrap();
    let lease = cluster.client.get(&leases, NAMESPACE, ELECTION).await.unwrap();
    two.turn(false, at(1)).await.unwrap();
    let second = unaware(&two.turn(false, at(20)).await.unwrap());
    let late = cluster.client.take_fence(&lease).await.expect_err("the Lease is another one's");
    assert!(late.is_conflict(), "{late}");
    let maps = cluster.client.kind("", "configmaps");
    cluster.client.fenced(second).create(&maps, "default", map("new")).await.expect("it still leads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_stop_when_the_store_refuses_a_write() {
    let cluster = Cluster::bare().await;
    let (stop, terms) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let run = {
        let terms = terms.clone();
        move |client: &Client| {
            let (client, term) = (client.clone(), terms.fetch_add(1, Ordering::SeqCst));
            let mut loops = JoinSet::new();
            loops.spawn(async move {
                let maps = client.kind("", "configmaps");
                for turn in 0.. {
                    let _ = client.create(&maps, "default", map(&format!("{term}-{turn}"))).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
            loops
        }
    };
    let leading = tokio::spawn(lead(cluster.client.clone(), ELECTION, "one".to_owned(), stop.clone(), run));
    let written = |term: &'static str| {
        move |cluster: &Cluster| {
            let maps = cluster.list("configmaps", "default");
            maps.iter().filter(|map| map["metadata"]["name"].as_str().unwrap().starts_with(term)).count()
        }
    };
    cluster.until("the first term", |cluster| written("0-")(cluster) > 2).await;
    // Somebody else begins a term.
    let leases = cluster.client.kind("coordination.k8s.io", "leases");
    loop {
        let lease = cluster.client.get(&leases, NAMESPACE, ELECTION).await.unwrap();
        if cluster.client.take_fence(&lease).await.is_ok() {
            break;
        }
    }
    let last = written("0-")(&cluster);
    cluster.until("a second term, as nobody else holds the Lease", |c| written("1-")(c) > 2).await;
    assert!(written("0-")(&cluster) <= last + 1, "the first term wrote on");
    assert_eq!(terms.load(Ordering::SeqCst), 2);
    stop.cancel();
    leading.await.unwrap();
    let lease = cluster.client.get(&leases, NAMESPACE, ELECTION).await.unwrap();
    assert_eq!(lease.value()["spec"]["holderIdentity"], "", "who stops releases the Lease");
}
