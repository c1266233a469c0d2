//! Addresses that the server may connect to. Nodes, Services and pods report their own addresses; none of them may
//! direct the server to itself, to its loopback or link-local addresses, or to an unspecified or multicast address.

use crate::service_ranges::ServiceRanges;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use tokio::net::TcpStream;

/// Why there is no connection to an address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Nobody is connected there.
    #[error("address not allowed: {address} {why}")]
    NotAllowed {
        /// The address, with its port.
        address: String,
        /// What it is.
        why: &'static str,
    },
    /// The system says why not.
    #[error("dial tcp {address}: {why}")]
    Failed {
        /// The address as it was given, with its port.
        address: String,
        /// Why.
        why: String,
    },
}

/// What an address is that belongs to no machine on a network; upstream proxies to none of these either.
pub fn special(ip: IpAddr) -> Option<&'static str> {
    let ip = ip.to_canonical();
    let (link_local, broadcast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.is_broadcast()),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), false),
    };
    match ip {
        ip if ip.is_unspecified() => Some("is unspecified"),
        ip if ip.is_loopback() => Some("is a loopback address"),
        ip if ip.is_multicast() => Some("is a multicast address"),
        _ if link_local => Some("is a link-local address"),
        _ if broadcast => Some("is the broadcast address"),
        _ => None,
    }
}

/// Where nodes can be.
pub struct Addresses {
    /// Addresses of Services: they lead to whatever is behind one.
    services: ServiceRanges,
    /// Where the API itself listens or is said to be.
    own: Vec<SocketAddr>,
    /// Whether nodes may be on loopback.
    loopback: bool,
}

impl Addresses {
    /// `own` is where the API listens and where clients are told that it is. With `loopback` nodes may be there: for clusters
    /// that live on one machine and whose API is at a loopback address, too.
    pub fn new(services: ServiceRanges, own: Vec<SocketAddr>, loopback: bool) -> Self {
        Self { services, own, loopback }
    }

    /// An error when no node can be there.
    pub fn check(&self, ip: IpAddr, port: u16) -> Result<(), AddressError> {
        let ip = ip.to_canonical();
        let why = match special(ip) {
            Some(_) if ip.is_loopback() && self.loopback => None,
            special => special,
        };
        let why = why.or_else(|| self.services.contains(ip).then_some("is an address of Services"));
        match why.or_else(|| self.is_own(ip, port).then_some("is the API server itself")) {
            Some(why) => {
                Err(AddressError::NotAllowed { address: SocketAddr::new(ip, port).to_string(), why })
            }
            None => Ok(()),
        }
    }

    /// Whether the API answers there. A node on the same machine has the same address and another port.
    fn is_own(&self, ip: IpAddr, port: u16) -> bool {
        let mut ports = self.own.iter().filter(|own| own.port() == port).peekable();
        // What can be bound to is an address of this machine, whichever of them the API listens on.
        ports.peek().is_some() && (ports.any(|own| own.ip() == ip) || UdpSocket::bind((ip, 0)).is_ok())
    }

    /// Connects to a host where a node can be. Names are resolved once: what is checked is what is connected to.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, AddressError> {
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let failed = |why: String| AddressError::Failed { address: address.clone(), why };
        let found = tokio::net::lookup_host((host, port)).await;
        let mut last = failed("lookup: no such host".into());
        for place in found.map_err(|error| failed(format!("lookup: {error}")))? {
            if let Err(refused) = self.check(place.ip(), port) {
                last = refused;
                continue;
            }
            match TcpStream::connect(place).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => last = failed(format!("connect: {}", os_error_text(&error))),
            }
        }
        Err(last)
    }
}

/// The description of an OS error, without its number.
pub fn os_error_text(error: &std::io::Error) -> String {
    let known = error.raw_os_error().map(|code| nix::errno::Errno::from_raw(code).desc().to_lowercase());
    known.unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn allowed(loopback: bool, text: &str) -> bool {
        let services = ServiceRanges::new("10.96.0.0/16,fd00:10:96::/112").unwrap();
        let own = ["0.0.0.0:6443".parse().unwrap(), "203.0.113.9:6443".parse().unwrap()];
        let place: SocketAddr = text.parse().unwrap();
        Addresses::new(services, own.into(), loopback).check(place.ip(), place.port()).is_ok()
    }

    #[test]
    fn nodes_are_where_machines_are() {
        for good in [
            "192.0.2.7:10250",
            "10.0.0.1:10250",
            "[2001:db8::1]:10250",
            "192.0.2.7:6443",
            "203.0.113.9:10250",
        ] {
            assert!(allowed(false, good), "{good}");
        }
        for bad in [
            "0.0.0.0:10250",
            "[::]:10250",
            "127.0.0.1:10250",
            "127.9.9.9:10250",
            "[::1]:10250",
            "[::ffff:127.0.0.1]:10250",
            "169.254.169.254:80",
            "[fe80::1]:10250",
            "224.0.0.1:10250",
            "[ff02::1]:10250",
            "255.255.255.255:10250",
            "10.96.0.1:443",
            "[::ffff:10.96.0.1]:443",
            "[fd00:10:96::1]:443",
            "203.0.113.9:6443",
            "127.0.0.1:6443",
        ] {
            assert!(!allowed(false, bad), "{bad}");
        }
        assert!(allowed(true, "127.0.0.1:10250") && allowed(true, "[::1]:10250"));
        assert!(!allowed(true, "127.0.0.1:6443") && !allowed(true, "[::ffff:127.0.0.1]:6443"));
        assert!(!allowed(true, "169.254.169.254:80"));
    }

    #[tokio::test]
    async fn names_that_lead_to_loopback_are_not_connected_to() {
        let services = ServiceRanges::new("10.96.0.0/16").unwrap();
        let refused = Addresses::new(services, Vec::new(), false).connect("localhost", 10250).await;
        assert!(matches!(refused, Err(AddressError::NotAllowed { .. })), "{refused:?}");
    }
}
