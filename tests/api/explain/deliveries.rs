//! Spans that nodes deliver: taken from the node itself, about its own pods, once.

use super::{MAPS, config_map, create_pod, span, spans, trace};
use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use coracle_timeline::{StoredRecord, encode};
use coracle_trace::{Flags, Moment, Record, SpanId, Stage, TraceId, Uid};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const BOOT: &str = "0b8d6f3c-9a52-4c3e-8f0e-5d8f6a1c2b3d";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A span of a pod, as its agent records it.
fn stored(uid: &str, stage: Stage, text: &str, start: u64) -> StoredRecord {
    let uid = Uid::of(uid);
    let record = Record {
        stage,
        flags: Flags::NONE,
        code: 0,
        span: SpanId::fresh(),
        parent: SpanId::of_stage(uid, Stage::PodStart),
        trace: TraceId::NONE,
        subject: uid,
        revision: 0,
        start: Moment::MAX,
        duration: 3_000_000,
    };
    StoredRecord { record, start, details: None, text: text.into(), node: "liar".into(), uncertainty: 0 }
}

/// The start of a pod, below the write that bound it.
fn pod_start(uid: &str, revision: u64, start: u64) -> StoredRecord {
    let mut stored = stored(uid, Stage::PodStart, "", start);
    stored.record.span = SpanId::of_stage(Uid::of(uid), Stage::PodStart);
    stored.record.parent = SpanId::of_write(Uid::of(uid), revision);
    (stored.record.revision, stored.record.duration) = (revision, 60_000_000);
    stored
}

struct Nodes {
    server: Server,
    admin: Caller,
}

impl Nodes {
    fn start() -> Self {
        let server = Server::with(&["--api-only"]);
        let admin = Caller::admin(&server);
        for node in ["n1", "n2"] {
            admin.create("/api/v1/nodes", &json!({"metadata": {"name": node}}));
        }
        Self { server, admin }
    }

    fn agent(&self, node: &str) -> Caller {
        Caller::certified(&self.server, &format!("system:node:{node}"), &["system:nodes"])
    }

    fn body(&self, records: &[StoredRecord]) -> PathBuf {
        let file = self.server.data_dir().join(format!("blocks-{}", SpanId::fresh()));
        let bytes: Vec<u8> = encode(records).into_iter().flat_map(|block| block.bytes).collect();
        std::fs::write(&file, bytes).unwrap();
        file
    }

    /// Delivers a file as a node; `clock` is the offset of its clock.
    fn deliver(&self, caller: &Caller, node: &str, body: &Path, sequence: u64, clock: i64) -> (u16, Value) {
        let body = format!("@{}", body.display());
        let caller = caller
            .header("Content-Type: application/vnd.coracle.spans")
            .header(&format!("Coracle-Spans: 7 {sequence}"))
            .header(&format!("Coracle-Clock: {clock} 200000 {BOOT}"))
            .with(&["--data-binary", &body]);
        caller.send("POST", &format!("/coracle/v1/spans/{node}"), None)
    }
}

#[test]
fn spans_of_a_node_are_in_the_tree_of_its_pod() {
    let nodes = Nodes::start();
    let uid = create_pod(&nodes.admin, "web", "n1");
    let write = trace(&nodes.admin, "pods", "web");
    let revision = span(&write, "write")["revision"].as_u64().unwrap();
    // The clock of the node is three seconds behind.
    let start = now() - 3_000_000_000;
    let body = nodes.body(&[
        pod_start(&uid, revision, start),
        stored(&uid, Stage::CniPlugin, "bridge ADD", start + 1_000_000),
    ]);
    let agent = nodes.agent("n1");
    let (code, answer) = nodes.deliver(&agent, "n1", &body, 100, 3_000_000_000);
    assert_eq!((code, &answer["until"]), (200, &json!(100)), "{answer}");
    let answer = trace(&nodes.admin, "pods", "web");
    let (begun, plugin) = (span(&answer, "pod-start"), span(&answer, "cni-plugin"));
    assert_eq!((&plugin["node"], &plugin["name"]), (&json!("n1"), &json!("bridge ADD")));
    assert_eq!(plugin["parent"], begun["id"]);
    assert!(begun["start"].as_u64().unwrap() < 60_000_000_000, "the server's clock: {begun}");
    assert_eq!(plugin["uncertainty"], 200_000);
    // The same again, as when the answer was lost.
    let (code, again) = nodes.deliver(&agent, "n1", &body, 100, 3_000_000_000);
    assert_eq!((code, &again["until"]), (200, &json!(100)));
    assert_eq!(spans(&trace(&nodes.admin, "pods", "web"), "cni-plugin").len(), 1);
}

