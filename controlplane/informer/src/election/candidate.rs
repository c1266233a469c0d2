//! A candidate of an election, and what it does about the Lease. Time is that of the own monotonic clock: a Lease is taken when
//! it has not changed for its duration since this candidate first saw it so. The times in the Lease are for readers; they are
//! written by the clocks of other machines, and never compared.

use super::{LEASE_SECONDS, NAMESPACE};
use crate::time;
use coracle_client::Client;
use coracle_fields::coordination::v1::{Lease, LeaseSpec};
use coracle_fields::{Made, make};
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a candidate does about the lease.
#[derive(Debug, PartialEq)]
enum Step {
    /// There is none: create it.
    Create(Value),
    /// Take it, or keep it.
    Write(Value),
    /// Another candidate holds it; check again at this time.
    Wait(Instant),
}

/// The revision of the Lease that a candidate observed last, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ObservedLease {
    revision: u64,
    since: Instant,
}

/// How a candidate stands after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It got the Lease, and the fence of its term has this revision.
    Elected(u64),
    /// It has renewed its Lease.
    Renewed,
    /// Another candidate holds the Lease, at least until then.
    Waiting(Instant),
}

/// One candidate.
pub(super) struct Candidate {
    client: Client,
    name: &'static str,
    me: String,
    observed: Option<ObservedLease>,
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

/// How long a Lease holds without being renewed.
fn holds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Decides what to do about the Lease, which was `observed` at `now`. `wall` is what is written for readers.
fn step(
    lease: Option<(&Object, ObservedLease)>,
    (name, me): (&str, &str),
    now: Instant,
    wall: Timestamp,
) -> Step {
    let Some((lease, observed)) = lease else {
        let spec = spec(me, wall, wall, 0);
        let created = make!(Lease { metadata: { name, namespace: NAMESPACE }, spec });
        return Step::Create(created.into_value());
    };
    let doc = lease.doc();
    let old = doc.view::<Lease>().spec();
    let mut body = lease.copy::<Lease>();
    let holder = old.holder_identity().text();
    let transitions = old.lease_transitions().or(0);
    if holder == me {
        let acquired = time::parse(old.acquire_time().get()).unwrap_or(wall);
        body.edit().spec().set(spec(me, acquired, wall, transitions));
        return Step::Write(body.into_value());
    }
    // A duration beyond the end of time is no reason to never take it.
    let due = observed.since.checked_add(holds(old.lease_duration_seconds().or(LEASE_SECONDS)));
    let due = due.unwrap_or(observed.since + holds(LEASE_SECONDS));
    if !holder.is_empty() && due > now {
        return Step::Wait(due);
    }
    body.edit().spec().set(spec(me, wall, wall, transitions + 1));
    Step::Write(body.into_value())
}

impl Candidate {
    pub(super) fn new(client: Client, name: &'static str, me: String) -> Self {
        // Who waits for the audit log is late, and loses the Lease.
        Self { client: client.skipping_slow_audit(), name, me, observed: None }
    }

    /// Acquires or renews the Lease. A candidate that does not `lead` yet begins a term: it takes the fence, for which the
    /// Lease must be as this turn wrote it.
    pub(super) async fn turn(
        &mut self,
        leads: bool,
        clock: impl Fn() -> Instant,
    ) -> Result<Standing, ApiError> {
        let kind = self.client.kind("coordination.k8s.io", "leases");
        let lease = match self.client.get(&kind, NAMESPACE, self.name).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        // After the read: what was renewed while it was under way counts from now.
        let now = clock();
        let seen = lease.as_ref().map(|lease| self.observe(lease, now));
        let seen = lease.as_deref().zip(seen);
        let lease = match step(seen, (self.name, &self.me), now, Timestamp::now()) {
            Step::Create(body) => self.client.create(&kind, NAMESPACE, body).await?,
            Step::Write(body) => self.client.update(&kind, NAMESPACE, self.name, "", body).await?,
            Step::Wait(due) => return Ok(Standing::Waiting(due)),
        };
        match leads {
            true => Ok(Standing::Renewed),
            false => Ok(Standing::Elected(self.client.take_fence(&lease).await?)),
        }
    }

