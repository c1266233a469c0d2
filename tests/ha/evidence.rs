//! What the cluster did by itself, as its watches and spans show it: who led, where pods went, which addresses were given.

use crate::receiver::{Receiver, text};
use crate::world::{COUNT, RECEIVERS, World};
use coracle_proto::otlp::common::v1::any_value;
use coracle_proto::otlp::trace::v1::Span;
use coracle_tests::client::Target;
use coracle_tests::ha::checkers::addresses::Holding;
use coracle_tests::ha::checkers::bindings::Placement;
use coracle_tests::ha::checkers::leaders::{Act, Term};
use coracle_tests::ha::failover::Failover;
use coracle_tests::ha::following::{Seen, follow, revision};
use coracle_tests::ha::history::Change;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

pub const SCHEDULER: &str = "kube-scheduler";
pub const CONTROLLERS: &str = "kube-controller-manager";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// A write, and the span that it is part of.
struct Written {
    parent: Vec<u8>,
    revision: u64,
    what: String,
}

/// Spans of one server.
#[derive(Default)]
struct Spans {
    writes: Vec<Written>,
    /// Turns of control loops, with their election and name.
    loops: HashMap<Vec<u8>, (&'static str, String)>,
}

#[derive(Default)]
pub struct Evidence {
    pub terms: Mutex<Vec<Term>>,
    pub placements: Mutex<Vec<Placement>>,
    pub holdings: Mutex<Vec<Holding>>,
    spans: Mutex<[Spans; COUNT]>,
}

impl Evidence {
    /// Watches what observers can see, until `stop`.
    pub async fn observe(self: Arc<Self>, targets: Arc<Vec<Target>>, stop: &AtomicBool) {
        let client = |first| Failover::new(targets.clone(), first);
        tokio::join!(
            follow(client(0), "/api/v1/pods", stop, |seen| self.each(seen, Self::pod)),
            follow(client(1), "/api/v1/services", stop, |seen| self.each(seen, Self::service)),
            follow(client(2), LEASES, stop, |seen| self.each(seen, Self::lease)),
        );
    }

    fn each(&self, seen: Seen, note: impl Fn(&Self, Change, &Value)) {
        match seen {
            Seen::Listed(_, objects) => objects.iter().for_each(|object| note(self, Change::Added, object)),
            Seen::Event(change, object) => note(self, change, &object),
            Seen::Connected(..) | Seen::Bookmark(_) => {}
        }
    }

    fn pod(&self, change: Change, pod: &Value) {
        let meta = &pod["metadata"];
        let (uid, node) = (string(&meta["uid"]), string(&pod["spec"]["nodeName"]));
        let name = format!("{}/{}", string(&meta["namespace"]), string(&meta["name"]));
        let revision = revision(pod);
        let owner = format!("Pod {name} ({uid})");
        self.placements.lock().unwrap().push(Placement { uid, pod: name, node, revision });
        // The engine gives an address back before the API forgets the pod.
        let ended = change == Change::Deleted
            || !meta["deletionTimestamp"].is_null()
            || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            || pod["spec"]["hostNetwork"] == true;
        let ips = pod["status"]["podIPs"].as_array().map_or(&[][..], Vec::as_slice);
        let addresses = ips.iter().filter(|_| !ended).map(|ip| string(&ip["ip"])).collect();
        self.holdings.lock().unwrap().push(Holding { owner, addresses, revision });
    }

    fn service(&self, change: Change, service: &Value) {
        let meta = &service["metadata"];
        let owner = format!(
            "Service {}/{} ({})",
            string(&meta["namespace"]),
            string(&meta["name"]),
            string(&meta["uid"])
        );
        let ips = service["spec"]["clusterIPs"].as_array().map_or(&[][..], Vec::as_slice);
        let given = ips.iter().filter(|ip| *ip != "None" && change != Change::Deleted);
        let addresses = given.map(string).collect();
        self.holdings.lock().unwrap().push(Holding { owner, addresses, revision: revision(service) });
    }

