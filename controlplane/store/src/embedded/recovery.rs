//! Recovery after a failed write or sync. The engine accepts no more writes then, so the writer rejects them with the cause;
//! reads continue. As soon as a probe file can be written, the engine is closed and reopened, and its journal decides:
//! every acknowledged write must be there, and further writes are published to watchers. If an acknowledged write is missing,
//! the process exits. On a full disk the engine is closed before the probe, because the failed batch may occupy the space.

use super::{damage::Damage, disk::Disk, health, panics::message, probe::probe, writer_state::WriterState};
use crate::{Revision, StoreError, Unhealthy};
use coracle_cli::causes;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// The first and the longest delay between two attempts.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// Exit code: a restart may fix the failure (`EX_TEMPFAIL`).
const TEMPORARY_FAILURE: i32 = 75;

/// State while the files cannot be written.
pub(super) struct Recovery {
    pub why: Unhealthy,
    since: Instant,
    next: Instant,
    pause: Duration,
    /// The remains of the failed batch were cut off the journal.
    settled: bool,
}

impl Recovery {
    /// Enters recovery after an error of the files: writes are rejected until it succeeds.
    pub fn begin(state: &mut WriterState, error: &StoreError) -> Self {
        let why = match error {
            StoreError::Unavailable(why @ Unhealthy::Damaged { .. }) => state.disk.located(why.clone()),
            // A failure in the background does not tell its cause; the disk does.
            StoreError::Unavailable(why) => match probe(&state.disk.path) {
                Err(error) if !matches!(why, Unhealthy::DiskFull { .. }) => health::of_io(&error),
                _ => why.clone(),
            },
            other => Unhealthy::Io { detail: other.to_string() },
        };
        tracing::error!(error = %causes::chain(error), %why, "store is not writable, will retry");
        let now = Instant::now();
        state.disk.health.set_writer(Some(why.clone()));
        state.unsynced = None;
        // What was staged has not been written.
        state.revision = state.watchers.published();
        Self { why, since: now, next: now + FIRST, pause: FIRST, settled: false }
    }

    /// Time until the next attempt.
    pub fn delay(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Attempts the recovery when it is due. Returns whether the files can be written again.
    pub fn attempt(&mut self, state: &mut WriterState) -> bool {
        if !self.delay().is_zero() {
            return false;
        }
        match self.reopen_and_resume(state) {
            Ok(found) => {
                let (revision, after) = (state.revision, self.since.elapsed());
                tracing::info!(found, revision, ?after, "the store takes writes again");
                state.disk.health.set_writer(None);
                true
            }
            Err(why) => {
                state.disk.health.set_writer(Some(why.clone()));
                self.pause = (self.pause * 2).min(LONGEST);
                self.next = Instant::now() + self.pause;
                self.why = why;
                false
            }
        }
    }

    /// Reopens the files. Returns the number of writes that were found but not acknowledged.
    fn reopen_and_resume(&mut self, state: &mut WriterState) -> Result<usize, Unhealthy> {
        if let Unhealthy::Damaged { .. } = &self.why
            && let located @ Unhealthy::Damaged { .. } = state.disk.located(Unhealthy::Stopped)
        {
            return Err(located);
        }
        let fits = self.reopen(&state.disk)?;
        let found = resume(state)?;
        fits.map(|()| found)
    }

    /// Closes the files and opens them again. `Ok(Err(_))` when they are open, but nothing can be written.
    fn reopen(&mut self, disk: &Disk) -> Result<Result<(), Unhealthy>, Unhealthy> {
        let fits = || probe(&disk.path).map_err(|error| health::of_io(&error));
        // On a full disk the failed batch itself may take the space, and only closing gives it back.
        let probe_first = !matches!(self.why, Unhealthy::DiskFull { .. }) || (self.settled && disk.is_open());
        if probe_first {
            fits()?;
        }
        let closed = disk.close().map_err(transient_or_exit)?;
        self.settled = true;
        let fits = if probe_first { Ok(()) } else { fits() };
        match (closed.open(), fits) {
            (Ok(()), fits) => Ok(fits),
            (Err(damage), Ok(())) => Err(transient_or_exit(damage)),
            // Opening may need space, too, so that its failure says nothing about the files.
            (Err(damage), Err(why)) => {
                tracing::warn!(error = %causes::chain(&damage), "store cannot be opened until there is disk space");
                Err(why)
            }
        }
    }
}

/// Continues from the state of the files. Returns the number of writes that were found but not acknowledged.
fn resume(state: &mut WriterState) -> Result<usize, Unhealthy> {
    let published = state.watchers.published();
    let read = || {
        let view = state.disk.view()?;
        Ok::<_, StoreError>((view.marks()?, view.known()?, view.changes(published, usize::MAX)?))
    };
    let (marks, known, found) = read().map_err(|error| Unhealthy::Io { detail: error.to_string() })?;
    if known < published {
        exit_for_restart(&lost(known, published));
    }
    (state.marks, state.revision) = (marks, known);
    state.disk.durable.set(known);
    state.count(&found);
    state.watchers.publish(&found);
    Ok(found.len())
}

/// The cause of a transient failure. Exits the process when the failure is not transient.
fn transient_or_exit(damage: Damage) -> Unhealthy {
    if !damage.is_transient() {
        exit_for_restart(&damage.to_string());
    }
    let cause = match &damage {
        Damage::Io { source, .. } => Some(source),
        Damage::Engine { source, .. } => health::io_error(source.as_ref()),
        Damage::Bytes { .. } | Damage::Panic { .. } => None,
    };
    match cause.map(health::of_io) {
        Some(why @ (Unhealthy::DiskFull { .. } | Unhealthy::ReadOnly { .. })) => why,
        _ => Unhealthy::Io { detail: damage.to_string() },
    }
}

fn lost(known: Revision, published: Revision) -> String {
    format!("the files end with revision {known}, but revision {published} was already shown to clients")
}

/// Runs the writer. When it panics the process exits: nothing would answer writes or end watches.
pub(super) fn or_exit(run: impl FnOnce()) {
    if let Err(panic) = catch_writer_panic(run) {
        exit_for_restart(&panic.to_string());
    }
}

/// The writer panicked with this message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the writer panicked: {0}")]
struct WriterPanic(String);

fn catch_writer_panic(run: impl FnOnce()) -> Result<(), WriterPanic> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| WriterPanic(message(&*panic)))
}

/// Exits the process: clients may have seen revisions that are not on disk.
fn exit_for_restart(why: &str) -> ! {
    tracing::error!(why, "store failed, exiting to be restarted");
    std::process::exit(TEMPORARY_FAILURE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_writer_is_caught_with_its_message() {
        assert_eq!(catch_writer_panic(|| ()), Ok(()));
        let panic = catch_writer_panic(|| panic!("revision {} is wrong", 7));
        assert_eq!(panic, Err(WriterPanic("revision 7 is wrong".to_owned())));
    }
}
