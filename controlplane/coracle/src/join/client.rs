//! The requests of a server that joins: a challenge, the proof of the token, and the keys in return.

use super::error::JoinError;
use super::keys::KEYS;
use super::options::JoinOptions;
use super::wire::{ChallengeAnswer, JoinAnswer, JoinRequest, JoinedDatastore};
use super::{pin, version};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_apiserver::https_client::{ClientTls, HttpsClient, HttpsClientError};
use coracle_apiserver::non_resource::{CHALLENGE, JOIN};
use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use coracle_pki::cluster_keys::{ClusterKeys, SealedInfo, SealingKey};
use coracle_pki::server_token::{Claim, ServerToken};
use coracle_store::etcd::Etcd;
use coracle_store::{Datastore, Store as _, format};
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause between attempts, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// What a server gets that joins.
#[derive(Debug)]
pub(super) struct Keys {
    pub keys: ClusterKeys,
    pub sealing: SealingKey,
    pub datastore: JoinedDatastore,
}

/// Gets the keys of the cluster, and checks that this server has its datastore. Tries until the time is over while the server
/// does not answer.
pub(super) async fn fetch(
    options: &JoinOptions,
    token: &ServerToken,
    own: &Datastore,
) -> Result<Keys, JoinError> {
    let begun = Instant::now();
    let mut pause = PAUSES.0;
    loop {
        let error = match attempt(&options.server, token, own).await {
            Err(error) if error.is_temporary() => error,
            outcome => return outcome,
        };
        if begun.elapsed() + pause > options.timeout {
            return Err(JoinError::Late { seconds: options.timeout.as_secs(), source: Box::new(error) });
        }
        tracing::warn!(error = %causes::chain(&error), "cannot join yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn attempt(server: &http::Uri, token: &ServerToken, own: &Datastore) -> Result<Keys, JoinError> {
    let authority = pin::authority(server, token.ca_hash()).await?;
    let tls = ClientTls { authority: Some(authority), client: None };
    let url = server.to_string();
    let client = HttpsClient::new(url.trim_end_matches('/'), &tls);
    let client = client.map_err(|source| JoinError::Tls { server: url, source: Box::new(source) })?;
    let begun = post(&client, CHALLENGE, &serde_json::json!({})).await;
    let begun: ChallengeAnswer = begun.map_err(|error| match error {
        // Nobody needs a name for a challenge, but for a path that a server does not know.
        JoinError::Unauthorized { server, .. } => JoinError::NotSupported(server),
        other => other,
    })?;
    version::check(version::OWN, &begun.version)?;
    let (version, format) = (version::OWN, format::VERSION);
    let claim = Claim { challenge: &begun.challenge, ca_hash: token.ca_hash(), version, format };
    let request = JoinRequest {
        id: token.id().to_owned(),
        proof: token.prove(&claim),
        challenge: begun.challenge.clone(),
        version: version.to_owned(),
        format,
    };
    let answer: JoinAnswer = post(&client, JOIN, &request).await?;
    let sealing = token.unwrap_key(&answer.wrapped_key).map_err(JoinError::Wrapped)?;
    let envelope = STANDARD.decode(&answer.keys);
    let envelope = envelope.map_err(|_| JoinError::Encoding(client.url().to_owned()))?;
    let keys = sealing.open(&envelope)?;
    if !keys.ca_hashes().iter().any(|hash| hash == token.ca_hash()) {
        return Err(JoinError::Keys { found: keys.ca_hash(), wanted: token.ca_hash().to_owned() });
    }
    check_datastore(own, &answer.datastore, &envelope).await?;
    Ok(Keys { keys, sealing, datastore: answer.datastore })
}

/// Sends a body and reads the answer; what is no success is an error that says what the server says.
async fn post<T: DeserializeOwned>(
    client: &HttpsClient,
    path: &str,
    body: &impl Serialize,
) -> Result<T, JoinError> {
    let server = || client.url().to_owned();
    let unreadable = |source| JoinError::Answer { server: server(), source };
    let body = serde_json::to_value(body).map_err(unreadable)?;
    let sent = client.send(Method::POST, path, Some(&body)).await;
    let (code, answer) = sent.map_err(|error| match error {
        HttpsClientError::Connection { why, .. } => JoinError::Unreachable { server: server(), why },
        HttpsClientError::Timeout(_) => {
            JoinError::Unreachable { server: server(), why: "no answer in time".into() }
        }
        source => JoinError::Tls { server: server(), source: Box::new(source) },
    })?;
    let message = || crate::admin::refusal(&answer, "it does not say why").to_owned();
    match code {
        200..300 => serde_json::from_value(answer).map_err(unreadable),
        401 => Err(JoinError::Unauthorized { server: server(), message: message() }),
        404 | 405 => Err(JoinError::NotSupported(server())),
        429 | 500.. => Err(JoinError::Busy { server: server(), message: message() }),
        _ => Err(JoinError::Refused { server: server(), message: message() }),
    }
}

/// Fails if the datastore of this server is not that of the cluster. Only reads.
async fn check_datastore(
    own: &Datastore,
    cluster: &JoinedDatastore,
    envelope: &[u8],
) -> Result<(), JoinError> {
    let options = match (own, cluster) {
        (Datastore::ManagedEtcd, JoinedDatastore::Managed { .. }) => return Ok(()),
        (Datastore::Etcd(options), JoinedDatastore::Etcd { .. }) => options,
        _ => {
            let own = format!("--datastore {own}");
            return Err(JoinError::Datastore { cluster: cluster.to_string(), own });
        }
    };
    let failed = |error| JoinError::Store { datastore: own.to_string(), source: Box::new(error) };
    let store = Etcd::connect(options, &Supervisor::default()).await.map_err(failed)?;
    let found = store.get(KEYS).await.map_err(failed)?;
    let found = found.map(|found| SealedInfo::of(&found.value)).transpose()?;
    if found != Some(SealedInfo::of(envelope)?) {
        return Err(JoinError::OtherDatastore { cluster: cluster.to_string(), own: own.to_string() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn options(server: &str, seconds: u64) -> JoinOptions {
        JoinOptions { server: server.parse().unwrap(), token: None, timeout: Duration::from_secs(seconds) }
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_given_up() {
        let token = ServerToken::generate(&format!("sha256:{}", "ab".repeat(32))).unwrap();
        // Nobody listens on a port that was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let late = fetch(&options(&format!("https://{free}"), 1), &token, &Datastore::Embedded).await;
        let late = late.unwrap_err();
        let said = causes::chain(&late);
        assert!(matches!(late, JoinError::Late { seconds: 1, .. }), "{said}");
        assert!(said.contains(&free.to_string()) && said.contains("cannot be reached"), "{said}");
    }

    #[tokio::test]
    async fn kinds_of_datastores_must_be_the_same() {
        let etcd = JoinedDatastore::Etcd { endpoints: vec!["http://a:1".into()], prefix: "/x".into() };
        let managed = JoinedDatastore::Managed { members: vec!["https://a:2379".into()] };
        for (own, cluster) in [
            (Datastore::Embedded, &etcd),
            (Datastore::Embedded, &managed),
            (Datastore::ManagedEtcd, &etcd),
            ("etcd://a:1".parse().unwrap(), &managed),
        ] {
            let refused = check_datastore(&own, cluster, b"").await.unwrap_err();
            assert!(matches!(refused, JoinError::Datastore { .. }), "{own} {cluster}");
            assert!(refused.to_string().contains(&cluster.to_string()));
        }
        check_datastore(&Datastore::ManagedEtcd, &managed, b"").await.unwrap();
    }
}
