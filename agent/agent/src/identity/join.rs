//! Joins a cluster: requests a client certificate with a bootstrap token.

use super::client::Identity;
use super::files::{validity, write_private};
use super::{IdentityError, pin, request};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::kubeconfig::of_node;
use coracle_proto::names::dns1123_subdomain;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Parameters of joining.
#[derive(Debug, Clone)]
pub struct JoinParams {
    /// The server's URL.
    pub server: http::Uri,
    /// `id.secret`.
    pub token: String,
    /// SHA-256 of the authority's public key, in hex.
    pub hash: String,
}

impl JoinParams {
    /// From a server's URL, a token that may begin with `K10<hash>::`, and a hash that may begin with `sha256:`.
    pub fn read(server: &str, token: &str, hash: Option<&str>) -> Result<Self, IdentityError> {
        let bad = |why: &str| IdentityError::Server { server: server.into(), why: why.into() };
        let uri: http::Uri = server.parse().map_err(|_| bad("this is no URL"))?;
        if uri.scheme_str() != Some("https") || uri.host().is_none() {
            return Err(bad("want https://host:port"));
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
        Ok(Self { server: uri, token: token.to_owned(), hash })
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
}

impl IdentityFiles {
    /// Below the agent's directory.
    pub fn below(root: &Path) -> Self {
        Self { kubeconfig: root.join("kubeconfig"), pki: root.join("pki") }
    }

    /// Whether there is a certificate of the node that has not expired; the server may have revoked it.
    pub fn joined(&self, node: &str) -> bool {
        let known = std::fs::read(self.pki.join("client.pem")).ok().and_then(|pem| validity(&pem));
        let now = jiff::Timestamp::now().as_second();
        self.kubeconfig.exists()
            && known.is_some_and(|(_, until, name)| until > now && name == format!("system:node:{node}"))
    }

    /// Whether the server accepts the stored certificate.
    pub async fn is_accepted(&self) -> Result<bool, IdentityError> {
        let ask = async {
            let api: Api<SelfSubjectReview> = Api::all(Identity::read(&self.kubeconfig).await?.client());
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
    let authority = pin::authority(&invitation.server, &invitation.hash).await?;
    let server = invitation.server.to_string().trim_end_matches('/').to_owned();
    let mut config = kube::Config::new(invitation.server.clone());
    config.root_cert = Some(vec![authority.clone()]);
    config.auth_info.token = Some(invitation.token.clone().into());
    let client = kube::Client::try_from(config)?;
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
    match place.is_accepted().await? {
        true => Ok(()),
        false => Err(IdentityError::NotAccepted { server, node: node.into() }),
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
