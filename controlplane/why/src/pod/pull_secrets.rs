//! Secrets with the credentials of registries.

use super::registry::registry;
use crate::kinds::Resource;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::core::v1::{Pod, Secret};
use serde_json::Value;

/// What is wrong with the pull secrets of a pod whose image was refused.
pub fn explain(world: &World, pod: View<'_, Pod>, image: &str) -> Option<(Trouble, String)> {
    let namespace = pod.metadata().namespace().text();
    let host = registry(image);
    let (mut invalid, mut usable) = (None, false);
    for reference in pod.spec().image_pull_secrets().items() {
        let name = reference.name().text();
        match world.get::<Secret>(namespace, name) {
            Found::No => {
                let names = world.names(&Resource::of::<Secret>(), namespace);
                let cause = format!(
                    "the Secret {name} in imagePullSecrets does not exist{}",
                    suggestion(name, names)
                );
                return Some((Trouble::ImagePullSecretMissing, cause));
            }
            Found::Yes(secret) => match hosts(secret) {
                None => {
                    invalid =
                        Some(format!("the Secret {name} in imagePullSecrets is no docker-registry Secret"))
                }
                Some(hosts) if !hosts.iter().any(|entry| same(entry, host)) => {
                    let has = hosts.join(", ");
                    invalid = Some(format!(
                        "the Secret {name} in imagePullSecrets has no credentials for {host}, only for {has}"
                    ));
                }
                Some(_) => usable = true,
            },
            Found::Unknown => usable = true,
        }
    }
    invalid.filter(|_| !usable).map(|cause| (Trouble::ImagePullSecretInvalid, cause))
}

/// The registries that a Secret has credentials for; none when it is no such Secret.
fn hosts(secret: View<'_, Secret>) -> Option<Vec<String>> {
    let (key, nested) = match secret.type_().text() {
        "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", true),
        "kubernetes.io/dockercfg" => (".dockercfg", false),
        _ => return None,
    };
    let bytes = STANDARD.decode(secret.data().key(key).text()).ok()?;
    let config: Value = serde_json::from_slice(&bytes).ok()?;
    let entries = if nested { config.get("auths")? } else { &config };
    Some(entries.as_object()?.keys().cloned().collect())
}

/// Whether an entry of a configuration is for a registry.
fn same(entry: &str, host: &str) -> bool {
    let entry = entry.trim_start_matches("https://").trim_start_matches("http://");
    let entry = entry.split('/').next().unwrap_or_default();
    let docker = |name: &str| matches!(name, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    let wildcard = entry.strip_prefix('*').is_some_and(|rest| host.ends_with(rest));
    entry == host || wildcard || (docker(entry) && docker(host))
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn entries_of_a_registry() {
        for (entry, host, expected) in [
            ("https://index.docker.io/v1/", "docker.io", true),
            ("ghcr.io", "ghcr.io", true),
            ("*.example.com", "r.example.com", true),
            ("ghcr.io", "quay.io", false),
        ] {
            assert_eq!(same(entry, host), expected, "{entry} {host}");
        }
    }
}
