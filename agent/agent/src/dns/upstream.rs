//! Questions to other servers: each asked once however many clients want to know, kept for a while, in bounded numbers.

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

use super::cache::{Cache, ENTRIES, Key};
use super::route::Routes;
use super::wire::UDP_PAYLOAD;

/// How long one server may take.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How many servers are asked, one after the other; clients wait five seconds.
const ATTEMPTS: usize = 3;
/// Different questions under way at once.
const IN_FLIGHT: usize = 512;

type Flight = Shared<BoxFuture<'static, Arc<Message>>>;

/// Other servers.
pub struct Upstream {
    routes: Routes,
    cache: Mutex<Cache>,
    flights: Mutex<HashMap<Key, Flight>>,
    /// When a server last failed to answer: it is asked last for a while.
    failed: Mutex<HashMap<SocketAddr, Instant>>,
}

/// How long a server that did not answer is asked after the others.
const SHUNNED: Duration = Duration::from_secs(10);

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

    /// The answer to a question; "server failure" when nobody gives one in time, or too many are asked already.
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
                    let flight = async move { this.fly(of).await }.boxed().shared();
                    flights.insert(key, flight.clone());
                    flight
                }
            }
        };
        flight.await
    }

    async fn fly(self: Arc<Self>, key: Key) -> Arc<Message> {
        let reply = Arc::new(self.ask_all(&key).await);
        self.cache.lock().put(key.clone(), &reply, Instant::now());
        self.flights.lock().remove(&key);
        reply
    }

    async fn ask_all(&self, key: &Key) -> Message {
        let mut servers = self.routes.servers(&key.name);
        {
            let mut failed = self.failed.lock();
            failed.retain(|_, at| at.elapsed() < SHUNNED);
            servers.sort_by_key(|server| failed.get(server).copied());
        }
        let mut last = failure();
        for server in servers.into_iter().take(ATTEMPTS) {
            match timeout(PATIENCE, ask(server, key)).await {
                // Another server may know better than one that fails.
                Ok(Ok(reply)) if is_failure(&reply) => last = reply,
                Ok(Ok(reply)) => return reply,
                Ok(Err(error)) => {
                    tracing::debug!(%server, %error, name = %key.name, "upstream does not answer");
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

/// Asks one server from a port of its own, so that nobody can guess both port and number; by TCP when it was cut short.
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
        // Anything that is no answer to this question is somebody's attempt.
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

/// The question of a client as it is asked further.
pub fn key_of(name: &Name, query: &Message) -> Option<Key> {
    let question = query.queries.first()?;
    let signed = query.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok);
    Some(Key { name: name.to_lowercase(), kind: question.query_type, signed })
}
