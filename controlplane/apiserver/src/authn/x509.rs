//! Client certificates: the common name is the user, the organizations are the groups, and, of authorities of the
//! operator, the attribute [`UID`] is the uid. The TLS handshake only proves
//! possession of the key; the chain is verified here, once per connection. Expiry and revocation are checked with every
//! request.

use crate::objects::Objects;
use coracle_client::user::User;
use coracle_pki::revoked::{REVOKED, revoked};
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, Error};
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// Why a certificate is rejected, with Go's messages.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CertificateRefusal {
    /// None of our authorities signed it.
    #[error("x509: certificate signed by unknown authority")]
    UnknownAuthority,
    /// It is too early or too late for it.
    #[error("x509: certificate has expired or is not yet valid")]
    Expired,
    /// It is not meant for clients.
    #[error("x509: certificate specifies an incompatible key usage")]
    KeyUsage,
    /// It cannot be read.
    #[error("x509: malformed certificate")]
    Malformed,
    /// Its uid is not exactly one text.
    #[error("expected 1 UID, but found {0}")]
    Uid(&'static str),
    /// Anything else that TLS has against it.
    #[error("x509: {0}")]
    Tls(Error),
    /// No trusted authority issued it.
    #[error("verifying certificate {serial} failed: {reason}")]
    Unverified {
        /// Its serial number.
        serial: String,
        /// Why not.
        reason: Box<CertificateRefusal>,
    },
    /// The node's certificates of that time are revoked.
    #[error("x509: the certificates of node {0:?} are revoked")]
    Revoked(String),
}

/// Which of our authorities signed a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issuer {
    /// The cluster's: the holder is the user.
    Cluster,
    /// One of the operator, for users: the holder is the user.
    Operator,
    /// That of proxies: the holder says who the user is.
    FrontProxy,
    /// One of the operator, for proxies: the holder says who the user is.
    OperatorProxy,
}

impl Issuer {
    /// Whether the holder of a certificate is the user.
    fn is_of_users(self) -> bool {
        matches!(self, Self::Cluster | Self::Operator)
    }

    /// Whether the operator can replace it at any time.
    fn is_of_operator(self) -> bool {
        matches!(self, Self::Operator | Self::OperatorProxy)
    }
}

/// A client certificate that was verified against a trusted authority; only [`Verifier`] creates one.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Who signed it.
    pub(super) issuer: Issuer,
    /// The user; `None` without exactly one common name.
    pub(super) user: Option<User>,
    /// `notBefore`, in seconds since 1970.
    from: i64,
    /// The earliest `notAfter` of the chain.
    until: i64,
}

impl Certificate {
    /// Node name and `notBefore` of a node's certificate; `None` for others.
    pub fn node(&self) -> Option<(&str, i64)> {
        let user = self.user.as_ref().filter(|_| self.issuer.is_of_users())?;
        Some((user.node()?, self.from))
    }

    /// Whether an authority of the operator signed it.
    pub fn is_of_operator(&self) -> bool {
        self.issuer.is_of_operator()
    }

    /// One of the cluster's authority without an end, for tests.
    #[cfg(test)]
    pub fn of(user: User, from: i64) -> Self {
        Self::signed_by(Issuer::Cluster, user, from)
    }

    /// One without an end, for tests.
    #[cfg(test)]
    pub fn signed_by(issuer: Issuer, user: User, from: i64) -> Self {
        Self { issuer, user: Some(user), from, until: i64::MAX }
    }

    /// An error if it has expired since it was verified.
    pub(super) fn check_expiry(&self) -> Result<(), CertificateRefusal> {
        match jiff::Timestamp::now().as_second() > self.until {
            true => Err(CertificateRefusal::Expired),
            false => Ok(()),
        }
    }
}

/// The certificate that a client presented in the TLS handshake.
#[derive(Debug, Clone, Default)]
pub enum PresentedCertificate {
    /// No certificate.
    #[default]
    Absent,
    /// Not verified, and why.
    Refused(CertificateRefusal),
    /// Verified.
    Verified(Box<Certificate>),
}

/// Verifies client certificates.
#[derive(Debug, Clone)]
pub struct Verifier {
    /// A verifier for each issuer, in the order in which they are asked.
    pub authorities: Vec<(Issuer, Arc<dyn ClientCertVerifier>)>,
}

