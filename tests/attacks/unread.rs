//! Readers who ask for much and read nothing of it: what they asked for must neither stay in the server's memory nor keep
//! others waiting.

use bytes::Bytes;
use coracle_tests::caller::Caller;
use coracle_tests::client::Target;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const OBJECTS: usize = 120;
/// Bytes of an object: all of them are more than sockets hold.
const SIZE: usize = 100_000;
const CONNECTIONS: usize = 60;
/// Megabytes that the server may need for them; copies of the list would be six times as many.
const MOST: u64 = 120;

/// Megabytes that the server uses now.
fn megabytes(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Connections and other sockets that the server has open.
fn sockets(server: &Server) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// Text that cannot be compressed by much.
fn noise(seed: usize) -> String {
    let mut state = seed as u64 * 2 + 1;
    let letter = |_: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    (0..SIZE).map(letter).collect()
}

/// Makes the objects.
async fn fill(target: &Target) {
    let mut writer = target.connect().await.unwrap();
    for number in 0..OBJECTS {
        let data = json!({"text": noise(number)});
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": data});
        writer.call("POST", MAPS, map.to_string().into()).await.unwrap();
    }
}

/// Asks on a connection of its own and reads no more than whether it is answered.
async fn ask(target: &Target, path: &str, headers: &str) -> TlsStream<TcpStream> {
    let mut stream = target.raw().await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200", "{path}");
    stream
}

/// Somebody else's list is whole and comes soon.
async fn list(target: &Target) {
    let mut other = target.connect().await.unwrap();
    let list = tokio::time::timeout(Duration::from_secs(20), other.call("GET", MAPS, Bytes::new()));
    let list: serde_json::Value = serde_json::from_slice(&list.await.unwrap().unwrap()).unwrap();
    assert!(list["items"].as_array().is_some_and(|items| items.len() >= OBJECTS), "a whole list");
}

#[test]
fn a_reader_who_does_not_read_fills_no_memory() {
    let server = Server::with(&["--api-only"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let target = Target::new(server.data_dir(), &server.url()).unwrap();
    runtime.block_on(async {
        fill(&target).await;
        list(&target).await;
    });
    let before = megabytes(&server);
    let table = "accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let attacks = [
        ("lists", MAPS.to_owned(), ""),
        ("tables", format!("{MAPS}?includeObject=Object"), table),
        ("indented lists", format!("{MAPS}?pretty=true"), ""),
        ("compressed lists", MAPS.to_owned(), "accept-encoding: gzip\r\n"),
        ("watches", format!("{MAPS}?watch=true"), ""),
    ];
    for (what, path, headers) in &attacks {
        runtime.block_on(async {
            let mut unread = Vec::new();
            for _ in 0..CONNECTIONS {
                unread.push(ask(&target, path, headers).await);
            }
            // The server makes as much as it is going to make.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = megabytes(&server);
            println!("{CONNECTIONS} unread {what}: {now} MB, {before} MB before");
            assert!(now < before + MOST, "{CONNECTIONS} unread {what}: {now} MB, {before} MB before");
            list(&target).await;
        });
    }
}

#[test]
fn a_reader_who_does_not_read_is_hung_up_on() {
    let server = Server::with(&["--api-only"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let target = Target::new(server.data_dir(), &server.url()).unwrap();
    runtime.block_on(fill(&target));
    // Somebody who waits for what does not happen.
    let mut quiet = Caller::admin(&server).watch("/api/v1/namespaces?watch=true");
    let before = sockets(&server);
    let unread = runtime.block_on(async {
        let mut unread = Vec::new();
        for path in [MAPS.to_owned(), format!("{MAPS}?watch=true")] {
            for _ in 0..10 {
                unread.push(ask(&target, &path, "").await);
            }
        }
        unread
    });
    assert!(sockets(&server) > before + unread.len() / 2, "they are there");
    eventually("those who do not read are hung up on", Duration::from_secs(90), || {
        sockets(&server) < before + 2
    });
    assert!(!quiet.over(), "a quiet watch goes on");
    runtime.block_on(list(&target));
}
