//! How etcd is reached: endpoints, certificates, user, key prefix.

use super::error::EtcdError;
use crate::DatastoreError;
use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(2);
/// etcd refuses clients that ping more often than every five seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(6);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// More is neither a certificate, a key nor a password.
const MAX_FILE: u64 = 1 << 20;
const MAX_PREFIX: usize = 256;

/// How an etcd is reached. The files are read whenever a connection is made, so that they can be replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port`. The first is used while it answers.
    pub endpoints: Vec<String>,
    /// Before every key: `/name`, or nothing.
    pub prefix: String,
    /// Certificates of the CAs that etcd's certificate is from; those of the system by default.
    pub ca: Option<PathBuf>,
    /// Client certificate.
    pub cert: Option<PathBuf>,
    /// Key of the client certificate.
    pub key: Option<PathBuf>,
    /// User.
    pub user: Option<String>,
    /// File with the user's password.
    pub password_file: Option<PathBuf>,
    /// Whether the list of members replaces the endpoints as soon as it is known.
    pub follow_members: bool,
}

impl EtcdOptions {
    /// The options, if they go together. The prefix is brought into its form.
    pub fn checked(mut self) -> Result<Self, DatastoreError> {
        let tls = self.endpoints.iter().all(|one| one.starts_with("https://"));
        if self.cert.is_some() != self.key.is_some() {
            return Err(DatastoreError::HalfIdentity);
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err(DatastoreError::HalfUser);
        }
        if !tls && (self.ca.is_some() || self.cert.is_some()) {
            return Err(DatastoreError::TlsFiles);
        }
        let prefix = self.prefix.trim_matches('/');
        let plain = |part: &str| {
            !matches!(part, "" | "." | "..")
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        if prefix.len() > MAX_PREFIX || !(prefix.is_empty() || prefix.split('/').all(plain)) {
            return Err(DatastoreError::Prefix(self.prefix));
        }
        self.prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(self)
    }

    /// What a message calls this etcd.
    pub(super) fn name(&self) -> String {
        let name = format!("etcd at {}", self.endpoints.join(","));
        if self.prefix.is_empty() { name } else { format!("{name} under {}", self.prefix) }
    }

    /// The options of a connection, with the contents of the files.
    pub(super) fn connect_options(&self) -> Result<ConnectOptions, EtcdError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE_TIMEOUT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if self.endpoints.iter().any(|one| one.starts_with("https://")) {
            let mut tls = match &self.ca {
                Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?)),
                None => TlsOptions::new().with_native_roots(),
            };
            if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
                tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
            }
            options = options.with_tls(tls.timeout(CONNECT));
        }
        if let (Some(user), Some(file)) = (&self.user, &self.password_file) {
            let password = String::from_utf8(read(file)?).map_err(|_| EtcdError::Password(file.clone()))?;
            options = options.with_user(user, password.trim_end_matches(['\r', '\n']));
        }
        Ok(options)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, EtcdError> {
    let failed = |error| EtcdError::File { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(EtcdError::FileSize(path.to_owned()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn options(endpoint: &str) -> EtcdOptions {
        EtcdOptions { endpoints: vec![endpoint.to_owned()], ..EtcdOptions::default() }
    }

    #[test]
    fn prefixes_have_one_form() {
        for (given, want) in [("", ""), ("/", ""), ("a", "/a"), ("/a/b/", "/a/b")] {
            let given = EtcdOptions { prefix: given.to_owned(), ..options("http://a:1") };
            assert_eq!(given.checked().unwrap().prefix, want);
        }
        for given in ["a//b", "..", "/a/../b", "a b", "ä", &"a".repeat(300)] {
            let given = EtcdOptions { prefix: given.to_owned(), ..options("http://a:1") };
            assert!(matches!(given.checked(), Err(DatastoreError::Prefix(_))));
        }
    }

    #[test]
    fn halves_are_refused() {
        let file = Some(PathBuf::from("/nonexistent/file"));
        let half = EtcdOptions { cert: file.clone(), ..options("https://a:1") };
        assert!(matches!(half.checked(), Err(DatastoreError::HalfIdentity)));
        let half = EtcdOptions { user: Some("root".to_owned()), ..options("https://a:1") };
        assert!(matches!(half.checked(), Err(DatastoreError::HalfUser)));
        let plain = EtcdOptions { ca: file.clone(), ..options("http://a:1") };
        assert!(matches!(plain.checked(), Err(DatastoreError::TlsFiles)));
        let missing = EtcdOptions { ca: file, ..options("https://a:1") }.checked().unwrap();
        let error = missing.connect_options().unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/file: "), "{error}");
    }
}
