//! Sends pod statuses to the API server: the newest per pod, as a patch, retried until it succeeds.

use coracle_cli::causes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

use super::conditions::correct_times;
use super::patch::status_patch;
use crate::pod::spec;

/// How many statuses are on their way at once.
const CONCURRENT: usize = 16;
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Callback after a pod's API object was deleted.
pub type Deleted = Box<dyn FnOnce() + Send>;

/// Reports pod statuses and deletes API objects.
#[derive(Clone)]
pub struct Reporter {
    client: kube::Client,
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    slots: Arc<Semaphore>,
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
}

enum Work {
    Patch(serde_json::Value, Box<PodStatus>),
    Delete,
}

fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

impl Reporter {
    /// A reporter without pods.
    pub fn new(client: kube::Client) -> Self {
        Reporter { client, entries: Arc::default(), slots: Arc::new(Semaphore::new(CONCURRENT)) }
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
        }
        self.kick(uid);
    }

    /// Deletes the API object after its last status was reported; `done` is called when it is gone.
    pub fn delete(&self, uid: &str, done: Deleted) {
        match self.entries.lock().get_mut(uid) {
            Some(entry) => entry.delete = Some(done),
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
        loop {
            let Some((namespace, name, api_uid, work)) = self.next(uid) else { return };
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            let result = {
                let _slot = self.slots.acquire().await;
                match &work {
                    Work::Patch(patch, _) => api
                        .patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch))
                        .await
                        .map(Some),
                    Work::Delete => {
                        let preconditions = Preconditions { uid: Some(api_uid), resource_version: None };
                        let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
                        api.delete(&name, &params).await.map(|_| None)
                    }
                }
            };
            match result {
                Ok(pod) => {
                    pause = Duration::from_millis(100);
                    self.done(uid, work, pod);
                }
                // Deleted, or another pod of the same name.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) && is_gone(&status) => {
                    self.gone(uid);
                    return;
                }
                Err(error) => {
                    tracing::warn!(uid, pod = name, namespace, error = %causes::chain(&error), "pod status not reported, will retry");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
    }

    fn next(&self, uid: &str) -> Option<(String, String, String, Work)> {
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
                entry.busy = false;
                return None;
            }
        };
        Some((entry.namespace.clone(), entry.name.clone(), entry.api_uid.clone(), work))
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

/// 404, or a precondition on the uid that failed.
fn is_gone(status: &kube::core::Status) -> bool {
    status.code == 404
        || status.message.contains("Precondition failed: UID")
        || status.message.contains("uid mismatch")
}
