//! One stream towards the peer, in any framing.

use std::io;

use super::{spdy, websocket};

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

    /// Ends the stream. No effect on WebSocket channels, which have no end of stream.
    pub async fn finish(&self) {
        if let Self::Spdy(output) = self {
            let _ = output.write(&[], true).await;
        }
    }

    /// Resets the stream.
    pub async fn reset(&self) {
        if let Self::Spdy(output) = self {
            output.reset().await;
        }
    }
}
