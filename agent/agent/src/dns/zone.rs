//! Which records a name has, after the specification "Kubernetes DNS-Based Service Discovery" 1.1.0. Pure.

use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::lookup::{Endpoint, Owner, Port, Service, ServiceAddress, ServiceLookup};

/// TTL of records in seconds; short, because endpoints change.
pub const TTL: u32 = 5;
const VERSION: &str = "1.1.0";

/// The cluster's domain.
#[derive(Clone, Debug)]
pub struct Zone {
    domain: Name,
    servers: Vec<IpAddr>,
}

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Records of the type asked for, and others that the client will ask for next.
    Records(Vec<Record>, Vec<Record>),
    /// Another name: the record, and where to go on.
    Alias(Box<(Record, Name)>),
    /// The name is there, records of the type are not.
    NoData,
    /// No such name.
    NoName,
    /// Not a name of the cluster.
    Foreign,
    /// Not synced yet.
    Unknown,
}

impl Zone {
    /// The zone of a domain (`cluster.local`), served at some addresses. `None` when it is no domain.
    pub fn new(domain: &str, servers: Vec<IpAddr>) -> Option<Self> {
        let mut domain = Name::from_ascii(domain.to_ascii_lowercase()).ok()?;
        domain.set_fqdn(true);
        Some(Zone { domain, servers })
    }

    /// The SOA record of negative responses.
    pub fn authority(&self) -> Record {
        let hostmaster = self.under(&["hostmaster"]).unwrap_or_default();
        let primary = self.under(&["ns", "dns"]).unwrap_or_default();
        let soa = SOA::new(primary, hostmaster, 1, 7200, 1800, 86400, TTL);
        Record::from_rdata(self.domain.clone(), TTL, RData::SOA(soa))
    }

    /// What is known of a name, for a type of records.
    pub fn find(&self, name: &Name, kind: RecordType, view: &dyn ServiceLookup) -> Found {
        let lower = name.to_lowercase();
        if let Some(address) = reverse(&lower) {
            return self.pointers(name, address, kind, view);
        }
        if !self.domain.zone_of(&lower) {
            return Found::Foreign;
        }
        let depth = usize::from(lower.num_labels() - self.domain.num_labels());
        let labels: Result<Vec<&str>, _> = lower.iter().take(depth).map(std::str::from_utf8).collect();
        match labels {
            Ok(labels) => self.below(name, &labels, kind, view),
            Err(_) => Found::NoName,
        }
    }

    fn below(&self, name: &Name, labels: &[&str], kind: RecordType, view: &dyn ServiceLookup) -> Found {
        match labels {
            [] => self.apex(name, kind),
            ["dns-version"] => only(kind, RecordType::TXT, || {
                vec![Record::from_rdata(name.clone(), TTL, RData::TXT(TXT::new(vec![VERSION.into()])))]
            }),
            ["dns"] | ["svc"] | ["pod"] => Found::NoData,
            ["ns", "dns"] => addresses(name, kind, &self.servers),
            [.., "svc"] if !view.is_complete() => Found::Unknown,
            [namespace, "svc" | "pod"] if view.has_namespace(namespace) => Found::NoData,
            [address, namespace, "pod"] => {
                match undashed(address).filter(|_| view.has_namespace(namespace)) {
                    Some(address) => addresses(name, kind, &[address]),
                    None => Found::NoName,
                }
            }
            [rest @ .., service, namespace, "svc"] => match view.service(namespace, service) {
                Some(found) => self.service(name, &Asked { service, namespace, kind }, rest, found, view),
                None => Found::NoName,
            },
            _ => Found::NoName,
        }
    }

    fn apex(&self, name: &Name, kind: RecordType) -> Found {
        match kind {
            RecordType::SOA => {
                let mut record = self.authority();
                record.name = name.clone();
                Found::Records(vec![record], vec![])
            }
            RecordType::NS => {
                let server = self.under(&["ns", "dns"]).unwrap_or_default();
                let glue = self.servers.iter().map(|address| address_record(&server, *address)).collect();
                let record = Record::from_rdata(name.clone(), TTL, RData::NS(NS(server)));
                Found::Records(vec![record], glue)
            }
            _ => Found::NoData,
        }
    }

