//! Connections into a sandbox.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use tokio::sync::oneshot;

use super::Execs;
use crate::error::internal;
use crate::namespace::{is_host, namespace_options};
use crate::record::SandboxPhase;
use crate::runtime::{Duplex, Result, RuntimeError};

impl Execs {
    /// Connects to a port on the sandbox's loopback.
    pub(crate) async fn port_forward(&self, id: &str, port: u16) -> Result<Box<dyn Duplex>> {
        let sandbox = self.objects.sandbox(id)?;
        if sandbox.phase() != SandboxPhase::Ready {
            return Err(RuntimeError::FailedPrecondition(format!("sandbox container {id:?} is not running")));
        }
        let host = is_host(namespace_options(&sandbox.record.lock().config).network());
        let netns = (!host).then(|| self.paths.namespace(&sandbox.id, "net"));
        let (sender, receiver) = oneshot::channel();
        // A dedicated thread, because returning from the namespace could fail.
        std::thread::Builder::new()
            .name("port-forward".into())
            .spawn(move || {
                let connect = || -> Result<TcpStream, ConnectError> {
                    if let Some(path) = netns {
                        setns(File::open(path)?.as_fd(), CloneFlags::CLONE_NEWNET)
                            .map_err(io::Error::from)?;
                    }
                    let stream = loopback(port)?;
                    stream.set_nonblocking(true)?;
                    Ok(stream)
                };
                let _ = sender.send(connect());
            })
            .map_err(internal("thread"))?;
        let stream = receiver.await.map_err(internal("port-forward"))?.map_err(|error| {
            RuntimeError::Internal(format!(
                "failed to execute portforward in network namespace of sandbox {id:?}: \
                 failed to connect to localhost:{port} inside namespace {id:?}, {error}"
            ))
        })?;
        Ok(Box::new(tokio::net::TcpStream::from_std(stream).map_err(internal("port-forward"))?))
    }
}

/// Why a port of a sandbox cannot be reached.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Nothing listens on either loopback address.
    #[error("IPv4: {four} IPv6: {six}")]
    Loopback { four: DialError, six: DialError },
}

/// Worded as in other runtimes.
#[derive(Debug, thiserror::Error)]
#[error("dial {network} {to}: connect: {}", in_lower_case(.error))]
struct DialError {
    network: &'static str,
    to: SocketAddr,
    error: io::Error,
}

fn in_lower_case(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_lowercase(),
        None => error.to_string(),
    }
}

/// Connects to the port on 127.0.0.1 or ::1.
fn loopback(port: u16) -> Result<TcpStream, ConnectError> {
    let dial =
        |network, to: SocketAddr| TcpStream::connect(to).map_err(|error| DialError { network, to, error });
    let four = match dial("tcp4", SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    dial("tcp6", SocketAddr::from((Ipv6Addr::LOCALHOST, port)))
        .map_err(|six| ConnectError::Loopback { four, six })
}
