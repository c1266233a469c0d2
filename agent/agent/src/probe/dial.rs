//! TCP connections of probes and hooks.

use nix::errno::Errno;
use std::io::{Error, ErrorKind};

/// A connection that was not established. The wording is that of Go's dialer.
#[derive(Debug, thiserror::Error)]
#[error("dial tcp {address}: {}", reason(.source))]
pub struct DialError {
    /// `host:port`.
    pub address: String,
    /// The cause.
    pub source: Error,
}

fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => match error.raw_os_error().map(Errno::from_raw) {
            Some(errno) => format!("connect: {}", errno.desc().to_lowercase()),
            None => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_read_as_those_of_go() {
        for (source, want) in [
            (Error::from(ErrorKind::ConnectionRefused), "dial tcp h:1: connect: connection refused"),
            (Error::from(ErrorKind::TimedOut), "dial tcp h:1: i/o timeout"),
            (Error::from(Errno::EHOSTUNREACH), "dial tcp h:1: connect: no route to host"),
            (Error::other("no such name"), "dial tcp h:1: no such name"),
        ] {
            assert_eq!(DialError { address: "h:1".to_owned(), source }.to_string(), want);
        }
    }
}
