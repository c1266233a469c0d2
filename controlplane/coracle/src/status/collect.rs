//! Asks the servers of a cluster for their status.

use crate::admin::refusal;
use crate::certificate::files::FileCertificate;
use crate::operations;
use crate::operations::status::{LastBackup, ServerStatus};
use coracle_apiserver::https_client::{HttpsClient, HttpsClientError};
use coracle_client::identity_lease::{IDENTITY, NAMESPACE, PEER_ADDRESS, SERVER};
use coracle_fields::Schema as _;
use coracle_fields::coordination::v1::{Lease, LeaseList};
use coracle_fields::core::v1::Endpoints;
use coracle_store::StoreStatus;
use http::Method;
use serde::Serialize;
use serde_json::Value;

/// The elections of control loops.
const ELECTIONS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    #[error("the API server does not answer: {0}")]
    Away(HttpsClientError),
    #[error("{url}{path}: {code} {why}")]
    Refused { url: String, path: String, code: u16, why: String },
    #[error("{url}{path}: the answer cannot be read: {why}")]
    Unreadable { url: String, path: &'static str, why: serde_json::Error },
}

/// A server.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerRow {
    /// The name of its identity Lease.
    pub(super) name: String,
    /// Where other servers reach it.
    pub(super) address: String,
    /// When its Lease was renewed.
    pub(super) renewed: String,
    /// How long that counts, in seconds; 0 if the Lease is not renewed, because the store is not shared.
    pub(super) holds: i64,
    /// Its version; empty if it did not answer.
    pub(super) version: String,
    /// Whether writes are paused.
    pub(super) writes_paused: bool,
    /// Its certificates.
    pub(super) certificates: Vec<FileCertificate>,
    /// Why it did not answer.
    pub(super) error: Option<String>,
}

/// An election.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Election {
    pub(super) name: String,
    /// Who leads; empty if nobody does.
    pub(super) leader: String,
    pub(super) renewed: String,
    pub(super) holds: i64,
}

/// The status of a cluster.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterStatus {
    /// The version of the API.
    pub(super) kubernetes_version: String,
    pub(super) servers: Vec<ServerRow>,
    /// Addresses of `default/kubernetes`.
    pub(super) endpoints: Vec<String>,
    pub(super) datastore: String,
    pub(super) shared: bool,
    pub(super) store: Option<StoreStatus>,
    pub(super) elections: Vec<Election>,
    /// The last backup; `None` if there was none.
    pub(super) last_backup: Option<LastBackup>,
    /// The last backup that succeeded; `None` if there was none.
    pub(super) last_good_backup: Option<LastBackup>,
    /// What is wrong.
    pub(super) problems: Vec<String>,
}

/// Asks a server, and then the other servers that it knows. What the API does not answer is a problem, and the rest is shown: a
/// cluster without quorum has to be looked at, too.
pub(super) async fn collect(remote: &HttpsClient) -> Result<ClusterStatus, CollectError> {
    let own = server_status(remote).await?;
    let selector = format!("{}%3D{SERVER}", IDENTITY.replace('/', "%2F"));
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    // Without its store the server has what it saw last.
    let any = if own.store.is_some() { "" } else { "resourceVersion=0" };
    let identities = format!("{leases}?labelSelector={selector}&{any}");
    let shared = own.shared;
    let elections = async {
        let all = ELECTIONS.iter().filter(|_| shared).map(|name| election(remote, &leases, name, any));
        futures::future::try_join_all(all).await
    };
    let (version, identities, endpoints, elections) =
        tokio::join!(get(remote, "/version"), get(remote, &identities), endpoints(remote, any), elections);
    let mut cluster = ClusterStatus {
        datastore: own.datastore.clone(),
        shared,
        store: own.store.clone(),
        last_backup: own.last_backup.clone(),
        last_good_backup: own.last_good_backup.clone(),
        problems: own.problems.clone(),
        ..ClusterStatus::default()
    };
    let version = cluster.known(version);
    let version = version.as_ref().and_then(|version| version.get("gitVersion")?.as_str());
    cluster.kubernetes_version = version.unwrap_or_default().to_owned();
    cluster.endpoints = cluster.known(endpoints).unwrap_or_default();
    cluster.elections = cluster.known(elections).unwrap_or_default();
    let leases = match cluster.known(identities) {
        Some(identities) => LeaseList::of(&identities).items().to_values(),
        None => Vec::new(),
    };
    if leases.is_empty() {
        cluster.servers.push(asked(remote, &own));
    }
    let asked = leases.iter().map(|lease| server(remote, &own, lease));
    for (row, problems) in futures::future::join_all(asked).await {
        cluster.servers.push(row);
        cluster.problems.extend(problems);
    }
    Ok(cluster)
}

