//! Follows rotations of the cluster CA: the CA certificates that the cluster publishes become those of the agent, certificates of
//! an old CA are requested anew, and the Node says which CAs are trusted and used. Open connections and pods are not affected.

use super::client::Identity;
use super::files::{validity, write_private};
use super::serving::Serving;
use super::{IdentityError, pin, rotate};
use coracle_cli::causes::chain;
use coracle_fields::make;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::node_identity::{ISSUING_CAS, TRUSTED_CAS};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use rand::RngExt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::api::tls::Tls;
use crate::api_watch;

/// Where the cluster publishes its CA certificates.
const NAMESPACE: &str = "kube-public";
const MAP: &str = "kube-root-ca.crt";
/// An issuer that is not in the bundle.
const UNKNOWN: &str = "unknown";
/// More is no list of CA certificates.
const MAX_BUNDLE: usize = 64 << 10;
/// After how long agents ask for certificates of a new CA, at most: not all at once.
const SPREAD: Duration = Duration::from_secs(5);
/// After how long a failed step is made again.
const RETRY: Duration = Duration::from_secs(5);
/// How often the annotations are sent again: a Node can be deleted and registered anew.
const RESEND: Duration = Duration::from_secs(300);

/// What follows the CA.
#[derive(Clone)]
pub struct Trust {
    /// The clients of the agent.
    pub identity: Arc<Identity>,
    /// The name of the Node.
    pub node: String,
    /// The node API, if it verifies its clients with the CA of the cluster.
    pub tls: Option<Tls>,
    /// The serving certificate of the node API, if the cluster signs it.
    pub serving: Option<Arc<Serving>>,
}

/// The files of an identity whose CA is followed.
struct Files {
    authority: PathBuf,
    client: PathBuf,
}

