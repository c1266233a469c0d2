//! Questions to the server, and what it means that there is no answer.

use super::super::connect::{ConnectError, Connected, encode, failure};
use super::answer::{Line, Trace, trees};
use coracle_cli::causes;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// How often a trace is redrawn that goes on.
const REDRAW: Duration = Duration::from_millis(200);

/// A question: about an object, or about a trace by its id.
#[derive(Debug, Clone, Default)]
pub(super) struct Question {
    /// Such as `deployments.apps`; empty if a trace is asked for.
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// 32 hexadecimal digits.
    pub(super) trace: Option<String>,
    /// Such as `10m`.
    pub(super) since: Option<String>,
    /// How many trees; 0 means one.
    pub(super) last: usize,
    pub(super) compare: bool,
}

/// Why there is nothing to draw.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// What the user wrote is wrong.
    #[error("{0}")]
    Input(String),
    /// There is no such object.
    #[error("{0}")]
    Missing(String),
    /// The object is older than the oldest span.
    #[error("{0}")]
    Expired(String),
    /// The server does not record spans.
    #[error("the server records no spans")]
    Unsupported,
    /// The server does not let the user ask.
    #[error("{0}")]
    Refused(String),
    /// The server does not answer.
    #[error("{0}")]
    Away(String),
}

impl AskError {
    /// 2: what the user wrote must change. 3: the server.
    pub(super) fn exit_code(&self) -> i32 {
        match self {
            Self::Input(_) | Self::Missing(_) | Self::Expired(_) | Self::Unsupported => 2,
            Self::Refused(_) | Self::Away(_) => 3,
        }
    }
}

impl From<ConnectError> for AskError {
    fn from(error: ConnectError) -> Self {
        let text = match &error {
            ConnectError::Server { server, source } => format!("cannot ask {server}: {}", failure(source)),
            other => causes::chain(other),
        };
        if error.is_input() { Self::Input(text) } else { Self::Away(text) }
    }
}

impl From<kube::Error> for AskError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else { return Self::Away(failure(&error)) };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let cause = causes.map(|cause| cause.reason.as_str()).find(|reason| !reason.is_empty());
        match (status.code, cause) {
            (404, Some("expired")) => Self::Expired(status.message.clone()),
            (404, Some(_)) => Self::Missing(status.message.clone()),
            (404, None) => Self::Unsupported,
            (400, _) => Self::Input(status.message.clone()),
            (401 | 403, _) => Self::Refused(status.message.clone()),
            _ => Self::Away(failure(&error)),
        }
    }
}

impl Question {
    pub(super) fn path(&self, follow: bool) -> String {
        let last = if self.last > 0 { self.last.to_string() } else { String::new() };
        let parameters = [
            ("resource", self.resource.as_str()),
            ("namespace", self.namespace.as_str()),
            ("name", self.name.as_str()),
            ("trace", self.trace.as_deref().unwrap_or_default()),
            ("since", self.since.as_deref().unwrap_or_default()),
            ("last", last.as_str()),
            ("compare", if self.compare { "true" } else { "" }),
            ("follow", if follow { "true" } else { "" }),
        ];
        let given = parameters.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        format!("/coracle/v1/trace?{}", query.join("&"))
    }

    /// The answer as it came, and its trees.
    pub(super) async fn ask(&self, connected: &Connected) -> Result<(Value, Vec<Trace>), AskError> {
        let answer = connected.get(&self.path(false)).await?;
        let trees =
            trees(&answer).map_err(|error| AskError::Away(format!("cannot read the answer: {error}")))?;
        Ok((answer, trees))
    }

    /// Follows the newest tree: `changed` gets each change, and says whether to go on. Returns the last state.
    pub(super) async fn follow(
        &self,
        connected: &Connected,
        mut changed: impl FnMut(&Trace) -> bool,
    ) -> Result<Trace, AskError> {
        let request = Request::get(self.path(true)).header(http::header::ACCEPT_ENCODING, "identity");
        let request = request.body(Vec::new()).map_err(|error| AskError::Away(error.to_string()))?;
        let answer = Box::pin(connected.client.request_stream(request).await?);
        let mut lines = answer.lines();
        let (mut trace, mut updated) = (Trace::default(), Instant::now());
        let mut redraw = tokio::time::interval(REDRAW);
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                // Nothing is sent about what only lasts.
                _ = redraw.tick() => {
                    if !trace.is_open() || changed(&trace.later(updated.elapsed())) {
                        continue;
                    }
                    break;
                }
            };
            let Some(line) = line else { break };
            let line =
                line.map_err(|error| AskError::Away(format!("the server ended its answer: {error}")))?;
            if line.trim().is_empty() {
                continue;
            }
            let line = serde_json::from_str::<Line>(&line)
                .map_err(|error| AskError::Away(format!("cannot read the answer: {error}")))?;
            if matches!(line, Line::Alive) {
                continue;
            }
            trace.update(line);
            updated = Instant::now();
            if !changed(&trace) {
                break;
            }
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::answer::tests::fixture;
    use super::*;

    #[test]
    fn paths() {
        let question = Question {
            resource: "deployments.apps".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            since: Some("10m".to_owned()),
            last: 3,
            compare: true,
            ..Question::default()
        };
        assert_eq!(
            question.path(true),
            "/coracle/v1/trace?resource=deployments.apps&namespace=default&name=web&since=10m&last=3&compare=true&follow=true"
        );
        let trace = Question { trace: Some("0af7".to_owned()), ..Question::default() };
        assert_eq!(trace.path(false), "/coracle/v1/trace?trace=0af7");
    }

    #[test]
    fn refusals_have_exit_codes() {
        let of = |status: &str| AskError::from(kube::Error::Api(serde_json::from_str(status).unwrap()));
        assert!(
            matches!(of(fixture!("not-found-never.json")), AskError::Missing(text) if text.starts_with("no deployments"))
        );
        assert!(matches!(of(fixture!("not-found-expired.json")), AskError::Expired(_)));
        assert!(matches!(
            of(r#"{"code": 404, "message": "the server could not find it"}"#),
            AskError::Unsupported
        ));
        assert_eq!(of(r#"{"code": 400, "message": "parameter since"}"#).exit_code(), 2);
        assert!(matches!(of(r#"{"code": 403, "message": "forbidden"}"#), AskError::Refused(_)));
        assert_eq!(of(r#"{"code": 403, "message": "forbidden"}"#).exit_code(), 3);
        assert_eq!(of(r#"{"code": 503}"#).exit_code(), 3);
    }
}
