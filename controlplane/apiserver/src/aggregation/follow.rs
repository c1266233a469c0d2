//! Whether the servers are there, over time. Every APIService with a Service has a task that asks its server when the
//! Service, its endpoints or the APIService change, and otherwise twice a minute; what it finds is in the APIService's
//! status. Where there is none, only APIServices are followed.

use super::table::Learned;
use super::target::{Found, Target, is_available};
use super::{Extensions, OWN};
use coracle_cli::supervise::{Subject, Supervisor};
use coracle_client::Client;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::{Cache, Cursor, Event, EventType, Expired};
use coracle_proto::status::ApiError;
use coracle_validation::tree::Tree;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How long an answer counts.
const RECHECK: Duration = Duration::from_secs(30);
/// How long what a server says about itself counts; a little less than the second check after it.
const RELEARN: Duration = Duration::from_secs(55);
/// Before another try at a server that does not answer; doubles up to [`RECHECK`].
const PAUSE: Duration = Duration::from_millis(250);

/// What asks one server.
struct Asking {
    target: Target,
    wake: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Follower {
    extensions: Arc<Extensions>,
    client: Client,
    kind: Arc<Kind>,
    registrations: Arc<Cache>,
    services: Arc<Cache>,
    slices: Arc<Cache>,
    asking: HashMap<String, Asking>,
    supervisor: Supervisor,
}

/// What this is called in metrics and health pages.
const TASK: &str = "aggregation";

/// Follows APIServices and what their servers depend on, without end. What is registered by now is known when this returns:
/// a server that was just started does not say that it is not there.
pub fn follow(
    extensions: Arc<Extensions>,
    client: Client,
    supervisor: Supervisor,
) -> impl Future<Output = ()> + Send {
    let kind = client.kind(OWN, "apiservices");
    let follower = Follower {
        extensions,
        registrations: client.cache(&kind),
        services: client.cache(&client.kind("", "services")),
        slices: client.cache(&client.kind("discovery.k8s.io", "endpointslices")),
        client,
        kind,
        asking: HashMap::new(),
        supervisor,
    };
    let known = follower.registrations.list(None);
    for object in &known {
        let read = || registered(&object.value());
        let read = follower.supervisor.guard_now(TASK, || subject(object), read);
        if let Ok(Some((target, priority, available))) = read {
            follower.extensions.table.put(target, priority, available);
        }
    }
    follower.run()
}

fn subject(object: &Object) -> Subject {
    Subject::new("apiservices", "", &object.meta.name)
}

/// What an APIService hands over, with its priorities and whether it says that it is available.
fn registered(value: &Value) -> Option<(Target, (i64, i64), bool)> {
    let target = Target::of(value).filter(|target| target.group != OWN)?;
    let priority = |field: &str| value.int(field).unwrap_or_default();
    let priority = (priority("spec.groupPriorityMinimum"), priority("spec.versionPriority"));
    Some((target, priority, is_available(value)))
}

impl Follower {
    async fn run(mut self) {
        loop {
            let (all, _, mut registrations) = self.registrations.list_and_watch(None);
            let there: HashSet<&str> = all.iter().map(|object| &*object.meta.name).collect();
            let gone: Vec<String> =
                self.asking.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
            gone.iter().for_each(|name| self.gone(name));
            // Those that were known before anybody followed, and are gone since.
            for entry in self.extensions.table.all().iter() {
                let Target { group, version, .. } = &entry.target;
                if !there.contains(format!("{version}.{group}").as_str()) {
                    self.extensions.table.remove(&entry.target);
                }
            }
            for object in &all {
                self.look(object).await;
            }
            let mut around: Option<(Cursor, Cursor)> = None;
            loop {
                if self.asking.is_empty() {
                    around = None;
                } else if around.is_none() {
                    around = self.look_around();
                }
                tokio::select! {
                    event = registrations.next() => match event {
                        Ok(event) => self.changed(&event).await,
                        Err(_) => break,
                    },
                    service = next(&mut around) => match service {
                        Ok((namespace, name)) => self.wake(&namespace, &name),
                        Err(_) => around = None,
                    },
                }
            }
        }
    }

    /// Cursors on Services and their endpoints; whatever happened before them is asked about now.
    fn look_around(&self) -> Option<(Cursor, Cursor)> {
        let services = self.services.subscribe(self.services.revision()).ok()?;
        let slices = self.slices.subscribe(self.slices.revision()).ok()?;
        self.asking.values().for_each(|asking| asking.wake.notify_one());
        Some((services, slices))
    }

    fn wake(&self, namespace: &str, service: &str) {
        let meant =
            |asking: &&Asking| (&*asking.target.namespace, &*asking.target.service) == (namespace, service);
        self.asking.values().filter(meant).for_each(|asking| asking.wake.notify_one());
    }