#[test]
fn a_node_reports_about_its_own_pods_only() {
    let nodes = Nodes::start();
    let (own, other) = (create_pod(&nodes.admin, "own", "n1"), create_pod(&nodes.admin, "other", "n2"));
    let map = nodes.admin.create(MAPS, &config_map("map"));
    let map = map["metadata"]["uid"].as_str().unwrap().to_owned();
    let revision =
        |name: &str| span(&trace(&nodes.admin, "pods", name), "write")["revision"].as_u64().unwrap();
    let (of_own, of_other) = (revision("own"), revision("other"));
    let forged = |uid: &str| stored(uid, Stage::Write, "delete pods default/other", now());
    let body = nodes.body(&[
        pod_start(&own, of_own, now()),
        pod_start(&other, of_other, now()),
        stored(&map, Stage::RulesProgrammed, "default/map", now()),
        stored(&own, Stage::Reconcile, "replicaset-controller default/own", now()),
        forged(&own),
        forged(&other),
    ]);
    let (code, answer) = nodes.deliver(&nodes.agent("n1"), "n1", &body, 1, 0);
    assert_eq!(code, 200, "{answer}");
    assert_eq!(spans(&trace(&nodes.admin, "pods", "own"), "pod-start").len(), 1);
    let other = trace(&nodes.admin, "pods", "other");
    assert!(spans(&other, "pod-start").is_empty() && spans(&other, "write").len() == 1, "{other:#}");
    assert!(spans(&trace(&nodes.admin, "configmaps", "map"), "rules-programmed").is_empty());
    let page = nodes.admin.get("/metrics").1;
    assert!(page.as_str().unwrap().contains("coracle_trace_rejected_spans_total 5"), "{page}");
}

#[test]
fn deliveries_that_make_no_sense_are_refused() {
    let nodes = Nodes::start();
    let uid = create_pod(&nodes.admin, "web", "n1");
    let body = nodes.body(&[stored(&uid, Stage::CniPlugin, "bridge ADD", now())]);
    let agent = nodes.agent("n1");
    assert_eq!(nodes.deliver(&nodes.agent("n2"), "n1", &body, 1, 0).0, 403, "another node");
    let user = Caller::certified(&nodes.server, "ann", &[]);
    assert_eq!(nodes.deliver(&user, "n1", &body, 1, 0).0, 403, "no node");
    let (path, at) = ("/coracle/v1/spans/n1", format!("@{}", body.display()));
    let plain = agent.with(&["--data-binary", &at]);
    let kind = "Content-Type: application/vnd.coracle.spans";
    assert_eq!(plain.header("Content-Type: text/plain").send("POST", path, None).0, 415);
    assert_eq!(plain.header(kind).send("POST", path, None).0, 400, "without headers");
    assert!(matches!(agent.get(path).0, 403 | 405));
    let mut bytes = std::fs::read(&body).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let broken = nodes.server.data_dir().join("broken");
    std::fs::write(&broken, &bytes).unwrap();
    assert_eq!(nodes.deliver(&agent, "n1", &broken, 2, 0).0, 400, "damaged");
    std::fs::write(&broken, vec![0; 300 * 1024]).unwrap();
    assert_eq!(nodes.deliver(&agent, "n1", &broken, 2, 0).0, 413, "too large");
    assert_eq!(nodes.deliver(&agent, "n1", &body, 1, 0).0, 200);
}

/// The answer to a delivery was lost, and the server was killed: what was taken is there, and is not taken again.
#[test]
fn a_server_that_was_killed_knows_what_it_has_taken() {
    let mut nodes = Nodes::start();
    let uid = create_pod(&nodes.admin, "web", "n1");
    let revision = span(&trace(&nodes.admin, "pods", "web"), "write")["revision"].as_u64().unwrap();
    let plugin = stored(&uid, Stage::CniPlugin, "bridge ADD", now());
    let body = nodes.body(&[pod_start(&uid, revision, now()), plugin]);
    let agent = nodes.agent("n1");
    assert_eq!(nodes.deliver(&agent, "n1", &body, 100, 0).0, 200);
    nodes.server.kill();
    nodes.server.restart();
    assert_eq!(spans(&trace(&nodes.admin, "pods", "web"), "cni-plugin").len(), 1);
    // Not even read: it would be refused.
    let damaged = nodes.server.data_dir().join("damaged");
    std::fs::write(&damaged, "no blocks").unwrap();
    let (code, answer) = nodes.deliver(&agent, "n1", &damaged, 100, 0);
    assert_eq!((code, &answer["until"]), (200, &json!(100)), "{answer}");
    assert_eq!(nodes.deliver(&agent, "n1", &damaged, 101, 0).0, 400, "what follows is read");
}
