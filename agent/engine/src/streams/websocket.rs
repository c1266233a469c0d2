//! Channels in WebSocket messages: the first byte of a message names its channel.
//!
//! With a base64 protocol messages are text: a digit, then the data in base64. In v5, channel 255 closes another one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;

use super::{CHUNK, CLOSE_TIMEOUT, Input, MAX_QUEUED_CHUNKS, PING};

/// Closes the channel that the next byte names.
const CLOSE: u8 = 255;

/// The longest message that a client may send. kubectl sends 32 KiB at a time; other clients may send more.
const MAX_MESSAGE: usize = 1 << 20;

/// The underlying connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

type Socket = WebSocketStream<Box<dyn Io>>;
type Sink = Arc<Mutex<SplitSink<Socket, Message>>>;

async fn server_side<T: Io + 'static>(io: T) -> Socket {
    // The default accepts messages of 64 MiB, which a client with many connections would fill memory with.
    let config =
        WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(Box::new(io) as Box<dyn Io>, Role::Server, Some(config)).await
}

/// A close frame with a code: clients treat one without as a failure.
fn close_message() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// One channel towards the peer.
#[derive(Clone)]
pub struct Output {
    sink: Sink,
    channel: u8,
    base64: bool,
}

impl Output {
    /// Sends one message.
    pub async fn write(&self, data: &[u8]) -> io::Result<()> {
        let message = if self.base64 {
            let mut text = String::with_capacity(data.len() * 4 / 3 + 5);
            text.push(char::from(b'0' + self.channel));
            STANDARD.encode_string(data, &mut text);
            Message::Text(text.into())
        } else {
            let mut bytes = Vec::with_capacity(data.len() + 1);
            bytes.push(self.channel);
            bytes.extend_from_slice(data);
            Message::Binary(bytes.into())
        };
        self.sink.lock().await.send(message).await.map_err(io::Error::other)
    }
}

/// A connection after its handshake.
pub struct Connection {
    sink: Sink,
    base64: bool,
    /// Cancelled when the peer disconnects.
    pub gone: CancellationToken,
    reader: JoinHandle<()>,
    pinger: JoinHandle<()>,
}

impl Connection {
    /// Starts to read; what comes on the given channels is to be had from the inputs, in their order.
    pub async fn start<T: Io + 'static>(io: T, base64: bool, channels: &[u8]) -> (Self, Vec<Input>) {
        let (sink, source) = server_side(io).await.split();
        let sink = Arc::new(Mutex::new(sink));
        let (senders, inputs) = channels
            .iter()
            .map(|channel| {
                let (sender, input) = mpsc::channel(MAX_QUEUED_CHUNKS);
                ((*channel, sender), input)
            })
            .unzip();
        let gone = CancellationToken::new();
        let reader = tokio::spawn(demux(source, base64, senders, gone.clone()));
        let (pings, ended) = (sink.clone(), gone.clone());
        let pinger = tokio::spawn(async move {
            loop {
                tokio::time::sleep(PING).await;
                if pings.lock().await.send(Message::Ping(Bytes::new())).await.is_err() {
                    ended.cancel();
                    return;
                }
            }
        });
        (Self { sink, base64, gone, reader, pinger }, inputs)
    }

    /// A channel towards the peer.
    pub fn output(&self, channel: u8) -> Output {
        Output { sink: self.sink.clone(), channel, base64: self.base64 }
    }

    /// Sends a close frame and waits for the peer to close, so that data sent before is not lost.
    pub async fn close(mut self) {
        self.pinger.abort();
        let closed = self.sink.lock().await.send(close_message()).await;
        if closed.is_ok() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, &mut self.reader).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.pinger.abort();
        self.gone.cancel();
    }
}

