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

/// Writes the kubeconfig of a node, whose certificate and key stay in files of their own, because they change.
pub fn write_node(path: &Path, server: &str, pki: &Path, node: &str) -> Result<(), PkiError> {
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: coracle
  cluster:
    server: {server}
    certificate-authority: {pki}/ca.crt
users:
- name: system:node:{node}
  user:
    client-certificate: {pki}/client.pem
    client-key: {pki}/client.pem
contexts:
- name: coracle
  context:
    cluster: coracle
    user: system:node:{node}
current-context: coracle
",
        pki = pki.display(),
    );
    write_private(path, text.as_bytes())
}
