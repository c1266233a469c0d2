//! What strangers and the curious try: the server refuses, stays up, answers others, and its memory returns.

use crate::caller::Caller;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn address(server: &Server) -> String {
    server.url().trim_start_matches("https://").to_owned()
}

fn resident(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// A TLS connection without a certificate.
fn tls(server: &Server) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    let ca = rustls::pki_types::CertificateDer::from_pem_file(server.data_dir().join("pki/ca.crt")).unwrap();
    roots.add(ca).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let connection = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address(server)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(45))).unwrap();
    rustls::StreamOwned::new(connection, stream)
}

#[test]
fn the_server_stays_up() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "hidden"}}));
    let answers = |during: &str| {
        let begun = Instant::now();
        assert_eq!(admin.get("/api/v1/namespaces/default").0, 200, "{during}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{during}: {:?}", begun.elapsed());
    };
    paths(&server, &admin);
    old_tls(&server);
    smuggling(&server);
    bombs(&admin);
    answers("after bombs");
    let before = resident(&server);
    let slow = slow_clients(&server);
    answers("with slow clients");
    let idle = idle_connections(&server);
    answers("with idle connections");
    watch_flood(&server, &admin);
    answers("after a flood of watches");
    // Those who said half a sentence are hung up on.
    for mut stream in slow {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let hung_up = ended.is_ok() || ended.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock);
        assert!(hung_up, "a slow client is still there");
    }
    drop(idle);
    coracle_tests::eventually("memory returns", Duration::from_secs(60), || resident(&server) < before + 64);
    answers("in the end");
}

/// Names and subresources that climb, and names that are none.
fn paths(server: &Server, admin: &Caller) {
    let viewer = Caller::certified(server, "viewer", &[]);
    for path in [
        "/api/v1/namespaces/default/configmaps/../secrets/hidden",
        "/api/v1/namespaces/default/configmaps/..%2fsecrets%2fhidden",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets/hidden",
        "/healthz/../api/v1/namespaces/default/secrets/hidden",
        "/api/v1/namespaces/default/pods/x/proxy/../../../secrets/hidden",
        "//api/v1/namespaces/default/secrets/hidden",
        "/version/../api/v1/secrets",
        "/readyz/%2e%2e/api/v1/secrets",
    ] {
        let (code, body) = viewer.get(path);
        assert!(matches!(code, 400 | 403 | 404), "{path}: {code} {body}");
        let (code, body) = Caller::nobody(server).get(path);
        assert!(!body.to_string().contains("hidden\",\"namespace"), "{path}: {code} {body}");
    }
    for name in ["..", "a/b", "a%00b", "A", "-a", "a..b/../c", &"x".repeat(300)] {
        let body = json!({"metadata": {"name": name}});
        let (code, _) = admin.send("POST", "/api/v1/namespaces/default/configmaps", Some(&body));
        assert_eq!(code, 422, "{name}");
    }
}

/// A hello in TLS 1.1 gets an alert about its version.
fn old_tls(server: &Server) {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x13, 0, 0x2f, 1, 0]);
    let mut message = vec![1, 0, 0, hello.len() as u8];
    message.extend(&hello);
    let mut record = vec![22, 3, 1, 0, message.len() as u8];
    record.extend(&message);
    let mut stream = TcpStream::connect(address(server)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&record).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer.first(), Some(&21), "an alert: {answer:?}");
}

