//! Whether the data directory belongs to the datastore that the options name. On another one, or one that was emptied, a server
//! would serve an empty cluster with the keys of this one, and agents end the pods of nodes that it does not know.

use crate::config::Config;
use crate::etcd_member::STATE_FILE;
use crate::join::{self, JoinError, JoinedDatastore};
use coracle_backup::restore::RESTORED;
use coracle_pki::cluster_keys::SEALING_KEY;
use coracle_store::{Datastore, Opening, Store, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// The data directory belongs to a cluster, and the datastore has none.
    #[error(
        "{sign} is of a server that belongs to a cluster, but {datastore} is empty: here a new cluster would begin, and nodes \
         would end their pods. \
         If --datastore or --etcd-prefix is not that of the cluster, correct it. \
         If the data is lost, restore a backup into a new data directory with `coracle restore`, or, with --datastore etcd, \
         run `coracle server --cluster-reset` on a server that still has the data of its member: docs/disaster-recovery.md. \
         To begin an empty cluster with the keys of this directory, start it once with --allow-empty-datastore"
    )]
    Empty {
        /// The file that says so.
        sign: PathBuf,
        /// The datastore, with its prefix.
        datastore: String,
    },
    /// The datastore cannot be opened.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// How it joined cannot be read.
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl From<StoreError> for DatastoreError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

/// Fails if the data directory belongs to another datastore, or to one of this machine that is gone.
pub(super) fn check(config: &Config) -> Result<(), DatastoreError> {
    let (datastore, dir) = (&config.datastore, config.data_dir.as_path());
    check_kind(datastore, dir)?;
    match config.allow_empty_datastore {
        true => Ok(()),
        false => check_local(datastore, dir),
    }
}

