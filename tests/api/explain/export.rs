//! Export by OTLP, to a receiver of gRPC and of HTTP.

use super::receiver::{Receiver, hex, text};
use super::{MAPS, SPAN, TRACE, config_map, traceparent};
use coracle_proto::otlp::trace::v1::Span;
use coracle_tests::caller::Caller;
use coracle_tests::client::Target;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use std::time::{Duration, Instant};

fn named<'a>(spans: &'a [(String, Span)], name: &str) -> Option<&'a Span> {
    spans.iter().map(|(_, span)| span).find(|span| span.name == name)
}

/// Starts a server, makes an object as a client with a trace, and waits for its spans.
fn exported(endpoint: &str, receiver: &Receiver, more: &[&str]) -> Vec<(String, Span)> {
    let flags = [&["--api-only", "--otlp-endpoint", endpoint][..], more].concat();
    let server = Server::with(&flags);
    Caller::admin(&server).header(&traceparent()).create(MAPS, &config_map("exported"));
    let mut spans = Vec::new();
    eventually("the spans are exported", Duration::from_secs(30), || {
        spans = receiver.of_trace(TRACE);
        named(&spans, "POST configmaps").is_some() && named(&spans, "create configmaps").is_some()
    });
    spans
}

fn check(spans: &[(String, Span)]) {
    let (request, write) =
        (named(spans, "POST configmaps").unwrap(), named(spans, "create configmaps").unwrap());
    assert_eq!(hex(&request.parent_span_id), SPAN, "below the client's span");
    assert_eq!(write.parent_span_id, request.span_id);
    assert_eq!(text(&request.attributes, "http.request.method").as_deref(), Some("POST"));
    assert_eq!(text(&write.attributes, "k8s.namespace.name").as_deref(), Some("default"));
    assert!(request.start_time_unix_nano <= write.start_time_unix_nano);
    assert!(request.end_time_unix_nano >= write.end_time_unix_nano);
    let store = named(spans, "store").expect("marks are spans");
    assert_eq!(store.parent_span_id, write.span_id);
    let respond = named(spans, "respond").expect("the answer is made after the write");
    assert_eq!(respond.parent_span_id, request.span_id);
    assert!(respond.start_time_unix_nano >= write.end_time_unix_nano);
    assert!(named(spans, "handle").is_none(), "that time is the write's");
    assert!(spans.iter().all(|(service, _)| service == "coracle-server"));
}

#[test]
fn spans_hang_below_the_clients_span_in_a_grpc_receiver() {
    let receiver = Receiver::start(0);
    let spans = exported(&format!("http://{}", receiver.address), &receiver, &[]);
    check(&spans);
    let headers = receiver.received.lock().unwrap().headers.clone();
    assert_eq!(headers.get("te").unwrap(), "trailers");
}

#[test]
fn a_receiver_of_http_that_is_busy_gets_them_later() {
    let receiver = Receiver::start(2);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("headers");
    std::fs::write(&file, "# a comment\nApi-Key: secret\n").unwrap();
    let endpoint = format!("http://{}/v1/traces", receiver.address);
    let spans = exported(&endpoint, &receiver, &["--otlp-headers-file", &file.display().to_string()]);
    check(&spans);
    let headers = receiver.received.lock().unwrap().headers.clone();
    assert_eq!(headers.get("api-key").unwrap(), "secret");
    assert_eq!(headers.get("content-type").unwrap(), "application/x-protobuf");
}

/// What was recorded just before the end is not lost.
#[test]
fn a_server_that_ends_exports_its_last_spans() {
    let receiver = Receiver::start(0);
    let mut server =
        Server::with(&["--api-only", "--otlp-endpoint", &format!("http://{}", receiver.address)]);
    Caller::admin(&server).header(&traceparent()).create(MAPS, &config_map("last"));
    server.stop();
    let spans = receiver.of_trace(TRACE);
    assert!(named(&spans, "POST configmaps").is_some(), "{}", server.log());
    check(&spans);
}

