//! The client configuration files that kubectl and agents read: one cluster, one user by certificate, one context.

use std::path::Path;

/// A part of a kubeconfig: inside it, or in a file that it names.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// Base64 of the PEM text.
    Data(&'a str),
    /// A path.
    File(&'a Path),
}

impl Part<'_> {
    fn line(self, field: &str) -> String {
        match self {
            Self::Data(text) => format!("{field}-data: {text}"),
            Self::File(path) => format!("{field}: {}", path.display()),
        }
    }
}

/// The text of a kubeconfig; `certificate` and `key` are the user's.
pub fn text(server: &str, authority: Part<'_>, user: &str, certificate: Part<'_>, key: Part<'_>) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: coracle
  cluster:
    server: {server}
    {}
users:
- name: {user}
  user:
    {}
    {}
contexts:
- name: coracle
  context:
    cluster: coracle
    user: {user}
current-context: coracle
",
        authority.line("certificate-authority"),
        certificate.line("client-certificate"),
        key.line("client-key"),
    )
}

/// The kubeconfig of a node, whose authority (`ca.crt`), certificate and key (`client.pem`) stay in files of their own below
/// `pki`, because they change.
pub fn of_node(server: &str, pki: &Path, node: &str) -> String {
    let (authority, client) = (pki.join("ca.crt"), pki.join("client.pem"));
    let user = format!("system:node:{node}");
    text(server, Part::File(&authority), &user, Part::File(&client), Part::File(&client))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn both_forms_are_read_by_their_names() {
        let node: Value =
            crate::yaml::from_str(&of_node("https://10.0.0.1:6443", Path::new("/p"), "a")).unwrap();
        assert_eq!(
            node["clusters"][0]["cluster"],
            json!({"server": "https://10.0.0.1:6443", "certificate-authority": "/p/ca.crt"})
        );
        assert_eq!(
            node["users"][0],
            json!({"name": "system:node:a", "user": {"client-certificate": "/p/client.pem", "client-key": "/p/client.pem"}})
        );
        let inside = text("https://h", Part::Data("YQ=="), "admin", Part::Data("Yg=="), Part::Data("Yw=="));
        let inside: Value = crate::yaml::from_str(&inside).unwrap();
        assert_eq!(inside["clusters"][0]["cluster"]["certificate-authority-data"], "YQ==");
        assert_eq!(
            inside["users"][0]["user"],
            json!({"client-certificate-data": "Yg==", "client-key-data": "Yw=="})
        );
        assert_eq!(inside["contexts"][0]["context"]["user"], "admin");
    }
}
