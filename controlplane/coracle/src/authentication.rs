//! Builds the authenticators from the options and from the file of `--authentication-config`.

use crate::security::Security;
use anyhow::{Context as _, bail};
use coracle_apiserver::authn::anonymous::Anonymous;
use coracle_apiserver::authn::bootstrap_token::BootstrapTokens;
use coracle_apiserver::authn::configuration::{Configuration, Reloader};
use coracle_apiserver::authn::files::Credentials;
use coracle_apiserver::authn::front_proxy::FrontProxy;
use coracle_apiserver::authn::oidc::mapping::{Mapping, Source};
use coracle_apiserver::authn::oidc::{ALGORITHMS, Issuer, Issuers, Settings};
use coracle_apiserver::authn::service_account::ServiceAccounts;
use coracle_apiserver::authn::webhook::TokenWebhook;
use coracle_apiserver::authn::x509::CertificateAuthenticator;
use coracle_apiserver::authn::{self, TokenAuthenticator};
use coracle_apiserver::https_client::HttpsClient;
use coracle_apiserver::objects::Objects;
use coracle_pki::service_account::{ISSUER, Keys};
use std::sync::Arc;

const FLAG: &str = "--authentication-config";

/// The authenticators, and what can be asked of them besides.
pub struct Authenticators {
    /// All, in the order of Kubernetes.
    pub union: authn::Union,
    /// The issuers among them, for metrics.
    pub issuers: Arc<Issuers>,
    /// Follows their file, if there is one.
    pub reloader: Option<Arc<Reloader>>,
}

/// Reads the file of `--authentication-config`, if there is one; an error if it does not go together with other options.
pub fn configuration(options: &Security) -> anyhow::Result<Option<Configuration>> {
    let Some(path) = &options.authentication_config else { return Ok(None) };
    let configuration = Configuration::read(path, &own_issuers(options)?).context(FLAG)?;
    if let Some(anonymous) = &configuration.anonymous {
        if options.anonymous_auth {
            bail!("{}: anonymous: Forbidden: --anonymous-auth is set, too", path.display());
        }
        if *anonymous != Anonymous::Nobody && options.allows_everything() {
            let why = "it does not go together with --authorization-mode AlwaysAllow";
            bail!("{}: anonymous.enabled: Forbidden: {why}", path.display());
        }
    }
    Ok(Some(configuration))
}

/// The names under which this server makes tokens.
fn own_issuers(options: &Security) -> anyhow::Result<Vec<String>> {
    let issuers = options.issuers()?;
    Ok(if issuers.is_empty() { vec![ISSUER.to_owned()] } else { issuers })
}

/// Builds all of them; `server` is the name of this API server.
pub fn authenticators(
    options: &Security,
    objects: &Arc<Objects>,
    keys: &Arc<Keys>,
    front_proxy: FrontProxy,
    server: &str,
) -> anyhow::Result<Authenticators> {
    let mut tokens: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
    if let Some(path) = &options.token_auth_file {
        tokens.push(Box::new(Credentials::read(path).context("--token-auth-file")?));
    }
    tokens.push(Box::new(ServiceAccounts { keys: keys.clone(), objects: objects.clone() }));
    tokens.push(Box::new(BootstrapTokens { objects: objects.clone() }));
    let mut anonymous = if options.anonymous() { Anonymous::Everybody } else { Anonymous::Public };
    let (issuers, reloader) = match (configuration(options)?, &options.authentication_config) {
        (Some(configuration), Some(path)) => {
            if let Some(of_file) = &configuration.anonymous {
                anonymous = of_file.clone();
            }
            let reloader = Reloader::new(path.clone(), configuration, own_issuers(options)?, server);
            (reloader.issuers(), Some(Arc::new(reloader)))
        }
        _ => {
            let flags = options.oidc_issuer_url.as_ref().map(|url| of_flags(options, url)).transpose()?;
            (Arc::new(Issuers::new(server, flags.into_iter().collect())), None)
        }
    };
    tokens.push(Box::new(issuers.clone()));
    if let Some(path) = &options.authentication_token_webhook_config_file {
        let remote =
            HttpsClient::from_kubeconfig(path).context("--authentication-token-webhook-config-file")?;
        tokens.push(Box::new(TokenWebhook::new(remote)));
    }
    let passwords = options.basic_auth_file.as_deref().map(Credentials::read).transpose();
    let union = authn::Union {
        certificates: Some(CertificateAuthenticator::new(objects.clone())),
        front_proxy,
        tokens,
        audiences: keys.issuers.clone(),
        passwords: passwords.context("--basic-auth-file")?,
        anonymous,
    };
    Ok(Authenticators { union, issuers, reloader })
}

