//! Sends pod statuses to the API server: the newest per pod, as a patch, retried until it succeeds.

use coracle_cli::causes;
use coracle_trace::{Scope, Span, Stage, current, enter, stage};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

use super::conditions::correct_times;
use super::patch::status_patch;
use super::request::{ReportRequest, Waiting, Work};
use crate::pod::spec;
use crate::trace::NodeTrace;

/// How many statuses are on their way at once.
const CONCURRENT: usize = 16;
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// A shorter wait for a slot is not recorded.
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// Callback after a pod's API object was deleted.
pub type Deleted = Box<dyn FnOnce() + Send>;

/// Reports pod statuses and deletes API objects.
#[derive(Clone)]
pub struct Reporter {
    client: kube::Client,
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    slots: Arc<Semaphore>,
    trace: NodeTrace,
}

struct Entry {
    /// Uid of the API object; another one than the pod's own for a mirror pod.
    api_uid: String,
    namespace: String,
    name: String,
    /// What the API server has, as far as we know.
    sent: PodStatus,
    sent_version: u64,
    desired: Option<PodStatus>,
    delete: Option<Deleted>,
    busy: bool,
    /// Where the newest report is recorded, and since when it waits.
    scope: Scope,
    waiting: Option<Waiting>,
}

impl Entry {
    /// Something is to be sent, with all that waits already. It is recorded below what asked for it last, and does not begin
    /// before that.
    fn waits(&mut self, scope: Scope) {
        let is_same = self.scope.span == scope.span;
        self.scope = scope;
        if self.waiting.is_none() || !is_same {
            self.waiting = Some(Waiting::begin().after(self.waiting));
        }
    }
}

fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

impl Reporter {
    /// A reporter without pods.
    pub fn new(client: kube::Client, trace: NodeTrace) -> Self {
        Reporter { client, entries: Arc::default(), slots: Arc::new(Semaphore::new(CONCURRENT)), trace }
    }

    /// The newest status of a pod, sent already or not.
    pub fn status(&self, uid: &str) -> Option<PodStatus> {
        let entries = self.entries.lock();
        entries.get(uid).map(|entry| entry.desired.clone().unwrap_or_else(|| entry.sent.clone()))
    }

    /// The API's object of a pod was seen: what it says is what the server has, unless we wrote something newer.
    pub fn seen(&self, pod: &Pod) {
        self.seen_as(spec::uid(pod), pod);
    }

