//! Which keys stored values are encrypted with, from their prefixes.

use super::config::Config;
use super::decrypt;
use super::provider::{is_encrypted, name_of};
use crate::{KeyValue, Store, StoreError};
use futures::TryStreamExt;
use std::collections::{BTreeMap, BTreeSet};

/// Objects of the API.
pub(super) const OBJECTS: &str = "/registry/";

/// How many values of a resource are encrypted with which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The resource as it is in keys of the store: `secrets`, `apps/deployments`.
    pub resource: String,
    /// The provider: `aesgcm:key1`, `identity`.
    pub provider: String,
    /// How many.
    pub count: u64,
}

/// Counts the values of configured resources, and those of other resources that are encrypted nevertheless. `store` is the one
/// that is not encrypted.
pub async fn count(store: &dyn Store, config: &Config) -> Result<Vec<Usage>, StoreError> {
    let mut counts = BTreeMap::<(String, String), u64>::new();
    let mut keys = store.export(OBJECTS).await?.keys;
    while let Some(one) = keys.try_next().await? {
        let provider = name_of(&one.value);
        if config.providers(&one.key).is_empty() && provider == "identity" {
            continue;
        }
        *counts.entry((resource_of(&one.key), provider)).or_default() += 1;
    }
    Ok(counts.into_iter().map(|((resource, provider), count)| Usage { resource, provider, count }).collect())
}

/// The first key whose value no provider of the configuration has encrypted, if there is one.
pub(super) async fn first_unreadable(
    store: &dyn Store,
    config: &Config,
) -> Result<Option<String>, StoreError> {
    let mut keys = store.export(OBJECTS).await?.keys;
    let mut known = BTreeSet::new();
    while let Some(one) = keys.try_next().await? {
        if !is_recognized(&one, config) {
            return Ok(Some(one.key));
        }
        // One value of each key is decrypted: another secret under the same name is noticed.
        if known.insert((resource_of(&one.key), name_of(&one.value)))
            && decrypt(config, &one.key, &one.value).await.is_err()
        {
            return Ok(Some(one.key));
        }
    }
    Ok(None)
}

fn is_recognized(one: &KeyValue, config: &Config) -> bool {
    let providers = config.providers(&one.key);
    match providers.is_empty() {
        true => !is_encrypted(&one.value),
        false => providers.iter().any(|provider| provider.made(&one.value)),
    }
}

/// The first parts of a key: one for the core group, two for others.
fn resource_of(key: &str) -> String {
    let mut parts = key.strip_prefix(OBJECTS).unwrap_or(key).split('/');
    let first = parts.next().unwrap_or_default();
    match Config::is_group(first) {
        true => format!("{first}/{}", parts.next().unwrap_or_default()),
        false => first.to_owned(),
    }
}
