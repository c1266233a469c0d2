//! Deletes Events that nobody has written for a time, as the leases of etcd do in Kubernetes.

use async_trait::async_trait;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_fields::View;
use coracle_fields::core::v1::Event;
use coracle_informer::identity::{Account, Identity};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use jiff::{SignedDuration, Timestamp};

const NAME: &str = "event-ttl-controller";
/// In Kubernetes the API server lets Events expire.
const IDENTITY: Identity = Identity::without_account(Account::Server, NAME);

/// How long an Event is kept after it was written last: an hour by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTtl(pub SignedDuration);

impl Default for EventTtl {
    fn default() -> Self {
        Self(SignedDuration::from_hours(1))
    }
}

struct Expiry {
    events: Resource,
    ttl: EventTtl,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>, ttl: EventTtl) {
    let events = setup.resource(IDENTITY, "", "events");
    let queue = setup.enqueue_on_change(&events).queue.clone();
    setup.run(Expiry { events, ttl }, &queue, 1);
}

#[async_trait]
impl Controller for Expiry {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(event) = self.events.get(name).filter(|e| e.meta.deletion_timestamp.is_none()) else {
            return Ok(Requeue::No);
        };
        let written = written(event.doc().view::<Event>(), now);
        let due = written.checked_add(self.ttl.0).unwrap_or(Timestamp::MAX);
        if due > now {
            return Ok(Requeue::At(due));
        }
        // One that is written again meanwhile stays.
        let preconditions = Preconditions {
            uid: Some(event.meta.uid.clone()),
            resource_version: Some(event.revision.to_string()),
        };
        let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        self.events.delete_with(name, options).await?;
        Ok(Requeue::No)
    }
}

/// When an Event was written last. Times that are still to come do not count: whoever writes Events may not keep them for ever.
fn written(event: View<'_, Event>, now: Timestamp) -> Timestamp {
    let metadata = event.metadata();
    let times = [
        metadata.creation_timestamp().get(),
        event.first_timestamp().get(),
        event.last_timestamp().get(),
        event.event_time().get(),
        event.series().last_observed_time().get(),
    ];
    // Of changes that are not about when it happened.
    let changes = metadata.managed_fields().items().map(|entry| entry.time().get());
    let past = times.into_iter().chain(changes).filter_map(time::parse).filter(|at| *at <= now);
    past.max().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_cluster::Cluster;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn the_last_time_that_is_over_counts() {
        let now = at("2026-01-01T12:00:00Z");
        for (event, want) in [
            (json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}}), "2026-01-01T10:00:00Z"),
            (
                json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}, "lastTimestamp": "2026-01-01T11:00:00Z"}),
                "2026-01-01T11:00:00Z",
            ),
            (
                json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"},
                    "series": {"lastObservedTime": "2026-01-01T11:30:00.000001Z"}}),
                "2026-01-01T11:30:00.000001Z",
            ),
            (
                json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}, "lastTimestamp": "2100-01-01T00:00:00Z"}),
                "2026-01-01T10:00:00Z",
            ),
            (
                json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z", "managedFields": [
                    {"manager": "a", "time": "2026-01-01T11:40:00Z"}, {"manager": "b", "time": "2026-01-01T10:10:00Z"}]}}),
                "2026-01-01T11:40:00Z",
            ),
            (json!({"metadata": {}, "lastTimestamp": null}), "2026-01-01T12:00:00Z"),
        ] {
            assert_eq!(written(Event::of(&event), now), at(want), "{event}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn events_that_nobody_writes_are_deleted() {
        let event_ttl = EventTtl(SignedDuration::from_secs(2));
        let cluster = Cluster::start_with(crate::Options { event_ttl, ..crate::Options::default() }).await;
        let event = |name: &str, last: &str| {
            json!({"metadata": {"name": name, "namespace": "default"}, "lastTimestamp": last, "reason": "Tested",
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}})
        };
        cluster.create("", "events", "default", event("old", "2026-01-01T00:00:00Z")).await;
        cluster.create("", "events", "default", event("of-the-future", "2100-01-01T00:00:00Z")).await;
        let is_tested = |event: &Value| event["reason"] == "Tested";
        cluster.until("they are gone", |c| !c.list("events", "default").iter().any(is_tested)).await;
    }
}
