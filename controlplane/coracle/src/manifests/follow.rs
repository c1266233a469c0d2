//! Follows the directory: changed files are applied, and removed when they go. What fails is tried again with back-off, and at
//! once when another file or the table of kinds changes. One file does not wait for another.

use super::LEASE;
use super::apply::{Applier, ObjectError, Outcome, Present};
use super::directory::{self, Change, Watch};
use super::documents::{self, Document, FileError};
use super::record;
use coracle_cli::causes;
use coracle_cli::supervise::{RestartBackoff, Supervisor};
use coracle_client::Client;
use coracle_client::user::{MASTERS, User};
use coracle_informer::events::{EventDraft, Severity};
use coracle_informer::recorder::{Recorder, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Pauses between attempts.
const BACKOFF: RestartBackoff = RestartBackoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(120),
    healthy: Duration::from_secs(60),
    most: 5,
};
/// Most errors of an attempt that become Events.
const MAX_EVENTS: usize = 10;
/// Longest message of an Event, in bytes.
const MAX_MESSAGE: usize = 1000;

/// Starts to apply the manifests of a directory; aborting the tasks ends it.
pub(crate) fn start(dir: &Path, client: &Client, supervisor: &Supervisor) -> JoinSet<()> {
    // Who can write into the directory is the administrator of the cluster.
    let client = client.acting_as(User::new(format!("system:{LEASE}"), [MASTERS.to_owned()]));
    let writer = Writer { client: client.clone(), kind: client.kind("", "events") };
    let (recorder, task) = Recorder::new(LEASE, writer);
    let mut tasks = JoinSet::new();
    tasks.spawn(supervisor.clone().finish("events of manifests", task));
    let dir = dir.to_owned();
    tasks.spawn(supervisor.clone().keep("manifests", move || {
        let follower = Follower {
            dir: dir.clone(),
            applier: Applier { client: client.clone() },
            recorder: recorder.clone(),
            files: BTreeMap::new(),
            present: Present::new(),
        };
        follower.run()
    }));
    tasks
}

/// What is to be done about a file.
#[derive(Debug)]
enum Todo {
    Apply(Vec<Document>),
    Remove,
    Report(FileError),
}

/// A file about which something is to be done.
#[derive(Debug)]
struct Pending {
    todo: Todo,
    failures: u32,
    due: Instant,
}

struct Follower {
    dir: PathBuf,
    applier: Applier,
    recorder: Recorder,
    files: BTreeMap<String, Pending>,
    present: Present,
}

