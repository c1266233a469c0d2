//! The user that `Impersonate-*` headers ask for.

use coracle_client::user::User;
use coracle_proto::names::{dns1123_label, dns1123_subdomain};
use coracle_proto::status::ApiError;
use http::{HeaderMap, HeaderValue};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The values of a header. One that is no text is an error: to skip it would make the request somebody else's.
fn all(headers: &HeaderMap, name: &str) -> Result<Vec<String>, ApiError> {
    let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec());
    let values: Result<_, _> = headers.get_all(name).iter().map(text).collect();
    values.map_err(|_| ApiError::bad_request(format!("header {name} is not UTF-8")))
}

/// The user as the headers have it, without the groups that follow from its name; `None` without such headers.
pub(super) fn wanted(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    let first =
        |name| -> Result<String, ApiError> { Ok(all(headers, name)?.into_iter().next().unwrap_or_default()) };
    let mut user =
        User { name: first(USER)?, groups: all(headers, GROUP)?, uid: first(UID)?, ..User::default() };
    let extras = headers.keys().filter_map(|key| key.as_str().strip_prefix(EXTRA));
    for key in extras {
        let values = all(headers, &format!("{EXTRA}{key}"))?;
        let decoded = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
        // Two spellings of one key are one key.
        user.extra.entry(decoded).or_default().extend(values);
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.groups.is_empty() && user.uid.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    Err(ApiError::bad_request("requested impersonation without impersonating a user"))
}

/// Removes the headers, so that nobody behind acts on them.
pub(super) fn remove(headers: &mut HeaderMap) {
    let ours: Vec<_> =
        headers.keys().filter(|key| key.as_str().starts_with("impersonate-")).cloned().collect();
    for key in ours {
        headers.remove(key);
    }
}

/// Namespace and name of the service account that a user is.
pub(super) fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty()).then_some((namespace, name))
}

/// The name of the node that a user is.
pub(super) fn node(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| dns1123_subdomain(name).is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::headers;
    use super::*;

    #[test]
    fn every_part_of_an_identity_is_read() {
        let given = headers(&[
            ("Impersonate-User", "ann"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Example.com%2Fscopes", "view"),
            ("Impersonate-Extra-Example.com%2fscopes", "edit"),
        ]);
        let user = wanted(&given).unwrap().unwrap();
        assert_eq!((user.groups, user.uid.as_str()), (vec!["dev".to_owned(), "ops".to_owned()], "7"));
        assert_eq!(user.extra["example.com/scopes"], ["view", "edit"]);
        assert!(wanted(&headers(&[("Impersonate-Group", "dev")])).is_err());
        assert!(wanted(&headers(&[])).unwrap().is_none());
        // Names in any script are names; what is no text does not leave the request to who sent it.
        let mut foreign = HeaderMap::new();
        foreign.insert(USER, HeaderValue::from_bytes("Zoë".as_bytes()).unwrap());
        assert_eq!(wanted(&foreign).unwrap().unwrap().name, "Zoë");
        foreign.insert(USER, HeaderValue::from_bytes(b"Zo\xeb").unwrap());
        assert_eq!(wanted(&foreign).unwrap_err().code, 400);
    }

    #[test]
    fn nodes_and_service_accounts_have_names_that_can_exist() {
        for (name, account, is_node) in [
            ("system:serviceaccount:a:b", Some(("a", "b")), None),
            ("system:serviceaccount:a:b:c", None, None),
            ("system:serviceaccount:A:b", None, None),
            ("system:serviceaccount::b", None, None),
            ("system:node:n.example.com", None, Some("n.example.com")),
            ("system:node:", None, None),
            ("system:node:a:b", None, None),
            ("ann", None, None),
        ] {
            assert_eq!((service_account(name), node(name)), (account, is_node), "{name}");
        }
    }
}
