//! What strangers and the curious try: the server refuses, stays up, answers others meanwhile, and its memory returns.

use crate::caller::{Caller, account_token};
use crate::flood::remote;
use crate::kubelet::field;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a request may take that is no watch; short, so that slow clients are seen to be hung up on.
const PATIENCE: u64 = 15;
/// How much more memory than before the first attack is nothing to worry about, in megabytes.
const SLACK: u64 = 64;

type Stream = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

fn address(server: &Server) -> String {
    server.url().trim_start_matches("https://").to_owned()
}

/// Megabytes of a line of the server's status: now (`VmRSS`) or the most so far (`VmHWM`).
fn megabytes(server: &Server, line: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// A TLS connection without a certificate.
fn tls(server: &Server) -> Stream {
    tls_for(server, &[])
}

/// The same for some protocols.
fn tls_for(server: &Server, protocols: &[&str]) -> Stream {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    let ca = rustls::pki_types::CertificateDer::from_pem_file(server.data_dir().join("pki/ca.crt")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address(server)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    rustls::StreamOwned::new(connection, stream)
}

/// Somebody who goes on working: one read after the other, on a thread of its own.
struct Bystander {
    stop: Arc<AtomicBool>,
    worst: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Bystander {
    fn start(server: &Server) -> Self {
        let other = remote(server, "bystander", &["system:masters"]);
        let (stop, worst, reads) = (Arc::default(), Arc::default(), Arc::default());
        let mut bystander = Self { stop, worst, reads, thread: None };
        let (stop, worst, reads) = (bystander.stop.clone(), bystander.worst.clone(), bystander.reads.clone());
        bystander.thread = Some(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let read = other.send(http::Method::GET, "/api/v1/namespaces/default", None).await;
                    let over = stop.load(Ordering::Relaxed);
                    assert!(over || matches!(read, Ok((200, _))), "a bystander is not answered: {read:?}");
                    worst.fetch_max(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
                    reads.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }));
        bystander
    }

    /// Reads since the last call, and the slowest of them in milliseconds.
    fn figures(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::Relaxed), self.worst.swap(0, Ordering::Relaxed))
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Bystander {
    /// Its server may be gone before it.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_server_stays_up() {
    let _alone = crate::alone();
    let server = Server::with(&[
        "--api-only",
        "--request-timeout-seconds",
        &PATIENCE.to_string(),
        "--disable-admission-plugins",
        "ServiceAccount",
    ]);
    let admin = Caller::admin(&server);
    admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "hidden"}}));
    let bystander = Bystander::start(&server);
    let before = megabytes(&server, "VmRSS");
    #[allow(clippy::type_complexity)]
    let attacks: [(&str, fn(&Server, &Caller)); 10] = [
        ("path traversal", paths),
        ("TLS 1.1", old_tls),
        ("smuggled requests", smuggling),
        ("headers of others", headers),
        ("bombs", bombs),
        ("oversized bodies", oversized),
        ("slow clients", slow_clients),
        ("idle connections", idle_connections),
        ("floods of HTTP/2", http2_floods),
        ("a flood of watches", watch_flood),
    ];
    for (what, attack) in attacks {
        let _ = std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5");
        bystander.figures();
        let begun = Instant::now();
        attack(&server, &admin);
        let took = begun.elapsed();
        let (reads, worst) = bystander.figures();
        println!(
            "{what}: {:.1} s, {reads} reads of a bystander, the slowest {worst} ms; memory up to {} MB, now {} MB",
            took.as_secs_f64(),
            megabytes(&server, "VmHWM"),
            megabytes(&server, "VmRSS")
        );
        // The bystander fails when a read is not answered within its client's timeout.
        assert_eq!(admin.get("/api/v1/namespaces/default").0, 200, "after {what}");
    }
    bystander.end();
    coracle_tests::eventually("memory returns", Duration::from_secs(150), || {
        megabytes(&server, "VmRSS") < before + SLACK
    });
    println!("memory before {before} MB, after {} MB", megabytes(&server, "VmRSS"));
}

