//! `coracle-agent join`: joins a cluster with a server address and a token.

use crate::identity::join::{IdentityFiles, JoinParams, check_name, join};
use crate::node::machine;
use coracle_cli::causes::chain;
use coracle_cli::output::Output;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// `coracle-agent join`.
#[derive(Debug, clap::Args)]
pub struct JoinArgs {
    /// URL of an API server: https://host:port. Repeat it, or separate several by commas; the first that can be reached is used.
    #[arg(long, required = true, value_delimiter = ',')]
    pub server: Vec<String>,
    /// Token printed by `coracle token create`.
    #[arg(long, env = "CORACLE_TOKEN", hide_env_values = true)]
    pub token: String,
    /// Hash of the cluster's CA, if the token does not contain it: sha256:<hex>.
    #[arg(long)]
    pub ca_hash: Option<String>,
    /// Name of the node; the host name by default.
    #[arg(long)]
    pub node_name: Option<String>,
    /// Directory for the node's kubeconfig and certificates.
    #[arg(long, default_value = "/var/lib/coracle/agent")]
    pub root_dir: PathBuf,
    /// How long to wait for the certificate, in seconds.
    #[arg(long, default_value_t = 60)]
    pub timeout: u64,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// A node that is a member of a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Membership {
    node: String,
    servers: Vec<String>,
    kubeconfig: PathBuf,
    /// Whether it joined now; it was a member already otherwise.
    joined: bool,
    /// Why the server could not say whether it still accepts a certificate of before.
    unverified: Option<String>,
}

impl Membership {
    fn text(&self) -> String {
        let (node, kubeconfig) = (&self.node, self.kubeconfig.display());
        if self.joined {
            let servers = self.servers.join(", ");
            return format!(
                "{node} joined {servers}\ncoracle-agent run --node-name {node} --kubeconfig {kubeconfig}\n"
            );
        }
        let reason = self.unverified.as_ref();
        let reason = reason.map(|reason| format!(" (the server could not be asked: {reason})"));
        format!("{node} is a member already: {kubeconfig}{}\n", reason.unwrap_or_default())
    }
}

impl JoinArgs {
    /// Joins the cluster. A node that has joined already stays as it is; a revoked node joins again.
    pub fn run(self) -> anyhow::Result<()> {
        super::log::log_to_stderr();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let invitation = JoinParams::read(&self.server.join(","), &self.token, self.ca_hash.as_deref())?;
        let node = match self.node_name {
            Some(name) => name,
            None => machine::read_machine(&self.root_dir).hostname.to_lowercase(),
        };
        check_name(&node)?;
        let root = std::path::absolute(&self.root_dir)?;
        let place = IdentityFiles::below(&root);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut membership = Membership {
            node,
            servers: self.server,
            kubeconfig: place.kubeconfig.clone(),
            joined: true,
            unverified: None,
        };
        if place.joined(&membership.node) {
            match runtime.block_on(place.is_accepted()) {
                Ok(true) => membership.joined = false,
                Ok(false) => {
                    eprintln!(
                        "the certificate of {} is not accepted any more: joining anew",
                        membership.node
                    );
                }
                // The server may not be up yet: the certificate is kept.
                Err(error) => {
                    membership.joined = false;
                    membership.unverified = Some(chain(&error));
                }
            }
        }
        if membership.joined {
            let timeout = Duration::from_secs(self.timeout);
            runtime.block_on(join(&invitation, &membership.node, &place, timeout))?;
        }
        Ok(self.output.print(&membership, || membership.text())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_said() {
        let joined = Membership {
            node: "a".into(),
            servers: vec!["https://b:1".into(), "https://c:1".into()],
            kubeconfig: "/k".into(),
            joined: true,
            unverified: None,
        };
        let text = "a joined https://b:1, https://c:1\ncoracle-agent run --node-name a --kubeconfig /k\n";
        assert_eq!(joined.text(), text);
        let kept = Membership { joined: false, ..joined };
        assert_eq!(kept.text(), "a is a member already: /k\n");
        let kept = Membership { unverified: Some("no route".into()), ..kept };
        assert_eq!(kept.text(), "a is a member already: /k (the server could not be asked: no route)\n");
    }
}
