//! Environment of a container: `env`, `envFrom`, the downward API, services, and `$(VAR)` expansion. Pure.

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, FileKeySelector, Pod, Secret};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::downward::{self, Downward, Place};
use super::env_file::{self, EnvFileError};
use super::spec;

/// ConfigMaps and Secrets of the pod's namespace that the pod refers to; what is missing does not exist.
#[derive(Clone, Default)]
pub struct Sources {
    /// ConfigMaps by name.
    pub config_maps: HashMap<String, Arc<ConfigMap>>,
    /// Secrets by name.
    pub secrets: HashMap<String, Arc<Secret>>,
    /// Texts of files of variables, by volume and path.
    pub files: HashMap<(String, String), String>,
}

/// Why an environment cannot be made; shown on the pod as `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EnvError {
    /// A ConfigMap or Secret does not exist (yet).
    #[error("{kind} {name:?} not found")]
    Missing {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object exists, the key does not.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Key.
        key: String,
    },
    /// A file of variables is not understood.
    #[error("couldn't parse env file {path:?} of volume {volume:?}: {source}")]
    File {
        /// The volume.
        volume: String,
        /// The file in it.
        path: String,
        /// The cause.
        source: EnvFileError,
    },
    /// The file exists, the variable does not.
    #[error("environment variable key {key:?} not found in file {path:?} of volume {volume:?}")]
    FileKey {
        /// The volume.
        volume: String,
        /// The file in it.
        path: String,
        /// The variable.
        key: String,
    },
    /// A field or resource cannot be read.
    #[error(transparent)]
    Downward(#[from] downward::DownwardError),
}

/// The environment of a container, sorted by name.
pub fn environment(
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    services: &BTreeMap<String, String>,
    facts: &Downward<'_>,
) -> Result<BTreeMap<String, String>, EnvError> {
    let namespace = spec::namespace(pod);
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let mut put = |key: &str, value: String| {
            let name = format!("{prefix}{key}");
            if is_env_name(&name) {
                env.insert(name, value);
            }
        };
        if let Some(reference) = &from.config_map_ref {
            match sources.config_maps.get(&reference.name) {
                Some(map) => map.data.iter().flatten().for_each(|(key, value)| put(key, value.clone())),
                None if reference.optional == Some(true) => {}
                None => return Err(EnvError::Missing { kind: "configmap", name: reference.name.clone() }),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match sources.secrets.get(&reference.name) {
                Some(secret) => secret
                    .data
                    .iter()
                    .flatten()
                    .for_each(|(key, value)| put(key, String::from_utf8_lossy(&value.0).into_owned())),
                None if reference.optional == Some(true) => {}
                None => return Err(EnvError::Missing { kind: "secret", name: reference.name.clone() }),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) if !value.is_empty() => {
                expand(value, |name| env.get(name).or_else(|| services.get(name)).cloned())
            }
            (_, Some(from)) => match sourced(pod, container, from, sources, facts, namespace)? {
                Some(value) => value,
                None => continue,
            },
            _ => String::new(),
        };
        env.insert(variable.name.clone(), value);
    }
    for (name, value) in services {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Ok(env)
}

/// Value of one `valueFrom`; `None` when an optional source is absent.
fn sourced(
    pod: &Pod,
    container: &Container,
    from: &EnvVarSource,
    sources: &Sources,
    facts: &Downward<'_>,
    namespace: &str,
) -> Result<Option<String>, EnvError> {
    if let Some(field) = &from.field_ref {
        return Ok(Some(downward::field(pod, &field.field_path, facts)?));
    }
    if let Some(resource) = &from.resource_field_ref {
        return Ok(Some(downward::resource(pod, Place::Variable(&container.name), resource, facts)?));
    }
    if let Some(reference) = &from.file_key_ref {
        return from_file(reference, sources);
    }
    let (kind, lower, name, key, optional, found) = if let Some(reference) = &from.config_map_key_ref {
        let object = sources.config_maps.get(&reference.name);
        let value = object.map(|map| map.data.as_ref().and_then(|data| data.get(&reference.key)).cloned());
        ("ConfigMap", "configmap", &reference.name, &reference.key, reference.optional, value)
    } else if let Some(reference) = &from.secret_key_ref {
        let object = sources.secrets.get(&reference.name);
        let value = object.map(|secret| {
            let data = secret.data.as_ref().and_then(|data| data.get(&reference.key));
            data.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        });
        ("Secret", "secret", &reference.name, &reference.key, reference.optional, value)
    } else {
        return Ok(Some(String::new()));
    };
    match (found, optional == Some(true)) {
        (Some(Some(value)), _) => Ok(Some(value)),
        (_, true) => Ok(None),
        (None, _) => Err(EnvError::Missing { kind: lower, name: name.clone() }),
        (Some(None), _) => Err(EnvError::MissingKey {
            kind,
            namespace: namespace.to_owned(),
            name: name.clone(),
            key: key.clone(),
        }),
    }
}

fn from_file(reference: &FileKeySelector, sources: &Sources) -> Result<Option<String>, EnvError> {
    let FileKeySelector { key, optional, path, volume_name } = reference;
    let (volume, path) = (volume_name.clone(), path.clone());
    let text = sources.files.get(&(volume.clone(), path.clone())).map_or("", String::as_str);
    match env_file::value(text, key) {
        Ok(Some(value)) => Ok(Some(value)),
        Ok(None) if *optional == Some(true) => Ok(None),
        Ok(None) => Err(EnvError::FileKey { volume, path, key: key.clone() }),
        Err(source) => Err(EnvError::File { volume, path, source }),
    }
}

/// Volumes and paths of the files that a container's environment refers to.
pub fn files(container: &Container) -> impl Iterator<Item = &FileKeySelector> {
    let from = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    from.filter_map(|from| from.file_key_ref.as_ref())
}

/// Names of the ConfigMaps and Secrets a container's environment refers to.
pub fn references(container: &Container) -> (Vec<String>, Vec<String>) {
    let (mut maps, mut secrets) = (Vec::new(), Vec::new());
    for from in container.env_from.iter().flatten() {
        maps.extend(from.config_map_ref.iter().map(|reference| reference.name.clone()));
        secrets.extend(from.secret_ref.iter().map(|reference| reference.name.clone()));
    }
    for from in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        maps.extend(from.config_map_key_ref.iter().map(|reference| reference.name.clone()));
        secrets.extend(from.secret_key_ref.iter().map(|reference| reference.name.clone()));
    }
    (maps, secrets)
}

