//! TLS to node agents: an agent must present a serving certificate that the cluster issued to its node.

use crate::objects::Objects;
use arc_swap::ArcSwap;
use coracle_cli::server_cert::{self, PresentedCert, ServerCertCheck, SkipVerify};
use coracle_pki::authority::Profile;
use coracle_pki::{Pki, PkiError};
use coracle_proto::node_identity::API_CLIENTS;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why the certificate of an agent is rejected.
#[derive(Debug, thiserror::Error)]
pub enum NodeTlsError {
    /// The cluster did not issue its certificate.
    #[error(
        "the serving certificate of node {node:?} is not one that the cluster issued ({why}): see `kubectl get csr`, or \
         name the node in --insecure-kubelets"
    )]
    Unknown {
        /// The node that was meant.
        node: String,
        /// What the verifier says.
        why: rustls::CertificateError,
    },
    /// The cluster issued the certificate to somebody else.
    #[error("what answers for node {node:?} is {shown:?}")]
    Other {
        /// The node that was meant.
        node: String,
        /// Whom the certificate names.
        shown: String,
    },
    /// The certificate does not hold any more.
    #[error("the serving certificate of node {node:?} {why}")]
    Ended {
        /// The node that was meant.
        node: String,
        /// What ended it.
        why: &'static str,
    },
}

/// Why the TLS client of node agents cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum NodeTlsSetupError {
    /// The client certificate can be neither read nor signed.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A certificate or key is not PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// A certificate or key cannot be used for TLS.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Takes certificates for servers that the cluster's authority signed, whatever their names are: who it is, is looked at when
/// the handshake is over, because addresses of nodes change and say nothing.
#[derive(Debug)]
struct ClusterIssued(RootCertStore);

impl ServerCertCheck for ClusterIssued {
    fn check(&self, shown: &PresentedCert<'_>, provider: &Arc<CryptoProvider>) -> Result<(), rustls::Error> {
        let certificate = ParsedCertificate::try_from(shown.certificate)?;
        let algorithms = provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.0, shown.chain, shown.now, algorithms)
    }
}

/// Connectors with the own certificate.
struct Connectors {
    strict: TlsConnector,
    lenient: TlsConnector,
}

impl Connectors {
    /// With a client certificate of the cluster's authority.
    fn new(pki: &Pki) -> Result<Self, NodeTlsSetupError> {
        // Whoever answers for a node has this identity shown to it: it must not be worth anything elsewhere.
        let profile = Profile::client("kube-apiserver-kubelet-client", &[API_CLIENTS]);
        let authority = pki.authority();
        let signed = authority.ensure_signed(&pki.dir, "apiserver-kubelet-client", &profile)?;
        let mut roots = RootCertStore::empty();
        for trusted in CertificateDer::pem_slice_iter(authority.certificate.as_bytes()) {
            roots.add(trusted?)?;
        }
        // While the authority is rotated, a node may not know the new one yet.
        let shown = format!("{}{}", signed.certificate, authority.cross());
        let own = |builder: rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert>| {
            let mut config = builder.with_client_auth_cert(
                CertificateDer::pem_slice_iter(shown.as_bytes()).collect::<Result<_, _>>()?,
                PrivateKeyDer::from_pem_slice(signed.key.as_bytes())?,
            )?;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok::<_, NodeTlsSetupError>(TlsConnector::from(Arc::new(config)))
        };
        let strict = own(server_cert::client_config(Arc::new(ClusterIssued(roots)))?)?;
        let lenient = own(server_cert::client_config(Arc::new(SkipVerify))?)?;
        Ok(Self { strict, lenient })
    }
}

/// TLS client of node agents.
pub struct NodeTls {
    objects: Arc<Objects>,
    connectors: ArcSwap<Connectors>,
    insecure: Vec<String>,
}

impl NodeTls {
    /// Of the nodes in `insecure` no certificate is verified; `*` is all.
    pub fn new(objects: Arc<Objects>, pki: &Pki, insecure: &[String]) -> Result<Self, NodeTlsSetupError> {
        let connectors = ArcSwap::from_pointee(Connectors::new(pki)?);
        if !insecure.is_empty() {
            tracing::warn!(nodes = ?insecure, "serving certificates of these nodes are not verified");
        }
        Ok(Self { objects, connectors, insecure: insecure.to_vec() })
    }

    /// Uses the cluster's authority as it is now, for connections from now on.
    pub fn reload(&self, pki: &Pki) -> Result<(), NodeTlsSetupError> {
        self.connectors.store(Arc::new(Connectors::new(pki)?));
        Ok(())
    }

    fn is_insecure(&self, node: &str) -> bool {
        self.insecure.iter().any(|name| name == node || name == "*")
    }

    /// The TLS connector for a node.
    pub fn connector(&self, node: &str) -> TlsConnector {
        let connectors = self.connectors.load();
        if self.is_insecure(node) { connectors.lenient.clone() } else { connectors.strict.clone() }
    }

    /// Checks that the peer certificate names the node, is not expired and not revoked. Resumed sessions are checked, too.
    pub fn check(&self, node: &str, chain: Option<&[CertificateDer<'_>]>) -> Result<(), NodeTlsError> {
        if self.is_insecure(node) {
            return Ok(());
        }
        let leaf = chain.and_then(<[_]>::first).and_then(|der| X509Certificate::from_der(der).ok());
        let shown = leaf.as_ref().map(|(_, leaf)| names(leaf)).unwrap_or_default();
        let (Some((_, leaf)), true) = (leaf, shown == [format!("system:node:{node}")]) else {
            return Err(NodeTlsError::Other { node: node.into(), shown: shown.join(", ") });
        };
        let ended = |why| Err(NodeTlsError::Ended { node: node.into(), why });
        let (from, until) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
        if until < jiff::Timestamp::now().as_second() {
            return ended("has expired");
        }
        match self.revoked(node) {
            Some(since) if from < since => ended("was revoked"),
            _ => Ok(()),
        }
    }

    /// Since when certificates of a node count, when it was revoked.
    fn revoked(&self, node: &str) -> Option<i64> {
        let kind = self.objects.registry.resource("", "v1", "configmaps")?;
        coracle_pki::revoked::revoked(
            &self.objects.cached(&kind, "kube-system", coracle_pki::revoked::REVOKED).ok()?.value(),
            node,
        )
    }
}

fn names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let all = leaf.subject().iter_common_name();
    all.map(|name| name.as_str().unwrap_or_default().to_owned()).collect()
}

/// Why a handshake failed, if it was because of the certificate.
pub fn refused(node: &str, error: &std::io::Error) -> Option<NodeTlsError> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(why) => {
            Some(NodeTlsError::Unknown { node: node.into(), why: why.clone() })
        }
        _ => None,
    }
}
