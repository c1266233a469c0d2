//! The node's tables of Services and endpoints as DNS sees them. Nothing is copied: every question looks them up.

use std::net::IpAddr;

use super::lookup::{Endpoint, Owner, Port, Service, ServiceAddress, ServiceLookup};
use crate::cluster::{Cluster, Name, SlicePort};

impl ServiceLookup for Cluster {
    fn is_complete(&self) -> bool {
        self.services.is_synced() && self.slices.is_synced()
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        let service = self.services.get(&Name::new(namespace, name))?;
        let reach = match &service.external_name {
            Some(target) => ServiceAddress::Alias(target.to_string()),
            None if service.headless => ServiceAddress::Headless,
            None => ServiceAddress::Addresses(service.ips.to_vec()),
        };
        let ports = service.ports.iter().map(|port| Port {
            name: port.name.to_string(),
            protocol: port.protocol.text().to_owned(),
            number: port.port,
        });
        Some(Service { reach, ports: ports.collect() })
    }

    fn endpoints(&self, namespace: &str, name: &str) -> Vec<Endpoint> {
        let name = Name::new(namespace, name);
        let all = self.services.get(&name).is_some_and(|service| service.not_ready);
        let mut found: Vec<Endpoint> = Vec::new();
        for slice in self.slices.group(&name) {
            let ports: Vec<Port> = slice.ports.iter().map(port).collect();
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.ready || all) {
                let hostname = endpoint.hostname.as_deref().map(str::to_owned);
                match found
                    .iter_mut()
                    .find(|known| known.address == endpoint.ip && known.hostname == hostname)
                {
                    // The same endpoint in two slices, for ports that differ.
                    Some(known) => {
                        let new = ports.iter().filter(|port| !known.ports.contains(port)).cloned();
                        let new: Vec<Port> = new.collect();
                        known.ports.extend(new);
                    }
                    None => found.push(Endpoint { address: endpoint.ip, hostname, ports: ports.clone() }),
                }
            }
        }
        found
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        // While they are not known, or must not be, any name may be one.
        !self.namespaces.is_synced() || self.namespaces.get(&Name::new("", namespace)).is_some()
    }

    fn owners(&self, address: IpAddr) -> Vec<Owner> {
        let mut owners = Vec::new();
        self.services.any(|name, service| {
            if service.ips.contains(&address) {
                owners.push(Owner {
                    namespace: name.namespace.to_string(),
                    service: name.name.to_string(),
                    endpoint: None,
                });
            }
            !owners.is_empty()
        });
        if !owners.is_empty() {
            return owners;
        }
        let mut slices: Vec<Name> = Vec::new();
        self.slices.any(|name, slice| {
            if slice.endpoints.iter().any(|endpoint| endpoint.ip == address) {
                slices.push(Name { namespace: name.namespace.clone(), name: (&*slice.service).into() });
            }
            false
        });
        slices.sort();
        slices.dedup();
        for service in slices {
            let endpoints = self.endpoints(&service.namespace, &service.name);
            owners.extend(endpoints.iter().filter(|endpoint| endpoint.address == address).map(|endpoint| {
                Owner {
                    namespace: service.namespace.to_string(),
                    service: service.name.to_string(),
                    endpoint: Some(endpoint.label()),
                }
            }));
        }
        owners
    }
}

fn port(port: &SlicePort) -> Port {
    Port { name: port.name.to_string(), protocol: port.protocol.text().to_owned(), number: port.port }
}
