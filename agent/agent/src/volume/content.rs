//! Files of volumes whose content comes from the API. Pure.

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret};
use std::collections::BTreeMap;

use crate::pod::downward::{self, Downward, DownwardError, Place};

/// Why a volume has no content.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ContentError {
    /// The object does not exist (yet).
    #[error("{kind} {name:?} not found")]
    NoObject {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object exists, the key does not.
    #[error("{no_key}: {key}")]
    NoKey {
        /// [`Keyed::NO_KEY`] of the object's kind.
        no_key: &'static str,
        /// The key.
        key: String,
    },
    /// A field or resource cannot be read.
    #[error(transparent)]
    Downward(#[from] DownwardError),
}

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Bytes.
    pub data: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner, when it is not root.
    pub owner: Option<u32>,
}

/// Files by relative path.
pub type Payload = BTreeMap<String, File>;

/// The bits of a mode the API gives as a signed number.
pub fn mode(bits: Option<i32>, default: u32) -> u32 {
    bits.and_then(|bits| u32::try_from(bits).ok()).unwrap_or(default) & 0o777
}

/// Which keys of a ConfigMap or Secret become files.
pub struct Keys<'a> {
    /// Name of the object.
    pub of: &'a str,
    items: Option<&'a Vec<KeyToPath>>,
    optional: bool,
    mode: u32,
}

impl<'a> Keys<'a> {
    /// As the four places of a pod's spec say it that can.
    pub fn new(of: &'a str, items: Option<&'a Vec<KeyToPath>>, optional: Option<bool>, mode: u32) -> Self {
        Self { of, items, optional: optional == Some(true), mode }
    }
}

/// An object whose keys become files.
pub trait Keyed {
    /// What messages call it.
    const KIND: &'static str;
    /// What is said of a key that it does not have.
    const NO_KEY: &'static str;

    /// Bytes by key.
    fn data(&self) -> BTreeMap<&str, &[u8]>;
}

impl Keyed for ConfigMap {
    const KIND: &'static str = "configmap";
    const NO_KEY: &'static str = "configmap references non-existent config key";

    fn data(&self) -> BTreeMap<&str, &[u8]> {
        let text = self.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_bytes()));
        let binary = self.binary_data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice()));
        text.chain(binary).collect()
    }
}

impl Keyed for Secret {
    const KIND: &'static str = "secret";
    const NO_KEY: &'static str = "references non-existent secret key";

    fn data(&self) -> BTreeMap<&str, &[u8]> {
        self.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice())).collect()
    }
}

/// Files of a ConfigMap or Secret; `None` is a missing object.
pub fn files<T: Keyed>(keys: &Keys<'_>, object: Option<&T>) -> Result<Payload, ContentError> {
    let data = match object {
        Some(object) => object.data(),
        None if keys.optional => return Ok(Payload::new()),
        None => return Err(ContentError::NoObject { kind: T::KIND, name: keys.of.to_owned() }),
    };
    let file = |data: &[u8], mode| File { data: data.to_vec(), mode, owner: None };
    let Some(items) = keys.items.filter(|items| !items.is_empty()) else {
        return Ok(data.into_iter().map(|(key, value)| (key.to_owned(), file(value, keys.mode))).collect());
    };
    let mut payload = Payload::new();
    for item in items {
        match data.get(item.key.as_str()) {
            Some(value) => {
                payload.insert(item.path.clone(), file(value, mode(item.mode, keys.mode)));
            }
            None if keys.optional => {}
            None => return Err(ContentError::NoKey { no_key: T::NO_KEY, key: item.key.clone() }),
        }
    }
    Ok(payload)
}

/// Files of a downward API volume.
pub fn downward_api(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: u32,
    facts: &Downward<'_>,
) -> Result<Payload, ContentError> {
    let mut payload = Payload::new();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            downward::field(pod, &field.field_path, facts)
        } else if let Some(resource) = &item.resource_field_ref {
            downward::resource(pod, Place::File, resource, facts)
        } else {
            continue;
        };
        let data = text?.into_bytes();
        payload.insert(item.path.clone(), File { data, mode: mode(item.mode, default_mode), owner: None });
    }
    Ok(payload)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn items_modes_and_what_is_optional() {
        let map: ConfigMap =
            serde_json::from_value(json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AAE="}}))
                .unwrap();
        let items = |value| -> Vec<KeyToPath> { serde_json::from_value(value).unwrap() };
        let config_map = |map: Option<&ConfigMap>, items: Option<&Vec<KeyToPath>>, optional| {
            files(&Keys::new("m", items, optional, 0o644), map)
        };
        let all = config_map(Some(&map), None, None).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(all["c"].data, [0, 1]);
        let picked = items(json!([{"key": "a", "path": "dir/x", "mode": 0o400}]));
        let some = config_map(Some(&map), Some(&picked), None).unwrap();
        assert_eq!(
            some.into_iter().collect::<Vec<_>>(),
            [("dir/x".to_owned(), File { data: b"1".to_vec(), mode: 0o400, owner: None })]
        );
        let wrong = items(json!([{"key": "z", "path": "z"}]));
        assert_eq!(
            config_map(Some(&map), Some(&wrong), Some(false)).unwrap_err().to_string(),
            "configmap references non-existent config key: z"
        );
        assert!(config_map(Some(&map), Some(&wrong), Some(true)).unwrap().is_empty());
        assert_eq!(config_map(None, None, None).unwrap_err().to_string(), "configmap \"m\" not found");
        let secret: Secret = serde_json::from_value(json!({"data": {"a": "MQ=="}})).unwrap();
        let keys = |items, optional| Keys::new("s", items, optional, 0o600);
        assert_eq!(files(&keys(None, None), Some(&secret)).unwrap()["a"].data, b"1");
        assert_eq!(
            files(&keys(Some(&wrong), None), Some(&secret)).unwrap_err().to_string(),
            "references non-existent secret key: z"
        );
        assert_eq!(
            files::<Secret>(&keys(None, None), None).unwrap_err().to_string(),
            "secret \"s\" not found"
        );
        assert!(files::<Secret>(&keys(None, Some(true)), None).unwrap().is_empty());
    }
}
