#![allow(clippy::unwrap_used)]
use super::super::claim::Claimer;
use super::*;
use crate::join::wire::CreateToken;
use coracle_pki::Pki;
use coracle_pki::cluster_keys::ClusterKeys;
use coracle_pki::server_token::ServerToken;
use coracle_store::{Durability, Write, open};
use std::time::Duration;
use tempfile::TempDir;

struct Cluster {
    _store: TempDir,
    pki: TempDir,
    joining: Joining,
}

/// A server on a store that stands for a shared one.
async fn cluster(datastore: &str) -> Cluster {
    let (dir, pki) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keys = Arc::new(Pki::ensure(pki.path(), &[], Duration::from_secs(3600)).unwrap());
    let store = open(&Datastore::Embedded, dir.path()).await.unwrap();
    let sealing = Claimer { store: &*store, dir: pki.path(), encryption: None }.publish().await.unwrap();
    let parts = JoinParts { store, datastore: datastore.parse().unwrap(), pki: keys, sealing };
    Cluster { _store: dir, pki, joining: Joining::new(parts) }
}

impl Cluster {
    async fn token(&self, ttl_seconds: i64) -> ServerToken {
        let wanted = CreateToken { ttl_seconds, description: "for b".into() };
        let (sealing, _) = self.joining.ready().unwrap();
        let made = self.joining.tokens.create(&wanted, sealing, &self.joining.ca_hash()).await.unwrap();
        ServerToken::parse(&made.token).unwrap()
    }

    fn request(&self, token: &ServerToken, version: &str, format: u32) -> JoinRequest {
        let challenge = self.joining.challenge().unwrap().challenge;
        let claim = Claim { challenge: &challenge, ca_hash: token.ca_hash(), version, format };
        let (id, proof) = (token.id().to_owned(), token.prove(&claim));
        JoinRequest { id, proof, challenge, version: version.to_owned(), format }
    }

    async fn refused(&self, request: &JoinRequest) -> (u16, String) {
        let error = self.joining.join(request).await.unwrap_err();
        (error.code, error.message)
    }
}

const ETCD: &str = "etcd://127.0.0.1:2379";

#[tokio::test]
async fn tokens_count_until_a_rotation_of_the_ca_is_finished() {
    let cluster = cluster(ETCD).await;
    let (token, dir) = (cluster.token(60).await, cluster.pki.path());
    let step = async |change: fn(ClusterKeys) -> ClusterKeys| {
        change(ClusterKeys::collect(dir).unwrap()).write_ca(dir).unwrap();
        cluster.joining.parts.pki.reload_authority().unwrap();
        let store = &*cluster.joining.parts.store;
        Claimer { store, dir, encryption: None }.publish().await.unwrap();
    };
    let join = async || cluster.joining.join(&cluster.request(&token, version::OWN, 1)).await;
    step(|keys| keys.prepare("coracle-ca-2").unwrap()).await;
    join().await.unwrap();
    step(|keys| keys.switch().unwrap()).await;
    join().await.unwrap();
    let new = cluster.token(60).await;
    assert_eq!(new.ca_hash(), ClusterKeys::collect(dir).unwrap().ca_hash(), "it is for the new CA");
    step(|keys| keys.finish().unwrap()).await;
    assert_eq!(join().await.unwrap_err().code, 401);
    cluster.joining.join(&cluster.request(&new, version::OWN, 1)).await.unwrap();
}

#[tokio::test]
async fn who_has_a_token_gets_the_keys() {
    let cluster = cluster(ETCD).await;
    let token = cluster.token(60).await;
    let answer = cluster.joining.join(&cluster.request(&token, version::OWN, 1)).await.unwrap();
    let sealing = token.unwrap_key(&answer.wrapped_key).unwrap();
    let keys = sealing.open(&STANDARD.decode(&answer.keys).unwrap()).unwrap();
    assert_eq!(keys, ClusterKeys::collect(cluster.pki.path()).unwrap());
    let endpoints = vec!["http://127.0.0.1:2379".to_owned()];
    assert_eq!(answer.datastore, JoinedDatastore::Etcd { endpoints, prefix: String::new() });
    let listed = cluster.joining.tokens.list().await.unwrap().items;
    assert_eq!((listed.len(), listed[0].id.as_str(), &*listed[0].description), (1, token.id(), "for b"));
    let text = serde_json::to_string(&listed).unwrap();
    assert!(!text.contains("verifier") && !text.contains("wrapped"), "{text}");
}

