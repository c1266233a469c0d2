//! The server's side of SPDY/3.1, as Kubernetes uses it: clients open streams, both sides send data, no flow control.
//!
//! A stream that nobody reads holds up the whole connection after [`super::MAX_QUEUED_CHUNKS`] chunks: that is what
//! bounds memory.

// Frames.
pub mod frame;
// Header blocks.
pub mod headers;

use bytes::{Bytes, BytesMut};
use coracle_cli::causes;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{CHUNK, CLOSE_TIMEOUT, Input, MAX_QUEUED_CHUNKS, PING};
use frame::{FIN, Header, MAX_CONTROL, kind};
use headers::{HeaderError, Headers};

/// Streams that a peer may have open or not yet accepted.
const MAX_STREAMS: usize = 4096;
const REFUSED: u32 = 3;
const CANCEL: u32 = 5;

/// Why a connection ends before its peer closes it.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Headers(#[from] HeaderError),
    #[error("control frame is too large")]
    LargeFrame,
    #[error("control frame is too short")]
    ShortFrame,
    #[error("not SPDY/3")]
    NotSpdy,
}

/// The writing half; frames go out whole, one after the other.
struct Writer {
    half: Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
    replied: AtomicU32,
}

impl Writer {
    async fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut half = self.half.lock().await;
        half.write_all(frame).await?;
        half.flush().await
    }
}

/// One stream towards the peer.
#[derive(Clone)]
pub struct Output {
    id: u32,
    writer: Arc<Writer>,
    /// The stream is remembered for as long as anyone could write to it.
    _held: Arc<()>,
}

impl Output {
    /// Sends data; `fin` ends the stream in this direction.
    pub async fn write(&self, data: &[u8], fin: bool) -> io::Result<()> {
        if data.is_empty() {
            return self.writer.send(&frame::data(self.id, &[], fin)).await;
        }
        let mut chunks = data.chunks(CHUNK).peekable();
        while let Some(chunk) = chunks.next() {
            let last = chunks.peek().is_none();
            self.writer.send(&frame::data(self.id, chunk, fin && last)).await?;
        }
        Ok(())
    }

    /// Resets the stream in both directions.
    pub async fn reset(&self) {
        let _ = self.writer.send(&frame::rst_stream(self.id, CANCEL)).await;
    }
}

/// A stream that the peer opened.
pub struct Stream {
    /// Its number.
    pub id: u32,
    /// What it is for.
    pub headers: Headers,
    /// From the peer.
    pub input: Input,
    /// To the peer.
    pub output: Output,
    /// Cancelled when the peer resets the stream or disconnects.
    pub ended: CancellationToken,
}

/// A connection after its upgrade.
pub struct Connection {
    incoming: mpsc::Receiver<Stream>,
    writer: Arc<Writer>,
    /// Cancelled when the peer disconnects.
    pub gone: CancellationToken,
    reader: JoinHandle<()>,
    pinger: JoinHandle<()>,
}

impl Connection {
    /// Starts to read. Everything stops when it is dropped.
    pub fn start<T>(io: T) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(io);
        let writer = Arc::new(Writer { half: Mutex::new(Box::new(write)), replied: AtomicU32::new(0) });
        // Hundreds of connections may begin at once: they wait here, none is refused.
        let (sender, incoming) = mpsc::channel(MAX_STREAMS);
        let gone = CancellationToken::new();
        let demux = Demux {
            streams: HashMap::new(),
            headers: headers::Reader::default(),
            writer: writer.clone(),
            incoming: sender,
            gone: gone.clone(),
        };
        let ended = gone.clone();
        let reader = tokio::spawn(async move {
            let guard = ended.drop_guard();
            if let Err(error) = demux.run(BufReader::with_capacity(CHUNK, read)).await {
                tracing::debug!(error = %causes::chain(&error), "SPDY connection ends");
            }
            drop(guard);
        });
        let (pings, ended) = (writer.clone(), gone.clone());
        let pinger = tokio::spawn(async move {
            // Ours have even numbers.
            let mut id = 0u32;
            loop {
                tokio::time::sleep(PING).await;
                id = id.wrapping_add(2);
                if pings.send(&frame::ping(id)).await.is_err() {
                    ended.cancel();
                    return;
                }
            }
        });
        Self { incoming, writer, gone, reader, pinger }
    }

    /// The next stream; none when the peer is gone.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.incoming.recv().await
    }

    /// Waits for the peer to close after every stream has finished, then sends GOAWAY if it does not.
    ///
    /// An earlier GOAWAY would make clients drop unread data, including the exit status.
    pub async fn close(mut self) {
        self.pinger.abort();
        if tokio::time::timeout(CLOSE_TIMEOUT, &mut self.reader).await.is_ok() {
            return;
        }
        let last = self.writer.replied.load(Ordering::Relaxed);
        let _ = self.writer.send(&frame::goaway(last)).await;
        let _ = self.writer.half.lock().await.shutdown().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.pinger.abort();
        self.gone.cancel();
    }
}

