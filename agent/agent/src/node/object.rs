//! The Node object as this node registers it.

use coracle_fields::make;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::local_path::DIRECTORIES;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;

use super::machine::architecture;
use crate::config::NodeConfig;

/// Labels this node always has.
pub fn labels(config: &NodeConfig, hostname: &str) -> BTreeMap<String, String> {
    let mut labels = config.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", hostname),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture()),
    ] {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    labels
}

/// Annotations this node always has.
fn annotations(config: &NodeConfig) -> BTreeMap<String, String> {
    [
        ("volumes.kubernetes.io/controller-managed-attach-detach", "true".to_owned()),
        (DIRECTORIES, json!(config.storage_dirs).to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// `key=value:effect` or `key:effect`.
pub fn parse_taint(text: &str) -> Option<Taint> {
    let (front, effect) = text.rsplit_once(':')?;
    let (key, value) =
        front.split_once('=').map_or((front, None), |(key, value)| (key, Some(value.to_owned())));
    matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute").then(|| Taint {
        key: key.to_owned(),
        value,
        effect: effect.to_owned(),
        time_added: None,
    })
}

/// Creates the Node, or brings labels and annotations of an existing one up to date.
pub async fn register(api: &Api<Node>, config: &NodeConfig, hostname: &str) -> Result<Node, kube::Error> {
    let labels = labels(config, hostname);
    let taints: Vec<Taint> = config.taints.iter().filter_map(|text| parse_taint(text)).collect();
    let annotations = annotations(config);
    let node = Node {
        metadata: ObjectMeta {
            name: Some(config.name.clone()),
            labels: Some(labels.clone()),
            annotations: Some(annotations.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(taints).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: None,
    };
    match api.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => return other,
    }
    let existing = api.get(&config.name).await?;
    let has = |old: &Option<BTreeMap<String, String>>, wanted: &BTreeMap<String, String>| {
        wanted.iter().all(|(key, value)| old.as_ref().and_then(|old| old.get(key)) == Some(value))
    };
    if has(&existing.metadata.labels, &labels) && has(&existing.metadata.annotations, &annotations) {
        return Ok(existing);
    }
    let patch = make!(part PartialObjectMetadata { metadata: { labels, annotations } });
    api.patch(&config.name, &PatchParams::default(), &Patch::Merge(patch)).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn taints() {
        let taint = parse_taint("a/b=c:NoSchedule").unwrap();
        assert_eq!(
            (taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str()),
            ("a/b", Some("c"), "NoSchedule")
        );
        assert_eq!(parse_taint("k:NoExecute").unwrap().value, None);
        assert!(parse_taint("k=v").is_none() && parse_taint("k:Sometimes").is_none());
    }
}