async fn demux(
    mut source: SplitStream<Socket>,
    base64: bool,
    mut channels: HashMap<u8, mpsc::Sender<Bytes>>,
    gone: CancellationToken,
) {
    let _guard = gone.drop_guard();
    while let Some(Ok(message)) = source.next().await {
        let data: Bytes = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            // The answer to it goes out with the next read.
            _ => continue,
        };
        let Some((channel, data)) = unpack(data, base64) else { continue };
        if channel == CLOSE {
            if let Some(closed) = data.first() {
                channels.remove(closed);
            }
        } else if let Some(sender) = channels.get(&channel)
            && deliver(sender, data).await.is_err()
        {
            channels.remove(&channel);
        }
    }
}

/// Queues a message in pieces of `CHUNK`, so that the number of queued pieces bounds the memory that they take.
async fn deliver(sender: &mpsc::Sender<Bytes>, mut data: Bytes) -> Result<(), mpsc::error::SendError<Bytes>> {
    while !data.is_empty() {
        let piece = data.split_to(data.len().min(CHUNK));
        sender.send(piece).await?;
    }
    Ok(())
}

fn unpack(message: Bytes, base64: bool) -> Option<(u8, Bytes)> {
    let channel = *message.first()?;
    let data = message.slice(1..);
    if !base64 {
        return Some((channel, data));
    }
    Some((channel.checked_sub(b'0')?, STANDARD.decode(&data).ok()?.into()))
}

/// The bytes inside binary messages, as one connection.
pub async fn tunnel<T: Io + 'static>(io: T) -> DuplexStream {
    let (mut sink, mut source) = server_side(io).await.split();
    let (near, far) = tokio::io::duplex(2 * CHUNK);
    let (mut reader, mut writer) = tokio::io::split(far);
    tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            if let Message::Binary(data) = message
                && writer.write_all(&data).await.is_err()
            {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; CHUNK];
        while let Ok(n @ 1..) = reader.read(&mut buffer).await {
            if sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..n]))).await.is_err() {
                return;
            }
        }
        let _ = sink.send(close_message()).await;
    });
    near
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn client(io: DuplexStream) -> WebSocketStream<DuplexStream> {
        WebSocketStream::from_raw_socket(io, Role::Client, None).await
    }

    #[tokio::test]
    async fn messages_are_queued_in_pieces() {
        let (near, far) = tokio::io::duplex(CHUNK);
        let (_connection, mut inputs) = Connection::start(near, false, &[0]).await;
        let mut client = client(far).await;
        let message = vec![0_u8; 1 + 2 * CHUNK + 1];
        let (sent, received) = tokio::join!(client.send(Message::binary(message)), async {
            let mut lengths = Vec::new();
            for _ in 0..3 {
                lengths.push(inputs[0].recv().await.unwrap().len());
            }
            lengths
        });
        sent.unwrap();
        assert_eq!(received, [CHUNK, CHUNK, 1]);
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_ends_the_connection() {
        let (near, far) = tokio::io::duplex(CHUNK);
        let (connection, mut inputs) = Connection::start(near, false, &[0]).await;
        let mut client = client(far).await;
        // The server stops reading at the header of the frame, so the client may never finish sending.
        let sending = tokio::spawn(async move {
            let _ = client.send(Message::binary(vec![0_u8; MAX_MESSAGE + 1])).await;
        });
        assert_eq!(inputs[0].recv().await, None);
        connection.gone.cancelled().await;
        sending.abort();
    }

    #[test]
    fn messages_name_their_channel() {
        let unpacked = |text: &'static [u8], base64| unpack(Bytes::from_static(text), base64);
        assert_eq!(unpacked(b"\x00ab", false), Some((0, Bytes::from_static(b"ab"))));
        assert_eq!(unpacked(b"0YWI=", true), Some((0, Bytes::from_static(b"ab"))));
        assert_eq!(unpacked(b"4", true), Some((4, Bytes::new())));
        assert_eq!(unpacked(b"", false), None);
        assert_eq!(unpacked(b"0!!", true), None, "not base64");
        assert_eq!(unpacked(b"\x00YWI=", true), None, "not a digit");
    }
}
