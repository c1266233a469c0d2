//! `coracle token`: bootstrap tokens for joining nodes; and `coracle revoke-node`, which revokes the credentials of a node.

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use coracle_apiserver::https_client::HttpsClient;
use coracle_controllers::csr::node_of;
use coracle_fields::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestList};
use coracle_fields::core::v1::{ConfigMap, Secret, SecretList};
use coracle_fields::meta::Status;
use coracle_fields::{Made, Schema as _, View, make};
use coracle_pki::authority::Authority;
use coracle_pki::bootstrap_token::{PREFIX, SECRET_TYPE, field};
use coracle_pki::revoked::REVOKED;
use coracle_proto::names::dns1123_subdomain;
use http::Method;
use rand::RngExt;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// Extra group of the created tokens, besides `system:bootstrappers`.
const GROUP: &str = "system:bootstrappers:coracle:default-node-token";

/// Kubeconfig used to connect to the API server.
#[derive(Debug, Clone, Args)]
pub struct KubeconfigArgs {
    /// Data directory of the server; its admin.kubeconfig is used.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle")]
    data_dir: PathBuf,
    /// Kubeconfig to use instead.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

impl KubeconfigArgs {
    fn remote(&self) -> anyhow::Result<HttpsClient> {
        let path = self.kubeconfig.clone().unwrap_or_else(|| self.data_dir.join("admin.kubeconfig"));
        Ok(HttpsClient::from_kubeconfig(&path)?)
    }
}

/// Options of `coracle token`.
#[derive(Debug, Clone, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum TokenCommand {
    /// Create a token and print it, prefixed with the hash of the cluster CA.
    Create {
        #[command(flatten)]
        server: KubeconfigArgs,
        /// Lifetime, such as 30m, 24h or 7d; 0 never expires.
        #[arg(long, default_value = "24h")]
        ttl: String,
        /// Description of the token.
        #[arg(long, default_value = "")]
        description: String,
        /// Print only `id.secret`, the form that kubeadm and kubelets use.
        #[arg(long)]
        bare: bool,
    },
    /// List tokens, without their secrets.
    List {
        #[command(flatten)]
        server: KubeconfigArgs,
    },
    /// Revoke a token by its id.
    Revoke {
        #[command(flatten)]
        server: KubeconfigArgs,
        /// Id (the six characters before the dot) or the whole token.
        id: String,
    },
}

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
}

/// Seconds of a duration such as `90s`, `30m`, `24h` or `7d`.
fn seconds(text: &str) -> anyhow::Result<i64> {
    let (number, unit) = text.split_at(text.len() - usize::from(text.ends_with(char::is_alphabetic)));
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        other => bail!("unit {other:?} is not known: want s, m, h or d"),
    };
    let number: i64 = number.parse().with_context(|| format!("{text:?} is no duration"))?;
    Ok(number * factor)
}

fn random_string(length: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = rand::rng();
    (0..length).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}

/// The id in `id`, `id.secret` or a token with a hash before it.
fn id_of(text: &str) -> &str {
    let text = text.rsplit("::").next().unwrap_or(text);
    text.split('.').next().unwrap_or(text)
}

async fn ask(
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
fn refusal<'a>(answer: &'a Value, other: &'a str) -> &'a str {
    Status::of(answer).message().or(other)
}

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Runs `coracle token`.
pub async fn run(args: &TokenArgs) -> anyhow::Result<()> {
    match &args.command {
        TokenCommand::Create { server, ttl, description, bare } => {
            let remote = server.remote()?;
            let (id, secret) = (random_string(6), random_string(16));
            let mut body = make!(Secret {
                type_: SECRET_TYPE,
                metadata: { name: format!("{PREFIX}{id}"), namespace: "kube-system" },
                string_data: [
                    ("token-id", id.as_str()),
                    ("token-secret", secret.as_str()),
                    ("description", description.as_str()),
                    ("auth-extra-groups", GROUP),
                    ("usage-bootstrap-authentication", "true"),
                    ("usage-bootstrap-signing", "true"),
                ],
            });
            let life = seconds(ttl)?;
            if life > 0 {
                let until = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + life)?;
                body.edit().string_data().insert("expiration", until.to_string());
            }
            ask(&remote, Method::POST, SECRETS, Some(&body.into_value())).await?;
            if *bare {
                println!("{id}.{secret}");
            } else {
                println!("K10{}::{id}.{secret}", authority_hash(&remote, server).await?);
            }
        }
        TokenCommand::List { server } => {
            let path = format!("{SECRETS}?fieldSelector=type%3D{}", SECRET_TYPE.replace('/', "%2F"));
            let list = ask(&server.remote()?, Method::GET, &path, None).await?;
            let mut listing = String::new();
            writeln!(listing, "{:<8} {:<26} {:<22} DESCRIPTION", "ID", "EXPIRES", "USAGES")?;
            for secret in SecretList::of(&list).items().to_values() {
                let secret = &secret;
                let usages = ["authentication", "signing"].into_iter();
                let usages: Vec<&str> = usages
                    .filter(|usage| field(secret, &format!("usage-bootstrap-{usage}")) == "true")
                    .collect();
                let expires = Some(field(secret, "expiration")).filter(|e| !e.is_empty());
                writeln!(
                    listing,
                    "{:<8} {:<26} {:<22} {}",
                    field(secret, "token-id"),
                    expires.unwrap_or_else(|| "never".into()),
                    usages.join(","),
                    field(secret, "description")
                )?;
            }
            coracle_cli::print::print(&listing)?;
        }
        TokenCommand::Revoke { server, id } => {
            let id = id_of(id);
            ask(&server.remote()?, Method::DELETE, &format!("{SECRETS}/{PREFIX}{id}"), None).await?;
            println!("token {id} revoked");
        }
    }
    Ok(())
}

