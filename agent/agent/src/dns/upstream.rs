//! Upstream resolver: concurrent queries for one name are merged, responses are cached, concurrency is limited.

use coracle_cli::causes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::Name;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::answer::UDP_PAYLOAD;
use super::cache::{Cache, ENTRIES, Key};
use super::route::Routes;

/// Timeout per server.
const QUERY_TIMEOUT: Duration = Duration::from_millis(1500);
/// How many servers are asked, one after the other; clients wait five seconds.
const ATTEMPTS: usize = 3;
/// Maximum number of concurrent distinct queries.
const IN_FLIGHT: usize = 512;

type Flight = Shared<BoxFuture<'static, Arc<Message>>>;

/// Other servers.
pub struct Upstream {
    routes: Routes,
    cache: Mutex<Cache>,
    flights: Mutex<HashMap<Key, Flight>>,
    /// Time of the last failure of each server.
    failed: Mutex<HashMap<SocketAddr, Instant>>,
}

/// How long a failed server is tried last.
const FAILED_SERVER_BACKOFF: Duration = Duration::from_secs(10);

impl Upstream {
    /// Nothing asked yet.
    pub fn new(routes: Routes) -> Self {
        let cache = Mutex::new(Cache::new(ENTRIES));
        Upstream { routes, cache, flights: Mutex::default(), failed: Mutex::default() }
    }

    /// What is kept of a question's answer.
    pub fn cached(&self, key: &Key) -> Option<Message> {
        self.cache.lock().get(key, Instant::now())
    }

    /// Resolves a question; SERVFAIL on timeout, or if too many queries are in flight.
    pub async fn resolve(self: &Arc<Self>, key: Key) -> Arc<Message> {
        if let Some(found) = self.cached(&key) {
            return Arc::new(found);
        }
        let flight = {
            let mut flights = self.flights.lock();
            match flights.get(&key) {
                Some(flight) => flight.clone(),
                None if flights.len() >= IN_FLIGHT => return Arc::new(failure()),
                None => {
                    let (this, of) = (self.clone(), key.clone());
                    let flight = async move { this.resolve_upstream(of).await }.boxed().shared();
                    flights.insert(key, flight.clone());
                    flight
                }
            }
        };
        flight.await
    }

    async fn resolve_upstream(self: Arc<Self>, key: Key) -> Arc<Message> {
        let reply = Arc::new(self.ask_all(&key).await);
        self.cache.lock().put(key.clone(), &reply, Instant::now());
        self.flights.lock().remove(&key);
        reply
    }

    async fn ask_all(&self, key: &Key) -> Message {
        let mut servers = self.routes.servers(&key.name);
        {
            let mut failed = self.failed.lock();
            failed.retain(|_, at| at.elapsed() < FAILED_SERVER_BACKOFF);
            servers.sort_by_key(|server| failed.get(server).copied());
        }
        let mut last = failure();
        for server in servers.into_iter().take(ATTEMPTS) {
            match timeout(QUERY_TIMEOUT, ask(server, key)).await {
                // Tries the next server after a failure.
                Ok(Ok(reply)) if is_failure(&reply) => last = reply,
                Ok(Ok(reply)) => return reply,
                Ok(Err(error)) => {
                    tracing::debug!(%server, error = %causes::chain(&error), name = %key.name, "upstream DNS query failed");
                    self.failed.lock().insert(server, Instant::now());
                }
                Err(_) => {
                    self.failed.lock().insert(server, Instant::now());
                }
            }
        }
        last
    }
}

fn is_failure(reply: &Message) -> bool {
    !matches!(reply.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
}

fn failure() -> Message {
    Message::error_msg(0, OpCode::Query, ResponseCode::ServFail)
}

/// Queries one server from a random port, against spoofing; falls back to TCP for truncated responses.
async fn ask(server: SocketAddr, key: &Key) -> io::Result<Message> {
    let query = query(key);
    let bytes = query.to_vec().map_err(io::Error::other)?;
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&bytes).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Ignores packets that do not match the query: they may be spoofed.
        if let Some(reply) = matching(&buffer[..length], &query) {
            return if reply.truncation { ask_by_stream(server, &bytes, &query).await } else { Ok(reply) };
        }
    }
}

async fn ask_by_stream(server: SocketAddr, bytes: &[u8], query: &Message) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let mut framed = (bytes.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await?;
    matching(&buffer, query).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn query(key: &Key) -> Message {
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    query.queries.push(Query::query(key.name.clone(), key.kind));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_PAYLOAD).set_version(0).set_dnssec_ok(key.signed);
    query.edns = Some(edns);
    query
}

fn matching(bytes: &[u8], query: &Message) -> Option<Message> {
    let reply = Message::from_vec(bytes).ok()?;
    let asked = |message: &Message| {
        message.queries.first().map(|q| (q.name.to_lowercase(), q.query_type, q.query_class))
    };
    let ours = reply.id == query.id && reply.message_type == hickory_proto::op::MessageType::Response;
    // Some servers leave the question out of a failure.
    let same = asked(&reply) == asked(query) || (reply.queries.is_empty() && is_failure(&reply));
    (ours && same).then_some(reply)
}

/// The upstream query for a client's question.
pub fn key_of(name: &Name, query: &Message) -> Option<Key> {
    let question = query.queries.first()?;
    let signed = query.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok);
    Some(Key { name: name.to_lowercase(), kind: question.query_type, signed })
}
