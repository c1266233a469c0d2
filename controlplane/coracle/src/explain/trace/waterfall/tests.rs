#![allow(clippy::unwrap_used)]
use super::super::answer::tests::{first, fixture};
use super::super::width::{ASCII, UNICODE};
use super::*;
use std::path::Path;

const PLAIN: Form = Form { all: false, compare: false, wide: false, short: false };

/// Draws a fixture two seconds after it began, and compares with `golden/<name>.txt`. With CORACLE_BLESS the file is written.
fn check(name: &str, answer: &str, form: Form, width: usize, style: Style) {
    let trace = first(answer);
    let screen = Screen { width, height: 24, style, color: false, terminal: false };
    let mut drawn = draw(&trace, form, screen, trace.began() + 2_100_000_000).join("\n");
    drawn.push('\n');
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/explain/trace/golden").join(format!("{name}.txt"));
    if std::env::var_os("CORACLE_BLESS").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (line, (drawn, golden)) in drawn.lines().zip(golden.lines()).enumerate() {
        assert_eq!(drawn, golden, "{name}, line {}", line + 1);
    }
    assert_eq!(drawn.lines().count(), golden.lines().count(), "{name}");
    if !form.wide {
        assert!(drawn.lines().all(|line| length(line) <= width), "{name} is wider than {width}");
    }
}

#[test]
fn a_deployment_in_several_widths() {
    let answer = fixture!("deployment-ready.json");
    check("deployment-ready.60", answer, PLAIN, 60, UNICODE);
    check("deployment-ready.80", answer, PLAIN, 80, UNICODE);
    check("deployment-ready.160", answer, PLAIN, 160, UNICODE);
    check("deployment-ready.80.ascii", answer, PLAIN, 80, ASCII);
}

#[test]
fn what_is_not_ready() {
    check("deployment-stuck.80", fixture!("deployment-stuck.json"), PLAIN, 80, UNICODE);
    check("deployment-refused.80", fixture!("deployment-refused.json"), PLAIN, 80, UNICODE);
    check("deployment-running.80", fixture!("deployment-running.json"), PLAIN, 80, UNICODE);
    check("pod-crash-loop.80", fixture!("pod-crash-loop.json"), PLAIN, 80, UNICODE);
}

#[test]
fn what_is_not_certain() {
    check("deployment-restarted.80", fixture!("deployment-restarted.json"), PLAIN, 80, UNICODE);
    check("deployment-uncertain.60.ascii", fixture!("deployment-uncertain.json"), PLAIN, 60, ASCII);
    check("evidence.80", fixture!("evidence.json"), PLAIN, 80, UNICODE);
}

#[test]
fn other_subjects() {
    check("pod-gone.60", fixture!("pod-gone.json"), PLAIN, 60, UNICODE);
    check("service-ready.80", fixture!("service-ready.json"), PLAIN, 80, UNICODE);
}

#[test]
fn other_forms() {
    let answer = fixture!("pod-ready.json");
    check("pod-ready.100.compare", answer, Form { compare: true, ..PLAIN }, 100, UNICODE);
    check("pod-ready.80.wide", answer, Form { wide: true, ..PLAIN }, 80, UNICODE);
    check("pod-ready.80.all", answer, Form { all: true, ..PLAIN }, 80, UNICODE);
}

#[test]
fn the_short_form() {
    let short = Form { short: true, ..PLAIN };
    check("deployment-ready.80.short", fixture!("deployment-ready.json"), short, 80, UNICODE);
    check("deployment-ready.60.short.ascii", fixture!("deployment-ready.json"), short, 60, ASCII);
    check("deployment-stuck.80.short", fixture!("deployment-stuck.json"), short, 80, UNICODE);
}

#[test]
fn deep_rows_keep_their_labels() {
    let span = |level: u64| super::super::answer::Span {
        id: level.to_string(),
        parent: level.checked_sub(1).map(|above| above.to_string()),
        stage: "restart".to_owned(),
        name: format!("n{level}"),
        start: level,
        end: Some(60),
        ..super::super::answer::Span::default()
    };
    let trace = Trace { spans: (0..40).map(span).collect(), ..Trace::default() };
    let screen = Screen { width: 80, height: 24, style: UNICODE, color: false, terminal: false };
    let drawn = draw(&trace, PLAIN, screen, 0).join("\n");
    assert!(drawn.contains("└ restart n39"), "{drawn}");
}

