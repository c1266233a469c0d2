//! Synchronous netlink on sockets of `netlink-sys`, without an async runtime: a plugin runs for a millisecond and
//! sends a dozen requests.
//!
//! Messages of rtnetlink are those of `netlink-packet-route` ([`crate::route`]). No crate has all of nf_tables and
//! conntrack that is needed here; their messages are built by [`Message`] and read by [`Attributes`].

// Messages and attributes.
mod message;
// Sockets: requests and their answers.
mod socket;
// Results of requests.
mod outcome;

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
        /// The kernel's extended error message; may be empty.
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
    /// The reply cannot be parsed.
    #[error("netlink: malformed answer")]
    Malformed,
}

fn hint(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

impl Error {
    /// A system call on a socket or namespace failed.
    pub(crate) fn io(error: std::io::Error) -> Self {
        Error::Socket(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }

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

/// Treats expected errors as success.
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