    /// The same for the API object that shows the static pod `uid`.
    pub fn seen_as(&self, uid: &str, pod: &Pod) {
        let mut entries = self.entries.lock();
        if entries.get(uid).is_some_and(|entry| entry.api_uid != spec::uid(pod)) {
            entries.remove(uid);
        }
        let entry = entries.entry(uid.to_owned()).or_insert_with(|| Entry {
            api_uid: spec::uid(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            name: spec::name(pod).to_owned(),
            sent: PodStatus::default(),
            sent_version: 0,
            desired: None,
            delete: None,
            busy: false,
            scope: Scope::NONE,
            waiting: None,
        });
        if version(pod) >= entry.sent_version {
            entry.sent_version = version(pod);
            entry.sent = pod.status.clone().unwrap_or_default();
        }
    }

    /// Reports a status; a newer one replaces it if it is still waiting.
    pub fn report(&self, uid: &str, status: PodStatus) {
        if let Some(entry) = self.entries.lock().get_mut(uid) {
            entry.desired = Some(status);
            entry.waits(current());
        }
        self.kick(uid);
    }

    /// Deletes the API object after its last status was reported; `done` is called when it is gone.
    pub fn delete(&self, uid: &str, done: Deleted) {
        match self.entries.lock().get_mut(uid) {
            Some(entry) => {
                entry.delete = Some(done);
                entry.waits(current());
            }
            None => done(),
        }
        self.kick(uid);
    }

    /// Nothing more is known or reported about the pod.
    pub fn forget(&self, uid: &str) {
        self.entries.lock().remove(uid);
    }

    /// Returns when nothing waits to be sent.
    pub async fn settled(&self) {
        while self.entries.lock().values().any(|entry| entry.busy) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn kick(&self, uid: &str) {
        if let Some(entry) = self.entries.lock().get_mut(uid)
            && !entry.busy
        {
            entry.busy = true;
            let (reporter, uid) = (self.clone(), uid.to_owned());
            tokio::spawn(async move { reporter.drain(&uid).await });
        }
    }

    /// Works until nothing is waiting for this pod.
    async fn drain(&self, uid: &str) {
        let mut pause = Duration::from_millis(100);
        // Since when a status that could not be sent waits.
        let mut unsent: Option<Waiting> = None;
        loop {
            let Some(mut next) = self.next(uid) else { return };
            let is_repeated = unsent.is_some() && next.waiting.is_none();
            next.waiting = next.waiting.map(|new| new.after(unsent)).or(unsent);
            let mut span = next.span(self.trace.recorder);
            let result = {
                let waits = Instant::now();
                let _slot = self.slots.acquire().await;
                self.record_wait(&span, waits);
                next.send(&self.client, &span).await
            };
            let is_gone = match &result {
                Err(kube::Error::Api(status)) => next.is_gone(&self.client, status.code).await,
                _ => false,
            };
            if result.is_err() && is_repeated {
                // The first failure is recorded, and in the end how long it took.
                span.discard();
            } else if result.is_err() {
                span.failed();
                span.finish();
            } else {
                span.finish();
            }
            let ReportRequest { namespace, name, work, waiting, .. } = next;
            match result {
                Ok(pod) => {
                    pause = Duration::from_millis(100);
                    unsent = None;
                    if let (Some(waiting), Work::Patch(..)) = (waiting, &work) {
                        self.trace.metrics.status_synced(waiting.changed.elapsed());
                    }
                    self.done(uid, work, pod);
                }
                // Deleted, or another pod of the same name.
                Err(_) if is_gone => {
                    self.gone(uid);
                    return;
                }
                Err(error) => {
                    tracing::warn!(uid, pod = name, namespace, error = %causes::chain(&error), "pod status not reported, will retry");
                    unsent = waiting;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
    }

    fn record_wait(&self, span: &Span, since: Instant) {
        if since.elapsed() >= SHORT_WAIT {
            let mut wait = enter(span.scope(), || stage(Stage::StatusWait));
            wait.began(self.trace.moment(since));
        }
    }

    fn next(&self, uid: &str) -> Option<ReportRequest> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(uid)?;
        let held = entry.sent.conditions.as_deref().unwrap_or_default();
        if let Some(wanted) = entry.desired.as_mut().and_then(|desired| desired.conditions.as_deref_mut()) {
            correct_times(held, wanted, Timestamp::now());
        }
        let patch = entry.desired.as_ref().and_then(|desired| {
            status_patch(&entry.api_uid, &entry.sent, desired)
                .map(|patch| Work::Patch(patch, Box::new(desired.clone())))
        });
        let work = match patch {
            Some(work) => work,
            None if entry.delete.is_some() => Work::Delete,
            None => {
                entry.desired = None;
                entry.waiting = None;
                entry.busy = false;
                return None;
            }
        };
        Some(ReportRequest {
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            api_uid: entry.api_uid.clone(),
            work,
            scope: entry.scope,
            waiting: entry.waiting.take(),
            sent_version: entry.sent_version,
        })
    }

    fn done(&self, uid: &str, work: Work, answer: Option<Pod>) {
        match work {
            Work::Patch(_, status) => {
                if let Some(entry) = self.entries.lock().get_mut(uid) {
                    entry.sent_version = entry.sent_version.max(answer.as_ref().map(version).unwrap_or(0));
                    // Stores what was sent, not the response: other fields belong to other writers.
                    entry.sent = *status;
                }
            }
            Work::Delete => self.gone(uid),
        }
    }

    fn gone(&self, uid: &str) {
        let entry = self.entries.lock().remove(uid);
        if let Some(done) = entry.and_then(|entry| entry.delete) {
            done();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_trace::{Recorder, SpanId, Uid};
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::json;

    const UID: &str = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";

    #[tokio::test]
    async fn a_report_does_not_begin_before_what_asked_for_it() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let body = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}).to_string();
            Ok::<_, std::convert::Infallible>(Response::new(Full::<bytes::Bytes>::from(body)))
        });
        let recorder = Recorder::for_tests();
        let reporter = Reporter::new(kube::Client::new(service, "default"), NodeTrace::new(recorder));
        let metadata = json!({"name": "web", "namespace": "default", "uid": UID, "resourceVersion": "42"});
        reporter.seen(&serde_json::from_value(json!({"metadata": metadata})).unwrap());
        let status = |phase: &str| PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
        let start = Scope::of_pod(recorder, Uid::of(UID), 42);
        enter(start, || reporter.report(UID, status("Pending")));
        // Nothing is sent before this task waits.
        std::thread::sleep(Duration::from_millis(5));
        let end = SpanId::of_stage(Uid::of(UID), Stage::Terminate);
        let ends = Instant::now();
        enter(start.below(end), || reporter.report(UID, status("Running")));
        reporter.settled().await;
        let mut reports = Vec::new();
        let ends = reporter.trace.moment(ends);
        let read = recorder.read(&mut |record, _, _| {
            if record.stage == Stage::StatusReport {
                reports.push((record.parent, record.start >= ends));
            }
        });
        recorder.release(read);
        assert_eq!(reports, [(end, true)]);
        let entries = reporter.entries.lock();
        assert_eq!(entries[UID].waiting, None);
    }

    #[test]
    fn a_change_waits_until_it_is_sent_with_whatever_cause() {
        let first = Waiting::begin();
        let later = first.asked + Duration::from_secs(1);
        let second = Waiting { changed: later, asked: later };
        assert_eq!(second.after(Some(first)), Waiting { changed: first.changed, asked: later });
        assert_eq!(second.after(None), second);
    }
}
