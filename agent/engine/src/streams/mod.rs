//! Many streams over one upgraded connection, in every framing that Kubernetes' clients speak: WebSocket channels, SPDY/3.1,
//! and SPDY/3.1 tunnelled in WebSocket messages. The node's API and the engine's CRI streaming both serve from here.

// Which framing a request asks for, and the answer to it.
pub mod handshake;
// SPDY/3.1, as much of it as is used.
pub mod spdy;
// Channels in WebSocket messages.
pub mod websocket;
// A stream towards the peer, in either framing.
mod output;
// Exec and attach.
pub mod command;
// Forwarded ports.
pub mod port_forward;

pub use output::Output;

use bytes::Bytes;
use std::time::Duration;
use tokio::sync::mpsc;

/// Size of reads and writes.
pub const CHUNK: usize = 32 << 10;
/// Chunks queued for a reader before reading from the connection stops.
const MAX_QUEUED_CHUNKS: usize = 8;
/// Ping interval: detects dead peers.
const PING: Duration = Duration::from_secs(30);
/// How long a peer may take to create its streams.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for the peer to close after all data was sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Data from the peer on one stream; ends when the peer closes it or disconnects.
pub type Input = mpsc::Receiver<Bytes>;
