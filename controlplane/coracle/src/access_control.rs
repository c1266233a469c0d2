//! Builds authenticators, authorizers, filters and audit from the options.

use crate::security::Security;
use anyhow::{Context as _, bail};
use async_trait::async_trait;
use coracle_apiserver::authn::bootstrap_token::BootstrapTokens;
use coracle_apiserver::authn::files::Credentials;
use coracle_apiserver::authn::front_proxy::FrontProxy;
use coracle_apiserver::authn::oidc::{Oidc, Settings};
use coracle_apiserver::authn::service_account::ServiceAccounts;
use coracle_apiserver::authn::webhook::TokenWebhook;
use coracle_apiserver::authn::x509::CertificateAuthenticator;
use coracle_apiserver::authn::{self, TokenAuthenticator};
use coracle_apiserver::authz::abac::Abac;
use coracle_apiserver::authz::node::NodeAuthorizer;
use coracle_apiserver::authz::rbac::Rbac;
use coracle_apiserver::authz::webhook::AccessWebhook;
use coracle_apiserver::authz::{self, Always, Authorizer, Masters};
use coracle_apiserver::filters::Filters;
use coracle_apiserver::filters::audit::log::{Log, Rotation};
use coracle_apiserver::filters::audit::policy::Policy;
use coracle_apiserver::filters::audit::{Audit, webhook};
use coracle_apiserver::filters::cors::Cors;
use coracle_apiserver::filters::flow_control::{FlowControl, Limits};
use coracle_apiserver::https_client::HttpsClient;
use coracle_apiserver::objects::Objects;
use coracle_cli::supervise::Supervisor;
use coracle_pki::service_account::Keys;
use std::sync::Arc;

/// The authenticators, in the order of Kubernetes.
pub fn authenticators(
    options: &Security,
    objects: &Arc<Objects>,
    keys: &Arc<Keys>,
    front_proxy: FrontProxy,
) -> anyhow::Result<authn::Union> {
    let mut tokens: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
    if let Some(path) = &options.token_auth_file {
        tokens.push(Box::new(Credentials::read(path).context("--token-auth-file")?));
    }
    tokens.push(Box::new(ServiceAccounts { keys: keys.clone(), objects: objects.clone() }));
    tokens.push(Box::new(BootstrapTokens { objects: objects.clone() }));
    if let Some(issuer) = &options.oidc_issuer_url {
        tokens.push(Box::new(oidc(options, issuer)?));
    }
    if let Some(path) = &options.authentication_token_webhook_config_file {
        let remote =
            HttpsClient::from_kubeconfig(path).context("--authentication-token-webhook-config-file")?;
        tokens.push(Box::new(TokenWebhook::new(remote)));
    }
    let passwords = options.basic_auth_file.as_deref().map(Credentials::read).transpose();
    Ok(authn::Union {
        certificates: Some(CertificateAuthenticator::new(objects.clone())),
        front_proxy,
        tokens,
        audiences: keys.issuers.clone(),
        passwords: passwords.context("--basic-auth-file")?,
        anonymous: options.anonymous(),
    })
}

fn oidc(options: &Security, issuer: &str) -> anyhow::Result<Oidc> {
    if !issuer.starts_with("https://") {
        bail!("--oidc-issuer-url must begin with https://");
    }
    let client_id = options.oidc_client_id.clone().context("--oidc-issuer-url needs --oidc-client-id")?;
    let mut algorithms = Vec::new();
    for name in &options.oidc_signing_algs {
        algorithms.push(name.parse().with_context(|| format!("--oidc-signing-algs {name}"))?);
    }
    if algorithms.is_empty() {
        algorithms.push(jsonwebtoken::Algorithm::RS256);
    }
    let text = |option: &Option<String>| option.clone().unwrap_or_default();
    let mut required = Vec::new();
    for claim in &options.oidc_required_claim {
        let (key, value) = claim.split_once('=').context("--oidc-required-claim wants key=value")?;
        required.push((key.to_owned(), value.to_owned()));
    }
    let settings = Settings {
        issuer: issuer.into(),
        client_id,
        username_claim: options.oidc_username_claim.clone().unwrap_or_else(|| "sub".into()),
        username_prefix: text(&options.oidc_username_prefix),
        groups_claim: text(&options.oidc_groups_claim),
        groups_prefix: text(&options.oidc_groups_prefix),
        required,
        algorithms,
    };
    let authority = options.oidc_ca_file.as_deref().map(std::fs::read_to_string).transpose();
    Ok(Oidc::new(settings, authority.context("--oidc-ca-file")?))
}

