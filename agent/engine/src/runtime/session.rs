//! Streams of exec, attach and port-forward.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

pub use coracle_keeper::wire::TerminalSize;

use super::error::Result;

/// A byte stream out of a process.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;
/// A byte stream into a process; dropping it closes the process's stdin.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// Both directions of one forwarded connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A running exec or attach session. Streams that were not asked for are `None`; with a terminal, stderr is in stdout.
///
/// Read both outputs to their ends, then await `exit`: an exit that is not waited for still ends the session.
/// Dropping everything hangs up: an exec'd process gets EOF and SIGPIPE, an attached container is not touched.
pub struct Session {
    /// Into the process.
    pub stdin: Option<Input>,
    /// Out of the process.
    pub stdout: Option<Output>,
    /// Errors of the process.
    pub stderr: Option<Output>,
    /// Terminal sizes; sending without a terminal does nothing.
    pub resize: mpsc::Sender<TerminalSize>,
    /// Exit code of the exec'd process; for attach, 0 when the streams ended.
    pub exit: oneshot::Receiver<Result<i32>>,
}
