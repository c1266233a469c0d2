//! Image names: `nginx` is `docker.io/library/nginx:latest`.

pub use oci_spec::distribution::Reference;

use super::{Error, Result};

/// The longest name of a repository.
const MAX_REPOSITORY_LEN: usize = 255;

/// Why an image name is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Not `[registry/]repository[:tag][@digest]`.
    #[error("invalid reference format")]
    Format,
    /// Upper-case letters in the repository.
    #[error("invalid reference format: repository name must be lowercase")]
    Uppercase,
    /// A repository that is too long.
    #[error("repository name must not be more than {MAX_REPOSITORY_LEN} characters")]
    LongRepository,
    /// A digest that is neither SHA-256, SHA-384 nor SHA-512.
    #[error("unsupported digest algorithm")]
    Algorithm,
    /// A digest that is too short or too long.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// A name where only an id will do.
    #[error("an image id is needed")]
    NotAnId,
}

/// Parses and normalises an image name. Hand-written, because the regular expression of the library takes 7 MB of memory.
pub fn parse(name: &str) -> Result<Reference> {
    read(name).map_err(|reason| Error::BadReference { name: name.to_owned(), reason })
}

fn read(name: &str) -> Result<Reference, ReferenceError> {
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (name, None),
    };
    // A colon before the last slash is that of a port.
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    let (registry, repository) = match path.split_once('/') {
        Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => (first, rest.to_owned()),
        Some(_) => ("docker.io", path.to_owned()),
        None => ("docker.io", format!("library/{path}")),
    };
    if repository.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(ReferenceError::Uppercase);
    }
    if !is_host(registry) || path.is_empty() || !repository.split('/').all(is_component) {
        return Err(ReferenceError::Format);
    }
    if repository.len() > MAX_REPOSITORY_LEN {
        return Err(ReferenceError::LongRepository);
    }
    if !tag.is_none_or(is_tag) {
        return Err(ReferenceError::Format);
    }
    if let Some(digest) = digest {
        let (algorithm, hex) = digest.split_once(':').ok_or(ReferenceError::Format)?;
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => return Err(ReferenceError::Algorithm),
        };
        if !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ReferenceError::Format);
        }
        if hex.len() != length {
            return Err(ReferenceError::DigestLength);
        }
    }
    // The hub's older name.
    let registry = if registry == "index.docker.io" { "docker.io" } else { registry }.to_owned();
    Ok(match (tag, digest) {
        (Some(tag), Some(digest)) => {
            Reference::with_tag_and_digest(registry, repository, tag.into(), digest.into())
        }
        (None, Some(digest)) => Reference::with_digest(registry, repository, digest.into()),
        (tag, None) => Reference::with_tag(registry, repository, tag.unwrap_or("latest").into()),
    })
}

/// `a.b-c:80`.
fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "0"));
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(label) && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// Lower-case letters and digits, parted by one dot, one or two underscores, or dashes.
fn is_component(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut parts = text.as_bytes().chunk_by(|a, b| plain(*a) == plain(*b));
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(plain))
        && parts.all(|part| {
            plain(part[0]) || matches!(part, b"." | b"_" | b"__") || part.iter().all(|b| *b == b'-')
        })
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.bytes().next().is_some_and(word)
        && text.len() <= 128
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
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
            ("localhost/a", "localhost/a:latest".to_owned()),
            ("index.docker.io/library/a", "docker.io/library/a:latest".to_owned()),
            ("r.io:80/a__b/c.d--e:V1.2_x-y", "r.io:80/a__b/c.d--e:V1.2_x-y".to_owned()),
            (&format!("nginx@{digest}"), format!("docker.io/library/nginx@{digest}")),
            (&format!("nginx:1@{digest}"), format!("docker.io/library/nginx:1@{digest}")),
        ] {
            assert_eq!(parse(given).unwrap().whole(), whole);
        }
        for bad in [
            "",
            "a/UPPER",
            "a b",
            "nginx:",
            "nginx@sha256:beef",
            "../x",
            "a..b",
            "a___b",
            "-a",
            "a-",
            "a//b",
            "r.io/",
            "r.io:/a",
            "-r.io/a",
            "nginx:-1",
            "nginx:a:b",
            "nginx@",
            "nginx@md5:00",
            "a:é",
        ] {
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
