//! Leader election by Lease: of several servers on one store exactly one runs the controllers; when it dies another
//! takes over within the time of the lease.

use super::time;
use coracle_client::Client;
use coracle_fields::coordination::v1::{Lease, LeaseSpec};
use coracle_fields::{Made, make};
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a lease holds without being renewed, in seconds.
pub const LEASE_SECONDS: i64 = 12;
/// How often the leader renews it, and the others look at it.
const RENEW: Duration = Duration::from_secs(3);
/// How long after a crash of the leader another candidate takes the lease at the latest, in seconds: it sees the last renewal
/// within `RENEW`, and the lease holds from then on.
pub const TAKEOVER_SECONDS: i64 = LEASE_SECONDS + RENEW.as_secs() as i64;
// What users are promised.
const _: () = assert!(TAKEOVER_SECONDS <= 15);
/// A leader that cannot renew stops after this time, before another candidate may start.
const GIVE_UP_SECONDS: i64 = 7;
// The old leader stops before a new one may start.
const _: () = assert!(GIVE_UP_SECONDS + 4 < LEASE_SECONDS);
/// How long the store may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
const NAMESPACE: &str = "kube-system";

/// What a candidate does about the lease.
#[derive(Debug, PartialEq)]
enum Step {
    /// There is none: create it.
    Create(Value),
    /// Take it, or keep it.
    Write(Value),
    /// Another candidate holds it; check again at this time.
    Wait(Timestamp),
}

/// The revision of the Lease that a candidate observed last, and since when. Clocks of different machines are not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ObservedLease {
    revision: u64,
    since: Timestamp,
}

fn spec(me: &str, acquired: Timestamp, now: Timestamp, transitions: i64) -> Made<LeaseSpec> {
    make!(part LeaseSpec {
        holder_identity: me,
        lease_duration_seconds: LEASE_SECONDS,
        lease_transitions: transitions,
        acquire_time: time::micros(acquired),
        renew_time: time::micros(now),
    })
}

/// Decides what to do about the Lease.
fn step(
    lease: Option<&Object>,
    observed: Option<&ObservedLease>,
    (name, me): (&str, &str),
    now: Timestamp,
) -> Step {
    let Some(lease) = lease else {
        let spec = spec(me, now, now, 0);
        let created = make!(Lease { metadata: { name, namespace: NAMESPACE }, spec });
        return Step::Create(created.into_value());
    };
    let doc = lease.doc();
    let old = doc.view::<Lease>().spec();
    let mut body = lease.copy::<Lease>();
    let holder = old.holder_identity().text();
    let transitions = old.lease_transitions().or(0);
    if holder == me {
        let acquired = time::parse(old.acquire_time().get()).unwrap_or(now);
        body.edit().spec().set(spec(me, acquired, now, transitions));
        return Step::Write(body.into_value());
    }
    let since = observed.filter(|s| s.revision == lease.revision).map_or(now, |s| s.since);
    let due = time::after(since, old.lease_duration_seconds().or(LEASE_SECONDS));
    if !holder.is_empty() && due > now {
        return Step::Wait(due);
    }
    body.edit().spec().set(spec(me, now, now, transitions + 1));
    Step::Write(body.into_value())
}

/// How long a candidate waits until it looks at a Lease again that another one holds until `due`.
fn next_look(due: Timestamp, now: Timestamp) -> Duration {
    time::until(due, now).min(RENEW)
}