impl Verifier {
    /// Verifies the chain of a handshake: signatures, validity and key usage.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> PresentedCertificate {
        let Some((leaf, between)) = chain.split_first() else { return PresentedCertificate::Absent };
        let mut why = CertificateRefusal::UnknownAuthority;
        for (issuer, authority) in &self.authorities {
            let alone = authority.verify_client_cert(leaf, &[], now);
            let used = if alone.is_ok() { &[][..] } else { between };
            // What the client sent along counts only where it is needed, and then as long as all of it holds.
            match alone.or_else(|_| authority.verify_client_cert(leaf, between, now)) {
                Ok(_) => {
                    return match read(leaf, used, *issuer) {
                        Ok(certificate) => PresentedCertificate::Verified(Box::new(certificate)),
                        Err(why) => PresentedCertificate::Refused(why),
                    };
                }
                // One that is known and too old is told apart from one that nobody knows.
                Err(error) if why == CertificateRefusal::UnknownAuthority => why = reason(error),
                Err(_) => {}
            }
        }
        PresentedCertificate::Refused(CertificateRefusal::Unverified {
            serial: serial(leaf),
            reason: Box::new(why),
        })
    }
}

fn reason(error: Error) -> CertificateRefusal {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    match &error {
        Error::InvalidCertificate(UnknownIssuer | BadSignature) => CertificateRefusal::UnknownAuthority,
        Error::InvalidCertificate(
            Expired | NotValidYet | ExpiredContext { .. } | NotValidYetContext { .. },
        ) => CertificateRefusal::Expired,
        Error::InvalidCertificate(InvalidPurpose | InvalidPurposeContext { .. }) => {
            CertificateRefusal::KeyUsage
        }
        _ => CertificateRefusal::Tls(error),
    }
}

fn serial(der: &[u8]) -> String {
    let parsed = X509Certificate::from_der(der).ok();
    parsed.map_or_else(|| "SN=?".into(), |(_, certificate)| format!("SN={}", certificate.serial))
}

/// The attribute of the subject that has the uid of the user.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The uid in a subject, if it has one.
fn uid(subject: &X509Name<'_>) -> Result<String, CertificateRefusal> {
    let mut found = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == UID);
    let Some(uid) = found.next() else { return Ok(String::new()) };
    if found.next().is_some() {
        return Err(CertificateRefusal::Uid("multiple"));
    }
    match uid.as_str() {
        Ok("") => Err(CertificateRefusal::Uid("an empty string")),
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(CertificateRefusal::Uid("what is no string")),
    }
}