#[test]
fn only_traces_of_clients_are_exported_without_a_share() {
    let receiver = Receiver::start(0);
    let endpoint = format!("http://{}", receiver.address);
    let server = Server::with(&["--api-only", "--otlp-endpoint", &endpoint, "--otlp-sampling", "0"]);
    let admin = Caller::admin(&server);
    admin.create(MAPS, &config_map("silent"));
    let unsampled = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4799-00f067aa0ba902b7-00";
    admin.header(unsampled).create(MAPS, &config_map("unsampled"));
    admin.header(&traceparent()).create(MAPS, &config_map("sampled"));
    eventually("the client's trace is exported", Duration::from_secs(30), || {
        named(&receiver.of_trace(TRACE), "create configmaps").is_some()
    });
    let received = receiver.received.lock().unwrap();
    let others = received.spans.iter().filter(|(_, span)| hex(&span.trace_id) != TRACE).count();
    assert_eq!(others, 0, "nothing else was asked for");
}

/// A server whose receiver is away serves as ever, and says what it dropped.
#[test]
fn a_receiver_that_is_away_costs_nothing_but_its_spans() {
    let server = Server::with(&["--api-only", "--otlp-endpoint", "http://127.0.0.1:1"]);
    let admin = Caller::admin(&server);
    for n in 0..20 {
        admin.create(MAPS, &config_map(&format!("map-{n}")));
    }
    eventually("the dropped spans are counted", Duration::from_secs(90), || {
        let page = admin.get("/metrics").1;
        let dropped =
            page.as_str().unwrap_or_default().lines().find_map(|line| {
                line.strip_prefix("coracle_trace_export_dropped_total ")?.parse::<u64>().ok()
            });
        dropped.is_some_and(|dropped| dropped > 0)
    });
    assert!(server.log().contains("spans not exported"), "{}", server.log());
}

/// Rounds of creates, and creates of a round: of two servers one after the other, so that both have the same machine.
const ROUNDS: usize = 20;
const CREATES: usize = 10;
/// What a slow disk may add to one of them.
const NOISE: Duration = Duration::from_millis(200);
/// How much longer a server may take to end that has spans which nobody takes.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How long the creates of each of these servers took.
async fn create_many(servers: [&Server; 2]) -> anyhow::Result<[Duration; 2]> {
    let mut connections = Vec::new();
    for server in servers {
        connections.push(Target::new(server.data_dir(), &server.url())?.connect().await?);
    }
    let mut taken = [Duration::ZERO; 2];
    for round in 0..ROUNDS {
        for (connection, taken) in connections.iter_mut().zip(&mut taken) {
            let begun = Instant::now();
            for number in 0..CREATES {
                let body = config_map(&format!("map-{round}-{number}")).to_string();
                connection.call("POST", MAPS, body.into()).await?;
            }
            *taken += begun.elapsed();
        }
    }
    Ok(taken)
}

#[test]
fn a_receiver_that_never_answers_delays_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (accepted, connections) = std::sync::mpsc::channel();
    // They stay open.
    std::thread::spawn(move || listener.incoming().flatten().try_for_each(|stream| accepted.send(stream)));
    let mut silent = Server::with(&["--api-only", "--otlp-endpoint", &endpoint]);
    let mut without = Server::with(&["--api-only"]);
    Caller::admin(&silent).create(MAPS, &config_map("first"));
    let _connection = connections.recv_timeout(Duration::from_secs(30)).expect("spans are exported");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let [waits, plain] = runtime.block_on(create_many([&silent, &without])).unwrap();
    assert!(waits <= plain * 3 / 2 + NOISE, "{waits:?}, without export {plain:?}");
    let [waits, plain] = [&mut silent, &mut without].map(|server| {
        let begun = Instant::now();
        server.stop();
        begun.elapsed()
    });
    assert!(waits <= plain + LAST_WORDS, "it ends within {waits:?}, without export {plain:?}");
}
