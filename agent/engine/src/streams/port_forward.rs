//! Forwarded ports: for each connection a stream of data and one of errors.
//!
//! Over SPDY the client opens a pair per connection, with the port in its headers. Over WebSocket channels the ports are in
//! the query: for the n-th, 2n carries data and 2n+1 errors, each beginning with the port's number, low byte first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::handshake::Framing;
use super::websocket::Io;
use super::{CHUNK, CLOSE_TIMEOUT, CREATION_TIMEOUT, Input, Output, spdy, websocket};
use crate::runtime::Execs;

/// Channels are one byte, two per port; in base64 one digit.
const MAX_PORTS: usize = 127;
const MAX_PORTS_BASE64: usize = 5;

/// Sandbox to connect to.
#[derive(Clone)]
pub struct Target {
    /// The container runtime.
    pub runtime: Arc<dyn Execs>,
    /// The sandbox.
    pub sandbox: String,
    /// The pod's name, for error messages.
    pub pod: String,
    /// The pod's uid, for error messages.
    pub uid: String,
}

/// Invalid ports in a query. The wording is the kubelet's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PortError {
    /// None at all.
    #[error("query parameter \"port\" is required")]
    Missing,
    /// Nothing behind the `=`.
    #[error("query parameter \"port\" cannot be empty")]
    Empty,
    /// Not a number.
    #[error("unable to parse {0:?} as a port: strconv.ParseUint: parsing {0:?}: invalid syntax")]
    NotANumber(String),
    /// Zero.
    #[error("port {0:?} must be > 0")]
    Zero(String),
}

/// One port, as text.
pub fn parse_port(text: &str) -> Result<u16, PortError> {
    match text.parse::<u16>() {
        Ok(0) => Err(PortError::Zero(text.to_owned())),
        Ok(port) => Ok(port),
        Err(_) if text.is_empty() => Err(PortError::Empty),
        Err(_) => Err(PortError::NotANumber(text.to_owned())),
    }
}

/// Ports of a query's pairs: `port=80&port=443`, `ports=80,443`.
pub fn asked<'a>(query: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Vec<u16>, PortError> {
    let values = query.filter(|(key, _)| matches!(*key, "port" | "ports"));
    let ports: Vec<u16> =
        values.flat_map(|(_, value)| value.split(',')).map(parse_port).collect::<Result<_, _>>()?;
    if ports.is_empty() { Err(PortError::Missing) } else { Ok(ports) }
}

/// Forwards until the peer goes away. `ports` matter to WebSocket channels only.
pub async fn serve<T: Io + 'static>(io: T, framing: Framing, target: Target, ports: Vec<u16>) {
    match framing {
        Framing::Spdy(_) => pairs(spdy::Connection::start(io), target).await,
        Framing::Tunnel => pairs(spdy::Connection::start(websocket::tunnel(io).await), target).await,
        Framing::Channels { base64, .. } => channels(io, base64, target, ports).await,
    }
}

#[derive(Default)]
struct Pair {
    data: Option<spdy::Stream>,
    error: Option<spdy::Stream>,
}

async fn pairs(mut connection: spdy::Connection, target: Target) {
    let mut waiting: HashMap<String, (Instant, Pair)> = HashMap::new();
    let mut running = JoinSet::new();
    while let Some(stream) = connection.accept().await {
        while running.try_join_next().is_some() {}
        waiting.retain(|_, (since, _)| since.elapsed() < CREATION_TIMEOUT);
        let text = |name: &str| stream.headers.get(name).cloned().unwrap_or_default();
        let (kind, id) = (text("streamtype"), text("requestid"));
        // Old clients give no number: the error stream comes right before its data stream.
        let id = match (id.is_empty(), kind.as_str()) {
            (true, "data") => stream.id.saturating_sub(2).to_string(),
            (true, _) => stream.id.to_string(),
            (false, _) => id,
        };
        if !matches!(kind.as_str(), "data" | "error") || parse_port(&text("port")).is_err() {
            stream.output.reset().await;
            continue;
        }
        let (_, pair) = waiting.entry(id.clone()).or_insert_with(|| (Instant::now(), Pair::default()));
        if kind == "data" {
            pair.data = Some(stream)
        } else {
            pair.error = Some(stream)
        }
        if pair.data.is_some() && pair.error.is_some() {
            let pair = waiting.remove(&id).map(|(_, pair)| pair).unwrap_or_default();
            if let (Some(data), Some(error)) = (pair.data, pair.error) {
                running.spawn(forward_pair(target.clone(), data, error));
            }
        }
    }
}