impl Trust {
    /// Follows the CA until the process ends. Returns if the certificates are not in files of their own: they are then managed
    /// externally.
    pub async fn run(self) {
        let (Some(authority), Some(client)) = (self.identity.authority_file(), self.identity.renewable())
        else {
            tracing::info!("CA certificates are not in a file of their own and are not followed");
            return;
        };
        let files = Files { authority, client };
        let api: Api<ConfigMap> = Api::namespaced(self.identity.client(), NAMESPACE);
        let config = watcher::Config::default().fields(&format!("metadata.name={MAP}"));
        let mut changes = pin!(api_watch::watch(api, config).applied_objects());
        let (mut published, mut due) = (None, Instant::now() + RESEND);
        // What clients and node API were made with.
        let mut used = read(&files.authority).ok();
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some(Ok(map)) => published = map.data.and_then(|mut data| data.remove("ca.crt")),
                    Some(Err(error)) => {
                        tracing::debug!(error = %chain(&error), "watch on the CA certificates failed, will retry");
                        continue;
                    }
                    None => return,
                },
                () = tokio::time::sleep_until(due) => {}
            }
            let Some(bundle) = &published else {
                due = Instant::now() + RESEND;
                continue;
            };
            due = Instant::now()
                + match self.follow(&files, bundle, &mut used).await {
                    Ok(()) => RESEND,
                    Err(error) => {
                        tracing::warn!(error = %chain(&error), "the CA of the cluster is not followed, will retry");
                        RETRY
                    }
                };
        }
    }

    /// Brings files, certificates and annotations to what was published.
    async fn follow(
        &self,
        files: &Files,
        bundle: &str,
        used: &mut Option<Vec<u8>>,
    ) -> Result<(), IdentityError> {
        let trusted = hashes(bundle)?;
        if used.as_deref() != Some(bundle.as_bytes()) {
            write_private(&files.authority, bundle.as_bytes())?;
            self.identity.renew().await?;
            if let Some(tls) = &self.tls {
                tls.replace_authority(bundle.as_bytes())?;
            }
            *used = Some(bundle.as_bytes().to_vec());
            tracing::info!(node = self.node, cas = ?trusted, "CA certificates of the cluster replaced");
            self.report(&trusted, &self.issuers(files, bundle)).await?;
        }
        let signer = trusted.first().cloned().unwrap_or_default();
        if self.issuers(files, bundle).iter().any(|issuer| is_replaced(issuer, &signer)) {
            let pause = SPREAD.mul_f64(rand::rng().random_range(0.0..1.0));
            tokio::time::sleep(pause).await;
            self.replace_certificates(files, bundle, &signer).await?;
        }
        self.report(&trusted, &self.issuers(files, bundle)).await
    }

    /// Requests certificates of the CA that signs, for those of another one.
    async fn replace_certificates(
        &self,
        files: &Files,
        bundle: &str,
        signer: &str,
    ) -> Result<(), IdentityError> {
        let is_old =
            |path: &Path| std::fs::read(path).is_ok_and(|pem| is_replaced(&issuer(&pem, bundle), signer));
        if is_old(&files.client) {
            let name = validity(&read(&files.client)?).map(|(.., name)| name).unwrap_or_default();
            let node = name.strip_prefix("system:node:").unwrap_or(&self.node);
            rotate::renew(&self.identity, &files.client, node).await?;
        }
        if let Some(serving) = self.serving.as_ref().filter(|serving| is_old(serving.path())) {
            serving.renew(&self.identity.client()).await?;
        }
        // The server that signs may not have switched when it was asked.
        match self.issuers(files, bundle).iter().any(|issuer| is_replaced(issuer, signer)) {
            true => Err(IdentityError::OldAuthority),
            false => Ok(()),
        }
    }

    /// The CAs that have signed the certificates of the agent. A serving certificate that is not there yet will be of the newest.
    fn issuers(&self, files: &Files, bundle: &str) -> Vec<String> {
        let paths = [Some(files.client.as_path()), self.serving.as_ref().map(|serving| serving.path())];
        let certificates = paths.into_iter().flatten().filter_map(|path| std::fs::read(path).ok());
        let mut issuers: Vec<String> = certificates.map(|pem| issuer(&pem, bundle)).collect();
        issuers.sort();
        issuers.dedup();
        issuers
    }

    /// Writes the annotations; a patch that changes nothing is not stored.
    async fn report(&self, trusted: &[String], issuers: &[String]) -> Result<(), IdentityError> {
        let annotations: BTreeMap<String, String> =
            [(TRUSTED_CAS.to_owned(), trusted.join(",")), (ISSUING_CAS.to_owned(), issuers.join(","))].into();
        let patch = make!(part PartialObjectMetadata { metadata: { annotations } });
        let api: Api<Node> = Api::all(self.identity.client());
        api.patch(&self.node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    std::fs::read(path).map_err(|source| IdentityError::File { path: path.into(), source })
}

/// The certificates of a PEM text, DER.
fn certificates(bundle: &str) -> impl Iterator<Item = Vec<u8>> {
    let all = Pem::iter_from_buffer(bundle.as_bytes()).map_while(Result::ok);
    all.filter(|pem| pem.label == "CERTIFICATE").map(|pem| pem.contents)
}

/// The hashes of the CAs in a bundle, that of the one that signs first. An error if it is none.
fn hashes(bundle: &str) -> Result<Vec<String>, IdentityError> {
    if bundle.len() > MAX_BUNDLE {
        return Err(IdentityError::Bundle("they are too large"));
    }
    let count = bundle.matches("-----BEGIN").count();
    let hashes: Vec<String> =
        certificates(bundle).filter_map(|der| Some(format!("sha256:{}", pin::key_hash(&der)?))).collect();
    match hashes.len() == count && count > 0 {
        true => Ok(hashes),
        false => Err(IdentityError::Bundle("they are not certificates")),
    }
}

/// The hash of the CA in a bundle that has signed a certificate (PEM); `unknown` if none has.
fn issuer(certificate: &[u8], bundle: &str) -> String {
    let signed_by = |authority: &[u8]| {
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate).ok()?;
        let (_, leaf) = X509Certificate::from_der(&pem.contents).ok()?;
        let (_, authority) = X509Certificate::from_der(authority).ok()?;
        leaf.verify_signature(Some(authority.public_key())).ok()
    };
    let found = certificates(bundle).find(|authority| signed_by(authority).is_some());
    found.and_then(|der| pin::key_hash(&der)).map_or(UNKNOWN.to_owned(), |hash| format!("sha256:{hash}"))
}

/// Whether a certificate of this issuer is to be requested anew. One of a CA that is not in the bundle is somebody else's.
fn is_replaced(issuer: &str, signer: &str) -> bool {
    issuer != signer && issuer != UNKNOWN
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), Issuer::new(params, key))
    }

    #[test]
    fn a_bundle_says_who_is_trusted_and_who_has_signed() {
        let ((old, by_old), (new, _), (_, by_stranger)) = (authority("a"), authority("b"), authority("c"));
        let bundle = format!("{new}{old}");
        let known = hashes(&bundle).unwrap();
        assert_eq!((known.len(), &known[1..]), (2, &hashes(&old).unwrap()[..]));
        let leaf = |issuer: &Issuer<'static, KeyPair>| {
            let key = KeyPair::generate().unwrap();
            let signed =
                CertificateParams::new(vec!["n".to_owned()]).unwrap().signed_by(&key, issuer).unwrap();
            format!("{}{}", signed.pem(), key.serialize_pem())
        };
        assert_eq!(issuer(leaf(&by_old).as_bytes(), &bundle), known[1]);
        assert_eq!(issuer(leaf(&by_stranger).as_bytes(), &bundle), "unknown");
        assert_eq!(issuer(b"nothing", &bundle), "unknown");
        assert!(is_replaced(&known[1], &known[0]) && !is_replaced(&known[0], &known[0]));
        assert!(!is_replaced(UNKNOWN, &known[0]), "the operator replaces it");
        let long = old.repeat(200);
        for bad in ["", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &long] {
            assert!(matches!(hashes(bad), Err(IdentityError::Bundle(_))));
        }
    }
}
