//! Nodes whose answers never end: the server keeps little of them and does not wait for the rest.

use super::{Agent, Answer, bound_pod, node_at, server};
use coracle_tests::caller::Caller;
use std::io::Write;
use std::time::Duration;

/// How long the connection stays open without another byte: longer than any client here waits.
const SILENCE: Duration = Duration::from_secs(120);
const REFUSED: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\nno";

/// More than anybody needs to know, then silence.
fn flood(stream: &mut dyn Write) {
    let chunk = vec![b'o'; 1 << 20];
    let _ = stream.write_all(REFUSED);
    for _ in 0..32 {
        if stream.write_all(&chunk).is_err() {
            return;
        }
    }
    stall(stream);
}

/// Silence on a connection that stays open.
fn stall(stream: &mut dyn Write) {
    let _ = stream.flush();
    std::thread::sleep(SILENCE);
}

/// One word, then silence.
fn refuse_and_stall(stream: &mut dyn Write) {
    let _ = stream.write_all(REFUSED);
    stall(stream);
}

#[test]
fn a_node_cannot_exhaust_the_server_with_a_refusal() {
    let server = server();
    let admin = Caller::admin(&server);
    let answers: [(&str, Answer); 2] = [("flood", flood), ("stall", refuse_and_stall)];
    for (node, answer) in answers {
        let agent = Agent::answering(&server, node, answer);
        node_at(&admin, node, "127.0.0.1", agent.port);
        bound_pod(&admin, node, node);
        let (code, answer) = admin.get(&format!("/api/v1/namespaces/default/pods/{node}/log"));
        let said = answer["message"].as_str().unwrap_or_default();
        assert!(code == 500 && said.starts_with("no"), "{node}: {code} {} bytes", said.len());
        assert!(said.len() <= 64 * 1024, "{node}: {} bytes", said.len());
    }
}
