//! Nodes that want to be more than a node.

// What a node says about itself, against other nodes and API servers.
mod claims;
// Answers that never end.
mod floods;

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_pki::authority::{Authority, Profile, Signed};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// Writes an answer to a request.
type Answer = fn(&mut dyn Write);

/// Something on loopback that takes itself for a node's agent: it answers every request, usually with 200, and remembers it.
pub struct Agent {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    /// With a certificate that the cluster issued to a node.
    pub fn of_node(server: &Server, node: &str) -> Self {
        Self::answering(server, node, reached)
    }

    /// With a certificate that the cluster issued to a node, and answers of its own.
    fn answering(server: &Server, node: &str, answer: Answer) -> Self {
        let authority = Authority::ensure(&server.data_dir().join("pki"), "ca", "test").unwrap();
        let names = ["127.0.0.1".to_owned(), node.to_owned()];
        let profile = Profile::server(&format!("system:node:{node}"), &names);
        Self::start_with(&authority.sign(&profile).unwrap(), answer)
    }

    /// With a certificate that signs itself.
    fn of_nobody() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Authority::ensure(dir.path(), "ca", "system:node:n1").unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        Self::start(&Signed { certificate: read("ca.crt"), key: read("ca.key") })
    }

    fn start(signed: &Signed) -> Self {
        Self::start_with(signed, reached)
    }

    fn start_with(signed: &Signed, answer: Answer) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = CertificateDer::pem_slice_iter(signed.certificate.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.unwrap(), key)
            .unwrap();
        let (config, seen) = (Arc::new(config), Arc::<Mutex<Vec<String>>>::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let noted = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, noted) = (config.clone(), noted.clone());
                std::thread::spawn(move || serve(stream, config, &noted, answer));
            }
        });
        Self { port, seen }
    }

    /// The first lines of all requests so far.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn reached(stream: &mut dyn Write) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nreached");
}

fn serve(stream: TcpStream, config: Arc<rustls::ServerConfig>, noted: &Mutex<Vec<String>>, answer: Answer) {
    let connection = rustls::ServerConnection::new(config).unwrap();
    let mut stream = BufReader::new(rustls::StreamOwned::new(connection, stream));
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) if line.trim().is_empty() => break,
            Ok(_) => lines.push(line.trim().to_owned()),
        }
    }
    let Some(first) = lines.first() else { return };
    noted.lock().unwrap().push(first.clone());
    answer(stream.get_mut());
    let _ = stream.get_mut().flush();
}

/// A Node that says it is at an address.
pub fn node_at(caller: &Caller, node: &str, address: &str, port: u16) {
    let (_, _) = caller.send("POST", "/api/v1/nodes", Some(&json!({"metadata": {"name": node}})));
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    let (code, answer) = caller.send("PATCH", &format!("/api/v1/nodes/{node}/status"), Some(&status));
    assert_eq!(code, 200, "{answer}");
}

