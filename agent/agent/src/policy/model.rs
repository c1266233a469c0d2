//! Network policies and what they select by, as far as rules must know it. Pure.

use coracle_cni::route::Cidr;
use coracle_proto::selector::LabelSelector;
use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::cluster::{Name, Protocol};

/// Labels of a pod or namespace.
pub type Labels = BTreeMap<String, String>;

/// A selector with the text that tells it from others.
#[derive(Clone, Debug)]
pub struct Selector {
    parsed: LabelSelector,
    text: Box<str>,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Selector {
    /// Reads `matchLabels` and `matchExpressions`; `None` when they say nothing sensible.
    pub fn new(value: &serde_json::Value) -> Option<Self> {
        if value.is_null() {
            return None;
        }
        let parsed = LabelSelector::from_object(value).ok()?;
        Some(Selector { parsed, text: value.to_string().into() })
    }

    /// Selects everything.
    pub fn everything() -> Self {
        Selector { parsed: LabelSelector::default(), text: "{}".into() }
    }

    /// Whether labels are selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.parsed.matches(|key| labels.get(key).map(String::as_str))
    }

    /// What tells it from other selectors.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Who may be talked to.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// Addresses, with holes.
    Block {
        /// The range.
        cidr: Cidr,
        /// Ranges that are left out.
        except: Box<[Cidr]>,
    },
    /// Pods, by their own labels and their namespaces'.
    Pods {
        /// Which namespaces; `None` for the policy's own.
        namespaces: Option<Selector>,
        /// Which pods; `None` for all of them.
        pods: Option<Selector>,
    },
}

/// Which port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortMatch {
    /// Any port of the protocol.
    Any,
    /// From a number to another.
    Range(u16, u16),
    /// Whatever number the pod that is talked to gives the name.
    Named(Box<str>),
}

/// A port that may be talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRule {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: PortMatch,
}

/// What is allowed: any of the peers on any of the ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Peers; empty for all.
    pub peers: Box<[Peer]>,
    /// Ports; none means all.
    pub ports: Box<[PortRule]>,
}

/// A network policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The pods of its namespace that it is about.
    pub pods: Selector,
    /// What may come in; `None` when it says nothing about that.
    pub ingress: Option<Box<[Rule]>>,
    /// What may go out; `None` when it says nothing about that.
    pub egress: Option<Box<[Rule]>>,
}

/// A name for a container's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// The name.
    pub name: Box<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its labels.
    pub labels: Labels,
    /// Its addresses.
    pub ips: Box<[IpAddr]>,
    /// Its ports that have names.
    pub ports: Box<[NamedPort]>,
    /// The node it is on.
    pub node: Box<str>,
}

/// What answers at the cluster's DNS addresses, as policies see it: what people let their pods talk to is a pod of
/// `kube-system` with this label, and every node answers in its place. No pod can have its name.
pub fn name_server(ips: &[IpAddr]) -> (Name, Pod) {
    let port = |name: &str, protocol| NamedPort { name: name.into(), protocol, number: 53 };
    let pod = Pod {
        labels: Labels::from([("k8s-app".to_owned(), "kube-dns".to_owned())]),
        ips: ips.into(),
        ports: [port("dns", Protocol::Udp), port("dns-tcp", Protocol::Tcp)].into(),
        node: Box::default(),
    };
    (Name::new("kube-system", ""), pod)
}
