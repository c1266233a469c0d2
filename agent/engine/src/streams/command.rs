//! Exec and attach: stdin, stdout, stderr, the end and terminal sizes, each a stream of its own.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::future::Future;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handshake::{Framing, Version};
use super::websocket::Io;
use super::{CHUNK, CREATION_TIMEOUT, Input, Output, spdy, websocket};
use crate::runtime::{self, RuntimeError, Session, TerminalSize};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// Streams of the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestedStreams {
    /// Into the process.
    pub stdin: bool,
    /// Out of it.
    pub stdout: bool,
    /// Its errors; never with a terminal.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

/// Exec or attach, for the wording of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A new process.
    Exec,
    /// The container's own.
    Attach,
}

enum Connection {
    Spdy(spdy::Connection),
    WebSocket(websocket::Connection),
}

impl Connection {
    fn gone(&self) -> CancellationToken {
        match self {
            Self::Spdy(connection) => connection.gone.clone(),
            Self::WebSocket(connection) => connection.gone.clone(),
        }
    }

    async fn close(self) {
        match self {
            Self::Spdy(connection) => connection.close().await,
            Self::WebSocket(connection) => connection.close().await,
        }
    }
}

#[derive(Default)]
struct Streams {
    stdin: Option<Input>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    error: Option<Output>,
    resize: Option<Input>,
}

/// Copies the streams of a session until it ends. The session is dropped when the peer disconnects.
pub async fn serve<T: Io + 'static>(
    io: T,
    framing: Framing,
    asked: RequestedStreams,
    verb: Verb,
    open: impl Future<Output = runtime::Result<Session>>,
) {
    let (connection, streams, version) = match framing {
        Framing::Channels { base64, version } => {
            let (connection, streams) = channels(io, base64, asked).await;
            (Connection::WebSocket(connection), streams, version)
        }
        Framing::Spdy(version) => {
            let mut connection = spdy::Connection::start(io);
            let collected = collect(&mut connection, asked, version);
            let Ok(Some(streams)) = tokio::time::timeout(CREATION_TIMEOUT, collected).await else {
                tracing::debug!("timed out waiting for client to create streams");
                return;
            };
            (Connection::Spdy(connection), streams, version)
        }
        Framing::Tunnel => return,
    };
    let gone = connection.gone();
    let (stdout, stderr, error) = (streams.stdout.clone(), streams.stderr.clone(), streams.error.clone());
    let ended = tokio::select! {
        ended = run(streams, open) => ended,
        () = gone.cancelled() => return,
    };
    if let (Err(why), Some(code)) = (&ended, ended.as_ref().err().and_then(not_started)) {
        // As a shell does for a command that cannot be started: the error on stderr, and exit code 126 or 127.
        if let Some(output) = stderr.as_ref().or(stdout.as_ref()) {
            let _ = output.write(format!("{why}\r\n").as_bytes()).await;
        }
        end([stdout, stderr], error, &Ok(code), verb, version).await;
    } else {
        end([stdout, stderr], error, &ended, verb, version).await;
    }
    connection.close().await;
}

async fn end(
    outputs: [Option<Output>; 2],
    error: Option<Output>,
    ended: &runtime::Result<i32>,
    verb: Verb,
    version: Version,
) {
    for output in outputs.into_iter().flatten() {
        output.finish().await;
    }
    let Some(error) = error else { return };
    let text = error_stream_text(ended, verb, version);
    if !text.is_empty() {
        let _ = error.write(text.as_bytes()).await;
    }
    error.finish().await;
}

async fn channels<T: Io + 'static>(
    io: T,
    base64: bool,
    asked: RequestedStreams,
) -> (websocket::Connection, Streams) {
    let (connection, inputs) = websocket::Connection::start(io, base64, &[STDIN, RESIZE]).await;
    let mut inputs = inputs.into_iter();
    let output = |channel| Output::WebSocket(connection.output(channel));
    let streams = Streams {
        stdin: inputs.next().filter(|_| asked.stdin),
        resize: inputs.next().filter(|_| asked.tty),
        stdout: asked.stdout.then(|| output(STDOUT)),
        stderr: asked.stderr.then(|| output(STDERR)),
        error: Some(output(ERROR)),
    };
    // An empty message tells clients that the channels are ready.
    let first = streams.stdout.as_ref().or(streams.stderr.as_ref()).or(streams.error.as_ref());
    if let Some(first) = first {
        let _ = first.write(&[]).await;
    }
    (connection, streams)
}

/// Waits for the streams that were asked for.
async fn collect(
    connection: &mut spdy::Connection,
    asked: RequestedStreams,
    version: Version,
) -> Option<Streams> {
    let mut streams = Streams::default();
    let resize = asked.tty && version >= Version::TextAndResize;
    while streams.error.is_none()
        || (asked.stdin && streams.stdin.is_none())
        || (asked.stdout && streams.stdout.is_none())
        || (asked.stderr && streams.stderr.is_none())
        || (resize && streams.resize.is_none())
    {
        let stream = connection.accept().await?;
        let output = Output::Spdy(stream.output);
        match stream.headers.get("streamtype").map(String::as_str) {
            Some("error") => streams.error = Some(output),
            Some("stdin") => streams.stdin = Some(stream.input),
            Some("stdout") => streams.stdout = Some(output),
            Some("stderr") => streams.stderr = Some(output),
            Some("resize") => streams.resize = Some(stream.input),
            other => tracing::debug!(?other, "unexpected stream type"),
        }
    }
    Some(streams)
}

