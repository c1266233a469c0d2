//! What is published about the running API servers: the Endpoints and EndpointSlices of the Service `default/kubernetes`.

use super::lease::Identity;
use super::peers::PeerState;
use coracle_fields::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use coracle_fields::discovery::v1::{Endpoint, EndpointSlice};
use coracle_fields::{Edit, Made, Map, Text, View, make};
use coracle_kinds::object::Object;
use coracle_validation::tree::same;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where the Service of the API servers is.
pub const NAMESPACE: &str = "default";
/// The Service, its Endpoints and the first of its slices.
pub const NAME: &str = "kubernetes";

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "coracle-apiserver";
/// Says that there are slices already.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Whether Endpoints or a slice are of the Service of the API servers.
pub fn concerns(object: &Object) -> bool {
    let meta = &object.meta;
    let of_service = meta.labels.get(SERVICE_NAME).is_some_and(|service| service == NAME);
    meta.namespace == NAMESPACE && (meta.name == NAME || of_service)
}

/// One write.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// It is missing.
    Create(Value),
    /// It says something else; with the version that was compared.
    Update(Value),
    /// Name, uid and version of what is published in vain.
    Remove(String, String, String),
}

/// The addresses that are to be published. What is known to be dead is left out, what cannot be judged yet stays as it was
/// `published`.
pub fn plan_addresses(
    own: Option<SocketAddr>,
    others: &[(Identity, PeerState)],
    published: &BTreeSet<SocketAddr>,
) -> BTreeSet<SocketAddr> {
    let runs = |address: &SocketAddr, state: PeerState| match state {
        PeerState::Running => true,
        PeerState::Unknown => published.contains(address),
        PeerState::Dead | PeerState::Garbage => false,
    };
    let others = others.iter().filter_map(|(server, state)| Some((server.address?, *state)));
    let running = others.filter(|(address, state)| runs(address, *state));
    running.map(|(address, _)| address).chain(own).collect()
}

/// The addresses that an Endpoints object lists.
pub fn published(endpoints: Option<&Object>) -> BTreeSet<SocketAddr> {
    let mut all = BTreeSet::new();
    let Some(endpoints) = endpoints else { return all };
    let doc = endpoints.doc();
    for subset in doc.view::<Endpoints>().subsets().items() {
        let ports = subset.ports().items().filter_map(|port| u16::try_from(port.port().int()?).ok());
        for port in ports {
            let addresses = subset.addresses().items();
            let ips = addresses.filter_map(|address| address.ip().text().parse::<IpAddr>().ok());
            all.extend(ips.map(|ip| SocketAddr::new(ip, port)));
        }
    }
    all
}

/// Endpoints with these servers, one subset per port.
fn endpoints(servers: &BTreeSet<SocketAddr>) -> Made<Endpoints> {
    let mut by_port: BTreeMap<u16, Vec<Made<EndpointAddress>>> = BTreeMap::new();
    for server in servers {
        let address = make!(part EndpointAddress { ip: server.ip().to_string() });
        by_port.entry(server.port()).or_default().push(address);
    }
    let subset = |(port, addresses): (u16, Vec<Made<EndpointAddress>>)| {
        make!(part EndpointSubset {
            addresses,
            ports: [{ name: "https", port, protocol: "TCP" }],
        })
    };
    let subsets: Vec<Made<EndpointSubset>> = by_port.into_iter().map(subset).collect();
    make!(Endpoints {
        metadata: { name: NAME, namespace: NAMESPACE, labels: [(SKIP_MIRROR, "true")] },
        subsets,
    })
}

