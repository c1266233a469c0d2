//! Registry credentials from image pull secrets. Pure.

use base64::Engine;
use coracle_proto::cri::AuthConfig;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;

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
pub fn credentials(image: &str, secrets: &[&Secret]) -> Vec<AuthConfig> {
    let mut found: Vec<(usize, AuthConfig)> = Vec::new();
    for (server, entry) in secrets.iter().flat_map(|secret| entries(secret)) {
        if let Some(specific) = applies(&server, image) {
            found.push((specific, auth(server, entry)));
        }
    }
    found.sort_by_key(|(specific, _)| std::cmp::Reverse(*specific));
    found.into_iter().map(|(_, auth)| auth).collect()
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
            credentials(image, &[&secret]).into_iter().map(|auth| auth.username).collect()
        };
        assert_eq!(users("reg.example.com/team/app:1"), ["b", "a"]);
        assert_eq!(users("reg.example.com/other/app"), ["a"]);
        assert_eq!(users("nginx"), ["hub"]);
        assert_eq!(users("x.example.org/app"), ["w"]);
        assert!(users("other.io/app").is_empty());
    }
}
