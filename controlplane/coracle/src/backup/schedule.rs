//! Backups by the clock. Of several servers the elected one makes them.

use super::metrics::BackupMetrics;
use super::options::Scheduled;
use super::source::ServerSource;
use coracle_backup::last::{self, LastBackup};
use coracle_backup::make::MakeError;
use coracle_backup::save::{SaveError, Saved, save};
use coracle_cli::causes;
use coracle_controllers::cronjob::schedule::next;
use coracle_store::Revision;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The Lease of the server that makes backups.
pub(crate) const LEASE: &str = "coracle-backup";
/// The clock may be set while a task sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Makes backups of this server.
#[derive(Clone)]
pub(crate) struct Scheduler {
    pub(crate) scheduled: Scheduled,
    pub(crate) source: ServerSource,
    pub(crate) metrics: Arc<BackupMetrics>,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Make(#[from] MakeError),
    #[error(transparent)]
    Save(#[from] SaveError),
}

impl Scheduler {
    /// Makes backups when they are due, without end. One that was missed, because no server ran or another one stopped leading, is
    /// made at once.
    pub(crate) async fn run(self) {
        let mut since = match last::read(&*self.source.store).await {
            Ok(Some(last)) => last.time.min(Timestamp::now()),
            Ok(None) => Timestamp::now(),
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "cannot read when the last backup was made");
                Timestamp::now()
            }
        };
        match last::read_good(&*self.source.store).await {
            Ok(Some(good)) => self.metrics.found(good.time, good.bytes),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "cannot read when the last good backup was made");
            }
        }
        while let Some(due) = next(&self.scheduled.schedule, since, &TimeZone::UTC) {
            loop {
                let left = due.duration_since(Timestamp::now());
                match Duration::try_from(left) {
                    Ok(left) if !left.is_zero() => tokio::time::sleep(left.min(LONGEST_SLEEP)).await,
                    _ => break,
                }
            }
            self.backup().await;
            since = Timestamp::now();
        }
        tracing::warn!("the schedule of backups is never due");
        std::future::pending::<()>().await;
    }

    /// Makes one, removes old ones, and says in log, metrics and store how it went.
    async fn backup(&self) {
        let begun = Instant::now();
        let mut revision = 0;
        let made = self.make(&mut revision).await;
        let time = Timestamp::now();
        let result = match &made {
            Ok(saved) => {
                self.metrics.succeeded(time, saved.bytes, begun.elapsed());
                let (location, bytes) = (saved.place.to_string(), saved.bytes);
                tracing::info!(location, bytes, rv = revision, keys = saved.counts.keys, "backup made");
                LastBackup { time, revision, location, bytes, error: None }
            }
            Err(error) => {
                self.metrics.failed();
                let (location, error) = (self.scheduled.options.place.to_string(), causes::chain(error));
                tracing::error!(location, error, "cannot make a backup");
                LastBackup { time, revision, location, bytes: 0, error: Some(error) }
            }
        };
        if let Err(error) = last::write(&*self.source.store, result).await {
            tracing::warn!(error = %causes::chain(&error), "cannot record the result of the backup");
        }
        if made.is_ok() {
            self.prune().await;
        }
    }

    async fn make(&self, revision: &mut Revision) -> Result<Saved, RunError> {
        let (header, pieces) = self.source.begin().await?;
        *revision = header.revision;
        Ok(save(pieces, &self.scheduled.options).await?)
    }

    async fn prune(&self) {
        let (retention, options) = (self.scheduled.retention, &self.scheduled.options);
        if retention.keeps_all() {
            return;
        }
        let pruned = match self.source.cluster() {
            Ok(cluster) => options.place.prune(&options.s3, retention, Some(&cluster)).await,
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "cannot remove old backups");
                return;
            }
        };
        match pruned {
            Ok(gone) => {
                for (_, stored) in gone {
                    tracing::info!(location = %stored.place, "old backup removed");
                }
            }
            Err(error) => tracing::warn!(error = %causes::chain(&error), "cannot remove old backups"),
        }
    }
}