fn check_kind(datastore: &Datastore, dir: &Path) -> Result<(), DatastoreError> {
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

/// Fails if a server of a cluster has lost what it has of the datastore on this machine: before another is made in its place.
fn check_local(datastore: &Datastore, dir: &Path) -> Result<(), DatastoreError> {
    let is_there = match datastore {
        Datastore::Etcd(_) => true,
        Datastore::Embedded => has_files(&dir.join("store")),
        Datastore::ManagedEtcd => {
            let joins = matches!(
                join::joined(dir)?.map(|joined| joined.datastore),
                Some(JoinedDatastore::Managed { .. })
            );
            joins || dir.join(STATE_FILE).exists() || has_files(&dir.join("etcd"))
        }
    };
    let sign = dir.join("pki").join(SEALING_KEY);
    match is_there || !sign.exists() {
        true => Ok(()),
        false => Err(DatastoreError::Empty { sign, datastore: named(datastore, dir) }),
    }
}

/// Opens the store. One without a cluster is not opened, and not changed, for a data directory that belongs to a cluster.
/// `named_by` is the datastore as the options name it: that of `opening`, or a member of etcd that was started for it.
pub(super) async fn open(
    opening: Opening<'_>,
    named_by: &Datastore,
    allow_empty: bool,
) -> Result<Arc<dyn Store>, DatastoreError> {
    let sign = sign_of_cluster(named_by, opening.data_dir).filter(|_| named_by.is_shared());
    let Some(sign) = sign else { return Ok(opening.open().await?) };
    let datastore = named(named_by, opening.data_dir);
    match opening.open_filled().await? {
        Some(store) => Ok(store),
        None if allow_empty => {
            tracing::warn!(datastore, "an empty cluster begins: --allow-empty-datastore");
            Ok(opening.open().await?)
        }
        None => Err(DatastoreError::Empty { sign, datastore }),
    }
}

/// A file that a data directory has only if its server has had a cluster. A first start writes none of them before the keys of
/// the cluster are in the store, so that it can be repeated.
fn sign_of_cluster(datastore: &Datastore, dir: &Path) -> Option<PathBuf> {
    let mut signs = vec![dir.join("pki").join(SEALING_KEY), dir.join("pki").join(RESTORED)];
    // Written behind the keys.
    signs.push(dir.join("admin.kubeconfig"));
    if let Datastore::Etcd(_) = datastore {
        signs.push(dir.join(STATE_FILE));
    }
    let store = dir.join("store");
    signs.into_iter().find(|path| path.exists()).or_else(|| has_files(&store).then_some(store))
}

/// A datastore in a message.
fn named(datastore: &Datastore, dir: &Path) -> String {
    match datastore {
        Datastore::Embedded => format!("the embedded store in {}", dir.join("store").display()),
        Datastore::ManagedEtcd => format!("the etcd of this server in {}", dir.join("etcd").display()),
        Datastore::Etcd(options) => {
            let endpoints = options.endpoints.join(",");
            match options.prefix.as_str() {
                "" => format!("the etcd at {endpoints} (without --etcd-prefix)"),
                prefix => format!("the etcd at {endpoints} under --etcd-prefix {prefix}"),
            }
        }
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
        let with = |datastore: &str| check_kind(&datastore.parse().unwrap(), dir.path());
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
    #[test]
    fn what_a_server_has_lost_is_not_made_anew() {
        let with = |files: &[&str], datastore: &str| {
            let dir = tempfile::tempdir().unwrap();
            for file in files {
                let path = dir.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let managed =
                    r#"{"server":"https://10.0.0.1:6443","datastore":{"kind":"managed","members":[]}}"#;
                std::fs::write(path, if file.ends_with("joined.json") { managed } else { "" }).unwrap();
            }
            check_local(&datastore.parse().unwrap(), dir.path())
        };
        for datastore in ["embedded", "etcd", "https://10.0.1.1:2379"] {
            with(&[], datastore).unwrap();
            with(&["pki/ca.key", "pki/sealing.key.pending"], datastore).unwrap();
        }
        let lost = |files: &[&str], datastore: &str| {
            let refused = with(files, datastore).unwrap_err();
            assert!(matches!(&refused, DatastoreError::Empty { .. }), "{refused}");
            refused.to_string()
        };
        let said = lost(&["pki/sealing.key"], "embedded");
        assert!(said.contains("/store is empty"), "{said}");
        let said = lost(&["pki/sealing.key"], "etcd");
        assert!(said.contains("/etcd is empty") && said.contains("--cluster-reset"), "{said}");
        with(&["pki/sealing.key"], "https://10.0.1.1:2379").unwrap();
        with(&["pki/sealing.key", "store/0.jnl"], "embedded").unwrap();
        for there in [STATE_FILE, "etcd/member/wal/0.wal", "pki/joined.json"] {
            with(&["pki/sealing.key", there], "etcd").unwrap();
        }
    }

    #[test]
    fn a_directory_says_whether_its_server_has_had_a_cluster() {
        let external: Datastore = "https://10.0.1.1:2379".parse().unwrap();
        for (file, of_external, of_managed) in [
            ("pki/ca.key", false, false),
            ("pki/sealing.key.pending", false, false),
            ("pki/sealing.key", true, true),
            ("pki/restored.json", true, true),
            ("admin.kubeconfig", true, true),
            ("store/0.jnl", true, true),
            // A first start writes it before there is a cluster.
            (STATE_FILE, true, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
            assert_eq!(sign_of_cluster(&external, dir.path()).is_some(), of_external, "{file}");
            assert_eq!(sign_of_cluster(&Datastore::ManagedEtcd, dir.path()).is_some(), of_managed, "{file}");
        }
    }

    #[tokio::test]
    async fn an_empty_datastore_is_refused_with_its_name_and_the_ways_out() {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = coracle_cli::supervise::Supervisor::default();
        let recorder = coracle_trace::Recorder::OFF;
        // What is opened stands for the etcd that the options name.
        let other = tempfile::tempdir().unwrap();
        let opening = Opening {
            datastore: &Datastore::Embedded,
            data_dir: dir.path(),
            supervisor: &supervisor,
            recorder,
        };
        let options = coracle_store::EtcdOptions {
            endpoints: vec!["https://10.0.1.1:2379".to_owned()],
            prefix: "/two".to_owned(),
            ..Default::default()
        };
        let named_by = Datastore::Etcd(options);
        let first = Opening { data_dir: other.path(), ..opening };
        open(first, &named_by, false).await.unwrap();
        std::fs::write(dir.path().join("admin.kubeconfig"), "").unwrap();
        let refused = open(opening, &named_by, false).await.err().unwrap().to_string();
        for words in ["admin.kubeconfig", "https://10.0.1.1:2379", "--etcd-prefix /two", "coracle restore"] {
            assert!(refused.contains(words), "{words}: {refused}");
        }
        assert!(refused.contains("--allow-empty-datastore"), "{refused}");
        drop(open(opening, &named_by, true).await.unwrap());
        let again = open(opening, &named_by, false).await;
        assert!(matches!(again, Err(DatastoreError::Empty { .. })), "there is nothing but the format");
    }
}