    async fn changed(&mut self, event: &Event) {
        match event.what {
            EventType::Deleted => self.gone(&event.object.meta.name),
            _ => self.look(&event.object).await,
        }
    }

    fn gone(&mut self, name: &str) {
        if let Some(asking) = self.asking.remove(name) {
            self.extensions.table.remove(&asking.target);
            self.extensions.forget(&asking.target);
        }
    }

    /// Takes in an APIService; one that cannot be handled serves nothing.
    async fn look(&mut self, object: &Arc<Object>) {
        let supervisor = self.supervisor.clone();
        if supervisor.guard(TASK, || subject(object), self.seen(object)).await.is_err() {
            self.gone(&object.meta.name);
        }
    }

    async fn seen(&mut self, object: &Arc<Object>) {
        let (name, value) = (&object.meta.name, object.value());
        let Some((target, priority, available)) = registered(&value) else {
            self.gone(name);
            let _ = tell(&self.client, &self.kind, &Found::Local, &value).await;
            return;
        };
        self.extensions.table.put(target.clone(), priority, available);
        match self.asking.get_mut(name) {
            Some(asking) if asking.target == target => {}
            Some(asking) => {
                asking.target = target;
                asking.wake.notify_one();
            }
            None => {
                let wake = Arc::new(Notify::new());
                let asker = Arc::new(Asker {
                    extensions: self.extensions.clone(),
                    client: self.client.clone(),
                    kind: self.kind.clone(),
                    registrations: self.registrations.clone(),
                    name: name.clone(),
                });
                let (woken, supervisor) = (wake.clone(), self.supervisor.clone());
                let asking =
                    supervisor.finish(format!("asker of {name}"), move || asker.clone().run(woken.clone()));
                let task = tokio::spawn(asking).abort_handle();
                self.asking.insert(name.clone(), Asking { target, wake, task });
            }
        }
    }
}

/// The next Service that changed, itself or in its endpoints.
async fn next(around: &mut Option<(Cursor, Cursor)>) -> Result<(String, String), Expired> {
    let Some((services, slices)) = around else { return std::future::pending().await };
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

/// Asks one server.
struct Asker {
    extensions: Arc<Extensions>,
    client: Client,
    kind: Arc<Kind>,
    registrations: Arc<Cache>,
    name: String,
}

impl Asker {
    async fn run(self: Arc<Self>, wake: Arc<Notify>) {
        let (mut failures, mut learned): (u32, Option<(Target, Instant)>) = (0, None);
        loop {
            let registration = self.registrations.get("", &self.name).map(|object| object.value());
            let target = registration.as_ref().and_then(Target::of);
            let (Some(registration), Some(target)) = (registration, target) else { return };
            let found = match self.extensions.check(&target).await {
                Ok(()) => Found::Passed,
                Err(why) => Found::Not(why),
            };
            // Whoever waits until it is available finds its resources.
            if found == Found::Passed {
                let known = learned.as_ref().is_some_and(|(of, at)| *of == target && at.elapsed() < RELEARN);
                if !known {
                    let all = self.extensions.learn(&target).await;
                    learned = all.fresh.then(|| (target.clone(), Instant::now()));
                    self.extensions.table.learn(&target, all);
                }
            } else {
                learned = None;
                self.extensions.table.learn(&target, Learned::default());
            }
            let told = tell(&self.client, &self.kind, &found, &registration).await;
            // What has to do with objects is told by their changes; a server that does not answer is asked again.
            let again =
                matches!(&found, Found::Not(why) if why.reason == "FailedDiscoveryCheck") || told.is_err();
            failures = if again { failures + 1 } else { 0 };
            let pause = if again { pause(failures) } else { RECHECK };
            let _ = tokio::time::timeout(pause, wake.notified()).await;
        }
    }
}

fn pause(failures: u32) -> Duration {
    (PAUSE * 2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(RECHECK)
}

/// Writes into the status what was found, unless it is there.
async fn tell(
    client: &Client,
    kind: &Arc<Kind>,
    found: &Found,
    registration: &Value,
) -> Result<(), ApiError> {
    if found.is_told(registration) {
        return Ok(());
    }
    let name = registration.text("metadata.name");
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let told = client.modify(kind, "", name, "status", |object| found.tell(object, &now)).await;
    match told {
        Ok(_) => tracing::info!(name, ?found, "availability of an APIService"),
        Err(error) if error.is_not_found() => {}
        Err(error) => {
            tracing::warn!(name, %error, "the status of an APIService is not told yet");
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
        assert_eq!([1, 2, 3].map(pause), [PAUSE, PAUSE * 2, PAUSE * 4]);
        assert_eq!([8, 100].map(pause), [RECHECK, RECHECK]);
    }
}
