//! Attachments by the control plane: the Node says which volumes pods of this node use, and learns which are attached.

use k8s_openapi::api::core::v1::NodeStatus;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long a pod waits before it reports that a volume is not attached, and tries again.
const LIMIT: Duration = Duration::from_secs(60);

/// A volume that the control plane has not attached.
#[derive(Debug, thiserror::Error)]
#[error("volume {volume} is not attached to the node: not in status.volumesAttached within {} seconds", LIMIT.as_secs())]
pub struct NotAttached {
    /// Its name.
    pub volume: String,
}

/// What the API server has.
#[derive(Clone, Debug, Default)]
struct Seen {
    version: u64,
    in_use: BTreeSet<String>,
    attached: BTreeSet<String>,
}

/// Volumes that must be attached to this node, and those that are.
pub struct Attachments {
    /// Uids of pods, by volume.
    users: Mutex<BTreeMap<String, BTreeSet<String>>>,
    seen: watch::Sender<Seen>,
    changed: Arc<Notify>,
}

impl Attachments {
    /// `changed` is notified when the status of the Node has to be sent.
    pub fn new(changed: Arc<Notify>) -> Self {
        Self { users: Mutex::default(), seen: watch::Sender::default(), changed }
    }

    /// A pod uses a volume from now on: it is not detached.
    pub fn want(&self, volume: &str, uid: &str) {
        if self.users.lock().entry(volume.to_owned()).or_default().insert(uid.to_owned()) {
            self.changed.notify_one();
        }
    }

    /// A pod does not use a volume any more.
    pub fn release(&self, volume: &str, uid: &str) {
        let mut users = self.users.lock();
        if let Some(uids) = users.get_mut(volume)
            && uids.remove(uid)
            && uids.is_empty()
        {
            users.remove(volume);
            self.changed.notify_one();
        }
    }

    /// A pod is gone.
    pub fn release_pod(&self, uid: &str) {
        let volumes: Vec<String> = self.users.lock().keys().cloned().collect();
        volumes.iter().for_each(|volume| self.release(volume, uid));
    }

    /// `status.volumesInUse`.
    pub fn in_use(&self) -> Vec<String> {
        self.users.lock().keys().cloned().collect()
    }

    /// The Node as the API server has it, at a revision.
    pub fn observe(&self, version: u64, status: &NodeStatus) {
        self.seen.send_if_modified(|seen| {
            if version < seen.version {
                return false;
            }
            let in_use = status.volumes_in_use.iter().flatten().cloned().collect();
            let attached = status.volumes_attached.iter().flatten().map(|one| one.name.clone()).collect();
            let changed = seen.in_use != in_use || seen.attached != attached;
            *seen = Seen { version, in_use, attached };
            changed
        });
    }

    /// Waits until a volume is attached, and the control plane knows that it is in use: otherwise it may detach it.
    pub async fn attached(&self, volume: &str) -> Result<(), NotAttached> {
        let mut seen = self.seen.subscribe();
        let ready = |seen: &Seen| seen.in_use.contains(volume) && seen.attached.contains(volume);
        match tokio::time::timeout(LIMIT, seen.wait_for(ready)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(NotAttached { volume: volume.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn status(in_use: &[&str], attached: &[&str]) -> NodeStatus {
        let attached: Vec<_> = attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
        serde_json::from_value(json!({"volumesInUse": in_use, "volumesAttached": attached})).unwrap()
    }

    #[tokio::test]
    async fn a_volume_is_used_only_when_others_know() {
        let all = Attachments::new(Arc::default());
        all.want("v", "u");
        all.want("v", "w");
        assert_eq!(all.in_use(), ["v"]);
        let ready = all.attached("v");
        tokio::pin!(ready);
        for (version, status) in
            [(5, status(&[], &["v"])), (6, status(&["v"], &[])), (4, status(&["v"], &["v"]))]
        {
            all.observe(version, &status);
            assert!(futures::poll!(&mut ready).is_pending(), "{version}");
        }
        all.observe(7, &status(&["v"], &["v"]));
        ready.await.unwrap();
        all.release("v", "u");
        assert_eq!(all.in_use(), ["v"]);
        all.release_pod("w");
        assert!(all.in_use().is_empty());
    }
}
