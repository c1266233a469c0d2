//! Joins a cluster: requests a client certificate with a bootstrap token.

use super::client::{Identity, with_user_agent};
use super::files::{validity, write_private};
use super::{IdentityError, pin, request};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::kubeconfig::of_node;
use coracle_proto::names::dns1123_subdomain;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::servers::{Address, MAX_SERVERS, ServerList};

/// The file of the list of servers, in the agent's directory.
pub const SERVERS: &str = "servers";

/// Parameters of joining.
#[derive(Debug, Clone)]
pub struct JoinParams {
    /// URLs of servers; the first that can be reached is used.
    pub servers: Vec<http::Uri>,
    /// `id.secret`.
    pub token: String,
    /// SHA-256 of the authority's public key, in hex.
    pub hash: String,
}

impl JoinParams {
    /// From URLs of servers, separated by commas, a token that may begin with `K10<hash>::`, and a hash that may begin with
    /// `sha256:`.
    pub fn read(servers: &str, token: &str, hash: Option<&str>) -> Result<Self, IdentityError> {
        let bad = |why: &str| IdentityError::Server { server: servers.into(), why: why.into() };
        let parse = |server: &str| {
            let bad = |why: &str| IdentityError::Server { server: server.into(), why: why.into() };
            let uri: http::Uri = server.trim().parse().map_err(|_| bad("this is no URL"))?;
            match uri.scheme_str() == Some("https") && uri.host().is_some() {
                true => Ok(uri),
                false => Err(bad("want https://host:port")),
            }
        };
        let uris = servers.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        if uris.len() > MAX_SERVERS {
            return Err(bad(&format!("these are more than {MAX_SERVERS} servers")));
        }
        let (inside, token) = match token.strip_prefix("K10").and_then(|rest| rest.split_once("::")) {
            Some((hash, token)) => (Some(hash), token),
            None => (None, token),
        };
        let word = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        let formed = token.split_once('.').is_some_and(|(id, secret)| word(id, 6) && word(secret, 16));
        if !formed {
            return Err(IdentityError::Token);
        }
        let hash = hash.or(inside).ok_or(IdentityError::NoHash)?;
        let hash = hash.trim_start_matches("sha256:").to_lowercase();
        if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad("the hash of the authority must be 64 hex digits"));
        }
        Ok(Self { servers: uris, token: token.to_owned(), hash })
    }
}

/// Timeout of the check whether the server accepts the certificate.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Validates the name of a Node.
pub fn check_name(name: &str) -> Result<(), IdentityError> {
    match dns1123_subdomain(name).is_empty() {
        true => Ok(()),
        false => Err(IdentityError::Name { name: name.into(), why: dns1123_subdomain(name).join(", ") }),
    }
}

/// Files of a node's identity.
#[derive(Debug, Clone)]
pub struct IdentityFiles {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// Certificates and keys.
    pub pki: PathBuf,
    /// The list of servers.
    pub servers: PathBuf,
}

impl IdentityFiles {
    /// Below the agent's directory.
    pub fn below(root: &Path) -> Self {
        Self { kubeconfig: root.join("kubeconfig"), pki: root.join("pki"), servers: root.join(SERVERS) }
    }

    /// Whether there is a certificate of the node that has not expired; the server may have revoked it.
    pub fn joined(&self, node: &str) -> bool {
        let known = std::fs::read(self.pki.join("client.pem")).ok().and_then(|pem| validity(&pem));
        let now = jiff::Timestamp::now().as_second();
        self.kubeconfig.exists()
            && known.is_some_and(|(_, until, name)| until > now && name == format!("system:node:{node}"))
    }

    async fn identity(&self) -> Result<Identity, IdentityError> {
        Identity::open(&self.kubeconfig, Some(&self.servers)).await
    }

