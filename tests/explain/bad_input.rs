//! Questions and deliveries that are wrong, and those of people who may not ask.

use crate::world::World;
use coracle_timeline::{StoredRecord, encode};
use coracle_trace::{Flags, Moment, Record, SpanId, Stage, TraceId, Uid};

const SPANS: &str = "application/vnd.coracle.spans";
/// A spool that no agent has.
const POSITION: &str = "Coracle-Spans: 99 1";
const CLOCK: &str = "Coracle-Clock: 0 0 00000000-0000-4000-8000-000000000000";

pub fn questions(world: &World) {
    let long = format!("resource=pods&namespace=default&name={}", "a".repeat(2000));
    for (question, code, cause) in [
        ("", 400, ""),
        ("name=web", 400, ""),
        ("resource=pods", 400, ""),
        ("trace=xyz", 400, ""),
        ("uid=x&since=yesterday", 400, ""),
        ("uid=x&last=-1", 400, ""),
        ("uid=x&last=99999999999999999999999", 400, ""),
        ("uid=x&follow=maybe", 400, ""),
        ("resource=boats.example.com&name=x", 404, "unknown-resource"),
        ("resource=pods&namespace=default&name=never-was", 404, "never"),
        ("uid=11111111-2222-4333-8444-555555555555", 404, "never"),
        ("trace=77777777777777777777777777777777", 404, "never"),
        (long.as_str(), 404, "never"),
    ] {
        let (answered, body) = world.curl(&[], &format!("/coracle/v1/trace?{question}"));
        assert_eq!(answered, code, "{question}: {body}");
        assert_eq!(body["kind"], "Status", "{question}: {body}");
        if !cause.is_empty() {
            assert_eq!(body["details"]["causes"][0]["reason"], cause, "{question}: {body}");
        }
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let (code, body) = world.curl(&["-X", method], "/coracle/v1/trace?uid=x");
        assert_eq!(code, 405, "{method}: {body}");
    }
    let (code, body) = world.curl(&[], "/coracle/v1/trace?resource=pods&namespace=..%2F..&name=%00%FF");
    assert!(matches!(code, 400 | 404), "{body}");
    let (code, _) = world.curl(&[], "/coracle/v1/other");
    assert_eq!(code, 404);
    // What nodes have to do with it is their own spans.
    let (code, _) = world.curl_as_node("node-1", &[], "/coracle/v1/spans?uid=x");
    assert_eq!(code, 403);
}

pub fn deliveries(world: &World) {
    let media = format!("Content-Type: {SPANS}");
    let path = "/coracle/v1/spans/node-1";
    let post = |node: &str, headers: &[&str], body: &str, path: &str| {
        let mut args = vec!["-X", "POST", "--data-binary", body];
        args.extend(headers.iter().flat_map(|header| ["-H", header]));
        world.curl_as_node(node, &args, path)
    };
    let right = [media.as_str(), POSITION, CLOCK];
    let large = world.file("large", "x".repeat(300 * 1024).as_bytes());
    let cases: [(&str, &[&str], &str, &str, u16); 8] = [
        ("node-1", &right[..], "no block", path, 400),
        ("node-1", &right[..1], "no block", path, 400),
        ("node-1", &[media.as_str(), "Coracle-Spans: x", CLOCK], "no block", path, 400),
        ("node-1", &[media.as_str(), POSITION, "Coracle-Clock: 1"], "no block", path, 400),
        ("node-1", &["Content-Type: application/json", POSITION, CLOCK], "{}", path, 415),
        ("node-1", &right[..], large.as_str(), path, 413),
        ("node-2", &right[..], "no block", path, 403),
        ("node-1", &right[..], "no block", "/coracle/v1/spans/node-2", 403),
    ];
    for (node, headers, body, path, code) in cases {
        let (answered, answer) = post(node, headers, body, path);
        assert_eq!(answered, code, "{node} {headers:?} {path}: {answer}");
    }
    // Spans about the objects of others are taken and dropped.
    let rejected = || -> u64 {
        let page = world.k.run("get --raw /metrics");
        let line = page.lines().find_map(|line| line.strip_prefix("coracle_trace_rejected_spans_total "));
        line.map_or(0, |count| count.parse::<f64>().unwrap() as u64)
    };
    let before = rejected();
    let blocks: Vec<u8> = encode(&[foreign()]).into_iter().flat_map(|block| block.bytes).collect();
    let (code, answer) = post("node-1", &right, &world.file("foreign", &blocks), path);
    assert_eq!((code, rejected()), (200, before + 1), "{answer}");
}

/// A span about an object that nobody has.
fn foreign() -> StoredRecord {
    let record = Record {
        stage: Stage::Image,
        flags: Flags::NONE,
        code: 0,
        span: SpanId(1),
        parent: SpanId(2),
        trace: TraceId::NONE,
        subject: Uid(0x1111_2222_3333_4444_5555_6666_7777_8888),
        revision: 1,
        start: Moment::MAX,
        duration: 1,
    };
    let start = crate::world::unix_now();
    StoredRecord { record, start, details: None, text: "x".into(), node: String::new(), uncertainty: 0 }
}
