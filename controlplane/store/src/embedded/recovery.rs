//! Recovery after a failed write or sync. The engine accepts no more writes then, so the writer rejects them with the cause;
//! reads continue. As soon as a probe file can be written, the engine is closed and reopened, and its journal decides:
//! every acknowledged write must be there, and further writes are published to watchers. If an acknowledged write is missing,
//! the process exits. On a full disk the engine is closed before the probe, because the failed batch may occupy the space.

use super::{damage::Damage, disk::message, health, writer::Writer};
use crate::{Revision, StoreError, Unhealthy};
use coracle_cli::causes;
use std::{
    fs::File,
    io::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

/// The first and the longest delay between two attempts.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// Bytes that must fit on the disk before it is used again: a table and a new journal.
const PROBE: usize = 1 << 20;
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
    /// Time until the next attempt.
    pub fn delay(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

impl Writer {
    /// Enters recovery if the result is a failure of the files.
    pub fn record_failure<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ StoreError::Unavailable(_)) = &result {
            self.fail(error);
        }
        result
    }

    /// Enters recovery: writes are rejected until it succeeds.
    pub fn fail(&mut self, error: &StoreError) -> Unhealthy {
        let why = match error {
            StoreError::Unavailable(why @ Unhealthy::Damaged { .. }) => self.disk.located(why.clone()),
            // A failure in the background does not tell its cause; the disk does.
            StoreError::Unavailable(why) => match probe(&self.disk.path) {
                Err(error) if !matches!(why, Unhealthy::DiskFull { .. }) => health::of_io(&error),
                _ => why.clone(),
            },
            other => Unhealthy::Io { detail: other.to_string() },
        };
        tracing::error!(error = %causes::chain(error), %why, "store is not writable, will retry");
        let now = Instant::now();
        self.disk.health.set_writer(Some(why.clone()));
        self.recovery =
            Some(Recovery { why: why.clone(), since: now, next: now + FIRST, pause: FIRST, settled: false });
        self.unsynced = None;
        // What was staged has not been written.
        self.revision = self.watchers.published();
        why
    }

    /// Attempts the recovery when it is due.
    pub fn recover(&mut self) {
        let Some(recovery) = self.recovery.as_ref().filter(|recovery| recovery.delay().is_zero()) else {
            return;
        };
        let (why, since) = (recovery.why.clone(), recovery.since);
        match self.reopen_and_resume(&why) {
            Ok(found) => {
                let (revision, after) = (self.revision, since.elapsed());
                tracing::info!(found, revision, ?after, "the store takes writes again");
                self.recovery = None;
                self.disk.health.set_writer(None);
            }
            Err(why) => {
                self.disk.health.set_writer(Some(why.clone()));
                if let Some(recovery) = &mut self.recovery {
                    recovery.pause = (recovery.pause * 2).min(LONGEST);
                    recovery.next = Instant::now() + recovery.pause;
                    recovery.why = why;
                }
            }
        }
    }

    /// Reopens the files. Returns the number of writes that were found but not acknowledged.
    fn reopen_and_resume(&mut self, why: &Unhealthy) -> Result<usize, Unhealthy> {
        if let Unhealthy::Damaged { .. } = why
            && let located @ Unhealthy::Damaged { .. } = self.disk.located(Unhealthy::Stopped)
        {
            return Err(located);
        }
        let fits = self.reopen(why)?;
        let found = self.resume()?;
        fits.map(|()| found)
    }

    /// Closes the files and opens them again. `Ok(Err(_))` when they are open, but nothing can be written.
    fn reopen(&mut self, why: &Unhealthy) -> Result<Result<(), Unhealthy>, Unhealthy> {
        let disk = self.disk.clone();
        let fits = || probe(&disk.path).map_err(|error| health::of_io(&error));
        // On a full disk the failed batch itself may take the space, and only closing gives it back.
        let settled = self.recovery.as_ref().is_some_and(|recovery| recovery.settled);
        let probe_first = !matches!(why, Unhealthy::DiskFull { .. }) || (settled && disk.is_open());
        if probe_first {
            fits()?;
        }
        let closed = disk.close().map_err(transient_or_exit)?;
        if let Some(recovery) = &mut self.recovery {
            recovery.settled = true;
        }
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

    /// Continues from the state of the files. Returns the number of writes that were found but not acknowledged.
    fn resume(&mut self) -> Result<usize, Unhealthy> {
        let published = self.watchers.published();
        let read = || {
            let view = self.disk.view()?;
            Ok::<_, StoreError>((view.marks()?, view.known()?, view.changes(published, usize::MAX)?))
        };
        let (marks, known, found) = read().map_err(|error| Unhealthy::Io { detail: error.to_string() })?;
        if known < published {
            exit_for_restart(&lost(known, published));
        }
        (self.marks, self.revision) = (marks, known);
        self.disk.durable.set(known);
        self.count(&found);
        self.watchers.publish(&found);
        Ok(found.len())
    }
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

/// Writes and syncs a probe file in the directory of the store.
pub(super) fn probe(store: &Path) -> io::Result<()> {
    let path = store.join("probe");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0xa5; PROBE])?;
        file.sync_all()
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed)
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