    fn observe(&mut self, lease: &Arc<Object>, now: Instant) -> ObservedLease {
        let known = self.observed.filter(|observed| observed.revision == lease.revision);
        let observed = known.unwrap_or(ObservedLease { revision: lease.revision, since: now });
        self.observed = Some(observed);
        observed
    }

    /// Releases the Lease if this candidate holds it, so that the next leader does not wait for its expiry.
    pub(super) async fn release(&self) -> Result<(), ApiError> {
        let kind = self.client.kind("coordination.k8s.io", "leases");
        let lease = self.client.get(&kind, NAMESPACE, self.name).await?;
        let mut body = lease.copy::<Lease>();
        if body.view().spec().holder_identity() == self.me.as_str() {
            body.edit().spec().holder_identity().set("");
            body.edit().spec().lease_duration_seconds().set(1);
            self.client.update(&kind, NAMESPACE, self.name, "", body.into_value()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RENEW, TAKEOVER_SECONDS, next_look};
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    const WALL: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn the_lease_is_taken_when_it_stood_still_for_its_time() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(matches!(step(None, ("l", "a"), at(0), WALL), Step::Create(_)));
        let lease = object(json!({"metadata": {"name": "l"}, "spec": spec("a", WALL, WALL, 4)}));
        let seen = Some((&*lease, ObservedLease { revision: lease.revision, since: at(0) }));
        assert_eq!(step(seen, ("l", "b"), at(11), WALL), Step::Wait(at(12)));
        let Step::Write(taken) = step(seen, ("l", "b"), at(12), WALL) else { panic!() };
        assert_eq!(
            (&taken["spec"]["holderIdentity"], &taken["spec"]["leaseTransitions"]),
            (&json!("b"), &json!(5))
        );
        let Step::Write(kept) = step(seen, ("l", "a"), at(3), WALL) else { panic!() };
        assert_eq!(
            (&kept["spec"]["leaseTransitions"], &kept["spec"]["acquireTime"]),
            (&json!(4), &json!(time::micros(WALL)))
        );
    }

    #[test]
    fn wall_clocks_decide_nothing() {
        let (start, far) = (Instant::now(), time::after(WALL, 1_000_000_000));
        for renewed in [WALL, far] {
            let lease = object(json!({"metadata": {"name": "l"}, "spec": spec("a", renewed, renewed, 4)}));
            let seen = Some((&*lease, ObservedLease { revision: lease.revision, since: start }));
            for wall in [WALL, far] {
                let waits = step(seen, ("l", "b"), start + Duration::from_secs(11), wall);
                assert!(matches!(waits, Step::Wait(_)), "renewed at {renewed}, now {wall}");
                let takes = step(seen, ("l", "b"), start + Duration::from_secs(12), wall);
                assert!(matches!(takes, Step::Write(_)), "renewed at {renewed}, now {wall}");
            }
        }
    }

    #[test]
    fn an_endless_duration_does_not_keep_the_lease_for_ever() {
        let mut held = spec("a", WALL, WALL, 0);
        held.edit().lease_duration_seconds().set(i64::MAX);
        let (lease, start) = (object(json!({"metadata": {"name": "l"}, "spec": held})), Instant::now());
        let seen = Some((&*lease, ObservedLease { revision: lease.revision, since: start }));
        let taken = step(seen, ("l", "b"), start + Duration::from_secs(12), WALL);
        assert!(matches!(taken, Step::Write(_)), "{taken:?}");
    }

    /// The leader renews and crashes at once; the candidate looks at any time after that.
    #[test]
    fn a_candidate_takes_over_within_the_promised_time() {
        let lease = object(json!({"metadata": {"name": "l"}, "spec": spec("a", WALL, WALL, 4)}));
        let start = Instant::now();
        for first in 0..=RENEW.as_secs() {
            let mut now = start + Duration::from_secs(first);
            let seen = Some((&*lease, ObservedLease { revision: lease.revision, since: now }));
            let mut looks = 0;
            while let Step::Wait(due) = step(seen, ("l", "b"), now, WALL) {
                now += next_look(due, now);
                looks += 1;
                assert!(looks < 100, "it never takes over");
            }
            assert!(now <= start + holds(TAKEOVER_SECONDS), "first look after {first} s");
        }
    }
}
