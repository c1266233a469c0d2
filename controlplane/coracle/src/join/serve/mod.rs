//! Answers of a server to others: joining, and tokens of servers.

// How often servers may try.
mod limit;
// Tokens in the store.
mod tokens;

use super::keys::KEYS;
use super::version;
use super::wire::{ChallengeAnswer, JoinAnswer, JoinRequest, JoinedDatastore, TOKENS};
use crate::json_body;
use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_apiserver::context::Context;
use coracle_apiserver::non_resource::{CHALLENGE, JOIN, NonResource, SecretBody};
use coracle_apiserver::request_body::RequestBody;
use coracle_apiserver::respond::{self, Body};
use coracle_pki::Pki;
use coracle_pki::authority::Authority;
use coracle_pki::cluster_keys::{SealedInfo, SealingKey};
use coracle_pki::server_token::{Challenges, Claim};
use coracle_proto::status::ApiError;
use coracle_store::{Datastore, Store, format};
use http::{Method, Request, Response};
use jiff::Timestamp;
use limit::RateLimit;
use serde::Serialize;
use std::sync::Arc;
use tokens::Tokens;

/// The largest body of a request.
const BODY: usize = 16 << 10;

/// What the answers need.
pub(crate) struct JoinParts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) datastore: Datastore,
    /// The keys of this server: the cluster CA can be rotated while it runs.
    pub(crate) pki: Arc<Pki>,
    /// Seals the keys of the cluster, if this server has it.
    pub(crate) sealing: Option<SealingKey>,
}

/// Lets servers join.
pub(crate) struct Joining {
    parts: JoinParts,
    challenges: Option<Challenges>,
    tokens: Tokens,
    limit: RateLimit,
}

impl Joining {
    pub(crate) fn new(parts: JoinParts) -> Self {
        let challenges = parts.sealing.as_ref().map(Challenges::new);
        let tokens = Tokens::new(parts.store.clone());
        Self { parts, challenges, tokens, limit: RateLimit::default() }
    }

    /// The sealing key and the challenges, or why no server can join here.
    fn ready(&self) -> Result<(&SealingKey, &Challenges), ApiError> {
        let conflict = |why: &str| ApiError::new(409, "Conflict", why);
        if !self.parts.datastore.is_shared() {
            return Err(conflict(
                "this cluster has an embedded datastore, which only one server can use: no other server can join; \
                 move it to etcd first",
            ));
        }
        self.parts.sealing.as_ref().zip(self.challenges.as_ref()).ok_or_else(|| {
            conflict("this server does not have the sealing key of the cluster: use a server that has pki/sealing.key")
        })
    }

    /// The hash of the cluster CA that signs.
    fn ca_hash(&self) -> String {
        self.parts.pki.authority().hash()
    }

    fn challenge(&self) -> Result<ChallengeAnswer, ApiError> {
        let (_, challenges) = self.ready()?;
        let challenge = challenges.create(Timestamp::now()).map_err(ApiError::internal)?;
        Ok(ChallengeAnswer { challenge, version: version::OWN.to_owned() })
    }

    async fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, ApiError> {
        let (_, challenges) = self.ready()?;
        let now = Timestamp::now();
        // One text for all: who has no token does not learn which ids there are.
        let refused = || {
            let why = "server token is wrong or was deleted, or the proof came too late";
            ApiError::new(401, "Unauthorized", why)
        };
        if !challenges.accepts(&request.challenge, now) {
            return Err(refused());
        }
        let record = self.tokens.find(&request.id).await?.ok_or_else(refused)?;
        // While the CA is rotated, tokens of the time before it count.
        let trusted = Authority::hashes_of(&self.parts.pki.authority().certificate);
        let proves = |ca_hash: &String| {
            let (challenge, version, format) = (&request.challenge, &request.version, request.format);
            record.verify(&Claim { challenge, ca_hash, version, format }, &request.proof)
        };
        if !trusted.iter().any(proves) {
            tracing::warn!(token = record.id, "proof of a server token refused");
            return Err(refused());
        }
        if record.is_expired(now) {
            let at = record.expires.map(|at| at.to_string()).unwrap_or_default();
            return Err(ApiError::new(
                403,
                "Forbidden",
                format!("server token {} expired at {at}", record.id),
            ));
        }
        self.check_version(request).await?;
        let answer = JoinAnswer {
            version: version::OWN.to_owned(),
            keys: STANDARD.encode(self.sealed().await?),
            wrapped_key: record.wrapped().to_owned(),
            datastore: self.datastore().await?,
        };
        tracing::info!(token = record.id, version = request.version, "a server joins");
        Ok(answer)
    }

