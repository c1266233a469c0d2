//! The fixtures that commands, page and suites are tested with: what this crate would answer for their spans.
//!
//! With `CORACLE_WRITE_FIXTURES=1` the critical paths and states in the files are written anew.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use coracle_timeline::{
    ObjectKey, PieceView, SpanNode, TraceView, TracedObject, Tree, parse_timestamp, view,
};
use coracle_trace::{Flags, SpanId, Stage, TraceId, Uid};
use serde_json::Value;

fn fixture_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn traces() -> Vec<(PathBuf, TraceView)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(fixture_dir()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(value) = serde_json::from_str::<Value>(&fs::read_to_string(&path).unwrap()) else { continue };
        if value["kind"] == "Trace" {
            found.push((path.clone(), serde_json::from_value(value).unwrap()));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 11);
    found
}

fn flags(names: &[String]) -> Flags {
    let bit =
        |bit: &u16| Flags(1 << bit).names().next().is_some_and(|name| names.iter().any(|flag| flag == name));
    Flags((0..16).filter(bit).fold(0, |flags, bit| flags | 1 << bit))
}

fn stage(key: &str) -> Stage {
    *Stage::ALL.iter().find(|stage| stage.key() == key).unwrap_or_else(|| panic!("no stage {key}"))
}

fn tree(trace: &TraceView) -> Tree {
    let begin = parse_timestamp(&trace.begin).unwrap().0;
    let index = |id: &String| trace.spans.iter().position(|span| span.id == *id).unwrap();
    let mut spans: Vec<SpanNode> = trace
        .spans
        .iter()
        .map(|span| SpanNode {
            id: SpanId::parse(&span.id).unwrap(),
            parent: span.parent.as_ref().map(index),
            children: Vec::new(),
            stage: stage(&span.stage),
            name: span.name.clone(),
            text: span.text.clone(),
            object: span.object,
            revision: span.revision,
            node: span.node.clone(),
            start: begin + span.start,
            end: span.end.map(|end| begin + end),
            uncertainty: span.uncertainty,
            code: span.code,
            flags: flags(&span.flags),
        })
        .collect();
    for span in 0..spans.len() {
        if let Some(parent) = spans[span].parent {
            spans[parent].children.push(span);
        }
    }
    let objects = trace.objects.iter().map(|object| TracedObject {
        key: ObjectKey {
            resource: object.resource.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        },
        uid: Uid::of(&object.uid),
        owner: Uid::NONE,
        node: object.node.clone(),
        hidden: object.hidden,
        ..TracedObject::default()
    });
    Tree {
        root: spans.iter().position(|span| span.parent.is_none()).unwrap(),
        objects: objects.collect(),
        spans,
        notes: trace.notes.clone(),
        trace: TraceId::parse(&trace.trace).unwrap_or_default(),
        remote: trace.remote_parent.as_deref().and_then(SpanId::parse).unwrap_or_default(),
        now: begin + trace.summary.total,
    }
}

/// One line per object, span and piece.
fn text(trace: &TraceView) -> String {
    let Value::Object(fields) = serde_json::to_value(trace).unwrap() else { panic!("not an object") };
    let order = [
        "kind",
        "apiVersion",
        "object",
        "trace",
        "remoteParent",
        "begin",
        "end",
        "state",
        "kept",
        "notes",
        "objects",
        "spans",
        "critical",
        "summary",
    ];
    let field = |name: &&str| match &fields[*name] {
        Value::Array(items) if items.first().is_some_and(Value::is_object) => {
            let lines: Vec<String> = match *name {
                "spans" => trace.spans.iter().map(|span| serde_json::to_string(span).unwrap()).collect(),
                "critical" => {
                    trace.critical.iter().map(|piece| serde_json::to_string(piece).unwrap()).collect()
                }
                _ => trace.objects.iter().map(|object| serde_json::to_string(object).unwrap()).collect(),
            };
            format!("  \"{name}\": [\n    {}\n  ]", lines.join(",\n    "))
        }
        value => format!("  \"{name}\": {value}"),
    };
    format!("{{\n{}\n}}\n", order.iter().map(field).collect::<Vec<_>>().join(",\n"))
}

#[test]
fn critical_paths_and_states_are_what_the_spans_say() {
    for (path, trace) in traces() {
        let answer = view(&tree(&trace), None);
        if std::env::var_os("CORACLE_WRITE_FIXTURES").is_some() {
            let TraceView { end, state, critical, summary, .. } = answer;
            fs::write(path, text(&TraceView { end, state, critical, summary, ..trace })).unwrap();
            continue;
        }
        assert_eq!(answer.critical, trace.critical, "{}", path.display());
        assert_eq!(answer.summary, trace.summary, "{}", path.display());
        assert_eq!((answer.state, &answer.end), (trace.state, &trace.end), "{}", path.display());
        assert_eq!(answer.trace, trace.trace, "{}", path.display());
    }
}

#[test]
fn spans_are_in_order_below_their_parents() {
    for (path, trace) in traces() {
        assert!(trace.spans.is_sorted_by_key(|span| span.start), "{}", path.display());
        let tree = tree(&trace);
        assert_eq!(tree.spans.iter().filter(|span| span.parent.is_none()).count(), 1, "{}", path.display());
        let pieces: &[PieceView] = &trace.critical;
        let total: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        assert_eq!(total, trace.summary.total, "{}", path.display());
        for piece in pieces {
            assert!(
                piece.span.iter().all(|id| trace.spans.iter().any(|span| span.id == *id)),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn lists_and_streams_hold_traces() {
    let list = fs::read_to_string(fixture_dir().join("list.json")).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    for item in list["items"].as_array().unwrap() {
        serde_json::from_value::<TraceView>(item.clone()).unwrap();
    }
    let stream = fs::read_to_string(fixture_dir().join("follow.ndjson")).unwrap();
    let lines: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|line| line["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["trace", "spans", "alive"]
    );
    serde_json::from_value::<TraceView>(lines[0]["trace"].clone()).unwrap();
}
