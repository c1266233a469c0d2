//! The plugin chain: all plugins in upstream's order, and which of them are enabled.

use super::config::{Configuration, ConfigurationError};
use super::resource_quota::PendingCharges;
use super::*;
use crate::actions::reviews::Access;
use crate::connect::dial::ClusterDialer;

/// What is on without being asked for.
const DEFAULT_ON: &[&str] = &[
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
    role_escalation::NAME,
    server_leases::NAME,
];

/// What cannot be turned off: without the first, whoever may write roles may everything; without the second, whoever may write
/// Leases in `kube-system` chooses what clients reach as the API server.
const ALWAYS_ON: [&str; 2] = [role_escalation::NAME, server_leases::NAME];

/// Dependencies of the plugins.
#[derive(Default)]
pub struct Needs {
    /// The authorizer; set when the handler chain is built.
    pub access: Arc<Access>,
    /// Quota charges whose object is not stored yet; shared with the quota controller.
    pub quota_charges: Arc<PendingCharges>,
    /// Dials webhooks.
    pub dialer: Arc<ClusterDialer>,
    /// Plugins enabled in addition to the defaults.
    pub enabled: Vec<String>,
    /// Default plugins that are disabled.
    pub disabled: Vec<String>,
    /// Configuration of the plugins.
    pub configuration: Configuration,
}

/// The enabled plugins, in order.
pub fn chain(needs: &Needs) -> Result<Chain, ConfigurationError> {
    let settings = &needs.configuration;
    let access = || needs.access.clone();
    let all: Vec<Box<dyn Plugin>> = vec![
        Box::new(namespace_lifecycle::NamespaceLifecycle),
        Box::new(limit_ranger::LimitRanger),
        Box::new(service_account::ServiceAccount),
        Box::new(node_restriction::NodeRestriction),
        Box::new(taint_nodes::TaintNodesByCondition),
        Box::new(always_pull_images::AlwaysPullImages),
        Box::new(image_policy::ImagePolicyWebhook::new(settings)?),
        Box::new(pod_security::PodSecurity::new(settings)?),
        Box::new(priority::Priority),
        Box::new(default_tolerations::DefaultTolerationSeconds),
        Box::new(pod_tolerations::PodTolerationRestriction::new(settings)?),
        Box::new(event_rate_limit::EventRateLimit::new(settings)?),
        Box::new(extended_resources::ExtendedResourceToleration),
        Box::new(default_storage_class::DefaultStorageClass),
        Box::new(storage_protection::StorageObjectInUseProtection),
        Box::new(owner_references::OwnerReferencesPermissionEnforcement(access())),
        Box::new(claim_resize::PersistentVolumeClaimResize),
        Box::new(runtime_class::RuntimeClass),
        Box::new(certificates::CertificateApproval(access())),
        Box::new(certificates::CertificateSigning(access())),
        Box::new(certificates::CertificateSubjectRestriction),
        Box::new(default_ingress_class::DefaultIngressClass),
        Box::new(external_ips::DenyServiceExternalIps),
        Box::new(webhook::MutatingAdmissionWebhook(needs.dialer.clone())),
        Box::<policy::ValidatingAdmissionPolicy>::default(),
        Box::new(webhook::ValidatingAdmissionWebhook(needs.dialer.clone())),
        Box::new(resource_quota::ResourceQuota::new(needs.quota_charges.clone(), settings)?),
        Box::new(role_escalation::RoleEscalation(access())),
        Box::new(server_leases::ApiServerLease),
    ];
    let known: Vec<&'static str> = all.iter().map(|plugin| plugin.name()).collect();
    for (flag, names) in
        [("--enable-admission-plugins", &needs.enabled), ("--disable-admission-plugins", &needs.disabled)]
    {
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(ConfigurationError::Unknown { flag, name: name.clone() });
        }
    }
    settings.read_by(&known)?;
    let named = |list: &[String], plugin: &dyn Plugin| list.iter().any(|name| name == plugin.name());
    let on = |plugin: &dyn Plugin| {
        ALWAYS_ON.contains(&plugin.name())
            || named(&needs.enabled, plugin)
            || (DEFAULT_ON.contains(&plugin.name()) && !named(&needs.disabled, plugin))
    };
    let on: Vec<Box<dyn Plugin>> = all.into_iter().filter(|plugin| on(plugin.as_ref())).collect();
    for plugin in &on {
        let ready = plugin.ready();
        ready.map_err(|error| ConfigurationError::Plugin { plugin: plugin.name(), error })?;
    }
    Ok(Chain::new(on))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(needs: &Needs) -> Vec<&'static str> {
        chain(needs).unwrap().0.iter().map(|plugin| plugin.name()).collect()
    }

    #[test]
    fn plugins_are_on_by_default_or_by_name() {
        assert_eq!(names(&Needs::default()), DEFAULT_ON, "in the order of the chain");
        let needs = Needs {
            enabled: vec!["AlwaysPullImages".into()],
            disabled: vec!["PodSecurity".into()],
            ..Needs::default()
        };
        let on = names(&needs);
        assert!(on.contains(&"AlwaysPullImages") && !on.contains(&"PodSecurity"));
        for (flag, unknown) in [
            ("--enable", Needs { enabled: vec!["Nonsense".into()], ..Needs::default() }),
            ("--disable", Needs { disabled: vec!["Nonsense".into()], ..Needs::default() }),
        ] {
            let said = chain(&unknown).err().unwrap().to_string();
            assert_eq!(said, format!("{flag}-admission-plugins: unknown admission plugin: Nonsense"));
        }
        let unread = Needs {
            configuration: Configuration::with("Priority", serde_json::json!({})),
            ..Needs::default()
        };
        assert!(chain(&unread).err().unwrap().to_string().ends_with("test.yaml: it has no settings here"));
        for (name, why) in [
            ("ImagePolicyWebhook", "no config specified"),
            ("EventRateLimit", "limits: Invalid value: []: must not be empty"),
        ] {
            let bare = Needs { enabled: vec![name.into()], ..Needs::default() };
            let said = chain(&bare).err().unwrap().to_string();
            assert!(said.starts_with(&format!("couldn't init admission plugin \"{name}\": {why}")), "{said}");
        }
    }
}
