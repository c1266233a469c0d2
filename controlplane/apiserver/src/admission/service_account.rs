//! ServiceAccount: every pod runs as an account of its namespace and gets a token for the API.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a little: what a token lives that the node renews in time.
const TOKEN_LIFE: i64 = 3607;

/// The plugin.
pub struct ServiceAccount;

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if at.operation != Operation::Create
            || !at.is("", "pods")
            || pod["metadata"]["annotations"].get(MIRROR).is_some()
        {
            return Ok(());
        }
        let spec = &mut pod["spec"];
        let name =
            spec["serviceAccountName"].as_str().or(spec["serviceAccount"].as_str()).unwrap_or_default();
        let name = if name.is_empty() { "default".to_owned() } else { name.to_owned() };
        spec["serviceAccountName"] = json!(name);
        spec["serviceAccount"] = json!(name);
        let kind = at
            .api
            .objects()
            .registry
            .resource("", "v1", "serviceaccounts")
            .ok_or_else(ApiError::no_such_path)?;
        let Ok(account) = at.api.objects().get(&kind, at.namespace, &name).await else {
            return Err(at.forbidden(format!(
                "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
                at.namespace
            )));
        };
        let account = account.value();
        let mounts = spec["automountServiceAccountToken"]
            .as_bool()
            .or(account["automountServiceAccountToken"].as_bool())
            .unwrap_or(true);
        if mounts {
            mount_token(spec);
        }
        if spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
            && let Some(secrets) = account["imagePullSecrets"].as_array().filter(|s| !s.is_empty())
        {
            spec["imagePullSecrets"] = json!(secrets);
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let mirror = pod["metadata"]["annotations"].get(MIRROR).is_some();
        if at.operation != Operation::Create || !at.is("", "pods") || !mirror {
            return Ok(());
        }
        if pod["spec"]["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
            return Err(at.forbidden("a mirror pod may not reference service accounts"));
        }
        Ok(())
    }
}

fn mount_token(spec: &mut Value) {
    let mut name = String::new();
    for list in ["initContainers", "containers"] {
        let count = spec[list].as_array().map_or(0, Vec::len);
        for i in 0..count {
            let mounts = spec[list][i]["volumeMounts"].as_array().into_iter().flatten();
            if mounts.clone().any(|m| m["mountPath"] == MOUNT) {
                continue;
            }
            if name.is_empty() {
                name = volume_name(spec);
            }
            let mount = json!({"name": name, "mountPath": MOUNT, "readOnly": true});
            match spec[list][i]["volumeMounts"].as_array_mut() {
                Some(mounts) => mounts.push(mount),
                None => spec[list][i]["volumeMounts"] = json!([mount]),
            }
        }
    }
    if name.is_empty() || has_volume(spec, &name) {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_LIFE, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    match spec["volumes"].as_array_mut() {
        Some(volumes) => volumes.push(volume),
        None => spec["volumes"] = json!([volume]),
    }
}

fn has_volume(spec: &Value, name: &str) -> bool {
    spec["volumes"].as_array().is_some_and(|all| all.iter().any(|v| v["name"] == name))
}

/// The name of a volume that is there already, or a new one that no volume has.
fn volume_name(spec: &Value) -> String {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    if let Some(there) =
        volumes.filter_map(|v| v["name"].as_str()).find(|n| n.starts_with("kube-api-access-"))
    {
        return there.to_owned();
    }
    let mut meta = json!({"metadata": {"generateName": "kube-api-access-"}});
    crate::metadata::redraw_name(&mut meta);
    meta["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