/// Several places ask the same RBAC.
struct Shared(Arc<Rbac>);

#[async_trait]
impl Authorizer for Shared {
    async fn authorize(
        &self,
        user: &coracle_client::user::User,
        request: &coracle_apiserver::request_info::RequestInfo,
    ) -> authz::Decision {
        self.0.authorize(user, request).await
    }

    fn rules(&self, user: &coracle_client::user::User, namespace: &str) -> authz::Rules {
        self.0.rules(user, namespace)
    }
}

/// The authorizers, in the order of `--authorization-mode`; `system:masters` is always allowed.
pub fn authorizers(
    options: &Security,
    objects: &Arc<Objects>,
    rbac: &Arc<Rbac>,
) -> anyhow::Result<authz::Union> {
    let mut all: Vec<Box<dyn Authorizer>> = vec![Box::new(Masters)];
    for mode in options.modes() {
        all.push(match mode.as_str() {
            "Node" => Box::new(NodeAuthorizer::new(objects.clone())),
            "RBAC" => Box::new(Shared(rbac.clone())),
            "ABAC" => {
                let path = options.authorization_policy_file.as_deref();
                let path = path.context("ABAC needs --authorization-policy-file")?;
                Box::new(Abac::read(path).context("--authorization-policy-file")?)
            }
            "Webhook" => {
                let path = options.authorization_webhook_config_file.as_deref();
                let path = path.context("Webhook needs --authorization-webhook-config-file")?;
                let remote =
                    HttpsClient::from_kubeconfig(path).context("--authorization-webhook-config-file")?;
                Box::new(AccessWebhook::new(remote))
            }
            "AlwaysAllow" => Box::new(Always(true)),
            "AlwaysDeny" => Box::new(Always(false)),
            other => bail!("--authorization-mode {other:?} is not known"),
        });
    }
    Ok(authz::Union(all))
}

/// The filters between authentication and authorization; writers of the audit log run until the server ends.
pub fn filters(
    options: &Security,
    objects: &Arc<Objects>,
    supervisor: &Supervisor,
) -> anyhow::Result<Filters> {
    let limits = Limits {
        reading: options.max_requests_inflight.unwrap_or(400).max(1),
        writing: options.max_mutating_requests_inflight.unwrap_or(200).max(1),
        fair: !options.disable_priority_and_fairness,
    };
    Ok(Filters {
        cors: Cors::new(&options.cors_allowed_origins).context("--cors-allowed-origins")?,
        flow: FlowControl::new(objects.clone(), limits),
        audit: audit(options, supervisor)?,
        timeout: options.request_timeout(),
    })
}

fn audit(options: &Security, supervisor: &Supervisor) -> anyhow::Result<Audit> {
    let policy = match &options.audit_policy_file {
        Some(path) => Policy::read(path).context("--audit-policy-file")?,
        None => Policy::metadata(),
    };
    let nowhere = options.audit_log_path.is_none() && options.audit_webhook_config_file.is_none();
    if nowhere && options.audit_policy_file.is_some() {
        tracing::warn!(
            "nothing is audited: --audit-policy-file without --audit-log-path or --audit-webhook-config-file"
        );
    }
    let mut audit = Audit::new(policy);
    if let Some(path) = &options.audit_log_path {
        let path = if path.as_os_str() == "-" { std::path::Path::new("/dev/stdout") } else { path.as_path() };
        let rotation = Rotation {
            size: options.audit_log_maxsize.unwrap_or(100).max(1) * 1024 * 1024,
            backups: options.audit_log_maxbackup.unwrap_or(0),
            age: std::time::Duration::from_secs(options.audit_log_maxage.unwrap_or(0) * 86_400),
        };
        let mut log =
            Log::open(path, rotation).with_context(|| format!("--audit-log-path {}", path.display()))?;
        let mut events = audit.sink();
        supervisor.thread("audit", move || log.run(&mut events))?;
    }
    if let Some(path) = &options.audit_webhook_config_file {
        let remote = HttpsClient::from_kubeconfig(path).context("--audit-webhook-config-file")?;
        let remote = remote.with_timeout(std::time::Duration::from_secs(30));
        let parts = Arc::new((remote, tokio::sync::Mutex::new(audit.sink())));
        tokio::spawn(supervisor.clone().finish("audit-webhook", move || {
            let parts = parts.clone();
            async move { webhook::run(&parts.0, &mut *parts.1.lock().await).await }
        }));
    }
    Ok(audit)
}