async fn forward_pair(target: Target, data: spdy::Stream, error: spdy::Stream) {
    let port = data.headers.get("port").and_then(|port| port.parse().ok()).unwrap_or_default();
    let streams = (data.input, Output::Spdy(data.output), Output::Spdy(error.output));
    tokio::select! {
        () = forward(&target, port, streams) => {}
        () = data.ended.cancelled() => {}
    }
}

async fn channels<T: Io + 'static>(io: T, base64: bool, target: Target, mut ports: Vec<u16>) {
    ports.truncate(if base64 { MAX_PORTS_BASE64 } else { MAX_PORTS });
    let numbers: Vec<u8> = (0..ports.len()).map(|index| 2 * index as u8).collect();
    let (connection, inputs) = websocket::Connection::start(io, base64, &numbers).await;
    let mut running = JoinSet::new();
    for ((port, data), input) in ports.into_iter().zip(numbers).zip(inputs) {
        let output = |channel| Output::WebSocket(connection.output(channel));
        let (data, error) = (output(data), output(data + 1));
        for channel in [&data, &error] {
            if channel.write(&port.to_le_bytes()).await.is_err() {
                return;
            }
        }
        let target = target.clone();
        running.spawn(async move { forward(&target, port, (input, data, error)).await });
    }
    let gone = connection.gone.clone();
    tokio::select! {
        () = async { while running.join_next().await.is_some() {} } => connection.close().await,
        () = gone.cancelled() => {}
    }
}

/// Copies one connection in both directions.
async fn forward(target: &Target, port: u16, (mut input, data, error): (Input, Output, Output)) {
    let connection = match target.runtime.port_forward(&target.sandbox, port).await {
        Ok(connection) => connection,
        Err(why) => {
            let text =
                format!("error forwarding port {port} to pod {}, uid {}: {why}", target.pod, target.uid);
            let _ = error.write(text.as_bytes()).await;
            error.finish().await;
            data.reset().await;
            return;
        }
    };
    let (mut reader, mut writer) = tokio::io::split(connection);
    let out = async {
        let mut buffer = vec![0; CHUNK];
        while let Ok(n @ 1..) = reader.read(&mut buffer).await {
            if data.write(&buffer[..n]).await.is_err() {
                return;
            }
        }
        data.finish().await;
    };
    let back = async {
        while let Some(bytes) = input.recv().await {
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    };
    tokio::pin!(out, back);
    let half = tokio::select! {
        () = &mut out => true,
        () = &mut back => {
            out.await;
            false
        }
    };
    // Clients close their connection once the error stream has ended, so it must not wait for them to close.
    error.finish().await;
    // WebSocket channels have no end of stream: stops when the target closes its side.
    if half && matches!(data, Output::Spdy(_)) {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, back).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ports_of_a_query() {
        let ports = |pairs: &[(&'static str, &'static str)]| asked(pairs.iter().copied());
        assert_eq!(ports(&[("port", "80"), ("port", "443")]), Ok(vec![80, 443]));
        assert_eq!(ports(&[("ports", "80,443"), ("x", "1")]), Ok(vec![80, 443]));
        assert_eq!(ports(&[]), Err(PortError::Missing));
        assert_eq!(ports(&[("port", "")]), Err(PortError::Empty));
        assert_eq!(ports(&[("port", "0")]).map_err(|e| e.to_string()), Err("port \"0\" must be > 0".into()));
        assert!(ports(&[("port", "70000")]).is_err());
    }
}
