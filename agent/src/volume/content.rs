//! Files of volumes whose content comes from the API. Pure.

use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret};
use std::collections::BTreeMap;

use crate::pod::downward::{self, Downward};

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

/// Files of a ConfigMap; `None` is a missing object.
pub fn config_map(
    name: &str,
    object: Option<&ConfigMap>,
    items: Option<&Vec<KeyToPath>>,
    optional: bool,
    default_mode: u32,
) -> Result<Payload, String> {
    let Some(object) = object else {
        return if optional { Ok(Payload::new()) } else { Err(format!("configmap {name:?} not found")) };
    };
    let text = object.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_bytes()));
    let binary = object.binary_data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice()));
    select(
        text.chain(binary).collect(),
        items,
        optional,
        default_mode,
        "configmap references non-existent config key",
    )
}

/// Files of a Secret; `None` is a missing object.
pub fn secret(
    name: &str,
    object: Option<&Secret>,
    items: Option<&Vec<KeyToPath>>,
    optional: bool,
    default_mode: u32,
) -> Result<Payload, String> {
    let Some(object) = object else {
        return if optional { Ok(Payload::new()) } else { Err(format!("secret {name:?} not found")) };
    };
    let data = object.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice()));
    select(data.collect(), items, optional, default_mode, "references non-existent secret key")
}

fn select(
    data: BTreeMap<&str, &[u8]>,
    items: Option<&Vec<KeyToPath>>,
    optional: bool,
    default_mode: u32,
    missing: &str,
) -> Result<Payload, String> {
    let file = |data: &[u8], mode| File { data: data.to_vec(), mode, owner: None };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data
            .into_iter()
            .map(|(key, value)| (key.to_owned(), file(value, default_mode)))
            .collect());
    };
    let mut payload = Payload::new();
    for item in items {
        match data.get(item.key.as_str()) {
            Some(value) => {
                payload.insert(item.path.clone(), file(value, mode(item.mode, default_mode)));
            }
            None if optional => {}
            None => return Err(format!("{missing}: {}", item.key)),
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
) -> Result<Payload, String> {
    let mut payload = Payload::new();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            downward::field(pod, &field.field_path, facts)
        } else if let Some(resource) = &item.resource_field_ref {
            downward::resource(pod, None, resource, facts)
        } else {
            continue;
        };
        let data = text.map_err(|error| error.to_string())?.into_bytes();
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
        let all = config_map("m", Some(&map), None, false, 0o644).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(all["c"].data, [0, 1]);
        let picked = items(json!([{"key": "a", "path": "dir/x", "mode": 0o400}]));
        let some = config_map("m", Some(&map), Some(&picked), false, 0o644).unwrap();
        assert_eq!(
            some.into_iter().collect::<Vec<_>>(),
            [("dir/x".to_owned(), File { data: b"1".to_vec(), mode: 0o400, owner: None })]
        );
        let wrong = items(json!([{"key": "z", "path": "z"}]));
        assert_eq!(
            config_map("m", Some(&map), Some(&wrong), false, 0o644).unwrap_err(),
            "configmap references non-existent config key: z"
        );
        assert!(config_map("m", Some(&map), Some(&wrong), true, 0o644).unwrap().is_empty());
        assert_eq!(config_map("m", None, None, false, 0o644).unwrap_err(), "configmap \"m\" not found");
        assert!(secret("s", None, None, true, 0o644).unwrap().is_empty());
    }
}
