//! A stock kube-apiserver with its controllers and its scheduler, built elsewhere, on an etcd of its own.

use coracle_pki::authority::{Authority, Profile, Signed};
use coracle_pki::kubeconfig;
use coracle_tests::client::Target;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the programs are.
pub struct Programs {
    server: PathBuf,
    controllers: PathBuf,
    scheduler: PathBuf,
}

impl Programs {
    /// From the environment; nothing when one of them is not given.
    pub fn given() -> Option<Self> {
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Some(Self {
            server: path("CORACLE_STOCK_APISERVER")?,
            controllers: path("CORACLE_STOCK_CONTROLLER_MANAGER")?,
            scheduler: path("CORACLE_STOCK_SCHEDULER")?,
        })
    }
}

/// A running control plane; it ends when dropped.
pub struct Stock {
    children: Vec<Child>,
    /// The administrator's.
    pub kubeconfig: PathBuf,
    url: String,
    etcd: Etcd,
    dir: tempfile::TempDir,
}

fn write(dir: &Path, name: &str, signed: &Signed) -> (String, String) {
    let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    std::fs::write(&certificate, &signed.certificate).expect("a file");
    std::fs::write(&key, &signed.key).expect("a file");
    (certificate.display().to_string(), key.display().to_string())
}

impl Stock {
    /// Starts one and waits until it is ready.
    pub fn start(programs: &Programs) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let etcd = Etcd::start();
        let authority = Authority::ensure(dir.path(), "ca", "stock").expect("an authority");
        let ca = dir.path().join("ca.crt").display().to_string();
        std::fs::write(&ca, &authority.certificate).expect("a file");
        let names = ["127.0.0.1", "10.96.0.1", "localhost"].map(str::to_owned);
        let serving = authority.sign(&Profile::server("kube-apiserver", &names)).expect("a certificate");
        let (certificate, key) = write(dir.path(), "server", &serving);
        let account_key = dir.path().join("accounts.key").display().to_string();
        let made = Command::new("openssl").args(["genrsa", "-out", &account_key, "2048"]).output();
        assert!(made.is_ok_and(|made| made.status.success()), "openssl is installed: scripts/deps test");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let admin = authority.sign(&Profile::client("admin", &["system:masters"])).expect("a certificate");
        let path = dir.path().join("admin.kubeconfig");
        let url = format!("https://127.0.0.1:{port}");
        kubeconfig::write(&path, &url, &authority.certificate, "admin", &admin).expect("a kubeconfig");
        let pki = dir.path().join("pki");
        std::fs::create_dir(&pki).expect("a directory");
        write(&pki, "admin", &admin);
        std::fs::write(pki.join("ca.crt"), &authority.certificate).expect("a file");
        let mut stock = Self { children: Vec::new(), kubeconfig: path, url, etcd, dir };
        let address = stock.etcd.address.clone();
        stock.run(
            &programs.server,
            &[
                format!("--etcd-servers=http://{address}"),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--client-ca-file={ca}"),
                format!("--tls-cert-file={certificate}"),
                format!("--tls-private-key-file={key}"),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={account_key}"),
                format!("--service-account-signing-key-file={account_key}"),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                "--authorization-mode=Node,RBAC".to_owned(),
                "--allow-privileged=true".to_owned(),
            ],
        );
        let kubectl = coracle_tests::kubectl::newest(&stock.kubeconfig);
        eventually("kube-apiserver is ready", Duration::from_secs(120), || {
            kubectl.try_with("get --raw /readyz", "").ok
        });
        let config = format!("--kubeconfig={}", stock.kubeconfig.display());
        let root = format!("--root-ca-file={ca}");
        let private = format!("--service-account-private-key-file={account_key}");
        let alone = "--leader-elect=false".to_owned();
        let closed = "--secure-port=0".to_owned();
        stock.run(&programs.controllers, &[config.clone(), root, private, alone.clone(), closed.clone()]);
        stock.run(&programs.scheduler, &[config, alone, closed]);
        eventually("the default service account", Duration::from_secs(60), || {
            kubectl.try_with("get serviceaccount default", "").ok
        });
        stock
    }

    /// For clients that keep their connections.
    #[allow(dead_code, reason = "for measurements")]
    pub fn target(&self) -> anyhow::Result<Target> {
        Target::new(self.dir.path(), &self.url)
    }

    /// The processes of the control plane, and that of etcd.
    #[allow(dead_code, reason = "for measurements")]
    pub fn pids(&self) -> (Vec<u32>, u32) {
        (self.children.iter().map(Child::id).collect(), self.etcd.pid())
    }

    fn run(&mut self, program: &Path, flags: &[String]) {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let log = std::fs::File::create(self.dir.path().join(format!("{name}.log"))).expect("a log");
        let child = Command::new(program)
            .args(flags)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        self.children.push(child);
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
