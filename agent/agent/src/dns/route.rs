//! Selects upstream servers: stub domains, and the host's DNS servers.

use hickory_proto::rr::Name;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

use crate::pod::dns::Resolver;

const PORT: u16 = 53;

/// A domain with servers of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The domain.
    pub domain: Name,
    /// Its servers.
    pub servers: Vec<SocketAddr>,
}

/// Not `domain=address[:port][,address…]`.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no stub domain: write domain=address[:port],…")]
pub struct InvalidStub(String);

impl FromStr for Stub {
    type Err = InvalidStub;

    fn from_str(text: &str) -> Result<Self, InvalidStub> {
        let bad = || InvalidStub(text.to_owned());
        let (domain, servers) = text.split_once('=').ok_or_else(bad)?;
        let mut domain = Name::from_ascii(domain.to_ascii_lowercase()).map_err(|_| bad())?;
        domain.set_fqdn(true);
        let servers: Option<Vec<SocketAddr>> = servers.split(',').map(server).collect();
        Ok(Stub { domain, servers: servers.filter(|servers| !servers.is_empty()).ok_or_else(bad)? })
    }
}

/// An address with or without a port.
pub fn server(text: &str) -> Option<SocketAddr> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some(SocketAddr::new(address, PORT)),
        Err(_) => text.parse().ok(),
    }
}

/// Upstream servers by domain.
pub struct Routes {
    stubs: Vec<Stub>,
    /// Used instead of the host's servers when given.
    fixed: Vec<SocketAddr>,
    resolv_conf: PathBuf,
    /// Our own addresses, which are excluded to avoid loops.
    own: Vec<IpAddr>,
    host: Mutex<(Option<SystemTime>, Vec<SocketAddr>)>,
}

impl Routes {
    /// Routes for names; the host's servers are read from its resolver configuration when `fixed` is empty.
    pub fn new(stubs: Vec<Stub>, fixed: Vec<SocketAddr>, resolv_conf: PathBuf, own: Vec<IpAddr>) -> Self {
        Routes { stubs, fixed, resolv_conf, own, host: Mutex::default() }
    }

    /// The servers for a name: those of the longest stub domain it is in, else the host's.
    pub fn servers(&self, name: &Name) -> Vec<SocketAddr> {
        let stubs = self.stubs.iter().filter(|stub| stub.domain.zone_of(name));
        match stubs.max_by_key(|stub| stub.domain.num_labels()) {
            Some(stub) => stub.servers.clone(),
            None if !self.fixed.is_empty() => self.fixed.clone(),
            None => self.host_servers(),
        }
    }

    /// Read again when the file has changed.
    fn host_servers(&self) -> Vec<SocketAddr> {
        let changed = std::fs::metadata(&self.resolv_conf).and_then(|meta| meta.modified()).ok();
        let mut host = self.host.lock();
        if changed.is_none() || host.0 != changed {
            let text = std::fs::read_to_string(&self.resolv_conf).unwrap_or_default();
            let servers = Resolver::parse(&text).servers;
            let servers = servers.iter().filter_map(|text| server(text));
            *host = (changed, servers.filter(|server| !self.own.contains(&server.ip())).collect());
        }
        host.1.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_longest_domain_wins() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        std::fs::write(&file, "nameserver 192.0.2.1\nnameserver 10.96.0.10\nnameserver fe80::1%eth0\n")
            .unwrap();
        let stubs = ["acme.local=10.0.0.1", "lab.acme.local=10.0.0.2:5353,[fd00::2]:53"];
        let stubs = stubs.iter().map(|stub| stub.parse().unwrap()).collect();
        let routes = Routes::new(stubs, vec![], file.clone(), vec!["10.96.0.10".parse().unwrap()]);
        for (name, want) in [
            ("x.acme.local.", "10.0.0.1:53"),
            ("X.ACME.local.", "10.0.0.1:53"),
            ("a.lab.acme.local.", "10.0.0.2:5353 [fd00::2]:53"),
            ("notacme.local.", "192.0.2.1:53"),
            ("example.org.", "192.0.2.1:53"),
        ] {
            let servers = routes.servers(&Name::from_ascii(name).unwrap());
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            assert_eq!(servers.join(" "), want, "{name}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(routes.servers(&Name::from_ascii("example.org.").unwrap()).is_empty());
        for bad in ["acme.local", "acme.local=", "acme.local=x", "a..b=1.2.3.4"] {
            assert!(bad.parse::<Stub>().is_err(), "{bad}");
        }
    }
}
