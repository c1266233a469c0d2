//! The other servers of a cluster, for commands that have to ask all of them.

use crate::admin::ask;
use crate::operations::STATUS;
use crate::operations::status::ServerStatus;
use anyhow::bail;
use coracle_apiserver::https_client::HttpsClient;
use coracle_client::identity_lease::{IDENTITY, NAMESPACE, PEER_ADDRESS, SERVER};
use coracle_fields::Schema as _;
use coracle_fields::coordination::v1::{Lease, LeaseList};
use http::Method;
use std::time::Duration;

/// How long after its last renewal a server counts as running, in seconds.
const RUNNING: i64 = 60;
/// How long a server may take to answer whose last renewal seems to be older.
const ANSWER: Duration = Duration::from_secs(2);

/// The addresses of the other servers that run.
pub(crate) async fn addresses(remote: &HttpsClient) -> anyhow::Result<Vec<String>> {
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
        if name == own.name {
            continue;
        }
        let address = lease.metadata().annotations().key(PEER_ADDRESS).text();
        // The clocks of that server and of this machine may differ: a server that answers runs.
        let is_old = renewed.is_ok_and(|renewed| renewed.as_second() + RUNNING < now);
        if is_old && !answers(remote, address).await {
            continue;
        }
        if address.is_empty() {
            bail!("server {name} runs, and its address is not known");
        }
        found.push(address.to_owned());
    }
    Ok(found)
}

/// Whether something answers at the address of a server.
async fn answers(remote: &HttpsClient, address: &str) -> bool {
    if address.is_empty() {
        return false;
    }
    let there = remote.at(&format!("https://{address}"));
    let asked = there.send(Method::GET, "/version", None);
    tokio::time::timeout(ANSWER, asked).await.is_ok_and(|answer| answer.is_ok())
}
