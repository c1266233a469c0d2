//! `coracle token`: bootstrap tokens for joining nodes, and tokens for joining servers.

// Which tokens name a CA that the cluster trusts.
mod trusted;
// Tokens of servers.
mod server;

use crate::admin::{KubeconfigArgs, ask};
use crate::output::Output;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use coracle_apiserver::https_client::HttpsClient;
use coracle_fields::core::v1::{ConfigMap, Secret, SecretList};
use coracle_fields::{Schema as _, make};
use coracle_pki::authority::Authority;
use coracle_pki::bootstrap_token::{CA_HASH, PREFIX, SECRET_TYPE, expired, field};
use coracle_pki::server_token;
use http::Method;
use rand::RngExt;
use serde::Serialize;
use serde_json::{Value, json};
use server::ServerTokens;
use std::fmt::Write as _;
use trusted::{TokenStatus, Trusted};

/// Extra group of the created tokens, besides `system:bootstrappers`.
const GROUP: &str = "system:bootstrappers:coracle:default-node-token";
/// Path of the Secrets that hold tokens.
pub(crate) const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

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
        kubeconfig: KubeconfigArgs,
        /// Create a token for a server: `coracle server --join URL --token TOKEN`. Its owner gets the keys of the cluster.
        #[arg(long, conflicts_with = "bare")]
        server: bool,
        /// Lifetime, such as 30m, 24h or 7d; 0 never expires.
        #[arg(long, default_value = "24h", value_parser = seconds)]
        ttl: i64,
        /// Description of the token.
        #[arg(long, default_value = "")]
        description: String,
        /// Print only `id.secret`, the form that kubeadm and kubelets use.
        #[arg(long)]
        bare: bool,
        /// Format of the output.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// List tokens, without their secrets.
    List {
        #[command(flatten)]
        kubeconfig: KubeconfigArgs,
        /// Format of the output.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Revoke a token by its id.
    #[command(visible_alias = "delete")]
    Revoke {
        #[command(flatten)]
        kubeconfig: KubeconfigArgs,
        /// Id (the characters before the dot) or the whole token.
        id: String,
        /// Format of the output.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
}

/// A row of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    kind: &'static str,
    status: TokenStatus,
    /// The CA that it names; empty if it names none, or if that is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    ca_hash: String,
    /// Empty if it does not expire.
    expires: String,
    usages: Vec<&'static str>,
    description: String,
}

/// Seconds of a duration such as `90s`, `30m`, `24h` or `7d`.
pub(crate) fn seconds(text: &str) -> anyhow::Result<i64> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        other => bail!("unit {other:?} is not known: want s, m, h or d"),
    };
    let number: i64 = number.parse().with_context(|| format!("{text:?} is no duration"))?;
    number.checked_mul(factor).with_context(|| format!("{text:?} is too long"))
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

/// Runs `coracle token`.
pub async fn run(args: &TokenArgs) -> anyhow::Result<()> {
    match &args.command {
        TokenCommand::Create { kubeconfig, server, ttl, description, bare, output } => {
            let remote = kubeconfig.remote()?;
            let token = if *server {
                ServerTokens(&remote).create(*ttl, description).await?
            } else if *bare {
                create(&remote, *ttl, description, None).await?
            } else {
                let certificate = authorities(&remote, kubeconfig).await?;
                let hash = Authority::hash_of(&certificate);
                let hash = hash.context("the authority's certificate cannot be read")?;
                let token = create(&remote, *ttl, description, Some(&hash)).await?;
                format!("K10{}::{token}", hash.trim_start_matches("sha256:"))
            };
            output.print(&json!({"token": token}), || format!("{token}\n"))?;
        }
        TokenCommand::List { kubeconfig, output } => {
            let remote = kubeconfig.remote()?;
            let trusted = match authorities(&remote, kubeconfig).await {
                Ok(certificates) => Trusted::of(Authority::hashes_of(&certificates)),
                // Who may not read them sees the tokens.
                Err(_) => Trusted::default(),
            };
            let rows = rows(&remote, &trusted).await?;
            let text = table(&rows)?;
            output.print(&json!({"items": rows}), || text)?;
        }
        TokenCommand::Revoke { kubeconfig, id, output } => {
            let remote = kubeconfig.remote()?;
            let id = server_token::id_of(id).unwrap_or_else(|| id_of(id));
            revoke(&remote, id).await?;
            output.print(&json!({"revoked": id}), || format!("token {id} revoked\n"))?;
        }
    }
    Ok(())
}

/// All tokens, of nodes and of servers.
async fn rows(remote: &HttpsClient, trusted: &Trusted) -> anyhow::Result<Vec<Row>> {
    let (nodes, now) = (list(remote).await?, jiff::Timestamp::now());
    let nodes = SecretList::of(&nodes).items().to_values();
    let mut rows: Vec<Row> = nodes.iter().map(|secret| row(secret, trusted, now)).collect();
    rows.extend(ServerTokens(remote).rows(trusted).await?);
    Ok(rows)
}

/// Revokes a token by its id.
async fn revoke(remote: &HttpsClient, id: &str) -> anyhow::Result<()> {
    match server_token::id_of(id) {
        Some(id) => ServerTokens(remote).delete(id).await,
        None => ask(remote, Method::DELETE, &format!("{SECRETS}/{PREFIX}{id}"), None).await.map(drop),
    }
}

