//! Registry configuration file (`registries.yaml`), in the format of k3s.
//!
//! ```yaml
//! mirrors:
//!   docker.io:
//!     endpoint: ["http://127.0.0.1:5000"]
//! configs:
//!   registry.local:5000:
//!     auth: { username: u, password: p }
//!     tls: { ca_file: /etc/ssl/registry.pem, insecure_skip_verify: false }
//! plain_http: ["registry.local:5000"]
//! ```

use std::{collections::BTreeMap, fs, io, path::Path};

use coracle_cli::yaml::YamlError;
use serde::Deserialize;

use super::{Credentials, Error, Result};

/// Why the configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryConfigError {
    /// Not the YAML that it should be.
    #[error("{0}")]
    Syntax(YamlError),
    /// A mirror that is not at the root of its host's API.
    #[error("mirror endpoint {url:?}: a path must begin with /v2")]
    MirrorPath {
        /// The url as given.
        url: String,
    },
}

/// The configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// Endpoints to try, in order, before the registry itself; `*` is for every registry.
    pub mirrors: BTreeMap<String, Mirror>,
    /// Credentials and TLS by registry host.
    pub configs: BTreeMap<String, HostConfig>,
    /// Registries without TLS. Loopback hosts never use TLS.
    pub plain_http: Vec<String>,
}

/// Mirrors of one registry.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mirror {
    /// URLs or hosts.
    pub endpoint: Vec<String>,
}

/// One registry host.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostConfig {
    /// Credentials used when the caller has none.
    pub auth: Option<HostAuth>,
    /// TLS settings.
    pub tls: HostTls,
}

/// Credentials in the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostAuth {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// base64 of `user:password`.
    pub auth: String,
    /// Identity token.
    pub identity_token: String,
}

/// TLS settings in the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostTls {
    /// PEM file of the authority that signed the registry's certificate.
    pub ca_file: String,
    /// Do not verify the certificate.
    pub insecure_skip_verify: bool,
}

/// A mirror or registry to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `host[:port]`.
    pub host: String,
    /// Without TLS.
    pub plain_http: bool,
    /// Not the registry that the image names.
    pub mirror: bool,
    /// What repositories there begin with, as in `https://host/v2/cache`.
    pub prefix: String,
}

impl RegistryConfig {
    /// The file of a node, unless its options name another one.
    pub const DEFAULT_FILE: &'static str = "/etc/coracle/registries.yaml";

    /// Reads the file. Without [`Self::DEFAULT_FILE`] there are no mirrors; any other file was named, and has to exist.
    pub fn load(path: &Path) -> Result<Self> {
        Self::read(path, path == Path::new(Self::DEFAULT_FILE))
    }

    fn read(path: &Path, is_optional: bool) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if is_optional && e.kind() == io::ErrorKind::NotFound => {
                return Ok(RegistryConfig::default());
            }
            Err(e) => return Err(Error::io("reading", path)(e)),
        };
        if text.trim().is_empty() {
            return Ok(RegistryConfig::default());
        }
        let refused = |reason: RegistryConfigError| Error::unsupported(path.display().to_string(), reason);
        let hosts: RegistryConfig =
            coracle_cli::yaml::from_str(&text).map_err(|e| refused(RegistryConfigError::Syntax(e)))?;
        for url in hosts.mirrors.values().flat_map(|mirror| &mirror.endpoint) {
            prefix_of(url).map_err(refused)?;
        }
        Ok(hosts)
    }

    /// Endpoints to try for a registry, mirrors first.
    pub fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let mirrors = self.mirrors.get(registry).or_else(|| self.mirrors.get("*"));
        let mut found: Vec<Endpoint> = mirrors
            .into_iter()
            .flat_map(|mirror| &mirror.endpoint)
            .map(|url| {
                let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
                let host = rest.split('/').next().unwrap_or(rest).to_owned();
                let plain_http = scheme == "http" || (scheme.is_empty() && self.is_plain(&host));
                let prefix = prefix_of(url).unwrap_or_default();
                Endpoint { mirror: host != registry || !prefix.is_empty(), host, plain_http, prefix }
            })
            .collect();
        if !found.iter().any(|e| e.host == registry && !e.mirror) {
            found.push(Endpoint {
                host: registry.into(),
                plain_http: self.is_plain(registry),
                mirror: false,
                prefix: String::new(),
            });
        }
        found
    }

    fn is_plain(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let loopback = name == "localhost"
            || name.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        loopback || self.plain_http.iter().any(|h| h == host)
    }

    /// The caller's credentials, or those of the file. The caller's credentials are never sent to mirrors.
    pub(super) fn credentials(&self, endpoint: &Endpoint, given: &Credentials) -> Credentials {
        if *given != Credentials::Anonymous && !endpoint.mirror {
            return given.clone();
        }
        let auth = self.configs.get(&endpoint.host).and_then(|c| c.auth.as_ref());
        auth.map(|a| Credentials::from_parts(&a.username, &a.password, &a.auth, &a.identity_token, ""))
            .unwrap_or_default()
    }

    pub(super) fn tls(&self, host: &str) -> HostTls {
        self.configs.get(host).map(|c| c.tls.clone()).unwrap_or_default()
    }
}

