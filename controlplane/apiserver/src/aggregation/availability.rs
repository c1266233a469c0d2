//! Checks the availability of aggregated API servers. Every APIService with a Service has a task that probes its server
//! when the Service, its endpoints or the APIService change, and otherwise every 30 seconds. The result is written to
//! the APIService's status. Without such APIServices, only APIServices are watched.

use super::routes::DiscoveredApi;
use super::target::{Availability, Target, is_available};
use super::{Extensions, OWN};
use coracle_cli::causes;
use coracle_cli::supervise::{Subject, Supervisor};
use coracle_client::Client;
use coracle_fields::View;
use coracle_fields::apiregistration::v1::APIService;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::{Cache, Cursor};
use coracle_kinds::watch::event::{Event, EventType, Expired};
use coracle_proto::status::ApiError;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Interval of availability checks.
const RECHECK: Duration = Duration::from_secs(30);
/// Interval of discovery; a little less than two checks.
const REDISCOVER: Duration = Duration::from_secs(55);
/// Delay before an unavailable server is probed again; doubles up to [`RECHECK`].
const MIN_BACKOFF: Duration = Duration::from_millis(250);

/// The availability task of one APIService.
struct ServerTask {
    target: Target,
    wake: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for ServerTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct AvailabilityController {
    extensions: Arc<Extensions>,
    client: Client,
    kind: Arc<Kind>,
    registrations: Arc<Cache>,
    services: Arc<Cache>,
    slices: Arc<Cache>,
    tasks: HashMap<String, ServerTask>,
    supervisor: Supervisor,
}

/// Task name in metrics and health checks.
const TASK: &str = "aggregation";

/// Returns a future that watches APIServices, Services and EndpointSlices and does not end. The routing table contains
/// all existing APIServices when this returns, before the future is polled.
pub fn watch_availability(
    extensions: Arc<Extensions>,
    client: Client,
    supervisor: Supervisor,
) -> impl Future<Output = ()> + Send {
    let kind = client.kind(OWN, "apiservices");
    let controller = AvailabilityController {
        extensions,
        registrations: client.cache(&kind),
        services: client.cache(&client.kind("", "services")),
        slices: client.cache(&client.kind("discovery.k8s.io", "endpointslices")),
        client,
        kind,
        tasks: HashMap::new(),
        supervisor,
    };
    let known = controller.registrations.list(None);
    for object in &known {
        let read = || registered(object.doc().view());
        let read = controller.supervisor.isolate_sync(TASK, || subject(object), read);
        if let Ok(Some((target, priority, available))) = read {
            controller.extensions.table.put(target, priority, available);
        }
    }
    controller.run()
}

fn subject(object: &Object) -> Subject {
    Subject::new("apiservices", "", &object.meta.name)
}

/// Target, priorities and availability of an APIService.
fn registered(registration: View<'_, APIService>) -> Option<(Target, (i64, i64), bool)> {
    let target = Target::of(registration).filter(|target| target.group != OWN)?;
    let spec = registration.spec();
    let priority = (spec.group_priority_minimum().or(0), spec.version_priority().or(0));
    Some((target, priority, is_available(registration)))
}

impl AvailabilityController {
    async fn run(mut self) {
        loop {
            let (all, _, mut registrations) = self.registrations.list_and_watch(None);
            let there: HashSet<&str> = all.iter().map(|object| &*object.meta.name).collect();
            let gone: Vec<String> =
                self.tasks.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
            gone.iter().for_each(|name| self.remove(name));
            // Those that were known before anybody followed, and are gone since.
            for entry in self.extensions.table.all().iter() {
                let Target { group, version, .. } = &entry.target;
                if !there.contains(format!("{version}.{group}").as_str()) {
                    self.extensions.table.remove(&entry.target);
                }
            }
            for object in &all {
                self.reconcile(object).await;
            }
            let mut cursors: Option<(Cursor, Cursor)> = None;
            loop {
                if self.tasks.is_empty() {
                    cursors = None;
                } else if cursors.is_none() {
                    cursors = self.watch_services();
                }
                tokio::select! {
                    event = registrations.next() => match event {
                        Ok(event) => self.handle(&event).await,
                        Err(_) => break,
                    },
                    service = next(&mut cursors) => match service {
                        Ok((namespace, name)) => self.wake(&namespace, &name),
                        Err(_) => cursors = None,
                    },
                }
            }
        }
    }

    /// Cursors on Services and EndpointSlices. Wakes all tasks, because earlier events were missed.
    fn watch_services(&self) -> Option<(Cursor, Cursor)> {
        let services = self.services.subscribe(self.services.revision()).ok()?;
        let slices = self.slices.subscribe(self.slices.revision()).ok()?;
        self.tasks.values().for_each(|server| server.wake.notify_one());
        Some((services, slices))
    }

    fn wake(&self, namespace: &str, service: &str) {
        let selected = |server: &&ServerTask| {
            (&*server.target.namespace, &*server.target.service) == (namespace, service)
        };
        self.tasks.values().filter(selected).for_each(|server| server.wake.notify_one());
    }