    /// The joining server must not be older than this one, and must read the store.
    async fn check_version(&self, request: &JoinRequest) -> Result<(), ApiError> {
        let conflict = |error: version::VersionError| ApiError::new(409, "Conflict", error.to_string());
        version::check(&request.version, version::OWN).map_err(conflict)?;
        let stored = self.parts.store.get(format::FORMAT_KEY).await.map_err(ApiError::internal)?;
        let needed = stored.map(|stored| format::oldest_reader(&stored.value)).transpose();
        let needed = needed.map_err(ApiError::internal)?.unwrap_or_default();
        version::check_format(&request.version, request.format, needed).map_err(conflict)
    }

    /// The sealed keys, if they are those of this server.
    async fn sealed(&self) -> Result<bytes::Bytes, ApiError> {
        let (sealing, _) = self.ready()?;
        let stored = self.parts.store.get(KEYS).await.map_err(ApiError::internal)?;
        let stored = stored.ok_or_else(|| ApiError::internal(format!("{KEYS} is not in the store")))?;
        let own = SealedInfo { key_id: sealing.id(), ca_hash: self.ca_hash() };
        if SealedInfo::of(&stored.value).map_err(ApiError::internal)? != own {
            let why = "the keys of the cluster in the store are not those of this server: restart this server, or use another";
            return Err(ApiError::new(409, "Conflict", why));
        }
        Ok(stored.value)
    }

    async fn datastore(&self) -> Result<JoinedDatastore, ApiError> {
        Ok(match &self.parts.datastore {
            Datastore::Etcd(options) => {
                JoinedDatastore::Etcd { endpoints: options.endpoints.clone(), prefix: options.prefix.clone() }
            }
            Datastore::Embedded | Datastore::ManagedEtcd => {
                let status = self.parts.store.status().await.map_err(ApiError::internal)?;
                let members = status.members.into_iter().map(|member| member.endpoint).collect();
                JoinedDatastore::Managed { members }
            }
        })
    }

    async fn answer(
        &self,
        path: &str,
        method: &Method,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        let id = path.strip_prefix(TOKENS).and_then(|rest| rest.strip_prefix('/'));
        match (path, method, id) {
            (CHALLENGE, &Method::POST, _) => {
                self.limit.take()?;
                json_body::read::<serde_json::Value>(body, BODY).await?;
                json(200, &self.challenge()?)
            }
            (JOIN, &Method::POST, _) => {
                self.limit.take()?;
                secret(json(200, &self.join(&json_body::read(body, BODY).await?).await?))
            }
            (TOKENS, &Method::GET, _) => json(200, &self.tokens.list().await?),
            (TOKENS, &Method::POST, _) => {
                let (sealing, _) = self.ready()?;
                let wanted = json_body::read(body, BODY).await?;
                // Others could not open what this server cannot.
                self.sealed().await?;
                secret(json(201, &self.tokens.create(&wanted, sealing, &self.ca_hash()).await?))
            }
            (_, &Method::DELETE, Some(id)) => json(200, &self.tokens.delete(id).await?),
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

#[async_trait]
impl NonResource for Joining {
    fn takes(&self, path: &str) -> bool {
        matches!(path, CHALLENGE | JOIN | TOKENS) || path.starts_with("/coracle/v1/server-tokens/")
    }

    async fn serve(
        &self,
        context: &Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let (parts, body) = request.into_parts();
        self.answer(&context.info.path, &parts.method, body).await
    }
}

fn json(code: u16, value: &impl Serialize) -> Result<Response<Body>, ApiError> {
    Ok(respond::json(code, &serde_json::to_value(value).map_err(ApiError::internal)?))
}

/// Keeps the body out of the audit log.
fn secret(response: Result<Response<Body>, ApiError>) -> Result<Response<Body>, ApiError> {
    response.map(|mut response| {
        response.extensions_mut().insert(SecretBody);
        response
    })
}

#[cfg(test)]
mod tests;