/// What an endpoint's path puts before repositories; only what comes after the API's own `/v2` can be that.
fn prefix_of(url: &str) -> Result<String, RegistryConfigError> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    match path.strip_prefix("v2") {
        None if path.is_empty() => Ok(String::new()),
        Some("") => Ok(String::new()),
        Some(prefix) if prefix.starts_with('/') => Ok(prefix.trim_matches('/').to_owned()),
        _ => Err(RegistryConfigError::MirrorPath { url: url.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_default_file_may_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registries.yaml");
        assert!(matches!(RegistryConfig::load(&file), Err(Error::Io { .. })));
        assert!(RegistryConfig::read(&file, true).unwrap().mirrors.is_empty());
        fs::write(&file, "mirrors: {docker.io: {endpoint: [m.local]}}\n").unwrap();
        assert_eq!(RegistryConfig::read(&file, true).unwrap().mirrors.len(), 1);
        assert_eq!(RegistryConfig::load(&file).unwrap().mirrors.len(), 1);
    }

    #[test]
    fn mirrors_come_first_and_loopback_is_plain() {
        let yaml = "mirrors:\n  docker.io:\n    endpoint: [\"http://m.local:5000\", \"https://n.local\"]\nplain_http: [\"lan:80\"]\n";
        let hosts: RegistryConfig = coracle_cli::yaml::from_str(yaml).unwrap();
        let shown = |registry: &str| -> Vec<String> {
            let scheme = |e: &Endpoint| if e.plain_http { "http" } else { "https" };
            hosts.endpoints(registry).iter().map(|e| format!("{}://{}", scheme(e), e.host)).collect()
        };
        assert_eq!(shown("docker.io"), ["http://m.local:5000", "https://n.local", "https://docker.io"]);
        assert_eq!(shown("quay.io"), ["https://quay.io"]);
        for (url, prefix) in [
            ("https://m.local", Ok("")),
            ("https://m.local/", Ok("")),
            ("m.local:5000/v2/", Ok("")),
            ("https://m.local/v2/cache/hub", Ok("cache/hub")),
            ("https://m.local/v2cache", Err(())),
            ("https://m.local/registry", Err(())),
        ] {
            assert_eq!(prefix_of(url).map_err(drop), prefix.map(str::to_owned), "{url}");
        }
        // Credentials of a registry do not go to its mirrors, which have their own.
        let yaml = "mirrors:\n  hub.io:\n    endpoint: [\"https://m.local/v2/hub\"]\nconfigs:\n  m.local:\n    auth: {username: m, password: x}\n";
        let with_auth: RegistryConfig = coracle_cli::yaml::from_str(yaml).unwrap();
        let given = Credentials::from_parts("u", "p", "", "", "");
        let used: Vec<Credentials> =
            with_auth.endpoints("hub.io").iter().map(|e| with_auth.credentials(e, &given)).collect();
        assert!(used == [Credentials::from_parts("m", "x", "", "", ""), given.clone()]);
        assert_eq!(shown("127.0.0.1:5000"), ["http://127.0.0.1:5000"]);
        assert_eq!(shown("localhost:1"), ["http://localhost:1"]);
        assert_eq!(shown("lan:80"), ["http://lan:80"]);
    }
}
