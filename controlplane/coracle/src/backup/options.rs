//! Options of the server: backups by the clock.

use super::args::{S3Args, recipients};
use clap::Args;
use coracle_backup::age::AgeError;
use coracle_backup::retention::Retention;
use coracle_backup::s3::S3Error;
use coracle_backup::save;
use coracle_backup::target::Place;
use coracle_proto::cron::{self, Schedule, ScheduleError};
use serde::Deserialize;
use std::path::PathBuf;

/// When the server makes backups, and where they are kept.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScheduleArgs {
    /// When the server makes backups, in the form of CronJobs and in UTC, such as "0 */6 * * *".
    #[arg(long)]
    backup_schedule: Option<String>,
    /// Where they are kept: a directory on this machine, or s3://bucket/prefix.
    #[arg(long)]
    backup_to: Option<String>,
    /// How many backups of this cluster are kept there; all by default.
    #[arg(long)]
    backup_keep: Option<usize>,
    /// Encrypt backups for this recipient of age (age1…); may be repeated.
    #[arg(long)]
    backup_recipient: Vec<String>,
    /// How S3 is reached.
    #[command(flatten)]
    #[serde(flatten)]
    s3: S3Args,
}

/// The backups that a server makes.
#[derive(Debug, Clone)]
pub struct Scheduled {
    /// When.
    pub schedule: Schedule,
    /// Where, and for whom.
    pub options: save::Options,
    /// Which are kept.
    pub retention: Retention,
}

/// Why an option about backups makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// One needs the other.
    #[error("--backup-schedule needs --backup-to, and every other option about backups both")]
    Incomplete,
    /// The schedule is none.
    #[error("--backup-schedule {0:?}")]
    Schedule(String, #[source] ScheduleError),
    /// Schedules are in UTC.
    #[error("--backup-schedule {0:?}: the time is UTC, a time zone cannot be given")]
    TimeZone(String),
    /// The place is none.
    #[error("--backup-to")]
    Place(#[source] S3Error),
    /// The working directory of a server is not where people look for backups.
    #[error("--backup-to {0}: the directory must be an absolute path")]
    Relative(PathBuf),
    /// A recipient is none.
    #[error("--backup-recipient")]
    Recipient(#[source] AgeError),
    /// Nothing would be kept.
    #[error("--backup-keep must be at least 1")]
    KeepNone,
}

impl ScheduleArgs {
    /// Whether an option of the file is one of these.
    pub fn has(key: &str) -> bool {
        matches!(key, "backupSchedule" | "backupTo" | "backupKeep" | "backupRecipient") || S3Args::has(key)
    }

    /// These options, with those of `file` for options that are not set.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        let own = self.backup_recipient;
        Self {
            backup_schedule: self.backup_schedule.or(file.backup_schedule),
            backup_to: self.backup_to.or(file.backup_to),
            backup_keep: self.backup_keep.or(file.backup_keep),
            backup_recipient: if own.is_empty() { file.backup_recipient } else { own },
            s3: self.s3.over(file.s3),
        }
    }

    /// The backups that are to be made, if any.
    pub fn resolve(self) -> Result<Option<Scheduled>, BackupError> {
        let (schedule, to) = match (&self.backup_schedule, &self.backup_to) {
            (Some(schedule), Some(to)) => (schedule, to),
            (None, None) if self.backup_keep.is_none() && self.backup_recipient.is_empty() => {
                return Ok(None);
            }
            _ => return Err(BackupError::Incomplete),
        };
        if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
            return Err(BackupError::TimeZone(schedule.clone()));
        }
        if self.backup_keep == Some(0) {
            return Err(BackupError::KeepNone);
        }
        let parsed = cron::parse(schedule).map_err(|error| BackupError::Schedule(schedule.clone(), error))?;
        let place: Place = to.parse().map_err(BackupError::Place)?;
        let place = match place {
            Place::Path(path) if path.is_relative() => return Err(BackupError::Relative(path)),
            // It is made if it is not there.
            Place::Path(path) => Place::Path(path.join("")),
            s3 => s3,
        };
        let recipients = recipients(&self.backup_recipient).map_err(BackupError::Recipient)?;
        Ok(Some(Scheduled {
            schedule: parsed,
            options: save::Options { place, s3: self.s3.options(), recipients },
            retention: Retention { count: self.backup_keep, days: None },
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn args(schedule: &str, to: &str) -> ScheduleArgs {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ScheduleArgs { backup_schedule: text(schedule), backup_to: text(to), ..ScheduleArgs::default() }
    }

    #[test]
    fn a_schedule_needs_a_place() {
        assert!(args("", "").resolve().unwrap().is_none());
        let found = args("0 */6 * * *", "/backups").resolve().unwrap().unwrap();
        assert_eq!(found.options.place.to_string(), "/backups/");
        assert!(found.retention.keeps_all());
        let recipient = vec!["age1nobody".to_owned()];
        for (args, want) in [
            (args("@hourly", ""), "--backup-schedule needs --backup-to"),
            (args("", "/backups"), "--backup-schedule needs --backup-to"),
            (ScheduleArgs { backup_keep: Some(3), ..args("", "") }, "needs --backup-to"),
            (ScheduleArgs { backup_keep: Some(0), ..args("@daily", "/b") }, "at least 1"),
            (args("soon", "/backups"), "--backup-schedule \"soon\""),
            (args("TZ=Asia/Tokyo 0 0 * * *", "/backups"), "UTC"),
            (args("@daily", "backups"), "absolute"),
            (args("@daily", "s3://x"), "--backup-to"),
            (ScheduleArgs { backup_recipient: recipient, ..args("@daily", "/b") }, "--backup-recipient"),
        ] {
            let error = args.resolve().unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn options_of_the_file_are_read() {
        let file = r#"{"backupSchedule":"@daily","backupTo":"s3://bucket/x","backupKeep":7,"s3Endpoint":"http://a:1",
            "s3Addressing":"path","backupRecipient":[]}"#;
        let file: ScheduleArgs = serde_json::from_str(file).unwrap();
        let found = args("@hourly", "").over(file).resolve().unwrap().unwrap();
        assert_eq!(found.schedule, cron::parse("@hourly").unwrap());
        assert_eq!(found.options.place.to_string(), "s3://bucket/x");
        assert_eq!(found.options.s3.endpoint.as_deref(), Some("http://a:1"));
        assert_eq!(found.retention.count, Some(7));
    }
}
