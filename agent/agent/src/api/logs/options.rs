//! Query options of container logs.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

/// Which of a container's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogStream {
    /// Both.
    #[default]
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Options of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on as the log grows.
    pub follow: bool,
    /// Of the instance before the newest.
    pub previous: bool,
    /// With the time of each line.
    pub timestamps: bool,
    /// Nothing older.
    pub since: Option<Timestamp>,
    /// The last lines only.
    pub tail: Option<u64>,
    /// No more bytes.
    pub limit: Option<u64>,
    /// Which streams.
    pub wanted: LogStream,
}

/// Invalid options. The wording is the kubelet's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionsError {
    /// Not numbers, times or booleans.
    #[error("{{\"message\": \"Unable to decode query.\"}}")]
    Decode,
    /// They contradict each other.
    #[error("{{\"message\": \"Invalid request.\"}}")]
    Invalid,
    /// No such stream.
    #[error("invalid stream type {0:?}")]
    Stream(String),
}

impl OptionsError {
    /// Status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Decode | Self::Stream(_) => StatusCode::BAD_REQUEST,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl LogOptions {
    /// Reads a query.
    pub fn parse(query: &[(String, String)], now: Timestamp) -> Result<Self, OptionsError> {
        let mut options = Self::default();
        let (mut seconds, mut time) = (None, None);
        for (key, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
            let truth = || match value.as_str() {
                "true" | "1" | "True" | "TRUE" | "t" | "T" => Ok(true),
                "false" | "0" | "False" | "FALSE" | "f" | "F" => Ok(false),
                _ => Err(OptionsError::Decode),
            };
            let number = |least: i64| match value.parse::<i64>() {
                Ok(number) if number >= least => Ok(number.unsigned_abs()),
                Ok(_) => Err(OptionsError::Invalid),
                Err(_) => Err(OptionsError::Decode),
            };
            match key.as_str() {
                "follow" => options.follow = truth()?,
                "previous" => options.previous = truth()?,
                "timestamps" => options.timestamps = truth()?,
                "tail" if value == "all" => {}
                "tailLines" | "tail" => options.tail = Some(number(0)?),
                "limitBytes" => options.limit = Some(number(1)?),
                "sinceSeconds" => seconds = Some(number(1)?),
                "sinceTime" => time = Some(value.parse::<Timestamp>().map_err(|_| OptionsError::Decode)?),
                "stream" => {
                    options.wanted = match value.as_str() {
                        "All" => LogStream::All,
                        "Stdout" => LogStream::Stdout,
                        "Stderr" => LogStream::Stderr,
                        other => return Err(OptionsError::Stream(other.to_owned())),
                    }
                }
                _ => {}
            }
        }
        let both = seconds.is_some() && time.is_some();
        if both || (options.tail.is_some() && options.wanted != LogStream::All) {
            return Err(OptionsError::Invalid);
        }
        let ago = |seconds: u64| {
            let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            now.checked_sub(span).unwrap_or(Timestamp::MIN)
        };
        options.since = time.or(seconds.map(ago));
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(query: &str) -> Result<LogOptions, OptionsError> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        LogOptions::parse(&pairs, "2026-01-01T00:01:00Z".parse().unwrap())
    }

    #[test]
    fn reads_options() {
        let time = |text: &str| Some(text.parse().unwrap());
        assert_eq!(parse("").unwrap(), LogOptions::default());
        let all = parse("follow=true&previous=1&timestamps=true&tailLines=3&limitBytes=10&sinceSeconds=60")
            .unwrap();
        assert_eq!((all.follow, all.previous, all.timestamps), (true, true, true));
        assert_eq!((all.tail, all.limit, all.since), (Some(3), Some(10), time("2026-01-01T00:00:00Z")));
        assert_eq!(parse("sinceTime=2025-12-31T00:00:00Z").unwrap().since, time("2025-12-31T00:00:00Z"));
        assert_eq!(parse("tail=all").unwrap().tail, None);
        assert_eq!(parse("stream=Stderr").unwrap().wanted, LogStream::Stderr);
        assert_eq!(parse("sinceSeconds=99999999999999").unwrap().since, Some(Timestamp::MIN));
    }

    #[test]
    fn refuses_what_contradicts() {
        for (query, error) in [
            ("tailLines=x", OptionsError::Decode),
            ("tailLines=-1", OptionsError::Invalid),
            ("limitBytes=0", OptionsError::Invalid),
            ("follow=maybe", OptionsError::Decode),
            ("sinceSeconds=1&sinceTime=2025-12-31T00:00:00Z", OptionsError::Invalid),
            ("sinceTime=yesterday", OptionsError::Decode),
            ("stream=Both", OptionsError::Stream("Both".into())),
            ("stream=Stdout&tailLines=1", OptionsError::Invalid),
        ] {
            assert_eq!(parse(query), Err(error), "{query}");
        }
    }
}