/// The issuer of the `--oidc-*` flags.
fn of_flags(options: &Security, url: &str) -> anyhow::Result<Settings> {
    if !url.starts_with("https://") {
        bail!("--oidc-issuer-url {url:?} must begin with https://");
    }
    let audience = options.oidc_client_id.clone().context("--oidc-issuer-url needs --oidc-client-id")?;
    let mut algorithms = Vec::new();
    for name in &options.oidc_signing_algs {
        let algorithm = name.parse().with_context(|| format!("--oidc-signing-algs {name}"))?;
        if !ALGORITHMS.contains(&algorithm) {
            bail!("--oidc-signing-algs {name}: only algorithms with a public key are supported");
        }
        algorithms.push(algorithm);
    }
    if algorithms.is_empty() {
        algorithms.push(jsonwebtoken::Algorithm::RS256);
    }
    let authority = options.oidc_ca_file.as_deref().map(std::fs::read_to_string).transpose();
    let issuer = Issuer {
        url: url.to_owned(),
        discovery_url: None,
        authority: authority.context("--oidc-ca-file")?,
        audiences: vec![audience],
        algorithms,
    };
    let claim = options.oidc_username_claim.as_deref().unwrap_or("sub");
    let prefix = match options.oidc_username_prefix.as_deref().unwrap_or_default() {
        "-" => String::new(),
        "" if claim == "email" => String::new(),
        "" => format!("{url}#"),
        prefix => prefix.to_owned(),
    };
    let mut mapping = Mapping::of_username(claim, &prefix);
    mapping.groups = options
        .oidc_groups_claim
        .clone()
        .filter(|claim| !claim.is_empty())
        .map(|name| Source::Claim { name, prefix: options.oidc_groups_prefix.clone().unwrap_or_default() });
    for claim in &options.oidc_required_claim {
        let pair = claim.split_once('=');
        let (key, value) =
            pair.with_context(|| format!("--oidc-required-claim {claim:?} is not key=value"))?;
        mapping.required.push((key.to_owned(), value.to_owned()));
    }
    Ok(Settings { issuer, mapping })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_file_and_other_options_go_together() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("authentication.yaml");
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
        let file = || Security { authentication_config: Some(path.clone()), ..Security::default() };
        let all = || Security { authorization_mode: vec!["AlwaysAllow".into()], ..file() };
        for (text, options, why) in [
            ("", file(), ""),
            ("", Security { anonymous_auth: true, ..file() }, ""),
            ("anonymous: {enabled: true}\n", file(), ""),
            (
                "anonymous: {enabled: true}\n",
                Security { anonymous_auth: true, ..file() },
                "anonymous: Forbidden: --anonymous-auth is set, too",
            ),
            ("anonymous: {enabled: false}\n", all(), ""),
            ("anonymous: {enabled: true}\n", all(), "anonymous.enabled: Forbidden"),
            ("jwt: [{}]\n", file(), "jwt[0].issuer.url: Required value"),
            (
                "jwt: [{issuer: {url: https://own, audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]\n",
                Security { service_account_issuer: vec!["https://own".into()], ..file() },
                "must not overlap with disallowed issuers: [https://own]",
            ),
        ] {
            std::fs::write(&path, format!("{head}{text}")).unwrap();
            let said = configuration(&options).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{text}: {said}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(configuration(&file()).is_err(), "no file");
        assert!(configuration(&Security::default()).unwrap().is_none());
    }

    #[test]
    fn shared_secrets_sign_no_tokens() {
        let of = |algorithm: &str| {
            let options = Security {
                oidc_client_id: Some("c".into()),
                oidc_signing_algs: vec![algorithm.into()],
                ..Security::default()
            };
            of_flags(&options, "https://id").map(|settings| settings.issuer.algorithms)
        };
        assert_eq!(of("ES256").unwrap(), [jsonwebtoken::Algorithm::ES256]);
        assert!(of("HS256").is_err() && of("none").is_err());
    }
}