/// Requests that a proxy and a server would read differently are not read at all.
fn smuggling(server: &Server) {
    for (what, head) in [
        (
            "two lengths",
            "POST /api HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        ),
        (
            "length and chunks",
            "POST /version HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /api HTTP/1.1\r\nhost: a\r\n\r\n",
        ),
        ("a header in a value", "GET /version HTTP/1.1\r\nhost: a\r\nx: y\rz\r\n\r\n"),
        ("a space before the colon", "GET /version HTTP/1.1\r\nhost : a\r\n\r\n"),
    ] {
        let mut stream = tls(server);
        stream.write_all(head.as_bytes()).unwrap();
        stream.flush().unwrap();
        let mut answer = [0; 2048];
        let count = stream.read(&mut answer).unwrap_or(0);
        let text = String::from_utf8_lossy(&answer[..count]).into_owned();
        let codes = text.matches("HTTP/1.1 ").count();
        assert!(codes <= 1, "{what}: {text}");
        assert!(!text.contains("HTTP/1.1 200") || what == "length and chunks", "{what}: {text}");
    }
}

/// Small bodies that would become large, and large ones that are too large.
fn bombs(admin: &Caller) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let raw = |content_type: &str, body: &[u8]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), body).unwrap();
        let caller = admin.header(&format!("Content-Type: {content_type}"));
        caller.with(&["--data-binary", &format!("@{}", file.path().display())]).send("POST", maps, None).0
    };
    let mut aliases = String::from(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n",
    );
    for level in 1..10 {
        let list = vec![format!("*a{}", level - 1); 10].join(",");
        aliases += &format!("a{level}: &a{level} [{list}]\n");
    }
    assert_eq!(raw("application/yaml", aliases.as_bytes()), 400, "aliases of aliases");
    let deep = format!("{}{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    assert_eq!(raw("application/json", deep.as_bytes()), 400, "depth");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let mut nested = b"k8s\0".to_vec();
    for _ in 0..10_000 {
        nested.extend([0x0a, 0xff, 0xff, 0x7f]);
    }
    assert_eq!(raw(protobuf, &nested), 400, "lengths that are not there");
    assert_eq!(raw("application/json", &vec![b' '; 4 << 20]), 413, "too large");
}

/// Two hundred clients who never finish what they say: half a head, or half a body.
fn slow_clients(server: &Server) -> Vec<rustls::StreamOwned<rustls::ClientConnection, TcpStream>> {
    let mut all = Vec::new();
    for number in 0..200 {
        let mut stream = tls(server);
        let said = if number % 2 == 0 {
            "GET /version HTTP/1.1\r\nhost: a\r\nx-slow: ".to_owned()
        } else {
            "POST /api/v1/namespaces HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{".to_owned()
        };
        stream.write_all(said.as_bytes()).unwrap();
        all.push(stream);
    }
    all
}

/// Ten thousand connections that say nothing.
fn idle_connections(server: &Server) -> Vec<TcpStream> {
    let limit = raise_limit();
    let wanted = 10_000.min(limit.saturating_sub(1000));
    let address: std::net::SocketAddr = address(server).parse().unwrap();
    let mut all = Vec::new();
    for _ in 0..wanted {
        if let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            all.push(stream);
        }
    }
    println!("{} idle connections", all.len());
    assert!(all.len() * 10 >= wanted * 9, "{} of {wanted}", all.len());
    all
}

fn raise_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read and write the struct on this stack.
    #[allow(unsafe_code)]
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    usize::try_from(limit.rlim_cur).unwrap_or(1024)
}

/// Many watches that nobody reads.
fn watch_flood(server: &Server, admin: &Caller) {
    let token = crate::caller::account_token(server, "default", "watcher", json!({}));
    let binding = json!({"metadata": {"name": "watcher"}, "subjects": [{"kind": "ServiceAccount", "name": "watcher",
        "namespace": "default"}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    let mut watches = Vec::new();
    for _ in 0..300 {
        let mut stream = tls(server);
        let head = format!(
            "GET /api/v1/configmaps?watch=true HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        watches.push(stream);
    }
    let text = "x".repeat(100_000);
    for number in 0..30 {
        let body = json!({"metadata": {"name": format!("w{number}")}, "data": {"text": text}});
        let (code, answer): (u16, Value) =
            admin.send("POST", "/api/v1/namespaces/default/configmaps", Some(&body));
        assert_eq!(code, 201, "{answer}");
    }
}