#[tokio::test]
async fn who_has_none_gets_nothing_and_learns_nothing() {
    let cluster = cluster(ETCD).await;
    let token = cluster.token(0).await;
    let good = || cluster.request(&token, version::OWN, 1);
    let wrong = (401, "server token is wrong or was deleted, or the proof came too late".to_owned());
    let stranger = ServerToken::generate(token.ca_hash()).unwrap();
    assert_eq!(cluster.refused(&cluster.request(&stranger, version::OWN, 1)).await, wrong);
    for id in ["", "../format", "abcdefgh"] {
        assert_eq!(cluster.refused(&JoinRequest { id: id.into(), ..good() }).await, wrong, "{id}");
    }
    // The right id with another secret, another challenge, another version than was proven.
    let forged = JoinRequest { proof: cluster.request(&stranger, version::OWN, 1).proof, ..good() };
    assert_eq!(cluster.refused(&forged).await, wrong);
    assert_eq!(cluster.refused(&JoinRequest { challenge: "AAAA".into(), ..good() }).await, wrong);
    let other = cluster.joining.challenge().unwrap().challenge;
    assert_eq!(cluster.refused(&JoinRequest { challenge: other, ..good() }).await, wrong);
    assert_eq!(cluster.refused(&JoinRequest { version: "9.9.9".into(), ..good() }).await, wrong);
    cluster.joining.join(&good()).await.unwrap();
    cluster.joining.tokens.delete(token.id()).await.unwrap();
    assert_eq!(cluster.refused(&good()).await, wrong);
    assert_eq!(cluster.joining.tokens.delete(token.id()).await.unwrap_err().code, 404);
}

#[tokio::test]
async fn tokens_end_and_say_so_to_their_owner_only() {
    let cluster = cluster(ETCD).await;
    let token = cluster.token(1).await;
    let record = cluster.joining.tokens.find(token.id()).await.unwrap().unwrap();
    let ended = record.expires.unwrap();
    while Timestamp::now() < ended {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (code, said) = cluster.refused(&cluster.request(&token, version::OWN, 1)).await;
    assert_eq!((code, said), (403, format!("server token {} expired at {ended}", token.id())));
    let mut forged = cluster.request(&token, version::OWN, 1);
    forged.proof = STANDARD.encode([0; 32]);
    assert_eq!(cluster.refused(&forged).await.0, 401);
}

#[tokio::test]
async fn versions_must_fit() {
    let cluster = cluster(ETCD).await;
    let token = cluster.token(60).await;
    let (code, said) = cluster.refused(&cluster.request(&token, "0.0.9", 1)).await;
    assert!(code == 409 && said.contains("0.0.9") && said.contains(version::OWN), "{said}");
    let (code, said) = cluster.refused(&cluster.request(&token, "99.0.0", 1)).await;
    assert!(code == 409 && said.contains("upgrade the cluster first"), "{said}");
    let (code, said) = cluster.refused(&cluster.request(&token, version::OWN, 0)).await;
    assert!(code == 409 && said.contains("reads formats of the store up to 0"), "{said}");
}

#[tokio::test]
async fn an_embedded_store_is_for_one_server() {
    let cluster = cluster("embedded").await;
    let error = cluster.joining.challenge().unwrap_err();
    assert!(error.code == 409 && error.message.contains("embedded datastore"), "{}", error.message);
}

#[tokio::test]
async fn keys_that_are_not_those_of_this_server_are_not_handed_out() {
    let cluster = cluster(ETCD).await;
    let token = cluster.token(60).await;
    let store = &cluster.joining.parts.store;
    let stored = store.get(KEYS).await.unwrap().unwrap();
    let keys = ClusterKeys::collect(cluster.pki.path()).unwrap();
    let other = SealingKey::generate().unwrap().seal(&keys).unwrap();
    let write = Write {
        key: KEYS.to_owned(),
        expect: stored.modified,
        value: Some(other.into()),
        durability: Durability::Sync,
        fence: None,
    };
    store.write(write).await.unwrap();
    let (code, said) = cluster.refused(&cluster.request(&token, version::OWN, 1)).await;
    assert!(code == 409 && said.contains("not those of this server"), "{said}");
}

#[tokio::test]
async fn what_a_token_cannot_be_is_refused() {
    let cluster = cluster(ETCD).await;
    let (sealing, _) = cluster.joining.ready().unwrap();
    for (ttl_seconds, description) in [(-1, String::new()), (i64::MAX, String::new()), (1, "x".repeat(2000))]
    {
        let wanted = CreateToken { ttl_seconds, description };
        let refused = cluster.joining.tokens.create(&wanted, sealing, "sha256:00").await.unwrap_err();
        assert_eq!(refused.code, 400);
    }
    assert!(cluster.joining.tokens.list().await.unwrap().items.is_empty());
}
