//! Tokens of servers that join: `K10<hash of the cluster CA>::server:<id>.<secret>`.
//!
//! The secret has 256 random bits and is never stored and never sent. Two keys are derived from it: one wraps the sealing key of
//! the cluster ([`crate::cluster_keys::SealingKey`]), the other proves to a server that its owner has the token. The record in the
//! store has the wrapped sealing key and the second key, the verifier: who reads the store can neither open the sealed keys nor
//! compute the secret.

// What the store has of a token.
mod record;
// The proof of a token.
mod proof;

pub use proof::{Challenges, Claim};
pub use record::TokenRecord;

use crate::cluster_keys::SealedError;
use crate::hex;
use std::fmt;

/// The keys of the records in the store begin with it; the id follows.
pub const SERVER_TOKENS: &str = "/coracle/server-tokens/";
/// What the tokens begin with.
const PREFIX: &str = "K10";
/// What distinguishes them from tokens of nodes.
const KIND: &str = "server:";
/// Characters of an id.
const ID: usize = 8;
/// Bytes of a secret.
const SECRET: usize = 32;
/// More is no token.
const MAX_TEXT: usize = 256;

/// Why a text is no token of a server, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerTokenError {
    /// It is a token of nodes.
    #[error("this is a token for nodes; `coracle token create --server` makes one for servers")]
    NodeToken,
    /// It has another form.
    #[error("this is no token for servers: want K10<hash of the CA>::server:<id>.<secret>")]
    Form,
    /// The wrapped sealing key is not one of this token.
    #[error("the sealing key was not wrapped for this token")]
    Wrapped,
    /// The record has another version.
    #[error("the record of server token {id} has version {version}, which this server does not read")]
    Version {
        /// The token.
        id: String,
        /// The version of the record.
        version: u32,
    },
    /// The record cannot be read.
    #[error("the record of a server token cannot be read")]
    Record(#[from] serde_json::Error),
    /// The record is too large.
    #[error("the record of a server token has {0} bytes")]
    TooLarge(usize),
    /// It cannot be made.
    #[error(transparent)]
    Random(#[from] SealedError),
}

/// A token, with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerToken {
    id: String,
    secret: [u8; SECRET],
    ca_hash: String,
}

impl fmt::Debug for ServerToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ServerToken({})", self.id)
    }
}

impl ServerToken {
    /// A new token of the cluster whose CA has this hash.
    pub fn generate(ca_hash: &str) -> Result<Self, ServerTokenError> {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz012345";
        let id = crate::cluster_keys::random::<ID>()?;
        let id = id.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect();
        Ok(Self { id, secret: crate::cluster_keys::random()?, ca_hash: ca_hash.to_owned() })
    }

    /// Reads a token.
    pub fn parse(text: &str) -> Result<Self, ServerTokenError> {
        let text = text.trim();
        if text.len() > MAX_TEXT {
            return Err(ServerTokenError::Form);
        }
        let (hash, token) = match text.strip_prefix(PREFIX).and_then(|rest| rest.split_once("::")) {
            Some((hash, token)) => (Some(hash), token),
            None => (None, text),
        };
        if crate::bootstrap_token::parse(token).is_some() {
            return Err(ServerTokenError::NodeToken);
        }
        let (id, secret) =
            token.strip_prefix(KIND).and_then(|token| token.split_once('.')).ok_or(ServerTokenError::Form)?;
        let secret = hex::decode(secret).and_then(|secret| secret.try_into().ok());
        let hash = hash.filter(|hash| hex::decode(hash).is_some_and(|hash| hash.len() == 32));
        match (is_id(id), secret, hash) {
            (true, Some(secret), Some(hash)) => {
                Ok(Self { id: id.to_owned(), secret, ca_hash: format!("sha256:{hash}") })
            }
            _ => Err(ServerTokenError::Form),
        }
    }

    /// What the token is called.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `sha256:` and the hash of the cluster CA.
    pub fn ca_hash(&self) -> &str {
        &self.ca_hash
    }

    /// The token as its owner gets it, with the secret.
    pub fn text(&self) -> String {
        let hash = self.ca_hash.trim_start_matches("sha256:");
        format!("{PREFIX}{hash}::{KIND}{}.{}", self.id, hex::encode(&self.secret))
    }

    fn derived(&self, purpose: &str) -> [u8; 32] {
        let info = [purpose.as_bytes(), b"\n", self.id.as_bytes()];
        crate::cluster_keys::derive(b"coracle server token", &self.secret, &info)
    }
}

/// Whether a text can be the id of a token of servers. Ids of tokens of nodes are shorter.
pub fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The id in an id or a whole token; `None` if it is not one of servers.
pub fn id_of(text: &str) -> Option<&str> {
    let token = text.rsplit("::").next().unwrap_or(text);
    let token = token.strip_prefix(KIND).unwrap_or(token);
    Some(token.split('.').next().unwrap_or(token)).filter(|id| is_id(id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tokens_read_back_and_hide_their_secret() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let token = ServerToken::generate(&hash).unwrap();
        let text = token.text();
        assert_eq!(ServerToken::parse(&format!(" {text}\n")).unwrap(), token);
        assert_eq!(
            (token.ca_hash(), id_of(&text), id_of(token.id())),
            (&*hash, Some(token.id()), Some(token.id()))
        );
        assert_ne!(ServerToken::generate(&hash).unwrap(), token);
        let secret = text.rsplit('.').next().unwrap();
        assert_eq!(secret.len(), 64);
        assert!(!format!("{token:?}").contains(secret));
        assert_eq!(id_of("abcdef.0123456789abcdef"), None);
    }

    #[test]
    fn other_texts_are_no_tokens_of_servers() {
        let hash = "ab".repeat(32);
        for node in ["abcdef.0123456789abcdef", &format!("K10{hash}::abcdef.0123456789abcdef")] {
            assert!(matches!(ServerToken::parse(node), Err(ServerTokenError::NodeToken)), "{node}");
        }
        let secret = "01".repeat(32);
        let whole = format!("K10{hash}::server:abcdefgh.{secret}");
        ServerToken::parse(&whole).unwrap();
        for bad in [
            "",
            "K10",
            &format!("server:abcdefgh.{secret}"),
            &format!("K10{}::server:abcdefgh.{secret}", "ab".repeat(31)),
            &format!("K10{hash}::abcdefgh.{secret}"),
            &format!("K10{hash}::server:ABCDEFGH.{secret}"),
            &format!("K10{hash}::server:abcdefgh.{}", "01".repeat(31)),
            &format!("K10{hash}::server:abcdefgh.{}", "zz".repeat(32)),
            &format!("{whole}{}", "0".repeat(300)),
        ] {
            assert!(matches!(ServerToken::parse(bad), Err(ServerTokenError::Form)), "{bad}");
        }
    }
}
