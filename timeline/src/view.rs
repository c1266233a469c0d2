//! The JSON of a trace.

use coracle_trace::SpanId;
use serde::{Deserialize, Serialize};

use crate::coverage::coverage;
use crate::critical::{critical_path, end_of};
use crate::gaps::name_gaps;
use crate::scope::Scope;
use crate::state::{State, state_of};
use crate::timestamp::format_timestamp;
use crate::tree::{ObjectKey, Piece, SpanNode, TracedObject, Tree};
use crate::usual::Usual;
use crate::waiting::{Waiting, is_untold};

/// A trace. Times of spans and pieces are nanoseconds since `begin`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceView {
    /// `Trace`.
    pub kind: String,
    /// `coracle/v1`.
    pub api_version: String,
    /// What was asked for.
    pub object: Option<RootView>,
    /// 32 hexadecimal digits.
    pub trace: String,
    /// The client's span that the root hangs below.
    pub remote_parent: Option<String>,
    /// When the root began.
    pub begin: String,
    /// When the critical path ended, unless it goes on, or a node has not told when.
    pub end: Option<String>,
    /// How far it has come.
    pub state: State,
    /// What is kept at all.
    pub kept: KeptView,
    /// Sentences about what is missing or uncertain.
    pub notes: Vec<String>,
    /// What the spans are about.
    pub objects: Vec<ObjectView>,
    /// In order of start.
    pub spans: Vec<SpanView>,
    /// The critical path, oldest first.
    pub critical: Vec<PieceView>,
    /// Sums of the critical path.
    pub summary: SummaryView,
}

/// What a trace was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootView {
    /// With its group.
    pub resource: String,
    /// Empty if cluster-scoped.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Whether the API server has it.
    pub exists: bool,
    /// How many pods it wants now, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

/// What is kept of all traces.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeptView {
    /// The time of the oldest record.
    pub from: Option<String>,
    /// Records that there was no room for.
    pub lost: u64,
}

/// An object of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectView {
    /// With its group.
    pub resource: String,
    /// Empty if cluster-scoped, or hidden.
    pub namespace: String,
    /// Empty if hidden.
    pub name: String,
    /// Empty if hidden.
    pub uid: String,
    /// Where a pod runs.
    pub node: String,
    /// The user may not get it.
    pub hidden: bool,
    /// What it waits for now, for people; empty if for nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits: String,
    /// Whether a pod is ready while its node has told nothing of it: when it became so is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untold: bool,
}

/// A span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanView {
    /// 16 hexadecimal digits.
    pub id: String,
    /// The id of what it is part of or what caused it.
    pub parent: Option<String>,
    /// The key of its stage.
    pub stage: String,
    /// Verb, controller, plugin, image or container, by stage.
    pub name: String,
    /// What else was recorded.
    pub text: String,
    /// An index into the objects.
    pub object: Option<usize>,
    /// The revision of the object that it is about, or that it made.
    pub revision: u64,
    /// Where it happened; empty: in the server.
    pub node: String,
    /// Since the begin of the trace.
    pub start: u64,
    /// Null while it is open.
    pub end: Option<u64>,
    /// How far the times may be off.
    pub uncertainty: u64,
    /// HTTP status, exit code, attempt or count, by stage.
    pub code: u16,
    /// Names of flags.
    pub flags: Vec<String>,
    /// The median of this stage on this cluster.
    #[serde(default)]
    pub usual: Option<u64>,
}

/// A stretch of the critical path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceView {
    /// The span that the time was spent in; null between spans.
    pub span: Option<String>,
    /// For people.
    pub name: String,
    /// Since the begin of the trace.
    pub start: u64,
    /// Since the begin of the trace.
    pub end: u64,
}

/// Sums of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SummaryView {
    /// Nanoseconds.
    pub total: u64,
    /// The explained share, from 0 to 1.
    pub covered: f64,
}

/// The JSON of a tree that is about what was written first.
pub fn view(tree: &Tree, usual: Option<&Usual>) -> TraceView {
    view_of(tree, None, usual)
}

