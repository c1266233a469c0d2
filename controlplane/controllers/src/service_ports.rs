//! Repairs what is written down about node ports: every port of a Service is taken, and what no Service has is given back. A server
//! that dies between a port and its Service leaves such a port; nothing else tells that it did, so all are compared from time to time.

use coracle_cli::causes;
use coracle_client::node_ports::{NodePorts, PORTS, TakenPort};
use coracle_fields::core::v1::Service;
use coracle_informer::identity::{Account, Identity};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// As Events name it.
const NAME: &str = "portallocator-repair-controller";
const IDENTITY: Identity = Identity::without_account(Account::Server, NAME);
const INTERVAL: Duration = Duration::from_secs(180);
/// How long a port may wait for its Service.
const GRACE: SignedDuration = SignedDuration::from_mins(9);

/// Since when ports are without a Service, and as of which revision.
type Leaks = BTreeMap<u16, (u64, Timestamp)>;

struct Repair {
    services: Resource,
    ports: Arc<dyn NodePorts>,
}

/// Starts the task, where there are ports.
pub fn start(setup: &mut Setup<'_>, ports: Option<Arc<dyn NodePorts>>) {
    let Some(ports) = ports else { return };
    let repair = Arc::new(Repair { services: setup.resource(IDENTITY, "", "services"), ports });
    setup.spawn(NAME, move || repair.clone().run());
}

/// What is wrong with a port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    NotTaken,
    Duplicate,
    OutOfRange,
}

/// A Service with node ports.
struct Holder {
    service: Arc<Object>,
    ports: Vec<u16>,
}

impl Holder {
    /// The Services that have node ports.
    fn all(services: &[Arc<Object>]) -> Vec<Self> {
        let all = services.iter().map(|service| Self { service: service.clone(), ports: ports(service) });
        all.filter(|holder| !holder.ports.is_empty()).collect()
    }
}

/// The node ports of a Service; one port may serve several protocols.
fn ports(service: &Object) -> Vec<u16> {
    let doc = service.doc();
    let spec = doc.view::<Service>().spec();
    let health = std::iter::once(spec.health_check_node_port().int());
    let all = spec.ports().items().map(|port| port.node_port().int()).chain(health);
    let mut all: Vec<u16> = all.flatten().filter_map(|port| u16::try_from(port).ok()).collect();
    all.retain(|port| *port != 0);
    all.sort_unstable();
    all.dedup();
    all
}

/// What is wrong with the ports of Services. Of two Services with one port it is the younger one's fault.
fn flaws(mut holders: Vec<&Holder>, taken: &[TakenPort]) -> Vec<(Arc<Object>, u16, Flaw)> {
    holders.sort_by_cached_key(|Holder { service, .. }| {
        let created = service.doc().view::<Service>().metadata().creation_timestamp().text().to_owned();
        (created, service.meta.namespace.clone(), service.meta.name.clone())
    });
    let taken: HashSet<u16> = taken.iter().map(|taken| taken.port).collect();
    let mut owned = HashSet::new();
    let mut found = Vec::new();
    for holder in holders {
        for port in holder.ports.iter().copied() {
            let flaw = if !PORTS.contains(&port) {
                Flaw::OutOfRange
            } else if !owned.insert(port) {
                Flaw::Duplicate
            } else if !taken.contains(&port) {
                Flaw::NotTaken
            } else {
                continue;
            };
            found.push((holder.service.clone(), port, flaw));
        }
    }
    found
}

/// The ports that have been without a Service for so long that none is being created for them. `leaks` is kept from one call to the next.
fn leaked(holders: &[Holder], taken: &[TakenPort], leaks: &mut Leaks, now: Timestamp) -> Vec<TakenPort> {
    let used: HashSet<u16> = holders.iter().flat_map(|holder| holder.ports.iter().copied()).collect();
    let before = std::mem::take(leaks);
    let mut sure = Vec::new();
    for kept in taken.iter().filter(|kept| !used.contains(&kept.port)) {
        let known = before.get(&kept.port).filter(|(revision, _)| *revision == kept.revision);
        let since = known.map_or(now, |(_, since)| *since);
        if now.duration_since(since) >= GRACE {
            sure.push(kept.clone());
        } else {
            leaks.insert(kept.port, (kept.revision, since));
        }
    }
    sure
}

