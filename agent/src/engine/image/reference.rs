//! Image names: `nginx` is `docker.io/library/nginx:latest`.

pub use oci_client::Reference;

use super::{Error, Result};

/// Parses and normalises an image name.
pub fn parse(name: &str) -> Result<Reference> {
    name.parse().map_err(|e: oci_client::ParseError| Error::BadReference {
        name: name.to_owned(),
        reason: match e {
            // Upstream says it in these words for every malformed name.
            oci_client::ParseError::DigestInvalidFormat => "invalid reference format".into(),
            other => other.to_string(),
        },
    })
}

/// `registry/repository`, without tag and digest.
pub fn repository(reference: &Reference) -> String {
    format!("{}/{}", reference.registry(), reference.repository())
}

/// The name by tag, unless the reference is by digest alone.
pub fn tag_name(reference: &Reference) -> Option<String> {
    reference.tag().map(|tag| format!("{}:{tag}", repository(reference)))
}

/// The name by digest.
pub fn digest_name(reference: &Reference, digest: &str) -> String {
    format!("{}@{digest}", repository(reference))
}

/// Whether `text` is the id of an image (config digest, with or without algorithm) rather than a name.
pub fn as_id(text: &str) -> Option<&str> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    (hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))).then_some(hex)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_normalised() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (given, whole) in [
            ("nginx", "docker.io/library/nginx:latest".to_owned()),
            ("nginx:1.29", "docker.io/library/nginx:1.29".to_owned()),
            ("bitnami/redis", "docker.io/bitnami/redis:latest".to_owned()),
            ("localhost:5000/a/b:c", "localhost:5000/a/b:c".to_owned()),
            ("coracle.local/tools", "coracle.local/tools:latest".to_owned()),
            (&format!("nginx@{digest}"), format!("docker.io/library/nginx@{digest}")),
            (&format!("nginx:1@{digest}"), format!("docker.io/library/nginx:1@{digest}")),
        ] {
            assert_eq!(parse(given).unwrap().whole(), whole);
        }
        for bad in ["", "a/UPPER", "a b", "nginx:", "nginx@sha256:beef", "../x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_not_names() {
        let hex = "0".repeat(64);
        assert_eq!(as_id(&hex), Some(hex.as_str()));
        assert_eq!(as_id(&format!("sha256:{hex}")), Some(hex.as_str()));
        assert_eq!(as_id("nginx"), None);
    }
}