/// The JSON of a tree that was asked for because of an object. Whether that exists and what is kept is for the caller to fill in.
pub fn view_of(tree: &Tree, about: Option<&ObjectKey>, usual: Option<&Usual>) -> TraceView {
    let begin = tree.spans[tree.root].start;
    let until = end_of(tree, about);
    let mut path = critical_path(tree, until);
    name_gaps(&mut path, tree);
    let reached = tree.end(until);
    let waiting = Waiting::of(tree, about).filter(|_| reached < tree.now);
    // No span covers what has not happened.
    path.extend(waiting.map(|waiting| Piece {
        span: None,
        name: waiting.text,
        start: reached.max(begin),
        end: tree.now,
        measured: true,
    }));
    let covered = (coverage(&path) * 1e6).round() / 1e6;
    let total = path.last().map_or(reached, |piece| piece.end.max(reached)).saturating_sub(begin);
    let state = state_of(tree, about);
    let untold: Vec<bool> = (0..tree.objects.len()).map(|object| is_untold(tree, object)).collect();
    let scope = Scope::of(tree, about);
    let is_known = !untold.iter().enumerate().any(|(object, untold)| *untold && scope.has_object(object));
    TraceView {
        kind: "Trace".into(),
        api_version: "coracle/v1".into(),
        object: tree.objects.first().map(root_view),
        trace: tree.trace.to_string(),
        remote_parent: (!tree.remote.is_none()).then(|| tree.remote.to_string()),
        begin: format_timestamp(begin),
        end: (state.is_final() && is_known).then(|| format_timestamp(begin + total)),
        state,
        kept: KeptView::default(),
        notes: tree.notes.clone(),
        objects: tree
            .objects
            .iter()
            .zip(untold)
            .map(|(object, untold)| object_view(object, untold))
            .collect(),
        spans: tree.spans.iter().map(|span| span_view(tree, span, begin, usual)).collect(),
        critical: path.iter().map(|piece| piece_view(tree, piece, begin)).collect(),
        summary: SummaryView { total, covered },
    }
}

fn root_view(object: &TracedObject) -> RootView {
    let ObjectView { resource, namespace, name, uid, .. } = object_view(object, false);
    RootView { resource, namespace, name, uid, exists: true, replicas: None }
}

fn object_view(object: &TracedObject, untold: bool) -> ObjectView {
    let visible = |text: &str| if object.hidden { String::new() } else { text.to_owned() };
    let uid = if object.uid.is_none() { String::new() } else { object.uid.to_string() };
    ObjectView {
        resource: object.key.resource.clone(),
        namespace: visible(&object.key.namespace),
        name: visible(&object.key.name),
        uid: visible(&uid),
        node: visible(&object.node),
        hidden: object.hidden,
        waits: visible(&object.standing.sentence()),
        untold: untold && !object.hidden,
    }
}

fn span_view(tree: &Tree, span: &SpanNode, begin: u64, usual: Option<&Usual>) -> SpanView {
    let hidden = span.object.and_then(|object| tree.objects.get(object)).is_some_and(|object| object.hidden);
    let visible = |text: &str| if hidden { String::new() } else { text.to_owned() };
    SpanView {
        id: span.id.to_string(),
        parent: span.parent.map(|parent| tree.spans[parent].id.to_string()),
        stage: span.stage.key().to_owned(),
        name: visible(&span.name),
        text: visible(&span.text),
        object: span.object,
        revision: span.revision,
        node: visible(&span.node),
        start: span.start.saturating_sub(begin),
        end: span.end.map(|end| end.saturating_sub(begin)),
        uncertainty: span.uncertainty,
        code: span.code,
        flags: span.flags.names().map(str::to_owned).collect(),
        usual: usual.and_then(|usual| usual.p50(span.stage)),
    }
}

fn piece_view(tree: &Tree, piece: &Piece, begin: u64) -> PieceView {
    let span: Option<SpanId> = piece.span.map(|span| tree.spans[span].id);
    let hidden =
        piece.span.and_then(|span| tree.spans[span].object).is_some_and(|object| tree.objects[object].hidden);
    let name = match piece.span.filter(|_| hidden) {
        Some(span) => tree.spans[span].stage.name().to_owned(),
        None => piece.name.clone(),
    };
    PieceView {
        span: span.map(|span| span.to_string()),
        name,
        start: piece.start.saturating_sub(begin),
        end: piece.end.saturating_sub(begin),
    }
}
