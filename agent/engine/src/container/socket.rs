//! The socket at which a process of our own runtime waits to exec the program of its container.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Starts the process, and deletes the socket: the OCI runtime takes a container without a socket for running.
pub(super) fn connect(dir: &Path, name: &str) -> io::Result<()> {
    // Through a descriptor: the path of a socket is limited to 107 bytes.
    let opened = File::open(dir)?;
    let path = format!("/proc/self/fd/{}/{name}", opened.as_raw_fd());
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => io::Error::other("container process is already dead"),
        _ => error,
    })?;
    // The process reads until the end, whatever is written.
    stream.write_all(b"start container")?;
    drop(stream);
    fs::remove_file(dir.join(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_waiting_process_is_let_go_and_its_socket_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        connect(dir.path(), "s").unwrap();
        assert!(!dir.path().join("s").exists());
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
    }

    #[test]
    fn one_that_died_while_it_waited_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        // Nobody listens; one that was closed might be inherited by a process of another test.
        let socket =
            socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let address = UnixAddr::new(&dir.path().join("s")).unwrap();
        socket::bind(socket.as_raw_fd(), &address).unwrap();
        assert!(connect(dir.path(), "s").unwrap_err().to_string().contains("already dead"));
    }
}
