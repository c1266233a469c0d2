//! `EncryptionConfiguration`: which resources are sealed, and with which keys.

use super::kms::Kms;
use super::provider::Provider;
use base64::{Engine, engine::general_purpose::STANDARD};
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
    Parse(PathBuf, String),
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
type Make = fn(&str, &[u8]) -> Result<Provider, String>;

impl ProviderEntry {
    /// Adds the providers of an entry; an error begins with the field that is wrong.
    fn read(self, all: &mut Vec<Provider>) -> Result<(), String> {
        if let Some(service) = self.kms {
            all.push(Provider::Kms(Box::new(kms(&service).map_err(|why| format!("kms: {why}"))?)));
        }
        if self.identity.is_some() {
            all.push(Provider::Identity);
        }
        let ciphers: [(&str, Option<Keys>, Make); 2] =
            [("aesgcm", self.aesgcm, Provider::aes_gcm), ("secretbox", self.secretbox, Provider::secret_box)];
        for (cipher, keys, make) in ciphers {
            for (index, key) in keys.into_iter().flat_map(|keys| keys.keys).enumerate() {
                let made = secret(&key).and_then(|bytes| make(&key.name, &bytes));
                all.push(made.map_err(|why| format!("{cipher}.keys[{index}].secret: {why}"))?);
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
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        if file.kind != "EncryptionConfiguration" {
            return Err(format!("kind: want EncryptionConfiguration, not {:?}", file.kind));
        }
        let mut entries = Vec::new();
        for (index, entry) in file.resources.into_iter().enumerate() {
            let at = format!("resources[{index}]");
            let mut providers = Vec::new();
            for (index, provider) in entry.providers.into_iter().enumerate() {
                let read = provider.read(&mut providers);
                read.map_err(|why| format!("{at}.providers[{index}].{why}"))?;
            }
            if providers.is_empty() || entry.resources.is_empty() {
                return Err(format!(
                    "{at}: needs resources and providers (aesgcm, secretbox, kms, identity)"
                ));
            }
            entries.push((entry.resources, providers));
        }
        Ok(Self(entries))
    }

    /// Asks services for their keys, where they seal.
    pub async fn prepare(&self) -> Result<(), String> {
        for first in self.0.iter().filter_map(|(_, providers)| providers.first()) {
            first.prepare().await?;
        }
        Ok(())
    }

    /// The providers of a key of the store: `/registry/<resource>/…` or `/registry/<group>/<resource>/…`.
    pub fn providers(&self, key: &str) -> &[Provider] {
        let mut parts = key.strip_prefix("/registry/").unwrap_or_default().split('/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // Resources have no dots and groups of resources do, but for the old ones.
        let grouped =
            first.contains('.') || ["apps", "batch", "autoscaling", "policy", "extensions"].contains(&first);
        let (group, resource) = if grouped { (first, second) } else { ("", first) };
        let named = |wanted: &String| match wanted.split_once('.') {
            None => group.is_empty() && wanted == resource,
            Some(("*", "*")) => true,
            Some((name, of)) => of == group && (name == "*" || name == resource),
        };
        let entry = self.0.iter().find(|(resources, _)| resources.iter().any(named));
        entry.map(|(_, providers)| providers.as_slice()).unwrap_or_default()
    }
}

fn kms(service: &Service) -> Result<Kms, String> {
    let Service { api_version, name, endpoint, timeout } = service;
    if api_version != "v2" {
        return Err(format!("KMS {name:?}: want apiVersion v2, not {api_version:?}"));
    }
    if name.is_empty() || name.contains(':') {
        return Err(format!("KMS {name:?}: want a name without colons"));
    }
    let timeout = timeout.as_deref().unwrap_or("3s");
    let timeout = timeout.parse::<jiff::SignedDuration>().ok().and_then(|t| Duration::try_from(t).ok());
    let timeout = timeout.filter(|t| !t.is_zero());
    Kms::new(
        name,
        endpoint,
        timeout.ok_or_else(|| format!("KMS {name:?}: the timeout is no positive duration"))?,
    )
}

fn secret(key: &Key) -> Result<Vec<u8>, String> {
    STANDARD.decode(key.secret.trim()).map_err(|_| format!("the secret of key {:?} is not base64", key.name))
}
