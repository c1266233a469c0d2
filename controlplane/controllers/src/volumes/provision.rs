//! Volumes made on demand: directories on a node's own disk. The node makes the directory when a pod first uses it, and
//! removes it when the volume goes.

use super::directories::{FINALIZER, NODE, announced};
use super::finalizers::VOLUME_PROTECTION;
use super::fit::Claim;
use super::parts::Parts;
use coracle_cli::causes;
use coracle_client::Client;
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim};
use coracle_fields::storage::v1::StorageClass;
use coracle_fields::{Made, Schema as _, View, make};
use coracle_informer::informer::Name;
use coracle_informer::runner::Failure;
use coracle_kinds::object::Object;
use coracle_proto::local_path::{DIRECTORY, PROVISIONED_BY, PROVISIONER, directory_name};
use serde_json::Value;
use std::sync::Arc;

/// The annotation of a claim with the node that the scheduler chose.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The annotations of the class of claims that name none: today's, and the one of older versions.
pub(super) const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Makes the class `local-path` if there is no class at all.
pub(super) async fn ensure_class(client: Client) {
    let kind = client.kind("storage.k8s.io", "storageclasses");
    if !client.cache(&kind).list(None).is_empty() {
        return;
    }
    let class = make!(StorageClass {
        metadata: { name: "local-path", annotations: [(DEFAULT_CLASS[0], "true")] },
        provisioner: PROVISIONER,
        reclaim_policy: "Delete",
        volume_binding_mode: "WaitForFirstConsumer",
    });
    if let Err(error) = client.create(&kind, "", class.into_value()).await
        && !error.is_already_exists()
    {
        tracing::warn!(error = %causes::chain(&error), "cannot create the storage class local-path");
    }
}

/// Why a claim gets no volume.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ProvisionError {
    #[error("configuration error, no node was specified")]
    NoNode,
    #[error("node {0:?} not found")]
    NodeNotFound(String),
    #[error("block volume provisioning is not supported")]
    Block,
    #[error("claim.Spec.Selector is not supported")]
    Selector,
    #[error("config doesn't contain path {path} on node {node}")]
    Directory { path: String, node: String },
}

/// The directory on a node that a class's volumes are put in, and whether the node will remove them.
fn plan_directory(class: View<'_, StorageClass>, node: &Object) -> Result<(String, bool), ProvisionError> {
    let offered = announced(node);
    let wanted = class.parameters().key("path").get().map(|path| path.trim_end_matches('/'));
    match (wanted, offered.first()) {
        // Agents that say nothing remove nothing.
        (wanted, None) => Ok((wanted.unwrap_or(DIRECTORY).to_owned(), false)),
        (None, Some(first)) => Ok((first.clone(), true)),
        (Some(path), Some(_)) if offered.iter().any(|dir| dir == path) => Ok((path.to_owned(), true)),
        (Some(path), Some(_)) => {
            Err(ProvisionError::Directory { path: path.to_owned(), node: node.meta.name.clone() })
        }
    }
}

/// The volume of a claim.
fn plan_volume(
    claim: &Object,
    spec: &Claim,
    class: View<'_, StorageClass>,
    node: &Object,
) -> Result<Made<PersistentVolume>, ProvisionError> {
    if spec.volume_mode == "Block" {
        return Err(ProvisionError::Block);
    }
    if spec.selector.is_some() {
        return Err(ProvisionError::Selector);
    }
    let (directory, removes) = plan_directory(class, node)?;
    let name = format!("pvc-{}", claim.meta.uid);
    let path = format!("{directory}/{}", directory_name(&name, &claim.meta.namespace, &claim.meta.name));
    let mut finalizers = vec![VOLUME_PROTECTION];
    finalizers.extend(removes.then_some(FINALIZER));
    let hostname = node.meta.labels.get("kubernetes.io/hostname").unwrap_or(&node.meta.name);
    let mut volume = make!(PersistentVolume {
        metadata: {
            name,
            finalizers,
            annotations: [(PROVISIONED_BY, PROVISIONER), (NODE, node.meta.name.as_str())],
        },
        spec: {
            access_modes: &spec.access_modes,
            persistent_volume_reclaim_policy: class.reclaim_policy().or("Delete"),
            storage_class_name: class.metadata().name(),
            volume_mode: "Filesystem",
            host_path: { path, type_: "DirectoryOrCreate" },
            claim_ref: {
                kind: "PersistentVolumeClaim",
                api_version: "v1",
                namespace: &claim.meta.namespace,
                name: &claim.meta.name,
                uid: &claim.meta.uid,
            },
            node_affinity: { required: { node_selector_terms: [{
                match_expressions: [{ key: "kubernetes.io/hostname", operator: "In", values: [hostname] }],
            }] } },
        },
    });
    let size = spec.resources.requests.get("storage").map(|size| ("storage".to_owned(), size.clone()));
    volume.edit().spec().capacity().put(Value::Object(size.into_iter().collect()));
    Ok(volume)
}

