//! Requestheader authentication: a client with a certificate of a front-proxy authority names the user in headers. Proxies of
//! the cluster's authority use `X-Remote-*`, those of the operator's the headers that the operator has chosen.

use super::x509::{Certificate, Issuer};
use coracle_client::user::User;
use http::{HeaderMap, HeaderName, HeaderValue};

/// What proxies call the headers; the ConfigMap `extension-apiserver-authentication` publishes it.
pub const USER: &str = "x-remote-user";
/// The groups' header.
pub const GROUP: &str = "x-remote-group";
/// The uid's header.
pub const UID: &str = "x-remote-uid";
/// What headers of extras begin with.
pub const EXTRA: &str = "x-remote-extra-";
/// What the usual headers begin with.
const USUAL: &str = "x-remote-";

/// The headers that name a user. Where there are several for the same, the first that is set counts, but all groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    /// For the name.
    pub user: Vec<HeaderName>,
    /// For the uid.
    pub uid: Vec<HeaderName>,
    /// For groups.
    pub group: Vec<HeaderName>,
    /// What headers of extras begin with, in lower case.
    pub extra: Vec<String>,
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            user: vec![HeaderName::from_static(USER)],
            uid: vec![HeaderName::from_static(UID)],
            group: vec![HeaderName::from_static(GROUP)],
            extra: vec![EXTRA.to_owned()],
        }
    }
}

impl Headers {
    /// The user that a request names.
    fn read(&self, headers: &HeaderMap) -> Option<User> {
        let all = |name: &HeaderName| -> Vec<String> {
            let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec()).ok();
            headers.get_all(name).iter().filter_map(text).collect()
        };
        let set = |names: &[HeaderName]| -> Vec<String> {
            names.iter().flat_map(all).filter(|text| !text.is_empty()).collect()
        };
        let first = |names: &[HeaderName]| set(names).into_iter().next();
        let mut user = User::new(first(&self.user)?, set(&self.group));
        user.uid = first(&self.uid).unwrap_or_default();
        for prefix in &self.extra {
            for name in headers.keys() {
                let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else { continue };
                let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
                user.extra.entry(key).or_default().extend(all(name));
            }
        }
        Some(user)
    }

    fn has(&self, name: &HeaderName) -> bool {
        let named = [&self.user, &self.uid, &self.group].into_iter().flatten().any(|one| one == name);
        named || self.extra.iter().any(|prefix| name.as_str().starts_with(prefix.as_str()))
    }
}

/// Proxies by their common names; none named: every certificate of their authorities will do.
#[derive(Debug, Clone, Default)]
pub struct FrontProxy {
    /// Allowed common names.
    pub names: Vec<String>,
    /// The headers of proxies with a certificate of the operator's authority.
    pub headers: Headers,
}

impl FrontProxy {
    /// The user named by a front proxy; `None` if the client is not a front proxy or names no user.
    pub fn user(&self, certificate: Option<&Certificate>, headers: &HeaderMap) -> Option<User> {
        let certificate = certificate?;
        let read = match certificate.issuer {
            // The servers of the cluster use these among each other, whatever the operator's proxies do.
            Issuer::FrontProxy => &Headers::default(),
            Issuer::OperatorProxy => &self.headers,
            Issuer::Cluster | Issuer::Operator => return None,
        };
        certificate.check_expiry().ok()?;
        let proxy = certificate.user.as_ref().map(|user| user.name.as_str()).unwrap_or_default();
        if !self.names.is_empty() && !self.names.iter().any(|name| name == proxy) {
            return None;
        }
        read.read(headers)
    }

    /// Removes the headers, so that nobody behind the chain takes them for true.
    pub fn strip(&self, headers: &mut HeaderMap) {
        strip(headers);
        remove(headers, |name| self.headers.has(name));
    }
}

/// Removes the usual headers.
pub fn strip(headers: &mut HeaderMap) {
    remove(headers, |name| name.as_str().starts_with(USUAL));
}

fn remove(headers: &mut HeaderMap, is_ours: impl Fn(&HeaderName) -> bool) {
    let ours: Vec<_> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn proxy(issuer: Issuer, name: &str) -> Certificate {
        Certificate::signed_by(issuer, User::new(name, []), 0)
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn each_authority_of_proxies_has_its_own_headers() {
        let header = |name: &'static str| vec![HeaderName::from_static(name)];
        let front = FrontProxy {
            names: Vec::new(),
            headers: Headers {
                user: vec![HeaderName::from_static("x-first"), HeaderName::from_static("x-user")],
                uid: header("x-uid"),
                group: header("x-team"),
                extra: vec!["x-more-".to_owned()],
            },
        };
        let mut sent = headers(&[
            ("x-user", "ann"),
            ("x-first", ""),
            ("x-team", "dev"),
            ("x-team", ""),
            ("x-team", "ops"),
            ("x-uid", "7"),
            ("x-more-a%2fb", "c"),
            ("x-remote-user", "eve"),
            ("x-remote-group", "system:masters"),
            ("accept", "*/*"),
        ]);
        let user = |issuer| front.user(Some(&proxy(issuer, "p")), &sent);
        let ann = user(Issuer::OperatorProxy).unwrap();
        assert_eq!((ann.name.as_str(), ann.uid.as_str()), ("ann", "7"));
        assert_eq!(ann.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(ann.extra["a/b"], ["c"]);
        let eve = user(Issuer::FrontProxy).unwrap();
        assert_eq!((eve.name.as_str(), &*eve.groups[0]), ("eve", "system:masters"));
        assert_eq!(user(Issuer::Operator), None, "certificates of users name nobody else");
        assert_eq!(user(Issuer::Cluster), None);
        front.strip(&mut sent);
        assert_eq!(sent, headers(&[("accept", "*/*")]), "backends see none of them");
    }

    #[test]
    fn only_named_proxies_are_trusted() {
        let front = FrontProxy { names: vec!["front".into()], headers: Headers::default() };
        let sent = headers(&[("x-remote-user", "ann")]);
        for issuer in [Issuer::FrontProxy, Issuer::OperatorProxy] {
            assert!(front.user(Some(&proxy(issuer, "front")), &sent).is_some());
            assert_eq!(front.user(Some(&proxy(issuer, "other")), &sent), None);
        }
        assert_eq!(front.user(None, &sent), None);
    }
}