/// Names and subresources that climb, and names that are none.
fn paths(server: &Server, admin: &Caller) {
    let viewer = Caller::certified(server, "viewer", &[]);
    for path in [
        "/api/v1/namespaces/default/configmaps/../secrets/hidden",
        "/api/v1/namespaces/default/configmaps/..%2fsecrets%2fhidden",
        "/api/v1/namespaces/default/configmaps/%2e%2e/secrets/hidden",
        "/healthz/../api/v1/namespaces/default/secrets/hidden",
        "/healthz/%2e%2e/api/v1/namespaces/default/secrets/hidden",
        "/healthz%2f..%2fapi/v1/namespaces/default/secrets/hidden",
        "/api/v1/namespaces/default/pods/x/proxy/../../../secrets/hidden",
        "/api/v1/namespaces/default/pods/x/log/../../../secrets/hidden",
        "/api/v1/nodes/x/proxy/../../namespaces/default/secrets/hidden",
        "/api/v1/namespaces/..%2f..%2fsecrets/configmaps",
        "/api/v1/namespaces/default%00/secrets/hidden",
        "//api/v1/namespaces/default/secrets/hidden",
        "/version/../api/v1/secrets",
        "/readyz/%2e%2e/api/v1/secrets",
        "/.well-known/../api/v1/secrets",
    ] {
        let (code, body) = viewer.get(path);
        assert!(matches!(code, 400 | 403 | 404), "{path}: {code} {body}");
        let (code, body) = Caller::nobody(server).get(path);
        assert!(matches!(code, 400 | 401 | 404), "{path}: {code} {body}");
    }
    for name in
        ["..", ".", "a/b", "a%00b", "a\0b", "A", "-a", "a..b/../c", "a%2fb", "ü", "a b", &"x".repeat(300)]
    {
        let body = json!({"metadata": {"name": name}});
        let (code, _) = admin.send("POST", "/api/v1/namespaces/default/configmaps", Some(&body));
        assert_eq!(code, 422, "{name}");
    }
    // Kinds whose names are any segment of a path do not get out of it either.
    let role = |name: &str| json!({"metadata": {"name": name}, "rules": []});
    for name in ["..", ".", "a/b", "a%b"] {
        let (code, _) =
            admin.send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", Some(&role(name)));
        assert_eq!(code, 422, "{name}");
    }
}

/// Hellos in TLS 1.1 and 1.0 get an alert about their version.
fn old_tls(server: &Server, _: &Caller) {
    for minor in [2, 1] {
        let mut hello = vec![3, minor];
        hello.extend([7; 32]);
        hello.extend([0, 0, 4, 0xc0, 0x13, 0, 0x2f, 1, 0]);
        let mut message = vec![1, 0, 0, hello.len() as u8];
        message.extend(&hello);
        let mut record = vec![22, 3, 1, 0, message.len() as u8];
        record.extend(&message);
        let mut stream = TcpStream::connect(address(server)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(&record).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer.first(), Some(&21), "an alert: {answer:?}");
    }
}

/// Requests that a proxy and a server would read differently are not read at all.
fn smuggling(server: &Server, _: &Caller) {
    let hidden = "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    for (what, head) in [
        (
            "two lengths",
            "POST /api HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef"
                .to_owned(),
        ),
        (
            "length and chunks",
            format!(
                "POST /api HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "chunks in disguise",
            format!("POST /api HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "a length with a sign",
            format!("POST /api HTTP/1.1\r\nhost: a\r\ncontent-length: +0\r\n\r\n{hidden}"),
        ),
        ("a header in a value", "GET /version HTTP/1.1\r\nhost: a\r\nx: y\rz\r\n\r\n".to_owned()),
        ("a space before the colon", "GET /version HTTP/1.1\r\nhost : a\r\n\r\n".to_owned()),
        ("a folded header", "GET /version HTTP/1.1\r\nhost: a\r\n x: y\r\n\r\n".to_owned()),
        ("a nought in a header", "GET /version HTTP/1.1\r\nhost: a\r\nx: y\0z\r\n\r\n".to_owned()),
    ] {
        let mut stream = tls(server);
        stream.sock.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.flush().unwrap();
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..count]);
            if answer.windows(4).any(|w| w == b"\r\n\r\n") {
                // A second answer would follow at once.
                stream.sock.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            }
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(text.matches("HTTP/1.1 ").count() <= 1, "{what}: {text}");
        assert!(!text.contains("HTTP/1.1 200"), "{what}: {text}");
    }
}

