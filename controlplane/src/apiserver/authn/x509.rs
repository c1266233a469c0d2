//! Client certificates: the common name is the user, the organizations are the groups.

use crate::apiserver::user::User;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The identity in a verified client certificate; `None` when it names nobody.
pub fn user(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    if name.is_empty() {
        return None;
    }
    let groups = certificate.subject().iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned));
    Some(User::new(name, groups))
}
