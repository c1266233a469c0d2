//! Where registries are reached: a file in the form k3s users know.
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

use serde::Deserialize;

use super::{Credentials, Error, Result};

/// The configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hosts {
    /// Endpoints to try, in order, before the registry itself; `*` is for every registry.
    pub mirrors: BTreeMap<String, Mirror>,
    /// Credentials and TLS by registry host.
    pub configs: BTreeMap<String, HostConfig>,
    /// Registries spoken to without TLS. Loopback hosts always are.
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

/// One place to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `host[:port]`.
    pub host: String,
    /// Without TLS.
    pub plain_http: bool,
    /// Not the registry that the image names.
    pub mirror: bool,
}

impl Hosts {
    /// Reads the file; a missing one means no mirrors.
    pub fn load(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Hosts::default()),
            Err(e) => return Err(Error::io("reading", path)(e)),
        };
        if text.trim().is_empty() {
            return Ok(Hosts::default());
        }
        serde_saphyr::from_str(&text)
            .map_err(|e| Error::Unsupported { what: path.display().to_string(), reason: e.to_string() })
    }

    /// The places to try for a registry, mirrors first.
    pub fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let mirrors = self.mirrors.get(registry).or_else(|| self.mirrors.get("*"));
        let mut found: Vec<Endpoint> = mirrors
            .into_iter()
            .flat_map(|mirror| &mirror.endpoint)
            .map(|url| {
                let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
                let host = rest.split('/').next().unwrap_or(rest).to_owned();
                let plain_http = scheme == "http" || (scheme.is_empty() && self.is_plain(&host));
                Endpoint { mirror: host != registry, host, plain_http }
            })
            .collect();
        if !found.iter().any(|e| e.host == registry) {
            found.push(Endpoint {
                host: registry.into(),
                plain_http: self.is_plain(registry),
                mirror: false,
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

    /// The caller's credentials, or those of the file.
    pub(super) fn credentials(&self, host: &str, given: &Credentials) -> Credentials {
        if *given != Credentials::Anonymous {
            return given.clone();
        }
        let auth = self.configs.get(host).and_then(|c| c.auth.as_ref());
        auth.map(|a| Credentials::from_parts(&a.username, &a.password, &a.auth, &a.identity_token, ""))
            .unwrap_or_default()
    }

    pub(super) fn tls(&self, host: &str) -> HostTls {
        self.configs.get(host).map(|c| c.tls.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn mirrors_come_first_and_loopback_is_plain() {
        let yaml = "mirrors:\n  docker.io:\n    endpoint: [\"http://m.local:5000\", \"https://n.local\"]\nplain_http: [\"lan:80\"]\n";
        let hosts: Hosts = serde_saphyr::from_str(yaml).unwrap();
        let shown = |registry: &str| -> Vec<String> {
            let scheme = |e: &Endpoint| if e.plain_http { "http" } else { "https" };
            hosts.endpoints(registry).iter().map(|e| format!("{}://{}", scheme(e), e.host)).collect()
        };
        assert_eq!(shown("docker.io"), ["http://m.local:5000", "https://n.local", "https://docker.io"]);
        assert_eq!(shown("quay.io"), ["https://quay.io"]);
        assert_eq!(shown("127.0.0.1:5000"), ["http://127.0.0.1:5000"]);
        assert_eq!(shown("localhost:1"), ["http://localhost:1"]);
        assert_eq!(shown("lan:80"), ["http://lan:80"]);
    }
}
