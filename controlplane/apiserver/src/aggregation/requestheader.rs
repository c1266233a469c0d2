//! Sets the `X-Remote-*` headers that name the user to an aggregated API server. The server trusts them because of the
//! front-proxy client certificate of the connection.

use crate::authn::front_proxy::{self, EXTRA, GROUP, UID, USER};
use coracle_client::user::User;
use coracle_proto::status::ApiError;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are escaped in header names.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Replaces credentials and `X-Remote-*` headers with those of `user`. Fails if a name is not a valid header value.
pub fn set_requestheaders(headers: &mut HeaderMap, user: &User) -> Result<(), ApiError> {
    headers.remove(AUTHORIZATION);
    front_proxy::strip(headers);
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(ApiError::internal);
    headers.insert(USER, value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", utf8_percent_encode(key, ESCAPED));
        let name = HeaderName::try_from(name).map_err(ApiError::internal)?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_server_says_who_asks() {
        let mut headers = HeaderMap::new();
        for (name, text) in [
            ("authorization", "Bearer t"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("accept", "application/json"),
        ] {
            headers.insert(name, HeaderValue::from_static(text));
        }
        let mut user = User::new("anna", ["crew".to_owned()]);
        user.uid = "7".into();
        user.extra.insert("demo.io/ship%".into(), vec!["a".into(), "b".into()]);
        set_requestheaders(&mut headers, &user).unwrap();
        let mut all: Vec<(String, String)> =
            headers.iter().map(|(k, v)| (k.to_string(), v.to_str().unwrap().to_owned())).collect();
        all.sort();
        let want = [
            ("accept", "application/json"),
            ("x-remote-extra-demo.io%2fship%25", "a"),
            ("x-remote-extra-demo.io%2fship%25", "b"),
            ("x-remote-group", "crew"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-uid", "7"),
            ("x-remote-user", "anna"),
        ];
        let all: Vec<(&str, &str)> = all.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(all, want);
        assert!(set_requestheaders(&mut headers, &User::new("a\nb", [])).is_err());
    }
}