/// Slices with these servers. A slice has one family and one list of ports: servers that differ in either need more than one.
fn slices(servers: &BTreeSet<SocketAddr>) -> Vec<Made<EndpointSlice>> {
    let mut groups: BTreeMap<(&str, u16), Vec<Made<Endpoint>>> = BTreeMap::new();
    for server in servers {
        let family = if server.is_ipv4() { "IPv4" } else { "IPv6" };
        let endpoint = make!(part Endpoint {
            addresses: [server.ip().to_string()],
            conditions: { ready: true },
        });
        groups.entry((family, server.port())).or_default().push(endpoint);
    }
    let slice = |at: usize, family: &str, port: u16, endpoints: Vec<Made<Endpoint>>| {
        let name = match at {
            0 => NAME.to_owned(),
            _ => format!("{NAME}-{}-{port}", family.to_ascii_lowercase()),
        };
        make!(EndpointSlice {
            address_type: family,
            metadata: {
                name,
                namespace: NAMESPACE,
                labels: [(SERVICE_NAME, NAME), (MANAGED_BY, MANAGER)],
            },
            endpoints,
            ports: [{ name: "https", port, protocol: "TCP" }],
        })
    };
    let groups = groups.into_iter().enumerate();
    groups.map(|(at, ((family, port), endpoints))| slice(at, family, port, endpoints)).collect()
}

/// Sets a field to the wanted value, unless it means the same already.
fn correct<T>(mut field: Edit<'_, T>, wanted: View<'_, T>) {
    let wanted = wanted.to_value();
    if !same(&field.view().to_value(), &wanted) {
        field.put(wanted);
    }
}

fn add_labels(mut labels: Edit<'_, Map<Text>>, wanted: View<'_, Map<Text>>) {
    for (label, value) in wanted.entries() {
        labels.insert(label, value);
    }
}

/// The update of an object; `None` when nothing changed.
fn update(current: &Object, after: impl Into<Value>) -> Option<Step> {
    let after = after.into();
    (after != current.value()).then_some(Step::Update(after))
}

fn remove(object: &Object) -> Step {
    Step::Remove(object.meta.name.clone(), object.meta.uid.clone(), object.revision.to_string())
}

/// What is to be written to the Endpoints so that they list these servers.
pub fn plan_endpoints(servers: &BTreeSet<SocketAddr>, current: Option<&Object>) -> Option<Step> {
    let wanted = endpoints(servers);
    match current {
        None => Some(Step::Create(wanted.into_value())),
        Some(current) => {
            let (mut after, wanted) = (current.copy::<Endpoints>(), wanted.view());
            correct(after.edit().subsets(), wanted.subsets());
            add_labels(after.edit().metadata().labels(), wanted.metadata().labels());
            update(current, after)
        }
    }
}

