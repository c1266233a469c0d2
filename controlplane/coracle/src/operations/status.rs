//! The status of a server: its store, certificates, last backup, and what is wrong.

use crate::certificate::files::{self, FileCertificate};
use coracle_backup::last;
use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use coracle_store::pause::PausableStore;
use coracle_store::{KeyValue, Store, StoreError, StoreStatus};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::error::Elapsed;

/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The last backup, as the program that made it recorded it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastBackup {
    /// When it was made or tried, RFC 3339.
    pub time: String,
    /// The revision of the store in it.
    pub revision: u64,
    /// Where it is.
    pub location: String,
    /// Its size.
    pub bytes: u64,
    /// Why it failed; empty or missing if it did not.
    pub error: Option<String>,
}

/// The status of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerStatus {
    /// `ServerStatus`.
    pub kind: String,
    /// `coracle/v1`.
    pub api_version: String,
    /// The name of the server's identity Lease.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The store as `--datastore` names it.
    pub datastore: String,
    /// Whether several servers can use the store.
    pub shared: bool,
    /// The state of the store; missing if it does not answer.
    pub store: Option<StoreStatus>,
    /// Whether writes are paused, because the store is copied.
    pub writes_paused: bool,
    /// The last backup; missing if there was none.
    pub last_backup: Option<LastBackup>,
    /// The last backup that succeeded; missing if there was none.
    pub last_good_backup: Option<LastBackup>,
    /// The certificates in the server's directory.
    pub certificates: Vec<FileCertificate>,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// Where the status comes from.
pub struct StatusSource {
    /// The name of the server's identity Lease.
    pub name: String,
    /// The store as `--datastore` names it.
    pub datastore: String,
    /// Whether several servers can use the store.
    pub shared: bool,
    /// The store.
    pub store: Arc<PausableStore>,
    /// The directory of certificates and keys.
    pub pki: PathBuf,
    /// Knows tasks that keep failing.
    pub supervisor: Supervisor,
}

impl StatusSource {
    /// The status now. What cannot be found out is a problem.
    pub async fn read(&self) -> ServerStatus {
        let mut problems = Vec::new();
        // What fails takes as long for each of them.
        let (status, health, last, good) = tokio::join!(
            tokio::time::timeout(PATIENCE, self.store.status()),
            tokio::time::timeout(PATIENCE, self.store.health()),
            tokio::time::timeout(PATIENCE, self.store.get(last::KEY)),
            tokio::time::timeout(PATIENCE, self.store.get(last::GOOD)),
        );
        let store = match status {
            Ok(Ok(status)) => Some(status),
            Ok(Err(error)) => {
                problems.push(format!("the store does not answer: {}", causes::chain(&error)));
                None
            }
            Err(_) => {
                problems.push(format!("the store does not answer within {} s", PATIENCE.as_secs()));
                None
            }
        };
        match health {
            Ok(Ok(())) => {}
            Ok(Err(why)) => problems.push(why.to_string()),
            Err(_) => problems.push("the health of the store is not known: it does not answer".to_owned()),
        }
        let (mut last_backup, mut last_good_backup) = (None, None);
        if store.is_some() {
            last_backup = backup(last, &mut problems);
            let good = backup(good, &mut problems);
            // Servers of earlier versions recorded only the last one.
            let same = || last_backup.clone().filter(|last| last.error.as_deref().unwrap_or("").is_empty());
            last_good_backup = good.or_else(same);
        }
        let (certificates, unreadable) = self.certificates().await;
        problems.extend(unreadable);
        let dead = self.supervisor.dead().into_iter();
        problems.extend(dead.map(|(task, why)| format!("task {task} keeps failing: {why}")));
        ServerStatus {
            kind: "ServerStatus".to_owned(),
            api_version: "coracle/v1".to_owned(),
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            datastore: self.datastore.clone(),
            shared: self.shared,
            store,
            writes_paused: self.store.is_paused().await,
            last_backup,
            last_good_backup,
            certificates,
            problems,
        }
    }

    async fn certificates(&self) -> (Vec<FileCertificate>, Vec<String>) {
        let pki = self.pki.clone();
        let listed = tokio::task::spawn_blocking(move || files::list(&pki)).await;
        match listed {
            Ok(Ok(listed)) => {
                let unreadable = listed.unreadable.iter().map(|error| causes::chain(error));
                (listed.certificates, unreadable.collect())
            }
            Ok(Err(error)) => (Vec::new(), vec![causes::chain(&error)]),
            Err(error) => (Vec::new(), vec![causes::chain(&error)]),
        }
    }
}

/// A recorded backup.
fn backup(
    found: Result<Result<Option<KeyValue>, StoreError>, Elapsed>,
    problems: &mut Vec<String>,
) -> Option<LastBackup> {
    let found = match found {
        Ok(Ok(found)) => found?,
        Ok(Err(error)) => {
            problems.push(format!("the last backup is not known: {}", causes::chain(&error)));
            return None;
        }
        Err(_) => return None,
    };
    match serde_json::from_slice(&found.value) {
        Ok(backup) => Some(backup),
        Err(error) => {
            problems.push(format!("the record of the last backup cannot be read: {error}"));
            None
        }
    }
}
