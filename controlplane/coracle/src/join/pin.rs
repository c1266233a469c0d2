//! The cluster CA, by the hash in a token. The server shows it in the handshake; nothing is sent to a server that shows another
//! one, or whose certificate it did not sign.

use super::error::JoinError;
use coracle_cli::server_cert::{self, SkipVerify};
use coracle_pki::authority::Authority;
use coracle_pki::bundle::pem;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connects and returns the CA of the server as PEM, if it has the hash and the server has a certificate of it.
pub(super) async fn authority(server: &http::Uri, hash: &str) -> Result<String, JoinError> {
    let url = server.to_string();
    let unreachable = |why: String| JoinError::Unreachable { server: url.clone(), why };
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let invalid = |source| JoinError::Certificate { server: url.clone(), source };
    let named = ServerName::try_from(host.to_owned());
    let name = named.map_err(|error| invalid(rustls::Error::General(error.to_string())))?;
    let shake = async {
        let connected = TcpStream::connect((host, server.port_u16().unwrap_or(443))).await;
        let stream = connected.map_err(|error| unreachable(error.to_string()))?;
        // The certificate is judged below, before anything is sent.
        let config = server_cert::client_config(Arc::new(SkipVerify)).map_err(invalid)?.with_no_client_auth();
        let shaken = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name.clone(), stream).await;
        shaken.map_err(|error| unreachable(error.to_string()))
    };
    let stream =
        tokio::time::timeout(HANDSHAKE, shake).await.map_err(|_| unreachable("no answer".to_owned()))??;
    let (_, connection) = stream.get_ref();
    let chain = connection.peer_certificates().unwrap_or_default();
    let found = find(chain, hash).ok_or_else(|| JoinError::Authority {
        server: url.clone(),
        found: shown(chain),
        wanted: hash.to_owned(),
    })?;
    verify(chain, found, &name).map_err(invalid)?;
    Ok(pem(found))
}

fn find<'a>(chain: &'a [CertificateDer<'static>], hash: &str) -> Option<&'a CertificateDer<'static>> {
    chain.iter().skip(1).find(|der| Authority::hash_of_der(der).is_some_and(|found| found == hash))
}

/// The CAs that a server shows, for a message.
fn shown(chain: &[CertificateDer<'static>]) -> String {
    let hashes: Vec<String> = chain.iter().skip(1).filter_map(|der| Authority::hash_of_der(der)).collect();
    if hashes.is_empty() { "not shown".to_owned() } else { hashes.join(", ") }
}

fn verify(
    chain: &[CertificateDer<'static>],
    authority: &CertificateDer<'static>,
    name: &ServerName<'_>,
) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let Some((leaf, rest)) = chain.split_first() else {
        return Err(rustls::Error::NoCertificatesPresented);
    };
    verifier.verify_server_cert(leaf, rest, name, &[], UnixTime::now()).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_pki::authority::Profile;
    use rustls_pki_types::pem::PemObject as _;

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_ca_is_found_by_its_hash_and_must_have_signed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ca = Authority::ensure(dir.path(), "ca", "coracle-ca").unwrap();
        let foreign = Authority::ensure(other.path(), "ca", "coracle-ca").unwrap();
        let profile = Profile::server("kube-apiserver", &["first.example".to_owned()]);
        let name = ServerName::try_from("first.example").unwrap();
        let own = [der(&ca.sign(&profile).unwrap().certificate), der(&ca.certificate)];
        let found = find(&own, &ca.hash()).unwrap();
        assert_eq!(Authority::hash_of(&pem(found)), Some(ca.hash()));
        verify(&own, found, &name).unwrap();
        assert!(find(&own, &foreign.hash()).is_none() && shown(&own) == ca.hash());
        assert!(verify(&own, found, &ServerName::try_from("second.example").unwrap()).is_err());
        // Somebody who shows the right CA with a certificate of another.
        let forged = [der(&foreign.sign(&profile).unwrap().certificate), der(&ca.certificate)];
        assert!(verify(&forged, find(&forged, &ca.hash()).unwrap(), &name).is_err());
        assert!(find(&[der(&ca.certificate)], &ca.hash()).is_none(), "a CA is no server");
        assert_eq!(shown(&[]), "not shown");
    }
}
