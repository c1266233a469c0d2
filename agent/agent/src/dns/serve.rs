//! Sockets of the cluster's DNS: datagrams and streams on every server address, in bounded numbers.

use coracle_cli::causes;
use coracle_cni::route::Cidr;
use hickory_proto::op::Message;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::{Answer, answer};
use super::lookup::ServiceLookup;
use super::upstream::{Upstream, key_of};
use super::wire::{self, Packet};
use super::zone::Zone;
use crate::cluster::AwaitedNames;
use crate::network::Links;

const PORT: u16 = 53;
/// Idle timeout of TCP connections.
const IDLE: Duration = Duration::from_secs(10);
/// Streams at once; more wait to be accepted.
const STREAMS: usize = 256;
/// Maximum number of datagrams waiting for an upstream response; more are refused.
const MAX_PENDING: usize = 2048;
/// Datagrams answered in a row before other tasks get their turn.
const BURST: usize = 64;
/// A pause before an address is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The cluster's DNS on this node.
pub struct Dns {
    zone: Zone,
    view: Box<dyn ServiceLookup>,
    upstream: Arc<Upstream>,
    awaited: Arc<AwaitedNames>,
    turn: AtomicUsize,
    waiting: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// A reply, or a query that must be resolved upstream.
enum Outcome {
    Now(Box<Message>),
    Later(Box<(Message, Message, hickory_proto::rr::Name)>),
}

impl Dns {
    /// A server for a zone; it listens nowhere yet.
    pub fn new(
        zone: Zone,
        view: Box<dyn ServiceLookup>,
        upstream: Upstream,
        awaited: Arc<AwaitedNames>,
    ) -> Arc<Self> {
        Arc::new(Dns {
            zone,
            view,
            upstream: Arc::new(upstream),
            awaited,
            turn: AtomicUsize::new(0),
            waiting: Arc::new(Semaphore::new(MAX_PENDING)),
            streams: Arc::new(Semaphore::new(STREAMS)),
        })
    }