/// Since 1.34 any printable ASCII name without `=` is allowed.
fn is_env_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| (0x20..=0x7e).contains(&byte) && byte != b'=')
}

/// Replaces `$(NAME)`; `$$` is a dollar sign, and what cannot be resolved stays as it is.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(next) = after.strip_prefix('$') {
            out.push('$');
            rest = next;
        } else if let Some(inside) = after.strip_prefix('(') {
            match inside.find(')') {
                Some(end) => {
                    let name = &inside[..end];
                    match lookup(name) {
                        Some(value) => out.push_str(&value),
                        None => out.push_str(&rest[at..at + 3 + end]),
                    }
                    rest = &inside[end + 1..];
                }
                None => {
                    out.push_str("$(");
                    rest = inside;
                }
            }
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn expansion() {
        let lookup = |name: &str| match name {
            "A" => Some("a".to_owned()),
            "B" => Some("$(A)".to_owned()),
            _ => None,
        };
        for (text, want) in [
            ("$(A)", "a"),
            ("x-$(A)-$(B)", "x-a-$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$(NONE)", "$(NONE)"),
            ("$(A", "$(A"),
            ("$A $", "$A $"),
            ("$()", "$()"),
            ("ü$(A)ü", "üaü"),
        ] {
            assert_eq!(expand(text, lookup), want, "{text}");
        }
    }

    fn build(container: serde_json::Value) -> Result<BTreeMap<String, String>, EnvError> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "serviceAccountName": "sa", "containers": [container]},
        }))
        .unwrap();
        let map: ConfigMap =
            serde_json::from_value(json!({"data": {"k": "v", "other": "o", "bad=name": "x"}})).unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"s": "c2VjcmV0"}})).unwrap();
        let sources = Sources {
            config_maps: HashMap::from([("cm".to_owned(), Arc::new(map))]),
            secrets: HashMap::from([("se".to_owned(), Arc::new(secret))]),
            files: HashMap::from([(("v".to_owned(), "env".to_owned()), "A='from a file'\n".to_owned())]),
        };
        let services = BTreeMap::from([("WEB_SERVICE_HOST".to_owned(), "10.0.0.9".to_owned())]);
        let ips = ["10.1.0.5".to_owned(), "fd00::5".to_owned()];
        let hosts = ["192.0.2.1".to_owned()];
        let allocatable = BTreeMap::from([("cpu".to_owned(), 2000), ("memory".to_owned(), 1 << 30)]);
        let facts = Downward { pod_ips: &ips, host_ips: &hosts, allocatable: &allocatable };
        let container = spec::spec(&pod).containers[0].clone();
        environment(&pod, &container, &sources, &services, &facts)
    }

    #[test]
    fn every_source() {
        let env = build(json!({"name": "c",
            "envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "P_"}, {"secretRef": {"name": "gone", "optional": true}}],
            "env": [
                {"name": "PLAIN", "value": "x"},
                {"name": "REF", "value": "$(PLAIN)/$(P_k)/$(WEB_SERVICE_HOST)/$(NOPE)"},
                {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "se", "key": "s"}}},
                {"name": "SKIPPED", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no", "optional": true}}},
                {"name": "FILE", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "A"}}},
                {"name": "NOFILE", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "B", "optional": true}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "IPS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}},
                {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            ]}))
        .unwrap();
        for (name, want) in [
            ("P_k", Some("v")),
            ("P_bad=name", None),
            ("REF", Some("x/v/10.0.0.9/$(NOPE)")),
            ("KEY", Some("v")),
            ("SECRET", Some("secret")),
            ("SKIPPED", None),
            ("FILE", Some("from a file")),
            ("NOFILE", None),
            ("IP", Some("10.1.0.5")),
            ("IPS", Some("10.1.0.5,fd00::5")),
            ("HOST", Some("192.0.2.1")),
            ("LABEL", Some("web")),
            ("CPU", Some("2")),
            ("MEM", Some("1024")),
            ("WEB_SERVICE_HOST", Some("10.0.0.9")),
        ] {
            assert_eq!(env.get(name).map(String::as_str), want, "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (env, want) in [
            (
                json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "k"}}}]}),
                "configmap \"x\" not found",
            ),
            (
                json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "se", "key": "k"}}}]}),
                "couldn't find key k in Secret ns/se",
            ),
            (json!({"envFrom": [{"secretRef": {"name": "x"}}]}), "secret \"x\" not found"),
        ] {
            let mut container = json!({"name": "c"});
            container.as_object_mut().unwrap().extend(env.as_object().unwrap().clone());
            assert_eq!(build(container).unwrap_err().to_string(), want);
        }
    }
}
