//! Records how long changes of Services and endpoints take to become rules.

use coracle_trace::{SpanId, Stage};
use jiff::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::{AwaitedNames, Changed, Cluster, Name, Origin};
use crate::trace::NodeTrace;

/// How many changes of one transaction are recorded.
const MOST: usize = 64;
/// How much earlier than their Service endpoints may arrive.
const EARLY: Duration = Duration::from_secs(10);

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Service.
    Service,
    /// The endpoints of a Service.
    Slice,
}

/// Records the transactions of the proxy.
#[derive(Clone)]
pub struct RulesTrace {
    trace: NodeTrace,
    /// Tells cluster DNS which answers to record.
    awaited: Arc<AwaitedNames>,
}

/// Changes that are to become rules.
#[derive(Default)]
pub struct Pending {
    names: HashSet<Name>,
    writes: Vec<(Name, Kind, Origin)>,
    /// The last transaction that changed something.
    last: Option<Transaction>,
}

#[derive(Clone, Copy)]
struct Transaction {
    begun: Instant,
    ended: Instant,
    elements: usize,
}

impl Pending {
    /// Adds changes of a kind.
    pub fn add(&mut self, changed: Changed, kind: Kind) {
        for (name, origin) in changed {
            if let Some(origin) = origin.filter(|_| self.writes.len() < MOST) {
                self.writes.push((name.clone(), kind, origin));
            }
            self.names.insert(name);
        }
    }

    /// The Services that changed; their writes stay until they are recorded.
    pub fn take_names(&mut self) -> HashSet<Name> {
        std::mem::take(&mut self.names)
    }
}

impl RulesTrace {
    /// Records with the others of the node.
    pub fn new(trace: NodeTrace, awaited: Arc<AwaitedNames>) -> Self {
        RulesTrace { trace, awaited }
    }

    /// A transaction of so many elements that began at `begun` has ended.
    pub fn applied(&self, pending: &mut Pending, begun: Instant, elements: usize, cluster: &Cluster) {
        let ended = Instant::now();
        if elements > 0 {
            pending.last = Some(Transaction { begun, ended, elements });
            self.trace.metrics.rules_synced(ended - begun);
        }
        for (name, kind, origin) in std::mem::take(&mut pending.writes) {
            let service = cluster.services.get(&name);
            // Endpoints may arrive before their Service, and become rules with it.
            if kind == Kind::Slice && service.is_none() && ended.saturating_duration_since(origin.at) < EARLY
            {
                pending.writes.push((name, kind, origin));
                continue;
            }
            // What arrives while rules are planned may be in them already: then nothing is left to change for it.
            if let Some(last) = pending.last.filter(|last| elements > 0 || origin.at <= last.ended) {
                self.record_rules(&name, origin, last);
            }
            // The name of a Service with an address does not depend on its endpoints.
            if service.is_some_and(|service| kind == Kind::Service || service.headless) {
                self.record_name(&name, kind, origin);
            }
        }
    }

    fn record_rules(&self, name: &Name, origin: Origin, transaction: Transaction) {
        if let Some(trigger) = origin.trigger {
            let after = Duration::try_from(Timestamp::now().duration_since(trigger));
            self.trace.metrics.network_programmed(after.unwrap_or_default());
        }
        if !self.trace.recorder.is_on() {
            return;
        }
        let Transaction { begun, ended, elements } = transaction;
        let begun = begun.max(origin.at);
        let text = name.to_string();
        self.record(Stage::ServiceSeen, origin, (origin.at, begun), &text);
        let text = format!("{text}\n{elements} elements");
        self.record(Stage::RulesProgrammed, origin, (begun, ended), &text);
    }

    /// Cluster DNS answers from the same objects: what it would say has changed when the write arrived.
    fn record_name(&self, name: &Name, kind: Kind, origin: Origin) {
        if !self.trace.recorder.is_on() {
            return;
        }
        let text = format!("{}.{}.svc", name.name, name.namespace);
        self.record(Stage::DnsVisible, origin, (origin.at, origin.at), &text);
        // Of Services, DNS was told before they could be seen.
        if kind == Kind::Slice {
            self.awaited.add(name, origin);
        }
    }

