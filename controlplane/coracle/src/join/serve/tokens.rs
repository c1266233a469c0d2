//! Records of tokens in the store.

use crate::join::wire::{CreateToken, CreatedToken, TokenList, TokenView};
use coracle_cli::causes;
use coracle_pki::cluster_keys::SealingKey;
use coracle_pki::server_token::{SERVER_TOKENS, ServerToken, TokenRecord, is_id};
use coracle_proto::status::ApiError;
use coracle_store::{Durability, Store, StoreError, Write};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Tokens at the same time.
const MAX_TOKENS: usize = 1000;
/// Characters of a description.
const MAX_DESCRIPTION: usize = 1024;
/// The longest lifetime: ten years.
const MAX_TTL: i64 = 10 * 366 * 24 * 3600;
/// Tokens stay in the list for so long after they have ended, so that who uses one is told why it is refused.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// The tokens of a cluster.
pub(super) struct Tokens {
    store: Arc<dyn Store>,
}

impl Tokens {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Makes a token. Its secret is in the answer, and nowhere else.
    pub(super) async fn create(
        &self,
        wanted: &CreateToken,
        sealing: &SealingKey,
        ca_hash: &str,
    ) -> Result<CreatedToken, ApiError> {
        if wanted.description.chars().count() > MAX_DESCRIPTION {
            return Err(ApiError::bad_request(format!(
                "description: more than {MAX_DESCRIPTION} characters"
            )));
        }
        if !(0..=MAX_TTL).contains(&wanted.ttl_seconds) {
            return Err(ApiError::bad_request("ttlSeconds: want 0 (without end) to ten years"));
        }
        let now = Timestamp::now();
        self.remove_ended(now).await?;
        let expires = match wanted.ttl_seconds {
            0 => None,
            seconds => Some(Timestamp::from_second(now.as_second() + seconds).map_err(ApiError::internal)?),
        };
        let token = ServerToken::generate(ca_hash).map_err(ApiError::internal)?;
        let record = TokenRecord::new(&token, sealing, &wanted.description, (now, expires));
        let record = record.and_then(|record| record.bytes()).map_err(ApiError::internal)?;
        self.write(token.id(), 0, Some(record)).await.map_err(ApiError::internal)?;
        Ok(CreatedToken { token: token.text(), id: token.id().to_owned(), expires })
    }

    /// Removes tokens that ended long ago; fails if there are too many even so.
    async fn remove_ended(&self, now: Timestamp) -> Result<(), ApiError> {
        let (records, _) = self.store.range(SERVER_TOKENS, None).await.map_err(ApiError::internal)?;
        let mut count = records.len();
        for stored in records {
            let Ok(record) = TokenRecord::read(&stored.value) else { continue };
            let ended = record.expires.and_then(|at| at.checked_add(REMEMBERED).ok());
            if ended.is_some_and(|ended| ended <= now) {
                match self.write(&record.id, stored.modified, None).await {
                    // Another server was faster.
                    Ok(()) | Err(StoreError::Conflict(_)) => count -= 1,
                    Err(error) => return Err(ApiError::internal(error)),
                }
            }
        }
        match count < MAX_TOKENS {
            true => Ok(()),
            false => {
                let why = format!("there are {count} server tokens: delete some with `coracle token delete`");
                Err(ApiError::new(409, "Conflict", why))
            }
        }
    }

    /// All tokens, without secrets.
    pub(super) async fn list(&self) -> Result<TokenList, ApiError> {
        let (records, _) = self.store.range(SERVER_TOKENS, None).await.map_err(ApiError::internal)?;
        let items = records.iter().filter_map(|stored| match TokenRecord::read(&stored.value) {
            Ok(TokenRecord { id, description, created, expires, ca_hash, .. }) => {
                Some(TokenView { id, description, created, expires, ca_hash })
            }
            Err(error) => {
                tracing::warn!(key = stored.key, error = %causes::chain(&error), "server token skipped");
                None
            }
        });
        Ok(TokenList { items: items.collect() })
    }

    /// The record of a token.
    pub(super) async fn find(&self, id: &str) -> Result<Option<TokenRecord>, ApiError> {
        if !is_id(id) {
            return Ok(None);
        }
        let stored = self.store.get(&format!("{SERVER_TOKENS}{id}")).await.map_err(ApiError::internal)?;
        let record = stored.map(|stored| TokenRecord::read(&stored.value)).transpose();
        // A record under the key of another one is none.
        Ok(record.map_err(ApiError::internal)?.filter(|record| record.id == id))
    }

    /// Deletes a token.
    pub(super) async fn delete(&self, id: &str) -> Result<serde_json::Value, ApiError> {
        let unknown = || ApiError::new(404, "NotFound", format!("server token {id:?} not found"));
        if !is_id(id) {
            return Err(unknown());
        }
        let stored = self.store.get(&format!("{SERVER_TOKENS}{id}")).await.map_err(ApiError::internal)?;
        let stored = stored.ok_or_else(unknown)?;
        match self.write(id, stored.modified, None).await {
            Ok(()) => Ok(serde_json::json!({"id": id})),
            Err(StoreError::Conflict(_)) => Err(unknown()),
            Err(error) => Err(ApiError::internal(error)),
        }
    }

    async fn write(&self, id: &str, expect: u64, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let write = Write {
            key: format!("{SERVER_TOKENS}{id}"),
            expect,
            value: value.map(Into::into),
            durability: Durability::Sync,
            fence: None,
        };
        self.store.write(write).await.map(drop)
    }
}
