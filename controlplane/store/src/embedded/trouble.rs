//! When a write or a sync fails the engine takes no more writes. The writer refuses them, too, and says why; reads go on.
//! As soon as the disk takes a file again, the engine is closed and opened anew, and what its journal holds counts:
//! everything acknowledged must be there, and what is there beyond that is shown to watchers as any other write. When
//! that is not so, nothing in this process can be trusted, and it ends. When the disk is full the engine is closed before
//! the disk is tried: the batch that failed may take all the space.

use super::{damage::Damage, disk::message, health, writer::Writer};
use crate::{Revision, StoreError, Unhealthy};
use std::{
    fs::File,
    io::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

/// The first pause between two tries, and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// What must fit on the disk before it is used again: a table and a journal that begins.
const PROBE: usize = 1 << 20;
/// How the process ends: something that a restart may put right.
const TEMPORARY_FAILURE: i32 = 75;

/// The files cannot be written.
pub(super) struct Trouble {
    pub why: Unhealthy,
    since: Instant,
    next: Instant,
    pause: Duration,
    /// What the failed batch left in the journal has been cut off.
    settled: bool,
}

impl Trouble {
    /// How long until the next try.
    pub fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

impl Writer {
    /// Remembers a failure of the files; other errors are the caller's.
    pub fn noted<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ StoreError::Unavailable(_)) = &result {
            self.fail(error);
        }
        result
    }

    /// From now on nothing is written until the files are well again.
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
        tracing::error!(%error, %why, "the store does not take writes for now");
        let now = Instant::now();
        self.disk.health.set_writer(Some(why.clone()));
        self.trouble =
            Some(Trouble { why: why.clone(), since: now, next: now + FIRST, pause: FIRST, settled: false });
        self.unsynced = None;
        // What was staged has not been written.
        self.revision = self.hub.published();
        why
    }

    /// Tries to get out of trouble, if there is any and it is time.
    pub fn recover(&mut self) {
        let Some(trouble) = self.trouble.as_ref().filter(|trouble| trouble.left().is_zero()) else { return };
        let (why, since) = (trouble.why.clone(), trouble.since);
        match self.revive(&why) {
            Ok(found) => {
                let (revision, after) = (self.revision, since.elapsed());
                tracing::info!(found, revision, ?after, "the store takes writes again");
                self.trouble = None;
                self.disk.health.set_writer(None);
            }
            Err(why) => {
                self.disk.health.set_writer(Some(why.clone()));
                if let Some(trouble) = &mut self.trouble {
                    trouble.pause = (trouble.pause * 2).min(LONGEST);
                    trouble.next = Instant::now() + trouble.pause;
                    trouble.why = why;
                }
            }
        }
    }

    /// Opens the files again. Returns how many writes are there that were not acknowledged.
    fn revive(&mut self, why: &Unhealthy) -> Result<usize, Unhealthy> {
        if let Unhealthy::Damaged { .. } = why
            && let located @ Unhealthy::Damaged { .. } = self.disk.located(Unhealthy::Stopped)
        {
            return Err(located);
        }
        let fits = self.reopen(why)?;
        let found = self.adopt()?;
        fits.map(|()| found)
    }

    /// Closes the files and opens them again. `Ok(Err(_))` when they are open, but nothing can be written.
    fn reopen(&mut self, why: &Unhealthy) -> Result<Result<(), Unhealthy>, Unhealthy> {
        let disk = self.disk.clone();
        let fits = || probe(&disk.path).map_err(|error| health::of_io(&error));
        // On a full disk the failed batch itself may take the space, and only closing gives it back.
        let settled = self.trouble.as_ref().is_some_and(|trouble| trouble.settled);
        let probe_first = !matches!(why, Unhealthy::DiskFull { .. }) || (settled && disk.is_open());
        if probe_first {
            fits()?;
        }
        let closed = disk.close().map_err(usable_later)?;
        if let Some(trouble) = &mut self.trouble {
            trouble.settled = true;
        }
        let fits = if probe_first { Ok(()) } else { fits() };
        match (closed.open(), fits) {
            (Ok(()), fits) => Ok(fits),
            (Err(damage), Ok(())) => Err(usable_later(damage)),
            // Opening may need space, too, so that its failure says nothing about the files.
            (Err(damage), Err(why)) => {
                tracing::warn!(error = %damage, "the store cannot be read until there is space");
                Err(why)
            }
        }
    }

    /// Goes on from what the files hold. Returns how many writes are there that were not acknowledged.
    fn adopt(&mut self) -> Result<usize, Unhealthy> {
        let published = self.hub.published();
        let read = || {
            let view = self.disk.view()?;
            Ok::<_, StoreError>((view.marks()?, view.known()?, view.changes(published, usize::MAX)?))
        };
        let (marks, known, found) = read().map_err(|error| Unhealthy::Io { detail: error.to_string() })?;
        if known < published {
            give_up(&lost(known, published));
        }
        (self.marks, self.revision) = (marks, known);
        self.disk.mark.set(known);
        self.count(&found);
        self.hub.publish(&found);
        Ok(found.len())
    }
}

/// Why files that cannot be opened now may be opened later. Ends the process when they cannot.
fn usable_later(damage: Damage) -> Unhealthy {
    if !damage.is_transient() {
        give_up(&damage.to_string());
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

/// Whether a file can be written and synced where the store is.
pub(super) fn probe(store: &Path) -> io::Result<()> {
    let path = store.join("probe");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0xa5; PROBE])?;
        file.sync_all()
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

/// Runs the writer. When it panics the process ends: nobody would answer writes or end watches.
pub(super) fn or_give_up(run: impl FnOnce()) {
    if let Err(panic) = caught(run) {
        give_up(&format!("the writer panicked: {panic}"));
    }
}

/// The message of a panic as an error.
fn caught(run: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic))
}

/// Ends the process: what it has shown to clients may not be what the disk has.
fn give_up(why: &str) -> ! {
    tracing::error!(why, "the store cannot go on; this process ends so that it is started anew");
    std::process::exit(TEMPORARY_FAILURE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_writer_is_caught_with_its_message() {
        assert_eq!(caught(|| ()), Ok(()));
        let panic = caught(|| panic!("revision {} is wrong", 7));
        assert_eq!(panic, Err("revision 7 is wrong".to_owned()));
    }
}
