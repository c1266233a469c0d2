//! Logs on standard error: level and format by options, priorities for the journal.

use clap::ValueEnum;
use serde::Deserialize;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Options of the log.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogArgs {
    /// Log level: error, warn, info, debug or trace; or directives such as info,coracle_scheduler=debug.
    #[arg(long, env = "CORACLE_LOG", value_name = "LEVEL")]
    #[serde(deserialize_with = "level")]
    log_level: Option<LogLevel>,
    /// Log format.
    #[arg(long, env = "CORACLE_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// A level, or directives.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogLevel(String);

/// Why a text is no level.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no log level: want error, warn, info, debug, trace, off, or directives such as info,coracle_scheduler=debug"
)]
pub struct LevelError(String);

impl std::str::FromStr for LogLevel {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let is_level = LEVELS.contains(&text.to_ascii_lowercase().as_str());
        // A word that is no level would be the name of a module.
        let is_directives = text.contains(['=', ',', ':']) && EnvFilter::try_new(text).is_ok();
        if is_level || is_directives { Ok(Self(text.to_owned())) } else { Err(LevelError(text.to_owned())) }
    }
}

fn level<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<LogLevel>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

impl LogArgs {
    /// Whether the file has an option of this name here.
    pub fn has(key: &str) -> bool {
        ["logLevel", "logFormat"].contains(&key)
    }

    /// The options of commands without flags for them: what the environment says. A level that is none is not in force.
    pub fn of_environment() -> Self {
        let variable = |name| std::env::var(name).unwrap_or_default();
        Self {
            log_level: variable("CORACLE_LOG").parse().ok(),
            log_format: LogFormat::from_str(&variable("CORACLE_LOG_FORMAT"), true).ok(),
        }
    }

    /// These options, else those of the file.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self { log_level: self.log_level.or(file.log_level), log_format: self.log_format.or(file.log_format) }
    }

    /// Starts to log. `usual` is the level without options; `always` are directives that stay in force for a level alone.
    pub fn start(&self, usual: &str, always: &str) {
        let filter = EnvFilter::new(self.directives(usual, always));
        let journal = is_journal();
        let ansi = !journal && std::io::IsTerminal::is_terminal(&std::io::stderr());
        let log =
            tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr);
        match self.log_format.unwrap_or_default() {
            LogFormat::Text if journal => {
                // The journal knows the time.
                let lines = Format::default().without_time().with_ansi(false);
                log.event_format(Prioritized(lines)).init();
            }
            LogFormat::Text => log.init(),
            LogFormat::Json if journal => {
                log.fmt_fields(JsonFields::new()).event_format(Prioritized(json())).init();
            }
            LogFormat::Json => log.fmt_fields(JsonFields::new()).event_format(json()).init(),
        }
    }

    fn directives(&self, usual: &str, always: &str) -> String {
        match &self.log_level {
            Some(LogLevel(level)) if level.contains(['=', ',', ':']) => level.clone(),
            level => {
                let level = level.as_ref().map_or(usual, |level| level.0.as_str());
                [level, always].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
            }
        }
    }
}

fn json() -> Format<Json> {
    Format::default().json().flatten_event(true)
}

/// Whether standard error is the journal, which sets the variable for the programs that it reads from.
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// Events with a priority of syslog before them, which the journal takes off and stores.
struct Prioritized<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// The priority of a level, as `sd-daemon(3)` numbers them.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use parking_lot::Mutex;
    use std::io::{self, Write};
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn levels_and_directives_are_told_from_mistakes() {
        for good in ["info", "DEBUG", "off", "info,coracle_scheduler=debug", "coracle_store::etcd=trace"] {
            assert!(good.parse::<LogLevel>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "infos", "a=loud"] {
            assert!(bad.parse::<LogLevel>().is_err(), "{bad}");
        }
        let with = |text: &str| LogArgs { log_level: text.parse().ok(), log_format: None };
        assert_eq!(LogArgs::default().directives("info", "noisy=off"), "info,noisy=off");
        assert_eq!(with("debug").directives("info", "noisy=off"), "debug,noisy=off");
        assert_eq!(with("debug").directives("info", ""), "debug");
        assert_eq!(with("info,noisy=debug").directives("info", "noisy=off"), "info,noisy=debug");
    }

    #[test]
    fn the_command_line_comes_before_the_file() {
        let file: LogArgs = crate::yaml::from_str("logLevel: debug\nlogFormat: json\n").unwrap();
        let flags = LogArgs { log_level: "warn".parse().ok(), log_format: None };
        let both = flags.over(file);
        assert_eq!(
            (both.directives("info", ""), both.log_format),
            ("warn".to_owned(), Some(LogFormat::Json))
        );
        assert!(crate::yaml::from_str::<LogArgs>("logLevel: loud\n").is_err());
    }

    #[test]
    fn events_have_priorities_for_the_journal_and_fields_in_json() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_writer(move || writer.clone())
            .fmt_fields(JsonFields::new())
            .event_format(Prioritized(json()))
            .finish();
        tracing::subscriber::with_default(log, || {
            tracing::error!(pod = "web", "failed");
            tracing::info!("serving");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let (first, second) = text.trim_end().split_once('\n').unwrap();
        let object: serde_json::Value = serde_json::from_str(first.strip_prefix("<3>").unwrap()).unwrap();
        assert_eq!((object["message"].as_str(), object["pod"].as_str()), (Some("failed"), Some("web")));
        assert!(second.starts_with("<6>{"), "{second}");
    }
}
