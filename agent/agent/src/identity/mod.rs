//! Identity of the node: joining with a token, certificates and their rotation.

// Certificates on disk.
pub mod files;
// Certificate signing requests.
pub mod request;
// Verifies the server by the hash of its CA.
pub mod pin;
// Joining.
pub mod join;
// The kubeconfig.
pub mod kubeconfig;
// The API client with a renewable certificate.
pub mod client;
// Renewal of the client certificate.
pub mod rotate;
// The certificate of the node's own HTTPS API.
pub mod serving;
// Follows rotations of the cluster CA.
pub mod trust;

/// Why the node has no valid identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file.
    #[error("{path}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig names no server that can be asked.
    #[error("cluster {cluster:?}: server {server:?} is not a URL such as https://10.0.0.1:6443")]
    Address {
        /// The cluster of the current context.
        cluster: String,
        /// What it has.
        server: String,
    },
    /// A key or a request could not be made.
    #[error("key")]
    Key(#[from] rcgen::Error),
    /// What is in a PEM file cannot be used.
    #[error("{what} cannot be used: {why}")]
    Pem {
        /// The file or object.
        what: String,
        /// The reason.
        why: String,
    },
    /// The token is not in a form that can be one.
    #[error("the token is not of the form [K10<ca hash>::]<id>.<secret>")]
    Token,
    /// No CA hash to verify the server.
    #[error(
        "give --ca-hash, or a token that begins with it: without the hash of the cluster's authority anyone could answer for the server"
    )]
    NoHash,
    /// Invalid node name.
    #[error("{name:?} cannot be the name of a node: {why}; give another with --node-name")]
    Name {
        /// What it was to be called.
        name: String,
        /// The reason.
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
    /// The server is unreachable or its CA does not match.
    #[error("{server}: {why}")]
    Server {
        /// Its URL.
        server: String,
        /// The reason.
        why: String,
    },
    /// No server given.
    #[error("no server given")]
    NoServer,
    /// No connection to the server.
    #[error("{server}: {why}")]
    Unreachable {
        /// Its URL.
        server: String,
        /// The reason.
        why: String,
    },
    /// The servers or their list.
    #[error("API servers")]
    Servers(#[from] crate::servers::ServersError),
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
    /// The request was not approved in time.
    #[error(
        "the certificate signing request {name} was not approved in time; `kubectl certificate approve {name}` does it by hand"
    )]
    Pending {
        /// The request.
        name: String,
    },
    /// The CA certificates that the cluster publishes cannot be used.
    #[error("the CA certificates of the cluster cannot be used: {0}")]
    Bundle(&'static str),
    /// The certificate is of a CA that is being replaced.
    #[error("the certificate is still signed by the old CA")]
    OldAuthority,
    /// The TLS of the node API.
    #[error("node API")]
    Tls(#[from] crate::api::tls::TlsError),
    /// The kubeconfig.
    #[error("kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The context of the kubeconfig.
    #[error(transparent)]
    Context(#[from] coracle_cli::kubeconfig::ContextError),
}
