//! Requests of commands to the API server, with a kubeconfig of an administrator.

use anyhow::bail;
use clap::Args;
use coracle_apiserver::https_client::HttpsClient;
use coracle_fields::Schema as _;
use coracle_fields::meta::Status;
use http::Method;
use serde_json::Value;
use std::path::PathBuf;

/// Kubeconfig used to connect to the API server.
#[derive(Debug, Clone, Args)]
pub struct KubeconfigArgs {
    /// Data directory of the server; its admin.kubeconfig is used.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle")]
    pub(crate) data_dir: PathBuf,
    /// Kubeconfig to use instead.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl KubeconfigArgs {
    /// A client of the server.
    pub(crate) fn remote(&self) -> anyhow::Result<HttpsClient> {
        let path = self.kubeconfig.clone().unwrap_or_else(|| self.data_dir.join("admin.kubeconfig"));
        Ok(HttpsClient::from_kubeconfig(&path)?)
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