    fn service(
        &self,
        name: &Name,
        asked: &Asked<'_>,
        rest: &[&str],
        service: Service,
        view: &dyn ServiceLookup,
    ) -> Found {
        let endpoints = || view.endpoints(asked.namespace, asked.service);
        match (service.reach, rest) {
            (ServiceAddress::Alias(target), []) => alias(name, &target),
            (ServiceAddress::Alias(_), _) => Found::NoName,
            (ServiceAddress::Addresses(list), []) if asked.kind != RecordType::SRV => {
                addresses(name, asked.kind, &list)
            }
            (ServiceAddress::Headless, []) if asked.kind != RecordType::SRV => {
                let list: Vec<IpAddr> = endpoints().iter().map(|endpoint| endpoint.address).collect();
                addresses(name, asked.kind, &list)
            }
            (reach, []) => self.ports(name, asked, |_| true, &reach, &service.ports, &endpoints),
            (reach, [protocol]) if protocol.starts_with('_') => {
                let wanted = |port: &Port| is_label(protocol, &port.protocol) && !port.name.is_empty();
                let known = match reach {
                    ServiceAddress::Headless => {
                        endpoints().iter().any(|endpoint| endpoint.ports.iter().any(wanted))
                    }
                    _ => service.ports.iter().any(wanted),
                };
                if known { Found::NoData } else { Found::NoName }
            }
            (_, [host]) => {
                let endpoints = endpoints();
                let of_host = endpoints.iter().filter(|endpoint| endpoint.label() == **host);
                let list: Vec<IpAddr> = of_host.map(|endpoint| endpoint.address).collect();
                if list.is_empty() { Found::NoName } else { addresses(name, asked.kind, &list) }
            }
            (reach, [port, protocol]) if port.starts_with('_') && protocol.starts_with('_') => {
                let wanted = |of: &Port| {
                    is_label(port, &of.name) && is_label(protocol, &of.protocol) && !of.name.is_empty()
                };
                match self.ports(name, asked, wanted, &reach, &service.ports, &endpoints) {
                    // Without a port of that name there is no name either.
                    Found::NoData => Found::NoName,
                    Found::Records(..) if asked.kind != RecordType::SRV && asked.kind != RecordType::ANY => {
                        Found::NoData
                    }
                    found => found,
                }
            }
            _ => Found::NoName,
        }
    }

    /// SRV records of the wanted ports, with the addresses of their targets.
    fn ports(
        &self,
        name: &Name,
        asked: &Asked<'_>,
        wanted: impl Fn(&Port) -> bool,
        reach: &ServiceAddress,
        ports: &[Port],
        endpoints: &dyn Fn() -> Vec<Endpoint>,
    ) -> Found {
        let (mut records, mut more) = (Vec::new(), Vec::new());
        let own = [asked.service, asked.namespace, "svc"];
        match reach {
            ServiceAddress::Addresses(list) => {
                let Some(target) = self.under(&own) else { return Found::NoName };
                for port in ports.iter().filter(|port| wanted(port)) {
                    records.push(service_record(name, port.number, 100, target.clone()));
                }
                more.extend(list.iter().map(|address| address_record(&target, *address)));
            }
            _ => {
                let endpoints = endpoints();
                let weight = (100 / endpoints.len().max(1)).max(1) as u16;
                for endpoint in &endpoints {
                    let label = endpoint.label();
                    let labels = [label.as_str(), own[0], own[1], own[2]];
                    let Some(target) = self.under(&labels) else { continue };
                    let own_ports = || endpoint.ports.iter().filter(|port| wanted(port));
                    if own_ports().next().is_some() {
                        more.push(address_record(&target, endpoint.address));
                    }
                    for port in own_ports() {
                        let record = service_record(name, port.number, weight, target.clone());
                        // A pod of two families is there twice under one name.
                        if endpoint.hostname.is_none() || !records.contains(&record) {
                            records.push(record);
                        }
                    }
                }
            }
        }
        if records.is_empty() { Found::NoData } else { Found::Records(records, more) }
    }