/// Hash of the public key of the cluster CA, in hex: from the data directory, or from the ConfigMap of the server.
async fn authority_hash(remote: &HttpsClient, server: &KubeconfigArgs) -> anyhow::Result<String> {
    let pki = server.data_dir.join("pki");
    let certificate = if server.kubeconfig.is_none() && pki.join("ca.crt").exists() {
        std::fs::read_to_string(pki.join("ca.crt"))?
    } else {
        let path = "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt";
        let map = ask(remote, Method::GET, path, None).await?;
        let certificate = ConfigMap::of(&map).data().key("ca.crt").get();
        certificate.context("the server publishes no authority")?.to_owned()
    };
    let hash = Authority::hash_of(&certificate).context("the authority's certificate cannot be read")?;
    Ok(hash.trim_start_matches("sha256:").to_owned())
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
pub async fn revoke_node(args: &RevokeNodeArgs) -> anyhow::Result<()> {
    let mut done = Vec::new();
    let outcome = revoke(args, &mut done).await;
    // A closed pipe on standard output does not abort the revocation.
    let mut out = std::io::stdout().lock();
    for line in done {
        let _ = writeln!(out, "{line}");
    }
    outcome
}

/// Revokes the node and appends each completed step to `done`, also when a later step fails.
async fn revoke(args: &RevokeNodeArgs, done: &mut Vec<String>) -> anyhow::Result<()> {
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
            data: [(node, time)],
        });
        ask(&remote, Method::POST, MAPS, Some(&map.into_value())).await?;
    } else {
        let mut map = Made::<ConfigMap>::new(map);
        map.edit().data().insert(node, time);
        ask(&remote, Method::PUT, &format!("{MAPS}/{REVOKED}"), Some(&map.into_value())).await?;
    }
    done.push(format!("node {node} revoked: its current certificates are rejected"));
    if !args.keep_tokens {
        let path = format!("{SECRETS}?fieldSelector=type%3D{}", SECRET_TYPE.replace('/', "%2F"));
        let list = ask(&remote, Method::GET, &path, None).await?;
        for secret in SecretList::of(&list).items().items() {
            let name = secret.metadata().name().text();
            remove(&remote, &format!("{SECRETS}/{name}")).await?;
            done.push(format!("token {} revoked: it may know it", name.trim_start_matches(PREFIX)));
        }
    }
    // Listed again: no new request can be created now.
    for request in node_records(&remote, node).await?.requests {
        let request = request.view();
        let name = request.metadata().name().text();
        if request.status().certificate().text().is_empty() {
            remove(&remote, &format!("{REQUESTS}/{name}")).await?;
            done.push(format!("certificate signing request {name} deleted"));
        }
    }
    remove(&remote, &format!("/api/v1/nodes/{node}")).await?;
    tokio::time::sleep_until(returning).await;
    done.push("a machine can join under this name with a new token: coracle token create".into());
    Ok(())
}

/// Deletes an object; succeeds when it does not exist.
async fn remove(remote: &HttpsClient, path: &str) -> anyhow::Result<()> {
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
    fn durations_and_ids_are_read() {
        for (text, value) in
            [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800), ("0", 0), ("5", 5)]
        {
            assert_eq!(seconds(text).unwrap(), value, "{text}");
        }
        assert!(seconds("soon").is_err() && seconds("3w").is_err() && seconds("").is_err());
        for text in ["abcdef", "abcdef.0123", "K10ffff::abcdef.0123"] {
            assert_eq!(id_of(text), "abcdef");
        }
        assert!(
            coracle_pki::bootstrap_token::parse(&format!("{}.{}", random_string(6), random_string(16)))
                .is_some()
        );
    }
}