/// Headers that say who somebody is, from those who may not say it.
fn headers(server: &Server, _: &Caller) {
    let somebody = Caller::certified(server, "somebody", &[]);
    for header in [
        "Impersonate-User: kubernetes-admin",
        "Impersonate-User: system:node:a",
        "impersonate-user: system:serviceaccount:kube-system:generic-garbage-collector",
    ] {
        assert_eq!(somebody.header(header).get("/api/v1/secrets").0, 403, "{header}");
        let masters = somebody.header(header).header("Impersonate-Group: system:masters");
        assert_eq!(masters.get("/api/v1/secrets").0, 403, "{header} as a master");
        assert_eq!(Caller::nobody(server).header(header).get("/api/v1/secrets").0, 401, "{header}, nobody");
    }
    for header in ["Impersonate-Group: system:masters", "Impersonate-Extra-Scopes: all", "Impersonate-Uid: 0"]
    {
        assert_eq!(somebody.header(header).get("/api/v1/secrets").0, 400, "{header}: of nobody");
    }
    let proxied = |caller: &Caller| {
        let caller =
            caller.header("X-Remote-User: kubernetes-admin").header("X-Remote-Group: system:masters");
        caller.header("X-Forwarded-User: kubernetes-admin").get("/api/v1/secrets").0
    };
    assert_eq!((proxied(&somebody), proxied(&Caller::nobody(server))), (403, 401));
    // Many of them, and long ones, are refused before anybody looks.
    let long = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(long.path(), format!("X-Long: {}\n", "x".repeat(900_000))).unwrap();
    let code = Caller::nobody(server).header(&format!("@{}", long.path().display())).get("/version").0;
    assert!(matches!(code, 0 | 400 | 431), "a long header: {code}");
}

/// Sends a body as it is; the code.
fn post(caller: &Caller, path: &str, content_type: &str, body: &[u8]) -> u16 {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), body).unwrap();
    let caller = caller.header(&format!("Content-Type: {content_type}"));
    caller.with(&["--data-binary", &format!("@{}", file.path().display())]).send("POST", path, None).0
}

fn in_protobuf(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let kind = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, object)].concat()
}

/// Small bodies that would become large.
fn bombs(_: &Server, admin: &Caller) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let (json, yaml, protobuf) =
        ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf");
    let mut aliases = String::from(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n",
    );
    for level in 1..10 {
        let list = vec![format!("*a{}", level - 1); 10].join(",");
        aliases += &format!("a{level}: &a{level} [{list}]\n");
    }
    assert_eq!(post(admin, maps, yaml, aliases.as_bytes()), 400, "aliases of aliases");
    assert_eq!(
        post(admin, maps, yaml, format!("a: {}", "[".repeat(500_000)).as_bytes()),
        400,
        "depth of YAML"
    );
    assert_eq!(post(admin, maps, yaml, b"a: &a {b: *a}"), 400, "an alias of itself");
    let deep = format!("{}{}", "{\"a\":".repeat(500_000), "}".repeat(500_000));
    assert_eq!(post(admin, maps, json, deep.as_bytes()), 400, "depth of JSON");
    let digits = format!("{{\"metadata\":{{\"name\":\"n\",\"generation\":1e{}}}}}", "9".repeat(1_000_000));
    assert_eq!(post(admin, maps, json, digits.as_bytes()), 400, "a long number");
    let mut lengths = b"k8s\0".to_vec();
    for _ in 0..10_000 {
        lengths.extend([0x0a, 0xff, 0xff, 0x7f]);
    }
    assert_eq!(post(admin, maps, protobuf, &lengths), 400, "lengths that are not there");
    let huge = [b"k8s\0".to_vec(), vec![0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]].concat();
    assert_eq!(post(admin, maps, protobuf, &huge), 400, "a length beyond all memory");
    // Schemas contain schemas: CustomResourceDefinition → spec → versions → schema → openAPIV3Schema → not → not …
    let mut schema = Vec::new();
    for _ in 0..5_000 {
        schema = field(28, &schema);
        // `not` has a number above 15: two bytes of a tag.
        schema.splice(0..1, [0xe2, 0x01]);
    }
    let spec = field(7, &field(4, &field(1, &schema)));
    let definition = in_protobuf("apiextensions.k8s.io/v1", "CustomResourceDefinition", &field(2, &spec));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(post(admin, path, protobuf, &definition), 400, "depth of protobuf");
    // Two bytes that become a whole container, two thousand times; twenty thousand of them in JSON.
    let containers = [0x12, 0x00].repeat(2_000);
    let pod = in_protobuf("v1", "Pod", &[field(1, &field(1, b"many")), field(2, &containers)].concat());
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(post(admin, pods, protobuf, &pod), 422, "many containers in protobuf");
    let pod = format!(
        "{{\"metadata\":{{\"name\":\"many\"}},\"spec\":{{\"containers\":[{}{{}}]}}}}",
        "{},".repeat(20_000)
    );
    assert_eq!(post(admin, pods, json, pod.as_bytes()), 422, "many containers in JSON");
}

