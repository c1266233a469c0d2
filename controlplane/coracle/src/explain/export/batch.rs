//! Resolved records to one request: marks become spans, and spans are grouped by the node that recorded them.

use super::resolve::Resolved;
use crate::explain::otlp::{self, Source, SpanParts};
use coracle_proto::otlp::collector::trace::v1::ExportTraceServiceRequest;
use coracle_proto::otlp::trace::v1::Span;
use coracle_trace::{Flags, Stage};
use std::collections::BTreeMap;

/// The stages that end with the marks of a request.
const OF_REQUEST: [Stage; 8] = [
    Stage::Authn,
    Stage::Filters,
    Stage::FlowQueue,
    Stage::Authz,
    Stage::Body,
    Stage::Decode,
    Stage::Handle,
    Stage::Respond,
];

/// The stages that end with the marks of a write.
const OF_WRITE: [Stage; 8] = [
    Stage::Prepare,
    Stage::Mutating,
    Stage::Defaults,
    Stage::Validation,
    Stage::Validating,
    Stage::Encode,
    Stage::Store,
    Stage::ReadBack,
];

/// One request for a batch; `server` is this server.
pub(super) fn request_of(batch: &[Resolved], server: &Source) -> ExportTraceServiceRequest {
    let mut nodes: BTreeMap<&str, Vec<Span>> = BTreeMap::new();
    for resolved in batch {
        let spans = nodes.entry(resolved.stored.node.as_str()).or_default();
        add(resolved, spans);
    }
    let source = |node: &str| Source { node: node.to_owned(), ..server.clone() };
    otlp::request(nodes.into_iter().map(|(node, spans)| (source(node), spans)))
}

fn add(resolved: &Resolved, spans: &mut Vec<Span>) {
    let (stored, record) = (&resolved.stored, &resolved.stored.record);
    let (name, text) = name_and_text(record.stage, &stored.text);
    let parts = SpanParts {
        trace: resolved.trace,
        span: resolved.id,
        parent: resolved.parent,
        stage: record.stage,
        name,
        text,
        object: resolved.object.as_ref(),
        revision: record.revision,
        start: stored.start,
        end: stored.end(),
        code: record.code,
        failed: record.flags.contains(Flags::FAILED),
        uncertainty: u64::from(stored.uncertainty),
    };
    let mut span = parts.message();
    if resolved.derived && !resolved.parent.is_none() {
        span.attributes.push(otlp::text("coracle.parent", &resolved.parent.to_string()));
    }
    spans.push(span);
    let stages: &[Stage] = match record.stage {
        Stage::Request => &OF_REQUEST,
        Stage::Write => &OF_WRITE,
        _ => return,
    };
    let Some(details) = &stored.details else { return };
    let mut begin = stored.start;
    for (mark, stage) in stages.iter().enumerate() {
        let Some(end) = details.mark(mark).map(|after| stored.start + after) else { continue };
        // It would be the time of the write again.
        if *stage == Stage::Handle && resolved.is_explained {
            begin = end.max(begin);
            continue;
        }
        let part = SpanParts {
            span: resolved.id.of_mark(mark as u8),
            parent: resolved.id,
            stage: *stage,
            name: "",
            text: "",
            start: begin,
            end,
            code: 0,
            failed: false,
            ..parts.clone()
        };
        spans.push(part.message());
        begin = end.max(begin);
    }
}

/// Name and text of a record: a write has its verb before the object, a reconcile its controller before the key.
fn name_and_text(stage: Stage, text: &str) -> (&str, &str) {
    match stage {
        Stage::Write | Stage::Reconcile | Stage::Queued => text.split_once(' ').unwrap_or((text, "")),
        _ => text.split_once('\n').unwrap_or((text, "")),
    }
}
