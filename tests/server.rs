//! A `coracle server` in a temporary directory, on a free port, gone when dropped.

use crate::{eventually, program};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to come up on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server {
    dir: tempfile::TempDir,
    child: Child,
    args: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Server {
    /// Starts one; `CORACLE_DATASTORE` may name another store than the embedded one for all suites.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts one with more flags.
    pub fn with(flags: &[&str]) -> Self {
        Self::with_environment(flags, &[])
    }

    /// Starts one with more flags and an environment.
    pub fn with_environment(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::in_directory(tempfile::tempdir().expect("a temporary directory"), flags, environment)
    }

    /// Starts one with the keys of another server: what one of them signed, the other trusts.
    ///
    /// # Panics
    /// When the keys cannot be copied, or it does not start.
    pub fn beside(&self, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (self.data_dir().join("pki"), dir.path().join("pki"));
        std::fs::create_dir(&to).expect("a directory for keys");
        for file in ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"] {
            std::fs::copy(from.join(file), to.join(file)).expect("a key that every server has");
        }
        // Only servers that share a store have this one.
        let sealing = from.join("sealing.key");
        if sealing.exists() {
            std::fs::copy(sealing, to.join("sealing.key")).expect("the sealing key can be copied");
        }
        let secret = self.data_dir().join("join-secret");
        if secret.exists() {
            std::fs::copy(secret, dir.path().join("join-secret")).expect("a secret that every server has");
        }
        Self::in_directory(dir, flags, &[])
    }

    /// Starts one on the state of a directory, which is gone when the server is.
    ///
    /// # Panics
    /// When it does not start.
    pub fn in_directory(dir: tempfile::TempDir, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut args: Vec<String> =
            vec!["server".into(), "--data-dir".into(), dir.path().display().to_string()];
        if !flags.contains(&"--bind") {
            args.extend(["--bind".into(), "127.0.0.1:0".into()]);
        }
        args.extend(flags.iter().map(|f| (*f).to_owned()));
        let environment: Vec<(String, String)> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let child = spawn(&args, &environment, dir.path());
        let mut server = Self { dir, child, args, environment };
        server.wait();
        server
    }

    /// Where its state is.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The administrator's kubeconfig. With `--advertise` it is a copy that leads to where the server listens: the address
    /// that it advertises is nowhere on this machine.
    pub fn kubeconfig(&self) -> PathBuf {
        let written = self.dir.path().join("admin.kubeconfig");
        if self.flag("--advertise").is_none() {
            return written;
        }
        let text = std::fs::read_to_string(&written).unwrap_or_default();
        let copy = self.dir.path().join("reachable.kubeconfig");
        std::fs::write(&copy, text.replace(&said_url(&text), &self.url())).expect("the copy can be written");
        copy
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("admin.kubeconfig")).unwrap_or_default();
        let said = said_url(&text);
        match (self.flag("--advertise"), self.flag("--bind"), said.rsplit_once(':')) {
            (Some(_), Some(bind), Some((_, port))) => {
                format!("https://{}:{port}", bind.rsplit_once(':').map_or(bind, |(host, _)| host))
            }
            _ => said,
        }
    }

    fn flag(&self, name: &str) -> Option<&str> {
        let at = self.args.iter().position(|arg| arg == name)?;
        self.args.get(at + 1).map(String::as_str)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Panics
    /// When it does not end within half a minute.
    pub fn stop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("a signal can be sent");
        eventually("the server ends", Duration::from_secs(30), || {
            matches!(self.child.try_wait(), Ok(Some(_)))
        });
    }

    /// Kills it without a word.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same state and the same port.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same with more flags, this time only.
    pub fn restart_with(&mut self, flags: &[&str]) {
        self.keep_port();
        let mut args = self.args.clone();
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.child = spawn(&args, &self.environment, self.dir.path());
        self.wait();
    }

    /// Starts it again and kills it soon, whether it is up by then or not.
    pub fn start_and_kill(&mut self, after: Duration) {
        self.keep_port();
        self.child = spawn(&self.args, &self.environment, self.dir.path());
        std::thread::sleep(after);
        self.kill();
    }

    fn keep_port(&mut self) {
        let at = self.args.iter().position(|a| a == "--bind").expect("started with --bind") + 1;
        if self.args[at].ends_with(":0") {
            self.args[at] = self.url().trim_start_matches("https://").to_owned();
        }
    }

    /// Tries to start it again on the same state; false when it ends instead of serving.
    pub fn starts(&mut self) -> bool {
        self.starts_with(&[])
    }

    /// The same with more flags, this time only.
    pub fn starts_with(&mut self, flags: &[&str]) -> bool {
        let mut args = self.args.clone();
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.child = spawn(&args, &self.environment, self.dir.path());
        let mut serves = false;
        eventually("the server serves or ends", Duration::from_secs(60), || {
            serves = self.log().contains("serving");
            serves || matches!(self.child.try_wait(), Ok(Some(_)))
        });
        serves
    }

    /// Looks often: a server is up in a moment, and measurements begin here too.
    fn wait(&mut self) {
        let begun = Instant::now();
        while !self.listens() {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not listen:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn listens(&self) -> bool {
        self.log().contains("serving")
            && std::net::TcpStream::connect(self.url().trim_start_matches("https://")).is_ok()
    }
}

/// The URL in a kubeconfig.
fn said_url(kubeconfig: &str) -> String {
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
    line.unwrap_or_default().to_owned()
}

fn spawn(args: &[String], environment: &[(String, String)], dir: &Path) -> Child {
    let log = std::fs::File::create(dir.join("log")).expect("the log can be written");
    Command::new(program("coracle"))
        .args(args)
        .envs(environment.iter().cloned())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the server can be started")
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // What a killed server leaves is in memory until the next one reads it.
        if let Some(spans) = coracle_timeline::shared_memory::path(self.dir.path()) {
            let _ = std::fs::remove_file(spans);
        }
    }
}
