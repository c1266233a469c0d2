//! Another server, which a search asks for records over one connection.

use crate::explain::ingest::BLOCKS;
use bytes::Bytes;
use coracle_apiserver::explain::BETWEEN_SERVERS;
use coracle_apiserver::nodes::relay::{Peers, RelayError, identified};
use coracle_timeline::{BlockError, StoredRecord, records_of_server};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Records of an answer.
pub const MOST_RECORDS: usize = 20_000;
/// The longest answer.
pub const MOST_BYTES: usize = 4 << 20;
/// Header of answers that do not have everything that was asked for.
pub const INCOMPLETE: &str = "coracle-incomplete";

/// Why a server does not answer.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// No connection.
    #[error("it cannot be reached")]
    Unreachable(#[from] RelayError),
    /// The request cannot be made.
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    /// It refused.
    #[error("it answered {0}")]
    Refused(StatusCode),
    /// More than is read of an answer.
    #[error("its answer has more than {MOST_BYTES} bytes")]
    TooLong,
    /// The answer ended early.
    #[error("its answer ended early")]
    Cut(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is something else.
    #[error("its answer is no list of blocks")]
    Blocks(#[from] BlockError),
    /// It took too long.
    #[error("no answer in time")]
    Slow,
}

/// An answer.
#[derive(Debug)]
pub(super) struct PeerAnswer {
    pub(super) records: Vec<StoredRecord>,
    /// The server has more.
    pub(super) incomplete: bool,
}

/// A server that is asked.
pub(super) struct Peer {
    /// Its address.
    pub(super) server: String,
    link: Link,
}

enum Link {
    /// To be connected with the first question.
    Unconnected(Arc<Peers>),
    Connected(SendRequest<Full<Bytes>>),
}

impl Peer {
    pub(super) fn new(server: String, servers: Arc<Peers>) -> Self {
        Self { server, link: Link::Unconnected(servers) }
    }

    /// A server at the other end of a connection.
    #[cfg(test)]
    pub(super) async fn over<S>(server: &str, stream: S) -> Result<Self, PeerError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Ok(Self { server: server.to_owned(), link: Link::Connected(connect(stream).await?) })
    }

    /// Asks for records. One that fails is gone: what comes late must not be taken for the next answer.
    pub(super) async fn ask(self, question: Bytes) -> Result<(Self, PeerAnswer), PeerError> {
        let mut sender = match self.link {
            Link::Unconnected(servers) => connect(servers.connect(&self.server).await?).await?,
            Link::Connected(sender) => sender,
        };
        let answer = exchange(&mut sender, question).await?;
        Ok((Self { server: self.server, link: Link::Connected(sender) }, answer))
    }
}

async fn connect<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, PeerError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        let _ends_with_the_search = connection.await;
    });
    Ok(sender)
}

async fn exchange(sender: &mut SendRequest<Full<Bytes>>, question: Bytes) -> Result<PeerAnswer, PeerError> {
    let request = identified(Request::post(BETWEEN_SERVERS)).header(CONTENT_TYPE, BLOCKS);
    sender.ready().await?;
    let response = sender.send_request(request.body(Full::new(question))?).await?;
    if response.status() != StatusCode::OK {
        return Err(PeerError::Refused(response.status()));
    }
    let incomplete = response.headers().contains_key(INCOMPLETE);
    let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => PeerError::TooLong,
        false => PeerError::Cut(error),
    })?;
    Ok(PeerAnswer { records: records_of_server(&body.to_bytes(), MOST_RECORDS)?, incomplete })
}
