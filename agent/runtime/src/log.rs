//! Errors in the log file that the caller named, as runc writes them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use coracle_keeper::causes::chain;
use serde::Serialize;

use super::error::Error;

/// Where errors go.
pub struct Log {
    /// Opened at the start: while it is a path of the host.
    file: Option<File>,
    json: bool,
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
    level: &'static str,
    msg: &'a str,
    time: String,
}

impl Log {
    /// Opens the log; standard error without one.
    pub fn open(path: Option<&Path>, format: Option<&str>) -> io::Result<Self> {
        let json = match format {
            None | Some("text") => false,
            Some("json") => true,
            Some(other) => return Err(io::Error::other(format!("unknown log format {other:?}"))),
        };
        let file = path.map(|path| OpenOptions::new().append(true).create(true).open(path)).transpose()?;
        Ok(Self { file, json })
    }

    /// Writes the error of a command; returns the exit code of the process.
    pub fn of<T: From<u8>>(mut self, result: Result<T, Error>) -> io::Result<T> {
        let error = match result {
            Ok(code) => return Ok(code),
            Err(error) => error,
        };
        let msg = chain(&error);
        let time = jiff::Timestamp::now().to_string();
        let Some(file) = &mut self.file else {
            eprintln!("coracle-runtime: {msg}");
            return Ok(T::from(1));
        };
        if self.json {
            let line = serde_json::to_string(&Line { level: "error", msg: &msg, time })?;
            writeln!(file, "{line}")?;
        } else {
            writeln!(file, "time={time:?} level=error msg={msg:?}")?;
        }
        Ok(T::from(1))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    #[test]
    fn an_error_is_one_line_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let failed = || Err::<u8, _>(Error::NoContainer("x".into()));
        assert_eq!(Log::open(Some(&path), Some("json")).unwrap().of(failed()).unwrap(), 1);
        assert_eq!(Log::open(Some(&path), Some("json")).unwrap().of(Ok(0u8)).unwrap(), 0);
        let text = std::fs::read_to_string(&path).unwrap();
        let line: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(
            (line["level"].as_str(), line["msg"].as_str()),
            (Some("error"), Some("container does not exist: x"))
        );
        assert!(Log::open(None, Some("xml")).is_err());
    }
}
