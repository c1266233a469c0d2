//! The client configuration files that kubectl and agents read.

use super::{PkiError, authority::Signed, write_private};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::kubeconfig::{Part, of_node, text};
use std::path::Path;

/// Writes a kubeconfig with one cluster, one user by certificate and one context; a file that says the same stays.
pub fn write(path: &Path, server: &str, ca: &str, user: &str, signed: &Signed) -> Result<(), PkiError> {
    let encoded = [ca, &signed.certificate, &signed.key].map(|pem| STANDARD.encode(pem));
    let [authority, certificate, key] = encoded.each_ref().map(|data| Part::Data(data));
    let text = text(server, authority, user, certificate, key);
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    write_private(path, text.as_bytes())
}

/// Writes the kubeconfig of a node, whose certificate and key stay in files of their own, because they change.
pub fn write_node(path: &Path, server: &str, pki: &Path, node: &str) -> Result<(), PkiError> {
    write_private(path, of_node(server, pki, node).as_bytes())
}
