//! Table of all pods of this node: the mailbox of each worker, and the observed state for the node API.

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::execute::outcome::Outcome;
use crate::pod::observed::State;
use crate::pod::spec;
use crate::volume::prepare::Prepared;

/// A message to a pod worker.
pub enum Message {
    /// The desired Pod object changed; when this node got it.
    Pod(Arc<Pod>, Instant),
    /// The API object or manifest was deleted.
    Gone(Option<Arc<Pod>>),
    /// The runtime reported an event of its containers.
    Observe,
    /// A probe's verdict changed.
    Verdicts,
    /// A ConfigMap or Secret it uses changed.
    Objects,
    /// Volumes were refreshed, or failed.
    Prepared(Option<Arc<Prepared>>),
    /// A job has finished, and when.
    Done(Box<Outcome>, Instant),
    /// Stopping a container has finished, successfully or not.
    Stopped(String),
    /// The pod is evicted.
    Evict {
        /// Reason on its status.
        reason: String,
        /// Message on its status.
        message: String,
        /// Message of its condition `DisruptionTarget`; `None` if the pod itself is the cause.
        disruption: Option<String>,
        /// Seconds it has to end.
        grace: i64,
    },
    /// The pods that this one preempts have ended, or had enough time to.
    Preempted,
    /// The disk is short: if the pod has ended, its containers and logs are removed. Dropped afterwards.
    Reclaim(oneshot::Sender<()>),
    /// The API object was read again: its status may have to be sent.
    Report,
    /// Its API object is deleted.
    Deleted,
}

/// One container as the node's own API shows it.
#[derive(Clone, Debug)]
pub struct ContainerView {
    /// Name in the spec.
    pub name: String,
    /// Runtime's id.
    pub id: String,
    /// Restart count.
    pub attempt: u32,
    /// State.
    pub state: State,
    /// Its log file.
    pub log_path: PathBuf,
}

/// Observed state of a pod.
#[derive(Clone, Debug, Default)]
pub struct PodView {
    /// The current sandbox.
    pub sandbox: Option<String>,
    /// Its addresses.
    pub ips: Vec<String>,
    /// Containers, newest instances first.
    pub containers: Vec<ContainerView>,
}

/// A pod and its observed state.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The pod as it is desired.
    pub pod: Arc<Pod>,
    /// Observed state.
    pub view: PodView,
}

struct Slot {
    pod: Arc<Pod>,
    /// The pod with the resources that it was given, which a resize may be about to change.
    allocated: Option<Arc<Pod>>,
    mailbox: UnboundedSender<Message>,
    view: PodView,
    /// Counts against the node's resources.
    admitted: bool,
    /// Its containers have ended; volumes may be left.
    ended: bool,
    /// The worker has ended; only the API object is left.
    finished: bool,
    /// Deleted by its source: the scheduler treats its resources as free.
    gone: bool,
}

impl Slot {
    fn given(&self) -> &Arc<Pod> {
        self.allocated.as_ref().unwrap_or(&self.pod)
    }
}

/// The pods that count against the node's resources beside a pod.
fn counted(slots: &HashMap<String, Slot>, uid: &str) -> Vec<Arc<Pod>> {
    slots
        .iter()
        .filter(|(other, slot)| *other != uid && slot.admitted && !slot.gone && !slot.ended)
        .map(|(_, slot)| slot.given().clone())
        .collect()
}

/// The pods of the node.
#[derive(Clone, Default)]
pub struct PodTable {
    slots: Arc<Mutex<HashMap<String, Slot>>>,
    left: Arc<Notify>,
}

impl PodTable {
    /// Inserts a pod unless it exists; returns whether it was inserted.
    pub fn insert(&self, pod: &Arc<Pod>, mailbox: UnboundedSender<Message>) -> bool {
        let mut slots = self.slots.lock();
        let uid = spec::uid(pod).to_owned();
        if slots.contains_key(&uid) {
            return false;
        }
        slots.insert(
            uid,
            Slot {
                pod: pod.clone(),
                allocated: None,
                mailbox,
                view: PodView::default(),
                admitted: false,
                ended: false,
                finished: false,
                gone: false,
            },
        );
        true
    }

    /// Sends a message to the worker; `false` if the pod is unknown.
    pub fn send(&self, uid: &str, message: Message) -> bool {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(uid) else { return false };
        if let Message::Pod(pod, _) = &message {
            slot.pod = pod.clone();
        }
        let gone = matches!(message, Message::Gone(_));
        slot.gone |= gone;
        if slot.mailbox.send(message).is_err() && gone {
            slots.remove(uid);
        }
        true
    }

    /// Stores the observed state of a pod.
    pub fn set_view(&self, uid: &str, view: PodView) {
        if let Some(slot) = self.slots.lock().get_mut(uid) {
            slot.view = view;
        }
    }

    /// Decides on admission under a lock, against the pods admitted before. Force-deleted pods that are still
    /// terminating are not counted, because the scheduler has assigned their resources already, and neither are pods that
    /// have ended.
    pub fn admit<T, E>(&self, uid: &str, decide: impl FnOnce(&[Arc<Pod>]) -> Result<T, E>) -> Result<T, E> {
        let mut slots = self.slots.lock();
        let decision = decide(&counted(&slots, uid))?;
        if let Some(slot) = slots.get_mut(uid) {
            slot.admitted = true;
        }
        Ok(decision)
    }