impl Follower {
    /// Follows the directory without end.
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let error = self.follow().await;
            failures = if begun.elapsed() > BACKOFF.healthy { 1 } else { failures + 1 };
            let (dir, error) = (self.dir.display(), causes::chain(&error));
            // Nothing is removed: a directory that is not there is not one without files.
            tracing::warn!(%dir, error, "directory of manifests cannot be followed, will retry");
            tokio::time::sleep(BACKOFF.delay(failures)).await;
        }
    }

    /// Follows the directory until that fails.
    async fn follow(&mut self) -> io::Error {
        let mut watch = match Watch::open(&self.dir) {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        let mut kinds = self.applier.client.registry().changes();
        if let Err(error) = self.read_all().await {
            return error;
        }
        loop {
            kinds.mark_unchanged();
            self.work().await;
            let next = self.files.values().map(|file| file.due).min();
            let pause = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = watch.next() => match change {
                    Change::Files(files) => self.read(files).await,
                    Change::Unknown => {
                        if let Err(error) = self.read_all().await {
                            return error;
                        }
                    }
                    Change::Lost => return io::Error::other("it was removed, moved or unmounted"),
                },
                changed = kinds.changed(), if next.is_some() => {
                    if changed.is_ok() {
                        self.all_due();
                    }
                }
                () = pause => {}
            }
        }
    }

    /// Reads all files, and those that records know of.
    async fn read_all(&mut self) -> io::Result<()> {
        let mut files = directory::files(&self.dir)?;
        files.extend(record::all(&self.applier.client).into_iter().map(|record| record.file));
        self.read(files).await;
        Ok(())
    }

    /// Reads files that have changed. Others that failed may have waited for that.
    async fn read(&mut self, files: BTreeSet<String>) {
        self.all_due();
        for file in files {
            let path = self.dir.join(&file);
            let name = file.clone();
            let read = tokio::task::spawn_blocking(move || match directory::read(&path)? {
                Some(bytes) => documents::parse(&name, &bytes).map(Some),
                None => Ok(None),
            });
            let todo = match read.await {
                Ok(Ok(Some(documents))) => {
                    let identities = documents.iter().map(|document| document.identity.clone()).collect();
                    self.present.insert(file.clone(), identities);
                    Todo::Apply(documents)
                }
                Ok(Ok(None)) => {
                    self.present.remove(&file);
                    Todo::Remove
                }
                // What it was before is in the cluster, and stays there.
                Ok(Err(error)) => Todo::Report(error),
                Err(panicked) => Todo::Report(FileError::Read(io::Error::other(panicked))),
            };
            self.files.insert(file, Pending { todo, failures: 0, due: Instant::now() });
        }
    }

    fn all_due(&mut self) {
        let now = Instant::now();
        self.files.values_mut().for_each(|file| file.due = now);
    }

    /// Does what is due: everything is applied before anything is removed, because objects may go from one file to another.
    async fn work(&mut self) {
        let now = Instant::now();
        let due: Vec<String> =
            self.files.iter().filter(|(_, file)| file.due <= now).map(|(name, _)| name.clone()).collect();
        let mut outcomes = Vec::new();
        for file in due {
            let outcome = match self.files.get(&file).map(|pending| &pending.todo) {
                Some(Todo::Apply(documents)) => self.applier.apply(&file, documents, &self.present).await,
                _ => Outcome::default(),
            };
            outcomes.push((file, outcome));
        }
        for (file, mut outcome) in outcomes {
            let Some(mut pending) = self.files.remove(&file) else { continue };
            if !matches!(pending.todo, Todo::Report(_)) {
                self.applier.prune(&file, &self.present, &mut outcome).await;
            }
            if !self.finish(&file, &pending, &outcome).await {
                pending.failures += 1;
                pending.due = Instant::now() + BACKOFF.delay(pending.failures);
                self.files.insert(file, pending);
            }
        }
    }

    /// Reports what became of a file, in log and Events. Whether it is done.
    async fn finish(&self, file: &str, pending: &Pending, outcome: &Outcome) -> bool {
        let Outcome { applied, removed, errors } = outcome;
        if matches!(pending.todo, Todo::Remove) && errors.is_empty() && !self.applier.is_recorded(file) {
            return true;
        }
        let (reason, messages) = match &pending.todo {
            Todo::Report(error) => ("InvalidManifest", vec![causes::chain(error)]),
            _ => ("ApplyFailed", self.messages(pending, errors)),
        };
        for message in &messages {
            tracing::warn!(file, error = message, "manifest not applied");
        }
        let record = match self.applier.record_of(file).await {
            Ok(record) => record,
            Err(error) => {
                tracing::warn!(file, error = %causes::chain(&error), "manifest not recorded, will retry");
                return false;
            }
        };
        let about = ("v1", "ConfigMap");
        for message in messages.iter().take(MAX_EVENTS) {
            let message = shortened(format!("{file}: {message}"));
            self.recorder.send(EventDraft::new(about, &record, Severity::Warning, reason, message));
        }
        if !errors.is_empty() {
            return false;
        }
        let (reason, message) = match pending.todo {
            Todo::Report(_) => return true,
            Todo::Apply(_) => ("Applied", format!("{file}: {applied} objects applied, {removed} removed")),
            Todo::Remove => ("Removed", format!("{file}: {removed} objects removed")),
        };
        tracing::info!(file, applied, removed, "manifest {}", reason.to_lowercase());
        self.recorder.send(EventDraft::new(about, &record, Severity::Normal, reason, message));
        if matches!(pending.todo, Todo::Remove)
            && let Err(error) = self.applier.forget(file).await
        {
            tracing::warn!(file, error = %causes::chain(&error), "record of a manifest not deleted, will retry");
            return false;
        }
        true
    }

    /// The errors that are reported. A kind that is not there at the first attempt may come from another file.
    fn messages(&self, pending: &Pending, errors: &[ObjectError]) -> Vec<String> {
        let first = pending.failures == 0;
        let reported = errors.iter().filter(|error| !(first && matches!(error, ObjectError::NoKind(_))));
        reported.map(|error| causes::chain(error)).collect()
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_events_are_bounded() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = shortened("ä".repeat(MAX_MESSAGE));
        assert!(long.len() <= MAX_MESSAGE + '…'.len_utf8() && long.ends_with("ä…"));
    }
}
