//! Whether the data directory belongs to the datastore that the options name. On another one a server would serve an empty cluster
//! with the keys of this one, and agents end the pods of nodes that it does not know.

use crate::etcd_member::STATE_FILE;
use crate::join::{self, JoinError};
use coracle_store::Datastore;
use std::path::{Path, PathBuf};

/// Why the server does not use the datastore.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatastoreError {
    /// The directory has a member of etcd, and the server is to use its embedded store.
    #[error(
        "{0} belongs to a server with a member of etcd: start it with --datastore etcd. To go on with an embedded store, as after `coracle store copy`, move that file and the directory etcd away first"
    )]
    Member(PathBuf),
    /// The server joined a cluster, and is to use an embedded store that is not there.
    #[error(
        "this server has joined a cluster that uses {0}: start it with the same --datastore as when it joined"
    )]
    Joined(String),
    /// The directory has an embedded store, and the server is to run a member of etcd.
    #[error(
        "{0} is the embedded store of this server, and --datastore etcd would begin an empty cluster: see \"From one server with its own store\" in docs/managed-etcd.md, or move that directory away"
    )]
    Embedded(PathBuf),
    /// How it joined cannot be read.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Fails if the data directory belongs to another datastore.
pub(super) fn check(datastore: &Datastore, dir: &Path) -> Result<(), DatastoreError> {
    let (store, member) = (dir.join("store"), dir.join(STATE_FILE));
    match datastore {
        Datastore::Embedded if member.exists() => Err(DatastoreError::Member(member)),
        Datastore::Embedded if !has_files(&store) => match join::joined(dir)? {
            Some(joined) => Err(DatastoreError::Joined(joined.datastore.to_string())),
            None => Ok(()),
        },
        Datastore::ManagedEtcd if has_files(&store) && !member.exists() => {
            Err(DatastoreError::Embedded(store))
        }
        _ => Ok(()),
    }
}

fn has_files(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_is_not_used_with_another_datastore() {
        let dir = tempfile::tempdir().unwrap();
        let with = |datastore: &str| check(&datastore.parse().unwrap(), dir.path());
        with("embedded").unwrap();
        with("etcd").unwrap();

        // A server that joined, and has no store of its own.
        let joined = r#"{"server":"https://10.0.0.1:6443","datastore":{"kind":"managed","members":["https://10.0.0.1:2379"]}}"#;
        std::fs::create_dir(dir.path().join("pki")).unwrap();
        std::fs::write(dir.path().join("pki/joined.json"), joined).unwrap();
        let refused = with("embedded").unwrap_err().to_string();
        assert!(refused.contains("10.0.0.1:2379") && refused.contains("--datastore"), "{refused}");
        with("etcd").unwrap();

        // An embedded store that somebody copied there.
        std::fs::create_dir(dir.path().join("store")).unwrap();
        std::fs::write(dir.path().join("store/0.jnl"), "").unwrap();
        with("embedded").unwrap();
        assert!(matches!(with("etcd").unwrap_err(), DatastoreError::Embedded(_)));
        with("https://10.0.1.1:2379").unwrap();

        // A member of etcd, whatever else is there.
        std::fs::write(dir.path().join(STATE_FILE), "{}").unwrap();
        assert!(matches!(with("embedded").unwrap_err(), DatastoreError::Member(_)));
        with("etcd").unwrap();
    }
}
