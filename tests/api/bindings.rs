//! The server is killed while it binds many pods at a time: what was seen bound stays so, once; no pod is lost, and no node
//! gets more than it has room for.

use crate::kube_rs::client;
use crate::rollout::Hollow;
use coracle_tests::eventually;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use std::collections::BTreeMap;
use std::time::Duration;

const NODES: usize = 5;
/// Pods that fit on a node.
const ROOM: usize = 80;
/// Pods that come with each round.
const STEP: usize = 80;
/// Pods for which there is no room in the end.
const TOO_MANY: usize = 7;

const SET: &str = r#"{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "many"}, "spec": {
    "replicas": 0, "selector": {"matchLabels": {"app": "many"}}, "template": {"metadata": {"labels": {"app": "many"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]}}}}"#;

/// The node of every pod that was ever seen bound, by uid.
#[derive(Default)]
struct Seen(BTreeMap<String, String>);

impl Seen {
    /// Notes the node of a pod.
    fn note(&mut self, pod: &Pod) {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        let before = self.0.insert(pod.uid().unwrap(), node.clone());
        assert!(before.is_none_or(|before| before == node), "{} was bound twice", pod.name_any());
    }

    /// Watches until so many are known to be bound.
    async fn until(&mut self, pods: &Api<Pod>, wanted: usize) {
        let list = pods.list(&ListParams::default()).await.unwrap();
        list.items.iter().for_each(|pod| self.note(pod));
        let from = list.metadata.resource_version.unwrap();
        let mut events = pods.watch(&WatchParams::default(), &from).await.unwrap().boxed();
        while self.0.len() < wanted {
            match events.try_next().await.unwrap().expect("the watch goes on") {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => self.note(&pod),
                WatchEvent::Bookmark(_) => {}
                other => panic!("nothing else happens to pods here: {other:?}"),
            }
        }
    }

    /// What must hold at any moment.
    fn check(&mut self, pods: &[Pod]) {
        pods.iter().for_each(|pod| self.note(pod));
        let there: Vec<String> = pods.iter().filter_map(ResourceExt::uid).collect();
        let lost = self.0.keys().filter(|uid| !there.contains(uid)).count();
        assert_eq!(lost, 0, "bound pods are gone");
        let mut load: BTreeMap<&String, usize> = BTreeMap::new();
        self.0.values().for_each(|node| *load.entry(node).or_default() += 1);
        assert!(load.values().all(|pods| *pods <= ROOM), "{load:?}");
    }
}

#[test]
fn a_killed_server_binds_every_pod_once() {
    let mut server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let _hollow = Hollow::start(&server, NODES, ROOM);
    eventually("the default account is there", Duration::from_secs(60), || {
        kubectl.try_with("get serviceaccount default", "").ok
    });
    eventually("nodes are there", Duration::from_secs(60), || {
        kubectl.run("get nodes -o name").lines().count() == NODES
    });
    kubectl.run_with("apply -f -", SET);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut seen = Seen::default();
    let listed = |server: &Server| {
        let pods =
            async { Api::<Pod>::default_namespaced(client(server).await).list(&ListParams::default()).await };
        runtime.block_on(pods).unwrap().items
    };
    for round in 1..NODES {
        kubectl.run(&format!("scale replicaset many --replicas={}", round * STEP));
        // Somewhere in the middle of this round's bindings.
        let wanted = (seen.0.len() + 1 + round * 13 % 60).min(round * STEP);
        runtime.block_on(async {
            let pods = Api::default_namespaced(client(&server).await);
            let watched = seen.until(&pods, wanted);
            tokio::time::timeout(Duration::from_secs(120), watched).await.expect("pods are bound");
        });
        server.kill();
        server.restart();
        seen.check(&listed(&server));
    }
    let all = NODES * STEP + TOO_MANY;
    let before = seen.0.clone();
    kubectl.run(&format!("scale replicaset many --replicas={all}"));
    eventually("everything that has room is bound", Duration::from_secs(180), || {
        let pods = listed(&server);
        seen.check(&pods);
        let told = |pod: &&Pod| format!("{:?}", pod.status).contains("Too many pods");
        pods.len() == all && seen.0.len() == NODES * ROOM && pods.iter().filter(told).count() == TOO_MANY
    });

    // A pod that was bound while nobody died has its event.
    eventually("every binding is told of", Duration::from_secs(60), || {
        let scheduled = ListParams::default().fields("reason=Scheduled");
        let events = runtime.block_on(async {
            Api::<Event>::default_namespaced(client(&server).await).list(&scheduled).await.unwrap().items
        });
        let told = |uid: &String| {
            events.iter().filter(|event| event.involved_object.uid.as_ref() == Some(uid)).count()
        };
        let untold = seen.0.keys().filter(|uid| !before.contains_key(*uid) && told(uid) != 1).count();
        untold == 0
    });
}
