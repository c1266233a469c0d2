//! Whether the store can be written, as the writer and the readers have found it.

use crate::Unhealthy;
use parking_lot::Mutex;
use std::{
    error::Error,
    io,
    time::{Duration, Instant},
};

/// What went wrong and has not been set right yet.
#[derive(Default)]
pub(super) struct Health {
    writer: Mutex<Option<Unhealthy>>,
    reader: Mutex<Option<ReadFailure>>,
}

/// The first and the longest pause between two checks whether the files can be read again.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Something could not be read. Damage stays until a restart: a block that was read wrong once is not trusted again. After
/// an error of the disk the files are compared with their checksums.
struct ReadFailure {
    why: Unhealthy,
    next: Instant,
    pause: Duration,
}

impl ReadFailure {
    fn new(why: Unhealthy) -> Self {
        Self { why, next: Instant::now(), pause: FIRST }
    }
}

fn is_damage(why: &Unhealthy) -> bool {
    matches!(why, Unhealthy::Damaged { .. })
}

impl Health {
    pub fn why(&self) -> Option<Unhealthy> {
        self.writer.lock().clone().or_else(|| self.reader.lock().as_ref().map(|one| one.why.clone()))
    }

    pub fn set_writer(&self, why: Option<Unhealthy>) {
        *self.writer.lock() = why;
    }

    /// Returns whether this is news: the first failure of a reader, or damage after an error of the disk.
    pub fn read_failed(&self, why: &Unhealthy) -> bool {
        let mut reader = self.reader.lock();
        let news = reader.as_ref().is_none_or(|known| is_damage(why) && !is_damage(&known.why));
        if news {
            *reader = Some(ReadFailure::new(why.clone()));
        }
        news
    }

    /// Says more exactly what was read wrong; damage is not taken back.
    pub fn set_reader(&self, why: Unhealthy) {
        let mut reader = self.reader.lock();
        if is_damage(&why) || reader.as_ref().is_none_or(|known| !is_damage(&known.why)) {
            *reader = Some(ReadFailure::new(why));
        }
    }

    /// Whether a check of the files is due. Returns true to one caller only, who then runs the check.
    pub fn recheck_is_due(&self) -> bool {
        let (mut reader, now) = (self.reader.lock(), Instant::now());
        match reader.as_mut().filter(|known| !is_damage(&known.why) && known.next <= now) {
            Some(known) => {
                known.next = now + known.pause;
                known.pause = (known.pause * 2).min(LONGEST);
                true
            }
            None => false,
        }
    }

    /// The files can be read again; damage is not taken back. Returns whether there was a failure.
    pub fn clear_reader(&self) -> bool {
        self.reader.lock().take_if(|known| !is_damage(&known.why)).is_some()
    }
}

/// The error of the operating system at the bottom, if there is one.
pub(super) fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}

/// What an error of the operating system says about the disk.
pub(super) fn of_io(error: &io::Error) -> Unhealthy {
    let detail = error.to_string();
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => Unhealthy::DiskFull { detail },
        Some(libc::EROFS) => Unhealthy::ReadOnly { detail },
        _ => Unhealthy::Io { detail },
    }
}

/// What an error of the engine says about the disk.
pub(super) fn of_engine(error: &fjall::Error) -> Unhealthy {
    match (io_error(error), error) {
        // The end of a file that is too short.
        (Some(io), _) if io.kind() == io::ErrorKind::UnexpectedEof => {
            Unhealthy::Damaged { detail: error.to_string() }
        }
        (Some(io), _) => of_io(io),
        (None, fjall::Error::Poisoned) => {
            Unhealthy::Io { detail: "the storage engine has stopped after a failed write".to_owned() }
        }
        (None, _) => Unhealthy::Damaged { detail: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_cause_is_found_below_the_engine() {
        for (code, full) in [(libc::ENOSPC, true), (libc::EDQUOT, true), (libc::EIO, false)] {
            let io = || io::Error::from_raw_os_error(code);
            for error in [fjall::Error::Io(io()), fjall::Error::Storage(fjall::LsmError::Io(io()))] {
                let why = of_engine(&error);
                assert_eq!(matches!(why, Unhealthy::DiskFull { .. }), full, "{why:?}");
                assert_eq!(matches!(why, Unhealthy::Io { .. }), !full, "{why:?}");
            }
        }
        let wrong = fjall::Error::Storage(fjall::LsmError::Unrecoverable);
        assert!(matches!(of_engine(&wrong), Unhealthy::Damaged { .. }));
    }
}
