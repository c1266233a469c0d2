//! Why a server cannot join. Nothing was written then.

use super::version::VersionError;
use coracle_apiserver::https_client::HttpsClientError;
use coracle_pki::cluster_keys::{ClusterKeysError, SealedError};
use coracle_pki::server_token::ServerTokenError;
use coracle_store::StoreError;
use std::path::PathBuf;

/// Why a server cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no token.
    #[error(
        "to join {0} takes a token: --token, --token-file or CORACLE_TOKEN; `coracle token create --server` there makes one"
    )]
    NoToken(String),
    /// The token is none.
    #[error("--token")]
    Token(#[source] ServerTokenError),
    /// A file cannot be read.
    #[error("{path}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is larger than it can be.
    #[error("{0} is too large")]
    FileSize(PathBuf),
    /// `joined.json` cannot be read.
    #[error("{path} is not what a server writes when it joins")]
    Record {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// This server has keys of another cluster.
    #[error("{dir} belongs to another cluster: its CA is {own}, that of the token is {wanted}")]
    OtherCluster {
        /// The directory of the keys.
        dir: PathBuf,
        /// The CA there.
        own: String,
        /// The CA of the token.
        wanted: String,
    },
    /// The server does not answer.
    #[error("{server} cannot be reached: {why}")]
    Unreachable {
        /// Which one.
        server: String,
        /// Why.
        why: String,
    },
    /// The server has no time.
    #[error("{server} is not ready: {message}")]
    Busy {
        /// Which one.
        server: String,
        /// What it says.
        message: String,
    },
    /// Time is over.
    #[error("could not join within {seconds} s (--join-timeout)")]
    Late {
        /// How long was tried.
        seconds: u64,
        /// What the last attempt failed for.
        source: Box<JoinError>,
    },
    /// The server is of another cluster, or somebody is in between.
    #[error("the CA of {server} does not match the token: it is {found}, the token is for {wanted}")]
    Authority {
        /// Which server.
        server: String,
        /// What it shows.
        found: String,
        /// What the token says.
        wanted: String,
    },
    /// The CA is right, the certificate is not.
    #[error("the certificate of {server} is not valid")]
    Certificate {
        /// Which server.
        server: String,
        /// Why.
        source: rustls::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS for {server}")]
    Tls {
        /// Which server.
        server: String,
        /// Why.
        source: Box<HttpsClientError>,
    },
    /// The server is too old to be joined.
    #[error("{0} does not let servers join: it is older than this server, or it is not Coracle")]
    NotSupported(String),
    /// Versions that do not go together.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The server does not take the token.
    #[error("{server} refuses the token: {message}")]
    Unauthorized {
        /// Which server.
        server: String,
        /// What it says.
        message: String,
    },
    /// The server refuses for another reason.
    #[error("{server} refuses: {message}")]
    Refused {
        /// Which server.
        server: String,
        /// What it says.
        message: String,
    },
    /// The answer is not one.
    #[error("{server} gave an answer that cannot be read")]
    Answer {
        /// Which server.
        server: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The keys in the answer are not in base64.
    #[error("{0} gave keys that cannot be read")]
    Encoding(String),
    /// The sealing key in the answer is not for the token.
    #[error("the keys of the cluster cannot be opened with this token")]
    Wrapped(#[source] ServerTokenError),
    /// The keys in the answer cannot be opened.
    #[error("the keys of the cluster cannot be opened")]
    Sealed(#[from] SealedError),
    /// The keys are of another cluster than the token.
    #[error("the keys of the cluster have the CA {found}, the token is for {wanted}")]
    Keys {
        /// What the keys say.
        found: String,
        /// What the token says.
        wanted: String,
    },
    /// This server has another kind of datastore.
    #[error("the cluster uses {cluster}, this server {own}: give it the --datastore of the cluster")]
    Datastore {
        /// That of the cluster.
        cluster: String,
        /// That of this server.
        own: String,
    },
    /// This server has another datastore of the same kind.
    #[error("{own} is not the datastore of the cluster: its keys are not there (the cluster uses {cluster})")]
    OtherDatastore {
        /// That of the cluster.
        cluster: String,
        /// That of this server.
        own: String,
    },
    /// The datastore cannot be read.
    #[error("--datastore {datastore}")]
    Store {
        /// Which one.
        datastore: String,
        /// Why.
        source: Box<StoreError>,
    },
    /// The files cannot be written.
    #[error(transparent)]
    Install(#[from] ClusterKeysError),
    /// A thread has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

impl JoinError {
    /// Whether it may be different in a moment.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Busy { .. })
    }
}
