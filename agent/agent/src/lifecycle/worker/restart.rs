//! Restarts a pod worker after a panic. The new worker reads all state again, as after a restart of the agent; other
//! pods are not affected.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::clock::from_now;
use super::desired::Desired;
use super::shared::WorkerParts;
use super::task::Worker;
use crate::lifecycle::table::Message;

/// Backoff after the first panic, for a changed pod and for an unchanged one; doubles with each panic.
const MIN_BACKOFF_OF_CHANGED: Duration = Duration::from_secs(1);
const MIN_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// The backoff is reset after this time without a panic.
const BACKOFF_RESET: Duration = Duration::from_secs(600);

/// Runs workers for a pod that arrived at `received`, until it is gone.
pub(super) async fn run_worker(
    parts: Arc<WorkerParts>,
    (mut desired, received): (Desired, Instant),
    mailbox: UnboundedSender<Message>,
    mut inbox: UnboundedReceiver<Message>,
) {
    let mut panics = 0u32;
    let mut received = Some(received);
    loop {
        let mut worker = Worker::new(&parts, desired.clone(), mailbox.clone(), received.take());
        let begun = Instant::now();
        let about = desired.pod().clone();
        if parts.catch_panic(&about, worker.run(&mut inbox)).await.is_ok() {
            return;
        }
        panics = if begun.elapsed() >= BACKOFF_RESET { 0 } else { panics };
        desired = worker.newest();
        worker.trace.abandon();
        worker.tasks.end().await;
        let rest = |first: Duration| first.saturating_mul(1 << panics.min(20)).min(MAX_BACKOFF);
        tokio::time::sleep(rest(MIN_BACKOFF_OF_CHANGED)).await;
        wait_for_change(&mut inbox, &mailbox, &mut desired, rest(MIN_BACKOFF)).await;
        panics = panics.saturating_add(1);
    }
}

/// Waits for a change of the pod or until the timeout. Other messages are dropped: the next worker reads all state again.
async fn wait_for_change(
    inbox: &mut UnboundedReceiver<Message>,
    mailbox: &UnboundedSender<Message>,
    desired: &mut Desired,
    rest: Duration,
) {
    let until = from_now(rest);
    while let Ok(Some(message)) = tokio::time::timeout_at(until.into(), inbox.recv()).await {
        match message {
            Message::Pod(new, _) => {
                desired.update(new);
                return;
            }
            Message::Gone(last) => {
                desired.remove(last);
                return;
            }
            message @ (Message::Evict { .. } | Message::Deleted) => {
                // For the next worker.
                let _ = mailbox.send(message);
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::shared::TASK;
    use super::super::task::trap;
    use super::*;
    use crate::cli::assemble::assemble;
    use crate::config::NodeConfig;
    use crate::node::machine::read_machine;
    use crate::trace::NodeTrace;
    use coracle_cli::supervise::Supervisor;
    use coracle_engine::runtime::{CriRuntime, Runtime};
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::client::Body;

    fn pod(name: &str, annotations: &[&str]) -> Arc<Pod> {
        let annotations = annotations.iter().map(|key| ((*key).to_owned(), String::new())).collect();
        let metadata = ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(format!("uid-of-{name}")),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..2000 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_pod_that_makes_its_worker_panic_gets_another_and_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let service = tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>().await
        });
        let client = kube::Client::new(service, "default");
        // Nobody answers there: workers ask again every second.
        let socket = dir.path().join("none.sock").display().to_string();
        let runtime: Arc<dyn Runtime> = Arc::new(CriRuntime::new(&socket).unwrap());
        let runtime = (runtime, "test".to_owned());
        let supervisor = Supervisor::default();
        let machine = read_machine(dir.path());
        let trace = NodeTrace::new(coracle_trace::Recorder::OFF);
        let (node, _) =
            assemble(NodeConfig::in_directory(dir.path()), (client, trace), runtime, &machine, &supervisor);
        assert!(node.workers.spawn(Desired::Present(pod("bad", &[trap::ANNOTATION]))));
        assert!(node.workers.spawn(Desired::Present(pod("good", &[]))));
        until("the bad one is put aside", || supervisor.quarantined().len() == 1).await;
        let aside = &supervisor.quarantined()[0];
        assert_eq!((aside.subject.to_string(), aside.task.as_str()), ("pods default/bad".into(), TASK));
        let asked = || {
            let mut page = coracle_proto::exposition::Page::new(coracle_proto::exposition::Form::Prometheus);
            node.metrics.operations.render(&mut page);
            let text = page.finish();
            let line =
                text.lines().find(|line| line.contains("operations_total") && line.contains("sandbox"));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let before = asked();
        until("the worker of the other goes on", || asked() > before + 1).await;
        let changed = Message::Pod(pod("bad", &[]), Instant::now());
        assert!(node.workers.pods().send("uid-of-bad", changed), "it is still there");
        until("it is released once it changed", || supervisor.quarantined().is_empty()).await;
        let panics = supervisor.panics();
        assert!(panics.iter().any(|(task, count)| task == TASK && *count == 1), "{panics:?}");
    }
}