/// Leader election for the Lease `name` with the identity `me`, until `stop`. `run` is called when the Lease is acquired; the
/// tasks that it returns are aborted when the Lease is lost. On `stop` the Lease is released, so that the next leader does not
/// wait for its expiry.
pub async fn lead(
    client: Client,
    name: &'static str,
    me: String,
    stop: CancellationToken,
    run: impl Fn() -> JoinSet<()>,
) {
    let mut observed: Option<ObservedLease> = None;
    let mut running: Option<JoinSet<()>> = None;
    let mut renewed = Timestamp::now();
    loop {
        let now = Timestamp::now();
        // A store that does not answer must not keep an old leader at work.
        let turn =
            tokio::time::timeout(ANSWER, acquire_or_renew(&client, (name, &me), &mut observed, now)).await;
        let mut wait = RENEW;
        match turn {
            Ok(Ok(LeaseState::Leader)) => {
                renewed = now;
                if running.is_none() {
                    tracing::info!(lease = name, identity = me, "leading");
                    running = Some(run());
                }
            }
            Ok(Ok(LeaseState::Waiting(due))) => {
                wait = next_look(due, now);
                if running.take().is_some() {
                    tracing::warn!(lease = name, identity = me, "lost leadership, another server leads");
                }
            }
            failed => {
                let error = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "the store does not answer".into(),
                };
                tracing::warn!(lease = name, error, "cannot renew lease, will retry");
                wait = Duration::from_millis(500);
                if time::after(renewed, GIVE_UP_SECONDS) < Timestamp::now() && running.take().is_some() {
                    tracing::warn!(lease = name, identity = me, "no longer leading");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => break,
        }
    }
    if let Some(mut tasks) = running.take() {
        tasks.shutdown().await;
        let _ = tokio::time::timeout(ANSWER, release(&client, name, &me)).await;
    }
}

/// Whether this candidate holds the Lease.
enum LeaseState {
    /// It holds the Lease.
    Leader,
    /// Another candidate holds it, at least until this time.
    Waiting(Timestamp),
}

async fn acquire_or_renew(
    client: &Client,
    (name, me): (&str, &str),
    observed: &mut Option<ObservedLease>,
    now: Timestamp,
) -> Result<LeaseState, ApiError> {
    let kind = client.kind("coordination.k8s.io", "leases");
    let lease = match client.get(&kind, NAMESPACE, name).await {
        Ok(lease) => Some(lease),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    if let Some(lease) = &lease
        && observed.as_ref().is_none_or(|s| s.revision != lease.revision)
    {
        *observed = Some(ObservedLease { revision: lease.revision, since: now });
    }
    match step(lease.as_deref(), observed.as_ref(), (name, me), now) {
        Step::Create(body) => client.create(&kind, NAMESPACE, body).await?,
        Step::Write(body) => client.update(&kind, NAMESPACE, name, "", body).await?,
        Step::Wait(due) => return Ok(LeaseState::Waiting(due)),
    };
    Ok(LeaseState::Leader)
}

/// Releases the Lease if this candidate holds it.
async fn release(client: &Client, name: &str, me: &str) -> Result<(), ApiError> {
    let kind = client.kind("coordination.k8s.io", "leases");
    let lease = client.get(&kind, NAMESPACE, name).await?;
    let mut body = lease.copy::<Lease>();
    if body.view().spec().holder_identity() == me {
        body.edit().spec().holder_identity().set("");
        body.edit().spec().lease_duration_seconds().set(1);
        client.update(&kind, NAMESPACE, name, "", body.into_value()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        time::after(Timestamp::UNIX_EPOCH, seconds)
    }

    #[test]
    fn the_lease_is_taken_when_it_stood_still_for_its_time() {
        assert!(matches!(step(None, None, ("l", "a"), at(0)), Step::Create(_)));
        let lease = object(json!({"metadata": {"name": "l"}, "spec": spec("a", at(0), at(0), 4)}));
        let observed = ObservedLease { revision: lease.revision, since: at(0) };
        assert_eq!(step(Some(&lease), Some(&observed), ("l", "b"), at(11)), Step::Wait(at(12)));
        let Step::Write(taken) = step(Some(&lease), Some(&observed), ("l", "b"), at(12)) else { panic!() };
        assert_eq!(
            (&taken["spec"]["holderIdentity"], &taken["spec"]["leaseTransitions"]),
            (&json!("b"), &json!(5))
        );
        let Step::Write(kept) = step(Some(&lease), Some(&observed), ("l", "a"), at(3)) else { panic!() };
        assert_eq!(
            (&kept["spec"]["leaseTransitions"], &kept["spec"]["acquireTime"]),
            (&json!(4), &json!(time::micros(at(0))))
        );
        let renewed = ObservedLease { revision: 99, since: at(0) };
        assert_eq!(
            step(Some(&lease), Some(&renewed), ("l", "b"), at(30)),
            Step::Wait(at(42)),
            "it moved since"
        );
    }

    /// The leader renews and crashes at once; the candidate looks at any time after that.
    #[test]
    fn a_candidate_takes_over_within_the_promised_time() {
        let lease = object(json!({"metadata": {"name": "l"}, "spec": spec("a", at(0), at(0), 4)}));
        for first in 0..=RENEW.as_secs() {
            let mut now = at(first as i64);
            let observed = ObservedLease { revision: lease.revision, since: now };
            let mut looks = 0;
            while let Step::Wait(due) = step(Some(&lease), Some(&observed), ("l", "b"), now) {
                now += next_look(due, now);
                looks += 1;
                assert!(looks < 100, "it never takes over");
            }
            assert!(now <= at(TAKEOVER_SECONDS), "first look after {first} s, taken at {now}");
        }
    }
}
