//! Identities with real credentials, and requests of theirs.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use crate::server::Server;
use coracle_pki::authority::{Authority, Profile};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Somebody with credentials.
#[derive(Clone, Default)]
pub struct Caller {
    url: String,
    ca: PathBuf,
    args: Vec<String>,
}

impl Caller {
    /// Nobody in particular.
    pub fn nobody(server: &Server) -> Self {
        Self { url: server.url(), ca: server.data_dir().join("pki/ca.crt"), args: Vec::new() }
    }

    /// Somebody with a certificate of the cluster's authority.
    pub fn certified(server: &Server, user: &str, groups: &[&str]) -> Self {
        Self::signed(server, "ca", user, groups)
    }

    /// Somebody with a certificate of one of the server's authorities.
    pub fn signed(server: &Server, authority: &str, user: &str, groups: &[&str]) -> Self {
        let pki = server.data_dir().join("pki");
        let signed =
            Authority::ensure(&pki, authority, "test").unwrap().sign(&Profile::client(user, groups)).unwrap();
        Self::with_pem(server, user, &format!("{}{}", signed.certificate, signed.key))
    }

    /// Somebody with a certificate and key in one PEM text.
    pub fn with_pem(server: &Server, name: &str, pem: &str) -> Self {
        let number =
            std::sync::atomic::AtomicUsize::fetch_add(&COUNT, 1, std::sync::atomic::Ordering::Relaxed);
        let file = server.data_dir().join(format!("{}-{number}.pem", name.replace([':', '/'], "_")));
        std::fs::write(&file, pem).unwrap();
        Self::nobody(server).with(&[
            "--cert",
            &file.display().to_string(),
            "--key",
            &file.display().to_string(),
        ])
    }

    /// The administrator.
    pub fn admin(server: &Server) -> Self {
        let pki = server.data_dir().join("pki");
        let file = |name: &str| pki.join(name).display().to_string();
        Self::nobody(server).with(&["--cert", &file("admin.crt"), "--key", &file("admin.key")])
    }

    /// Somebody with a token.
    pub fn bearer(server: &Server, token: &str) -> Self {
        Self::nobody(server).header(&format!("Authorization: Bearer {token}"))
    }

    /// The same with another header.
    pub fn header(&self, header: &str) -> Self {
        self.with(&["-H", header])
    }

    /// The same with more arguments of curl.
    pub fn with(&self, args: &[&str]) -> Self {
        let mut caller = self.clone();
        caller.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        caller
    }

    /// One request: code and body.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--path-as-is", "-X", method, "--cacert"]).arg(&self.ca).args(&self.args);
        curl.args(["--max-time", "60", "-w", "\n%{http_code}"]);
        if let Some(body) = body {
            let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            curl.args(["-H", &format!("Content-Type: {kind}"), "-d", &body.to_string()]);
        }
        let output = curl.arg(format!("{}{path}", self.url)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap_or_default();
        (code.parse().unwrap_or(0), serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
    }

    /// A watch that has begun: its first byte is there.
    pub fn watch(&self, path: &str) -> Watch {
        let mut curl = Command::new("curl");
        curl.args(["-sN", "--cacert"]).arg(&self.ca).args(&self.args).arg(format!("{}{path}", self.url));
        let mut child = curl.stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Watch(child)
    }

    /// A watch whose events are written to a file.
    pub fn watch_into(&self, path: &str, file: &Path) -> Watch {
        let mut curl = Command::new("curl");
        curl.args(["-sN", "--cacert"]).arg(&self.ca).args(&self.args).arg(format!("{}{path}", self.url));
        Watch(curl.stdout(File::create(file).unwrap()).spawn().unwrap())
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, None)
    }

    /// Creates an object.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn create(&self, path: &str, body: &Value) -> Value {
        let (code, answer) = self.send("POST", path, Some(body));
        assert!((200..300).contains(&code), "POST {path}: {code} {answer}");
        answer
    }

    /// Who the server thinks this is: name and groups.
    pub fn whoami(&self) -> Result<(String, Vec<String>), u16> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let (code, answer) =
            self.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", Some(&body));
        if code != 201 {
            return Err(code);
        }
        let user = &answer["status"]["userInfo"];
        let groups =
            user["groups"].as_array().into_iter().flatten().filter_map(|g| g.as_str().map(str::to_owned));
        Ok((user["username"].as_str().unwrap_or_default().to_owned(), groups.collect()))
    }
}

/// A watch of somebody's.
pub struct Watch(Child);

impl Watch {
    /// Whether it is over.
    pub fn over(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// A bootstrap token, made by the command.
pub fn token(server: &Server, args: &[&str]) -> String {
    let output = Command::new(crate::program("coracle"))
        .args(["token", "create", "--data-dir"])
        .arg(server.data_dir())
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A token of a service account, which is made if it is not there.
pub fn account_token(server: &Server, namespace: &str, name: &str, spec: Value) -> String {
    let admin = Caller::admin(server);
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let _ = admin.send("POST", &path, Some(&json!({"metadata": {"name": name}})));
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let answer = admin.create(&format!("{path}/{name}/token"), &body);
    answer["status"]["token"].as_str().unwrap().to_owned()
}
