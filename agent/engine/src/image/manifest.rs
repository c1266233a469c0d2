//! Manifests, indexes and image configs, with the fields that the engine needs.
//!
//! oci-spec has these documents too, and its process defaults are used. The rest is read more leniently here: oci-spec
//! requires media types, sizes and platforms that containerd does not ask for, and calls a digest that is not supported
//! a syntax error of the whole document.

use std::collections::BTreeMap;

use oci_spec::image::Config;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Error, Result, Unsupported};

/// Accepted media types.
pub const ACCEPTED: &[&str] = &[
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// Manifests, indexes and configs are no larger than this; containerd has the same bound.
pub const MAX_DOCUMENT: u64 = 4 << 20;
/// overlayfs takes no more layers.
const MAX_LAYERS: usize = 500;

/// A pointer to a blob.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Type of the blob.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: String,
    /// Its length.
    #[serde(default)]
    pub size: u64,
    /// Platform of an index entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Free-form; archives name images here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Platform of an image.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Platform {
    /// `amd64`, `arm64`, …
    #[serde(default)]
    pub architecture: String,
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// `v7`, `v8`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

impl Platform {
    /// This machine, in the names images use.
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "x86" => ("386", ""),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Platform { architecture: architecture.into(), os: "linux".into(), variant: variant.into() }
    }

    fn runs(&self, image: &Platform) -> bool {
        let linux = image.os.is_empty() || image.os == self.os;
        let same_variant =
            image.variant.is_empty() || self.variant.is_empty() || image.variant == self.variant;
        linux && image.architecture == self.architecture && same_variant
    }
}

/// A manifest or an index: whichever lists are filled.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    schema_version: u32,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

/// What a manifest document says.
#[derive(Debug, Clone, PartialEq)]
pub enum Manifest {
    /// One image.
    Image {
        /// Its config blob.
        config: Descriptor,
        /// Its layers, lowest first.
        layers: Vec<Descriptor>,
    },
    /// An index of manifests.
    Index(Vec<Descriptor>),
}

impl Manifest {
    /// Interprets a document; `what` names it in errors.
    pub fn parse(what: &str, bytes: &[u8]) -> Result<Self> {
        let bad = |reason| Error::Unsupported { what: what.to_owned(), reason };
        if bytes.len() as u64 > MAX_DOCUMENT {
            return Err(bad(Unsupported::LongManifest { bytes: bytes.len() }));
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|e| bad(Unsupported::Manifest(e)))?;
        if document.schema_version == 1 {
            return Err(bad(Unsupported::SchemaVersion));
        }
        match (document.config, document.manifests) {
            (Some(_), _) if document.layers.len() > MAX_LAYERS => {
                let layers = document.layers.len();
                Err(bad(Unsupported::TooManyLayers { layers, most: MAX_LAYERS }))
            }
            (Some(config), _) => Ok(Manifest::Image { config, layers: document.layers }),
            (None, manifests) if !manifests.is_empty() => Ok(Manifest::Index(manifests)),
            _ => Err(bad(Unsupported::NoManifest)),
        }
    }
}

/// The entry of an index for `host`.
pub fn for_platform<'a>(what: &str, entries: &'a [Descriptor], host: &Platform) -> Result<&'a Descriptor> {
    let fitting = entries.iter().filter(|e| e.platform.as_ref().is_some_and(|p| host.runs(p)));
    // Prefers an exact variant over a compatible one. A single entry without a platform is used as it is.
    fitting
        .max_by_key(|e| e.platform.as_ref().is_some_and(|p| p.variant == host.variant))
        .or_else(|| entries.first().filter(|e| entries.len() == 1 && e.platform.is_none()))
        .ok_or_else(|| {
            Error::unsupported(what, Unsupported::NoPlatform { architecture: host.architecture.clone() })
        })
}

/// The image config blob.
#[derive(Debug, Clone, Deserialize)]
pub struct ConfigBlob {
    /// `amd64`, …
    #[serde(default)]
    pub architecture: String,
    /// RFC 3339.
    #[serde(default)]
    pub created: Option<String>,
    /// Process defaults; every field may be null.
    #[serde(default, deserialize_with = "process_defaults")]
    pub config: Option<Config>,
    /// Layers.
    pub rootfs: RootFs,
}