    async fn handle(&mut self, event: &Event) {
        match event.what {
            EventType::Deleted => self.remove(&event.object.meta.name),
            _ => self.reconcile(&event.object).await,
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(server) = self.tasks.remove(name) {
            self.extensions.table.remove(&server.target);
            self.extensions.forget(&server.target);
        }
    }

    /// Applies an APIService; it is removed from the table if that panics.
    async fn reconcile(&mut self, object: &Arc<Object>) {
        let supervisor = self.supervisor.clone();
        if supervisor.isolate(TASK, || subject(object), self.apply(object)).await.is_err() {
            self.remove(&object.meta.name);
        }
    }

    async fn apply(&mut self, object: &Arc<Object>) {
        let (name, doc) = (&object.meta.name, object.doc());
        let registration = doc.view::<APIService>();
        let Some((target, priority, available)) = registered(registration) else {
            self.remove(name);
            let _ = report(&self.client, &self.kind, &Availability::Local, registration).await;
            return;
        };
        self.extensions.table.put(target.clone(), priority, available);
        match self.tasks.get_mut(name) {
            Some(server) if server.target == target => {}
            Some(server) => {
                server.target = target;
                server.wake.notify_one();
            }
            None => {
                let wake = Arc::new(Notify::new());
                let checker = Arc::new(AvailabilityChecker {
                    extensions: self.extensions.clone(),
                    client: self.client.clone(),
                    kind: self.kind.clone(),
                    registrations: self.registrations.clone(),
                    name: name.clone(),
                });
                let (woken, supervisor) = (wake.clone(), self.supervisor.clone());
                let checking =
                    supervisor.finish(format!("asker of {name}"), move || checker.clone().run(woken.clone()));
                let task = tokio::spawn(checking).abort_handle();
                self.tasks.insert(name.clone(), ServerTask { target, wake, task });
            }
        }
    }
}

/// The next Service that changed, itself or in its endpoints.
async fn next(cursors: &mut Option<(Cursor, Cursor)>) -> Result<(String, String), Expired> {
    let Some((services, slices)) = cursors else { return std::future::pending().await };
    loop {
        tokio::select! {
            event = services.next() => {
                let meta = &event?.object.meta;
                return Ok((meta.namespace.clone(), meta.name.clone()));
            }
            event = slices.next() => {
                let meta = &event?.object.meta;
                if let Some(service) = meta.labels.get("kubernetes.io/service-name") {
                    return Ok((meta.namespace.clone(), service.clone()));
                }
            }
        }
    }
}

/// Probes the server of one APIService.
struct AvailabilityChecker {
    extensions: Arc<Extensions>,
    client: Client,
    kind: Arc<Kind>,
    registrations: Arc<Cache>,
    name: String,
}

impl AvailabilityChecker {
    async fn run(self: Arc<Self>, wake: Arc<Notify>) {
        let (mut failures, mut discovered): (u32, Option<(Target, Instant)>) = (0, None);
        loop {
            let Some(object) = self.registrations.get("", &self.name) else { return };
            let doc = object.doc();
            let registration = doc.view::<APIService>();
            let Some(target) = Target::of(registration) else { return };
            let found = match self.extensions.check(&target).await {
                Ok(()) => Availability::Passed,
                Err(why) => Availability::Unavailable(why),
            };
            // Whoever waits until it is available finds its resources.
            if found == Availability::Passed {
                let known =
                    discovered.as_ref().is_some_and(|(of, at)| *of == target && at.elapsed() < REDISCOVER);
                if !known {
                    let all = self.extensions.discover(&target).await;
                    discovered = all.fresh.then(|| (target.clone(), Instant::now()));
                    self.extensions.table.set_discovered(&target, all);
                }
            } else {
                discovered = None;
                self.extensions.table.set_discovered(&target, DiscoveredApi::default());
            }
            let reported = report(&self.client, &self.kind, &found, registration).await;
            // What has to do with objects is told by their changes; a server that does not answer is asked again.
            let again = matches!(&found, Availability::Unavailable(why) if why.reason == "FailedDiscoveryCheck")
                || reported.is_err();
            failures = if again { failures + 1 } else { 0 };
            let pause = if again { backoff(failures) } else { RECHECK };
            let _ = tokio::time::timeout(pause, wake.notified()).await;
        }
    }
}

fn backoff(failures: u32) -> Duration {
    (MIN_BACKOFF * 2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(RECHECK)
}

/// Writes the `Available` condition, unless it is current.
async fn report(
    client: &Client,
    kind: &Arc<Kind>,
    found: &Availability,
    registration: View<'_, APIService>,
) -> Result<(), ApiError> {
    if found.is_reported(registration) {
        return Ok(());
    }
    let name = registration.metadata().name().text();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let reported = client.modify(kind, "", name, "status", |object| found.report(object, &now)).await;
    match reported {
        Ok(_) => tracing::info!(name, ?found, "APIService availability changed"),
        Err(error) if error.is_not_found() => {}
        Err(error) => {
            tracing::warn!(name, error = %causes::chain(&error), "APIService status update failed, will retry");
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_usual_one() {
        assert_eq!([1, 2, 3].map(backoff), [MIN_BACKOFF, MIN_BACKOFF * 2, MIN_BACKOFF * 4]);
        assert_eq!([8, 100].map(backoff), [RECHECK, RECHECK]);
    }
}
