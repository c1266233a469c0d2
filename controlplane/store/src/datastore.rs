//! Which store a server uses, as its options name it.

use crate::etcd::EtcdOptions;
use std::{fmt, str::FromStr};

/// A store that a server can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datastore {
    /// The engine in the server's process, for one server.
    Embedded,
    /// An etcd that somebody else runs.
    Etcd(EtcdOptions),
    /// A member of etcd that the server runs itself. It is started first, then opened as [`Datastore::Etcd`].
    ManagedEtcd,
}

/// Why options do not name a store.
#[derive(Debug, thiserror::Error)]
pub enum DatastoreError {
    /// There is no such store.
    #[error("unknown datastore {0:?}: want embedded, etcd, etcd://host:port,… or https://host:port,…")]
    Unknown(String),
    /// An endpoint is not `host:port`.
    #[error("datastore endpoint {0:?} is not host:port")]
    Endpoint(String),
    /// Too many endpoints.
    #[error("{0} datastore endpoints are too many")]
    TooMany(usize),
    /// Endpoints with and without TLS.
    #[error("some datastore endpoints have TLS, others do not")]
    Mixed,
    /// A key prefix that cannot be one.
    #[error("the key prefix {0:?} must be a path like /coracle")]
    Prefix(String),
    /// Only one half of certificate and key.
    #[error("a client certificate for etcd needs its key, and the key its certificate")]
    HalfIdentity,
    /// Only one half of user and password.
    #[error("a user of etcd needs a password file, and the file a user")]
    HalfUser,
    /// TLS files, but endpoints without TLS.
    #[error("certificates for etcd need endpoints with TLS: https://host:port")]
    TlsFiles,
    /// Options of etcd with another store.
    #[error("--{0} is only for --datastore etcd://… or https://…")]
    NotEtcd(&'static str),
    /// Options of a managed etcd with another store.
    #[error("--{0} is only for --datastore etcd")]
    NotManaged(&'static str),
    /// The member was not started.
    #[error("the etcd member of this server is not started")]
    NotStarted,
}

/// More endpoints than any etcd has members.
const MAX_ENDPOINTS: usize = 64;

impl Datastore {
    /// Whether several servers can use it at the same time.
    pub fn is_shared(&self) -> bool {
        !matches!(self, Self::Embedded)
    }
}

impl FromStr for Datastore {
    type Err = DatastoreError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "embedded" => return Ok(Self::Embedded),
            "etcd" => return Ok(Self::ManagedEtcd),
            _ => {}
        }
        let (scheme, hosts) =
            text.split_once("://").ok_or_else(|| DatastoreError::Unknown(text.to_owned()))?;
        let scheme = match scheme {
            "etcd" | "http" => "http",
            "etcds" | "https" => "https",
            _ => return Err(DatastoreError::Unknown(text.to_owned())),
        };
        let given: Vec<&str> = hosts.split(',').map(str::trim).collect();
        if given.len() > MAX_ENDPOINTS {
            return Err(DatastoreError::TooMany(given.len()));
        }
        let endpoints = given.into_iter().map(|one| endpoint(one, scheme));
        Ok(Self::Etcd(EtcdOptions {
            endpoints: endpoints.collect::<Result<_, _>>()?,
            ..EtcdOptions::default()
        }))
    }
}

/// One endpoint as a URL. Each may repeat the scheme, which has to be that of the first.
fn endpoint(given: &str, scheme: &str) -> Result<String, DatastoreError> {
    let host = match given.split_once("://") {
        Some((own, host)) if own == scheme => host,
        Some(("http" | "https", _)) => return Err(DatastoreError::Mixed),
        Some(_) => return Err(DatastoreError::Endpoint(given.to_owned())),
        None => given,
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    let wrong = || DatastoreError::Endpoint(given.to_owned());
    let authority: http::uri::Authority = host.parse().map_err(|_| wrong())?;
    let complete = !authority.host().is_empty() && authority.port_u16().is_some_and(|port| port > 0);
    if !complete || host.contains('@') {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{host}"))
}

impl fmt::Display for Datastore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => out.write_str("embedded"),
            Self::ManagedEtcd => out.write_str("etcd"),
            Self::Etcd(options) => {
                out.write_str(&options.endpoints.join(","))?;
                out.write_str(&options.prefix)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn endpoints_become_urls() {
        for (text, want) in [
            ("embedded", "embedded"),
            ("etcd", "etcd"),
            ("etcd://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("etcd://a:1,b:2", "http://a:1,http://b:2"),
            ("etcds://a:1, b:2", "https://a:1,https://b:2"),
            ("https://a:1,https://b:2/", "https://a:1,https://b:2"),
            ("https://[::1]:2379", "https://[::1]:2379"),
        ] {
            assert_eq!(text.parse::<Datastore>().unwrap().to_string(), want, "{text}");
        }
        assert!("etcd".parse::<Datastore>().unwrap().is_shared());
    }

    #[test]
    fn what_is_no_store_is_refused_with_the_part_that_is_wrong() {
        for (text, want) in [
            ("", "unknown datastore \"\""),
            ("sqlite://x:1", "unknown datastore \"sqlite://x:1\""),
            ("etcd://", "endpoint \"\""),
            ("etcd://a", "endpoint \"a\""),
            ("etcd://a:0", "endpoint \"a:0\""),
            ("etcd://a:1,b:x", "endpoint \"b:x\""),
            ("https://me@a:1", "endpoint \"me@a:1\""),
            ("https://a:1/path", "endpoint \"a:1/path\""),
            ("https://a:1,http://b:1", "some datastore endpoints have TLS"),
        ] {
            let error = text.parse::<Datastore>().unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
        let many = format!("etcd://{}", vec!["a:1"; 65].join(","));
        assert!(matches!(many.parse::<Datastore>(), Err(DatastoreError::TooMany(65))));
    }
}
