//! Requests of commands to the API server, with a kubeconfig of an administrator.

use crate::cluster_args::ClusterArgs;
use anyhow::bail;
use clap::Args;
use coracle_apiserver::https_client::HttpsClient;
use coracle_fields::Schema as _;
use coracle_fields::meta::Status;
use http::Method;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Kubeconfig used to connect to the API server.
#[derive(Debug, Clone, Args)]
pub struct KubeconfigArgs {
    /// Its admin.kubeconfig is used, or $KUBECONFIG if there is none.
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Kubeconfig to use, instead of admin.kubeconfig in the data directory of the cluster or $KUBECONFIG.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl KubeconfigArgs {
    /// A client of the server.
    pub(crate) fn remote(&self) -> anyhow::Result<HttpsClient> {
        Ok(HttpsClient::from_kubeconfig(&self.path(std::env::var_os("KUBECONFIG").as_deref()))?)
    }

    /// The data directory of the cluster.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.cluster.data_dir()
    }

    /// Whether the kubeconfig is that of the data directory, which then has the keys of the cluster, too.
    pub(crate) fn is_here(&self) -> bool {
        self.kubeconfig.is_none() && self.data_dir().join("admin.kubeconfig").exists()
    }

    /// The kubeconfig to use. On a machine without a server, or for a user who cannot read its directory, it is the first file of
    /// `listed`, the value of `$KUBECONFIG`.
    fn path(&self, listed: Option<&OsStr>) -> PathBuf {
        if let Some(given) = &self.kubeconfig {
            return given.clone();
        }
        let own = self.data_dir().join("admin.kubeconfig");
        if own.exists() {
            return own;
        }
        let found = listed.and_then(|listed| std::env::split_paths(listed).find(|path| path.is_file()));
        found.unwrap_or(own)
    }
}

/// Sends a request; an answer that is no success is an error.
pub(crate) async fn ask(
    remote: &HttpsClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let (code, answer) = remote.send(method, path, body).await?;
    if !(200..300).contains(&code) {
        bail!("{}", refusal(&answer, "the server refused"));
    }
    Ok(answer)
}

/// Why the server refused, or another text when it does not say.
pub(crate) fn refusal<'a>(answer: &'a Value, other: &'a str) -> &'a str {
    Status::of(answer).message().or(other)
}

/// Deletes an object; succeeds when it does not exist.
pub(crate) async fn remove(remote: &HttpsClient, path: &str) -> anyhow::Result<()> {
    let (code, answer) = remote.send(Method::DELETE, path, None).await?;
    if code != 404 && !(200..300).contains(&code) {
        bail!("{}", refusal(&answer, "the server refused"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_flag_comes_first_then_the_data_directory_then_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("admin.kubeconfig"), dir.path().join("mine"));
        std::fs::write(&other, "").unwrap();
        let listed = std::env::join_paths([dir.path().join("none"), other.clone()]).unwrap();
        let args = KubeconfigArgs { cluster: ClusterArgs::of(dir.path()), kubeconfig: None };
        assert_eq!(args.path(None), own, "named in the error");
        assert_eq!(args.path(Some(&listed)), other);
        assert!(!args.is_here());
        std::fs::write(&own, "").unwrap();
        assert_eq!(args.path(Some(&listed)), own);
        assert!(args.is_here());
        let args = KubeconfigArgs { kubeconfig: Some("given".into()), ..args };
        assert_eq!(args.path(Some(&listed)), PathBuf::from("given"));
        assert!(!args.is_here());
    }
}
