//! Answers that go on: the tree first, then what changes in it, one JSON object per line, until nothing more is expected to happen.

use super::answer::Asker;
use super::followers::Place;
use super::query::TraceQuery;
use crate::explain::authorize::Reader;
use bytes::Bytes;
use coracle_apiserver::explain::SendPolicy;
use coracle_apiserver::respond::{Body, BoxError};
use coracle_timeline::{ObjectView, PieceView, SpanView, State, SummaryView, TraceView};
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often it is looked for changes while there are some, and otherwise.
const BUSY: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(1);
/// How long changes are expected after the last one, and how long a final state must last: the next step may not have begun.
const SETTLED: Duration = Duration::from_secs(2);
/// How often a line is sent when nothing changes.
const ALIVE: Duration = Duration::from_secs(15);
/// Trees that are searched for the one that is followed: later requests make others.
const TREES: usize = 5;

/// Somebody who follows a tree.
pub(super) struct Follower {
    pub(super) asker: Arc<Asker>,
    pub(super) query: TraceQuery,
    pub(super) reader: Reader,
    /// One of a limited number of followers.
    pub(super) _place: Place,
    pub(super) stop: CancellationToken,
    /// What was sent.
    pub(super) shown: TraceView,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Trace {
        trace: &'a TraceView,
    },
    Spans {
        objects: &'a [ObjectView],
        spans: Vec<&'a SpanView>,
        critical: &'a [PieceView],
        summary: &'a SummaryView,
        state: State,
    },
    Alive,
}

impl Line<'_> {
    fn bytes(&self) -> Bytes {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }
}

struct Stream {
    follower: Follower,
    first: bool,
    /// When something changed.
    changed: Instant,
    /// When a line was sent.
    said: Instant,
}

/// The answer without an end.
pub(super) fn response(mut follower: Follower) -> Response<Body> {
    follower.query.question.last = TREES;
    let now = Instant::now();
    let stream = Stream { follower, first: true, changed: now, said: now };
    let lines = futures::stream::unfold(stream, |mut stream| async move {
        let line = stream.next().await?;
        Some((Ok::<_, BoxError>(Frame::data(line)), stream))
    });
    let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response.extensions_mut().insert(SendPolicy::NoTimeout);
    response
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.first) {
            return Some(Line::Trace { trace: &self.follower.shown }.bytes());
        }
        loop {
            let over = self.changed.elapsed() >= SETTLED;
            if over && self.follower.shown.state.is_final() {
                return None;
            }
            tokio::select! {
                () = self.follower.stop.cancelled() => return None,
                () = tokio::time::sleep(if over { QUIET } else { BUSY }) => {}
            }
            let line = self.look().await?;
            if line.is_some() || self.said.elapsed() >= ALIVE {
                self.said = Instant::now();
                return Some(line.unwrap_or_else(|| Line::Alive.bytes()));
            }
        }
    }

    /// What changed, if anything; `None` when there is nothing to follow any more.
    async fn look(&mut self) -> Option<Option<Bytes>> {
        let follower = &mut self.follower;
        let views = follower.asker.views(&follower.query, &mut follower.reader).await.ok()?;
        let shown = &follower.shown;
        let same = |view: &TraceView| view.trace == shown.trace && view.begin == shown.begin;
        let Some(view) = views.into_iter().find(same) else { return Some(None) };
        let line = difference(shown, &view);
        if line.is_some() {
            self.changed = Instant::now();
            follower.shown = view;
        }
        Some(line)
    }
}

/// The spans that are new or not as they were.
fn difference(before: &TraceView, after: &TraceView) -> Option<Bytes> {
    let known: HashMap<&str, &SpanView> = before.spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let is_new = |span: &&SpanView| known.get(span.id.as_str()).is_none_or(|known| **known != **span);
    let spans: Vec<&SpanView> = after.spans.iter().filter(is_new).collect();
    if spans.is_empty() && before.state == after.state && before.objects == after.objects {
        return None;
    }
    let line = Line::Spans {
        objects: &after.objects,
        spans,
        critical: &after.critical,
        summary: &after.summary,
        state: after.state,
    };
    Some(line.bytes())
}
