//! Changes of an `EncryptionConfiguration`: a new key, another first key, keys that are removed. The file is read as YAML and
//! written as YAML; comments are lost.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::yaml::YamlError;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Bytes of a new key; both ciphers take them.
const KEY_BYTES: usize = 32;

/// Why a file is not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChangeError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("no entry of the file encrypts with aesgcm or secretbox: there is no key to rotate")]
    NothingToRotate,
    #[error("resources[{0}] has key {1:?} already")]
    Known(usize, String),
    #[error("resources[{0}] does not have key {1:?}")]
    Unknown(usize, String),
    #[error("text")]
    Format(#[from] std::fmt::Error),
}

/// The file. Unknown fields would be lost, and are errors.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    api_version: String,
    kind: String,
    resources: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    resources: Vec<String>,
    providers: Vec<Provider>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Provider {
    #[serde(skip_serializing_if = "Option::is_none")]
    aesgcm: Option<Keys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secretbox: Option<Keys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kms: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    identity: Option<serde_json::Value>,
}

/// `identity:` without a value is there, too.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<serde_json::Value>, D::Error> {
    Option::<serde_json::Value>::deserialize(from)
        .map(|value| Some(value.unwrap_or_else(|| serde_json::json!({}))))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Key {
    name: String,
    secret: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Provider {
    /// The cipher and its keys.
    fn cipher(&mut self) -> Option<(&'static str, &mut Keys)> {
        match (&mut self.aesgcm, &mut self.secretbox) {
            (Some(keys), _) => Some(("aesgcm", keys)),
            (None, Some(keys)) => Some(("secretbox", keys)),
            (None, None) => None,
        }
    }
}

impl File {
    /// Reads the text of a file.
    pub(super) fn parse(text: &str) -> Result<Self, ChangeError> {
        Ok(coracle_cli::yaml::from_str(text)?)
    }

    /// The keys of entries whose first provider is a cipher.
    fn first_keys(&mut self) -> impl Iterator<Item = (usize, &mut Keys)> {
        self.resources.iter_mut().enumerate().filter_map(|(index, entry)| {
            let first = entry.providers.first_mut()?;
            // A service or plain values before it would encrypt.
            if first.kms.is_some() || first.identity.is_some() {
                return None;
            }
            Some((index, first.cipher()?.1)).filter(|(_, keys)| !keys.keys.is_empty())
        })
    }

    /// Adds a key to the first provider of each entry, behind the one that encrypts: it only decrypts.
    pub(super) fn add(&mut self, name: &str) -> Result<(), ChangeError> {
        let mut added = false;
        for (index, keys) in self.first_keys() {
            if keys.keys.iter().any(|key| key.name == name) {
                return Err(ChangeError::Known(index, name.to_owned()));
            }
            let mut secret = [0; KEY_BYTES];
            rand::rng().fill(&mut secret);
            keys.keys.insert(1, Key { name: name.to_owned(), secret: STANDARD.encode(secret) });
            added = true;
        }
        if added { Ok(()) } else { Err(ChangeError::NothingToRotate) }
    }

    /// Moves a key to the first place of each entry that has it: it encrypts. Entries that encrypt with other keys must have it.
    pub(super) fn promote(&mut self, name: &str) -> Result<(), ChangeError> {
        let missing = self.first_keys().find(|(_, keys)| keys.keys.iter().all(|key| key.name != name));
        if let Some((index, _)) = missing {
            return Err(ChangeError::Unknown(index, name.to_owned()));
        }
        let mut found = false;
        for entry in &mut self.resources {
            let place = entry.providers.iter_mut().position(|provider| {
                // Services and plain values of the same element would be in front of it.
                provider.kms.is_none()
                    && provider.identity.is_none()
                    && provider.cipher().is_some_and(|(_, keys)| keys.keys.iter().any(|key| key.name == name))
            });
            let Some(place) = place else { continue };
            let mut provider = entry.providers.remove(place);
            if let Some((_, keys)) = provider.cipher() {
                keys.keys.sort_by_key(|key| key.name != name);
            }
            entry.providers.insert(0, provider);
            found = true;
        }
        if found { Ok(()) } else { Err(ChangeError::NothingToRotate) }
    }

    /// Removes keys of ciphers that neither encrypt nor are in `used`, which has names such as `aesgcm:key1`. Returns the
    /// names of those that were removed.
    pub(super) fn prune(&mut self, used: &BTreeSet<String>) -> Vec<String> {
        let mut removed = Vec::new();
        for entry in &mut self.resources {
            for (place, provider) in entry.providers.iter_mut().enumerate() {
                let Some((cipher, keys)) = provider.cipher() else { continue };
                let mut number = 0;
                keys.keys.retain(|key| {
                    let name = format!("{cipher}:{}", key.name);
                    let kept = (place == 0 && number == 0) || used.contains(&name);
                    number += 1;
                    if !kept && !removed.contains(&name) {
                        removed.push(name);
                    }
                    kept
                });
            }
            // A provider without keys is none.
            entry.providers.retain_mut(|provider| {
                let others = provider.kms.is_some() || provider.identity.is_some();
                others || provider.cipher().is_some_and(|(_, keys)| !keys.keys.is_empty())
            });
        }
        removed
    }

    /// The file as YAML. Texts are quoted as JSON, which is YAML, too.
    pub(super) fn text(&self) -> Result<String, ChangeError> {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut out = String::new();
        let version = match self.api_version.is_empty() {
            true => "apiserver.config.k8s.io/v1",
            false => &self.api_version,
        };
        writeln!(out, "apiVersion: {}\nkind: {}\nresources:", quoted(version), quoted(&self.kind))?;
        for entry in &self.resources {
            writeln!(out, "- resources:")?;
            for resource in &entry.resources {
                writeln!(out, "  - {}", quoted(resource))?;
            }
            writeln!(out, "  providers:")?;
            for provider in &entry.providers {
                let mut dash = "-";
                for (name, service) in [("kms", &provider.kms), ("identity", &provider.identity)] {
                    if let Some(service) = service {
                        writeln!(out, "  {dash} {name}: {service}")?;
                        dash = " ";
                    }
                }
                for (cipher, keys) in [("aesgcm", &provider.aesgcm), ("secretbox", &provider.secretbox)] {
                    let Some(keys) = keys else { continue };
                    writeln!(out, "  {dash} {cipher}:\n      keys:")?;
                    dash = " ";
                    for key in &keys.keys {
                        writeln!(out, "      - name: {}", quoted(&key.name))?;
                        writeln!(out, "        secret: {}", quoted(&key.secret))?;
                    }
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_store::encryption::config::Config;

    const TEXT: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, '*.apps']   # a comment
  providers:
  - aesgcm:
      keys:
      - {name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}
  - identity: {}
- resources: [configmaps]
  providers:
  - secretbox: {keys: [{name: box, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}]}
- resources: [events]
  providers:
  - identity:
";

    /// The providers of each entry, as the server reads the file.
    fn providers(file: &File) -> Vec<String> {
        let config = Config::parse(&file.text().unwrap()).unwrap();
        config.entries().into_iter().map(|(_, providers)| providers.join(" ")).collect()
    }

    #[test]
    fn a_key_is_added_used_and_at_last_the_only_one() {
        let mut file = File::parse(TEXT).unwrap();
        assert_eq!(providers(&file), ["aesgcm:one identity", "secretbox:box", "identity"]);
        file.add("two").unwrap();
        assert_eq!(
            providers(&file),
            ["aesgcm:one aesgcm:two identity", "secretbox:box secretbox:two", "identity"]
        );
        assert!(matches!(file.clone().add("two"), Err(ChangeError::Known(0, _))));
        assert!(matches!(file.clone().promote("three"), Err(ChangeError::Unknown(0, _))));
        file.promote("two").unwrap();
        assert_eq!(
            providers(&file),
            ["aesgcm:two aesgcm:one identity", "secretbox:two secretbox:box", "identity"]
        );
        let used = BTreeSet::from(["secretbox:box".to_owned(), "aesgcm:two".to_owned()]);
        assert_eq!(file.prune(&used), ["aesgcm:one"]);
        assert_eq!(providers(&file), ["aesgcm:two identity", "secretbox:two secretbox:box", "identity"]);
        assert_eq!(file.prune(&BTreeSet::new()), ["secretbox:box"]);
        let again = File::parse(&file.text().unwrap()).unwrap();
        assert_eq!(again, file, "what is written is read again");
    }

    #[test]
    fn plain_values_are_encrypted_with_a_key_that_was_added() {
        let text = TEXT.replace("  providers:\n  - aesgcm", "  providers:\n  - identity: {}\n  - aesgcm");
        let text = text.replace(
            "secretbox: {keys: [",
            "secretbox: {keys: [{name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}, ",
        );
        let mut file = File::parse(&text).unwrap();
        assert_eq!(providers(&file)[0], "identity aesgcm:one identity");
        file.promote("one").unwrap();
        assert_eq!(
            providers(&file),
            ["aesgcm:one identity identity", "secretbox:one secretbox:box", "identity"]
        );
    }

    #[test]
    fn what_cannot_be_rotated_is_refused() {
        let plain = TEXT.split("- resources: [secrets").next().unwrap().to_owned();
        let plain = plain + "- resources: [secrets]\n  providers: [{identity: {}}]\n";
        let mut file = File::parse(&plain).unwrap();
        assert!(matches!(file.add("two"), Err(ChangeError::NothingToRotate)));
        assert!(matches!(file.promote("two"), Err(ChangeError::NothingToRotate)));
        for broken in ["", "kind: 3", "kind: A\nresources: []\nmore: 1\n"] {
            assert!(File::parse(broken).is_err(), "{broken}");
        }
        assert!(!format!("{:?}", File::parse(TEXT).unwrap()).contains("MDEy"), "secrets are not printed");
    }
}
