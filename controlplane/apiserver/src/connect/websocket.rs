//! A body in WebSocket messages: how browsers and others without chunked answers follow a log.
//!
//! Only the server speaks. In `binary.k8s.io`, and when the client names no protocol, messages are the bytes; in
//! `base64.binary.k8s.io` each is base64 of its own.

use crate::nodes::forward;
use crate::request_body::RequestBody;
use crate::respond::{self, Body};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";
/// How long the client may take to say goodbye, too.
const LINGER: Duration = Duration::from_secs(5);

/// The longest message that a client may send; none of them is used.
const LONGEST: usize = 64 << 10;

/// Whether a client asks for a WebSocket.
pub fn is_requested(headers: &HeaderMap) -> bool {
    let websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    forward::wants_upgrade(headers) && headers.get(UPGRADE).is_some_and(websocket)
}

/// A client that will be spoken to.
pub struct LogWebSocket {
    client: OnUpgrade,
    answer: HeaderMap,
    base64: bool,
}

/// Code and text of a refusal.
pub type Refused = (u16, String);

/// Takes the WebSocket out of a request, which is a plain one afterwards; refuses protocols that are not spoken.
pub fn accept(request: &mut Request<RequestBody>) -> Result<LogWebSocket, Refused> {
    let (answer, base64) = negotiate(request.headers())?;
    let client = hyper::upgrade::on(&mut *request);
    let headers = request.headers_mut();
    headers.remove(UPGRADE);
    headers.remove(CONNECTION);
    Ok(LogWebSocket { client, answer, base64 })
}

/// Headers of the 101, and whether messages are base64.
fn negotiate(headers: &HeaderMap) -> Result<(HeaderMap, bool), Refused> {
    let refused = |code, why: String| (code, format!("unable to upgrade websocket connection: {why}"));
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| refused(400, "no key".into()))?;
    let offered: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .filter(|name| !name.is_empty())
        .collect();
    let chosen = offered.iter().find_map(|name| [BINARY, BASE64].into_iter().find(|known| known == name));
    if chosen.is_none() && !offered.is_empty() {
        return Err(refused(403, format!("requested protocol(s) are not supported: {offered:?}")));
    }
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(chosen) = chosen {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
    }
    Ok((answer, chosen == Some(BASE64)))
}

impl LogWebSocket {
    /// The answer to the client, after which it gets the body message by message; ends when either side does.
    pub fn send_body(self, body: Body) -> Response<Body> {
        let Self { client, answer, base64 } = self;
        tokio::spawn(async move {
            if let Ok(client) = client.await {
                send(TokioIo::new(client), body, base64).await;
            }
        });
        let mut response = respond::text(101, "");
        *response.headers_mut() = answer;
        response
    }
}

fn message(data: Bytes, base64: bool) -> Message {
    if base64 { Message::Text(STANDARD.encode(&data).into()) } else { Message::Binary(data) }
}

async fn send<T>(client: T, mut body: Body, base64: bool)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin,
{
    let config = WebSocketConfig::default().max_message_size(Some(LONGEST)).max_frame_size(Some(LONGEST));
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(config)).await;
    let (mut sink, mut source) = socket.split();
    let said = async {
        // Something comes at once, also from a log that is silent.
        sink.send(message(Bytes::new(), base64)).await?;
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                sink.send(message(data, base64)).await?;
            }
        }
        // Clients take a close without a code for a failure.
        let goodbye = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sink.send(Message::Close(Some(goodbye))).await
    };
    let said = async { Result::<(), Error>::is_ok(&said.await) };
    // What the client says is of no interest, only its end.
    let gone = async { while let Some(Ok(_)) = source.next().await {} };
    tokio::pin!(gone);
    let whole = tokio::select! {
        whole = said => whole,
        () = &mut gone => return,
    };
    if whole {
        let _ = tokio::time::timeout(LINGER, gone).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(protocols: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        if !protocols.is_empty() {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
        }
        headers
    }

    #[test]
    fn protocols_are_the_clients_choice() {
        for (offered, chosen, base64) in [
            ("", None, false),
            ("binary.k8s.io", Some(BINARY), false),
            ("x, base64.binary.k8s.io, binary.k8s.io", Some(BASE64), true),
        ] {
            assert!(is_requested(&headers(offered)));
            let (answer, found) = negotiate(&headers(offered)).unwrap();
            let named = answer.get(SEC_WEBSOCKET_PROTOCOL).map(|name| name.to_str().unwrap());
            assert_eq!((named, found), (chosen, base64), "{offered}");
            assert_eq!(answer[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
        assert_eq!(negotiate(&headers("v4.channel.k8s.io")).unwrap_err().0, 403);
        let mut keyless = headers("");
        keyless.remove(SEC_WEBSOCKET_KEY);
        assert_eq!(negotiate(&keyless).unwrap_err().0, 400);
        keyless.remove(UPGRADE);
        assert!(!is_requested(&keyless));
    }

    #[tokio::test]
    async fn a_body_comes_in_messages_and_ends_with_a_goodbye() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let sending = tokio::spawn(send(ours, respond::full("line\n"), true));
        let client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        let got: Vec<Message> = client.map(Result::unwrap).collect().await;
        assert_eq!(got[..2], [Message::text(""), Message::text("bGluZQo=")]);
        assert!(matches!(&got[2..], [Message::Close(Some(frame))] if frame.code == CloseCode::Normal));
        sending.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_sends_a_long_message_is_disconnected() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let silent = futures::stream::pending::<Result<hyper::body::Frame<Bytes>, respond::BoxError>>();
        let body = http_body_util::StreamBody::new(silent).boxed_unsync();
        let sending = tokio::spawn(send(ours, body, false));
        let mut client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        let _ = client.send(Message::binary(vec![0_u8; LONGEST + 1])).await;
        tokio::time::timeout(LINGER, sending).await.unwrap().unwrap();
    }
}
