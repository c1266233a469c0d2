//! The fence of a leader: what its control loops write is stored only while no other candidate has been elected. A server that
//! was stopped and goes on does not know how much time has passed, and a write that it sent before may arrive late; the store
//! refuses both, because it compares the key of the election in the same transaction.

use nix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where the store keeps the fences; never served by the API.
const KEYS: &str = "/coracle/fences/";

/// Why a leader may not write any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// The store refused a write, or the election found out otherwise.
    #[error("another server has been elected since")]
    Lost,
    /// Another candidate may take the Lease any time.
    #[error("the Lease was not renewed in time")]
    Expired,
}

/// The right of the leader of one election to write, for one term; cheap to clone.
#[derive(Debug, Clone)]
pub struct Fence(Arc<Term>);

#[derive(Debug)]
struct Term {
    election: String,
    revision: u64,
    /// Milliseconds of [`boot_time`].
    until: AtomicU64,
    lost: CancellationToken,
}

/// The time since the machine was started, with the time that it was suspended. Nobody sets this clock.
pub fn boot_time() -> Duration {
    // The clock is part of every kernel that the program runs on; without it no fence would ever hold.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The key in the store that changes exactly when an election has a new leader.
pub fn key(election: &str) -> String {
    format!("{KEYS}{election}")
}

impl Fence {
    /// A fence that was taken at `revision` and holds until this [`boot_time`].
    pub fn new(election: impl Into<String>, revision: u64, until: Duration) -> Self {
        let until = AtomicU64::new(millis(until));
        Self(Arc::new(Term { election: election.into(), revision, until, lost: CancellationToken::new() }))
    }

    /// The election: the name of its Lease.
    pub fn election(&self) -> &str {
        &self.0.election
    }

    /// The revision that the election's key has during this term.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// Lets the leader write until this [`boot_time`]. A fence that does not hold any more stays so: others may have acted
    /// since, and what the control loops know may be out of date.
    pub fn extend(&self, until: Duration) -> Result<(), FenceError> {
        self.check()?;
        self.0.until.fetch_max(millis(until), Ordering::AcqRel);
        Ok(())
    }

    /// Whether the leader may write now, as far as is known here.
    pub fn check(&self) -> Result<(), FenceError> {
        match self.0.lost.is_cancelled() {
            true => Err(FenceError::Lost),
            false if self.left().is_zero() => Err(FenceError::Expired),
            false => Ok(()),
        }
    }

    /// Ends the term: another server has been elected.
    pub fn lose(&self) {
        self.0.lost.cancel();
    }

    /// Returns when the leader may not write any more, with the reason.
    pub async fn ended(&self) -> FenceError {
        loop {
            if let Err(why) = self.check() {
                return why;
            }
            // The timer does not count the time that the machine is suspended; the check does.
            let left = self.left();
            let _ = tokio::time::timeout(left, self.0.lost.cancelled()).await;
        }
    }

    fn left(&self) -> Duration {
        Duration::from_millis(self.0.until.load(Ordering::Acquire).saturating_sub(millis(boot_time())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_fence_holds_until_its_time_and_is_not_revived() {
        let fence = Fence::new("e", 7, boot_time() + LONG);
        assert_eq!((fence.election(), fence.revision(), fence.check()), ("e", 7, Ok(())));
        assert_eq!(fence.extend(boot_time()), Ok(()));
        assert_eq!(fence.check(), Ok(()), "an extension never shortens it");
        let late = Fence::new("e", 7, boot_time());
        assert_eq!(late.check(), Err(FenceError::Expired));
        assert_eq!(late.extend(boot_time() + LONG), Err(FenceError::Expired));
        assert_eq!(late.check(), Err(FenceError::Expired), "others may have acted since");
    }

    #[tokio::test]
    async fn a_loss_is_told_to_all_who_have_the_fence() {
        let fence = Fence::new("e", 7, boot_time() + LONG);
        let other = fence.clone();
        let waits = tokio::spawn(async move { other.ended().await });
        tokio::task::yield_now().await;
        fence.lose();
        assert_eq!(waits.await.ok(), Some(FenceError::Lost));
        assert_eq!(fence.extend(boot_time() + LONG), Err(FenceError::Lost));
    }

    #[tokio::test]
    async fn a_fence_ends_by_itself() {
        let fence = Fence::new("e", 7, boot_time() + Duration::from_millis(20));
        assert_eq!(fence.ended().await, FenceError::Expired);
    }
}
