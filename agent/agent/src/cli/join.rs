//! `coracle-agent join`: joins a cluster with a server address and a token.

use crate::identity::join::{IdentityFiles, JoinParams, check_name, join};
use crate::node::machine;
use coracle_cli::causes::chain;
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
        if place.joined(&node) {
            let member = format!("{node} is a member already: {}", place.kubeconfig.display());
            match runtime.block_on(place.is_accepted()) {
                Ok(true) => {
                    println!("{member}");
                    return Ok(());
                }
                Ok(false) => eprintln!("the certificate of {node} is not accepted any more: joining anew"),
                // The server may not be up yet: the certificate is kept.
                Err(error) => {
                    println!("{member} (the server could not be asked: {})", chain(&error));
                    return Ok(());
                }
            }
        }
        runtime.block_on(join(&invitation, &node, &place, Duration::from_secs(self.timeout)))?;
        println!("{node} joined {}", self.server.join(", "));
        println!("coracle-agent run --node-name {node} --kubeconfig {}", place.kubeconfig.display());
        Ok(())
    }
}
