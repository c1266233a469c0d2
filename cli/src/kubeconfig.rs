//! The client configuration files that kubectl and agents read: one cluster, one user by certificate, one context.

use std::path::Path;

/// Why the context of a kubeconfig cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The kubeconfig has no such context.
    #[error("context {0:?} does not exist")]
    NoContext(String),
    /// The kubeconfig has no such cluster.
    #[error("cluster {cluster:?} was not found for context {context:?}")]
    NoCluster {
        /// The cluster that the context names.
        cluster: String,
        /// The context.
        context: String,
    },
    /// The kubeconfig has no such user. Without this error, requests would be anonymous.
    #[error("user {user:?} was not found for context {context:?}")]
    NoUser {
        /// The user that the context names.
        user: String,
        /// The context.
        context: String,
    },
}

/// Checks that a kubeconfig has the cluster and the user that its context names; a name that is empty names none. Each name comes
/// with those that the kubeconfig has.
pub fn check_context<'a>(
    context: &str,
    (cluster, mut clusters): (&str, impl Iterator<Item = &'a str>),
    (user, mut users): (&str, impl Iterator<Item = &'a str>),
) -> Result<(), ContextError> {
    if !cluster.is_empty() && !clusters.any(|name| name == cluster) {
        return Err(ContextError::NoCluster { cluster: cluster.to_owned(), context: context.to_owned() });
    }
    if !user.is_empty() && !users.any(|name| name == user) {
        return Err(ContextError::NoUser { user: user.to_owned(), context: context.to_owned() });
    }
    Ok(())
}

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
    fn a_context_names_what_there_is() {
        let check = |cluster: &str, user: &str| {
            let checked = check_context("x", (cluster, ["a", "c"].into_iter()), (user, ["u"].into_iter()));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check("c", "u"), Ok(()));
        assert_eq!(check("c", ""), Ok(()), "anonymous requests can be meant");
        assert_eq!(check("b", "v"), Err("cluster \"b\" was not found for context \"x\"".to_owned()));
        assert_eq!(check("c", "v"), Err("user \"v\" was not found for context \"x\"".to_owned()));
    }

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
