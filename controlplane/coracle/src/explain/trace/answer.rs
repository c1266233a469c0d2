//! What the server answers: a tree of spans. Missing fields have defaults, so that older and newer servers can be asked.

use super::kind::kind;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// A tree: everything that one request, or one turn of a controller, caused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Trace {
    /// None for a trace that was asked for by its id, and wrote nothing.
    pub(super) object: Option<Subject>,
    pub(super) trace: String,
    pub(super) begin: String,
    pub(super) state: String,
    pub(super) kept: Kept,
    pub(super) notes: Vec<String>,
    pub(super) objects: Vec<Object>,
    pub(super) spans: Vec<Span>,
    pub(super) critical: Vec<Piece>,
    pub(super) summary: Summary,
    /// Pods that are ready, while their nodes have not told of it.
    #[serde(skip)]
    pub(super) untold: usize,
    /// Why the object is not well now, by its state in the API.
    #[serde(skip)]
    pub(super) trouble: Option<Trouble>,
}

/// What is wrong with an object now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) text: String,
    pub(super) now: Fate,
}

/// What became of an object that was ready once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is not ready, and may be again.
    NotReady,
    /// It is ready again, perhaps not for long.
    Restarted,
    /// It will not be ready any more.
    Failed,
}

/// The object that was asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Subject {
    pub(super) resource: String,
    pub(super) name: String,
    /// How many pods it wants now.
    pub(super) replicas: Option<usize>,
}

/// What the server still has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    pub(super) lost: u64,
}

/// An object that spans are about.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Object {
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) hidden: bool,
    /// What it waits for now.
    pub(super) waits: String,
    /// Whether it is ready, while its node has not told of it.
    pub(super) untold: bool,
}

/// A span; times are nanoseconds since the begin of the trace.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Span {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) stage: String,
    pub(super) name: String,
    pub(super) text: String,
    pub(super) object: Option<usize>,
    /// Of a write 0 if nothing is known to be stored.
    pub(super) revision: u64,
    pub(super) node: String,
    pub(super) start: u64,
    pub(super) end: Option<u64>,
    pub(super) uncertainty: u64,
    pub(super) code: u16,
    pub(super) flags: Vec<String>,
    pub(super) usual: Option<u64>,
}

/// A piece of the critical path.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Piece {
    pub(super) span: Option<String>,
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Length of the critical path, and which part of it is explained.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Summary {
    pub(super) total: u64,
    pub(super) covered: f64,
}

/// A line of an answer with `follow=true`.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Line {
    Trace {
        trace: Box<Trace>,
    },
    Spans {
        #[serde(default)]
        objects: Vec<Object>,
        #[serde(default)]
        spans: Vec<Span>,
        #[serde(default)]
        critical: Vec<Piece>,
        #[serde(default)]
        summary: Summary,
        /// Set by servers that say how it ended.
        state: Option<String>,
    },
    #[serde(other)]
    Alive,
}

impl Span {
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|name| name == flag)
    }
}

