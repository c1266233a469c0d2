//! One cluster, one user and one context of a kubeconfig.

use anyhow::{Context as _, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::yaml;
use coracle_pki::authority::Signed;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Marks clusters that this program wrote into a kubeconfig, as an extension of that name.
pub(super) const MARK: &str = "coracle";

/// A user with a client certificate; certificate and key are base64 of PEM.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    user: String,
    certificate: String,
    key: String,
}

impl Identity {
    pub(super) fn new(user: &str, signed: &Signed) -> Self {
        let [certificate, key] = [&signed.certificate, &signed.key].map(|pem| STANDARD.encode(pem));
        Self { user: user.to_owned(), certificate, key }
    }
}

/// What is written into kubeconfigs of users.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Name of the context and the cluster.
    pub(super) context: String,
    pub(super) server: String,
    authority: String,
    pub(super) identity: Identity,
    data_dir: PathBuf,
}

#[derive(Deserialize)]
struct AdminConfig {
    clusters: Vec<Named>,
    users: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    cluster: Value,
    #[serde(default)]
    user: Value,
}

impl Entry {
    /// That of the administrator, from the file that the server writes.
    pub(crate) fn of_admin(data_dir: &Path, context: &str) -> anyhow::Result<Self> {
        let path = data_dir.join("admin.kubeconfig");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("there is no cluster in {}: admin.kubeconfig is missing", data_dir.display())
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!("{} is for root alone: run it with sudo", path.display())
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let config: AdminConfig = yaml::from_str(&text).with_context(|| path.display().to_string())?;
        let parts = config.clusters.first().zip(config.users.first());
        let entry = parts.and_then(|(cluster, user)| {
            let field = |from: &Value, name: &str| from.get(name)?.as_str().map(str::to_owned);
            Some(Self {
                context: context.to_owned(),
                server: field(&cluster.cluster, "server")?,
                authority: field(&cluster.cluster, "certificate-authority-data")?,
                identity: Identity {
                    user: user.name.clone(),
                    certificate: field(&user.user, "client-certificate-data")?,
                    key: field(&user.user, "client-key-data")?,
                },
                data_dir: data_dir.to_owned(),
            })
        });
        entry.with_context(|| format!("{} is not as the server writes it", path.display()))
    }

    /// What the user is called where there are users of several clusters.
    fn user(&self) -> String {
        format!("{}@{}", self.identity.user, self.context)
    }

    /// The entries for the lists `clusters`, `users` and `contexts`.
    pub(super) fn parts(&self) -> [(&'static str, Value); 3] {
        let mark = json!([{"name": MARK, "extension": {"dataDir": self.data_dir}}]);
        let cluster = json!({
            "server": self.server,
            "certificate-authority-data": self.authority,
            "extensions": mark,
        });
        let user = json!({
            "client-certificate-data": self.identity.certificate,
            "client-key-data": self.identity.key,
        });
        [
            ("clusters", json!({"name": self.context, "cluster": cluster})),
            ("users", json!({"name": self.user(), "user": user})),
            (
                "contexts",
                json!({"name": self.context, "context": {"cluster": self.context, "user": self.user()}}),
            ),
        ]
    }

    /// A kubeconfig with nothing else.
    pub(super) fn config(&self) -> Value {
        let mut config = json!({"apiVersion": "v1", "kind": "Config"});
        for (list, part) in self.parts() {
            config[list] = json!([part]);
        }
        config["current-context"] = json!(self.context);
        config
    }

    /// The same as text.
    pub(crate) fn text(&self) -> String {
        yaml::to_string(&self.config())
    }

    #[cfg(test)]
    pub(super) fn example(context: &str, server: &str) -> Self {
        let identity = Identity { user: "admin".into(), certificate: "Yw==".into(), key: "aw==".into() };
        let (server, authority) = (server.to_owned(), "YQ==".to_owned());
        Self { context: context.into(), server, authority, identity, data_dir: "/var/lib/coracle".into() }
    }
}

/// The data directory of the cluster in a kubeconfig that this program wrote.
pub(super) fn data_dir_of(text: &str) -> Option<PathBuf> {
    let config: AdminConfig = yaml::from_str(text).ok()?;
    let extensions = config.clusters.first()?.cluster.get("extensions")?.as_array()?;
    let mark = extensions.iter().find(|each| each.get("name").is_some_and(|name| name == MARK))?;
    mark.get("extension")?.get("dataDir")?.as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_pki::kubeconfig;

    #[test]
    fn the_administrator_s_file_becomes_one_with_names_of_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let error = Entry::of_admin(dir.path(), "coracle-a").unwrap_err().to_string();
        assert!(error.starts_with("there is no cluster in "), "{error}");
        let signed = Signed { certificate: "certificate".into(), key: "key".into() };
        let path = dir.path().join("admin.kubeconfig");
        kubeconfig::write(&path, "https://127.0.0.1:7443", "ca", "kubernetes-admin", &signed).unwrap();
        let text = Entry::of_admin(dir.path(), "coracle-a").unwrap().text();
        assert_eq!(data_dir_of(&text).as_deref(), Some(dir.path()));
        assert_eq!(
            data_dir_of(&std::fs::read_to_string(&path).unwrap()),
            None,
            "the server's own has no mark"
        );
        let config: Value = yaml::from_str(&text).unwrap();
        assert_eq!(config["current-context"], "coracle-a");
        let context = json!({"cluster": "coracle-a", "user": "kubernetes-admin@coracle-a"});
        assert_eq!(config["contexts"][0]["context"], context);
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:7443");
        assert_eq!(config["users"][0]["user"]["client-key-data"], STANDARD.encode("key"));
        std::fs::write(&path, "clusters: []\nusers: []\n").unwrap();
        assert!(Entry::of_admin(dir.path(), "x").unwrap_err().to_string().contains("not as the server"));
    }
}
