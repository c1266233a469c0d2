//! A real etcd on a free port, gone when dropped.

use crate::eventually;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// A running etcd.
pub struct Etcd {
    _dir: tempfile::TempDir,
    child: Child,
    /// `127.0.0.1:port`.
    pub address: String,
}

/// A port that nobody listens on, and below those that the kernel gives to servers of other tests meanwhile.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id().wrapping_mul(31);
    let ports = std::iter::repeat_with(|| first.wrapping_add(u32::from(NEXT.fetch_add(1, Relaxed))) % 22_000);
    let mut ports = ports.map(|port| 10_000 + u16::try_from(port).unwrap_or_default()).take(22_000);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

impl Etcd {
    /// Starts one.
    ///
    /// # Panics
    /// When Debian's `etcd-server` is not installed.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (client, peer) = (free_port(), free_port());
        let address = format!("127.0.0.1:{client}");
        let child = Command::new("etcd")
            .env("ETCD_UNSUPPORTED_ARCH", "arm64")
            .args(["--name", "test", "--data-dir"])
            .arg(dir.path())
            .args(["--listen-client-urls", &format!("http://{address}")])
            .args(["--advertise-client-urls", &format!("http://{address}")])
            .args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://127.0.0.1:{peer}")])
            .args(["--initial-cluster", &format!("test=http://127.0.0.1:{peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd can be started: apt-get install etcd-server");
        let etcd = Self { _dir: dir, child, address };
        eventually("etcd listens", Duration::from_secs(60), || TcpStream::connect(&etcd.address).is_ok());
        etcd
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.signal(nix::sys::signal::Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(nix::sys::signal::Signal::SIGCONT);
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("a signal can be sent");
    }

    /// The bytes of a key, as far as they are text.
    ///
    /// # Panics
    /// When etcd does not answer.
    pub fn get(&self, key: &str) -> String {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let body = format!("{{\"key\":\"{}\"}}", STANDARD.encode(key));
        let url = format!("http://{}/v3/kv/range", self.address);
        let output =
            Command::new("curl").args(["-s", "-d", &body, &url]).output().expect("curl can be started");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let value =
            STANDARD.decode(answer["kvs"][0]["value"].as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&value).into_owned()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
