//! Readiness notification: a program writes a line to an inherited file descriptor when it is ready, as under s6.

use parking_lot::Mutex;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, RawFd};
use std::sync::Arc;

/// Environment variable with the number of the file descriptor.
pub const DESCRIPTOR: &str = "CORACLE_READY_FD";

/// Sends the notification once; does nothing without a file descriptor.
#[derive(Debug, Clone, Default)]
pub struct Ready(Arc<Mutex<Option<File>>>);

impl Ready {
    /// Takes the descriptor that [`DESCRIPTOR`] names. To be called once, and before this program starts others: they would
    /// inherit it.
    pub fn inherited() -> Self {
        let number = std::env::var(DESCRIPTOR).ok().and_then(|number| number.parse::<RawFd>().ok());
        Self::on(number.filter(|number| *number > 2).and_then(take))
    }

    fn on(file: Option<File>) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    /// Sends the notification at the first call. Errors are ignored: the reader may be gone.
    pub fn tell(&self) {
        if let Some(mut file) = self.0.lock().take() {
            let _ = file.write_all(b"\n");
        }
    }
}

/// The descriptor with this number, closed when another program is executed.
fn take(number: RawFd) -> Option<File> {
    // SAFETY: the environment says that the descriptor was opened for this program, and nothing else in it uses the number.
    #[allow(unsafe_code)]
    let file = unsafe { File::from_raw_fd(number) };
    match file.try_clone() {
        Ok(own) => Some(own),
        Err(_) => {
            // There is no such descriptor, and nothing to close.
            std::mem::forget(file);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read;
    use std::os::fd::{IntoRawFd, OwnedFd};

    #[test]
    fn it_is_told_once_and_the_descriptor_is_closed() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let number = OwnedFd::from(writer).into_raw_fd();
        let ready = Ready::on(take(number));
        ready.tell();
        ready.tell();
        let mut told = String::new();
        reader.read_to_string(&mut told).unwrap();
        assert_eq!(told, "\n");
    }

    #[test]
    fn nobody_needs_to_listen() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Ready::on(take(OwnedFd::from(writer).into_raw_fd())).tell();
        Ready::default().tell();
    }
}
