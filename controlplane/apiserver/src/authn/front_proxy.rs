//! Requestheader authentication: a client with a certificate of the front-proxy authority names the user in
//! `X-Remote-*` headers.

use super::x509::{Certificate, Issuer};
use coracle_client::user::User;
use http::{HeaderMap, HeaderValue};

/// What proxies call the headers; the ConfigMap `extension-apiserver-authentication` publishes it.
pub const USER: &str = "x-remote-user";
/// The groups' header.
pub const GROUP: &str = "x-remote-group";
/// The uid's header.
pub const UID: &str = "x-remote-uid";
/// What headers of extras begin with.
pub const EXTRA: &str = "x-remote-extra-";

/// Proxies by their common names; none named: every certificate of the authority will do.
#[derive(Debug, Default)]
pub struct FrontProxy {
    /// Allowed common names.
    pub names: Vec<String>,
}

impl FrontProxy {
    /// The user named by a front proxy; `None` if the client is not a front proxy or names no user.
    pub fn user(&self, certificate: Option<&Certificate>, headers: &HeaderMap) -> Option<User> {
        let certificate = certificate.filter(|c| c.issuer == Issuer::FrontProxy)?;
        certificate.check_expiry().ok()?;
        let proxy = certificate.user.as_ref().map(|user| user.name.as_str()).unwrap_or_default();
        if !self.names.is_empty() && !self.names.iter().any(|name| name == proxy) {
            return None;
        }
        let all = |name: &str| -> Vec<String> {
            let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec()).ok();
            headers.get_all(name).iter().filter_map(text).collect()
        };
        let name = all(USER).into_iter().find(|name| !name.is_empty())?;
        let mut user = User::new(name, all(GROUP));
        user.uid = all(UID).into_iter().next().unwrap_or_default();
        for key in headers.keys().filter_map(|key| key.as_str().strip_prefix(EXTRA)) {
            let decoded = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
            user.extra.insert(decoded, all(&format!("{EXTRA}{key}")));
        }
        Some(user)
    }
}

/// Removes the headers, so that nobody behind the chain takes them for true.
pub fn strip(headers: &mut HeaderMap) {
    let ours: Vec<_> = headers.keys().filter(|key| key.as_str().starts_with("x-remote-")).cloned().collect();
    for key in ours {
        headers.remove(key);
    }
}
