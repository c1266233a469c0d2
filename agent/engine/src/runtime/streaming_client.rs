//! Client of CRI streaming: connects to the URL of Exec, Attach or PortForward over WebSocket.
//!
//! Channels are the first byte of each message, as in `v5.channel.k8s.io`: 0 stdin, 1 stdout, 2 stderr, 3 error,
//! 4 resize, 255 close. Port-forward has data on 0 and errors on 1, each opened by two bytes of port number.

use bytes::Bytes;
use coracle_proto::cri;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderValue, Uri};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{Duplex, Result, RuntimeError, Session, TerminalSize};

const BUFFER: usize = 32 << 10;
type Socket = WebSocketStream<TcpStream>;

/// Which streams the caller asked for.
#[derive(Debug, Clone, Copy)]
pub struct RequestedStreams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl From<&cri::ExecRequest> for RequestedStreams {
    fn from(r: &cri::ExecRequest) -> Self {
        Self { stdin: r.stdin, stdout: r.stdout, stderr: r.stderr && !r.tty }
    }
}

impl From<&cri::AttachRequest> for RequestedStreams {
    fn from(r: &cri::AttachRequest) -> Self {
        Self { stdin: r.stdin, stdout: r.stdout, stderr: r.stderr && !r.tty }
    }
}

fn broken(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Unavailable(format!("streaming connection to the runtime: {error}"))
}

async fn connect(url: &str, protocols: &'static str) -> Result<Socket> {
    let url = url.replacen("http://", "ws://", 1);
    let uri: Uri = url.parse().map_err(broken)?;
    let host = uri.host().ok_or_else(|| broken(format!("no host in {url:?}")))?;
    let port = uri.port_u16().unwrap_or(80);
    let mut request = (&uri).into_client_request().map_err(broken)?;
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
    let tcp = TcpStream::connect((host, port)).await.map_err(broken)?;
    let (socket, _) = tokio_tungstenite::client_async(request, tcp).await.map_err(broken)?;
    Ok(socket)
}

/// Opens the URL of an Exec or Attach answer.
pub async fn session(url: &str, wanted: RequestedStreams) -> Result<Session> {
    let socket = connect(url, "v5.channel.k8s.io, v4.channel.k8s.io").await?;
    let (sink, source) = socket.split();
    let (resize, sizes) = mpsc::channel(4);
    let (done, exit) = oneshot::channel();
    let pipe = |wanted: bool| wanted.then(|| tokio::io::duplex(BUFFER)).unzip();
    let (stdin, stdin_far): (Option<DuplexStream>, Option<DuplexStream>) = pipe(wanted.stdin);
    let (stdout, stdout_far): (Option<DuplexStream>, _) = pipe(wanted.stdout);
    let (stderr, stderr_far): (Option<DuplexStream>, _) = pipe(wanted.stderr);
    let upstream = tokio::spawn(send(sink, stdin_far, sizes));
    tokio::spawn(async move {
        let code = receive(source, [stdout_far, stderr_far]).await;
        upstream.abort();
        let _ = done.send(code);
    });
    Ok(Session {
        stdin: stdin.map(|s| Box::new(s) as _),
        stdout: stdout.map(|s| Box::new(s) as _),
        stderr: stderr.map(|s| Box::new(s) as _),
        resize,
        exit,
    })
}

async fn send(
    mut sink: SplitSink<Socket, Message>,
    mut stdin: Option<DuplexStream>,
    mut sizes: mpsc::Receiver<TerminalSize>,
) {
    let mut buffer = vec![0; BUFFER];
    let mut sizes_open = true;
    loop {
        let message = tokio::select! {
            read = async { stdin.as_mut().expect("guarded").read(&mut buffer[1..]).await }, if stdin.is_some() => match read {
                Ok(n) if n > 0 => { buffer[0] = 0; buffer[..=n].to_vec() }
                _ => { stdin = None; vec![255, 0] }
            },
            size = sizes.recv(), if sizes_open => match size {
                Some(TerminalSize { width, height }) => format!("\u{4}{{\"Width\":{width},\"Height\":{height}}}").into_bytes(),
                None => { sizes_open = false; continue }
            },
            else => return std::future::pending().await,
        };
        if sink.send(Message::Binary(message.into())).await.is_err() {
            return;
        }
    }
}

async fn receive(mut source: SplitStream<Socket>, mut outputs: [Option<DuplexStream>; 2]) -> Result<i32> {
    while let Some(message) = source.next().await {
        let data: Bytes = match message.map_err(broken)? {
            Message::Binary(data) => data,
            Message::Close(_) => break,
            _ => continue,
        };
        match data.first() {
            Some(&channel @ (1 | 2)) => {
                let output = &mut outputs[usize::from(channel) - 1];
                if let Some(stream) = output
                    && stream.write_all(&data[1..]).await.is_err()
                {
                    *output = None;
                }
            }
            Some(3) => return exit_code(&data[1..]),
            _ => {}
        }
    }
    Ok(0)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

/// The exit code in the Status of the error channel.
fn exit_code(status: &[u8]) -> Result<i32> {
    let status: Status = serde_json::from_slice(status).map_err(broken)?;
    if status.status == "Success" {
        return Ok(0);
    }
    let cause = status.details.causes.iter().find(|c| c.reason == "ExitCode");
    match cause.and_then(|c| c.message.parse().ok()) {
        Some(code) if status.reason == "NonZeroExitCode" => Ok(code),
        _ => Err(RuntimeError::Internal(status.message)),
    }
}

/// Opens the URL of a PortForward answer for one port.
pub async fn port(url: &str, port: u16) -> Result<Box<dyn Duplex>> {
    let separator = if url.contains('?') { '&' } else { '?' };
    let socket = connect(&format!("{url}{separator}port={port}"), "v4.channel.k8s.io").await?;
    let (sink, source) = socket.split();
    let (near, far) = tokio::io::duplex(BUFFER);
    let (reader, writer) = tokio::io::split(far);
    tokio::spawn(port_out(sink, reader));
    tokio::spawn(port_in(source, writer));
    Ok(Box::new(near))
}

async fn port_out(mut sink: SplitSink<Socket, Message>, mut reader: ReadHalf<DuplexStream>) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(n @ 1..) = reader.read(&mut buffer[1..]).await {
        if sink.send(Message::Binary(buffer[..=n].to_vec().into())).await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}

async fn port_in(mut source: SplitStream<Socket>, mut writer: WriteHalf<DuplexStream>) {
    // Each channel starts with the port number it belongs to.
    let mut opened = [false; 2];
    while let Some(Ok(message)) = source.next().await {
        let Message::Binary(data) = message else { continue };
        let Some((&channel @ (0 | 1), mut data)) = data.split_first() else { continue };
        if !std::mem::replace(&mut opened[usize::from(channel)], true) {
            data = data.get(2..).unwrap_or_default();
        }
        if channel == 1 && !data.is_empty() {
            tracing::warn!(error = %String::from_utf8_lossy(data), "port-forward in the runtime");
            break;
        }
        if channel == 0 && writer.write_all(data).await.is_err() {
            break;
        }
    }
    let _ = writer.shutdown().await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_exit_codes_from_the_error_channel() {
        assert_eq!(exit_code(br#"{"status":"Success"}"#), Ok(0));
        let failed = br#"{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated with non-zero exit code",
            "details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        assert_eq!(exit_code(failed), Ok(7));
        let broken = br#"{"status":"Failure","reason":"InternalError","message":"container not running"}"#;
        assert_eq!(exit_code(broken), Err(RuntimeError::Internal("container not running".into())));
        assert!(exit_code(b"junk").is_err());
    }
}