/// Revokes the tokens that name a CA that is not trusted any more, and returns their ids: who has one could not join with it.
pub(crate) async fn revoke_of_old_cas(
    remote: &HttpsClient,
    trusted: Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let rows = rows(remote, &Trusted::of(trusted)).await?;
    let mut revoked = Vec::new();
    for row in rows.into_iter().filter(|row| row.status == TokenStatus::OldCa) {
        revoke(remote, &row.id).await?;
        revoked.push(row.id);
    }
    Ok(revoked)
}

/// Creates a token and returns its `id.secret`. It is revoked when `ca_hash`, which it names, is not trusted any more.
async fn create(
    remote: &HttpsClient,
    life: i64,
    description: &str,
    ca_hash: Option<&str>,
) -> anyhow::Result<String> {
    let (id, secret) = (random_string(6), random_string(16));
    let mut body = make!(Secret {
        type_: SECRET_TYPE,
        metadata: { name: format!("{PREFIX}{id}"), namespace: "kube-system" },
        string_data: [
            ("token-id", id.as_str()),
            ("token-secret", secret.as_str()),
            ("description", description),
            ("auth-extra-groups", GROUP),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "true"),
        ],
    });
    if let Some(hash) = ca_hash {
        body.edit().metadata().annotations().insert(CA_HASH, hash);
    }
    if life > 0 {
        let until = jiff::Timestamp::now().as_second().saturating_add(life);
        let until = jiff::Timestamp::from_second(until).context("--ttl is too long")?;
        body.edit().string_data().insert("expiration", until.to_string());
    }
    ask(remote, Method::POST, SECRETS, Some(&body.into_value())).await?;
    Ok(format!("{id}.{secret}"))
}

/// The Secrets of all tokens, a `SecretList`.
pub(crate) async fn list(remote: &HttpsClient) -> anyhow::Result<Value> {
    let path = format!("{SECRETS}?fieldSelector=type%3D{}", SECRET_TYPE.replace('/', "%2F"));
    ask(remote, Method::GET, &path, None).await
}

/// The row of a token of nodes.
fn row(secret: &Value, trusted: &Trusted, now: jiff::Timestamp) -> Row {
    let usages = ["authentication", "signing"].into_iter();
    let usages = usages.filter(|usage| field(secret, &format!("usage-bootstrap-{usage}")) == "true");
    let ca_hash = Secret::of(secret).metadata().annotations().key(CA_HASH).text().to_owned();
    Row {
        id: field(secret, "token-id"),
        kind: "node",
        status: trusted.status(&ca_hash, expired(secret, now)),
        ca_hash,
        expires: field(secret, "expiration"),
        usages: usages.collect(),
        description: field(secret, "description"),
    }
}

fn table(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let mut table = String::new();
    let (id, kind, status, expires, usages) = ("ID", "KIND", "STATUS", "EXPIRES", "USAGES");
    writeln!(table, "{id:<8} {kind:<6} {status:<8} {expires:<30} {usages:<22} DESCRIPTION")?;
    for Row { id, kind, status, expires, usages, description, .. } in rows {
        let expires = if expires.is_empty() { "never" } else { expires };
        let (status, usages) = (status.text(), usages.join(","));
        writeln!(table, "{id:<8} {kind:<6} {status:<8} {expires:<30} {usages:<22} {description}")?;
    }
    Ok(table)
}

/// The certificates of the cluster CA, the one that signs first: from the data directory, or from the ConfigMap of the server.
async fn authorities(remote: &HttpsClient, server: &KubeconfigArgs) -> anyhow::Result<String> {
    let pki = server.data_dir().join("pki");
    if server.is_here() && pki.join("ca.crt").exists() {
        return Ok(std::fs::read_to_string(pki.join("ca.crt"))?);
    }
    let path = "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt";
    let map = ask(remote, Method::GET, path, None).await?;
    let certificate = ConfigMap::of(&map).data().key("ca.crt").get();
    Ok(certificate.context("the server publishes no authority")?.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_list_names_kinds() {
        let row = |kind, status, expires: &str| Row {
            id: "abcdef".into(),
            kind,
            status,
            ca_hash: String::new(),
            expires: expires.into(),
            usages: vec!["authentication", "signing"],
            description: "for b".into(),
        };
        let valid = row("node", TokenStatus::Valid, "");
        let old = row("server", TokenStatus::OldCa, "2030-01-01T00:00:00Z");
        let table = table(&[valid, old]).unwrap();
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["ID", "KIND", "STATUS", "EXPIRES", "USAGES", "DESCRIPTION"]);
        assert_eq!(lines[1], ["abcdef", "node", "valid", "never", "authentication,signing", "for", "b"]);
        assert_eq!(lines[2][..4], ["abcdef", "server", "old-ca", "2030-01-01T00:00:00Z"]);
    }

    #[test]
    fn durations_and_ids_are_read() {
        for (text, value) in
            [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800), ("0", 0), ("5", 5)]
        {
            assert_eq!(seconds(text).unwrap(), value, "{text}");
        }
        assert!(seconds("9223372036854775807d").is_err());
        for text in ["soon", "3w", "", "5é", "é", "1hh"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["abcdef", "abcdef.0123", "K10ffff::abcdef.0123"] {
            assert_eq!(id_of(text), "abcdef");
        }
        assert!(
            coracle_pki::bootstrap_token::parse(&format!("{}.{}", random_string(6), random_string(16)))
                .is_some()
        );
    }
}
