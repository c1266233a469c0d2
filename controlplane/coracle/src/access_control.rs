//! Builds authorizers, filters and audit from the options.

use crate::security::Security;
use anyhow::{Context as _, bail};
use async_trait::async_trait;
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
use std::sync::Arc;

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
        audit: Arc::new(audit(options, supervisor)?),
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
        let batches = options.audit_batches()?;
        let parts = Arc::new((remote, tokio::sync::Mutex::new(audit.lossy_sink(batches.buffer))));
        tokio::spawn(supervisor.clone().finish("audit-webhook", move || {
            let parts = parts.clone();
            async move { webhook::run(&parts.0, batches, &mut *parts.1.lock().await).await }
        }));
    }
    Ok(audit)
}
