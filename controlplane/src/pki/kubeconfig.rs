//! The client configuration files that kubectl and agents read.

use super::{PkiError, authority::Signed, write_private};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::path::Path;

/// Writes a kubeconfig with one cluster, one user by certificate and one context.
pub fn write(path: &Path, server: &str, ca: &str, user: &str, signed: &Signed) -> Result<(), PkiError> {
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: coracle
  cluster:
    server: {server}
    certificate-authority-data: {}
users:
- name: {user}
  user:
    client-certificate-data: {}
    client-key-data: {}
contexts:
- name: coracle
  context:
    cluster: coracle
    user: {user}
current-context: coracle
",
        STANDARD.encode(ca),
        STANDARD.encode(&signed.certificate),
        STANDARD.encode(&signed.key),
    );
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    write_private(path, text.as_bytes())
}