    /// Decides under the same lock whether a pod gets the resources that `asked` asks for, and from then on counts it with them.
    pub fn allocate<E>(
        &self,
        asked: &Arc<Pod>,
        decide: impl FnOnce(&[Arc<Pod>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut slots = self.slots.lock();
        decide(&counted(&slots, spec::uid(asked)))?;
        if let Some(slot) = slots.get_mut(spec::uid(asked)) {
            slot.allocated = Some(asked.clone());
        }
        Ok(())
    }

    /// Stores a newer object of a pod, with the resources that it was given.
    pub fn set_allocated(&self, pod: &Arc<Pod>) {
        if let Some(slot) = self.slots.lock().get_mut(spec::uid(pod)) {
            slot.allocated = Some(pod.clone());
        }
    }

    /// A pod with the resources that it was given; `None` if that is not known yet.
    pub fn allocated(&self, uid: &str) -> Option<Arc<Pod>> {
        self.slots.lock().get(uid)?.allocated.clone()
    }

    /// Nothing of the pod runs any more. Call it before the API is told, because the scheduler then assigns its resources.
    pub fn mark_ended(&self, uid: &str) {
        if let Some(slot) = self.slots.lock().get_mut(uid) {
            slot.ended = true;
        }
    }

    /// The pod no longer uses resources of the node.
    pub fn mark_stopped(&self, uid: &str) {
        if let Some(slot) = self.slots.lock().get_mut(uid) {
            slot.admitted = false;
        }
        self.left.notify_waiters();
    }

    /// Waits until none of these pods uses resources of the node.
    pub async fn wait_stopped(&self, uids: &[String]) {
        loop {
            let left = self.left.notified();
            {
                let slots = self.slots.lock();
                if uids.iter().all(|uid| slots.get(uid).is_none_or(|slot| !slot.admitted || slot.finished)) {
                    return;
                }
            }
            left.await;
        }
    }

    /// The worker has ended. The entry stays until the source has deleted the pod, so that a late update does not start
    /// it again; `gone` if the source has deleted it already.
    pub fn finish(&self, uid: &str, gone: bool) {
        let mut slots = self.slots.lock();
        if gone {
            slots.remove(uid);
        } else if let Some(slot) = slots.get_mut(uid) {
            slot.finished = true;
        }
        drop(slots);
        self.left.notify_waiters();
    }

    /// Returns when no worker is left of any of these pods.
    pub async fn wait_gone(&self, uids: &[String]) {
        loop {
            let left = self.left.notified();
            {
                let slots = self.slots.lock();
                if uids.iter().all(|uid| slots.get(uid).is_none_or(|slot| slot.finished)) {
                    return;
                }
            }
            left.await;
        }
    }

    /// Uids of all pods, finished ones too.
    pub fn uids(&self) -> Vec<String> {
        self.slots.lock().keys().cloned().collect()
    }

    /// Every pod with a running worker.
    pub fn list(&self) -> Vec<Entry> {
        let slots = self.slots.lock();
        slots.values().filter(|slot| !slot.finished).map(entry).collect()
    }

    /// Admitted pods that still use resources of the node, with the resources that they were given.
    pub fn admitted(&self) -> Vec<Arc<Pod>> {
        let slots = self.slots.lock();
        slots
            .values()
            .filter(|slot| slot.admitted && !slot.finished)
            .map(|slot| slot.given().clone())
            .collect()
    }

    /// Pods with a running worker, with the resources that they were given.
    pub fn all_allocated(&self) -> Vec<Arc<Pod>> {
        let slots = self.slots.lock();
        slots.values().filter(|slot| !slot.finished).map(|slot| slot.given().clone()).collect()
    }

    /// Uids of pods that have ended and whose containers are left.
    pub fn ended_with_containers(&self) -> Vec<String> {
        let has_any = |view: &PodView| view.sandbox.is_some() || !view.containers.is_empty();
        let slots = self.slots.lock();
        let ended = slots.iter().filter(|(_, slot)| slot.ended && !slot.finished && has_any(&slot.view));
        ended.map(|(uid, _)| uid.clone()).collect()
    }

    /// A pod by uid.
    pub fn get(&self, uid: &str) -> Option<Entry> {
        self.slots.lock().get(uid).map(entry)
    }

    /// A pod by namespace and name, and by its uid when that is known: a pod that has the name of another is not that other.
    pub fn find_exact(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Entry> {
        let Some(uid) = uid.filter(|uid| !uid.is_empty()) else { return self.find(namespace, name) };
        self.get(uid)
            .filter(|entry| spec::namespace(&entry.pod) == namespace && spec::name(&entry.pod) == name)
    }

    /// A pod by namespace and name; of several, one that is not being deleted.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Entry> {
        let slots = self.slots.lock();
        let mut found: Vec<&Slot> = slots
            .values()
            .filter(|slot| spec::namespace(&slot.pod) == namespace && spec::name(&slot.pod) == name)
            .collect();
        found.sort_by_key(|slot| (slot.finished, slot.pod.metadata.deletion_timestamp.is_some()));
        found.first().map(|slot| entry(slot))
    }
}

fn entry(slot: &Slot) -> Entry {
    Entry { pod: slot.pod.clone(), view: slot.view.clone() }
}
