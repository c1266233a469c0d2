//! Members of etcd on loopback, gone with the test.

use crate::{EtcdOptions, Store, StoreError, open};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

/// Certificates of one CA.
pub(super) struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Self {
        Self::with(&["127.0.0.1", "localhost"], (1975, 4096))
    }

    /// A server's certificate with these names, valid from the beginning of a year to that of another.
    pub fn with(names: &[&str], (from, to): (i32, i32)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "etcd-ca");
        let key = KeyPair::generate().unwrap();
        std::fs::write(dir.path().join("ca.crt"), ca.self_signed(&key).unwrap().pem()).unwrap();
        let ca = Issuer::new(ca, key);
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        for (name, names) in [("server", names), ("client", vec![])] {
            let mut params = CertificateParams::new(names).unwrap();
            (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &ca).unwrap();
            std::fs::write(dir.path().join(format!("{name}.crt")), certificate.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { dir }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn server_args(&self) -> Vec<String> {
        vec![
            format!("--cert-file={}", self.file("server.crt").display()),
            format!("--key-file={}", self.file("server.key").display()),
            format!("--trusted-ca-file={}", self.file("ca.crt").display()),
            "--client-cert-auth".to_owned(),
        ]
    }
}

pub(super) struct Member {
    child: Child,
    pub url: String,
    args: Vec<String>,
}

impl Member {
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.kill();
        self.restart_dead();
    }

    pub fn restart_dead(&mut self) {
        self.child = spawn(&self.args);
    }

    /// It keeps its connections and answers nothing.
    pub fn freeze(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
    }

    pub fn thaw(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(args: &[String]) -> Child {
    let mut etcd = Command::new("etcd");
    etcd.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    etcd.spawn().expect("etcd must be installed (Debian package etcd-server)")
}

/// An etcd of its own.
pub(super) struct Cluster {
    pub members: Vec<Member>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub fn start(count: usize, scheme: &str, more: &[String]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets: Vec<_> = (0..count).map(|_| (free(), free())).collect();
        let urls: Vec<_> = sockets
            .iter()
            .map(|(client, peer)| {
                let address = |socket: &TcpListener| socket.local_addr().unwrap().to_string();
                (format!("{scheme}://{}", address(client)), format!("http://{}", address(peer)))
            })
            .collect();
        drop(sockets);
        let initial: Vec<_> = urls.iter().enumerate().map(|(n, (_, peer))| format!("m{n}={peer}")).collect();
        let members = urls.iter().enumerate().map(|(n, (client, peer))| {
            let args = [
                ("name", format!("m{n}")),
                ("data-dir", dir.path().join(format!("m{n}")).display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client.clone()),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer.clone()),
                ("initial-cluster", initial.join(",")),
            ];
            let args: Vec<_> = args
                .iter()
                .map(|(flag, value)| format!("--{flag}={value}"))
                .chain(more.iter().cloned())
                .collect();
            Member { child: spawn(&args), url: client.clone(), args }
        });
        Self { members: members.collect(), _dir: dir }
    }

    pub fn plain() -> Self {
        Self::start(1, "http", &[])
    }

    pub fn options(&self) -> EtcdOptions {
        let endpoints = self.members.iter().map(|one| one.url.clone()).collect();
        EtcdOptions { endpoints, ..EtcdOptions::default() }
    }

    /// Waits until all members answer.
    pub async fn ready(&self) {
        for member in &self.members {
            let options = EtcdOptions { endpoints: vec![member.url.clone()], ..EtcdOptions::default() };
            // With a certificate that etcd does not accept the port is at least open.
            until(|| async {
                let host = member.url.split("//").last().unwrap();
                if member.url.starts_with("https") {
                    return tokio::net::TcpStream::connect(host).await.is_ok();
                }
                super::super::shared::Shared::open(&options).await.is_ok()
            })
            .await;
        }
    }

    /// Which of the members leads.
    pub async fn leader(&self) -> usize {
        for (number, member) in self.members.iter().enumerate() {
            let options = EtcdOptions { endpoints: vec![member.url.clone()], ..EtcdOptions::default() };
            let status = super::client(&options).await.status().await.unwrap();
            if status.header().map(|header| header.member_id()) == Some(status.leader()) {
                return number;
            }
        }
        panic!("no member leads")
    }

    pub async fn connect(&self) -> Arc<dyn Store> {
        connect(&self.options()).await.unwrap()
    }
}

/// Waits until it is so, for a minute and the time that it takes to look.
pub(super) async fn until<F: Future<Output = bool>>(so: impl Fn() -> F) {
    for _ in 0..600 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("etcd does not answer");
}

/// Opens the store as a server does.
pub(super) async fn connect(options: &EtcdOptions) -> Result<Arc<dyn Store>, StoreError> {
    open(&crate::Datastore::Etcd(options.clone()), Path::new("/nonexistent")).await
}
