//! Allocates user id ranges for pods with a user namespace. Ranges are unique and survive restarts of the agent.

use coracle_proto::cri;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::config::NodeConfig;
use coracle_host_dir::HostDir;

/// Ids of one pod: as many as any image uses.
const LENGTH: u32 = 65_536;
/// The first range is the host's own.
const RANGES: std::ops::Range<u32> = 1..65_534;
const FILE: &str = "user-range";

/// Why no range was allocated.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// All are in use.
    #[error("no range of user ids is left on this node")]
    Exhausted,
    /// The range could not be recorded.
    #[error("recording the pod's user ids in {}", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// The node's ranges.
pub struct Users {
    taken: Mutex<BTreeMap<String, u32>>,
}

impl Users {
    /// Loads the ranges of existing pods.
    pub fn load(config: &NodeConfig) -> Self {
        let read = |uid: String| {
            let text = fs::read_to_string(config.pod_dir(&uid).join(FILE)).ok()?;
            Some((uid, text.trim().parse().ok()?))
        };
        Self { taken: Mutex::new(config.uids_on_disk().into_iter().filter_map(read).collect()) }
    }

    /// The pod's mapping; the same every time.
    pub fn of(&self, config: &NodeConfig, uid: &str) -> Result<cri::UserNamespace, UsersError> {
        let mut taken = self.taken.lock();
        if let Some(range) = taken.get(uid) {
            return Ok(namespace(*range));
        }
        let used: std::collections::BTreeSet<u32> = taken.values().copied().collect();
        let range = RANGES.into_iter().find(|range| !used.contains(range)).ok_or(UsersError::Exhausted)?;
        let path = config.pod_dir(uid).join(FILE);
        let write =
            || HostDir::create(&config.pod_dir(uid))?.rewrite(FILE, range.to_string().as_bytes(), 0o600);
        write().map_err(|source| UsersError::Record { path: path.clone(), source })?;
        taken.insert(uid.to_owned(), range);
        Ok(namespace(range))
    }

    /// The pod is gone, its record too.
    pub fn release(&self, uid: &str) {
        self.taken.lock().remove(uid);
    }
}

fn namespace(range: u32) -> cri::UserNamespace {
    let mapping = cri::IdMapping { host_id: range * LENGTH, container_id: 0, length: LENGTH };
    cri::UserNamespace { mode: cri::NamespaceMode::Pod as i32, uids: vec![mapping], gids: vec![mapping] }
}

/// Volumes keep the pod's own ids on disk: they are mounted with its mapping.
pub fn map_mounts(mounts: &mut [cri::Mount], userns: &cri::UserNamespace) {
    for mount in mounts.iter_mut().filter(|mount| mount.image.is_none()) {
        mount.uid_mappings = userns.uids.clone();
        mount.gid_mappings = userns.gids.clone();
    }
}
