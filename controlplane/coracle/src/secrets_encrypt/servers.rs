//! Whether all servers of a cluster have the same keys.

use super::status;
use crate::operations::encryption::EncryptionStatus;
use crate::other_servers;
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::HttpsClient;
use coracle_client::identity_lease::{IDENTITY, NAMESPACE, PEER_ADDRESS, SERVER};
use coracle_fields::Schema as _;
use coracle_fields::coordination::v1::{Lease, LeaseList};
use http::Method;
use std::time::{Duration, Instant};

/// How long after its last renewal a server counts as running, in seconds.
const RUNNING: i64 = 60;
/// How long all servers may take to have a configuration.
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// The addresses of the other servers that run.
pub(super) async fn others(remote: &HttpsClient) -> anyhow::Result<Vec<String>> {
    let own: ServerStatus = serde_json::from_value(ask(remote, Method::GET, STATUS, None).await?)?;
    let selector = format!("{}%3D{SERVER}", IDENTITY.replace('/', "%2F"));
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases?labelSelector={selector}");
    let list = ask(remote, Method::GET, &path, None).await?;
    let now = jiff::Timestamp::now().as_second();
    let mut found = Vec::new();
    for lease in LeaseList::of(&list).items().to_values() {
        let lease = Lease::of(&lease);
        let name = lease.metadata().name().text();
        let renewed = lease.spec().renew_time().text().parse::<jiff::Timestamp>();
        if name == own.name || renewed.is_ok_and(|renewed| renewed.as_second() + RUNNING < now) {
            continue;
        }
        let address = lease.metadata().annotations().key(PEER_ADDRESS).text();
        if address.is_empty() {
            bail!("server {name} runs, and its address is not known");
        }
        found.push(address.to_owned());
    }
    Ok(found)
}

/// Fails unless every other server that runs fulfils a condition; says which one does not.
pub(super) async fn all(
    remote: &HttpsClient,
    wanted: &str,
    holds: impl Fn(&EncryptionStatus) -> bool,
) -> anyhow::Result<()> {
    for address in other_servers::addresses(remote).await? {
        let other = status(&remote.at(&format!("https://{address}"))).await;
        let other = other.with_context(|| format!("server {address} cannot be asked"))?;
        if !holds(&other) {
            let why = other.problem.map_or_else(String::new, |problem| format!(" ({problem})"));
            bail!("server {address} {wanted}{why}");
        }
    }
    Ok(())
}

/// The same, with time: servers get a configuration that another one has published within moments.
pub(super) async fn eventually(
    remote: &HttpsClient,
    wanted: &str,
    holds: impl Fn(&EncryptionStatus) -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        match all(remote, wanted, &holds).await {
            Err(error) if begun.elapsed() >= DEADLINE => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
            Ok(()) => return Ok(()),
        }
    }
}
