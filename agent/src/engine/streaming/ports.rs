//! Forwarded ports over WebSocket channels: for the n-th port, 2n carries data and 2n+1 errors; each begins with the
//! port's number, low byte first.

use coracle_proto::cri;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use super::Socket;
use crate::runtime::{Duplex, Runtime};

/// Channels are one byte, two per port.
const MAX_PORTS: usize = 127;

/// Ports in a query: `port=80&port=443`, `ports=80,443`.
pub fn asked(query: &str) -> Vec<u16> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let values = pairs.filter(|(key, _)| matches!(*key, "port" | "ports")).flat_map(|(_, v)| v.split(','));
    values.filter_map(|port| port.parse().ok()).filter(|port| *port > 0).collect()
}

/// Forwards until the client goes.
pub async fn serve(
    socket: Socket,
    runtime: &dyn Runtime,
    request: cri::PortForwardRequest,
    mut ports: Vec<u16>,
) {
    if ports.is_empty() {
        ports = request.port.iter().filter_map(|port| u16::try_from(*port).ok()).collect();
    }
    ports.truncate(MAX_PORTS);
    let (mut sink, mut source) = socket.split();
    let (messages, mut outgoing) = mpsc::channel::<Vec<u8>>(8);
    let mut writers: Vec<Option<WriteHalf<Box<dyn Duplex>>>> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let (data, error) = (2 * index as u8, 2 * index as u8 + 1);
        let [low, high] = port.to_le_bytes();
        for channel in [data, error] {
            if sink.send(Message::Binary(vec![channel, low, high].into())).await.is_err() {
                return;
            }
        }
        match runtime.port_forward(&request.pod_sandbox_id, *port).await {
            Ok(connection) => {
                let (mut reader, writer) = tokio::io::split(connection);
                writers.push(Some(writer));
                let messages = messages.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 32 << 10];
                    while let Ok(n @ 1..) = reader.read(&mut buffer).await {
                        if messages.send([&[data][..], &buffer[..n]].concat()).await.is_err() {
                            return;
                        }
                    }
                });
            }
            Err(failed) => {
                writers.push(None);
                let text = [&[error][..], failed.to_string().as_bytes()].concat();
                let _ = sink.send(Message::Binary(text.into())).await;
            }
        }
    }
    drop(messages);
    loop {
        tokio::select! {
            message = outgoing.recv() => {
                let Some(message) = message else { break };
                if sink.send(Message::Binary(message.into())).await.is_err() {
                    return;
                }
            }
            message = source.next() => match message {
                Some(Ok(Message::Binary(data))) => {
                    let Some((channel, data)) = data.split_first() else { continue };
                    if let Some(Some(writer)) = writers.get_mut(usize::from(channel / 2))
                        && channel % 2 == 0
                        && writer.write_all(data).await.is_err()
                    {
                        return;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    let _ = sink.close().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ports_of_a_query() {
        assert_eq!(asked("port=80&port=443"), [80, 443]);
        assert_eq!(asked("ports=80,443&x=1"), [80, 443]);
        assert_eq!(asked("port=0&port=x"), [0u16; 0]);
    }
}
