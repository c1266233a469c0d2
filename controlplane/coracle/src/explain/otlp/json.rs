//! OTLP/JSON: ids are hexadecimal, 64-bit integers are strings, enums are numbers.

use coracle_proto::otlp::collector::trace::v1::ExportTraceServiceRequest;
use coracle_proto::otlp::common::v1::{KeyValue, any_value};
use coracle_proto::otlp::trace::v1::{ResourceSpans, ScopeSpans, Span};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A request as OTLP/JSON.
pub fn request(request: &ExportTraceServiceRequest) -> Value {
    json!({"resourceSpans": list(&request.resource_spans, of_resource)})
}

fn list<T>(items: &[T], json: impl Fn(&T) -> Value) -> Vec<Value> {
    items.iter().map(json).collect()
}

fn of_resource(spans: &ResourceSpans) -> Value {
    let attributes =
        spans.resource.as_ref().map(|resource| resource.attributes.as_slice()).unwrap_or_default();
    json!({
        "resource": {"attributes": list(attributes, attribute)},
        "scopeSpans": list(&spans.scope_spans, of_scope),
    })
}

fn of_scope(spans: &ScopeSpans) -> Value {
    let scope = spans.scope.clone().unwrap_or_default();
    json!({"scope": {"name": scope.name, "version": scope.version}, "spans": list(&spans.spans, span)})
}

fn span(span: &Span) -> Value {
    let code = span.status.as_ref().map_or(0, |status| status.code);
    json!({
        "traceId": hex(&span.trace_id),
        "spanId": hex(&span.span_id),
        "parentSpanId": hex(&span.parent_span_id),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": span.start_time_unix_nano.to_string(),
        "endTimeUnixNano": span.end_time_unix_nano.to_string(),
        "attributes": list(&span.attributes, attribute),
        "status": if code == 0 { json!({}) } else { json!({"code": code}) },
    })
}

fn attribute(attribute: &KeyValue) -> Value {
    let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => json!({"stringValue": text}),
        Some(any_value::Value::BoolValue(value)) => json!({"boolValue": value}),
        Some(any_value::Value::IntValue(number)) => json!({"intValue": number.to_string()}),
        Some(any_value::Value::DoubleValue(number)) => json!({"doubleValue": number}),
        None => json!({}),
    };
    json!({"key": attribute.key, "value": value})
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
