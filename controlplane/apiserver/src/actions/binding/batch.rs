//! Binds pods in batches, for the scheduler. A binding that only sets the node and the `PodScheduled` condition is
//! spliced into the stored bytes and written with others in one store batch. Every other binding, and every rejected
//! one, takes the path of a single `/binding` request.

use super::edit;
use crate::admission::pod_topology_labels;
use crate::api::Api;
use crate::fenced::write_failed;
use crate::metadata::now;
use crate::metrics::store::Operation;
use crate::objects::Objects;
use crate::run_action::{Actions, Call};
use crate::scoped::scoped;
use crate::verb::Verb;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::Placement;
use coracle_client::user::User;
use coracle_fields::core::v1::Binding;
use coracle_fields::make;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use coracle_store::{Durability, StoreError, Write};
use coracle_trace::{self as trace, Scope, WriteMark, WriteSpan, enter, write_mark};
use futures::future::join_all;
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;

/// Gives pods their nodes. The answers are in order; one that is refused holds up none of the others. Returns when reads see
/// all of them.
pub async fn bind_all(
    actions: &Actions,
    api: &Api,
    user: &User,
    options: &WriteOptions,
    placements: &[Placement<'_>],
) -> Vec<Result<(), ApiError>> {
    let Some(pods) = api.objects.registry.resource("", "v1", "pods") else {
        return placements.iter().map(|_| Err(ApiError::no_such_path())).collect();
    };
    let pods: &Kind = &pods;
    let mut answers: Vec<Option<Result<(), ApiError>>> = placements.iter().map(|_| None).collect();
    // What the cache has may be old; then the store refuses it.
    if !options.dry_run && no_dynamic_admission(&api.objects) {
        let now = now();
        let (mut written, fence) = (Vec::new(), options.fence.as_ref());
        let nodes = nodes_with_labels(api);
        for (at, one) in placements.iter().enumerate() {
            if let Some((write, pod)) = stage(&api.objects, pods, nodes.as_deref(), one, &now) {
                let mut span = span(api, one, &pod);
                let write = api.store_write(pods, Operation::Update, write, fence);
                written.push(async move {
                    let result = write.await;
                    // Not after the others are written: nodes see this one before.
                    if let Ok(revision) = &result {
                        enter(span.scope(), || write_mark(WriteMark::Stored));
                        span.stored(*revision);
                    }
                    (at, span, result)
                });
            }
        }
        let (mut newest, mut spans) = (0, Vec::new());
        for (at, mut span, result) in join_all(written).await {
            match result {
                Ok(revision) => {
                    newest = newest.max(revision);
                    answers[at] = Some(Ok(()));
                    spans.push(span);
                }
                // Somebody else was faster: what is to be said about it the single binding knows.
                Err(StoreError::Conflict(_)) => span.discard(),
                Err(error) => {
                    let error = write_failed(error, fence);
                    span.refused(error.code);
                    answers[at] = Some(Err(error));
                }
            }
        }
        api.objects.reflector.wait_for(newest).await;
        for span in spans {
            enter(span.scope(), || write_mark(WriteMark::Visible));
        }
    }
    let mut answered = Vec::new();
    for (answer, one) in answers.into_iter().zip(placements) {
        answered.push(async move {
            match answer {
                Some(answer) => answer,
                None => scoped(scope(one), pin!(bind_one(actions, api, user, options, pods, one))).await,
            }
        });
    }
    join_all(answered).await
}

/// Whether no admission webhooks and policy bindings exist.
fn no_dynamic_admission(objects: &Objects) -> bool {
    let who = [
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
    ];
    who.iter().all(|plural| {
        let kind = objects.registry.preferred("admissionregistration.k8s.io", plural);
        kind.and_then(|kind| objects.cache(&kind).ok()).is_none_or(|all| all.is_empty())
    })
}

/// What a binding is recorded below.
fn scope(one: &Placement<'_>) -> Scope {
    if one.scope.recorder.is_on() { one.scope } else { trace::current() }
}

/// The span of the write that binds a pod.
fn span(api: &Api, one: &Placement<'_>, pod: &Object) -> WriteSpan {
    let begin = || api.recorder.write(trace::Verb::Bind, "pods", one.namespace, one.name);
    let mut span = enter(scope(one), begin);
    span.object(one.uid, one.name);
    if let Some(owner) = pod.meta.owner_references.iter().find(|owner| owner.controller) {
        span.owner(&owner.uid);
    }
    span
}

/// The kind of nodes, if pods get labels of theirs.
fn nodes_with_labels(api: &Api) -> Option<Arc<Kind>> {
    let nodes = || api.objects.registry.resource("", "v1", "nodes");
    api.admission.has(pod_topology_labels::NAME).then(nodes).flatten()
}

/// The write that binds a pod, and the pod as it is, if it can be spliced. With `nodes` it gets the labels of its node.
fn stage(
    objects: &Objects,
    pods: &Kind,
    nodes: Option<&Kind>,
    one: &Placement<'_>,
    now: &str,
) -> Option<(Write, Arc<Object>)> {
    let current = objects.cached(pods, one.namespace, one.name).ok()?;
    if current.meta.uid != one.uid || current.meta.deletion_timestamp.is_some() {
        return None;
    }
    let node = nodes.and_then(|nodes| objects.cached(nodes, "", one.node).ok());
    let labels: Vec<_> =
        node.iter().flat_map(|node| pod_topology_labels::topology(&node.meta.labels)).collect();
    let value = edit::bound(&current.json, one.node, &labels, now)?;
    let write = Write {
        key: pods.key(one.namespace, one.name),
        expect: current.revision,
        value: Some(value.into()),
        durability: Durability::Sync,
        fence: None,
    };
    Some((write, current))
}

/// The Binding of a pod.
pub(super) fn binding(one: &Placement<'_>) -> Value {
    let binding = make!(Binding {
        metadata: { name: one.name, namespace: one.namespace, uid: one.uid },
        target: { api_version: "v1", kind: "Node", name: one.node },
    });
    binding.into_value()
}

async fn bind_one(
    actions: &Actions,
    api: &Api,
    user: &User,
    options: &WriteOptions,
    pods: &Kind,
    one: &Placement<'_>,
) -> Result<(), ApiError> {
    let call = Call {
        api,
        user,
        kind: pods,
        namespace: one.namespace,
        name: one.name,
        subresource: "binding",
        verb: Verb::Create,
        content_type: "application/json",
        body: binding(one),
        options,
        admitted: None,
    };
    actions.run(call).await.map(drop)
}
