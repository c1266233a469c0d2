//! etcd's log in the server's log.

use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// A longer line is cut into pieces.
const MAX_LINE: u64 = 16 << 10;
/// How many errors are kept for messages about its end.
const KEPT: usize = 3;

/// The last errors of etcd.
#[derive(Debug, Clone, Default)]
pub(super) struct LastErrors(Arc<Mutex<VecDeque<String>>>);

impl LastErrors {
    fn push(&self, text: String) {
        let mut kept = self.0.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(text);
    }

    pub(super) fn text(&self) -> String {
        self.0.lock().iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

/// Copies lines until there are no more. What etcd tells about its usual work is for `CORACLE_LOG=info,etcd=debug`.
pub(super) async fn forward(from: impl AsyncRead + Unpin, errors: LastErrors) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => tell(&String::from_utf8_lossy(&line), &errors),
        }
    }
}

fn tell(line: &str, errors: &LastErrors) {
    let (level, text) = read(line.trim_end());
    match level {
        Level::Usual => tracing::debug!(target: "etcd", "{text}"),
        Level::Warning => tracing::warn!(target: "etcd", "{text}"),
        Level::Error => {
            tracing::error!(target: "etcd", "{text}");
            errors.push(text);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Level {
    Usual,
    Warning,
    Error,
}

/// The level of a line, and what it says: `message key=value…`. A line that is no JSON is from the runtime of the program, such as
/// a panic.
fn read(line: &str) -> (Level, String) {
    let Ok(fields) = serde_json::from_str::<Map<String, Value>>(line) else {
        return (Level::Error, line.to_owned());
    };
    let word = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let level = match word("level") {
        "debug" | "info" => Level::Usual,
        "warn" => Level::Warning,
        _ => Level::Error,
    };
    let mut text = word("msg").to_owned();
    for (key, value) in &fields {
        if matches!(key.as_str(), "level" | "ts" | "caller" | "msg" | "stacktrace") {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = match value {
            Value::String(value) => write!(text, " {key}={value:?}"),
            value => write!(text, " {key}={value}"),
        };
    }
    (level, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_level_and_fields() {
        for (line, level, text) in [
            (r#"{"level":"info","ts":"x","caller":"y","msg":"started","n":1}"#, Level::Usual, "started n=1"),
            (r#"{"level":"warn","msg":"slow","took":"1s"}"#, Level::Warning, "slow took=\"1s\""),
            (r#"{"level":"fatal","msg":"no","stacktrace":"…"}"#, Level::Error, "no"),
            ("panic: oh", Level::Error, "panic: oh"),
        ] {
            assert_eq!(read(line), (level, text.to_owned()), "{line}");
        }
    }

    #[tokio::test]
    async fn only_the_last_errors_are_kept_and_long_lines_are_cut() {
        let errors = LastErrors::default();
        let lines: String = (0..5).map(|n| format!("panic {n}\n")).collect();
        forward(lines.as_bytes(), errors.clone()).await;
        assert_eq!(errors.text(), "panic 2; panic 3; panic 4");
        let errors = LastErrors::default();
        forward("x".repeat(2 * MAX_LINE as usize + 1).as_bytes(), errors.clone()).await;
        assert_eq!(errors.text().len(), 2 * MAX_LINE as usize + 1 + 2 * "; ".len());
    }
}
