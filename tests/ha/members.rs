//! An etcd cluster whose members are started, killed and started again one by one.

use crate::etcd::free_port;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where a member runs.
#[derive(Debug, Clone)]
pub struct Place {
    /// A command that runs its arguments there, such as `nsenter --net=…`; empty: here.
    pub prefix: Vec<String>,
    /// The address that the member listens on.
    pub host: String,
    /// For clients.
    pub client_port: u16,
    /// For other members.
    pub peer_port: u16,
    /// For its data and its log.
    pub dir: PathBuf,
}

impl Place {
    /// `host:port` for clients.
    pub fn client(&self) -> String {
        format!("{}:{}", self.host, self.client_port)
    }

    fn peer(&self) -> String {
        format!("http://{}:{}", self.host, self.peer_port)
    }
}

/// All members; killed when dropped.
pub struct Members {
    places: Vec<Place>,
    running: Vec<Option<Child>>,
}

impl Members {
    /// Starts them, and waits until they serve.
    ///
    /// # Panics
    /// When Debian's `etcd-server` is not installed.
    pub fn start(places: Vec<Place>) -> Self {
        let running = places.iter().map(|_| None).collect();
        let mut members = Self { places, running };
        (0..members.places.len()).for_each(|number| members.restart(number));
        crate::eventually("etcd serves", Duration::from_secs(60), || {
            (0..members.places.len()).all(|number| members.serves(number))
        });
        members
    }

    /// Starts so many on loopback, with data in this directory.
    ///
    /// # Panics
    /// When the directory cannot be written.
    pub fn on_loopback(count: usize, dir: &Path) -> Self {
        let place = |number: usize| {
            let dir = dir.join(format!("m{number}"));
            std::fs::create_dir(&dir).expect("a directory");
            let (client_port, peer_port) = (free_port(), free_port());
            Place { prefix: Vec::new(), host: "127.0.0.1".into(), client_port, peer_port, dir }
        };
        Self::start((0..count).map(place).collect())
    }

    /// `host:port` of a member.
    pub fn client(&self, number: usize) -> String {
        self.places[number].client()
    }

    /// What servers are told: all of them, beginning with one.
    pub fn datastore(&self, first: usize) -> String {
        let clients: Vec<String> = self.places.iter().map(Place::client).collect();
        let (before, after) = clients.split_at(first % clients.len());
        format!("etcd://{}", [after, before].concat().join(","))
    }

    /// A member's process.
    pub fn pid(&self, number: usize) -> Option<u32> {
        self.running[number].as_ref().map(Child::id)
    }

    /// Whether it says that it is healthy.
    pub fn serves(&self, number: usize) -> bool {
        let url = format!("http://{}/health", self.places[number].client());
        let answer = Command::new("curl").args(["-s", "--max-time", "2", &url]).output();
        answer.is_ok_and(|answer| String::from_utf8_lossy(&answer.stdout).contains("\"true\""))
    }

    /// Kills one.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.running[number].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts one that does not run.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self, number: usize) {
        if self.running[number].as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return;
        }
        let place = &self.places[number];
        let cluster: Vec<String> = self
            .places
            .iter()
            .enumerate()
            .map(|(number, place)| format!("m{number}={}", place.peer()))
            .collect();
        let client = format!("http://{}", place.client());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(place.dir.join("etcd.log"));
        let program = ["etcd".to_owned()];
        let mut words = place.prefix.iter().chain(&program);
        let child = Command::new(words.next().expect("a program"))
            .args(words)
            .env("ETCD_UNSUPPORTED_ARCH", "arm64")
            .args(["--name", &format!("m{number}"), "--data-dir"])
            .arg(place.dir.join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &place.peer(), "--initial-advertise-peer-urls", &place.peer()])
            .args([
                "--initial-cluster",
                &cluster.join(","),
                "--heartbeat-interval",
                "50",
                "--election-timeout",
                // As of members that servers run.
                "750",
            ])
            .stdout(Stdio::null())
            .stderr(log.expect("the log can be written"))
            .spawn()
            .expect("etcd can be started: apt-get install etcd-server");
        self.running[number] = Some(child);
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..self.places.len()).for_each(|number| self.kill(number));
    }
}
