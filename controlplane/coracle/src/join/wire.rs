//! Bodies of requests and answers between servers, and of `coracle token`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Path of the tokens of servers.
pub(crate) const TOKENS: &str = "/coracle/v1/server-tokens";

/// The answer to a server that begins to join.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChallengeAnswer {
    pub challenge: String,
    /// Version of the answering server.
    pub version: String,
}

/// The request of a server that joins.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct JoinRequest {
    /// Id of its token.
    pub id: String,
    pub challenge: String,
    pub proof: String,
    pub version: String,
    /// The newest format of the store that it reads.
    pub format: u32,
}

/// What a server that joins gets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinAnswer {
    pub version: String,
    /// The sealed keys of the cluster, in base64.
    pub keys: String,
    /// The sealing key, wrapped for the token.
    pub wrapped_key: String,
    pub datastore: JoinedDatastore,
}

/// The datastore of a cluster with several servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum JoinedDatastore {
    /// An etcd that somebody else runs.
    Etcd {
        /// Its endpoints.
        endpoints: Vec<String>,
        /// Before every key.
        #[serde(default)]
        prefix: String,
    },
    /// Members of etcd that the servers run.
    Managed {
        /// Client URLs of the members.
        members: Vec<String>,
    },
}

impl fmt::Display for JoinedDatastore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd { endpoints, prefix } if prefix.is_empty() => {
                write!(out, "etcd at {}", endpoints.join(","))
            }
            Self::Etcd { endpoints, prefix } => write!(out, "etcd at {} under {prefix}", endpoints.join(",")),
            Self::Managed { members } => {
                write!(out, "members of etcd at {} (--datastore etcd)", members.join(","))
            }
        }
    }
}

/// How a server joined; kept beside its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// The server that it joined.
    pub server: String,
    /// The datastore of the cluster at that time.
    pub datastore: JoinedDatastore,
    /// The hash of the CA at that time; empty if it was not noted.
    #[serde(default)]
    pub ca_hash: String,
}

/// A token that is to be made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateToken {
    /// Its lifetime; 0 never ends.
    pub ttl_seconds: i64,
    #[serde(default)]
    pub description: String,
}

/// A token that was made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CreatedToken {
    pub token: String,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// Tokens, without their secrets.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct TokenList {
    pub items: Vec<TokenView>,
}

/// A token, without its secret.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenView {
    pub id: String,
    #[serde(default)]
    pub description: String,
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The CA that it names; empty if that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_hash: String,
}
