//! Many streams over one upgraded connection, in every framing that Kubernetes' clients speak: WebSocket channels, SPDY/3.1,
//! and SPDY/3.1 tunnelled in WebSocket messages. The node's API and the engine's CRI streaming both serve from here.

// Which framing a request asks for, and the answer to it.
pub mod handshake;
// SPDY/3.1, as much of it as is used.
pub mod spdy;
// Channels in WebSocket messages.
pub mod websocket;
// Exec and attach.
pub mod command;
// Forwarded ports.
pub mod ports;

use bytes::Bytes;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;

/// Read and written at once.
pub const CHUNK: usize = 32 << 10;
/// Chunks that wait for a reader before the connection is not read any further.
const AHEAD: usize = 8;
/// A peer that went away without a word is noticed by this.
const PING: Duration = Duration::from_secs(30);
/// How long a peer may take to create its streams.
const CREATION: Duration = Duration::from_secs(30);
/// How long a peer may take to close, after everything was said.
const LINGER: Duration = Duration::from_secs(10);

/// What a peer sends on one stream; ends when the peer closes it or goes away.
pub type Input = mpsc::Receiver<Bytes>;

/// One stream towards the peer. Writes wait for the peer.
#[derive(Clone)]
pub enum Output {
    /// A SPDY stream.
    Spdy(spdy::Output),
    /// A WebSocket channel.
    WebSocket(websocket::Output),
}

impl Output {
    /// Sends bytes; an error means that the peer is gone.
    pub async fn write(&self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Spdy(output) => output.write(data, false).await,
            Self::WebSocket(output) => output.write(data).await,
        }
    }

    /// Nothing more comes on this stream. WebSocket channels have no end of their own.
    pub async fn finish(&self) {
        if let Self::Spdy(output) = self {
            let _ = output.write(&[], true).await;
        }
    }

    /// The stream is given up.
    pub async fn reset(&self) {
        if let Self::Spdy(output) = self {
            output.reset().await;
        }
    }
}