async fn run(streams: Streams, open: impl Future<Output = runtime::Result<Session>>) -> runtime::Result<i32> {
    let Session { stdin, stdout, stderr, resize, exit } = open.await?;
    // Dropped, and therefore aborted, with this future.
    let mut inputs = JoinSet::new();
    if let (Some(from), Some(to)) = (streams.stdin, stdin) {
        inputs.spawn(feed(from, to));
    }
    if let Some(from) = streams.resize {
        inputs.spawn(sizes(from, resize));
    }
    let mut outputs = JoinSet::new();
    for (from, to) in [(stdout, streams.stdout), (stderr, streams.stderr)] {
        if let (Some(from), Some(to)) = (from, to) {
            outputs.spawn(pump(from, to));
        }
    }
    while outputs.join_next().await.is_some() {}
    exit.await.unwrap_or(Ok(0))
}

async fn pump(mut from: impl AsyncRead + Unpin, to: Output) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if to.write(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

async fn feed(mut from: Input, mut to: runtime::Input) {
    while let Some(data) = from.recv().await {
        if to.write_all(&data).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Sizes are JSON documents, one after the other; what is not one is skipped.
async fn sizes(mut from: Input, to: mpsc::Sender<TerminalSize>) {
    let mut waiting: Vec<u8> = Vec::new();
    while let Some(data) = from.recv().await {
        for size in take_sizes(&mut waiting, &data) {
            let _ = to.send(size).await;
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

fn take_sizes(waiting: &mut Vec<u8>, data: &Bytes) -> Vec<TerminalSize> {
    const MAX: usize = 1024;
    waiting.extend_from_slice(data);
    let mut found = Vec::new();
    while let Some(end) = waiting.iter().position(|byte| *byte == b'}') {
        let document: Vec<u8> = waiting.drain(..=end).collect();
        if let Ok(Size { width, height }) = serde_json::from_slice(&document) {
            found.push(TerminalSize { width, height });
        }
    }
    if waiting.len() > MAX {
        waiting.clear();
    }
    found
}

/// The code a shell would give, when the command could not be started at all.
fn not_started(error: &RuntimeError) -> Option<i32> {
    let text = error.to_string();
    if !text.contains("exec failed") {
        return None;
    }
    if text.contains("executable file not found") || text.contains("no such file or directory") {
        return Some(127);
    }
    (text.contains("permission denied") || text.contains("is a directory") || text.contains("exec format"))
        .then_some(126)
}

/// The Status of an exit.
pub fn status_of(ended: &runtime::Result<i32>, verb: Verb) -> Value {
    match ended {
        Ok(0) => json!({ "metadata": {}, "status": "Success" }),
        Ok(code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": non_zero(*code),
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
        Err(error) => json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": format!("Internal error occurred: {}", failed(error, verb)),
            "details": { "causes": [{ "message": failed(error, verb) }] },
        }),
    }
}

fn non_zero(code: i32) -> String {
    format!("command terminated with non-zero exit code: error executing command, exit code {code}")
}

fn failed(error: &RuntimeError, verb: Verb) -> String {
    match verb {
        Verb::Exec => format!("error executing command in container: {error}"),
        Verb::Attach => format!("error attaching to container: {error}"),
    }
}

/// Final text of the error stream; empty on success with protocol versions before v4.
fn error_stream_text(ended: &runtime::Result<i32>, verb: Verb, version: Version) -> String {
    match (ended, version) {
        (_, Version::Status) => status_of(ended, verb).to_string(),
        (Ok(0), _) => String::new(),
        (Ok(code), _) => non_zero(*code),
        (Err(error), _) => format!("Internal error occurred: {}", failed(error, verb)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn exits_are_statuses() {
        assert_eq!(status_of(&Ok(0), Verb::Exec)["status"], "Success");
        assert_eq!(status_of(&Ok(7), Verb::Exec)["details"]["causes"][0]["message"], "7");
        let gone = Err(RuntimeError::NotFound("gone".into()));
        assert_eq!(
            status_of(&gone, Verb::Exec)["message"],
            "Internal error occurred: error executing command in container: gone"
        );
        assert_eq!(error_stream_text(&Ok(0), Verb::Exec, Version::Text), "");
        assert!(error_stream_text(&Ok(3), Verb::Exec, Version::TextAndResize).ends_with("exit code 3"));
    }

    #[test]
    fn sizes_come_in_pieces_and_garbage_is_skipped() {
        let mut waiting = Vec::new();
        let mut take = |text: &'static str| take_sizes(&mut waiting, &Bytes::from_static(text.as_bytes()));
        assert_eq!(take(r#"{"Width":80,"Hei"#), []);
        assert_eq!(take("ght\":24}\n"), [TerminalSize { width: 80, height: 24 }]);
        assert_eq!(
            take(r#"nonsense}{"Width":-1}{"Width":1,"Height":2}"#),
            [TerminalSize { width: 1, height: 2 }]
        );
    }

    #[test]
    fn a_command_that_cannot_start_has_a_shells_code() {
        let code = |text: &str| not_started(&RuntimeError::Internal(text.into()));
        let start = "OCI runtime exec failed: exec failed: unable to start container process: exec: \"x\": ";
        assert_eq!(code(&format!("{start}executable file not found in $PATH")), Some(127));
        assert_eq!(code(&format!("{start}permission denied")), Some(126));
        assert_eq!(code("container is in CONTAINER_EXITED state"), None);
    }
}
