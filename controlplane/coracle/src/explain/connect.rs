//! The kubeconfig flags of kubectl and a namespace, and the client that they describe.

use clap::Args;
use coracle_why::connect as kubeconfig;
use http::Request;
use serde_json::Value;
use std::time::Duration;

/// How to reach the API server, as whom, and in which namespace.
#[derive(Debug, Clone, Default, Args)]
pub struct ConnectArgs {
    #[command(flatten)]
    kubeconfig: kubeconfig::KubeconfigArgs,
    /// Namespace; that of the context by default.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The flags or the kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::ConnectError),
    /// The server does not answer, or does not know the user.
    #[error("cannot ask {server}")]
    Server {
        /// Its address.
        server: String,
        /// What failed.
        source: Box<kube::Error>,
    },
}

impl ConnectError {
    /// Whether the flags or the kubeconfig have to be changed.
    pub fn is_input(&self) -> bool {
        !matches!(self, Self::Server { .. })
    }
}

/// A client, and what it implies.
pub struct Connected {
    /// The client.
    pub client: kube::Client,
    /// Namespace of the flags or of the context.
    pub namespace: String,
    /// Whether the server is Coracle's.
    pub is_coracle: bool,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Address of the server.
    pub server: String,
}

/// Makes a client and asks the server for its version.
pub async fn connect(arguments: &ConnectArgs) -> Result<Connected, ConnectError> {
    let kubeconfig::Connection { client, timeout, namespace, server } =
        arguments.kubeconfig.connect().await?;
    let namespace = arguments.namespace.clone().unwrap_or(namespace);
    let mut connected = Connected { client, namespace, is_coracle: false, timeout, server };
    match connected.get("/version").await {
        Ok(version) => {
            let version = version.get("gitVersion").and_then(Value::as_str).unwrap_or_default();
            connected.is_coracle = version.contains("+coracle");
        }
        // A server may hide its version.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
        Err(source) => {
            return Err(ConnectError::Server { server: connected.server, source: Box::new(source) });
        }
    }
    Ok(connected)
}

impl Connected {
    /// Reads a path as JSON, within the timeout.
    pub async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        self.get_as(path, "application/json").await
    }

    /// Reads a path as JSON in one of the formats of an `Accept` header.
    pub async fn get_as(&self, path: &str, accept: &str) -> Result<Value, kube::Error> {
        let request = Request::get(path).header(http::header::ACCEPT, accept);
        let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
        let text = match tokio::time::timeout(self.timeout, self.client.request_text(request)).await {
            Ok(answer) => answer?,
            Err(late) => return Err(kube::Error::Service(late.into())),
        };
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }
}

/// What a request failed for, in the words of the server if it answered.
pub(crate) fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => kubeconfig::reason(other).map_or_else(|| coracle_cli::causes::chain(other), str::to_owned),
    }
}

/// A text as a part of a query.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        assert_eq!(encode("a b&c=d/ü"), "a%20b%26c%3Dd%2F%C3%BC");
    }
}
