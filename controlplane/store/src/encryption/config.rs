//! `EncryptionConfiguration`: which resources are encrypted, and with which keys.

use super::kms::Kms;
use super::provider::Provider;
use super::{EncryptionError, KeyError, ServiceError};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::yaml::YamlError;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is no configuration.
    #[error("{0} is no EncryptionConfiguration: {1}")]
    Parse(PathBuf, FormatError),
}

/// What is wrong with the text of the file, and at which field.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It is no YAML of this form.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// It is of another kind.
    #[error("kind: want EncryptionConfiguration, not {0:?}")]
    Kind(String),
    /// An entry has no resources or no providers.
    #[error("resources[{0}]: needs resources and providers (aesgcm, secretbox, kms, identity)")]
    Empty(usize),
    /// A provider cannot be used.
    #[error("resources[{entry}].providers[{index}].{why}")]
    Provider {
        /// The entry of the provider.
        entry: usize,
        /// Its place in the entry.
        index: usize,
        /// What is wrong with it.
        why: ProviderError,
    },
}

/// What is wrong with a provider; begins with the field.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The key management service cannot be used.
    #[error("kms: {0}")]
    Kms(ServiceError),
    /// A key cannot be used.
    #[error("{cipher}.keys[{index}].secret: {why}")]
    Secret {
        /// The field of the cipher.
        cipher: &'static str,
        /// The place of the key.
        index: usize,
        /// What is wrong with it.
        why: KeyError,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    kind: String,
    resources: Vec<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    resources: Vec<String>,
    providers: Vec<ProviderEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProviderEntry {
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    kms: Option<Service>,
    identity: Option<serde_json::Value>,
}

/// Makes a provider of a cipher from a key's name and bytes.
type Make = fn(&str, &[u8]) -> Result<Provider, KeyError>;

impl ProviderEntry {
    /// Adds the providers of an entry.
    fn read(self, all: &mut Vec<Provider>) -> Result<(), ProviderError> {
        if let Some(service) = self.kms {
            all.push(Provider::Kms(Box::new(kms(&service).map_err(ProviderError::Kms)?)));
        }
        if self.identity.is_some() {
            all.push(Provider::Identity);
        }
        let ciphers: [(&'static str, Option<Keys>, Make); 2] =
            [("aesgcm", self.aesgcm, Provider::aes_gcm), ("secretbox", self.secretbox, Provider::secret_box)];
        for (cipher, keys, make) in ciphers {
            for (index, key) in keys.into_iter().flat_map(|keys| keys.keys).enumerate() {
                let made = secret(&key).and_then(|bytes| make(&key.name, &bytes));
                all.push(made.map_err(|why| ProviderError::Secret { cipher, index, why })?);
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Service {
    api_version: String,
    name: String,
    endpoint: String,
    timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Key {
    name: String,
    secret: String,
}

/// Providers by resource; the first entry that names a resource has it.
#[derive(Default)]
pub struct Config(Vec<(Vec<String>, Vec<Provider>)>);

impl Config {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|e| ConfigError::Read(path.into(), e))?;
        Self::parse(&text).map_err(|why| ConfigError::Parse(path.into(), why))
    }

    /// Reads its text.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let file: File = coracle_cli::yaml::from_str(text)?;
        if file.kind != "EncryptionConfiguration" {
            return Err(FormatError::Kind(file.kind));
        }
        let mut entries = Vec::new();
        for (entry, Entry { resources, providers: listed }) in file.resources.into_iter().enumerate() {
            let mut providers = Vec::new();
            for (index, provider) in listed.into_iter().enumerate() {
                let read = provider.read(&mut providers);
                read.map_err(|why| FormatError::Provider { entry, index, why })?;
            }
            if providers.is_empty() || resources.is_empty() {
                return Err(FormatError::Empty(entry));
            }
            entries.push((resources, providers));
        }
        Ok(Self(entries))
    }

    /// Whether the file itself has keys; those of a key management service are elsewhere.
    pub fn has_keys(&self) -> bool {
        let mut all = self.0.iter().flat_map(|(_, providers)| providers);
        all.any(|provider| matches!(provider, Provider::AesGcm(..) | Provider::SecretBox(..)))
    }

    /// Asks key management services for their current keys.
    pub async fn prepare(&self) -> Result<(), EncryptionError> {
        for first in self.0.iter().filter_map(|(_, providers)| providers.first()) {
            first.prepare().await?;
        }
        Ok(())
    }

    /// The resources of each entry and the names of its providers, in their order.
    pub fn entries(&self) -> Vec<(Vec<String>, Vec<String>)> {
        let names = |providers: &[Provider]| providers.iter().map(Provider::name).collect();
        self.0.iter().map(|(resources, providers)| (resources.clone(), names(providers))).collect()
    }

    /// A resource and the provider that writes it, if servers that have only `before` could not read what is written with this
    /// configuration. When in doubt, there is one.
    pub fn unreadable_by(&self, before: &Self) -> Option<(String, String)> {
        const PLAIN: &str = "identity";
        let readable = |resource: &str, provider: &str| {
            let mut complete = provider == PLAIN;
            for (others, providers) in &before.0 {
                let wider = others.iter().any(|other| covers(other, resource));
                let touched = wider || others.iter().any(|other| covers(resource, other));
                if touched && !providers.iter().any(|known| known.name() == provider) {
                    return false;
                }
                complete |= wider;
            }
            complete
        };
        let written = self.0.iter().flat_map(|(resources, providers)| {
            let first = providers.first().map_or_else(|| PLAIN.to_owned(), Provider::name);
            resources.iter().map(move |resource| (resource.clone(), first.clone()))
        });
        // Resources that are not encrypted any more.
        let named =
            |resource: &String| self.0.iter().any(|(own, _)| own.iter().any(|one| covers(one, resource)));
        let plain = before.0.iter().flat_map(|(resources, _)| resources).filter(|resource| !named(resource));
        let plain = plain.map(|resource| (resource.clone(), PLAIN.to_owned()));
        written.chain(plain).find(|(resource, provider)| !readable(resource, provider))
    }

    /// Whether the first part of a key is a group. Resources have no dots and groups of resources do, but for the old ones.
    pub(super) fn is_group(first: &str) -> bool {
        first.contains('.') || ["apps", "batch", "autoscaling", "policy", "extensions"].contains(&first)
    }

    /// The providers of a key of the store: `/registry/<resource>/…` or `/registry/<group>/<resource>/…`.
    pub fn providers(&self, key: &str) -> &[Provider] {
        let mut parts = key.strip_prefix("/registry/").unwrap_or_default().split('/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (group, resource) = if Self::is_group(first) { (first, second) } else { ("", first) };
        let named = |wanted: &String| match wanted.split_once('.') {
            None => group.is_empty() && wanted == resource,
            Some(("*", "*")) => true,
            Some((name, of)) => of == group && (name == "*" || name == resource),
        };
        let entry = self.0.iter().find(|(resources, _)| resources.iter().any(named));
        entry.map(|(_, providers)| providers.as_slice()).unwrap_or_default()
    }
}

/// Whether the resources that `wide` names include those of `narrow`: `*.*` all, `*.apps` those of a group.
fn covers(wide: &str, narrow: &str) -> bool {
    let group = |resource: &str| resource.split_once('.').map(|(_, group)| group.to_owned());
    wide == narrow
        || wide == "*.*"
        || wide.strip_prefix("*.").is_some_and(|of| group(narrow).is_some_and(|group| group == of))
}

fn kms(service: &Service) -> Result<Kms, ServiceError> {
    let Service { api_version, name, endpoint, timeout } = service;
    if api_version != "v2" {
        return Err(ServiceError::Version { name: name.clone(), version: api_version.clone() });
    }
    if name.is_empty() || name.contains(':') {
        return Err(ServiceError::Name(name.clone()));
    }
    let timeout = timeout.as_deref().unwrap_or("3s");
    let timeout = timeout.parse::<jiff::SignedDuration>().ok().and_then(|t| Duration::try_from(t).ok());
    let timeout = timeout.filter(|t| !t.is_zero());
    Kms::new(name, endpoint, timeout.ok_or_else(|| ServiceError::Timeout(name.clone()))?)
}

fn secret(key: &Key) -> Result<Vec<u8>, KeyError> {
    STANDARD.decode(key.secret.trim()).map_err(|_| KeyError::Base64(key.name.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(entries: &[(&str, &str)]) -> Config {
        let secret = STANDARD.encode([7; 32]);
        let entry = |(resources, providers): &(&str, &str)| {
            let providers = providers.split(' ').map(|name| match name {
                "identity" => "{identity: {}}".to_owned(),
                name => format!("{{aesgcm: {{keys: [{{name: {name}, secret: {secret}}}]}}}}"),
            });
            let providers = providers.collect::<Vec<_>>().join(", ");
            format!("- resources: [{resources}]\n  providers: [{providers}]\n")
        };
        let entries: String = entries.iter().map(entry).collect();
        match entries.is_empty() {
            true => Config::default(),
            false => Config::parse(&format!("kind: EncryptionConfiguration\nresources:\n{entries}")).unwrap(),
        }
    }

    #[test]
    fn keys_must_be_known_everywhere_before_they_encrypt() {
        type Entries = &'static [(&'static str, &'static str)];
        type Case = (Entries, Entries, Option<(&'static str, &'static str)>);
        let cases: [Case; 14] = [
            (&[("secrets", "a")], &[("secrets", "a b")], None),
            (&[("secrets", "a b")], &[("secrets", "b a")], None),
            (&[("secrets", "b a")], &[("secrets", "b")], None),
            (&[("secrets", "a")], &[("secrets", "b a")], Some(("secrets", "aesgcm:b"))),
            // Encryption begins, and ends.
            (&[], &[("secrets", "a identity")], Some(("secrets", "aesgcm:a"))),
            (&[], &[("secrets", "identity a")], None),
            (&[("secrets", "identity a")], &[("secrets", "a identity")], None),
            (&[("secrets", "a identity")], &[], None),
            (&[("secrets", "a")], &[], Some(("secrets", "identity"))),
            // More and fewer resources.
            (&[("secrets", "a")], &[("'secrets', configmaps", "a")], Some(("configmaps", "aesgcm:a"))),
            (&[("'*.*'", "a")], &[("secrets", "a"), ("'*.*'", "a")], None),
            (&[("secrets", "a"), ("'*.*'", "b")], &[("'*.*'", "b")], Some(("*.*", "aesgcm:b"))),
            (&[("'*.apps'", "a")], &[("deployments.apps", "a"), ("'*.apps'", "a")], None),
            (
                &[("'*.apps'", "a")],
                &[("deployments.batch", "a"), ("'*.apps'", "a")],
                Some(("deployments.batch", "aesgcm:a")),
            ),
        ];
        for (before, after, want) in cases {
            let found = config(after).unreadable_by(&config(before));
            let found = found.as_ref().map(|(resource, provider)| (resource.as_str(), provider.as_str()));
            assert_eq!(found, want, "{before:?} {after:?}");
        }
    }
}
