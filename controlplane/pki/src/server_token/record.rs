//! What the store has of a token: enough to verify a proof and to hand out the wrapped sealing key, but not the secret.

use super::{ServerToken, ServerTokenError, is_id};
use crate::cluster_keys::{SealingKey, decrypt, encrypt};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;
/// More is no record.
const MAX_RECORD: usize = 16 << 10;
/// Bytes of a nonce before the wrapped key.
const NONCE: usize = 12;

/// The record of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRecord {
    version: u32,
    /// The id of the token.
    pub id: String,
    /// What people say about it.
    #[serde(default)]
    pub description: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends; never if there is no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The hash of the CA that the token names; empty if it was not noted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_hash: String,
    /// The key that verifies proofs.
    pub(super) verifier: String,
    /// The sealing key, wrapped.
    wrapped: String,
}

impl TokenRecord {
    /// The record of a new token.
    pub fn new(
        token: &ServerToken,
        sealing: &SealingKey,
        description: &str,
        (created, expires): (Timestamp, Option<Timestamp>),
    ) -> Result<Self, ServerTokenError> {
        let (nonce, sealed) = encrypt(&token.derived("wrap"), &aad(token), sealing.bytes().to_vec())?;
        Ok(Self {
            version: VERSION,
            id: token.id.clone(),
            description: description.to_owned(),
            created,
            expires,
            ca_hash: token.ca_hash.clone(),
            verifier: STANDARD.encode(token.derived("proof")),
            wrapped: STANDARD.encode([&nonce[..], &sealed].concat()),
        })
    }

    /// Reads a record.
    pub fn read(bytes: &[u8]) -> Result<Self, ServerTokenError> {
        if bytes.len() > MAX_RECORD {
            return Err(ServerTokenError::TooLarge(bytes.len()));
        }
        let record: Self = serde_json::from_slice(bytes)?;
        if record.version != VERSION {
            return Err(ServerTokenError::Version { id: record.id, version: record.version });
        }
        match is_id(&record.id) {
            true => Ok(record),
            false => Err(ServerTokenError::Form),
        }
    }

    /// The record as it is stored.
    pub fn bytes(&self) -> Result<Vec<u8>, ServerTokenError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Whether the token has ended.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// The wrapped sealing key, for the owner of the token.
    pub fn wrapped(&self) -> &str {
        &self.wrapped
    }
}

impl ServerToken {
    /// The sealing key that was wrapped for this token.
    pub fn unwrap_key(&self, wrapped: &str) -> Result<SealingKey, ServerTokenError> {
        let unwrapped = STANDARD.decode(wrapped).ok().and_then(|bytes| {
            let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
            let plain = decrypt(&self.derived("wrap"), &aad(self), nonce, sealed.to_vec())?;
            SealingKey::from_bytes(&plain)
        });
        unwrapped.ok_or(ServerTokenError::Wrapped)
    }
}

fn aad(token: &ServerToken) -> Vec<u8> {
    format!("coracle server token\n{VERSION}\n{}\n{}", token.id, token.ca_hash).into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_sealing_key_is_for_the_owner_of_the_token() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let (token, other) = (ServerToken::generate(&hash).unwrap(), ServerToken::generate(&hash).unwrap());
        let sealing = SealingKey::generate().unwrap();
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let later = "2030-01-01T00:00:01Z".parse().unwrap();
        let record = TokenRecord::new(&token, &sealing, "for b", (now, Some(later))).unwrap();
        let stored = record.bytes().unwrap();
        let read = TokenRecord::read(&stored).unwrap();
        assert_eq!(read, record);
        assert_eq!(token.unwrap_key(read.wrapped()).unwrap(), sealing);
        assert!(matches!(other.unwrap_key(read.wrapped()), Err(ServerTokenError::Wrapped)));
        let whole = STANDARD.decode(read.wrapped()).unwrap();
        for length in 0..whole.len() {
            assert!(token.unwrap_key(&STANDARD.encode(&whole[..length])).is_err(), "{length}");
        }
        // Neither the secret nor the sealing key can be read in it.
        let text = String::from_utf8(stored).unwrap();
        for secret in [&token.secret[..], sealing.bytes(), &token.derived("wrap")] {
            assert!(!text.contains(&crate::hex::encode(secret)) && !text.contains(&STANDARD.encode(secret)));
        }
        assert!(!read.is_expired(now) && read.is_expired(later));
    }

    #[test]
    fn records_of_other_versions_are_refused() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let token = ServerToken::generate(&hash).unwrap();
        let times = (Timestamp::now(), None);
        let record = TokenRecord::new(&token, &SealingKey::generate().unwrap(), "", times).unwrap();
        assert!(!record.is_expired(Timestamp::MAX));
        let other = TokenRecord { version: 2, ..record.clone() }.bytes().unwrap();
        assert!(matches!(TokenRecord::read(&other), Err(ServerTokenError::Version { version: 2, .. })));
        let other = TokenRecord { id: "../x".into(), ..record }.bytes().unwrap();
        assert!(matches!(TokenRecord::read(&other), Err(ServerTokenError::Form)));
        assert!(TokenRecord::read(b"{}").is_err() && TokenRecord::read(&vec![b' '; 17 << 10]).is_err());
    }
}
