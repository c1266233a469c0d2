//! What is recorded when controllers and the scheduler work: chains of causes, waits and verdicts.
#![allow(clippy::unwrap_used)]
use crate::PendingReasons;
use crate::config::Configuration;
use crate::run::start_with;
use crate::tests::{NO_TIMERS, cluster};
use coracle_client::patch::Patch;
use coracle_kinds::object::Name;
use coracle_testing::Cluster;
use coracle_trace::{Flags, Record, Recorder, SpanId, Stage};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// A span and its text.
type Span = (Record, String);

struct Fixture {
    cluster: Cluster,
    recorder: Recorder,
    records: Mutex<Vec<Span>>,
    _tasks: JoinSet<()>,
}

async fn fixture() -> Fixture {
    let cluster = cluster().await;
    let recorder = cluster.client.recorder();
    assert!(recorder.is_on(), "the cluster records");
    let supervised = (&Default::default(), NO_TIMERS);
    let pending = PendingReasons::default();
    let tasks = start_with(&cluster.client, Configuration::default(), Arc::default(), &pending, supervised);
    let fixture = Fixture { cluster, recorder, records: Mutex::default(), _tasks: tasks };
    // What the start of the controllers left is of no interest, and takes room.
    fixture.spans();
    fixture
}

impl Fixture {
    async fn node(&self, name: &str, cpu: &str, spec: Value) {
        let body = json!({"metadata": {"name": name}, "spec": spec});
        self.cluster.create("", "nodes", "", body).await;
        let amounts = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
        let status = json!({"status": {"allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let kind = self.cluster.client.kind("", "nodes");
        self.cluster.client.patch(&kind, "", name, "status", Patch::Merge(status)).await.unwrap();
        let is_ready = |c: &Cluster| {
            let taints = c.get("nodes", &Name::new("", name))["spec"]["taints"].clone();
            !taints.to_string().contains("not-ready")
        };
        self.cluster.until("the node is ready", is_ready).await;
    }

    async fn pod(&self, name: &str, cpu: &str) {
        let resources = json!({"requests": {"cpu": cpu}});
        let body = json!({"metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "nginx", "resources": resources}]}});
        self.cluster.create("", "pods", "default", body).await;
    }

    /// Everything that was recorded so far.
    fn spans(&self) -> Vec<Span> {
        let mut records = self.records.lock();
        let read = self.recorder.read(&mut |record, _, text| records.push((*record, text.to_owned())));
        self.recorder.release(read);
        records.clone()
    }

    fn find(&self, holds: impl Fn(&Record, &str) -> bool) -> Option<Span> {
        self.spans().into_iter().find(|(record, text)| holds(record, text))
    }

    /// Waits until something is recorded.
    async fn until(&self, what: &str, holds: impl Fn(&Record, &str) -> bool) -> Span {
        self.cluster.until(what, |_| self.find(&holds).is_some()).await;
        self.find(holds).unwrap()
    }

    /// A span and those above it, up to the root.
    fn chain(&self, span: &Span) -> Vec<Span> {
        let (all, mut chain) = (self.spans(), vec![span.clone()]);
        let is = |record: &Record, id: SpanId| {
            let is_write = record.stage == Stage::Write;
            record.span == id || (is_write && SpanId::of_write(record.subject, record.revision) == id)
        };
        loop {
            let parent = chain[chain.len() - 1].0.parent;
            let above = all.iter().find(|(record, _)| !parent.is_none() && is(record, parent));
            match above {
                Some(above) => chain.push(above.clone()),
                None => return chain,
            }
        }
    }

    /// Waits until the chain of a span ends at the write of this revision.
    async fn until_caused_by(&self, span: &Span, revision: u64) -> Vec<Span> {
        let is_cause = |record: &Record| record.stage == Stage::Write && record.revision == revision;
        let is_whole = || self.chain(span).iter().any(|(record, _)| is_cause(record));
        self.cluster.until("the chain is whole", |_| is_whole()).await;
        self.chain(span)
    }
}

fn deployment(replicas: i32) -> Value {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}});
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}}, "template": template}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_is_the_end_of_a_chain_that_began_with_the_deployment() {
    let f = fixture().await;
    f.node("n", "4", json!({})).await;
    f.node("cordoned", "4", json!({"unschedulable": true})).await;
    let created = f.cluster.create("apps", "deployments", "default", deployment(1)).await;
    let bind = f
        .until("a binding", |r, text| r.stage == Stage::Write && text.starts_with("bind pods default/web-"))
        .await;
    let chain = f.until_caused_by(&bind, created.revision).await;
    let stages: Vec<Stage> = chain.iter().map(|(record, _)| record.stage).collect();
    assert_eq!(stages[..4], [Stage::Write, Stage::Attempt, Stage::Write, Stage::Reconcile], "{chain:#?}");
    assert!(chain[2].1.starts_with("create pods default/web-"), "{chain:#?}");
    assert!(chain[3].1.starts_with("replicaset-controller default/web-"), "{chain:#?}");
    let controller = |name: &str| chain.iter().any(|(_, text)| text.starts_with(name));
    assert!(controller("deployment-controller default/web"), "{chain:#?}");
    assert_eq!(chain[chain.len() - 1].1, "create deployments.apps default/web");

    // What the scheduler found out about the nodes is below the attempt.
    let attempt = chain[1].0;
    assert_eq!((attempt.code, attempt.flags.contains(Flags::FAILED)), (1, false));
    let below = |stage: Stage| f.find(|record, _| record.stage == stage && record.parent == attempt.span);
    for stage in [Stage::Filter, Stage::Score, Stage::Bind] {
        assert!(below(stage).is_some(), "{stage:?}");
    }
    assert_eq!(below(Stage::Bind).unwrap().1, "n");
    let verdicts: Vec<Span> = f.spans().into_iter().filter(|(r, _)| r.stage == Stage::Verdict).collect();
    let (refused, chosen): (Vec<Span>, Vec<Span>) =
        verdicts.into_iter().partition(|(record, _)| record.flags.contains(Flags::FAILED));
    assert!(chosen.iter().any(|(_, text)| text.starts_with("n=") && text.ends_with(" of 2")), "{chosen:?}");
    assert!(refused.iter().any(|(_, text)| text.starts_with("cordoned\nNodeUnschedulable: ")), "{refused:?}");
    let queued = f.find(|record, _| record.stage == Stage::SchedulerQueue && record.parent == attempt.parent);
    assert!(queued.is_some_and(|(record, _)| record.subject == attempt.subject));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_is_the_cause_although_other_changes_follow_at_once() {
    let f = fixture().await;
    f.node("n", "4", json!({})).await;
    f.cluster.create("apps", "deployments", "default", deployment(1)).await;
    f.until("a binding", |r, text| r.stage == Stage::Write && text.starts_with("bind pods default/web-"))
        .await;
    let web = Name::new("default", "web");
    let is_settled = |c: &Cluster| c.get("apps/deployments", &web)["status"]["replicas"] == 1;
    f.cluster.until("the status is written", is_settled).await;
    let kind = f.cluster.client.kind("apps", "deployments");
    let write = async |change: Value| {
        let patch = Patch::Merge(change);
        f.cluster.client.patch(&kind, "default", "web", "", patch).await.unwrap().revision
    };
    let scaled = write(json!({"spec": {"replicas": 3}})).await;
    for n in 0..20 {
        write(json!({"metadata": {"labels": {"n": n.to_string()}}})).await;
    }
    f.cluster.until("three pods", |c| c.list("pods", "default").len() == 3).await;
    let is_new = |r: &Record, text: &str| {
        r.stage == Stage::Write && r.revision > scaled && text.starts_with("create pods default/web-")
    };
    let pod = f.until("a new pod", is_new).await;
    let chain = f.until_caused_by(&pod, scaled).await;
    let stages: Vec<Stage> = chain.iter().map(|(record, _)| record.stage).take(5).collect();
    let turns = [Stage::Write, Stage::Reconcile, Stage::Write, Stage::Reconcile, Stage::Write];
    assert_eq!(stages, turns, "{chain:#?}");
    assert_eq!(chain[4].0.revision, scaled, "{chain:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_is_shown_with_the_reason_and_then_with_what_helped() {
    let f = fixture().await;
    f.node("small", "1", json!({})).await;
    f.pod("big", "2").await;
    let message = "0/1 nodes are available: 1 Insufficient cpu.";
    let is_shown = |open: &coracle_trace::OpenSpan| {
        open.record.stage == Stage::Unschedulable && open.text.as_str().contains("Insufficient cpu")
    };
    f.cluster.until("it is shown while it waits", |_| f.recorder.open().iter().any(is_shown)).await;
    let shown = f.recorder.open().into_iter().find(is_shown).unwrap().record.span;
    let failed = f
        .until("a failed attempt", |r, text| {
            r.stage == Stage::Attempt && text.starts_with(&format!("\n{message}"))
        })
        .await;
    assert!(failed.0.flags.contains(Flags::FAILED));
    f.node("large", "4", json!({})).await;
    let name = Name::new("default", "big");
    f.cluster.until("it has a node", |c| c.get("pods", &name)["spec"]["nodeName"] == "large").await;
    let (_, text) = f.until("the wait", |r, _| r.stage == Stage::Unschedulable && r.span == shown).await;
    assert!(text.starts_with("node added or changed\n0/1 nodes are available: "), "{text}");
    let placed = |r: &Record, _: &str| r.stage == Stage::Attempt && !r.flags.contains(Flags::FAILED);
    let (placed, _) = f.until("the last attempt", placed).await;
    assert!(placed.code > 1 && placed.parent == failed.0.parent, "{placed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_victim_is_deleted_because_of_the_pod_that_needs_its_place() {
    let f = fixture().await;
    f.node("n", "2", json!({})).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    f.cluster.create("scheduling.k8s.io", "priorityclasses", "", class).await;
    f.pod("low", "1500m").await;
    let low = Name::new("default", "low");
    f.cluster.until("it has a node", |c| c.get("pods", &low)["spec"]["nodeName"] == "n").await;
    let resources = json!({"requests": {"cpu": "1"}});
    let body = json!({"metadata": {"name": "high"}, "spec": {"priorityClassName": "high",
        "containers": [{"name": "c", "image": "nginx", "resources": resources}]}});
    let high = f.cluster.create("", "pods", "default", body).await;
    let is_delete = |r: &Record, text: &str| r.stage == Stage::Write && text == "delete pods default/low";
    let delete = f.until("the victim is deleted", is_delete).await;
    let chain = f.until_caused_by(&delete, high.revision).await;
    let stages: Vec<Stage> = chain.iter().map(|(record, _)| record.stage).take(4).collect();
    assert_eq!(stages, [Stage::Write, Stage::Preempt, Stage::Attempt, Stage::Write], "{chain:#?}");
    assert_eq!((chain[1].1.as_str(), chain[3].1.as_str()), ("n\nvictims: 1", "create pods default/high"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_collected_hangs_below_the_deletion_of_its_owner() {
    let f = fixture().await;
    f.node("n", "4", json!({})).await;
    f.cluster.create("apps", "deployments", "default", deployment(1)).await;
    f.until("a binding", |r, text| r.stage == Stage::Write && text.starts_with("bind pods default/web-"))
        .await;
    f.cluster.delete("apps/deployments", &Name::new("default", "web"), "Background").await;
    let is_delete = |r: &Record, text: &str, of: &str| {
        r.stage == Stage::Write && !r.flags.contains(Flags::FAILED) && text.starts_with(of)
    };
    let owner =
        f.until("a deletion", |r, text| is_delete(r, text, "delete deployments.apps default/web")).await;
    let pod = f.until("its pod is deleted", |r, text| is_delete(r, text, "delete pods default/web-")).await;
    let chain = f.until_caused_by(&pod, owner.0.revision).await;
    let stages: Vec<Stage> = chain.iter().map(|(record, _)| record.stage).take(5).collect();
    let turns = [Stage::Write, Stage::Reconcile, Stage::Write, Stage::Reconcile, Stage::Write];
    assert_eq!(stages, turns, "{chain:#?}");
    for turn in [&chain[1].1, &chain[3].1] {
        assert!(turn.starts_with("generic-garbage-collector "), "{chain:#?}");
    }
    assert!(chain[2].1.starts_with("delete replicasets.apps default/web-"), "{chain:#?}");
}