/// Reads a certificate that `issuer` signed, through the intermediates `between`.
fn read(
    leaf: &[u8],
    between: &[CertificateDer<'_>],
    issuer: Issuer,
) -> Result<Certificate, CertificateRefusal> {
    let parse = |der| X509Certificate::from_der(der).map_err(|_| CertificateRefusal::Malformed);
    let (_, certificate) = parse(leaf)?;
    // Two names are none: others read the second where we would read the first.
    let mut names = certificate.subject().iter_common_name();
    let name = names.next().filter(|_| names.next().is_none()).and_then(|name| name.as_str().ok());
    let groups = certificate.subject().iter_organization();
    let groups = groups.filter_map(|o| o.as_str().ok().map(str::to_owned));
    let mut user = name.filter(|name| !name.is_empty()).map(|name| User::new(name, groups));
    if let Some(user) = &mut user {
        let hex: String = Sha256::digest(leaf).iter().map(|byte| format!("{byte:02x}")).collect();
        let id = vec![format!("X509SHA256={hex}")];
        user.extra.insert("authentication.kubernetes.io/credential-id".into(), id);
        // The cluster's own authority signs the subjects of certificate requests as they are: a uid in them is only what
        // somebody asked for.
        if issuer == Issuer::Operator {
            user.uid = uid(certificate.subject())?;
        }
    }
    let mut until = certificate.validity().not_after.timestamp();
    for der in between {
        until = until.min(parse(der)?.1.validity().not_after.timestamp());
    }
    Ok(Certificate { issuer, user, from: certificate.validity().not_before.timestamp(), until })
}

/// Authenticates client certificates; checks expiry and revocation.
pub struct CertificateAuthenticator {
    objects: Arc<Objects>,
}

impl CertificateAuthenticator {
    /// On the caches of a server.
    pub fn new(objects: Arc<Objects>) -> Self {
        Self { objects }
    }

    /// The user of a certificate of an authority for users; an error says why it does not count any more.
    pub fn user(&self, certificate: &Certificate) -> Result<Option<User>, CertificateRefusal> {
        let Some(user) = certificate.user.as_ref().filter(|_| certificate.issuer.is_of_users()) else {
            return Ok(None);
        };
        certificate.check_expiry()?;
        if let Some(node) = user.node()
            && let Some(since) = self.revoked(node)
            && certificate.from < since
        {
            return Err(CertificateRefusal::Revoked(node.to_owned()));
        }
        Ok(Some(user.clone()))
    }

    fn revoked(&self, node: &str) -> Option<i64> {
        let kind = self.objects.registry.resource("", "v1", "configmaps")?;
        revoked(&self.objects.cached(&kind, "kube-system", REVOKED).ok()?.value(), node)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_pki::authority::{Authority, Profile};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    use rustls_pki_types::pem::PemObject;
    use std::time::Duration;

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn only_our_authorities_vouch_and_only_for_clients_and_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let authority = |name: &str| Authority::ensure(dir.path(), name, name).unwrap();
        let (cluster, proxies, stranger) = (authority("ca"), authority("proxies"), authority("stranger"));
        let operator = authority("operator");
        let knows = |authority: &Authority| {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(der(&authority.certificate)).unwrap();
            coracle_cli::client_cert::ca_verifier(roots).unwrap()
        };
        let verifier = Verifier {
            authorities: vec![
                (Issuer::Cluster, knows(&cluster)),
                (Issuer::Operator, knows(&operator)),
                (Issuer::FrontProxy, knows(&proxies)),
            ],
        };
        let now = UnixTime::now();
        let later = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + seconds));
        let ann = Profile::client("ann", &["dev"]).lasting(Duration::from_secs(60));
        let show = |by: &Authority, profile: &Profile, at: UnixTime| {
            verifier.verify(&[der(&by.sign(profile).unwrap().certificate)], at)
        };
        for (by, issuer) in
            [(&cluster, Issuer::Cluster), (&operator, Issuer::Operator), (&proxies, Issuer::FrontProxy)]
        {
            let PresentedCertificate::Verified(known) = show(by, &ann, now) else { panic!("{issuer:?}") };
            assert_eq!((known.issuer, known.user.clone().unwrap().name.as_str()), (issuer, "ann"));
            assert_eq!(known.check_expiry(), Ok(()));
            let past = Certificate { until: 1, ..*known };
            assert!(past.check_expiry().is_err(), "ended while the connection lasted");
        }
        assert!(matches!(verifier.verify(&[], now), PresentedCertificate::Absent));
        let server = Profile::server("ann", &["localhost".to_owned()]);
        for (shown, words) in [
            (show(&stranger, &ann, now), "signed by unknown authority"),
            (show(&cluster, &ann, later(120)), "expired or is not yet valid"),
            (show(&cluster, &server, now), "incompatible key usage"),
            // Intermediates sent by the client are not trusted.
            (
                verifier.verify(
                    &[der(&stranger.sign(&ann).unwrap().certificate), der(&stranger.certificate)],
                    now,
                ),
                "signed by unknown authority",
            ),
            (verifier.verify(&[CertificateDer::from(vec![0; 40])], now), "x509: "),
        ] {
            let PresentedCertificate::Refused(why) = shown else { panic!("{words}") };
            assert!(why.to_string().contains(words), "{why}");
        }
    }

    /// A certificate for `ann` whose subject has these uids.
    fn with_uids(uids: &[DnValue]) -> CertificateDer<'static> {
        let mut wanted = CertificateParams::default();
        wanted.distinguished_name = DistinguishedName::new();
        wanted.distinguished_name.push(DnType::CommonName, "ann");
        for (at, uid) in uids.iter().enumerate() {
            // The library keeps one value of each type: the last number of the others is changed to that of a uid below.
            let kind = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2 + 64 * at as u64]);
            wanted.distinguished_name.push(kind, uid.clone());
        }
        let made = wanted.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut der = made.der().to_vec();
        let base = [0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53];
        for at in 0..der.len() - base.len() {
            if der[at..].starts_with(&base) {
                der[at + base.len()] = 2;
            }
        }
        CertificateDer::from(der)
    }

    #[test]
    fn the_uid_is_one_text_or_the_certificate_is_refused() {
        let text = |uid: &str| DnValue::Utf8String(uid.to_owned());
        let uid_of = |uids: &[DnValue], issuer| {
            read(&with_uids(uids), &[], issuer).map(|certificate| certificate.user.unwrap().uid)
        };
        let issuer = Issuer::Operator;
        assert_eq!(uid_of(&[], issuer).unwrap(), "");
        assert_eq!(uid_of(&[text("7")], issuer).unwrap(), "7");
        let printable = DnValue::PrintableString("7".try_into().unwrap());
        assert_eq!(uid_of(&[printable], issuer).unwrap(), "7");
        for (uids, found) in [(vec![text("7"), text("7")], "multiple"), (vec![text("")], "an empty string")] {
            assert_eq!(uid_of(&uids, issuer), Err(CertificateRefusal::Uid(found)));
        }
        // Of others it counts for nothing: whoever requests a certificate of the cluster writes its subject.
        for issuer in [Issuer::Cluster, Issuer::FrontProxy, Issuer::OperatorProxy] {
            for uids in [&[text("7")][..], &[text("")], &[text("7"), text("8")]] {
                assert_eq!(uid_of(uids, issuer).unwrap(), "", "{issuer:?}");
            }
        }
    }

    #[test]
    fn a_revocation_that_cannot_be_read_is_for_good() {
        let list = serde_json::json!({"data": {"a": "1970-01-01T00:01:40Z", "b": "soon"}});
        assert_eq!(
            (revoked(&list, "a"), revoked(&list, "b"), revoked(&list, "c")),
            (Some(100), Some(i64::MAX), None)
        );
    }
}