impl ClusterStatus {
    /// What was answered; otherwise it is a problem, once for all that fail alike.
    fn known<T>(&mut self, answer: Result<T, CollectError>) -> Option<T> {
        let error = match answer {
            Ok(answer) => return Some(answer),
            Err(CollectError::Refused { code, why, .. }) => format!("the API answers {code}: {why}"),
            Err(error) => error.to_string(),
        };
        if !self.problems.contains(&error) {
            self.problems.push(error);
        }
        None
    }
}

/// The server that was asked, whose Lease cannot be read.
fn asked(remote: &HttpsClient, own: &ServerStatus) -> ServerRow {
    ServerRow {
        name: own.name.clone(),
        address: remote.url().trim_start_matches("https://").to_owned(),
        version: own.version.clone(),
        writes_paused: own.writes_paused,
        certificates: own.certificates.clone(),
        ..ServerRow::default()
    }
}

/// A server by its Lease, and its problems.
async fn server(remote: &HttpsClient, asked: &ServerStatus, lease: &Value) -> (ServerRow, Vec<String>) {
    let mut problems = Vec::new();
    let lease = Lease::of(lease);
    let mut row = ServerRow {
        name: lease.metadata().name().text().to_owned(),
        address: lease.metadata().annotations().key(PEER_ADDRESS).text().to_owned(),
        renewed: lease.spec().renew_time().text().to_owned(),
        holds: lease.spec().lease_duration_seconds().or(0),
        ..ServerRow::default()
    };
    let status = match (row.name == asked.name, row.address.is_empty()) {
        (true, _) => Ok(asked.clone()),
        (false, true) => return (row, problems),
        (false, false) => server_status(&remote.at(&format!("https://{}", row.address))).await,
    };
    match status {
        Ok(status) => {
            if row.name != asked.name {
                // What is wrong with the store is said by the one that was asked first.
                let own = status.problems.iter().filter(|problem| !asked.problems.contains(problem));
                problems.extend(own.map(|problem| format!("server {}: {problem}", row.address)));
            }
            row.version = status.version;
            row.writes_paused = status.writes_paused;
            row.certificates = status.certificates;
        }
        Err(error) => row.error = Some(error.to_string()),
    }
    (row, problems)
}

async fn election(
    remote: &HttpsClient,
    leases: &str,
    name: &str,
    any: &str,
) -> Result<Election, CollectError> {
    let path = format!("{leases}/{name}?{any}");
    let lease = match get(remote, &path).await {
        Err(CollectError::Refused { code: 404, .. }) => {
            return Ok(Election { name: name.to_owned(), ..Election::default() });
        }
        other => other?,
    };
    let spec = Lease::of(&lease).spec();
    Ok(Election {
        name: name.to_owned(),
        leader: spec.holder_identity().text().to_owned(),
        renewed: spec.renew_time().text().to_owned(),
        holds: spec.lease_duration_seconds().or(0),
    })
}

async fn endpoints(remote: &HttpsClient, any: &str) -> Result<Vec<String>, CollectError> {
    let found = match get(remote, &format!("/api/v1/namespaces/default/endpoints/kubernetes?{any}")).await {
        Err(CollectError::Refused { code: 404, .. }) => return Ok(Vec::new()),
        other => other?,
    };
    let mut all = Vec::new();
    for subset in Endpoints::of(&found).subsets().items() {
        for address in subset.addresses().items() {
            all.push(address.ip().text().to_owned());
        }
    }
    Ok(all)
}

/// What a server says about itself.
async fn server_status(remote: &HttpsClient) -> Result<ServerStatus, CollectError> {
    let value = get(remote, operations::STATUS).await?;
    serde_json::from_value(value).map_err(|why| CollectError::Unreadable {
        url: remote.url().to_owned(),
        path: operations::STATUS,
        why,
    })
}

async fn get(remote: &HttpsClient, path: &str) -> Result<Value, CollectError> {
    let (code, answer) = remote.send(Method::GET, path, None).await.map_err(CollectError::Away)?;
    if code != 200 {
        let why = refusal(&answer, "the server refused").to_owned();
        return Err(CollectError::Refused { url: remote.url().to_owned(), path: path.to_owned(), code, why });
    }
    Ok(answer)
}
