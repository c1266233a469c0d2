//! Services and endpoints as DNS needs them.

use std::net::IpAddr;

/// What the name of a Service resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAddress {
    /// Its cluster IPs.
    Addresses(Vec<IpAddr>),
    /// Its endpoints (headless).
    Headless,
    /// Another name (ExternalName).
    Alias(String),
}

/// A port that SRV records tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty for a Service's only port.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its number.
    pub number: u16,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// What its name resolves to.
    pub reach: ServiceAddress,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// An address of an endpoint that has a name: a ready one, or any if the Service publishes all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The pod's host name, where the pod asked for one under the Service.
    pub hostname: Option<String>,
    /// Ports as they are on the endpoint.
    pub ports: Vec<Port>,
}

impl Endpoint {
    /// Its name below the Service: the host name, or the address with dashes.
    pub fn label(&self) -> String {
        match &self.hostname {
            Some(name) => name.to_ascii_lowercase(),
            None => dashed(self.address),
        }
    }
}

/// An address as a label: `10-0-0-1`, `fd00--1`.
pub fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// A name that an address has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name of the endpoint below it; `None` for the Service's own address.
    pub endpoint: Option<String>,
}

/// The cluster's Services and endpoints. Names are in lower case.
pub trait ServiceLookup: Send + Sync {
    /// Whether everything has been listed once; before that a missing name means nothing.
    fn is_complete(&self) -> bool;
    /// A Service.
    fn service(&self, namespace: &str, name: &str) -> Option<Service>;
    /// The endpoints of a Service that have names.
    fn endpoints(&self, namespace: &str, name: &str) -> Vec<Endpoint>;
    /// Whether there is a namespace.
    fn has_namespace(&self, namespace: &str) -> bool;
    /// Names of an address, for PTR records.
    fn owners(&self, address: IpAddr) -> Vec<Owner>;
}
