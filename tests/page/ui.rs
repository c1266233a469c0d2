//! `coracle ui`, running.

use coracle_tests::program;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running proxy, gone when dropped.
pub struct Ui {
    child: Child,
    /// The address of the page.
    pub page: String,
}

impl Ui {
    pub fn start(kubeconfig: &Path) -> Self {
        let mut child = Command::new(program("coracle"))
            .args(["ui", "--no-open", "--kubeconfig"])
            .arg(kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut page = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut page).unwrap();
        Self { child, page: page.trim().to_owned() }
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        self.page.trim_start_matches("http://").split('/').next().unwrap()
    }

    /// The path of the page without `/ui/`.
    pub fn root(&self) -> &str {
        self.page.trim_start_matches("http://").trim_start_matches(self.host()).trim_end_matches("/ui/")
    }

    /// One request as it is; the whole answer.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut stream = TcpStream::connect(self.host()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request.push_str(&format!("Host: {}\r\n", self.host()));
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
