//! References to objects of the API, which static pods may not have: the node would read the objects with its own rights, for a pod
//! that no authorizer was asked about.

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};

use crate::pod::spec;

/// The kind of object that a pod refers to, in the words of Kubernetes; `None` if it refers to none.
pub fn api_reference(spec: &PodSpec) -> Option<&'static str> {
    let mut accounts = [&spec.service_account_name, &spec.service_account].into_iter().flatten();
    if accounts.any(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    let mut containers = spec::containers(spec);
    let has_pull_secrets = spec.image_pull_secrets.as_ref().is_some_and(|names| !names.is_empty());
    if has_pull_secrets || containers.any(|(_, container)| reads_secret(&container)) {
        return Some("secrets");
    }
    if spec::containers(spec).any(|(_, container)| reads_config_map(&container)) {
        return Some("configmaps");
    }
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        return Some("resourceclaims");
    }
    spec.volumes.iter().flatten().find_map(of_volume)
}

fn reads_secret(container: &Container) -> bool {
    let mut variables = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    variables.any(|from| from.secret_key_ref.is_some())
        || container.env_from.iter().flatten().any(|from| from.secret_ref.is_some())
}

fn reads_config_map(container: &Container) -> bool {
    let mut variables = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    variables.any(|from| from.config_map_key_ref.is_some())
        || container.env_from.iter().flatten().any(|from| from.config_map_ref.is_some())
}

fn of_volume(volume: &Volume) -> Option<&'static str> {
    let has_secret = volume.cephfs.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.cinder.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.flex_volume.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.iscsi.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.rbd.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.storageos.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.scale_io.is_some();
    let references = [
        (has_secret, "secrets"),
        (volume.config_map.is_some(), "configmaps (via configmap volumes)"),
        (volume.secret.is_some(), "secrets (via secret volumes)"),
        (volume.csi.is_some(), "csidrivers (via CSI volumes)"),
        (volume.glusterfs.is_some(), "endpoints (via glusterFS volumes)"),
        (volume.persistent_volume_claim.is_some(), "persistentvolumeclaims"),
        (volume.ephemeral.is_some(), "persistentvolumeclaims (via ephemeral volumes)"),
        (volume.azure_file.is_some(), "secrets (via azureFile volumes)"),
    ];
    let direct = references.into_iter().find(|(is_there, _)| *is_there).map(|(_, resource)| resource);
    direct.or_else(|| projected(volume))
}

fn projected(volume: &Volume) -> Option<&'static str> {
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let mut references = sources.flat_map(|source| {
        [
            (source.config_map.is_some(), "configmaps (via projected volumes)"),
            (source.secret.is_some(), "secrets (via projected volumes)"),
            (source.service_account_token.is_some(), "serviceaccounts (via projected volumes)"),
            (source.cluster_trust_bundle.is_some(), "clustertrustbundles"),
            (source.pod_certificate.is_some(), "podcertificates"),
        ]
    });
    references.find(|(is_there, _)| *is_there).map(|(_, resource)| resource)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn reference(mut spec: Value, container: &Value) -> Option<&'static str> {
        let mut full = json!({"name": "c", "image": "i"});
        full.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        spec["containers"] = json!([full]);
        api_reference(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn pods_that_refer_to_objects_are_found() {
        let key = json!({"name": "o", "key": "k"});
        for (container, want) in [
            (json!({"env": [{"name": "A", "value": "1"}]}), None),
            (
                json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
                None,
            ),
            (json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": key}}]}), Some("secrets")),
            (json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": key}}]}), Some("configmaps")),
            (json!({"envFrom": [{"secretRef": {"name": "o"}}]}), Some("secrets")),
            (json!({"envFrom": [{"configMapRef": {"name": "o"}}]}), Some("configmaps")),
        ] {
            assert_eq!(reference(json!({}), &container), want, "{container}");
        }
        for (spec, want) in [
            (json!({"serviceAccountName": "a"}), Some("serviceaccounts")),
            (json!({"serviceAccount": "a"}), Some("serviceaccounts")),
            (json!({"serviceAccountName": "", "imagePullSecrets": []}), None),
            (json!({"imagePullSecrets": [{"name": "o"}]}), Some("secrets")),
            (json!({"resourceClaims": [{"name": "r", "resourceClaimName": "o"}]}), Some("resourceclaims")),
        ] {
            assert_eq!(reference(spec.clone(), &json!({})), want, "{spec}");
        }
    }

    #[test]
    fn volumes_of_objects_are_found() {
        let projected = |source: Value| json!({"projected": {"sources": [{"downwardAPI": {}}, source]}});
        let token = json!({"serviceAccountToken": {"path": "token"}});
        for (mut volume, want) in [
            (json!({"emptyDir": {}}), None),
            (json!({"hostPath": {"path": "/x"}}), None),
            (json!({"downwardAPI": {}}), None),
            (projected(json!({"downwardAPI": {}})), None),
            (json!({"configMap": {"name": "o"}}), Some("configmaps (via configmap volumes)")),
            (json!({"secret": {"secretName": "o"}}), Some("secrets (via secret volumes)")),
            (json!({"csi": {"driver": "d"}}), Some("csidrivers (via CSI volumes)")),
            (json!({"persistentVolumeClaim": {"claimName": "o"}}), Some("persistentvolumeclaims")),
            (json!({"ephemeral": {}}), Some("persistentvolumeclaims (via ephemeral volumes)")),
            (
                json!({"iscsi": {"targetPortal": "p", "iqn": "q", "lun": 0, "secretRef": {"name": "o"}}}),
                Some("secrets"),
            ),
            (projected(json!({"configMap": {"name": "o"}})), Some("configmaps (via projected volumes)")),
            (projected(json!({"secret": {"name": "o"}})), Some("secrets (via projected volumes)")),
            (projected(token), Some("serviceaccounts (via projected volumes)")),
            (projected(json!({"clusterTrustBundle": {"path": "p"}})), Some("clustertrustbundles")),
        ] {
            volume["name"] = json!("v");
            assert_eq!(reference(json!({"volumes": [volume]}), &json!({})), want, "{volume}");
        }
    }
}
