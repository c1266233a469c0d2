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
    /// What is wrong.
    pub(super) problems: Vec<String>,
}

/// Asks a server, and then the other servers that it knows.
pub(super) async fn collect(remote: &HttpsClient) -> Result<ClusterStatus, CollectError> {
    let own = server_status(remote).await?;
    let version = get(remote, "/version").await?;
    let selector = format!("{}%3D{SERVER}", IDENTITY.replace('/', "%2F"));
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let identities = get(remote, &format!("{leases}?labelSelector={selector}")).await?;
    let mut cluster = ClusterStatus {
        kubernetes_version: version.get("gitVersion").and_then(Value::as_str).unwrap_or_default().to_owned(),
        datastore: own.datastore.clone(),
        shared: own.shared,
        store: own.store.clone(),
        last_backup: own.last_backup.clone(),
        problems: own.problems.clone(),
        ..ClusterStatus::default()
    };
    for lease in LeaseList::of(&identities).items().to_values() {
        cluster.servers.push(server(remote, &own, &lease, &mut cluster.problems).await);
    }
    cluster.endpoints = endpoints(remote).await?;
    if cluster.shared {
        for name in ELECTIONS {
            cluster.elections.push(election(remote, &leases, name).await?);
        }
    }
    Ok(cluster)
}

/// A server by its Lease. Its problems become those of the cluster.
async fn server(
    remote: &HttpsClient,
    asked: &ServerStatus,
    lease: &Value,
    problems: &mut Vec<String>,
) -> ServerRow {
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
        (false, true) => return row,
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
    row
}

async fn election(remote: &HttpsClient, leases: &str, name: &str) -> Result<Election, CollectError> {
    let path = format!("{leases}/{name}");
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

async fn endpoints(remote: &HttpsClient) -> Result<Vec<String>, CollectError> {
    let found = match get(remote, "/api/v1/namespaces/default/endpoints/kubernetes").await {
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