    fn lease(&self, _: Change, lease: &Value) {
        let election = string(&lease["metadata"]["name"]);
        if election != SCHEDULER && election != CONTROLLERS {
            return;
        }
        let identity = string(&lease["spec"]["holderIdentity"]);
        let holder = identity.split('_').next().unwrap_or_default().to_owned();
        let mut terms = self.terms.lock().unwrap();
        let last = terms.iter().rev().find(|term| term.election == election);
        if last.is_none_or(|last| last.holder != holder) {
            terms.push(Term { election, holder, from: revision(lease) });
        }
    }

    /// The server that leads now, counted from 0.
    pub fn leader(&self, election: &str) -> Option<usize> {
        let terms = self.terms.lock().unwrap();
        let holder = &terms.iter().rev().find(|term| term.election == election)?.holder;
        holder.strip_prefix("server-")?.parse::<usize>().ok()?.checked_sub(1)
    }

    /// What nodes say about the pods that they ran.
    pub fn look_at_nodes(&self, world: &World) {
        let mut placements = self.placements.lock().unwrap();
        for node in &world.nodes {
            let ran = node.ran().into_iter();
            let placed =
                ran.map(|(uid, pod)| Placement { uid, pod, node: node.machine.name.clone(), revision: 0 });
            placements.extend(placed);
        }
    }

    /// Receives the spans of every server.
    pub fn receivers() -> Vec<Receiver> {
        let address = |number: u16| format!("{}:{}", crate::network::CLIENTS, RECEIVERS + number);
        (0..COUNT as u16).map(|number| Receiver::start_at(&address(number), 0)).collect()
    }

    /// Takes what receivers have, and keeps what is about writes of control loops.
    pub fn drain(&self, receivers: &[Receiver]) {
        let mut spans = self.spans.lock().unwrap();
        for (receiver, kept) in receivers.iter().zip(spans.iter_mut()) {
            let received = std::mem::take(&mut receiver.received.lock().unwrap().spans);
            received.into_iter().for_each(|(_, span)| kept.take(span));
        }
    }

    /// What control loops wrote since it is known who leads.
    pub fn acts(&self) -> Vec<Act> {
        let (spans, terms) = (self.spans.lock().unwrap(), self.terms.lock().unwrap());
        let first =
            |election: &str| terms.iter().find(|term| term.election == election).map(|term| term.from);
        let of_server = |(number, spans): (usize, &Spans)| {
            let server = format!("server-{}", number + 1);
            let written =
                spans.writes.iter().filter_map(|write| Some((write, spans.loops.get(&write.parent)?)));
            let act = |(write, (election, name)): (&Written, &(&str, String))| Act {
                election: (*election).to_owned(),
                server: server.clone(),
                revision: write.revision,
                what: format!("{name}: {}", write.what),
            };
            let known = |act: &Act| first(&act.election).is_some_and(|first| act.revision > first);
            written.map(act).filter(known).collect::<Vec<_>>()
        };
        spans.iter().enumerate().flat_map(of_server).collect()
    }
}

impl Spans {
    fn take(&mut self, span: Span) {
        let stage = text(&span.attributes, "coracle.stage").unwrap_or_default();
        let name = || text(&span.attributes, "coracle.name").unwrap_or_default();
        match stage.as_str() {
            "write" => {
                let Some(revision) =
                    number(&span, "coracle.revision").filter(|_| !span.parent_span_id.is_empty())
                else {
                    return;
                };
                let object: BTreeMap<&str, String> = span
                    .attributes
                    .iter()
                    .filter(|attribute| attribute.key.ends_with(".name"))
                    .filter_map(|attribute| {
                        Some((attribute.key.as_str(), text(&span.attributes, &attribute.key)?))
                    })
                    .collect();
                let what = format!("{} {object:?}", span.name);
                self.writes.push(Written { parent: span.parent_span_id, revision, what });
            }
            "reconcile" => drop(self.loops.insert(span.span_id.clone(), (CONTROLLERS, name()))),
            "attempt" | "bind" => drop(self.loops.insert(span.span_id.clone(), (SCHEDULER, stage.clone()))),
            _ => {}
        }
    }
}

fn number(span: &Span, key: &str) -> Option<u64> {
    let value = &span.attributes.iter().find(|attribute| attribute.key == key)?.value;
    match value.as_ref()?.value.as_ref()? {
        any_value::Value::IntValue(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