    fn record(&self, stage: Stage, origin: Origin, (from, to): (Instant, Instant), text: &str) {
        let (from, to) = (self.trace.moment(from), self.trace.moment(to));
        let (uid, revision) = (origin.uid, origin.revision);
        let parent = SpanId::of_write(uid, revision);
        self.trace.recorder.span_at(stage, parent, (uid, revision), from, to, text, 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cluster::Service;
    use coracle_cli::supervise::Supervisor;
    use coracle_trace::{Recorder, Uid};
    use http::{Request, Response};
    use kube::client::Body;

    /// A cluster that nobody fills but the test.
    fn cluster() -> Cluster {
        let service = tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>().await
        });
        Cluster::new(&kube::Client::new(service, "default"), &Supervisor::default(), None).0
    }

    fn changed(name: &Name, revision: u64) -> Changed {
        let origin = Origin { uid: Uid(u128::from(revision)), revision, at: Instant::now(), trigger: None };
        Changed::from([(name.clone(), Some(origin))])
    }

    #[tokio::test]
    async fn a_transaction_is_recorded_below_each_write_that_it_follows() {
        let recorder = Recorder::for_tests();
        let trace = RulesTrace::new(NodeTrace::new(recorder), Arc::new(AwaitedNames::new(recorder)));
        let (cluster, web) = (cluster(), Name::new("default", "web"));
        let mut pending = Pending::default();
        let found = |elements: usize, pending: &mut Pending| {
            trace.applied(pending, Instant::now(), elements, &cluster);
            let mut found = Vec::new();
            let read = recorder.read(&mut |record, _, text| {
                found.push((record.stage.key(), record.revision, text.to_owned()));
            });
            recorder.release(read);
            found
        };
        // Endpoints before their Service.
        pending.add(changed(&web, 2), Kind::Slice);
        assert!(found(0, &mut pending).is_empty());
        cluster.services.change(web.clone(), Some(Service::default()));
        pending.add(changed(&web, 1), Kind::Service);
        pending.add(Changed::from([(Name::new("default", "listed"), None)]), Kind::Service);
        assert_eq!(pending.take_names().len(), 2);
        let rules = "default/web\n3 elements".to_owned();
        let seen = "default/web".to_owned();
        let expected = [
            ("service-seen", 2, seen.clone()),
            ("rules-programmed", 2, rules.clone()),
            ("service-seen", 1, seen),
            ("rules-programmed", 1, rules),
            ("dns-visible", 1, "web.default.svc".to_owned()),
        ];
        assert_eq!(found(3, &mut pending), expected);
        assert!(found(3, &mut pending).is_empty(), "once");
        pending.add(changed(&web, 3), Kind::Service);
        pending.add(changed(&web, 4), Kind::Slice);
        assert_eq!(found(0, &mut pending), [("dns-visible", 3, "web.default.svc".to_owned())]);
        let during = changed(&web, 5);
        assert!(found(3, &mut pending).is_empty());
        pending.add(during, Kind::Slice);
        let stages: Vec<_> =
            found(0, &mut pending).into_iter().map(|(stage, revision, _)| (stage, revision)).collect();
        assert_eq!(stages, [("service-seen", 5), ("rules-programmed", 5)], "in the rules already");
        assert!(trace.awaited.is_empty(), "DNS hears of Services when they arrive");
        // The names of a headless Service are those of its endpoints.
        let db = Name::new("default", "db");
        cluster.services.change(db.clone(), Some(Service { headless: true, ..Service::default() }));
        pending.add(changed(&db, 6), Kind::Slice);
        assert!(found(3, &mut pending).iter().any(|(stage, ..)| *stage == "dns-visible"));
        assert!(!trace.awaited.is_empty());
    }

    #[test]
    fn only_so_many_writes_are_kept() {
        let mut pending = Pending::default();
        for number in 0..2 * MOST {
            pending.add(changed(&Name::new("default", &number.to_string()), number as u64 + 1), Kind::Slice);
        }
        assert_eq!((pending.writes.len(), pending.take_names().len()), (MOST, 2 * MOST));
    }
}