    /// Whether the server accepts the stored certificate.
    pub async fn is_accepted(&self) -> Result<bool, IdentityError> {
        let ask = async {
            let api: Api<SelfSubjectReview> = Api::all(self.identity().await?.client());
            match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 401 => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        let server = self.kubeconfig.display().to_string();
        let silent = IdentityError::Server { server, why: "no answer".into() };
        tokio::time::timeout(ACCEPT_TIMEOUT, ask).await.unwrap_or(Err(silent))
    }
}

/// Joins: verifies the server, requests a certificate with the token, writes the files for `run`, and checks that the server
/// accepts the certificate.
pub async fn join(
    invitation: &JoinParams,
    node: &str,
    place: &IdentityFiles,
    patience: Duration,
) -> Result<(), IdentityError> {
    check_name(node)?;
    let (uri, authority) = first_authority(invitation).await?;
    let server = uri.to_string().trim_end_matches('/').to_owned();
    let mut config = kube::Config::new(uri.clone());
    config.root_cert = Some(vec![authority.clone()]);
    config.auth_info.token = Some(invitation.token.clone().into());
    let client = with_user_agent(config)?;
    let obtained = request::obtain(&client, request::CLIENT, node, &[], patience).await;
    let pem = obtained.map_err(|error| match error {
        IdentityError::Api(kube::Error::Api(status)) if status.code == 401 => {
            IdentityError::Unauthorized { server: server.clone() }
        }
        other => other,
    })?;
    coracle_cli::private_files::directory(&place.pki)
        .map_err(|source| IdentityError::File { path: place.pki.clone(), source })?;
    write_private(&place.pki.join("ca.crt"), to_pem(&authority).as_bytes())?;
    write_private(&place.pki.join("client.pem"), pem.as_bytes())?;
    write_private(&place.kubeconfig, of_node(&server, &place.pki, node).as_bytes())?;
    // What was learned before may be of another cluster.
    let others = invitation.servers.iter().filter(|other| **other != uri);
    let given = others.map(Address::of_url).collect::<Result<_, _>>()?;
    ServerList { given, learned: Vec::new() }.write(&place.servers)?;
    match place.is_accepted().await? {
        true => Ok(()),
        false => Err(IdentityError::NotAccepted { server, node: node.into() }),
    }
}

/// The first server that can be reached, and its verified authority. One that can be reached and is not the cluster's is an error.
async fn first_authority(invitation: &JoinParams) -> Result<(http::Uri, Vec<u8>), IdentityError> {
    let mut servers = invitation.servers.iter().peekable();
    loop {
        let Some(server) = servers.next() else { return Err(IdentityError::NoServer) };
        match pin::authority(server, &invitation.hash).await {
            Err(error @ IdentityError::Unreachable { .. }) if servers.peek().is_some() => {
                tracing::warn!(error = %coracle_cli::causes::chain(&error), "server skipped");
            }
            found => return Ok((server.clone(), found?)),
        }
    }
}

fn to_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn invitations_name_a_server_a_token_and_a_hash() {
        let hash = "ab".repeat(32);
        let (url, bare) = ("https://10.0.0.1:6443", "abcdef.0123456789abcdef");
        let whole = format!("K10{hash}::{bare}");
        let read = |server: &str, token: &str, given: Option<&str>| {
            JoinParams::read(server, token, given).map(|i| (i.token, i.hash)).map_err(|e| e.to_string())
        };
        assert_eq!(read(url, &whole, None).unwrap(), (bare.to_owned(), hash.clone()));
        assert_eq!(read(url, bare, Some(&format!("sha256:{hash}"))).unwrap().1, hash);
        let other = "cd".repeat(32);
        assert_eq!(read(url, &whole, Some(&other)).unwrap().1, other, "what is said aloud wins");
        assert!(read(url, bare, None).unwrap_err().contains("--ca-hash"));
        assert!(read(url, bare, Some("abc")).unwrap_err().contains("64 hex digits"));
        let several = JoinParams::read(&format!("{url}, https://b:1"), &whole, None).unwrap();
        assert_eq!(several.servers, [url.parse::<http::Uri>().unwrap(), "https://b:1".parse().unwrap()]);
        assert!(read(&format!("{url},"), &whole, None).is_err());
        assert!(read(&vec![url; 33].join(","), &whole, None).unwrap_err().contains("more than 32"));
        assert!(read("http://x", &whole, None).unwrap_err().contains("https"));
        assert!(read(url, "ABCDEF.0123456789abcdef", Some(&hash)).unwrap_err().contains("form"));
    }

    #[test]
    fn nodes_have_names_of_hosts() {
        let long = "a".repeat(254);
        for (name, good) in [
            ("node-a", true),
            ("node-a.example.com", true),
            ("1", true),
            ("", false),
            ("Node", false),
            ("node_a", false),
            ("-a", false),
            ("a..b", false),
            ("a/../b", false),
            (&long, false),
        ] {
            assert_eq!(check_name(name).is_ok(), good, "{name}");
        }
    }
}
