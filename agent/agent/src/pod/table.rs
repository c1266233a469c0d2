//! Every pod of this node: who to tell about news of it, and what is known of it for whoever asks.

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::execute::Outcome;
use super::observed::State;
use super::spec;
use crate::volume::prepare::Prepared;

/// News for a pod's worker.
pub enum Message {
    /// The pod is desired to be so.
    Pod(Arc<Pod>),
    /// The pod is desired no more: its API object or manifest is gone.
    Gone(Option<Arc<Pod>>),
    /// The runtime has news of its containers.
    Observe,
    /// A probe's verdict changed.
    Verdicts,
    /// A ConfigMap or Secret it uses changed.
    Objects,
    /// Its volumes were brought up to date, or could not be.
    Prepared(Option<Arc<Prepared>>),
    /// Something that was being done is done.
    Done(Box<Outcome>),
    /// A container that was being stopped is stopped, or not.
    Stopped(String),
    /// The node cannot keep it.
    Evict {
        /// Reason on its status.
        reason: String,
        /// Message on its status.
        message: String,
        /// Seconds it has to end.
        grace: i64,
    },
    /// Its API object was seen anew: it may need to be told the status again.
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

/// What is known of a pod.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The current sandbox.
    pub sandbox: Option<String>,
    /// Its addresses.
    pub ips: Vec<String>,
    /// Containers, newest instances first.
    pub containers: Vec<ContainerView>,
}

/// A pod with what is known of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The pod as it is desired.
    pub pod: Arc<Pod>,
    /// What is known.
    pub view: View,
}

struct Slot {
    pod: Arc<Pod>,
    mailbox: UnboundedSender<Message>,
    view: View,
    /// Counts against the node's resources.
    admitted: bool,
    /// Its worker has ended; only its API object is left to go.
    finished: bool,
    /// Its source knows it no more: for the scheduler its place is free already.
    gone: bool,
}

/// The pods of the node.
#[derive(Clone, Default)]
pub struct PodTable {
    slots: Arc<Mutex<HashMap<String, Slot>>>,
    left: Arc<Notify>,
}

impl PodTable {
    /// Puts a pod in, unless it is there; says whether it was put in.
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
                mailbox,
                view: View::default(),
                admitted: false,
                finished: false,
                gone: false,
            },
        );
        true
    }

    /// Sends news; `false` when no such pod is known.
    pub fn send(&self, uid: &str, message: Message) -> bool {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(uid) else { return false };
        if let Message::Pod(pod) = &message {
            slot.pod = pod.clone();
        }
        let gone = matches!(message, Message::Gone(_));
        slot.gone |= gone;
        if slot.mailbox.send(message).is_err() && gone {
            slots.remove(uid);
        }
        true
    }

    /// Records what was observed of a pod.
    pub fn show(&self, uid: &str, view: View) {
        if let Some(slot) = self.slots.lock().get_mut(uid) {
            slot.view = view;
        }
    }

    /// Decides on a pod under a lock, against the pods admitted before it. One that was deleted at once may still be ending
    /// here; whoever was given its place is not to be refused for that.
    pub fn admit<E>(&self, uid: &str, decide: impl FnOnce(&[Arc<Pod>]) -> Result<(), E>) -> Result<(), E> {
        let mut slots = self.slots.lock();
        let others: Vec<Arc<Pod>> = slots
            .iter()
            .filter(|(other, slot)| *other != uid && slot.admitted && !slot.gone)
            .map(|(_, slot)| slot.pod.clone())
            .collect();
        decide(&others)?;
        if let Some(slot) = slots.get_mut(uid) {
            slot.admitted = true;
        }
        Ok(())
    }

    /// The pod uses nothing of the node any more.
    pub fn discharge(&self, uid: &str) {
        if let Some(slot) = self.slots.lock().get_mut(uid) {
            slot.admitted = false;
        }
        self.left.notify_waiters();
    }

    /// Returns when none of these pods uses anything of the node any more.
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

    /// The worker has ended. The entry stays until the source says that the pod is gone, so that a late update does
    /// not bring it back to life; `gone` when the source said so already.
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

    /// Every pod whose worker goes on.
    pub fn list(&self) -> Vec<Entry> {
        let slots = self.slots.lock();
        slots.values().filter(|slot| !slot.finished).map(entry).collect()
    }

    /// Pods that were admitted and still use something of the node.
    pub fn admitted(&self) -> Vec<Arc<Pod>> {
        let slots = self.slots.lock();
        slots.values().filter(|slot| slot.admitted && !slot.finished).map(|slot| slot.pod.clone()).collect()
    }

    /// A pod by uid.
    pub fn get(&self, uid: &str) -> Option<Entry> {
        self.slots.lock().get(uid).map(entry)
    }

    /// A pod by namespace and name, and by its uid when that is known: a pod that has the name of another is not that other.
    pub fn meant(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Entry> {
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