struct Open {
    input: Option<mpsc::Sender<Bytes>>,
    ended: CancellationToken,
    held: Weak<()>,
}

/// Dispatches frames to streams.
struct Demux {
    streams: HashMap<u32, Open>,
    headers: headers::Reader,
    writer: Arc<Writer>,
    incoming: mpsc::Sender<Stream>,
    gone: CancellationToken,
}

impl Demux {
    async fn run(mut self, mut from: impl AsyncRead + Unpin) -> Result<(), ConnectionError> {
        loop {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes).await?;
            match Header::parse(bytes) {
                Some(Header::Data { stream, flags, length }) => {
                    self.data(&mut from, stream, length).await?;
                    if flags & FIN != 0
                        && let Some(open) = self.streams.get_mut(&stream)
                    {
                        open.input = None;
                    }
                }
                Some(Header::Control { kind, flags, length }) => {
                    if length > MAX_CONTROL {
                        return Err(ConnectionError::LargeFrame);
                    }
                    let mut payload = vec![0; length];
                    from.read_exact(&mut payload).await?;
                    if kind == kind::GOAWAY {
                        return Ok(());
                    }
                    self.control(kind, flags, &payload).await?;
                }
                None => return Err(ConnectionError::NotSpdy),
            }
        }
    }

    async fn data(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        stream: u32,
        mut length: usize,
    ) -> io::Result<()> {
        while length > 0 {
            let mut chunk = BytesMut::zeroed(length.min(CHUNK));
            from.read_exact(&mut chunk).await?;
            length -= chunk.len();
            if let Some(open) = self.streams.get_mut(&stream)
                && let Some(input) = &open.input
                && input.send(chunk.freeze()).await.is_err()
            {
                // The reader is gone: drops the data.
                open.input = None;
            }
        }
        Ok(())
    }

    async fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) -> Result<(), ConnectionError> {
        let (first, rest) = payload.split_first_chunk::<4>().ok_or(ConnectionError::ShortFrame)?;
        let id = u32::from_be_bytes(*first) & !(1 << 31);
        match kind {
            kind::SYN_STREAM => {
                let block = rest.get(6..).ok_or(ConnectionError::ShortFrame)?;
                self.open(id, flags, block).await
            }
            kind::RST_STREAM => {
                if let Some(open) = self.streams.remove(&id) {
                    open.ended.cancel();
                }
                Ok(())
            }
            // Odd numbers are the client's own.
            kind::PING if id % 2 == 1 => Ok(self.writer.send(&frame::ping(id)).await?),
            // Settings, windows and late headers change nothing here; but a header block must be read to read the next.
            8 => Ok(self.headers.read(rest).map(drop)?),
            _ => Ok(()),
        }
    }

    async fn open(&mut self, id: u32, flags: u8, block: &[u8]) -> Result<(), ConnectionError> {
        let headers = self.headers.read(block)?;
        // A stream is forgotten once nobody writes to it and nobody reads from it: stdin has readers only.
        self.streams.retain(|_, open| {
            open.held.strong_count() > 0 || open.input.as_ref().is_some_and(|input| !input.is_closed())
        });
        let Ok(place) = self.incoming.try_reserve() else {
            return Ok(self.writer.send(&frame::rst_stream(id, REFUSED)).await?);
        };
        if self.streams.len() >= MAX_STREAMS {
            return Ok(self.writer.send(&frame::rst_stream(id, REFUSED)).await?);
        }
        let first = self.writer.replied.swap(id, Ordering::Relaxed) == 0;
        // Before anyone can write to the stream: clients drop data that comes earlier.
        self.writer.send(&frame::syn_reply(id, &headers::empty_block(first))).await?;
        let (sender, input) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let (ended, held) = (self.gone.child_token(), Arc::new(()));
        let open = Open {
            input: (flags & FIN == 0).then_some(sender),
            ended: ended.clone(),
            held: Arc::downgrade(&held),
        };
        self.streams.insert(id, open);
        let output = Output { id, writer: self.writer.clone(), _held: held };
        place.send(Stream { id, headers, input, output, ended });
        Ok(())
    }
}