#[test]
fn the_scheduler_has_the_node_that_it_chose() {
    use super::super::answer::Span;
    let mut trace = first(fixture!("deployment-ready.json"));
    let verdicts = trace.spans.iter().filter(|span| span.stage == "verdict");
    let refuse = |chosen: &Span| Span {
        id: format!("{}0", chosen.id),
        name: "node9".to_owned(),
        text: "NodeAffinity: node(s) didn't match Pod's node affinity/selector".to_owned(),
        flags: vec!["failed".to_owned()],
        ..chosen.clone()
    };
    let refused: Vec<Span> = verdicts.map(refuse).collect();
    assert!(!refused.is_empty());
    trace.spans.extend(refused);
    let screen = Screen { width: 160, height: 24, style: UNICODE, color: false, terminal: false };
    let drawn = draw(&trace, PLAIN, screen, 0).join("\n");
    assert!(drawn.contains("scheduler  node2=87") && !drawn.contains("node9"), "{drawn}");
}

/// A rolling update: each pod is made because the one before it is ready.
fn rolling(pods: usize) -> Trace {
    use super::super::answer::{Object, Piece, Span, Summary};
    let named =
        |resource: &str, name: String| Object { resource: resource.to_owned(), name, ..Object::default() };
    let mut trace = Trace {
        objects: vec![
            named("deployments.apps", "web".to_owned()),
            named("replicasets.apps", "web-7d9f8c6b5".to_owned()),
        ],
        ..Trace::default()
    };
    let mut add = |stage: &str, name: &str, text: &str, object: usize| {
        let (at, id) = (trace.spans.len() as u64 * 1_000_000, trace.spans.len());
        let span = Span {
            id: id.to_string(),
            parent: id.checked_sub(1).map(|above| above.to_string()),
            stage: stage.to_owned(),
            name: name.to_owned(),
            text: text.to_owned(),
            object: Some(object),
            start: at,
            end: Some(at + 1_000_000),
            ..Span::default()
        };
        let (start, end) = (span.start, at + 1_000_000);
        trace.critical.push(Piece { span: Some(id.to_string()), name: String::new(), start, end });
        trace.spans.push(span);
    };
    add("request", "PATCH /x", "admin\nkubectl", 0);
    add("write", "patch", "", 0);
    for pod in 0..pods {
        add("reconcile", "deployment-controller", "default/web", 0);
        add("write", "update", "", 1);
        add("reconcile", "replicaset-controller", "default/web-7d9f8c6b5", 1);
        add("write", "create", "", 2 + pod);
        add("pod-start", "", "", 2 + pod);
        add("status-report", "", "", 2 + pod);
        add("request", "PATCH /x", "node\nagent", 2 + pod);
        add("write", "patch", "", 2 + pod);
    }
    trace.objects.extend((0..pods).map(|pod| named("pods", format!("web-7d9f8c6b5-pod{pod:02}"))));
    trace.summary = Summary { total: trace.spans.len() as u64 * 1_000_000, covered: 1.0 };
    trace
}

#[test]
fn a_rolling_update_is_short_and_its_last_pod_has_a_name() {
    let screen = Screen { width: 80, height: 24, style: UNICODE, color: false, terminal: false };
    let lines = draw(&rolling(24), PLAIN, screen, 0);
    let drawn = lines.join("\n");
    assert!(lines.len() < 40, "{} lines\n{drawn}", lines.len());
    assert!(drawn.contains("more turns of deployment"), "{drawn}");
    assert!(drawn.contains("create pod/") && drawn.contains("-pod00") && drawn.contains("-pod23"), "{drawn}");
}

#[test]
fn an_empty_trace_and_a_narrow_terminal() {
    let screen = Screen { width: 10, height: 5, style: UNICODE, color: true, terminal: true };
    assert!(!draw(&Trace::default(), PLAIN, screen, 0).is_empty());
    let short = Form { short: true, ..PLAIN };
    assert!(!draw(&Trace::default(), short, screen, 0).is_empty());
    let trace = first(fixture!("pod-ready.json"));
    assert!(draw(&trace, short, screen, 0).last().is_some_and(|line| line.starts_with("total")));
    let drawn = draw(&trace, PLAIN, screen, 0);
    assert!(drawn.iter().any(|line| line.starts_with("\x1b[1m")), "the critical path is bold");
}
