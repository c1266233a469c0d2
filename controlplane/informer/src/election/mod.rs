//! Leader election by Lease: of several servers on one store exactly one runs the controllers; when it dies another
//! takes over within the time of the lease.
//!
//! The Lease decides who leads, the fence that nobody else writes: each term rewrites the key of the election in the store, and
//! what control loops write names the revision of that key ([`coracle_client::fence`]).

// What a candidate does about the Lease.
mod candidate;
#[cfg(test)]
mod tests;

use candidate::{Candidate, Standing};
use coracle_client::Client;
use coracle_client::fence::{Fence, FenceError, boot_time};
use coracle_proto::status::ApiError;
use std::future::pending;
use std::time::{Duration, Instant};
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
const GIVE_UP: Duration = Duration::from_secs(9);
// The old leader stops before a new one may start.
const _: () = assert!(GIVE_UP.as_secs() as i64 + 2 < LEASE_SECONDS);
/// How long the store may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// How soon a candidate tries again what failed.
const RETRY: Duration = Duration::from_millis(500);
const NAMESPACE: &str = "kube-system";

/// A term of this candidate: dropping it aborts the control loops.
struct Term {
    fence: Fence,
    loops: JoinSet<()>,
}

/// How long a candidate waits until it looks at a Lease again that another one holds until `due`.
fn next_look(due: Instant, now: Instant) -> Duration {
    due.saturating_duration_since(now).min(RENEW)
}

/// Leader election for the Lease `name` with the identity `me`, until `stop`. `run` is called for each term, with a client whose
/// writes are refused when the term is over. The tasks that it returns are aborted as soon as that is known: the Lease belongs
/// to another candidate, was not renewed in time, or the store refused a write. On `stop` the Lease is released, so that the
/// next leader does not wait for its expiry.
pub async fn lead(
    client: Client,
    name: &'static str,
    me: String,
    stop: CancellationToken,
    run: impl Fn(&Client) -> JoinSet<()>,
) {
    let mut candidate = Candidate::new(client.clone(), name, me.clone());
    let mut term: Option<Term> = None;
    loop {
        let (fence, begun) = (term.as_ref().map(|term| term.fence.clone()), boot_time());
        let standing = tokio::select! {
            // First: a leader that was suspended stops its loops before it does anything else.
            biased;
            why = ended(fence.as_ref()) => Err(TurnError::Term(why)),
            standing = turn(&mut candidate, fence.is_some()) => standing,
        };
        // The Lease holds at least from when the turn began.
        let until = begun.saturating_add(GIVE_UP);
        let mut wait = RENEW;
        match standing {
            Ok(Standing::Elected(revision)) => {
                tracing::info!(lease = name, identity = me, fence = revision, "leading");
                let fence = Fence::new(name, revision, until);
                let loops = run(&client.fenced(fence.clone()));
                term = Some(Term { fence, loops });
            }
            Ok(Standing::Renewed) => {
                // It may have expired while the renewal was under way; the next turn begins a new term.
                if term.as_ref().is_some_and(|term| term.fence.extend(until).is_err()) {
                    wait = Duration::ZERO;
                }
            }
            Ok(Standing::Waiting(due)) => {
                wait = next_look(due, Instant::now());
                end(&mut term, name, FenceError::Lost);
            }
            Err(TurnError::Term(why)) => {
                end(&mut term, name, why);
                continue;
            }
            Err(TurnError::Lease(error)) => {
                tracing::warn!(lease = name, error, "cannot renew lease, will retry");
                wait = RETRY;
            }
        }
        let fence = term.as_ref().map(|term| term.fence.clone());
        tokio::select! {
            () = stop.cancelled() => break,
            why = ended(fence.as_ref()) => end(&mut term, name, why),
            () = tokio::time::sleep(wait) => {}
        }
    }
    if let Some(Term { mut loops, .. }) = term.take() {
        loops.shutdown().await;
        let _ = tokio::time::timeout(ANSWER, candidate.release()).await;
    }
}

/// Why a turn has no result.
enum TurnError {
    /// The own term is over.
    Term(FenceError),
    /// The Lease or the fence cannot be read or written.
    Lease(String),
}

/// One turn. A store that does not answer must not keep a candidate waiting.
async fn turn(candidate: &mut Candidate, leads: bool) -> Result<Standing, TurnError> {
    match tokio::time::timeout(ANSWER, candidate.turn(leads, Instant::now)).await {
        Ok(standing) => standing.map_err(|error: ApiError| TurnError::Lease(error.to_string())),
        Err(_) => Err(TurnError::Lease("the store does not answer".into())),
    }
}

/// Returns when the term with this fence is over; without one never.
async fn ended(fence: Option<&Fence>) -> FenceError {
    match fence {
        Some(fence) => fence.ended().await,
        None => pending().await,
    }
}

/// Aborts the control loops of a term. What they still have under way is refused by the fence.
fn end(term: &mut Option<Term>, name: &str, why: FenceError) {
    if let Some(Term { fence, loops }) = term.take() {
        fence.lose();
        drop(loops);
        tracing::warn!(lease = name, reason = %why, "no longer leading");
    }
}
