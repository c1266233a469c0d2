//! `coracle revoke-node`: revokes the credentials of a node.

use crate::admin::{KubeconfigArgs, ask, refusal, remove};
use crate::output::Output;
use crate::token::{self, SECRETS};
use anyhow::{Context, bail};
use clap::Args;
use coracle_apiserver::https_client::HttpsClient;
use coracle_controllers::csr::node_of;
use coracle_fields::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestList};
use coracle_fields::core::v1::{ConfigMap, SecretList};
use coracle_fields::{Made, Schema as _, View, make};
use coracle_pki::bootstrap_token::PREFIX;
use coracle_pki::revoked::REVOKED;
use coracle_proto::names::dns1123_subdomain;
use http::Method;
use serde::Serialize;

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Options of `coracle revoke-node`.
#[derive(Debug, Clone, Args)]
pub struct RevokeNodeArgs {
    #[command(flatten)]
    server: KubeconfigArgs,
    /// Name of the node.
    node: String,
    /// Revoke the name even if there is no Node and no certificate signing request for it.
    #[arg(long)]
    force: bool,
    /// Keep the bootstrap tokens. By default all are revoked, because the node may know them.
    #[arg(long)]
    keep_tokens: bool,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Completed steps of a revocation.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    node: String,
    /// Certificates issued before are rejected; none if nothing was done.
    since: Option<String>,
    /// Ids of bootstrap tokens that were revoked.
    tokens: Vec<String>,
    /// Pending certificate signing requests that were deleted.
    requests: Vec<String>,
    /// Whether the Node was deleted, which is the last step.
    deleted: bool,
}

impl Revoked {
    fn text(&self) -> String {
        let mut text = format!("node {} revoked: its current certificates are rejected\n", self.node);
        for token in &self.tokens {
            text.push_str(&format!("token {token} revoked: it may know it\n"));
        }
        for request in &self.requests {
            text.push_str(&format!("certificate signing request {request} deleted\n"));
        }
        if self.deleted {
            text.push_str("a machine can join under this name with a new token: coracle token create\n");
        }
        text
    }
}

/// The Node of a name, its revocation, and certificate signing requests for it.
struct NodeRecords {
    registered: bool,
    revoked: bool,
    requests: Vec<Made<CertificateSigningRequest>>,
}

async fn node_records(remote: &HttpsClient, node: &str) -> anyhow::Result<NodeRecords> {
    let (code, answer) = remote.send(Method::GET, &format!("/api/v1/nodes/{node}"), None).await?;
    if code != 200 && code != 404 {
        bail!("{}", refusal(&answer, "the Node could not be read"));
    }
    let (_, list) = remote.send(Method::GET, &format!("{MAPS}/{REVOKED}"), None).await?;
    let all = ask(remote, Method::GET, REQUESTS, None).await?;
    let user = format!("system:node:{node}");
    let of_node = |request: &View<'_, CertificateSigningRequest>| {
        let spec = request.spec();
        spec.username() == user || node_of(spec.request().text()) == node
    };
    let requests = CertificateSigningRequestList::of(&all).items().items().filter(of_node);
    let requests = requests.map(|request| Made::new(request.to_value())).collect();
    let revoked = ConfigMap::of(&list).data().key(node).get().is_some();
    Ok(NodeRecords { registered: code == 200, revoked, requests })
}

/// The next second of the server's clock, as a Unix time: certificates and requests of the current second are revoked too.
async fn next_second(remote: &HttpsClient) -> anyhow::Result<i64> {
    let body = make!(ConfigMap { metadata: { generate_name: "clock-" } }).into_value();
    let made = ask(remote, Method::POST, &format!("{MAPS}?dryRun=All"), Some(&body)).await?;
    let now = ConfigMap::of(&made).metadata().creation_timestamp().get();
    let now = now.context("the server does not say what time it is")?;
    Ok(now.parse::<jiff::Timestamp>()?.as_second() + 1)
}

/// Revokes a node: rejects its current certificates, revokes the bootstrap tokens, deletes its pending certificate signing
/// requests and its Node. Afterwards a machine can join under the name with a new token.
pub async fn run(args: &RevokeNodeArgs) -> anyhow::Result<()> {
    let mut done = Revoked { node: args.node.clone(), ..Revoked::default() };
    let outcome = revoke(args, &mut done).await;
    let printed = match done.since {
        Some(_) => args.output.print(&done, || done.text()),
        None => Ok(()),
    };
    outcome?;
    Ok(printed?)
}

/// Revokes the node and records each completed step in `done`, also when a later step fails.
async fn revoke(args: &RevokeNodeArgs, done: &mut Revoked) -> anyhow::Result<()> {
    let (remote, node) = (args.server.remote()?, args.node.as_str());
    if let Some(why) = dns1123_subdomain(node).first() {
        bail!("{node:?} is no name of a node: {why}");
    }
    let NodeRecords { registered, revoked, requests } = node_records(&remote, node).await?;
    if !registered && !revoked && requests.is_empty() && !args.force {
        bail!(
            "node {node:?} is not known: there is no Node and no recent certificate signing request; \
             --force revokes certificates in its name anyway"
        );
    }
    let since = next_second(&remote).await?;
    let returning = tokio::time::Instant::now() + std::time::Duration::from_secs(1);
    let time = jiff::Timestamp::from_second(since)?.to_string();
    let (code, map) = remote.send(Method::GET, &format!("{MAPS}/{REVOKED}"), None).await?;
    if code == 404 {
        let map = make!(ConfigMap {
            metadata: { name: REVOKED, namespace: "kube-system" },
            data: [(node, time.clone())],
        });
        ask(&remote, Method::POST, MAPS, Some(&map.into_value())).await?;
    } else {
        let mut map = Made::<ConfigMap>::new(map);
        map.edit().data().insert(node, time.clone());
        ask(&remote, Method::PUT, &format!("{MAPS}/{REVOKED}"), Some(&map.into_value())).await?;
    }
    done.since = Some(time);
    if !args.keep_tokens {
        let list = token::list(&remote).await?;
        for secret in SecretList::of(&list).items().items() {
            let name = secret.metadata().name().text();
            remove(&remote, &format!("{SECRETS}/{name}")).await?;
            done.tokens.push(name.trim_start_matches(PREFIX).to_owned());
        }
    }
    // Listed again: no new request can be created now.
    for request in node_records(&remote, node).await?.requests {
        let request = request.view();
        let name = request.metadata().name().text();
        if request.status().certificate().text().is_empty() {
            remove(&remote, &format!("{REQUESTS}/{name}")).await?;
            done.requests.push(name.to_owned());
        }
    }
    remove(&remote, &format!("/api/v1/nodes/{node}")).await?;
    tokio::time::sleep_until(returning).await;
    done.deleted = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_were_not_reached_are_not_said() {
        let mut done = Revoked { node: "a".into(), tokens: vec!["t".into()], ..Revoked::default() };
        let begun =
            "node a revoked: its current certificates are rejected\ntoken t revoked: it may know it\n";
        assert_eq!(done.text(), begun);
        done.requests.push("r".into());
        done.deleted = true;
        assert!(done.text().ends_with(
            "certificate signing request r deleted\n\
             a machine can join under this name with a new token: coracle token create\n"
        ));
    }
}