impl Repair {
    async fn run(self: Arc<Self>) {
        let mut leaks = Leaks::new();
        loop {
            if let Err(error) = self.round(&mut leaks, Timestamp::now()).await {
                tracing::warn!(error = %causes::chain(&error), "node ports are not compared with Services, will retry");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn round(&self, leaks: &mut Leaks, now: Timestamp) -> Result<(), ApiError> {
        let taken = self.ports.taken().await?;
        let holders = Holder::all(&self.services.all());
        for (service, port, flaw) in flaws(holders.iter().collect(), &taken) {
            self.repair(&service, port, flaw).await?;
        }
        for port in leaked(&holders, &taken, leaks, now) {
            tracing::warn!(port = port.port, "a node port of no Service is given back");
            self.ports.free(&port).await?;
        }
        Ok(())
    }

    async fn repair(&self, service: &Object, port: u16, flaw: Flaw) -> Result<(), ApiError> {
        let (reason, message) = match flaw {
            Flaw::OutOfRange => {
                let range = format!("{}-{}", PORTS.start(), PORTS.end());
                let message =
                    format!("Port {port} is not within the port range {range}; please recreate service");
                ("PortOutOfRange", message)
            }
            Flaw::Duplicate => {
                let message =
                    format!("Port {port} was assigned to multiple services; please recreate service");
                ("PortAlreadyAllocated", message)
            }
            Flaw::NotTaken => {
                // It may have gone, or given its port back, just now.
                let name = Name::of(service);
                let has_it = match self.services.fresh(&name).await {
                    Ok(there) => ports(&there).contains(&port),
                    Err(error) if error.is_not_found() => false,
                    Err(error) => return Err(error),
                };
                if !has_it || !self.ports.take(port, &format!("{}/{}", name.namespace, name.name)).await? {
                    return Ok(());
                }
                ("PortNotAllocated", format!("Port {port} is not allocated; repairing"))
            }
        };
        tracing::warn!(service = service.meta.name, namespace = service.meta.namespace, reason, "{message}");
        self.services.warn(service, reason, message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_cluster::Cluster;
    use coracle_kinds::object::testing::object;
    use serde_json::{Value, json};

    fn service(name: &str, created: &str, spec: &Value) -> Arc<Object> {
        let metadata = json!({"name": name, "namespace": "default", "creationTimestamp": created});
        object(json!({"metadata": metadata, "spec": spec}))
    }

    fn with_port(name: &str, created: &str, port: i64) -> Arc<Object> {
        service(name, created, &json!({"ports": [{"port": 80, "nodePort": port}]}))
    }

    fn taken(ports: &[u16]) -> Vec<TakenPort> {
        ports.iter().map(|port| TakenPort { port: *port, revision: 7 }).collect()
    }

    #[test]
    fn ports_are_taken_once_and_within_the_range() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let services = [
            with_port("younger", new, 30001),
            with_port("older", old, 30001),
            with_port("beyond", old, 29999),
            with_port("lost", old, 30002),
            service("without", old, &json!({"ports": [{"port": 80}]})),
            service(
                "several",
                old,
                &json!({"healthCheckNodePort": 30004, "ports": [
                    {"port": 53, "protocol": "UDP", "nodePort": 30003}, {"port": 53, "protocol": "TCP", "nodePort": 30003}]}),
            ),
        ];
        let holders = Holder::all(&services);
        let found = flaws(holders.iter().collect(), &taken(&[30001, 30003, 30004]));
        let named: Vec<_> =
            found.iter().map(|(of, port, flaw)| (of.meta.name.as_str(), *port, *flaw)).collect();
        let want = [
            ("beyond", 29999, Flaw::OutOfRange),
            ("lost", 30002, Flaw::NotTaken),
            ("younger", 30001, Flaw::Duplicate),
        ];
        assert_eq!(named, want);
    }

    #[test]
    fn a_port_without_a_service_is_given_back_when_none_comes() {
        let at = |minutes: i64| Timestamp::from_second(minutes * 60).unwrap();
        let holders = Holder::all(&[with_port("web", "2026-01-01T00:00:00Z", 30001)]);
        let mut leaks = Leaks::new();
        let mut sure = |all: &[TakenPort], minutes: i64| leaked(&holders, all, &mut leaks, at(minutes));
        let all = taken(&[30001, 30002]);
        assert_eq!(sure(&all, 0), []);
        assert_eq!(sure(&all, 8), []);
        let again = [TakenPort { port: 30002, revision: 9 }];
        assert_eq!(sure(&again, 9), [], "given back and taken again since");
        assert_eq!(sure(&again, 17), []);
        assert_eq!(sure(&again, 18), again);
        assert_eq!(sure(&taken(&[30001]), 99), []);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_written_down_follows_the_services() {
        let cluster = Cluster::start().await;
        let body = json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31000}]}});
        cluster.create("", "services", "default", body).await;
        let name = Name::new("default", "web");
        cluster.until("the Service", |c| !c.get("services", &name).is_null()).await;
        let ports = cluster.node_ports();
        assert!(ports.take(31001, "default/gone").await.unwrap());
        assert!(!ports.take(31001, "default/other").await.unwrap());
        let of_web = ports.taken().await.unwrap().into_iter().find(|taken| taken.port == 31000).unwrap();
        ports.free(&of_web).await.unwrap();
        let queues = Arc::default();
        let client = cluster.client.clone();
        let factory = move |identity: Identity| identity.client(&client);
        let mut setup = Setup::new(&factory, queues, coracle_cli::supervise::Supervisor::default());
        let repair = Repair { services: setup.resource(IDENTITY, "", "services"), ports: ports.clone() };
        let _tasks = setup.start();
        let (mut leaks, now) = (Leaks::new(), Timestamp::now());
        let numbers =
            async || -> Vec<u16> { ports.taken().await.unwrap().iter().map(|taken| taken.port).collect() };
        repair.round(&mut leaks, now).await.unwrap();
        assert_eq!(numbers().await, [31000, 31001]);
        repair.round(&mut leaks, now + GRACE).await.unwrap();
        assert_eq!(numbers().await, [31000]);
        let told = |c: &Cluster| {
            let events = c.list("events", "default");
            events.iter().any(|event| {
                event["reason"] == "PortNotAllocated"
                    && event["message"] == "Port 31000 is not allocated; repairing"
            })
        };
        cluster.until("an Event", told).await;
    }
}