/// Result of making a volume for a claim.
pub(super) enum Provisioned {
    /// The volume, to be bound to the claim.
    Volume(Arc<Object>),
    /// It is made, and not in the cache yet.
    NotCached,
    /// It was not made; an Event says why.
    Failed,
}

/// Makes a volume on the node that the scheduler chose.
pub(super) async fn provision(
    parts: &Parts,
    claim: &Arc<Object>,
    spec: &Claim,
    class: &Value,
    node: Option<&str>,
) -> Result<Provisioned, Failure> {
    let class = StorageClass::of(class);
    let failed = |why: &dyn std::error::Error| {
        let class = class.metadata().name().text();
        let message = format!("failed to provision volume with StorageClass {class:?}: {why}");
        parts.claims.warn(claim, "ProvisioningFailed", message);
    };
    let Some(node) = node else {
        failed(&ProvisionError::NoNode);
        return Ok(Provisioned::Failed);
    };
    let Some(node) = parts.nodes.get(&Name::new("", node)) else {
        // The scheduler chooses another.
        failed(&ProvisionError::NodeNotFound(node.to_owned()));
        let mut body = claim.copy::<PersistentVolumeClaim>();
        body.edit().metadata().annotations().remove(SELECTED_NODE);
        parts.claims.update(body).await?;
        return Ok(Provisioned::Failed);
    };
    let body = match plan_volume(claim, spec, class, &node) {
        Ok(body) => body,
        Err(error) => {
            failed(&error);
            return Ok(Provisioned::Failed);
        }
    };
    let name = body.view().metadata().name().text().to_owned();
    match parts.volumes.create("", body).await {
        Ok(_) => {
            let message = format!("Successfully provisioned volume {name}");
            parts.claims.normal(claim, "ProvisioningSucceeded", message);
        }
        Err(error) if error.is_already_exists() => {}
        Err(error) => {
            failed(&error);
            return Err(error.into());
        }
    }
    let volume = parts.volumes.get(&Name::new("", &name));
    Ok(volume.map_or(Provisioned::NotCached, Provisioned::Volume))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use coracle_proto::local_path::DIRECTORIES;
    use serde_json::json;

    fn node(dirs: Option<&str>) -> Arc<Object> {
        let mut node = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "host-of-n"}}});
        if let Some(dirs) = dirs {
            node["metadata"]["annotations"] = json!({DIRECTORIES: dirs});
        }
        object(node)
    }

    #[test]
    fn directories_are_the_nodes() {
        let two = Some(r#"["/a", "/b"]"#);
        let refused = Err(ProvisionError::Directory { path: "/c".to_owned(), node: "n".to_owned() });
        for (dirs, path, want) in [
            (two, None, Ok(("/a".to_owned(), true))),
            (two, Some("/b/"), Ok(("/b".to_owned(), true))),
            (two, Some("/c"), refused),
            (None, None, Ok((DIRECTORY.to_owned(), false))),
            (None, Some("/c"), Ok(("/c".to_owned(), false))),
            (Some("no list"), None, Ok((DIRECTORY.to_owned(), false))),
        ] {
            let class = json!({"parameters": {"path": path}});
            let class = StorageClass::of(&class);
            assert_eq!(plan_directory(class, &node(dirs)), want, "{dirs:?} {path:?}");
        }
    }

    #[test]
    fn a_volume_is_tied_to_its_node_and_held_until_its_directory_is_gone() {
        let claim = object(json!({"metadata": {"name": "data", "namespace": "d", "uid": "u"}}));
        let class = json!({"metadata": {"name": "c"}, "reclaimPolicy": "Retain"});
        let class = StorageClass::of(&class);
        let volume = plan_volume(&claim, &Claim::default(), class, &node(Some(r#"["/a"]"#))).unwrap();
        let volume = volume.into_value();
        assert_eq!(volume["spec"]["hostPath"]["path"], "/a/pvc-u_d_data");
        assert_eq!(volume["metadata"]["finalizers"], json!([VOLUME_PROTECTION, FINALIZER]));
        assert_eq!(volume["metadata"]["annotations"][NODE], "n");
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["values"], json!(["host-of-n"]));
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        let volume = plan_volume(&claim, &Claim::default(), class, &node(None)).unwrap().into_value();
        assert_eq!(volume["metadata"]["finalizers"], json!([VOLUME_PROTECTION]), "nobody would clear it");
        let block = Claim { volume_mode: "Block".into(), ..Claim::default() };
        assert!(plan_volume(&claim, &block, class, &node(None)).is_err());
    }
}
