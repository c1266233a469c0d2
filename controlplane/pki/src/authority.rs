//! A certificate authority and what it signs.

use super::{PkiError, bundle, request, write_private};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SubjectPublicKeyInfo,
};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long before it is signed a certificate begins to hold, at most: clocks of servers, nodes and clients may differ by that.
const BACKDATE: Duration = Duration::from_secs(3600);
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// A certificate with its key, both PEM.
#[derive(Clone)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// What a certificate is for.
pub struct Profile {
    common_name: String,
    organizations: Vec<String>,
    names: Vec<String>,
    usages: Vec<ExtendedKeyUsagePurpose>,
    life: Duration,
}

impl Profile {
    /// A server that answers to the given DNS names and IP addresses.
    pub fn server(common_name: &str, names: &[String]) -> Self {
        Self {
            common_name: common_name.into(),
            organizations: Vec::new(),
            names: names.to_vec(),
            usages: vec![ExtendedKeyUsagePurpose::ServerAuth],
            life: LEAF_LIFE,
        }
    }

    /// A client: the common name is its user name, the organizations are its groups.
    pub fn client(user: &str, groups: &[&str]) -> Self {
        Self {
            common_name: user.into(),
            organizations: groups.iter().map(|g| (*g).to_owned()).collect(),
            names: Vec::new(),
            usages: vec![ExtendedKeyUsagePurpose::ClientAuth],
            life: LEAF_LIFE,
        }
    }

    /// A server that is also a client of others of its kind, such as a member of etcd.
    pub fn peer(common_name: &str, names: &[String]) -> Self {
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Self { usages, ..Self::server(common_name, names) }
    }

    /// The same for another time than a year.
    #[must_use]
    pub fn lasting(mut self, life: Duration) -> Self {
        self.life = life;
        self
    }

    fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        for name in &self.names {
            params.subject_alt_names.push(match name.parse() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        for organization in &self.organizations {
            params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
        }
        params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = self.usages.clone();
        // Said aloud, as upstream's signers do: this one signs nothing.
        params.is_ca = IsCa::ExplicitNoCa;
        set_validity(&mut params, self.life);
        Ok(params)
    }
}

/// A new authority and its key, all PEM.
pub(crate) struct Successor {
    pub(crate) certificate: String,
    /// Signed by the authority before it.
    pub(crate) cross: String,
    pub(crate) key: String,
}

/// A certificate authority.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a directory");
/// use coracle_pki::authority::{Authority, Profile};
/// let authority = Authority::ensure(dir.path(), "ca", "kubernetes")?;
/// let jane = Profile::client("jane", &["developers"]);
/// let signed = authority.sign(&jane)?;
/// assert!(authority.still_good(&signed.certificate, &jane));
/// # Ok::<(), coracle_pki::PkiError>(())
/// ```
pub struct Authority {
    /// The trusted CA certificates, PEM. The first one signs; there are others while the CA is rotated.
    pub certificate: String,
    /// The certificate of the CA that signs, signed by the one before it: who trusts only that one follows it.
    cross: Option<String>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads `<dir>/<file>.{crt,key}` and, while the CA is rotated, `<dir>/<file>-cross.crt`; `None` if one of the first two is not
    /// there. The certificate file may hold several: that of the key signs, all are trusted.
    pub fn read(dir: &Path, file: &str) -> Result<Option<Self>, PkiError> {
        let text = |name: String| std::fs::read_to_string(dir.join(name));
        let (Ok(certificate), Ok(key)) = (text(format!("{file}.crt")), text(format!("{file}.key"))) else {
            return Ok(None);
        };
        let cross = text(format!("{file}-cross.crt")).ok();
        Self::from_pem(file, &certificate, &key, cross).map(Some)
    }

    /// The authority of a key, and of certificates of which one belongs to it; `file` is how errors name them.
    pub fn from_pem(
        file: &str,
        certificates: &str,
        key: &str,
        cross: Option<String>,
    ) -> Result<Self, PkiError> {
        let failed = |source| PkiError::Certificate { what: file.into(), source };
        let key = KeyPair::from_pem(key).map_err(failed)?;
        let mut all = bundle::split(certificates);
        let own = all.iter().position(|pem| bundle::has_key(pem, key.public_key_raw()));
        let own = all.remove(own.ok_or_else(|| PkiError::OtherKey(file.into()))?);
        let issuer = Issuer::from_ca_cert_pem(&own, key).map_err(failed)?;
        // One that was signed for another key is of an earlier rotation.
        let public = issuer.key().public_key_raw();
        let cross = cross.filter(|pem| bundle::has_key(pem, public));
        Ok(Self { certificate: own + &all.concat(), cross, issuer })
    }