    fn pointers(&self, name: &Name, address: IpAddr, kind: RecordType, view: &dyn ServiceLookup) -> Found {
        if !view.is_complete() {
            return Found::Unknown;
        }
        let owners = view.owners(address);
        if owners.is_empty() {
            return Found::Foreign;
        }
        let pointer = |owner: &Owner| {
            let own = [owner.service.as_str(), &owner.namespace, "svc"];
            let target = match &owner.endpoint {
                Some(endpoint) => self.under(&[endpoint, own[0], own[1], own[2]]),
                None => self.under(&own),
            };
            target.map(|target| Record::from_rdata(name.clone(), TTL, RData::PTR(PTR(target))))
        };
        only(kind, RecordType::PTR, || owners.iter().filter_map(pointer).collect())
    }

    /// A name below the domain. `None` when it would be too long.
    fn under(&self, labels: &[&str]) -> Option<Name> {
        Name::from_labels(labels.iter().map(|label| label.as_bytes()).chain(self.domain.iter())).ok()
    }
}

struct Asked<'a> {
    service: &'a str,
    namespace: &'a str,
    kind: RecordType,
}

fn is_label(label: &str, of: &str) -> bool {
    label.strip_prefix('_').is_some_and(|label| label.eq_ignore_ascii_case(of))
}

fn only(asked: RecordType, there: RecordType, records: impl FnOnce() -> Vec<Record>) -> Found {
    if asked != there && asked != RecordType::ANY {
        return Found::NoData;
    }
    match records() {
        none if none.is_empty() => Found::NoData,
        some => Found::Records(some, vec![]),
    }
}

fn addresses(name: &Name, kind: RecordType, list: &[IpAddr]) -> Found {
    let wanted = list.iter().filter(|address| match kind {
        RecordType::A => address.is_ipv4(),
        RecordType::AAAA => address.is_ipv6(),
        kind => kind == RecordType::ANY,
    });
    let records: Vec<Record> = wanted.map(|address| address_record(name, *address)).collect();
    if records.is_empty() { Found::NoData } else { Found::Records(records, vec![]) }
}

fn address_record(name: &Name, address: IpAddr) -> Record {
    let data = match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(name.clone(), TTL, data)
}

fn service_record(name: &Name, port: u16, weight: u16, target: Name) -> Record {
    Record::from_rdata(name.clone(), TTL, RData::SRV(SRV::new(0, weight, port, target)))
}

/// An alias to an address would be a name of digits that nobody has.
fn alias(name: &Name, target: &str) -> Found {
    if target.parse::<IpAddr>().is_ok() {
        return Found::NoData;
    }
    let Ok(mut target) = Name::from_ascii(target) else { return Found::NoData };
    target.set_fqdn(true);
    let record = Record::from_rdata(name.clone(), TTL, RData::CNAME(CNAME(target.clone())));
    Found::Alias(Box::new((record, target)))
}

/// `10-0-0-1` or `fd00--1`.
fn undashed(label: &str) -> Option<IpAddr> {
    match label.replace('-', ".").parse::<Ipv4Addr>() {
        Ok(address) => Some(address.into()),
        Err(_) => label.replace('-', ":").parse::<Ipv6Addr>().ok().map(IpAddr::from),
    }
}

/// The address of a complete name below `in-addr.arpa` or `ip6.arpa`.
fn reverse(name: &Name) -> Option<IpAddr> {
    if !matches!(name.num_labels(), 6 | 34) {
        return None;
    }
    let net = name.parse_arpa_name().ok()?;
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}