/// Bodies beyond the limit, with and without a length in their head.
fn oversized(server: &Server, admin: &Caller) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let large = vec![b' '; 4 << 20];
    assert_eq!(post(admin, maps, "application/json", &large), 413, "too large");
    let chunked = admin.header("Transfer-Encoding: chunked");
    assert_eq!(post(&chunked, maps, "application/json", &large), 413, "too large, in chunks");
    // Nobody sends 200 MB to somebody who does not know them.
    let code = post(&Caller::nobody(server), maps, "application/json", &vec![b' '; 200 << 20]);
    assert!(matches!(code, 0 | 401), "{code}");
}

/// Two hundred clients who never finish what they say: half a head, half a body of a stranger, half a body of a user who may,
/// nothing at all after the handshake, and nothing but greetings in HTTP/2. A quiet watch of the same time is left alone.
fn slow_clients(server: &Server, admin: &Caller) {
    let token = account_token(server, "default", "slow", json!({}));
    let body = json!({"metadata": {"name": "slow"}, "subjects": [{"kind": "ServiceAccount", "name": "slow",
        "namespace": "default"}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}});
    admin.create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &body);
    let maps = "/api/v1/namespaces/default/configmaps";
    let authorization = format!("host: a\r\nauthorization: Bearer {token}\r\n");
    let mut watch = tls(server);
    let head =
        format!("GET {maps}?watch=true&fieldSelector=metadata.name%3Dseen HTTP/1.1\r\n{authorization}\r\n");
    watch.write_all(head.as_bytes()).unwrap();
    let mut all = Vec::new();
    for number in 0..200 {
        let mut stream = tls_for(server, if number % 5 == 4 { &["h2"] } else { &[] });
        let said = match number % 5 {
            0 => "GET /version HTTP/1.1\r\nhost: a\r\nx-slow: ".to_owned(),
            1 => "POST /api/v1/namespaces HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{".to_owned(),
            2 => format!(
                "POST {maps} HTTP/1.1\r\n{authorization}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
            ),
            3 => String::new(),
            // The preface and empty settings.
            _ => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_owned(),
        };
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        all.push(stream);
    }
    // All of them are answered or hung up on.
    for (number, mut stream) in all.into_iter().enumerate() {
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        let waits = ended.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!waits, "slow client {number} is still there");
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(!text.contains(" 200 ") && !text.contains(" 201 "), "{text}");
    }
    admin.create(maps, &json!({"metadata": {"name": "seen"}}));
    let mut text = String::new();
    while !text.contains("\"name\":\"seen\"") {
        let mut bytes = [0; 4096];
        let read = watch.read(&mut bytes).unwrap();
        assert!(read > 0, "the watch was cut: {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}

/// Ten thousand connections that say nothing.
fn idle_connections(server: &Server, admin: &Caller) {
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
    for _ in 0..20 {
        assert_eq!(admin.get("/api/v1/namespaces/default").0, 200, "with idle connections");
    }
}

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    [&length.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Streams that are reset as soon as they are opened, heads that never end, and pings that nobody reads the answers to. The
/// server may hang up on all of them; what it must not is to grow or to keep others waiting.
fn http2_floods(server: &Server, _: &Caller) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // GET https://a/version, by the tables of HPACK.
    let head = [&[0x82, 0x87, 0x41, 1, b'a', 0x44, 8][..], b"/version"].concat();
    let resets = (0..20_000u32).flat_map(|number| {
        let stream = 2 * number + 1;
        [frame(1, 5, stream, &head), frame(3, 0, stream, &8u32.to_be_bytes())].concat()
    });
    let endless = frame(1, 1, 1, &head);
    let more = frame(9, 0, 1, &vec![0; 16_000]).repeat(2_000);
    let pings = frame(6, 0, 0, &[7; 8]).repeat(100_000);
    for (what, flood, hung_up) in [
        ("reset streams", resets.collect::<Vec<u8>>(), false),
        ("an endless head", [endless, more].concat(), true),
        ("pings", pings, false),
    ] {
        let mut stream = tls_for(server, &["h2"]);
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream.sock.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        let hello = [PREFACE, &frame(4, 0, 0, &[])].concat();
        let written = stream.write_all(&hello).and_then(|()| stream.write_all(&flood));
        println!(
            "{what}: {} kB, {}",
            flood.len() / 1000,
            written.as_ref().map_or("hung up on", |()| "all taken")
        );
        assert!(!hung_up || written.is_err(), "{what}: taken to the end");
    }
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
    let token = account_token(server, "default", "watcher", json!({}));
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
    drop(watches);
    for number in 0..30 {
        admin.send("DELETE", &format!("/api/v1/namespaces/default/configmaps/w{number}"), None);
    }
}