    /// Reads `<dir>/<file>.{crt,key}` or makes a new authority there.
    pub fn ensure(dir: &Path, file: &str, common_name: &str) -> Result<Self, PkiError> {
        if let Some(there) = Self::read(dir, file)? {
            return Ok(there);
        }
        let failed = |source| PkiError::Certificate { what: common_name.into(), source };
        let (crt, key_path) = (dir.join(format!("{file}.crt")), dir.join(format!("{file}.key")));
        let (params, key) = root(common_name).map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        write_private(&key_path, key.serialize_pem().as_bytes())?;
        write_private(&crt, certificate.as_bytes())?;
        Ok(Self { certificate, cross: None, issuer: Issuer::new(params, key) })
    }

    /// Makes the authority that is to replace this one. It begins after this one, by which the newer of two is known.
    pub(crate) fn successor(&self, common_name: &str) -> Result<Successor, PkiError> {
        let failed = |source| PkiError::Certificate { what: common_name.into(), source };
        let (mut params, key) = root(common_name).map_err(failed)?;
        let from = bundle::not_before(&self.certificate).and_then(|from| u64::try_from(from).ok());
        let earliest = Duration::from_secs(from.unwrap_or_default() + 1);
        params.not_before = params.not_before.max(rcgen::date_time_ymd(1970, 1, 1) + earliest);
        Ok(Successor {
            certificate: params.self_signed(&key).map_err(failed)?.pem(),
            cross: params.signed_by(&key, &self.issuer).map_err(failed)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// What a server sends along with a certificate that this authority has signed: the authorities, so that joining nodes find the
    /// one they know the hash of. While the authority is rotated it is sent as the one before it has signed it, and not as its own
    /// root, which some clients would not look behind.
    pub fn chain(&self) -> String {
        match &self.cross {
            Some(cross) => bundle::split(&self.certificate)
                .into_iter()
                .skip(1)
                .fold(cross.clone(), |all, one| all + &one),
            None => self.certificate.clone(),
        }
    }

    /// What a client sends along with such a certificate: what leads to the authority before it.
    pub fn cross(&self) -> &str {
        self.cross.as_deref().unwrap_or_default()
    }

    /// What joining nodes know the authority by: `sha256:` and the hash of its public key, as kubeadm writes it.
    pub fn hash(&self) -> String {
        Self::hash_of(&self.certificate).unwrap_or_default()
    }

    /// The same of any certificate in PEM; `None` when it is none.
    pub fn hash_of(certificate: &str) -> Option<String> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).ok()?;
        Self::hash_of_der(&pem.contents)
    }

    /// The same of every certificate in a PEM text, in its order.
    pub fn hashes_of(certificates: &str) -> Vec<String> {
        let all = x509_parser::pem::Pem::iter_from_buffer(certificates.as_bytes());
        all.map_while(Result::ok).filter_map(|pem| Self::hash_of_der(&pem.contents)).collect()
    }

    /// The same of a certificate in DER.
    pub fn hash_of_der(certificate: &[u8]) -> Option<String> {
        use sha2::Digest;
        let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let digest = sha2::Sha256::digest(certificate.public_key().raw);
        Some(format!("sha256:{}", crate::hex::encode(&digest)))
    }

    /// Signs a certificate with a new key.
    pub fn sign(&self, profile: &Profile) -> Result<Signed, PkiError> {
        let failed = |source| PkiError::Certificate { what: profile.common_name.clone(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = profile.params().and_then(|p| p.signed_by(&key, &self.issuer)).map_err(failed)?;
        Ok(Signed { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Signs what a certificate signing request asks for, with the usages and the life that the signer grants. It does not
    /// hold before `earliest`, in seconds since 1970, if that is given.
    pub fn sign_request(
        &self,
        request: &str,
        usages: &[ExtendedKeyUsagePurpose],
        life: Duration,
        earliest: Option<i64>,
    ) -> Result<String, PkiError> {
        let failed = |source| PkiError::Certificate { what: "a certificate signing request".into(), source };
        let pem = request::read(request).map_err(failed)?;
        let asked = request::parse(&pem).map_err(failed)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params.subject_alt_names = request::names(&asked).map_err(failed)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = usages.to_vec();
        set_validity(&mut params, life);
        if let Some(earliest) = earliest.and_then(|seconds| u64::try_from(seconds).ok()) {
            let earliest = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(earliest);
            params.not_before = params.not_before.max(earliest);
        }
        let info = &asked.certification_request_info;
        let key = SubjectPublicKeyInfo::from_der(info.subject_pki.raw).map_err(failed)?;
        let signed = params.signed_by(&key, &self.issuer).map_err(failed)?;
        // The subject that was judged, byte by byte: what writes certificates here knows one organization only.
        request::with_subject(signed.der(), info.subject.as_raw(), self.issuer.key()).map_err(failed)
    }

    /// Reads `<dir>/<file>.{crt,key}`, or signs anew when it is missing, old, of another CA, for another subject or without a
    /// wanted name.
    pub fn ensure_signed(&self, dir: &Path, file: &str, profile: &Profile) -> Result<Signed, PkiError> {
        let (crt, key_path) = (dir.join(format!("{file}.crt")), dir.join(format!("{file}.key")));
        if let (Ok(certificate), Ok(key)) =
            (std::fs::read_to_string(&crt), std::fs::read_to_string(&key_path))
            && self.still_good(&certificate, profile)
        {
            return Ok(Signed { certificate, key });
        }
        self.sign_anew(dir, file, profile)
    }

    /// Signs a certificate with a new key and writes both to `<dir>/<file>.{crt,key}`, the certificate last: who follows that
    /// file finds the key that belongs to it.
    pub fn sign_anew(&self, dir: &Path, file: &str, profile: &Profile) -> Result<Signed, PkiError> {
        let signed = self.sign(profile)?;
        write_private(&dir.join(format!("{file}.key")), signed.key.as_bytes())?;
        write_private(&dir.join(format!("{file}.crt")), signed.certificate.as_bytes())?;
        Ok(signed)
    }

    /// The node of a client certificate that this authority signed and that holds now, and since when it does, in seconds since
    /// 1970. The first certificate of the text counts.
    pub fn node_of(&self, pem: &str) -> Option<(String, i64)> {
        let parse = |pem: &str| x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok().map(|(_, p)| p);
        let (leaf, ca) = (parse(pem)?, parse(&self.certificate)?);
        let (leaf, ca) = (leaf.parse_x509().ok()?, ca.parse_x509().ok()?);
        leaf.verify_signature(Some(ca.public_key())).ok()?;
        let name = leaf.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        let node = name.strip_prefix("system:node:")?.to_owned();
        leaf.validity().is_valid().then(|| (node, leaf.validity().not_before.timestamp()))
    }

    /// Whether a certificate is one of this authority, young enough, for the subject and has the names.
    pub fn still_good(&self, pem: &str, profile: &Profile) -> bool {
        let parse = |pem: &str| x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok().map(|(_, p)| p);
        let (Some(leaf), Some(ca)) = (parse(pem), parse(&self.certificate)) else { return false };
        let (Ok(leaf), Ok(ca)) = (leaf.parse_x509(), ca.parse_x509()) else { return false };
        let now = unix_now().as_secs() as i64;
        let (from, to) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
        let fresh = now >= from && now < from + (to - from) * 2 / 3;
        fresh
            && leaf.verify_signature(Some(ca.public_key())).is_ok()
            && has_names(&leaf, &profile.names)
            && is_of(&leaf, profile)
    }
}

/// Whether a certificate names the profile's subject, and no group beyond its groups.
fn is_of(leaf: &x509_parser::certificate::X509Certificate<'_>, profile: &Profile) -> bool {
    let mut names = leaf.subject().iter_common_name();
    let mut groups = leaf.subject().iter_organization();
    names.all(|name| name.as_str().is_ok_and(|name| name == profile.common_name))
        && groups.all(|group| group.as_str().is_ok_and(|g| profile.organizations.iter().any(|o| o == g)))
}

fn has_names(leaf: &x509_parser::certificate::X509Certificate<'_>, names: &[String]) -> bool {
    use x509_parser::extensions::GeneralName;
    let Ok(Some(san)) = leaf.subject_alternative_name() else { return names.is_empty() };
    let has = |name: &String| {
        san.value.general_names.iter().any(|g| match (g, name.parse::<std::net::IpAddr>()) {
            (GeneralName::DNSName(dns), Err(_)) => dns == name,
            (GeneralName::IPAddress(raw), Ok(std::net::IpAddr::V4(ip))) => raw[..] == ip.octets(),
            (GeneralName::IPAddress(raw), Ok(std::net::IpAddr::V6(ip))) => raw[..] == ip.octets(),
            _ => false,
        })
    };
    names.iter().all(has)
}

/// The certificate of a new authority, before it is signed, and its key.
fn root(common_name: &str) -> Result<(CertificateParams, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params, CA_LIFE);
    Ok((params, key))
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How long before now a certificate of that lifetime begins to hold. It is at most half of the lifetime, because renewal is
/// planned from both ends.
fn backdate(life: Duration) -> Duration {
    BACKDATE.min(life / 2)
}

/// The lifetime that was asked for, of a certificate that holds from one second to another.
pub(crate) fn life_of(from: i64, until: i64) -> Duration {
    let whole = Duration::from_secs(u64::try_from(until - from).unwrap_or_default());
    let life = if whole > BACKDATE * 3 { whole - BACKDATE } else { whole * 2 / 3 };
    life.max(Duration::from_secs(1))
}

fn set_validity(params: &mut CertificateParams, life: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + unix_now().saturating_sub(backdate(life));
    params.not_after = epoch + unix_now() + life;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_certificate_is_kept_until_its_names_change() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test").unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let one = ca.ensure_signed(dir.path(), "server", &Profile::server("server", &names)).unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test").unwrap();
        let two = ca.ensure_signed(dir.path(), "server", &Profile::server("server", &names)).unwrap();
        assert_eq!(one.certificate, two.certificate);
        let more = vec!["localhost".to_owned(), "10.0.0.1".to_owned()];
        let three = ca.ensure_signed(dir.path(), "server", &Profile::server("server", &more)).unwrap();
        assert_ne!(one.certificate, three.certificate);
    }

    #[test]
    fn a_certificate_with_other_groups_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test").unwrap();
        let made = |user: &str, groups: &[&str]| {
            ca.ensure_signed(dir.path(), "client", &Profile::client(user, groups)).unwrap().certificate
        };
        let masters = made("server", &["system:masters"]);
        assert_eq!(made("server", &["system:masters"]), masters);
        let others = made("server", &["others"]);
        assert_ne!(others, masters);
        assert_ne!(made("another", &["others"]), others);
    }

    #[test]
    fn certificates_hold_where_clocks_are_ten_minutes_apart() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test").unwrap();
        let now = unix_now().as_secs() as i64;
        let validity = |pem: &str| crate::inspect::parse("test".as_ref(), pem.as_bytes()).unwrap().remove(0);
        let read = validity(&ca.certificate);
        assert!(read.not_before <= now - 600 && read.not_after > now + 600);
        for (life, apart) in
            [(LEAF_LIFE, 600), (Duration::from_secs(86_400), 600), (Duration::from_secs(600), 300)]
        {
            let profile = Profile::client("c", &[]).lasting(life);
            let signed = ca.sign(&profile).unwrap();
            let read = validity(&signed.certificate);
            assert!(read.not_before <= now - apart && read.not_after >= now + life.as_secs() as i64);
            assert_eq!(life_of(read.not_before, read.not_after), life);
            assert!(ca.still_good(&signed.certificate, &profile), "a new one is not due for renewal");
        }
    }

    #[test]
    fn requests_are_signed_for_what_they_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test").unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "n");
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let now = unix_now().as_secs() as i64;
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        let signed = |earliest| ca.sign_request(&request, &usages, LEAF_LIFE, earliest).unwrap();
        let from = |pem: &str| {
            let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
            let certificate = pem.parse_x509().unwrap();
            let constraints = certificate.basic_constraints().unwrap().expect("constraints");
            assert!(constraints.critical && !constraints.value.ca, "it signs nothing");
            certificate.validity().not_before.timestamp()
        };
        assert!(from(&signed(None)) <= now - 3590, "clocks may lag");
        assert!(from(&signed(Some(1))) <= now - 3590);
        assert_eq!(from(&signed(Some(now))), now);
        from(&ca.sign(&Profile::client("c", &[])).unwrap().certificate);
    }

    #[test]
    fn a_node_is_known_by_a_certificate_that_holds() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::ensure(dir.path(), "ca", "test").unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let now = unix_now().as_secs() as i64;
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        let signed = |earliest| ca.sign_request(&request, &usages, LEAF_LIFE, Some(earliest)).unwrap();
        assert_eq!(ca.node_of(&signed(now - 60)), Some(("n".to_owned(), now - 60)));
        assert_eq!(ca.node_of(&signed(now + 3600)), None);
    }
}
