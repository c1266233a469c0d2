//! Debian's docker-registry on loopback.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::eventually;

/// bcrypt of `secret`.
const HTPASSWD: &str = "tester:$2b$05$XhTasYV4.Y0nqUX/s2Szh.BvHI66bdSWaWOfrnFgb3QCt0ic3FhFO\n";

/// A registry that ends with this value.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    /// `host:port`.
    pub address: String,
    /// Where it keeps its blobs.
    pub storage: PathBuf,
}

impl Registry {
    /// Starts one in `dir`; with `auth`, for the user `tester` with the password `secret`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(dir: &Path, auth: bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let address = format!("127.0.0.1:{port}");
        let storage = dir.join("registry");
        fs::create_dir_all(&storage).expect("storage");
        let htpasswd = dir.join("htpasswd");
        fs::write(&htpasswd, HTPASSWD).expect("htpasswd");
        let access = match auth {
            true => format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", htpasswd.display()),
            false => String::new(),
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n{access}",
            storage.display()
        );
        let path = dir.join("registry.yml");
        fs::write(&path, config).expect("config");
        let child = Command::new("docker-registry")
            .args(["serve"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is installed: scripts/deps test");
        eventually("the registry listens", Duration::from_secs(20), || TcpStream::connect(&address).is_ok());
        Registry { child, address, storage }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