/// A pod that was given to a node.
pub fn bound_pod(admin: &Caller, name: &str, node: &str) {
    let pod = json!({"metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "example.test/x"}]}});
    admin.create("/api/v1/namespaces/default/pods", &pod);
}

/// The port of the API itself.
fn own_port(server: &Server) -> u16 {
    server.url().rsplit(':').next().unwrap().parse().unwrap()
}

fn server() -> Server {
    Server::with(&["--disable-admission-plugins", "ServiceAccount"])
}

#[test]
fn whoever_answers_for_a_node_needs_the_certificate_of_that_node() {
    let server = server();
    let admin = Caller::admin(&server);
    let own = Agent::of_node(&server, "n1");
    node_at(&admin, "n1", "127.0.0.1", own.port);
    let (code, answer) = admin.get("/api/v1/nodes/n1/proxy/pods");
    assert_eq!((code, answer.as_str()), (200, Some("reached")));
    for (impostor, what) in
        [(Agent::of_nobody(), "signs itself"), (Agent::of_node(&server, "n2"), "is another node's")]
    {
        node_at(&admin, "n1", "127.0.0.1", impostor.port);
        let (code, answer) = admin.with(&["--max-time", "30"]).get("/api/v1/nodes/n1/proxy/pods");
        assert!(code >= 500, "a certificate that {what}: {code} {answer}");
        assert_eq!(impostor.seen(), Vec::<String>::new(), "requests to one whose certificate {what}");
    }
    // The certificate of the API server is no node's either, although the same authority signed it.
    let file = |name: &str| std::fs::read_to_string(server.data_dir().join("pki").join(name)).unwrap();
    let serving = Agent::start(&Signed { certificate: file("apiserver.crt"), key: file("apiserver.key") });
    node_at(&admin, "n1", "127.0.0.1", serving.port);
    assert!(admin.get("/api/v1/nodes/n1/proxy/pods").0 >= 500);
    assert_eq!(serving.seen(), Vec::<String>::new());
}

#[test]
fn a_node_cannot_turn_the_servers_certificate_against_the_server() {
    let server = server();
    let (admin, node) =
        (Caller::admin(&server), Caller::certified(&server, "system:node:evil", &["system:nodes"]));
    admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "hidden"}}));
    // Somebody who may look at this node, and at nothing else.
    let rules = json!({"metadata": {"name": "watcher"}, "rules": [
        {"verbs": ["*"], "apiGroups": [""], "resources": ["nodes/proxy"], "resourceNames": ["evil"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    admin.create(&format!("{rbac}/clusterroles"), &rules);
    let binding = json!({"metadata": {"name": "watcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "watcher"}]});
    admin.create(&format!("{rbac}/clusterrolebindings"), &binding);
    let watcher = Caller::certified(&server, "watcher", &[]);
    for address in [
        "127.0.0.1",
        "localhost",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "10.96.0.1",
        "224.0.0.1",
    ] {
        node_at(&node, "evil", address, own_port(&server));
        let secrets = "/api/v1/nodes/evil/proxy/api/v1/namespaces/default/secrets/hidden";
        let (code, answer) = watcher.with(&["--max-time", "15"]).get(secrets);
        assert!(
            code == 400 && answer["message"].to_string().contains("address not allowed"),
            "{address}: {code} {answer}"
        );
    }
    // What the server shows to nodes is nobody to the server.
    let file = |name: &str| std::fs::read_to_string(server.data_dir().join("pki").join(name)).unwrap();
    let pem = format!("{}{}", file("apiserver-kubelet-client.crt"), file("apiserver-kubelet-client.key"));
    let shown = Caller::with_pem(&server, "shown", &pem);
    for (method, path) in [
        ("GET", "/api/v1/namespaces/default/secrets/hidden"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/nodes/evil/proxy/pods"),
        ("GET", "/metrics"),
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    ] {
        let (code, answer) = shown.send(method, path, Some(&json!({})).filter(|_| method == "POST"));
        assert_eq!(code, 403, "{method} {path}: {answer}");
    }
}

#[test]
fn the_certificate_for_nodes_of_an_older_server_is_replaced() {
    let mut server = server();
    let pki = server.data_dir().join("pki");
    let authority = Authority::ensure(&pki, "ca", "test").unwrap();
    let old = authority.sign(&Profile::client("kube-apiserver-kubelet-client", &["system:masters"])).unwrap();
    server.kill();
    std::fs::write(pki.join("apiserver-kubelet-client.crt"), &old.certificate).unwrap();
    std::fs::write(pki.join("apiserver-kubelet-client.key"), &old.key).unwrap();
    server.restart();
    let now = std::fs::read_to_string(pki.join("apiserver-kubelet-client.crt")).unwrap();
    assert_ne!(now, old.certificate);
    let text = openssl(&pki, &["x509", "-in", "apiserver-kubelet-client.crt", "-noout", "-subject"]);
    assert!(!text.contains("system:masters") && text.contains("kube-apiserver-kubelet-client"), "{text}");
}

fn openssl(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("openssl").current_dir(dir).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asks for a serving certificate; the name of the request.
fn ask(node: &Caller, dir: &Path, name: &str, names: &str) -> String {
    openssl(dir, &["genpkey", "-out", "key", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    let names = format!("subjectAltName={names}");
    let subject = format!("/O=system:nodes/CN=system:node:{name}");
    let pem = openssl(dir, &["req", "-new", "-sha256", "-key", "key", "-subj", &subject, "-addext", &names]);
    let body = json!({"metadata": {"generateName": "csr-"}, "spec": {"request": STANDARD.encode(pem),
        "signerName": SERVING, "usages": ["digital signature", "server auth"]}});
    let made = node.create(REQUESTS, &body);
    made["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_node_cannot_have_names_of_others_certified() {
    let server = server();
    let admin = Caller::admin(&server);
    let node = Caller::certified(&server, "system:node:n1", &["system:nodes"]);
    let dir = tempfile::tempdir().unwrap();
    node_at(&admin, "n2", "192.0.2.2", 10250);
    let claimed = [
        "Kubernetes.Default.SVC",
        "KUBERNETES",
        "kubernetes.default.svc.",
        "*.default.svc",
        "*",
        "hook.default.svc.Cluster.Local",
        "hook.default.svc.example.org",
        "10.96.0.1",
        "xn--bcher-kva.SVC",
        "::ffff:10.96.0.1",
        "192.0.2.2",
        "n2",
        "N2",
    ];
    let addresses: Vec<Value> = std::iter::once("192.0.2.1")
        .chain(claimed)
        .map(|address| json!({"type": if address == "192.0.2.1" { "InternalIP" } else { "InternalDNS" }, "address": address}))
        .collect();
    node.create("/api/v1/nodes", &json!({"metadata": {"name": "n1"}}));
    let (code, answer) =
        node.send("PATCH", "/api/v1/nodes/n1/status", Some(&json!({"status": {"addresses": addresses}})));
    assert_eq!(code, 200, "{answer}");
    let dns = claimed.iter().filter(|name| !name.contains(':')).map(|name| format!("DNS:n1,DNS:{name}"));
    let others =
        ["IP:10.96.0.1", "IP:::ffff:10.96.0.1", "IP:192.0.2.2", "DNS:n1,URI:https://n1", "DNS:n1,email:a@n1"];
    let asked: Vec<(String, String)> = dns
        .chain(others.map(str::to_owned))
        .map(|names| (ask(&node, dir.path(), "n1", &names), names))
        .collect();
    let good = ask(&node, dir.path(), "n1", "DNS:n1,IP:192.0.2.1");
    let get = |name: &str| admin.get(&format!("{REQUESTS}/{name}")).1;
    eventually("its own names are certified", Duration::from_secs(30), || {
        get(&good)["status"]["certificate"].is_string()
    });
    for (request, names) in &asked {
        let request = get(request);
        assert!(request["status"]["certificate"].is_null(), "{names}: {request}");
        let conditions = request["status"]["conditions"].to_string();
        assert!(!conditions.contains("Approved"), "{names}: {conditions}");
    }
}

/// What a node's own API answers to a request with these arguments of curl.
fn ask_node(path: &str, args: &[&str]) -> u16 {
    let output = Command::new("curl")
        .args(["-sk", "--http1.1", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"])
        .args(args)
        .arg(format!("https://192.0.2.10:10250{path}"))
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
}

/// A client certificate with its key, in one file.
fn certified(server: &Server, user: &str, groups: &[&str]) -> String {
    let authority = Authority::ensure(&server.data_dir().join("pki"), "ca", "test").unwrap();
    let signed = authority.sign(&Profile::client(user, groups)).unwrap();
    let path = server.data_dir().join(format!("{user}.pem"));
    std::fs::write(&path, format!("{}{}", signed.certificate, signed.key)).unwrap();
    path.display().to_string()
}

/// How many reviews of tokens the server was asked for.
fn token_reviews(admin: &Caller) -> u64 {
    let (_, text) = admin.get("/metrics");
    let text = text.as_str().unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_request_total") && line.contains("resource=\"tokenreviews\"")
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).map(|count| count as u64).sum()
}

#[test]
#[ignore = "run by in_namespaces"]
fn strangers_and_readers_get_nothing_more_from_a_node() {
    let cluster = coracle_tests::pods::Cluster::start();
    let admin = Caller::admin(&cluster.server);
    cluster.pod("p", "containers: [{name: c, image: 'example.test/busybox:1', command: [sleep, '1000']}]");
    cluster.wait_ready("p");
    let uid = cluster.get("p")["metadata"]["uid"].as_str().unwrap().to_owned();
    // The server knows its node by the certificate that the cluster issued to it.
    assert_eq!(cluster.kubectl.run("exec p -- echo through").trim(), "through");

    // Who may read a node may not run anything on it, also where a WebSocket begins with a GET.
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!({"metadata": {"name": "scraper"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes/proxy"]}]});
    admin.create(&format!("{rbac}/clusterroles"), &rules);
    let binding = json!({"metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "scraper"}]});
    admin.create(&format!("{rbac}/clusterrolebindings"), &binding);
    let scraper = certified(&cluster.server, "scraper", &[]);
    let socket: &[&str] = &[
        "-H",
        "Connection: Upgrade",
        "-H",
        "Upgrade: websocket",
        "-H",
        "Sec-WebSocket-Version: 13",
        "-H",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "-H",
        "Sec-WebSocket-Protocol: v4.channel.k8s.io",
    ];
    let with = |certificate: &str, path: &str| ask_node(path, &[&["--cert", certificate], socket].concat());
    eventually("the role is in force", Duration::from_secs(20), || {
        ask_node("/pods", &["--cert", &scraper]) == 200
    });
    for path in [
        "/exec/default/p/c?command=id&output=1",
        "/attach/default/p/c?output=1",
        "/portForward/default/p",
        "/dial/192.0.2.10:10250",
    ] {
        assert_eq!(with(&scraper, path), 403, "{path}");
    }

    // Another pod of the same name is not entered: the one that is meant is told by its uid.
    let root = certified(&cluster.server, "root", &["system:masters"]);
    assert_eq!(with(&root, &format!("/exec/default/p/{uid}/c?command=true&output=1")), 101);
    let other = "00000000-0000-4000-8000-000000000000";
    for path in [
        format!("/exec/default/p/{other}/c?command=id&output=1"),
        format!("/exec/default/p/c?uid={other}&command=id&output=1"),
        format!("/attach/default/p/{other}/c?output=1"),
        format!("/portForward/default/p/{other}"),
    ] {
        assert_eq!(with(&root, &path), 404, "{path}");
    }
    assert_eq!(ask_node(&format!("/containerLogs/default/p/c?uid={other}"), &["--cert", &root]), 404);
    assert_eq!(ask_node(&format!("/containerLogs/default/p/c?uid={uid}"), &["--cert", &root]), 200);

    // Strangers do not make the node ask the server about all that they make up.
    let before = token_reviews(&admin);
    let mut answers = Vec::new();
    for n in 0..150 {
        answers.push(ask_node("/pods", &["-H", &format!("Authorization: Bearer made.up.{}", n % 120)]));
    }
    assert!(answers.iter().all(|code| matches!(code, 401 | 429)), "{answers:?}");
    assert!(answers.contains(&429), "{answers:?}");
    let asked = token_reviews(&admin) - before;
    assert!((1..100).contains(&asked), "{asked} reviews");
    assert_eq!(ask_node("/pods", &["--cert", &scraper]), 200, "others are answered");
}
