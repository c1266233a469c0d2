//! moto, a server that answers as S3 does, from PyPI: on a free port, gone when dropped.

use crate::etcd::free_port;
use crate::{eventually, python};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server of S3.
pub struct S3Server {
    child: Child,
    /// `http://127.0.0.1:port`.
    pub endpoint: String,
}

impl S3Server {
    /// Starts one with an empty bucket.
    ///
    /// # Panics
    /// When it cannot be installed or started.
    pub fn start(bucket: &str) -> Self {
        let interpreter = python::environment("python-moto", "moto[server]");
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(interpreter.with_file_name("moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("moto can be started");
        let server = Self { child, endpoint: format!("http://{address}") };
        eventually("moto listens", Duration::from_secs(60), || TcpStream::connect(&address).is_ok());
        let url = format!("{}/{bucket}", server.endpoint);
        let made =
            Command::new("curl").args(["-sf", "-X", "PUT", &url]).status().expect("curl can be started");
        assert!(made.success(), "the bucket is made");
        server
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
