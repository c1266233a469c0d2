//! Answers of the server as OTLP/JSON, for `coracle trace -o otlp`.

use super::json;
use super::span::{Source, SpanObject, SpanParts, request};
use coracle_proto::otlp::trace::v1::Span;
use coracle_timeline::{SpanView, TraceView, parse_timestamp};
use coracle_trace::{SpanId, Stage, TraceId, Uid};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    List { items: Vec<TraceView> },
    One(Box<TraceView>),
}

/// The spans of a `Trace` or `TraceList`; those that have not ended are left out. What is neither has no spans.
pub fn json_of_trace(trace: &Value) -> Value {
    let views = match Answer::deserialize(trace) {
        Ok(Answer::List { items }) => items,
        Ok(Answer::One(view)) => vec![*view],
        Err(_) => Vec::new(),
    };
    let mut nodes: BTreeMap<&str, Vec<Span>> = BTreeMap::new();
    for view in &views {
        let objects: Vec<SpanObject> = objects(view);
        for span in &view.spans {
            if let Some(message) = message(view, span, &objects) {
                nodes.entry(span.node.as_str()).or_default().push(message);
            }
        }
    }
    let source = |node: &str| Source { node: node.to_owned(), ..Source::default() };
    json::request(&request(nodes.into_iter().map(|(node, spans)| (source(node), spans))))
}

fn objects(view: &TraceView) -> Vec<SpanObject> {
    let of = |object: &coracle_timeline::ObjectView| SpanObject {
        resource: object.resource.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: Uid::of(&object.uid),
    };
    view.objects.iter().map(of).collect()
}

fn message(view: &TraceView, span: &SpanView, objects: &[SpanObject]) -> Option<Span> {
    let (begin, _) = parse_timestamp(&view.begin)?;
    let parent = match &span.parent {
        Some(parent) => SpanId::parse(parent)?,
        None => view.remote_parent.as_deref().and_then(SpanId::parse).unwrap_or(SpanId::NONE),
    };
    let parts = SpanParts {
        trace: TraceId::parse(&view.trace)?,
        span: SpanId::parse(&span.id)?,
        parent,
        stage: Stage::ALL.iter().copied().find(|stage| stage.key() == span.stage).unwrap_or(Stage::Other),
        name: &span.name,
        text: &span.text,
        object: span.object.and_then(|at| objects.get(at)),
        revision: span.revision,
        start: begin + span.start,
        end: begin + span.end?,
        code: span.code,
        failed: span.flags.iter().any(|flag| flag == "failed"),
        uncertainty: span.uncertainty,
    };
    Some(parts.message())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_becomes_spans_of_its_nodes() {
        let answer = include_str!("../../../../../timeline/fixtures/deployment-ready.json");
        let answer: Value = serde_json::from_str(answer).unwrap();
        let json = json_of_trace(&answer);
        let groups = json["resourceSpans"].as_array().unwrap();
        // The server and three nodes.
        assert_eq!(groups.len(), 4);
        let spans = groups[0]["scopeSpans"][0]["spans"].as_array().unwrap();
        assert_eq!(spans[0]["name"], "POST deployments");
        assert_eq!(spans[0]["traceId"], answer["trace"]);
        assert_eq!(spans[0]["startTimeUnixNano"], "1794823200123456789");
        assert_eq!(json_of_trace(&Value::Null)["resourceSpans"], Value::Array(Vec::new()));
    }
}
