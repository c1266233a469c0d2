//! What writes leave in the recorder.

#![allow(clippy::unwrap_used)]

use crate::{Cluster, Recorded};
use coracle_client::options::DeleteOptions;
use coracle_client::patch::Patch;
use coracle_kinds::object::Name;
use coracle_trace::{Flags, SpanId, Stage, TraceContext, Uid, WriteMark, within};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// A cluster of which nothing is recorded yet.
async fn cluster() -> Cluster {
    let cluster = Cluster::bare().await;
    cluster.records();
    cluster
}

fn one(records: &[Recorded], stage: Stage, text: &str) -> Recorded {
    let mut found = records.iter().filter(|one| one.record.stage == stage && one.text.starts_with(text));
    match (found.next(), found.next()) {
        (Some(one), None) => one.clone(),
        _ => panic!("not one {stage:?} {text:?}: {records:#?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_has_its_stages_in_order_and_its_batch() {
    let cluster = cluster().await;
    let object = cluster.create("", "configmaps", "default", json!({"metadata": {"name": "a"}})).await;
    let records = cluster.records();
    let write = one(&records, Stage::Write, "create configmaps default/a");
    assert_eq!((write.record.subject, write.record.revision), (Uid::of(&object.meta.uid), object.revision));
    assert_eq!(write.record.parent, SpanId::NONE, "nobody caused it");
    let details = write.details.unwrap();
    let marks = [
        WriteMark::Mutated,
        WriteMark::Validated,
        WriteMark::Admitted,
        WriteMark::Stored,
        WriteMark::Visible,
    ];
    let times: Vec<u64> = marks.into_iter().map(|mark| details.mark(mark as usize).unwrap()).collect();
    assert!(times.is_sorted() && times.last() <= Some(&write.record.duration), "{times:?}");
    assert_eq!(details.mark(WriteMark::Defaulted as usize), None, "nobody asked for details");
    assert_eq!(one(&records, Stage::StoreBatch, "").record.revision, object.revision);
    let context = cluster.recorder.contexts().unwrap().get(object.revision);
    assert_eq!(context.map(|(trace, _)| trace), Some(write.record.trace));
    assert!(!write.record.trace.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sampled_request_shows_its_plugins() {
    let cluster = cluster().await;
    let remote = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let request = cluster.recorder.request(Some(remote), true);
    let body = json!({"metadata": {"name": "a"}});
    let work = cluster.create("", "configmaps", "default", body);
    within(request.scope(), Box::pin(work)).await;
    let above = request.scope().span;
    request.finish(201);
    let records = cluster.records();
    let write = one(&records, Stage::Write, "create configmaps");
    assert_eq!((write.record.parent, write.record.trace), (above, remote.trace));
    let plugin = one(&records, Stage::MutatingPlugin, "NamespaceLifecycle");
    assert_eq!(plugin.record.parent, write.record.span);
    assert!(write.details.unwrap().mark(WriteMark::Defaulted as usize).is_some());
    let request = one(&records, Stage::Request, "");
    assert_eq!((request.record.span, request.record.parent), (above, remote.span));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_are_tried_again_below_one_span_and_nested_writes_have_their_own() {
    let cluster = cluster().await;
    cluster.create("", "configmaps", "default", json!({"metadata": {"name": "a"}})).await;
    cluster.records();
    let kind = cluster.client.kind("", "configmaps");
    let (first, other) = (AtomicBool::new(true), cluster.client.clone());
    let written = cluster.client.modify(&kind, "default", "a", "", |object| {
        if first.swap(false, Ordering::Relaxed) {
            let change = Patch::Merge(json!({"data": {"other": "1"}}));
            let faster = other.patch(&kind, "default", "a", "", change);
            block_in_place(|| Handle::current().block_on(faster)).unwrap();
        }
        object["data"]["own"] = json!("1");
    });
    let written = written.await.unwrap();
    let records = cluster.records();
    let outer = one(&records, Stage::Write, "update configmaps default/a");
    assert!(outer.record.flags.contains(Flags::RETRIED));
    assert_eq!(outer.record.revision, written.revision);
    let inner = one(&records, Stage::Write, "patch configmaps default/a");
    assert_eq!(inner.record.parent, outer.record.span);
    assert!(inner.record.revision < outer.record.revision);
    let [inner, outer] = [inner, outer].map(|write| write.details.unwrap());
    assert!(inner.mark(WriteMark::Visible as usize).is_some());
    assert!(outer.mark(WriteMark::Visible as usize).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lazy_kinds_and_what_changes_nothing_are_silent() {
    let cluster = cluster().await;
    cluster.create("coordination.k8s.io", "leases", "default", json!({"metadata": {"name": "l"}})).await;
    assert_eq!(cluster.records().len(), 0);
    cluster.create("", "configmaps", "default", json!({"metadata": {"name": "a"}})).await;
    cluster.records();
    cluster.patch("configmaps", &Name::new("default", "a"), json!({})).await;
    let missing = cluster.client.kind("", "configmaps");
    let options = DeleteOptions::default();
    cluster.client.delete(&missing, "default", "nothing", options).await.unwrap_err();
    // Plugins have spans where the machine is slow.
    let writes = |one: &Recorded| matches!(one.record.stage, Stage::Write | Stage::StoreBatch);
    assert_eq!(cluster.records().into_iter().filter(writes).count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_and_removals_are_recorded() {
    let cluster = cluster().await;
    let kind = cluster.client.kind("", "configmaps");
    let bad = json!({"metadata": {"name": "A_"}});
    cluster.client.create(&kind, "default", bad).await.unwrap_err();
    let refused = one(&cluster.records(), Stage::Write, "create configmaps default/A_");
    assert_eq!((refused.record.code, refused.record.revision), (422, 0));
    assert!(refused.record.flags.contains(Flags::FAILED));
    let object = cluster.create("", "configmaps", "default", json!({"metadata": {"name": "a"}})).await;
    cluster.delete("configmaps", &Name::new("default", "a"), "Background").await;
    let removed = one(&cluster.records(), Stage::Write, "delete configmaps default/a");
    assert_eq!(removed.record.subject, Uid::of(&object.meta.uid));
    assert!(removed.record.revision > object.revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_and_annotations_tell_what_led_to_an_object() {
    let cluster = cluster().await;
    let owner = cluster.create("", "configmaps", "default", json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.meta.uid,
        "controller": true}]);
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": reference}});
    cluster.create("", "configmaps", "default", owned).await;
    let uid = Uid::of(&owner.meta.uid);
    let write = one(&cluster.records(), Stage::Write, "create configmaps default/owned");
    assert_eq!(write.record.parent, SpanId::of_write(uid, owner.revision));
    assert!(write.record.flags.contains(Flags::INFERRED));
    assert_eq!(write.details.unwrap().owner, uid);

    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let annotations = json!({(TraceContext::ANNOTATION): text});
    let annotated = json!({"metadata": {"name": "annotated", "annotations": annotations}});
    cluster.create("", "configmaps", "default", annotated).await;
    let context = TraceContext::parse(text).unwrap();
    let write = one(&cluster.records(), Stage::Write, "create configmaps default/annotated");
    assert_eq!((write.record.parent, write.record.trace), (context.span, context.trace));
    assert!(write.record.flags.contains(Flags::REMOTE));
    // It describes the write that brought it, and no other.
    cluster.patch("configmaps", &Name::new("default", "annotated"), json!({"data": {"a": "1"}})).await;
    let write = one(&cluster.records(), Stage::Write, "patch configmaps default/annotated");
    assert_eq!(write.record.parent, SpanId::NONE);
}
