//! Host and port of a server.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::ServersError;

/// Longest name of a host.
const MAX_HOST: usize = 253;

/// Where a server is reached, written as `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    /// The server of a URL; what follows the port is ignored.
    pub fn of_url(url: &http::Uri) -> Result<Self, ServersError> {
        let bad = || ServersError::Url { url: url.to_string() };
        let host = url.host().ok_or_else(bad)?.trim_matches(['[', ']']);
        if host.is_empty() || host.len() > MAX_HOST {
            return Err(bad());
        }
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let behind_host = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
        let port = match (url.port_u16(), url.scheme_str()) {
            (Some(port), _) => port,
            // Not a number of 16 bits.
            (None, _) if behind_host.contains(':') => return Err(bad()),
            (None, Some("http")) => 80,
            (None, _) => 443,
        };
        // One way to write an address, so that the same server is in the list once.
        let host = host.parse::<IpAddr>().map_or_else(|_| host.to_lowercase(), |ip| ip.to_string());
        Ok(Self { host: host.into(), port })
    }

    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Address and port, unless the host is a name.
    pub fn socket(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.host.parse().ok()?, self.port))
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Self { host: socket.ip().to_string().into(), port: socket.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        format!("https://{address}")
    }
}

impl TryFrom<String> for Address {
    type Error = ServersError;

    fn try_from(url: String) -> Result<Self, ServersError> {
        let bad = |_| ServersError::Url { url: url.clone() };
        let parsed: http::Uri = url.parse().map_err(bad)?;
        match parsed.scheme_str() {
            Some("https") => Self::of_url(&parsed),
            _ => Err(ServersError::Url { url }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn servers_are_hosts_and_ports() {
        for (url, shown, socket) in [
            ("https://192.0.2.1:6443", "192.0.2.1:6443", Some("192.0.2.1:6443")),
            ("https://API.example", "api.example:443", None),
            ("https://[2001:DB8:0::1]:6443/", "[2001:db8::1]:6443", Some("[2001:db8::1]:6443")),
        ] {
            let address = Address::try_from(url.to_owned()).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.socket(), socket.map(|text| text.parse().unwrap()), "{url}");
            assert_eq!(Address::try_from(String::from(address.clone())).unwrap(), address);
        }
        assert_eq!(Address::of_url(&"http://h".parse().unwrap()).unwrap().to_string(), "h:80");
    }

    #[test]
    fn other_texts_are_no_servers() {
        let long = format!("https://{}", "a".repeat(300));
        for url in ["", "192.0.2.1:6443", "http://192.0.2.1", "https://", "https://h:99999", "ftp://h", &long]
        {
            let error = Address::try_from(url.to_owned()).unwrap_err();
            assert!(matches!(error, ServersError::Url { .. }), "{url}: {error}");
        }
    }
}
