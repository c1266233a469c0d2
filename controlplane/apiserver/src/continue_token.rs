//! Continue tokens: where the next page of a list begins, and at which revision the list is read.

use base64::{DecodeError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use coracle_proto::decode::{from_json, plain};
use coracle_proto::status::ApiError;
use coracle_store::Revision;
use serde::{Deserialize, Serialize};

/// How long the pages of a list may be read at the revision of the first, in seconds: as long as a stock server keeps
/// history. Clients are tested for what they do afterwards.
const KEPT: i64 = 300;

/// A place in a list. `revision` is -1 when the rest may be read at the newest revision (an inconsistent continue).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinueToken {
    v: String,
    rv: i64,
    start: String,
    /// When the revision is forgotten, in seconds since 1970.
    #[serde(default)]
    until: i64,
}

impl ContinueToken {
    /// After the object `namespace/name`, at a revision or at the newest.
    pub fn after(namespace: &str, name: &str, revision: Option<Revision>) -> Self {
        let rv = revision.map_or(-1, |r| r as i64);
        let until = jiff::Timestamp::now().as_second() + KEPT;
        Self { v: "meta.k8s.io/v1".into(), rv, start: format!("{namespace}/{name}"), until }
    }

    /// The same list after another object.
    pub fn moved(&self, namespace: &str, name: &str) -> Self {
        Self { start: format!("{namespace}/{name}"), ..self.clone() }
    }

    /// Whether the revision is too old to be read by now.
    pub fn is_expired(&self) -> bool {
        self.rv > 0 && self.until < jiff::Timestamp::now().as_second()
    }

    /// The revision the list is read at; `None` for the newest.
    pub fn revision(&self) -> Option<Revision> {
        u64::try_from(self.rv).ok()
    }

    /// The last object of the page before: namespace and name.
    pub fn position(&self) -> (&str, &str) {
        self.start.split_once('/').unwrap_or(("", &self.start))
    }

    /// The wire form.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads the wire form.
    pub fn decode(text: &str) -> Result<Self, ApiError> {
        let bad = |why: String| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| {
            let (DecodeError::InvalidByte(at, _)
            | DecodeError::InvalidLastSymbol(at, _)
            | DecodeError::InvalidLength(at)) = error
            else {
                return bad("illegal base64 data".into());
            };
            bad(format!("illegal base64 data at input byte {at}"))
        })?;
        let tree = from_json(&bytes).map_err(|error| bad(error.to_string()))?;
        let token: Self = serde_json::from_value(plain(tree)).map_err(|_| bad(text.into()))?;
        let version = "(version meta.k8s.io/v1)";
        if token.v != "meta.k8s.io/v1" {
            return Err(bad(format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(bad(format!("incorrect encoded start resourceVersion {version}")));
        }
        if token.start.is_empty() {
            return Err(bad(format!("encoded start key empty {version}")));
        }
        match token.start.contains('/') {
            true => Ok(token),
            false => Err(bad(token.start)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_token_is_told_so() {
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for (text, why) in [
            ("a!b".to_owned(), "illegal base64 data at input byte 1".to_owned()),
            (encoded("nope"), "invalid character 'o' in literal null (expecting 'u')".to_owned()),
            (
                encoded(r#"{"v":"v2","rv":1,"start":"a/b"}"#),
                "server does not recognize this encoded version v2".to_owned(),
            ),
            (
                encoded(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a/b"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned(),
            ),
            (
                encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
                "encoded start key empty (version meta.k8s.io/v1)".to_owned(),
            ),
        ] {
            let error = ContinueToken::decode(&text).unwrap_err();
            assert_eq!(
                (error.code, error.message),
                (400, format!("invalid continue token: continue key is not valid: {why}"))
            );
        }
    }

    proptest! {
        #[test]
        fn tokens_survive_the_wire(ns in "[a-z]{0,8}", name in "[a-z0-9.-]{1,20}", rv in proptest::option::of(1u64..1 << 40)) {
            let token = ContinueToken::after(&ns, &name, rv);
            let back = ContinueToken::decode(&token.encode()).unwrap();
            prop_assert_eq!(back.position(), (ns.as_str(), name.as_str()));
            prop_assert_eq!(back.revision(), rv);
        }

        #[test]
        fn tokens_end_together(later in 0i64..10_000) {
            let mut first = ContinueToken::after("a", "b", Some(7));
            prop_assert!(!first.is_expired());
            first.until -= KEPT + 1 + later;
            prop_assert!(first.is_expired() && first.moved("a", "c").is_expired());
            prop_assert!(!ContinueToken::after("a", "b", None).is_expired());
        }

        #[test]
        fn garbage_is_refused_not_feared(text in "\\PC{0,40}") {
            let _ = ContinueToken::decode(&text);
        }
    }
}
