//! Registry credentials from image pull secrets. Pure.

use base64::Engine;
use coracle_proto::cri::AuthConfig;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The secret that credentials are from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Tells it from others that had its name.
    pub uid: String,
    /// Of the credentials.
    pub hash: String,
}

impl PullSecret {
    fn of(secret: &Secret, auth: &AuthConfig) -> Self {
        let about = &secret.metadata;
        PullSecret {
            namespace: about.namespace.clone().unwrap_or_default(),
            name: about.name.clone().unwrap_or_default(),
            uid: about.uid.clone().unwrap_or_default(),
            hash: hash(auth),
        }
    }

    /// Whether both are one secret, whatever it held at a time.
    pub fn is_same_object(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
    }
}

/// Of what a registry sees, each part with its length before it: no two credentials have the same text.
fn hash(auth: &AuthConfig) -> String {
    let mut hash = Sha256::new();
    for part in [&auth.username, &auth.password, &auth.auth, &auth.identity_token, &auth.registry_token] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Credentials for an image.
#[derive(Clone)]
pub struct PullCredential {
    /// What the registry is told.
    pub auth: AuthConfig,
    /// Where it is from.
    pub secret: PullSecret,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
    registrytoken: String,
}

/// Credentials that apply to an image, the most specific first.
pub fn credentials(image: &str, secrets: &[&Secret]) -> Vec<PullCredential> {
    let mut found: Vec<(usize, PullCredential)> = Vec::new();
    for secret in secrets {
        for (server, entry) in entries(secret) {
            if let Some(specific) = applies(&server, image) {
                let auth = auth(server, entry);
                found.push((specific, PullCredential { secret: PullSecret::of(secret, &auth), auth }));
            }
        }
    }
    found.sort_by_key(|(specific, _)| std::cmp::Reverse(*specific));
    found.into_iter().map(|(_, credential)| credential).collect()
}

fn entries(secret: &Secret) -> Vec<(String, Entry)> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    if let Some(bytes) = data(".dockerconfigjson") {
        let config = serde_json::from_slice::<DockerConfig>(&bytes.0);
        return config.map(|config| config.auths.into_iter().collect()).unwrap_or_default();
    }
    if let Some(bytes) = data(".dockercfg") {
        let config = serde_json::from_slice::<BTreeMap<String, Entry>>(&bytes.0);
        return config.map(|config| config.into_iter().collect()).unwrap_or_default();
    }
    vec![]
}

/// How many characters of the image's name the server matches; `None` when it does not.
fn applies(server: &str, image: &str) -> Option<usize> {
    let server = server.strip_prefix("https://").or(server.strip_prefix("http://")).unwrap_or(server);
    let server = server.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
    let (host, path) = server.split_once('/').map_or((server, ""), |(host, path)| (host, path));
    let (image_host, image_path) = split(image);
    let host = if matches!(host, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { host };
    let host_matches = match host.strip_prefix("*.") {
        Some(rest) => image_host.split_once('.').is_some_and(|(_, tail)| tail == rest),
        None => host == image_host,
    };
    let path_matches = path.is_empty() || image_path == path || image_path.starts_with(&format!("{path}/"));
    (host_matches && path_matches).then_some(server.len())
}

/// Registry host and repository of an image name.
fn split(image: &str) -> (&str, &str) {
    match image.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
            (if host == "index.docker.io" { "docker.io" } else { host }, path)
        }
        _ => ("docker.io", image),
    }
}

fn auth(server: String, entry: Entry) -> AuthConfig {
    let (mut username, mut password) = (entry.username, entry.password);
    if username.is_empty()
        && let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(entry.auth.trim())
        && let Some((user, pass)) = String::from_utf8_lossy(&bytes).trim_end_matches('\0').split_once(':')
    {
        (username, password) = (user.to_owned(), pass.to_owned());
    }
    AuthConfig {
        username,
        password,
        server_address: server,
        identity_token: entry.identitytoken,
        registry_token: entry.registrytoken,
        ..AuthConfig::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::ByteString;

    #[test]
    fn the_most_specific_first() {
        let json = r#"{"auths": {"reg.example.com": {"username": "a", "password": "1"}, "https://reg.example.com/team": {"auth": "Yjoy"},
            "https://index.docker.io/v1/": {"username": "hub", "password": "x"}, "*.example.org": {"username": "w"}}}"#;
        let secret = Secret {
            data: Some([(".dockerconfigjson".to_owned(), ByteString(json.into()))].into()),
            ..Secret::default()
        };
        let users = |image: &str| -> Vec<String> {
            credentials(image, &[&secret]).into_iter().map(|credential| credential.auth.username).collect()
        };
        assert_eq!(users("reg.example.com/team/app:1"), ["b", "a"]);
        assert_eq!(users("reg.example.com/other/app"), ["a"]);
        assert_eq!(users("nginx"), ["hub"]);
        assert_eq!(users("x.example.org/app"), ["w"]);
        assert!(users("other.io/app").is_empty());
    }

    #[test]
    fn credentials_say_which_secret_they_are_from() {
        let of = |namespace: &str, uid: &str, password: &str| {
            let json =
                format!(r#"{{"auths": {{"reg.example": {{"username": "a", "password": "{password}"}}}}}}"#);
            let mut secret = Secret {
                data: Some([(".dockerconfigjson".to_owned(), ByteString(json.into_bytes()))].into()),
                ..Secret::default()
            };
            secret.metadata.namespace = Some(namespace.into());
            secret.metadata.name = Some("pull".into());
            secret.metadata.uid = Some(uid.into());
            credentials("reg.example/app", &[&secret]).remove(0).secret
        };
        let first = of("a", "1", "x");
        assert_eq!((first.namespace.as_str(), first.name.as_str(), first.uid.as_str()), ("a", "pull", "1"));
        assert_eq!(first.hash, of("b", "2", "x").hash);
        assert_ne!(first.hash, of("a", "1", "y").hash);
        assert!(first.is_same_object(&of("a", "1", "y")) && !first.is_same_object(&of("a", "2", "x")));
    }
}
