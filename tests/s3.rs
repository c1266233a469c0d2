//! A server of S3 on a free port, gone when dropped: versitygw, which verifies signatures, or moto where there is no Go.

use crate::etcd::free_port;
use crate::{eventually, go, python};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const VERSITYGW: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
/// Credentials that it knows, and its region.
pub const ACCESS_KEY: &str = "an-access-key";
/// The secret of that key.
pub const SECRET_KEY: &str = "a/secret+key=";
/// Part of every signature.
pub const REGION: &str = "eu-central-1";

/// A running server of S3.
pub struct S3Server {
    child: Child,
    _files: tempfile::TempDir,
    /// `http://127.0.0.1:port`.
    pub endpoint: String,
}

impl S3Server {
    /// Starts one with an empty bucket.
    ///
    /// # Panics
    /// When it cannot be installed or started.
    pub fn start(bucket: &str) -> Self {
        Self::verifying(bucket).unwrap_or_else(|| {
            let interpreter = python::environment("python-moto", "moto[server]");
            let mut moto = Command::new(interpreter.with_file_name("moto_server"));
            let port = free_port();
            moto.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
            Self::listening(moto, port, tempfile::tempdir().expect("a directory"), bucket)
        })
    }

    /// Starts one that verifies signatures; `None` where there is no Go.
    ///
    /// # Panics
    /// When it cannot be built or started.
    pub fn verifying(bucket: &str) -> Option<Self> {
        let mut gateway = Command::new(go::program("versitygw", VERSITYGW)?);
        let (files, port) = (tempfile::tempdir().expect("a directory"), free_port());
        let (objects, attributes) = (files.path().join("objects"), files.path().join("attributes"));
        for dir in [&objects, &attributes] {
            std::fs::create_dir(dir).expect("a directory");
        }
        gateway.args(["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION, "--port"]);
        gateway.arg(format!("127.0.0.1:{port}"));
        // Not every file system has extended attributes.
        gateway.args(["posix", "--sidecar"]).arg(attributes).arg(objects);
        Some(Self::listening(gateway, port, files, bucket))
    }

    fn listening(mut program: Command, port: u16, files: tempfile::TempDir, bucket: &str) -> Self {
        let child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let address = format!("127.0.0.1:{port}");
        let child = child.unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let server = Self { child, _files: files, endpoint: format!("http://{address}") };
        eventually("S3 listens", Duration::from_secs(60), || TcpStream::connect(&address).is_ok());
        server.curl(&["-X", "PUT"], bucket);
        server
    }

    /// A request that curl signs, for a path that is encoded.
    ///
    /// # Panics
    /// When it is refused.
    pub fn curl(&self, args: &[&str], path: &str) {
        let (scope, user) = (format!("aws:amz:{REGION}:s3"), format!("{ACCESS_KEY}:{SECRET_KEY}"));
        let mut curl = Command::new("curl");
        curl.args(["-s", "--fail-with-body", "--aws-sigv4", &scope, "--user", &user]);
        // Older versions of curl sign the header, but do not add it.
        curl.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        let output = curl.args(args).arg(format!("{}/{path}", self.endpoint)).output();
        let output = output.expect("curl can be started");
        assert!(output.status.success(), "{curl:?}: {}", String::from_utf8_lossy(&output.stdout));
    }

    /// The environment of programs that use it.
    pub fn environment(&self) -> [(&str, &str); 4] {
        [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_ENDPOINT_URL_S3", &self.endpoint),
            ("AWS_REGION", REGION),
        ]
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
