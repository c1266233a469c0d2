//! Bootstrap tokens, `id.secret`, as they stand in Secrets of `kube-system`.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Secret;
use serde_json::Value;

/// The group of all users with a bootstrap token.
pub const GROUP: &str = "system:bootstrappers";

/// The type of the Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

/// What the names of the Secrets begin with.
pub const PREFIX: &str = "bootstrap-token-";

/// The annotation with the hash of the CA that a token names, if it names one: it is of no use when that CA is not trusted any more.
pub const CA_HASH: &str = "coracle.dev/ca-hash";

/// Splits `id.secret`; `None` when the text is no bootstrap token.
pub fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let word = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    (word(id, 6) && word(secret, 16)).then_some((id, secret))
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// One field of a Secret's data, decoded; empty when it is not there.
pub fn field(secret: &Value, name: &str) -> String {
    let encoded = Secret::of(secret).data().key(name).text();
    STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Whether a token Secret is past its time; a time that cannot be read is past.
pub fn expired(secret: &Value, now: jiff::Timestamp) -> bool {
    match field(secret, "expiration") {
        none if none.is_empty() => false,
        text => text.parse::<jiff::Timestamp>().map_or(true, |at| at <= now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_of_a_bootstrap_token_is_one() {
        assert_eq!(parse("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdefg", "a.b.c"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn tokens_without_a_time_last_and_bad_times_end() {
        let secret = |time: &str| serde_json::json!({"data": {"expiration": STANDARD.encode(time)}});
        let now: jiff::Timestamp = "2030-01-01T00:00:00Z".parse().expect("a time");
        assert!(!expired(&secret(""), now));
        assert!(!expired(&secret("2030-01-01T00:00:01Z"), now));
        assert!(expired(&secret("2030-01-01T00:00:00Z"), now));
        assert!(expired(&secret("tomorrow"), now));
        assert!(same(b"ab", b"ab") && !same(b"ab", b"ac") && !same(b"ab", b"abc"));
    }
}
