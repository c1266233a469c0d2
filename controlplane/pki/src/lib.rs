//! Keys, certificates and tokens of the cluster: a CA and the certificates that it signs, kubeconfigs, service-account
//! tokens, bootstrap tokens. Keys are created at the first start and kept under `<data-dir>/pki`. A certificate past two thirds
//! of its lifetime is renewed at start.
//!
//! Depends on no other crate of the control plane.

#![forbid(unsafe_code)]

// Errors.
mod error;
// Files and directories that only their owner can read.
mod files;
// Several certificates in one text.
pub mod bundle;
// A certificate authority and the certificates that it signs.
pub mod authority;
// Renewal of single certificates.
pub mod rotate;
// What certificate files say.
pub mod inspect;
// Certificate signing requests.
mod request;
// Kubeconfig files for kubectl and agents.
pub mod kubeconfig;
// Signatures of JSON Web Tokens.
pub mod jwt;
// Signing keys and claims of service-account tokens.
pub mod service_account;
// Bootstrap tokens of nodes that join.
pub mod bootstrap_token;
// Revoked nodes: their older certificates are rejected.
pub mod revoked;
// Hexadecimal digits.
mod hex;
// Keys that all servers share, and their sealed copy in a shared store.
pub mod cluster_keys;
// Tokens of servers that join.
pub mod server_token;

pub use error::PkiError;
pub use files::{private_directory, write_private};

use authority::{Authority, Profile, Signed};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Default lifetime of the certificates of server and administrator.
pub const USUAL_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Files of the serving certificate.
pub(crate) const SERVING: &str = "apiserver";
/// Files of the administrator's certificate.
pub(crate) const ADMIN: &str = "admin";
/// Files and common name of the certificate for aggregated servers and other servers.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// All that the server holds.
pub struct Pki {
    /// The cluster CA, which can be rotated while the server runs.
    authority: watch::Sender<Arc<Authority>>,
    /// The CA of proxies that vouch for users in headers.
    pub front_proxy: Authority,
    /// The server's own certificate and key.
    pub serving: Signed,
    /// The administrator's client certificate and key.
    pub admin: Signed,
    /// The private key that signs service-account tokens, PKCS#8 PEM.
    pub service_account_key: String,
    /// Where it all lies.
    pub dir: PathBuf,
    names: Vec<String>,
    life: Duration,
}

impl Pki {
    /// Reads the keys below `dir`, making those that are missing; `names` are the serving certificate's names and `life`
    /// is how long new certificates hold.
    pub fn ensure(dir: &Path, names: &[String], life: Duration) -> Result<Self, PkiError> {
        private_directory(dir)?;
        let authority = Authority::ensure(dir, "ca", "coracle-ca")?;
        let front_proxy = Authority::ensure(dir, "front-proxy-ca", "coracle-front-proxy-ca")?;
        ensure_front_proxy_client(&front_proxy, dir, life)?;
        let serving = ensure_serving(&authority, dir, names, life)?;
        let admin = ensure_admin(&authority, dir, life)?;
        let service_account_key = ensure_key(&dir.join("sa.key"))?;
        Ok(Self {
            authority: watch::Sender::new(Arc::new(authority)),
            front_proxy,
            serving,
            admin,
            service_account_key,
            dir: dir.into(),
            names: names.to_vec(),
            life,
        })
    }

    /// The cluster CA.
    pub fn authority(&self) -> Arc<Authority> {
        self.authority.borrow().clone()
    }

    /// The cluster CA, now and after every change.
    pub fn authorities(&self) -> watch::Receiver<Arc<Authority>> {
        self.authority.subscribe()
    }

    /// Reads the files of the cluster CA again; whether they have changed.
    pub fn reload_authority(&self) -> Result<bool, PkiError> {
        let read = Authority::read(&self.dir, "ca")?;
        let read = read.ok_or_else(|| PkiError::Missing(self.dir.join("ca.key")))?;
        Ok(self.authority.send_if_modified(|known| {
            let changed = known.chain() != read.chain();
            if changed {
                *known = Arc::new(read);
            }
            changed
        }))
    }

    /// The serving and the administrator's certificate, renewed after two thirds of their lifetime.
    pub fn renewed(&self) -> Result<(Signed, Signed), PkiError> {
        let authority = self.authority();
        let serving = ensure_serving(&authority, &self.dir, &self.names, self.life)?;
        Ok((serving, ensure_admin(&authority, &self.dir, self.life)?))
    }

    /// The front-proxy client certificate (requestheader), renewed after two thirds of its lifetime.
    pub fn front_proxy_client(&self) -> Result<Signed, PkiError> {
        ensure_front_proxy_client(&self.front_proxy, &self.dir, self.life)
    }

    /// The names and addresses that the server serves under.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How often to look whether certificates need to be renewed.
    pub fn renewal_period(&self) -> Duration {
        (self.life / 20).clamp(Duration::from_secs(1), Duration::from_secs(3600))
    }
}

fn ensure_serving(ca: &Authority, dir: &Path, names: &[String], life: Duration) -> Result<Signed, PkiError> {
    ca.ensure_signed(dir, SERVING, &Profile::server("kube-apiserver", names).lasting(life))
}

fn ensure_admin(ca: &Authority, dir: &Path, life: Duration) -> Result<Signed, PkiError> {
    let profile = Profile::client("kubernetes-admin", &["system:masters"]).lasting(life);
    ca.ensure_signed(dir, ADMIN, &profile)
}

fn ensure_front_proxy_client(ca: &Authority, dir: &Path, life: Duration) -> Result<Signed, PkiError> {
    ca.ensure_signed(dir, FRONT_PROXY_CLIENT, &Profile::client(FRONT_PROXY_CLIENT, &[]).lasting(life))
}

fn ensure_key(path: &Path) -> Result<String, PkiError> {
    if let Ok(pem) = std::fs::read_to_string(path) {
        return Ok(pem);
    }
    let key = rcgen::KeyPair::generate()
        .map_err(|source| PkiError::Certificate { what: "service account tokens".into(), source })?;
    let pem = key.serialize_pem();
    write_private(path, pem.as_bytes())?;
    Ok(pem)
}
