//! Credentials, and the files of docker's that hold them (`~/.docker/config.json`, `kubernetes.io/dockerconfigjson`
//! and the older `kubernetes.io/dockercfg` secrets).

use std::{collections::BTreeMap, fmt};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::Reference;

/// Registry credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Anonymous.
    #[default]
    Anonymous,
    /// User and password, directly or to a token server.
    Basic {
        /// User name.
        username: String,
        /// Password or access token.
        password: String,
    },
    /// A ready bearer token.
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::Anonymous => "Anonymous",
            Credentials::Basic { .. } => "Basic(…)",
            Credentials::Bearer(_) => "Bearer(…)",
        })
    }
}

impl Credentials {
    /// From the fields of CRI's `AuthConfig`; the first non-empty one is used.
    pub fn from_parts(
        username: &str,
        password: &str,
        auth: &str,
        identity_token: &str,
        registry_token: &str,
    ) -> Self {
        if !username.is_empty() {
            return Credentials::Basic { username: username.into(), password: password.into() };
        }
        if !registry_token.is_empty() {
            return Credentials::Bearer(registry_token.into());
        }
        if !identity_token.is_empty() {
            // Token servers take an identity token as the password of this user.
            return Credentials::Basic { username: "<token>".into(), password: identity_token.into() };
        }
        decode(auth).unwrap_or_default()
    }
}

fn decode(auth: &str) -> Option<Credentials> {
    let text = String::from_utf8(BASE64_STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Credentials::Basic { username: username.into(), password: password.trim_end_matches('\0').into() })
}

#[derive(Deserialize, Default)]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
    #[serde(default, rename = "identitytoken")]
    identity_token: String,
    #[serde(default, rename = "registrytoken")]
    registry_token: String,
}

/// Credentials by registry, host glob or repository prefix.
#[derive(Debug, Clone, Default)]
pub struct DockerConfig {
    entries: Vec<(String, Credentials)>,
}

impl DockerConfig {
    /// Reads either form of docker's file.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum File {
            Current { auths: BTreeMap<String, Entry> },
            Legacy(BTreeMap<String, Entry>),
        }
        let (File::Current { auths } | File::Legacy(auths)) = serde_json::from_slice(bytes)?;
        let mut entries: Vec<(String, Credentials)> = auths
            .into_iter()
            .map(|(key, e)| {
                let found = Credentials::from_parts(
                    &e.username,
                    &e.password,
                    &e.auth,
                    &e.identity_token,
                    &e.registry_token,
                );
                (normalise(&key), found)
            })
            .filter(|(_, credentials)| *credentials != Credentials::Anonymous)
            .collect();
        // The most specific key is tried first.
        entries.sort_by(|(a, _), (b, _)| b.cmp(a));
        Ok(DockerConfig { entries })
    }

    /// Every credential that fits the image, most specific first.
    pub fn lookup(&self, image: &Reference) -> Vec<Credentials> {
        let wanted = super::reference::repository(image);
        self.entries.iter().filter(|(key, _)| fits(key, &wanted)).map(|(_, c)| c.clone()).collect()
    }
}

/// `https://index.docker.io/v1/` is `docker.io`; schemes and API versions do not count.
fn normalise(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let key = key.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let host = if matches!(host, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { host };
    if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") }
}

/// Host labels may be globs, ports must be equal, the path is a prefix.
fn fits(key: &str, wanted: &str) -> bool {
    let (key_host, key_path) = key.split_once('/').unwrap_or((key, ""));
    let (host, path) = wanted.split_once('/').unwrap_or((wanted, ""));
    let (key_name, key_port) = key_host.split_once(':').unwrap_or((key_host, ""));
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let same_depth = key_name.split('.').count() == name.split('.').count();
    let labels = key_name.split('.').zip(name.split('.')).all(|(pattern, label)| glob(pattern, label));
    key_port == port && same_depth && labels && path.starts_with(key_path)
}

fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).any(|at| text.is_char_boundary(at) && glob(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn user(credentials: &Credentials) -> &str {
        match credentials {
            Credentials::Basic { username, .. } => username,
            _ => "",
        }
    }

    #[test]
    fn most_specific_key_first() {
        let config = DockerConfig::parse(
            br#"{"auths":{
                "https://index.docker.io/v1/":{"auth":"aHViOnNlY3JldA=="},
                "*.example.com":{"username":"glob","password":"p"},
                "reg.example.com":{"username":"host","password":"p"},
                "reg.example.com/team":{"username":"team","password":"p"},
                "reg.example.com:5000":{"username":"port","password":"p"}}}"#,
        )
        .unwrap();
        for (image, users) in [
            ("nginx", vec!["hub"]),
            ("reg.example.com/team/app", vec!["team", "host", "glob"]),
            ("reg.example.com/other", vec!["host", "glob"]),
            ("reg.example.com:5000/x", vec!["port"]),
            ("a.b.example.com/x", vec![]),
            ("quay.io/x", vec![]),
        ] {
            let found = config.lookup(&super::super::reference::parse(image).unwrap());
            assert_eq!(found.iter().map(user).collect::<Vec<_>>(), users, "{image}");
        }
    }

    #[test]
    fn legacy_files_and_secrets_that_do_not_leak() {
        let config = DockerConfig::parse(br#"{"reg.io":{"auth":"dTpwOnA="}}"#).unwrap();
        let found = config.lookup(&super::super::reference::parse("reg.io/x").unwrap());
        assert_eq!(found, [Credentials::Basic { username: "u".into(), password: "p:p".into() }]);
        assert_eq!(format!("{:?}", found[0]), "Basic(…)");
        assert!(DockerConfig::parse(b"{").is_err());
    }
}