/// Values of volumes and ports mean nothing: Go's decoder accepts `null` there, and oci-spec only objects.
fn process_defaults<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Config>, D::Error> {
    let Some(mut config) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    for sets in ["Volumes", "ExposedPorts"] {
        for (_, value) in config.get_mut(sets).and_then(Value::as_object_mut).into_iter().flatten() {
            *value = Value::Object(Default::default());
        }
    }
    serde_json::from_value(config).map(Some).map_err(D::Error::custom)
}

/// Layers of a config.
#[derive(Debug, Clone, Deserialize)]
pub struct RootFs {
    /// Digests of the uncompressed layers, lowest first.
    #[serde(default)]
    pub diff_ids: Vec<String>,
}

/// `sha256:…` of bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    format_digest(Sha256::digest(bytes))
}

/// `sha256:…` of a finished hash.
pub fn format_digest(hash: impl AsRef<[u8]>) -> String {
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in hash.as_ref() {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    text
}

/// The hex part of a `sha256:` digest; other algorithms are refused.
pub fn hex_of(digest: &str) -> Result<&str> {
    let hex = digest.strip_prefix("sha256:").and_then(super::reference::as_id);
    hex.ok_or_else(|| Error::unsupported(digest, Unsupported::Digest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(digest: &str, os: &str, architecture: &str, variant: &str) -> Descriptor {
        let platform = Platform { os: os.into(), architecture: architecture.into(), variant: variant.into() };
        Descriptor {
            media_type: String::new(),
            digest: digest.into(),
            size: 0,
            platform: Some(platform),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn index_entries_by_platform() {
        let entries = [
            entry("win", "windows", "amd64", ""),
            entry("attestation", "unknown", "unknown", ""),
            entry("amd", "linux", "amd64", ""),
            entry("arm6", "linux", "arm", "v6"),
            entry("arm7", "linux", "arm", "v7"),
            entry("arm64", "linux", "arm64", ""),
        ];
        let host = |arch: &str, variant: &str| Platform {
            os: "linux".into(),
            architecture: arch.into(),
            variant: variant.into(),
        };
        for (machine, expected) in [
            (host("amd64", ""), Some("amd")),
            (host("arm", "v7"), Some("arm7")),
            (host("arm64", "v8"), Some("arm64")),
            (host("riscv64", ""), None),
        ] {
            let found = for_platform("x", &entries, &machine).ok().map(|e| e.digest.as_str());
            assert_eq!(found, expected, "{machine:?}");
        }
    }

    #[test]
    fn manifests_of_both_kinds() {
        let image = br#"{"schemaVersion":2,"config":{"digest":"sha256:c"},"layers":[{"digest":"sha256:l","size":3}]}"#;
        assert!(
            matches!(Manifest::parse("x", image).unwrap(), Manifest::Image { layers, .. } if layers[0].size == 3)
        );
        let index = br#"{"schemaVersion":2,"manifests":[{"digest":"sha256:m"}]}"#;
        assert!(matches!(Manifest::parse("x", index).unwrap(), Manifest::Index(m) if m.len() == 1));
        for bad in [&b"{}"[..], b"[]", br#"{"schemaVersion":1,"fsLayers":[]}"#] {
            assert!(Manifest::parse("x", bad).is_err());
        }
        let layers = vec![r#"{"digest":"sha256:l","size":3}"#; MAX_LAYERS + 1].join(",");
        let many = format!(r#"{{"schemaVersion":2,"config":{{"digest":"sha256:c"}},"layers":[{layers}]}}"#);
        assert!(Manifest::parse("x", many.as_bytes()).is_err());
        let deep = format!(r#"{{"schemaVersion":2,"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(Manifest::parse("x", deep.as_bytes()).is_err());
    }

    #[test]
    fn digests() {
        assert_eq!(digest_of(b""), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert!(hex_of("sha256:../../etc").is_err());
        assert!(hex_of("md5:00").is_err());
    }
}