    /// Serves an address forever; retries if it cannot be bound.
    pub async fn serve(self: Arc<Self>, address: IpAddr) {
        loop {
            let at = SocketAddr::new(address, PORT);
            let listening = ensure_address(address).await;
            match listening.and_then(|()| Ok((datagrams(at)?, streams(at)?))) {
                Ok((socket, listener)) => {
                    tracing::info!(%address, "cluster DNS is served");
                    tokio::select! {
                        () = self.clone().serve_datagrams(socket) => {}
                        () = self.clone().serve_streams(listener) => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(%address, error = %causes::chain(&error), "cluster DNS address not bound, will retry")
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Answers datagrams until the socket breaks.
    pub async fn serve_datagrams(self: Arc<Self>, socket: UdpSocket) {
        let socket = Arc::new(socket);
        let mut buffer = [0; 4096];
        loop {
            if let Err(error) = socket.readable().await {
                tracing::warn!(error = %causes::chain(&error), "DNS socket failed");
                return;
            }
            for _ in 0..BURST {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, from)) => self.datagram(&socket, &buffer[..length], from),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // ICMP error from a client that is gone.
                    Err(_) => {}
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn datagram(self: &Arc<Self>, socket: &Arc<UdpSocket>, bytes: &[u8], from: SocketAddr) {
        let query = match wire::read(bytes) {
            Packet::Ignored => return,
            Packet::Refused(mut reply) => return send(socket, &mut reply, 512, from),
            Packet::Query(query) => query,
        };
        let limit = wire::datagram_limit(&query);
        match self.begin(*query) {
            Outcome::Now(mut reply) => send(socket, &mut reply, limit, from),
            Outcome::Later(rest) => {
                let Ok(permit) = self.waiting.clone().try_acquire_owned() else { return };
                let (this, socket) = (self.clone(), socket.clone());
                tokio::spawn(async move {
                    let mut reply = this.finish(*rest).await;
                    send(&socket, &mut reply, limit, from);
                    drop(permit);
                });
            }
        }
    }

    /// Answers streams until the listener breaks.
    pub async fn serve_streams(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok(permit) = self.streams.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let this = self.clone();
                    tokio::spawn(async move {
                        // Errors of client connections are ignored.
                        let _ = this.stream(stream).await;
                        drop(permit);
                    });
                }
                // Out of descriptors: wait for some to be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn stream(self: Arc<Self>, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        loop {
            let length = timeout(IDLE, stream.read_u16()).await??;
            let mut bytes = vec![0; usize::from(length)];
            timeout(IDLE, stream.read_exact(&mut bytes)).await??;
            let mut reply = match wire::read(&bytes) {
                Packet::Ignored => return Ok(()),
                Packet::Refused(reply) => *reply,
                Packet::Query(query) => match self.begin(*query) {
                    Outcome::Now(reply) => *reply,
                    Outcome::Later(rest) => self.clone().finish(*rest).await,
                },
            };
            let bytes = wire::write(&mut reply, usize::from(u16::MAX));
            let mut framed = Vec::with_capacity(bytes.len() + 2);
            framed.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
            framed.extend_from_slice(&bytes);
            timeout(IDLE, stream.write_all(&framed)).await??;
        }
    }

    fn begin(&self, query: Message) -> Outcome {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (reply, name) = match answer(&self.zone, &query, &*self.view, turn) {
            Answer::Reply(reply) => {
                if !self.awaited.is_empty() && !reply.answers.is_empty() {
                    query.queries.iter().for_each(|question| self.awaited.answered(question.name.iter()));
                }
                return Outcome::Now(Box::new(reply));
            }
            Answer::Elsewhere(reply, name) => (reply, name),
            Answer::Forward(reply) => {
                let name = query.queries.first().map(|question| question.name.clone()).unwrap_or_default();
                (reply, name)
            }
        };
        match key_of(&name, &query).and_then(|key| self.upstream.cached(&key)) {
            Some(found) => Outcome::Now(Box::new(joined(reply, &found))),
            None => Outcome::Later(Box::new((query, reply, name))),
        }
    }

    async fn finish(
        self: Arc<Self>,
        (query, reply, name): (Message, Message, hickory_proto::rr::Name),
    ) -> Message {
        match key_of(&name, &query) {
            Some(key) => joined(reply, &*self.upstream.resolve(key).await),
            None => reply,
        }
    }
}

/// Merges our reply with the upstream response.
fn joined(mut reply: Message, found: &Message) -> Message {
    reply.metadata.response_code = found.response_code;
    reply.metadata.authentic_data = found.authentic_data && reply.answers.is_empty();
    reply.answers.extend(found.answers.iter().cloned());
    reply.authorities.extend(found.authorities.iter().cloned());
    reply.additionals.extend(found.additionals.iter().cloned());
    reply
}

fn send(socket: &UdpSocket, reply: &mut Message, limit: usize, to: SocketAddr) {
    // A full socket buffer loses a datagram, as any router may: the client asks again.
    let _ = socket.try_send_to(&wire::write(reply, limit), to);
}

/// Puts the address on the node's loopback, where packets from its pods end.
async fn ensure_address(address: IpAddr) -> io::Result<()> {
    const LOOPBACK: u32 = 1;
    if address.is_loopback() {
        return Ok(());
    }
    let cidr = Cidr { ip: address, prefix: if address.is_ipv4() { 32 } else { 128 } };
    let links = Links::open().map_err(io::Error::other)?;
    links.add_address(LOOPBACK, cidr).await.map_err(io::Error::other)
}

/// A socket with SO_REUSEPORT, so that a new agent can bind while the old one still serves.
fn socket(at: SocketAddr, kind: SockType) -> io::Result<OwnedFd> {
    use nix::sys::socket::{SockaddrStorage, bind, socket};
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, kind, flags, None)?;
    setsockopt(&fd.as_fd(), sockopt::ReuseAddr, &true)?;
    setsockopt(&fd.as_fd(), sockopt::ReusePort, &true)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &SockaddrStorage::from(at))?;
    Ok(fd)
}

/// A socket for datagrams, with room for a burst.
fn datagrams(at: SocketAddr) -> io::Result<UdpSocket> {
    let fd = socket(at, SockType::Datagram)?;
    let _ = setsockopt(&fd.as_fd(), sockopt::RcvBuf, &(1 << 20));
    UdpSocket::from_std(fd.into())
}

/// A listener for streams.
fn streams(at: SocketAddr) -> io::Result<TcpListener> {
    use nix::sys::socket::{Backlog, listen};
    let fd = socket(at, SockType::Stream)?;
    listen(&fd, Backlog::new(128).map_err(io::Error::from)?)?;
    TcpListener::from_std(fd.into())
}
