//! When a write or a sync fails the engine takes no more writes. The writer refuses them, too, and says why; reads go on.
//! As soon as the disk takes a file again, the engine is closed and opened anew, and what its journal holds counts:
//! everything acknowledged must be there, and what is there beyond that is shown to watchers as any other write. When
//! that is not so, nothing in this process can be trusted, and it ends.

use super::{health, writer::Writer};
use crate::store::{Revision, StoreError, Unhealthy};
use std::{
    fs::File,
    io::{self, Write},
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
        self.trouble = Some(Trouble { why: why.clone(), since: now, next: now + FIRST, pause: FIRST });
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
        probe(&self.disk.path).map_err(|error| health::of_io(&error))?;
        if let Err(damage) = self.disk.reopen() {
            if damage.is_transient() {
                return Err(Unhealthy::Io { detail: damage.to_string() });
            }
            give_up(&damage.to_string());
        }
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
        self.hub.publish(&found);
        Ok(found.len())
    }
}

fn lost(known: Revision, published: Revision) -> String {
    format!("the files end with revision {known}, but revision {published} was already shown to clients")
}

/// Whether a file can be written and synced where the store is.
fn probe(store: &Path) -> io::Result<()> {
    let path = store.join("probe");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0xa5; PROBE])?;
        file.sync_all()
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

/// Ends the process: what it has shown to clients is not what the disk has.
fn give_up(why: &str) -> ! {
    tracing::error!(why, "the store cannot be opened again; this process ends so that it is started anew");
    std::process::exit(TEMPORARY_FAILURE);
}
