//! Certificate signing requests: what they ask for, and certificates for exactly their subject.

use crate::bundle::pem;
use rcgen::{Error, SanType, SigningKey};
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

fn unreadable<E>(_: E) -> Error {
    Error::CouldNotParseCertificationRequest
}

/// The request in PEM.
pub fn read(text: &str) -> Result<Pem, Error> {
    Ok(x509_parser::pem::parse_x509_pem(text.as_bytes()).map_err(unreadable)?.1)
}

/// The request itself; an error, too, when who made it does not hold the key.
pub fn parse(pem: &Pem) -> Result<X509CertificationRequest<'_>, Error> {
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(unreadable)?;
    request.verify_signature().map_err(unreadable)?;
    Ok(request)
}

/// The names besides the subject; other extensions are not for the requestor to say.
pub fn names(request: &X509CertificationRequest<'_>) -> Result<Vec<SanType>, Error> {
    let mut all = Vec::new();
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(san) = extension else { continue };
        for name in &san.general_names {
            all.push(match name {
                GeneralName::DNSName(name) => SanType::DnsName((*name).try_into()?),
                GeneralName::RFC822Name(name) => SanType::Rfc822Name((*name).try_into()?),
                GeneralName::URI(name) => SanType::URI((*name).try_into()?),
                GeneralName::IPAddress(raw) => {
                    SanType::IpAddress(address(raw).ok_or_else(|| unreadable(()))?)
                }
                _ => return Err(Error::CouldNotParseCertificationRequest),
            });
        }
    }
    Ok(all)
}

fn address(raw: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(raw).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(raw).map(IpAddr::from)).ok()
}

/// Replaces the subject (DER) of a certificate (DER) and signs it again; returns PEM.
pub fn with_subject(certificate: &[u8], subject: &[u8], key: &impl SigningKey) -> Result<String, Error> {
    let broken = || Error::CouldNotParseCertificate;
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| broken())?;
    let (body, name) = (parsed.tbs_certificate.as_ref(), parsed.subject().as_raw());
    // Where they are: both are parts of the certificate.
    let place = |part: &[u8]| part.as_ptr() as usize - certificate.as_ptr() as usize;
    let (begin, end) = (place(body), place(body) + body.len());
    let content = begin + header(body).ok_or_else(broken)?;
    let (from, to) = (place(name), place(name) + name.len());
    let changed = [&certificate[content..from], subject, &certificate[to..end]].concat();
    let body = value(SEQUENCE, &changed);
    // Between body and signature stands the algorithm, which stays.
    let rest = certificate.get(end..).ok_or_else(broken)?;
    let algorithm = rest.get(..2 + usize::from(*rest.get(1).ok_or_else(broken)?)).ok_or_else(broken)?;
    let signature = [&[0][..], &key.sign(&body)?].concat();
    let whole = value(SEQUENCE, &[&body[..], algorithm, &value(BIT_STRING, &signature)].concat());
    Ok(pem(&whole))
}

/// How long the tag and the length before a value are.
fn header(value: &[u8]) -> Option<usize> {
    let length = *value.get(1)?;
    Some(if length < 0x80 { 2 } else { 2 + usize::from(length & 0x7f) })
}

fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let skipped = length.iter().take_while(|byte| **byte == 0).count();
    let mut all = vec![tag];
    match (content.len(), &length[skipped..]) {
        (0..0x80, _) => all.push(length[length.len() - 1]),
        (_, bytes) => {
            all.push(0x80 | bytes.len() as u8);
            all.extend_from_slice(bytes);
        }
    }
    all.extend_from_slice(content);
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::authority::Authority;
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
    use std::time::Duration;

    #[test]
    fn lengths_are_written_as_they_are_read() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x10000] {
            let whole = value(SEQUENCE, &vec![7; length]);
            assert_eq!(whole.len() - header(&whole).unwrap(), length);
        }
    }

    #[test]
    fn a_certificate_has_the_whole_subject_and_a_signature_that_holds() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::ensure(dir.path(), "ca", "test").unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.distinguished_name.remove(DnType::CommonName);
        // The same attribute twice, which the writer of requests can only do in disguise.
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "ops");
        params.distinguished_name.push(DnType::CommonName, "ann");
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        let life = Duration::from_secs(600);
        let signed = authority.sign_request(&request, &usages, life, None).unwrap();
        let read = |text: &str| x509_parser::pem::parse_x509_pem(text.as_bytes()).unwrap().1;
        let (leaf, ca) = (read(&signed), read(&authority.certificate));
        let (leaf, ca) = (leaf.parse_x509().unwrap(), ca.parse_x509().unwrap());
        leaf.verify_signature(Some(ca.public_key())).unwrap();
        let groups: Vec<&str> = leaf.subject().iter_organization().map(|o| o.as_str().unwrap()).collect();
        assert_eq!(groups, ["dev", "ops"]);
        assert_eq!(leaf.subject().iter_common_name().next().unwrap().as_str().unwrap(), "ann");
        assert_eq!(leaf.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
        // A request that somebody changed after it was signed.
        let other = request.replacen("MII", "MIJ", 1);
        assert!(authority.sign_request(&other, &usages, life, None).is_err());
    }
}
