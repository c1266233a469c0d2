//! Who this node is to the cluster: joining with a token, certificates, and renewing them before they end.

// Certificates on disk.
pub mod files;
// Asking the cluster to sign.
pub mod request;
// A server known by the hash of its authority.
pub mod pin;
// The way in.
pub mod join;
// The API client, whose identity changes under it.
pub mod client;
// Renewal of the client certificate.
pub mod rotate;
// The certificate of the node's own HTTPS API.
pub mod serving;

/// Why the node has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file.
    #[error("{path}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A key or a request could not be made.
    #[error("key")]
    Key(#[from] rcgen::Error),
    /// What is in a PEM file cannot be used.
    #[error("{what} cannot be used: {why}")]
    Pem {
        /// Which.
        what: String,
        /// Why.
        why: String,
    },
    /// The token is not in a form that can be one.
    #[error("the token is not of the form [K10<ca hash>::]<id>.<secret>")]
    Token,
    /// Nothing to know the server by.
    #[error(
        "give --ca-hash, or a token that begins with it: without the hash of the cluster's authority anyone could answer for the server"
    )]
    NoHash,
    /// No node can be called this.
    #[error("{name:?} cannot be the name of a node: {why}; give another with --node-name")]
    Name {
        /// What it was to be called.
        name: String,
        /// Why not.
        why: String,
    },
    /// The server signed a certificate and does not accept it.
    #[error("{server} does not accept the certificate that it signed for {node}")]
    NotAccepted {
        /// Its URL.
        server: String,
        /// The node.
        node: String,
    },
    /// The server could not be reached or is not the one that was meant.
    #[error("{server}: {why}")]
    Server {
        /// Its URL.
        server: String,
        /// Why.
        why: String,
    },
    /// The server does not know the token.
    #[error("{server} does not accept the token: it is wrong, expired or revoked")]
    Unauthorized {
        /// Its URL.
        server: String,
    },
    /// The API refused.
    #[error("the API server refused")]
    Api(#[from] kube::Error),
    /// The request was denied or could not be signed.
    #[error("the certificate signing request {name} was not granted: {why}")]
    Refused {
        /// The request.
        name: String,
        /// What the cluster says.
        why: String,
    },
    /// Nobody decided in time.
    #[error(
        "the certificate signing request {name} was not approved in time; `kubectl certificate approve {name}` does it by hand"
    )]
    Pending {
        /// The request.
        name: String,
    },
    /// The kubeconfig.
    #[error("kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
}
