//! Netlink on the wire: enough for rtnetlink and nf_tables, synchronous, without a runtime.
//!
//! The plugins are processes of a millisecond: a dozen requests, most of them sent in one datagram. One small wire
//! layer for both families costs less than a typed stack for the first and another one for the second.

mod message;
mod socket;

pub use message::{Attribute, Attributes, Message, u16_at, u32_at};
pub use socket::{Protocol, Socket};

use nix::errno::Errno;

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused it.
    #[error("{action}: {errno}{}", hint(.message))]
    Refused {
        /// What was asked for.
        action: String,
        /// The kernel's code.
        errno: Errno,
        /// The kernel's words, when it has some.
        message: String,
    },
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(Errno),
    /// An attribute does not fit into the 64 KiB that its length can say.
    #[error("{action}: netlink attribute is too long")]
    TooLong {
        /// What was to be asked for.
        action: String,
    },
    /// The answer makes no sense.
    #[error("netlink: malformed answer")]
    Malformed,
}

fn hint(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

impl Error {
    /// The kernel's code, if it gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Refused { errno, .. } | Error::Socket(errno) => Some(*errno),
            Error::TooLong { .. } | Error::Malformed => None,
        }
    }
}

/// Outcome of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Success when the kernel's complaint is the expected one.
pub trait Tolerate {
    /// Turns the refusals `errnos` into success.
    fn tolerate(self, errnos: &[Errno]) -> Result<()>;
}

impl Tolerate for Result<()> {
    fn tolerate(self, errnos: &[Errno]) -> Result<()> {
        match self {
            Err(e) if e.errno().is_some_and(|errno| errnos.contains(&errno)) => Ok(()),
            other => other,
        }
    }
}
