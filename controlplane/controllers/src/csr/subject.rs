//! What a request asks to be certified, and names in the form that they are compared in.

use base64::Engine;
use coracle_validation::names;
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

/// Why a subject, or one of its names, is not certified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SubjectError {
    #[error("the subject has more than one common name")]
    CommonNames,
    #[error("the subject is not written as text")]
    NotText,
    #[error("a DNS subjectAltName is no DNS subdomain")]
    NotSubdomain,
    #[error("a DNS subjectAltName looks like an IP address")]
    LooksLikeAddress,
    #[error("an IP subjectAltName is no IP address")]
    NotAddress,
    #[error("email subjectAltNames are not allowed")]
    Email,
    #[error("URI subjectAltNames are not allowed")]
    Uri,
    #[error("subjectAltNames other than DNS and IP are not allowed")]
    Other,
}

/// What a request asks to be certified.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    /// Names and addresses that it serves under, in the form that they are compared in: lower case, IPv4 as IPv4.
    pub(super) names: Vec<String>,
    /// Why it is never signed, even if approved: it can be read as another subject.
    pub(super) wrong: Option<SubjectError>,
    /// Why these names are never signed for a server, even if approved.
    pub(super) unserved: Option<SubjectError>,
}

impl Subject {
    /// The node that it is, with a name that a Node can have: any other could be neither looked up nor revoked.
    pub(super) fn node(&self) -> Option<&str> {
        let name = self.common_name.strip_prefix("system:node:")?;
        names::subdomain(name, false).is_empty().then_some(name)
    }
}

pub(super) fn subject(pem: &str) -> Option<Subject> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let info = &request.certification_request_info;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    let mut said = info.subject.iter_common_name().chain(info.subject.iter_organization());
    let wrong = if info.subject.iter_common_name().count() > 1 {
        Some(SubjectError::CommonNames)
    } else if said.any(|value| value.as_str().is_err()) {
        Some(SubjectError::NotText)
    } else {
        None
    };
    let (mut names, mut unserved) = (Vec::new(), None);
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(san) = extension else { continue };
        for name in &san.general_names {
            match served_name(name) {
                Ok(name) => names.push(name),
                Err(why) => unserved = unserved.or(Some(why)),
            }
        }
    }
    Some(Subject {
        common_name: info.subject.iter_common_name().next().and_then(text).unwrap_or_default(),
        organizations: info.subject.iter_organization().filter_map(text).collect(),
        names,
        wrong,
        unserved,
    })
}

/// A name that a server can have, in the form that names are compared in. Clients compare DNS names without regard to case,
/// and some of them know wildcards, trailing dots and addresses written as names: what is not compared here as they do it
/// would be certified under another name.
fn served_name(name: &GeneralName<'_>) -> Result<String, SubjectError> {
    match name {
        GeneralName::DNSName(name) => {
            let name = name.to_ascii_lowercase();
            if !names::subdomain(&name, false).is_empty() {
                return Err(SubjectError::NotSubdomain);
            }
            // A name whose last part is a number is an address to many.
            let last = name.rsplit('.').next().unwrap_or_default();
            if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
                return Err(SubjectError::LooksLikeAddress);
            }
            Ok(name)
        }
        GeneralName::IPAddress(raw) => address(raw).ok_or(SubjectError::NotAddress),
        GeneralName::RFC822Name(_) => Err(SubjectError::Email),
        GeneralName::URI(_) => Err(SubjectError::Uri),
        _ => Err(SubjectError::Other),
    }
}

/// The node that a request, base64 of PEM, asks to be; empty when it asks for something else.
pub fn node_of(request: &str) -> String {
    let decoded = base64::engine::general_purpose::STANDARD.decode(request).unwrap_or_default();
    let subject = subject(&String::from_utf8(decoded).unwrap_or_default()).unwrap_or_default();
    subject.common_name.strip_prefix("system:node:").unwrap_or_default().to_owned()
}

fn address(raw: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(raw).map(IpAddr::from);
    let ip = four.or_else(|_| <[u8; 16]>::try_from(raw).map(IpAddr::from)).ok()?;
    Some(ip.to_canonical().to_string())
}

/// An address or name of a Node in the form that names of certificates are compared in.
pub(super) fn compared(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) => text.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_clients_compare_them() {
        let dns = |name: &'static str| served_name(&GeneralName::DNSName(name));
        assert_eq!(dns("Kubernetes.Default.SVC"), Ok("kubernetes.default.svc".into()));
        for odd in
            ["", "a.", "*", "*.a", "a*.b", "10.0.0.1", "1", "a.0x7f", "a b", "b\u{fc}cher.a", "a..b", "a_b"]
        {
            assert!(dns(odd).is_err(), "{odd:?}");
        }
        let ip = |raw: &'static [u8]| served_name(&GeneralName::IPAddress(raw));
        let mapped = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 96, 0, 1];
        assert_eq!((ip(&[10, 96, 0, 1]), ip(mapped)), (Ok("10.96.0.1".into()), Ok("10.96.0.1".into())));
        assert!(ip(&[10, 0, 0, 0, 255, 0, 0, 0]).is_err(), "a range");
        assert!(served_name(&GeneralName::URI("https://a")).is_err());
        assert!(served_name(&GeneralName::RFC822Name("a@b")).is_err());
    }
}
