//! Two servers on one etcd, and a node that can only be reached through tunnels, which it keeps to one of them: the other
//! reaches it through that one.

use crate::kube_rs::client;
use bytes::Bytes;
use coracle_pki::authority::{Authority, Profile};
use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A node's agent: it keeps two tunnels to a server, and says what it is asked.
struct Agent {
    tunnels: Vec<JoinHandle<()>>,
    asked: Arc<AtomicUsize>,
}

impl Agent {
    fn of(server: &Server) -> Self {
        let (client, tls) = (RUNTIME.block_on(client(server)), acceptor(server));
        let asked = Arc::new(AtomicUsize::new(0));
        let keep = |_| RUNTIME.spawn(keep(client.clone(), tls.clone(), asked.clone()));
        Self { tunnels: (0..2).map(keep).collect(), asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tunnels.iter().for_each(JoinHandle::abort);
    }
}

/// Serves with the node's certificate, and only to clients that the cluster has certified.
pub(crate) fn acceptor(server: &Server) -> TlsAcceptor {
    let authority = Authority::ensure(&server.data_dir().join("pki"), "ca", "test").unwrap();
    let signed = authority.sign(&Profile::server("system:node:n1", &["n1".to_owned()])).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn upgrade(path: &str, protocol: &str) -> Request<kube::client::Body> {
    let request = Request::get(path).header(CONNECTION, "Upgrade").header(UPGRADE, protocol);
    request.body(kube::client::Body::empty()).unwrap()
}

async fn keep(client: kube::Client, tls: TlsAcceptor, asked: Arc<AtomicUsize>) {
    loop {
        let opened = async {
            let response = client.send(upgrade("/coracle/tunnel/n1", "coracle-tunnel")).await.ok()?;
            let stream = hyper::upgrade::on(response).await.ok()?;
            tls.accept(TokioIo::new(stream)).await.ok()
        };
        let Some(stream) = opened.await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let asked = asked.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, asked.clone()));
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
    }
}

/// Says which path was asked for, or sends back what comes.
async fn answer(
    mut request: Request<Incoming>,
    asked: Arc<AtomicUsize>,
) -> Result<Response<Full<Bytes>>, http::Error> {
    asked.fetch_add(1, Ordering::SeqCst);
    let Some(protocol) = request.headers().get(UPGRADE).cloned() else {
        let path = request.uri().path().to_owned();
        return Response::builder().body(Full::new(json!({"path": path}).to_string().into()));
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(stream) = upgraded.await else { return };
        let (mut from, mut to) = tokio::io::split(TokioIo::new(stream));
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    response.header(CONNECTION, "Upgrade").header(UPGRADE, protocol).body(Full::default())
}

/// A node at an address where nobody listens, and a pod on it.
fn make_node(admin: &Caller) {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": closed}},
    });
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n1"}}));
    let (code, said) = admin.send("PATCH", "/api/v1/nodes/n1/status", Some(&json!({"status": status})));
    assert_eq!(code, 200, "{said}");
    admin.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]});
    admin.create("/api/v1/namespaces/default/pods", &json!({"metadata": {"name": "p"}, "spec": spec}));
}

/// What is written comes back, through both servers.
async fn echoes(client: kube::Client) {
    let response = client.send(upgrade("/api/v1/nodes/n1/proxy/echo", "echo")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let sent: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let mut read = vec![0; sent.len()];
    let (mut from, mut to) = tokio::io::split(&mut stream);
    let (written, back) = tokio::join!(to.write_all(&sent), from.read_exact(&mut read));
    written.unwrap();
    back.unwrap();
    assert!(read == sent, "the bytes come back as they were");
}

#[test]
fn a_node_is_reached_through_the_server_that_it_keeps_tunnels_to() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let mut first = Server::with(&["--api-only", "--datastore", &store]);
    let second = Server::beside(&first, &["--api-only", "--datastore", &store]);
    let admin = Caller::admin(&second);
    make_node(&admin);
    let (code, said) = admin.get("/api/v1/nodes/n1/proxy/hello");
    assert_eq!(code, 500, "it has no tunnels yet: {said}");
    assert!(said.to_string().contains("connection refused"), "{said}");

    let agent = Agent::of(&first);
    let hello = |server: &Server| Caller::admin(server).get("/api/v1/nodes/n1/proxy/hello");
    for server in [&first, &second] {
        let mut last = (0, json!(null));
        eventually("the node is reached", Duration::from_secs(60), || {
            last = hello(server);
            last.0 == 200
        });
        assert_eq!(last.1, json!({"path": "/hello"}));
    }
    let (code, said) = admin.get("/api/v1/namespaces/default/pods/p/log");
    assert_eq!((code, said), (200, json!({"path": "/containerLogs/default/p/c"})));
    RUNTIME.block_on(async { echoes(client(&second).await).await });

    // Each server decides for its own users, and nobody gets around that by a relay.
    let before = agent.asked();
    let nobody = Caller::certified(&second, "nobody", &[]);
    assert_eq!(nobody.get("/api/v1/nodes/n1/proxy/hello").0, 403);
    let asks = |caller: &Caller| {
        let caller = caller.header("Connection: Upgrade").header("Upgrade: coracle-relay");
        caller.with(&["--http1.1"]).get("/coracle/relay/n1").0
    };
    for server in [&first, &second] {
        assert_eq!(asks(&Caller::certified(server, "nobody", &[])), 403);
        assert_eq!(asks(&Caller::certified(server, "system:node:n2", &["system:nodes"])), 403);
    }
    assert_eq!(asks(&Caller::admin(&second)), 404, "one that has no tunnel itself does not ask on");
    assert_eq!(agent.asked(), before);

    // The server with the tunnels dies, and the agent goes to the other one.
    first.kill();
    let (code, said) = hello(&second);
    assert_eq!(code, 500, "{said}");
    drop(agent);
    let _agent = Agent::of(&second);
    eventually("the node is reached again", Duration::from_secs(60), || hello(&second).0 == 200);
    first.restart();
    eventually("and through the other server", Duration::from_secs(60), || hello(&first).0 == 200);
}
