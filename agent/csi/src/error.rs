//! Failed calls.

use std::path::PathBuf;
use std::time::Duration;
use tonic::{Code, Status};

/// Longest part of a driver's message that is kept: it ends up in Events.
const MESSAGE: usize = 900;

/// A call to a driver or to its registration that failed. It may have taken effect; repeat it with the same arguments.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The driver answered with an error.
    #[error("{call}: rpc error: code = {code:?} desc = {message}")]
    Refused {
        /// Name of the call.
        call: &'static str,
        /// gRPC code.
        code: Code,
        /// The driver's words, shortened.
        message: String,
    },
    /// No answer within the time.
    #[error("{call}: no answer from {} within {} seconds", .socket.display(), .limit.as_secs())]
    Timeout {
        /// Name of the call.
        call: &'static str,
        /// Socket of the driver.
        socket: PathBuf,
        /// How long it was waited.
        limit: Duration,
    },
    /// Nobody listens on the socket, or the connection broke.
    #[error("{call}: cannot reach {}: {message}", .socket.display())]
    Unreachable {
        /// Name of the call.
        call: &'static str,
        /// Socket of the driver.
        socket: PathBuf,
        /// The cause.
        message: String,
    },
}

impl CallError {
    /// The failure that a status of gRPC stands for.
    pub fn new(call: &'static str, socket: &std::path::Path, status: &Status) -> Self {
        let mut message = status.message().to_owned();
        if message.len() > MESSAGE {
            let end = (0..=MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        // What a driver answers has no source; failures of the connection have one.
        if std::error::Error::source(status).is_some() {
            return CallError::Unreachable { call, socket: socket.to_owned(), message };
        }
        CallError::Refused { call, code: status.code(), message }
    }

    /// The code of gRPC that stands for it.
    pub fn code(&self) -> Code {
        match self {
            Self::Refused { code, .. } => *code,
            Self::Timeout { .. } => Code::DeadlineExceeded,
            Self::Unreachable { .. } => Code::Unavailable,
        }
    }

    /// Whether the driver said that it cannot do this, now or later.
    pub fn is_infeasible(&self) -> bool {
        let Self::Refused { code, .. } = self else { return false };
        matches!(code, Code::OutOfRange | Code::InvalidArgument | Code::NotFound)
    }

    /// Whether the driver said that it cannot do this while the volume is in use.
    pub fn is_in_use(&self) -> bool {
        matches!(self, CallError::Refused { code: Code::FailedPrecondition, .. })
    }

    /// Whether the driver said that it does not know the volume.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CallError::Refused { code: Code::NotFound, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let status = Status::new(Code::Internal, "ä".repeat(2000));
        let error = CallError::new("NodeStageVolume", std::path::Path::new("/s"), &status);
        let CallError::Refused { message, .. } = error else { panic!("{error}") };
        assert_eq!(message.chars().count(), MESSAGE / 2 + 1);
        assert!(message.ends_with('…'));
    }
}
