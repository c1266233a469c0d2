#![allow(clippy::unwrap_used)]
use super::json;
use super::span::{Source, SpanObject, SpanParts, request};
use coracle_proto::otlp::common::v1::any_value;
use coracle_proto::otlp::trace::v1::Span;
use coracle_proto::otlp::trace::v1::span::SpanKind;
use coracle_proto::otlp::trace::v1::status::StatusCode;
use coracle_trace::{SpanId, Stage, TraceId, Uid};

fn parts(stage: Stage, name: &'static str, text: &'static str) -> SpanParts<'static> {
    SpanParts {
        trace: TraceId(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
        span: SpanId(7),
        parent: SpanId::NONE,
        stage,
        name,
        text,
        object: None,
        revision: 0,
        start: 1_000,
        end: 3_000,
        code: 0,
        failed: false,
        uncertainty: 0,
    }
}

fn attribute_of<'a>(span: &'a Span, key: &str) -> Option<&'a any_value::Value> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}

fn text_of<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    match attribute_of(span, key)? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[test]
fn a_request_has_the_attributes_of_http() {
    let path = "POST /apis/apps/v1/namespaces/default/deployments";
    let request = SpanParts { code: 422, failed: true, ..parts(Stage::Request, path, "admin\nkubectl/1.35") };
    let span = request.message();
    assert_eq!(span.name, "POST deployments");
    assert_eq!(span.kind, i32::from(SpanKind::Server));
    assert_eq!(text_of(&span, "http.request.method"), Some("POST"));
    assert_eq!(text_of(&span, "url.scheme"), Some("https"));
    assert_eq!(text_of(&span, "url.path"), Some("/apis/apps/v1/namespaces/default/deployments"));
    assert_eq!(text_of(&span, "user_agent.original"), Some("kubectl/1.35"));
    assert_eq!(text_of(&span, "error.type"), Some("422"));
    let code = attribute_of(&span, "http.response.status_code");
    assert_eq!(code, Some(&any_value::Value::IntValue(422)));
    assert_eq!(span.status.unwrap().code, i32::from(StatusCode::Error));
    assert!(span.parent_span_id.is_empty());
}

#[test]
fn a_write_says_what_it_is_about() {
    let object = SpanObject {
        resource: "deployments.apps".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: Uid::of("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11"),
    };
    let write = SpanParts { object: Some(&object), revision: 9, ..parts(Stage::Write, "create", "") };
    let span = write.message();
    assert_eq!(span.name, "create deployments.apps");
    assert_eq!(text_of(&span, "k8s.deployment.name"), Some("web"));
    assert_eq!(text_of(&span, "k8s.deployment.uid"), Some("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11"));
    assert_eq!(text_of(&span, "k8s.namespace.name"), Some("default"));
    assert_eq!(attribute_of(&span, "coracle.revision"), Some(&any_value::Value::IntValue(9)));
    assert!(span.status.is_none());
}

#[test]
fn json_has_hexadecimal_ids_and_numbers_as_text() {
    let source = Source { node: "node1".into(), cluster: "u".into(), ..Source::default() };
    let sent = request([(source, vec![parts(Stage::CniPlugin, "bridge ADD", "").message()])]);
    let json = json::request(&sent);
    let span = &json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((&span["spanId"], &span["parentSpanId"]), (&"0000000000000007".into(), &"".into()));
    assert_eq!((&span["startTimeUnixNano"], &span["name"]), (&"1000".into(), &"cni-plugin".into()));
    let resource = json["resourceSpans"][0]["resource"].to_string();
    assert!(resource.contains("coracle-agent") && resource.contains("k8s.node.name"), "{resource}");
}

#[test]
fn spans_of_one_host_say_so() {
    let host_of = |source: Source| {
        let json = json::request(&request([(source, Vec::new())]));
        let attributes = json["resourceSpans"][0]["resource"]["attributes"].as_array().cloned().unwrap();
        let host = attributes.iter().find(|attribute| attribute["key"] == "host.name");
        host.map(|attribute| attribute["value"]["stringValue"].as_str().unwrap().to_owned())
    };
    let server = Source { instance: "a".into(), host: "machine".into(), ..Source::default() };
    assert_eq!(host_of(server.clone()).as_deref(), Some("machine"));
    assert_eq!(host_of(Source { node: "node1".into(), ..server }).as_deref(), Some("node1"));
    assert_eq!(host_of(Source::default()), None);
}

#[test]
fn a_moment_has_a_duration() {
    let span = SpanParts { end: 1_000, ..parts(Stage::Ready, "", "") }.message();
    assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1_000, 1_001));
}