impl Trace {
    /// Whether nothing more is expected to happen. What is stuck may go on.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.state.as_str(), "ready" | "failed" | "gone" | "complete")
    }

    /// Whether something in it lasts.
    pub(super) fn is_open(&self) -> bool {
        self.spans.iter().any(|span| span.end.is_none())
    }

    /// How it looks a moment later if nothing changes.
    pub(super) fn later(&self, passed: Duration) -> Self {
        let mut later = self.clone();
        let passed = u64::try_from(passed.as_nanos()).unwrap_or_default();
        later.summary.total = later.summary.total.saturating_add(passed);
        later
    }

    /// `deployment/web`, or the id of the trace.
    pub(super) fn title(&self) -> String {
        match &self.object {
            Some(object) => format!("{}/{}", kind(&object.resource), object.name),
            None => format!("trace {}", self.trace),
        }
    }

    /// When it began, in nanoseconds since 1970.
    pub(super) fn began(&self) -> i128 {
        self.begin.parse::<Timestamp>().map_or(0, Timestamp::as_nanosecond)
    }

    /// Takes over what a line of a followed trace says. Objects are replaced, spans are replaced by id or added.
    pub(super) fn update(&mut self, line: Line) {
        match line {
            Line::Trace { trace } => *self = *trace,
            Line::Spans { objects, spans, critical, summary, state } => {
                if objects.len() >= self.objects.len() {
                    self.objects = objects;
                }
                for span in spans {
                    match self.spans.iter_mut().find(|known| known.id == span.id) {
                        Some(known) => *known = span,
                        None => self.spans.push(span),
                    }
                }
                self.spans.sort_by_key(|span| span.start);
                self.critical = critical;
                self.summary = summary;
                if let Some(state) = state {
                    self.state = state;
                }
            }
            Line::Alive => {}
        }
    }
}

/// The trees of an answer: one `Trace`, or the items of a `TraceList`.
pub(super) fn trees(answer: &Value) -> Result<Vec<Trace>, serde_json::Error> {
    let mut trees: Vec<Trace> = match answer.get("items") {
        Some(items) => Vec::deserialize(items)?,
        None => vec![Trace::deserialize(answer)?],
    };
    for tree in &mut trees {
        tree.untold = tree.objects.iter().filter(|object| object.untold).count();
    }
    Ok(trees)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    macro_rules! fixture {
        ($name:literal) => {
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../timeline/fixtures/", $name))
        };
    }
    pub(crate) use fixture;

    /// The first tree of an answer.
    pub(in super::super) fn first(text: &str) -> Trace {
        trees(&serde_json::from_str(text).unwrap()).unwrap().remove(0)
    }

    #[test]
    fn history_has_what_nodes_did_not_tell() {
        let silent = json!({"objects": [{"resource": "pods", "untold": true}, {"resource": "pods"}]});
        let untold =
            |answer: &Value| trees(answer).unwrap().iter().map(|tree| tree.untold).collect::<Vec<_>>();
        assert_eq!(untold(&silent), [1]);
        assert_eq!(untold(&json!({"items": [silent, {}]})), [1, 0]);
    }

    #[test]
    fn lists_have_several_trees() {
        let answer = serde_json::from_str(fixture!("list.json")).unwrap();
        let states: Vec<String> = trees(&answer).unwrap().into_iter().map(|tree| tree.state).collect();
        assert_eq!(states, ["ready", "failed"]);
    }

    #[test]
    fn a_followed_trace_takes_over_what_changed() {
        let mut trace = Trace::default();
        for line in fixture!("follow.ndjson").lines() {
            trace.update(serde_json::from_str(line).unwrap());
        }
        assert!(!trace.is_final());
        assert_eq!((trace.title().as_str(), trace.objects.len()), ("deployment/web", 3));
        assert!(trace.spans.is_sorted_by_key(|span| span.start));
        let ids: std::collections::HashSet<&str> = trace.spans.iter().map(|span| span.id.as_str()).collect();
        assert_eq!(ids.len(), trace.spans.len(), "no span is there twice");
        assert_eq!(trace.began(), 1_794_823_200_123_456_789);
        assert!(trace.is_open());
        let total = trace.summary.total;
        assert_eq!(trace.later(Duration::from_millis(2)).summary.total, total + 2_000_000);
    }

    #[test]
    fn fields_may_be_missing_or_new() {
        let trace = first(r#"{"kind": "Trace", "later": 1, "spans": [{"id": "1", "stage": "later"}]}"#);
        assert_eq!(trace.spans.len(), 1);
        assert_eq!(trace.began(), 0);
        let unnamed = first(r#"{"kind": "Trace", "object": null, "trace": "4bf9"}"#);
        assert_eq!(unnamed.title(), "trace 4bf9");
    }
}