/// What is to be written to EndpointSlices so that they list these servers; `there` are those of the namespace. Slices that
/// somebody else made for the Service are left alone.
pub fn plan_slices(servers: &BTreeSet<SocketAddr>, there: &[Arc<Object>]) -> Vec<Step> {
    let (mut steps, mut kept) = (Vec::new(), BTreeSet::new());
    for wanted in slices(servers) {
        let name = wanted.view().metadata().name().text().to_owned();
        let family = wanted.view().address_type().text().to_owned();
        match there.iter().find(|slice| slice.meta.name == name) {
            None => steps.push(Step::Create(wanted.into_value())),
            // The family of a slice never changes.
            Some(current) if current.doc().view::<EndpointSlice>().address_type() != family => {
                steps.extend([remove(current), Step::Create(wanted.into_value())]);
            }
            Some(current) => {
                let (mut after, wanted) = (current.copy::<EndpointSlice>(), wanted.view());
                correct(after.edit().endpoints(), wanted.endpoints());
                correct(after.edit().ports(), wanted.ports());
                add_labels(after.edit().metadata().labels(), wanted.metadata().labels());
                steps.extend(update(current, after));
            }
        }
        kept.insert(name);
    }
    let ours = |slice: &&Arc<Object>| slice.meta.labels.get(MANAGED_BY).is_some_and(|by| by == MANAGER);
    let left = there.iter().filter(ours).filter(|slice| !kept.contains(&slice.meta.name));
    steps.extend(left.map(|slice| remove(slice)));
    steps
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use coracle_validation::tree::Tree;
    use serde_json::json;

    fn servers(all: &[&str]) -> BTreeSet<SocketAddr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn created(step: Step) -> Arc<Object> {
        match step {
            Step::Create(value) => object(value),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn running_servers_are_published_and_what_cannot_be_judged_stays() {
        let at = |text: &str| text.parse::<SocketAddr>().ok();
        let other = |address: &str, state| (Identity::new(&[address], at(address), Vec::new()), state);
        let others = [
            other("192.0.2.2:6443", PeerState::Running),
            other("192.0.2.3:6443", PeerState::Unknown),
            other("192.0.2.4:6443", PeerState::Unknown),
            other("192.0.2.5:6443", PeerState::Dead),
            other("192.0.2.6:6443", PeerState::Garbage),
            (Identity::new(&["loopback"], None, Vec::new()), PeerState::Running),
        ];
        let before = servers(&["192.0.2.3:6443", "192.0.2.5:6443", "192.0.2.9:6443"]);
        let planned = plan_addresses(at("192.0.2.10:6443"), &others, &before);
        assert_eq!(planned, servers(&["192.0.2.2:6443", "192.0.2.3:6443", "192.0.2.10:6443"]));
        assert_eq!(plan_addresses(None, &others[3..], &before), BTreeSet::new());
    }

    #[test]
    fn endpoints_are_sorted_and_written_when_they_change() {
        let two = servers(&["192.0.2.10:6443", "192.0.2.9:6443"]);
        let made = created(plan_endpoints(&two, None).unwrap());
        let ips = |value: &Value| {
            let addresses = value["subsets"][0]["addresses"].as_array().unwrap();
            addresses.iter().map(|address| address.text("ip").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ips(&made.value()), ["192.0.2.9", "192.0.2.10"]);
        assert_eq!(published(Some(&made)), two);
        assert_eq!(plan_endpoints(&two, Some(&made)), None, "nothing changed");
        let Some(Step::Update(less)) = plan_endpoints(&servers(&["192.0.2.9:6443"]), Some(&made)) else {
            panic!("an update")
        };
        assert_eq!(ips(&less), ["192.0.2.9"]);
        let ports = servers(&["192.0.2.9:6443", "192.0.2.9:7443", "192.0.2.10:7443"]);
        let made = created(plan_endpoints(&ports, None).unwrap());
        assert_eq!(made.value()["subsets"].as_array().map(Vec::len), Some(2), "one subset per port");
        assert_eq!(published(Some(&made)), ports);
        assert_eq!(published(None), BTreeSet::new());
    }

    #[test]
    fn slices_follow_the_servers() {
        let two = servers(&["192.0.2.9:6443", "192.0.2.10:6443"]);
        let mut steps = plan_slices(&two, &[]);
        let made = created(steps.remove(0));
        assert!(steps.is_empty(), "{steps:?}");
        assert_eq!(made.meta.name, "kubernetes");
        assert_eq!(made.value()["endpoints"].as_array().map(Vec::len), Some(2));
        assert!(plan_slices(&two, std::slice::from_ref(&made)).is_empty(), "nothing changed");
        // What was written before there were labels, and what somebody else made.
        let mut old = made.value();
        old["metadata"]["labels"] = json!({SERVICE_NAME: NAME});
        let foreign = object(json!({"metadata": {"name": "kubernetes-2", "labels": {SERVICE_NAME: NAME}}}));
        let steps = plan_slices(&two, &[object(old), foreign]);
        assert_eq!(steps, [Step::Update(made.value())]);
    }

    #[test]
    fn servers_of_two_ports_or_families_need_two_slices() {
        let mixed = servers(&["192.0.2.9:6443", "192.0.2.9:7443", "[2001:db8::1]:6443"]);
        let made: Vec<_> = plan_slices(&mixed, &[]).into_iter().map(created).collect();
        let names: Vec<&str> = made.iter().map(|slice| slice.meta.name.as_str()).collect();
        assert_eq!(names, ["kubernetes", "kubernetes-ipv4-7443", "kubernetes-ipv6-6443"]);
        assert!(plan_slices(&mixed, &made).is_empty(), "nothing changed");
        let six = plan_slices(&servers(&["[2001:db8::1]:6443"]), &made);
        let [Step::Remove(first, ..), Step::Create(new), Step::Remove(second, ..), Step::Remove(third, ..)] =
            &six[..]
        else {
            panic!("{six:?}")
        };
        assert_eq!((first.as_str(), new.text("addressType")), ("kubernetes", "IPv6"), "made anew");
        assert_eq!([second, third], ["kubernetes-ipv4-7443", "kubernetes-ipv6-6443"]);
    }
}
