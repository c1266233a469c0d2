//! Real sockets and certificates: servers at addresses of their own on the loopback interface.
#![allow(clippy::unwrap_used)]

use super::monitor;
use super::table::Health;
use super::{Address, ServerList, Servers};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const READY: u8 = 0;
const UNREADY: u8 = 1;
/// Connections stay open, and nothing is answered.
const HUNG: u8 = 2;
/// Longer than anything takes, also on a slow machine: it only ends a test that hangs.
const HANG: Duration = Duration::from_secs(60);

/// What every API server is called.
const CLUSTER: &str = "kubernetes.default.svc";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// An API server that says its own address.
struct Server {
    socket: SocketAddr,
    state: Arc<AtomicU8>,
    requests: Arc<AtomicUsize>,
    handshakes: Arc<AtomicUsize>,
    acceptor: TlsAcceptor,
    task: JoinSet<()>,
}

impl Server {
    /// At 127.0.0.`number`, with a certificate for these names.
    async fn start(number: u8, authority: &Authority, names: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        let issuer: &rcgen::Issuer<'_, KeyPair> = authority;
        let certificate = params.signed_by(&key, issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind((IpAddr::from([127, 0, 0, number]), 0)).await.unwrap();
        let mut server = Self {
            socket: listener.local_addr().unwrap(),
            state: Arc::default(),
            requests: Arc::default(),
            handshakes: Arc::default(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            task: JoinSet::new(),
        };
        server.serve(listener);
        server
    }

    fn serve(&mut self, listener: TcpListener) {
        let (state, requests, socket) = (self.state.clone(), self.requests.clone(), self.socket);
        let (handshakes, acceptor) = (self.handshakes.clone(), self.acceptor.clone());
        self.task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), state.clone());
                let (requests, handshakes) = (requests.clone(), handshakes.clone());
                connections.spawn(async move {
                    if state.load(Ordering::SeqCst) == HUNG {
                        std::future::pending::<()>().await;
                    }
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    handshakes.fetch_add(1, Ordering::SeqCst);
                    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                        answer(request, state.clone(), requests.clone(), socket)
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
    }

    /// Ends it with all connections, as `kill -9` does.
    async fn kill(&mut self) {
        self.task.shutdown().await;
    }

    async fn restart(&mut self) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.socket).unwrap();
        self.serve(socket.listen(64).unwrap());
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn address(&self) -> Address {
        self.socket.into()
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<AtomicU8>,
    requests: Arc<AtomicUsize>,
    socket: SocketAddr,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let state = state.load(Ordering::SeqCst);
    if state == HUNG {
        std::future::pending::<()>().await;
    }
    let said = Bytes::from(socket.to_string());
    Ok(match request.uri().path() {
        "/readyz" => {
            let code = if state == READY { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
            Response::builder().status(code).body(Full::new(Bytes::from_static(b"ok")).boxed()).unwrap()
        }
        "/watch" => {
            let first = futures::stream::iter([Ok(Frame::data(said))]);
            Response::new(BodyExt::boxed(StreamBody::new(first.chain(futures::stream::pending()))))
        }
        _ => {
            requests.fetch_add(1, Ordering::SeqCst);
            Response::new(Full::new(said).boxed())
        }
    })
}

/// A client of several servers, with their monitors.
struct Client {
    servers: Servers,
    client: kube::Client,
    monitors: JoinSet<()>,
}

fn config(server: &Server, authority: &Authority) -> kube::Config {
    let mut config = kube::Config::new(format!("https://{}", server.socket).parse().unwrap());
    config.root_cert = Some(vec![authority.der().to_vec()]);
    config
}

impl Client {
    async fn new(servers: &[&Server], authority: &Authority, file: Option<&Path>) -> Self {
        let config = config(servers[0], authority);
        let list = Servers::open(&config, file).unwrap();
        let client = list.client(config).unwrap();
        let published: Vec<Address> = servers.iter().map(|server| server.address()).collect();
        list.learn(&published).await;
        Self { servers: list, client, monitors: JoinSet::new() }
    }

    fn monitor(&mut self) {
        for server in self.servers.monitored().unwrap_or_default() {
            self.monitors.spawn(monitor::run(self.servers.clone(), server));
        }
    }

    /// Goes to this server, if it can be reached.
    async fn prefer(&self, server: &Server) {
        let _ = self.servers.0.table.lock().connected(&server.address());
        assert_eq!(self.ask().await.unwrap(), server.socket);
    }

    /// The server that answers.
    async fn ask(&self) -> Result<SocketAddr, kube::Error> {
        let request = Request::get("/").body(Vec::new()).unwrap();
        Ok(self.client.request_text(request).await?.parse().unwrap())
    }

    /// An answer that goes on for ever, after its first part.
    async fn watch(&self) -> (SocketAddr, kube::client::Body) {
        let request = Request::get("/watch").body(kube::client::Body::empty()).unwrap();
        let mut body = self.client.send(request).await.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        (std::str::from_utf8(&first).unwrap().parse().unwrap(), body)
    }

    async fn until_unfit(&self, expected: &[SocketAddr]) {
        let mut unfit = self.servers.unfit();
        let waited = unfit.wait_for(|unfit| unfit.iter().eq(expected));
        tokio::time::timeout(HANG, waited).await.unwrap().unwrap();
    }

    async fn until(&self, server: &Server, health: Health) {
        let begun = Instant::now();
        while self.servers.0.table.lock().health(&server.address()) != Some(health) {
            assert!(begun.elapsed() < HANG, "not {health:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn pair() -> (Server, Server, Authority) {
    let authority = authority();
    let first = Server::start(2, &authority, &["127.0.0.2", CLUSTER]).await;
    (first, Server::start(3, &authority, &["127.0.0.3", CLUSTER]).await, authority)
}

#[tokio::test]
async fn when_a_server_is_killed_its_watches_end_and_the_other_answers() {
    let (mut first, second, authority) = pair().await;
    let mut client = Client::new(&[&first, &second], &authority, None).await;
    client.monitor();
    client.prefer(&first).await;
    client.until(&first, Health::Live).await;
    client.until(&second, Health::Live).await;
    let (from, mut watch) = client.watch().await;
    assert_eq!(from, first.socket);
    let before = second.requests();
    assert_eq!(before, 0, "one server is used");
    first.kill().await;
    let ended = tokio::time::timeout(HANG, watch.frame()).await.unwrap();
    assert!(ended.is_none_or(|frame| frame.is_err()));
    assert_eq!(client.ask().await.unwrap(), second.socket);
    client.until_unfit(&[first.socket]).await;
    assert_eq!(client.servers.moves(), 1);
    first.restart().await;
    client.until_unfit(&[]).await;
    assert_eq!(client.ask().await.unwrap(), second.socket, "the agent stays where it is");
}

#[tokio::test]
async fn requests_to_a_server_that_hangs_are_cut() {
    let (first, second, authority) = pair().await;
    let mut client = Client::new(&[&first, &second], &authority, None).await;
    client.monitor();
    client.prefer(&first).await;
    client.until(&first, Health::Live).await;
    let (_, mut watch) = client.watch().await;
    first.set(HUNG);
    let stuck = client.ask();
    // A new connection finds out first: its handshake does not end.
    let (_, ended) = tokio::join!(stuck, tokio::time::timeout(HANG, watch.frame()));
    assert!(ended.unwrap().is_none_or(|frame| frame.is_err()));
    assert_eq!(client.ask().await.unwrap(), second.socket);
    client.until_unfit(&[first.socket]).await;
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_left_if_there_is_another() {
    let (first, second, authority) = pair().await;
    let mut client = Client::new(&[&first, &second], &authority, None).await;
    first.set(UNREADY);
    client.prefer(&first).await;
    let (_, mut watch) = client.watch().await;
    client.monitor();
    let ended = tokio::time::timeout(HANG, watch.frame()).await.unwrap();
    assert!(ended.is_none_or(|frame| frame.is_err()));
    assert_eq!(client.ask().await.unwrap(), second.socket);
    client.until_unfit(&[first.socket]).await;
}

#[tokio::test]
async fn a_node_or_a_server_of_another_authority_is_never_used() {
    let authority = authority();
    let first = Server::start(2, &authority, &["127.0.0.2", CLUSTER]).await;
    // As a node has it that serves at its own address.
    let node = Server::start(3, &authority, &["127.0.0.3"]).await;
    let foreign = Server::start(4, &self::authority(), &["127.0.0.4", CLUSTER]).await;
    let mut client = Client::new(&[&first, &node, &foreign], &authority, None).await;
    client.monitor();
    client.until(&node, Health::Untrusted).await;
    client.until(&foreign, Health::Untrusted).await;
    client.until(&first, Health::Live).await;
    assert_eq!(client.ask().await.unwrap(), first.socket);
    assert!(client.servers.unfit().borrow().is_empty(), "pods may know them by another name");
    drop(first);
    assert!(client.ask().await.is_err());
    assert_eq!((node.requests(), foreign.requests()), (0, 0));
}

#[tokio::test]
async fn servers_that_all_fail_are_tried_until_one_is_back() {
    let (mut first, mut second, authority) = pair().await;
    let mut client = Client::new(&[&first, &second], &authority, None).await;
    client.monitor();
    client.prefer(&first).await;
    first.kill().await;
    second.kill().await;
    client.until(&first, Health::Dead).await;
    client.until(&second, Health::Dead).await;
    assert!(client.ask().await.is_err());
    second.restart().await;
    assert_eq!(client.ask().await.unwrap(), second.socket, "at once, not when its monitor looks");
}

#[tokio::test]
async fn the_list_is_kept_for_the_next_start() {
    let (mut first, second, authority) = pair().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("servers");
    drop(Client::new(&[&first, &second], &authority, Some(&path)).await);
    let kept = ServerList::read(&path).unwrap();
    assert_eq!(kept, ServerList { given: vec![], learned: vec![first.address(), second.address()] });
    // The server of the kubeconfig is gone, and nothing is learned before the first answer.
    first.kill().await;
    let config = config(&first, &authority);
    let client = Servers::open(&config, Some(&path)).unwrap().client(config.clone()).unwrap();
    let request = || Request::get("/").body(Vec::new()).unwrap();
    assert_eq!(client.request_text(request()).await.unwrap(), second.socket.to_string());
    std::fs::write(&path, "nonsense").unwrap();
    let servers = Servers::open(&config, Some(&path)).unwrap();
    assert_eq!(servers.candidates().0, [first.address()], "a broken file is as none");
}

#[tokio::test]
async fn one_server_is_used_as_before() {
    let authority = authority();
    let mut only = Server::start(2, &authority, &["127.0.0.2", CLUSTER]).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("servers");
    let client = Client::new(&[&only], &authority, Some(&path)).await;
    client.servers.learn(&[SocketAddr::from(([192, 0, 2, 1], 6443)).into()]).await;
    assert_eq!(client.servers.monitored(), None);
    assert!(!path.exists());
    for _ in 0..3 {
        assert_eq!(client.ask().await.unwrap(), only.socket);
    }
    assert_eq!(only.handshakes.load(Ordering::SeqCst), 1, "connections are used again");
    only.kill().await;
    assert!(client.ask().await.is_err());
    only.restart().await;
    assert_eq!(client.ask().await.unwrap(), only.socket);
}

#[tokio::test]
async fn servers_are_not_learned_through_a_proxy_or_without_the_clusters_authority() {
    type Change = fn(&mut kube::Config);
    let (first, second, authority) = pair().await;
    let whole = config(&first, &authority);
    let cases: [(Change, bool); 5] = [
        (|_| {}, true),
        (|config| config.root_cert = None, false),
        (|config| config.accept_invalid_certs = true, false),
        (|config| config.cluster_url = "https://proxy.example/clusters/a".parse().unwrap(), false),
        (|config| config.cluster_url = "http://192.0.2.1".parse().unwrap(), false),
    ];
    for (change, learns) in cases {
        let mut config = whole.clone();
        change(&mut config);
        assert_eq!(super::client::may_balance(&config), learns, "{}", config.cluster_url);
    }
    let mut insecure = whole;
    insecure.accept_invalid_certs = true;
    let servers = Servers::open(&insecure, None).unwrap();
    servers.client(insecure).unwrap();
    servers.learn(&[first.address(), second.address()]).await;
    assert_eq!(servers.candidates().0, [first.address()]);
}

#[test]
fn agents_of_a_large_cluster_do_not_come_all_at_once() {
    assert_eq!(super::spread(0), Duration::ZERO);
    assert_eq!(super::spread(3), Duration::from_millis(6));
    assert_eq!(super::spread(5000), Duration::from_secs(10));
    assert_eq!(super::spread(usize::MAX), Duration::from_secs(10));
}
