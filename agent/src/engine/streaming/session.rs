//! One exec or attach over WebSocket channels: the first byte of a message names its channel.
//!
//! 0 stdin, 1 stdout, 2 stderr, 3 the end as a Status, 4 terminal size, 255 closes a channel (v5).

use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::runtime::{Input, Result, Session, TerminalSize};

/// What is spoken, best first.
const PROTOCOLS: [&str; 3] = ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
const CHUNK: usize = 32 << 10;

/// The best of the client's protocols; one that offers none speaks the oldest.
pub fn choose(offered: &[String]) -> Option<&'static str> {
    if offered.is_empty() {
        return Some("channel.k8s.io");
    }
    PROTOCOLS.into_iter().find(|ours| offered.iter().any(|theirs| theirs == ours))
}

/// The Status of an exit.
pub fn status_of(exit: &Result<i32>) -> Value {
    match exit {
        Ok(0) => json!({ "metadata": {}, "status": "Success" }),
        Ok(code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: error executing command, exit code {code}"),
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
        Err(error) => json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": error.to_string(),
        }),
    }
}

/// Carries a session over a socket to its end.
pub async fn serve<S>(socket: S, protocol: &'static str, session: Result<Session>)
where
    S: Stream<Item = std::result::Result<Message, Error>>
        + futures::Sink<Message, Error = Error>
        + Send
        + 'static,
{
    let (mut sink, source) = socket.split();
    let (messages, mut outgoing) = mpsc::channel::<Vec<u8>>(4);
    let exit = match session {
        Err(error) => Err(error),
        Ok(session) => {
            let Session { stdin, stdout, stderr, resize, exit } = session;
            // Dropped, and so ended, when the client goes.
            let mut pumps = JoinSet::new();
            for (channel, output) in [(STDOUT, stdout), (STDERR, stderr)] {
                if let Some(output) = output {
                    pumps.spawn(pump(channel, output, messages.clone()));
                }
            }
            drop(messages);
            let mut input = JoinSet::new();
            input.spawn(take_input(source, stdin, resize));
            loop {
                tokio::select! {
                    message = outgoing.recv() => {
                        // None when both outputs have ended.
                        let Some(message) = message else { break };
                        if sink.send(Message::Binary(message.into())).await.is_err() {
                            return;
                        }
                    }
                    _ = input.join_next() => return,
                }
            }
            tokio::select! {
                exit = exit => exit.unwrap_or(Ok(0)),
                _ = input.join_next() => return,
            }
        }
    };
    let status = match (&exit, protocol) {
        // Before v4 the error channel is plain text, and silent when all is well.
        (Ok(0), "channel.k8s.io") => Vec::new(),
        (Ok(code), "channel.k8s.io") => format!("command terminated with exit code {code}").into_bytes(),
        (Err(error), "channel.k8s.io") => error.to_string().into_bytes(),
        (exit, _) => status_of(exit).to_string().into_bytes(),
    };
    if !status.is_empty() {
        let _ = sink.send(Message::Binary([&[ERROR][..], &status].concat().into())).await;
    }
    let _ = sink.close().await;
}

async fn pump(channel: u8, mut output: impl AsyncRead + Unpin, messages: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(n @ 1..) = output.read(&mut buffer).await {
        let message = [&[channel][..], &buffer[..n]].concat();
        if messages.send(message).await.is_err() {
            return;
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

/// Reads until the client goes; then the process's stdin is closed.
async fn take_input(
    mut source: impl Stream<Item = std::result::Result<Message, Error>> + Unpin,
    mut stdin: Option<Input>,
    resize: mpsc::Sender<TerminalSize>,
) {
    while let Some(Ok(message)) = source.next().await {
        let data: Bytes = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            Message::Close(_) => return,
            _ => continue,
        };
        match data.split_first() {
            Some((&STDIN, data)) => {
                if let Some(input) = &mut stdin
                    && (input.write_all(data).await.is_err() || input.flush().await.is_err())
                {
                    stdin = None;
                }
            }
            Some((&RESIZE, data)) => {
                if let Ok(Size { width, height }) = serde_json::from_slice(data) {
                    let _ = resize.send(TerminalSize { width, height }).await;
                }
            }
            Some((&CLOSE, [STDIN, ..])) => stdin = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeError;

    #[test]
    fn the_best_common_protocol_is_chosen() {
        let offered = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        assert_eq!(choose(&offered(&["v4.channel.k8s.io", "v5.channel.k8s.io"])), Some("v5.channel.k8s.io"));
        assert_eq!(choose(&offered(&["v4.channel.k8s.io"])), Some("v4.channel.k8s.io"));
        assert_eq!(choose(&[]), Some("channel.k8s.io"));
        assert_eq!(choose(&offered(&["v9"])), None);
    }

    #[test]
    fn exits_are_statuses() {
        assert_eq!(status_of(&Ok(0))["status"], "Success");
        assert_eq!(status_of(&Ok(7))["details"]["causes"][0]["message"], "7");
        let failed = status_of(&Err(RuntimeError::NotFound("gone".into())));
        assert_eq!((failed["status"].as_str(), failed["message"].as_str()), (Some("Failure"), Some("gone")));
    }
}
