//! The plugin chain: all plugins in upstream's order, and which of them are enabled.

use super::config::{Configuration, ConfigurationError};
use super::resource_quota::PendingCharges;
use super::*;
use crate::authz::Authorizer;
use crate::authz::rbac::RoleRules;
use crate::nodes::dial::ClusterDialer;
use crate::usage_history::UsageHistory;

/// Plugins that are enabled by default, in the order of the chain. All others are enabled with `--enable-admission-plugins`.
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
    pod_topology_labels::NAME,
    declared_features::NAME,
    pod_resize::NAME,
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
    role_escalation::NAME,
    server_leases::NAME,
    device_admin_access::NAME,
    device_status::NAME,
];

/// What cannot be turned off: without the first, whoever may write roles may everything; without the second, whoever may write
/// Leases in `kube-system` chooses what clients reach as the API server; without the third, every claim reaches the devices of
/// others; without the fourth, a driver speaks for others.
const ALWAYS_ON: [&str; 4] =
    [role_escalation::NAME, server_leases::NAME, device_admin_access::NAME, device_status::NAME];

/// Dependencies of the plugins.
pub struct Needs {
    /// Decides about permissions beyond the write itself, such as to approve a certificate.
    pub authz: Arc<dyn Authorizer>,
    /// The rules of roles and users.
    pub roles: Arc<dyn RoleRules>,
    /// Quota charges whose object is not stored yet; shared with the quota controller.
    pub quota_charges: Arc<PendingCharges>,
    /// Dials webhooks.
    pub dialer: Arc<ClusterDialer>,
    /// What containers used, if InitialResources is on.
    pub usage_history: Option<Arc<UsageHistory>>,
}

/// Which plugins are enabled, and their configuration. Those of `enabled` that are not known are refused by [`chain`].
#[derive(Default)]
pub struct Options {
    /// Plugins enabled in addition to the defaults.
    pub enabled: Vec<String>,
    /// Default plugins that are disabled.
    pub disabled: Vec<String>,
    /// Configuration of the plugins.
    pub configuration: Configuration,
    /// The feature gate `Initializers`, which enables the plugin of that name.
    pub initializers: bool,
}

/// The enabled plugins, in order.
pub fn chain(needs: &Needs, options: &Options) -> Result<Chain, ConfigurationError> {
    let settings = &options.configuration;
    let authz = || needs.authz.clone();
    let webhooks = webhook::Calls { dialer: needs.dialer.clone(), authz: authz() };
    let all: Vec<Box<dyn Plugin>> = vec![
        Box::new(namespace_lifecycle::NamespaceLifecycle),
        Box::new(initial_resources::InitialResources::new(settings, needs.usage_history.clone())?),
        Box::new(limit_ranger::LimitRanger),
        Box::new(service_account::ServiceAccount),
        Box::new(node_restriction::NodeRestriction(authz())),
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
        Box::new(owner_references::OwnerReferencesPermissionEnforcement(authz())),
        Box::new(claim_resize::PersistentVolumeClaimResize),
        Box::new(runtime_class::RuntimeClass),
        Box::new(certificates::CertificateApproval(authz())),
        Box::new(certificates::CertificateSigning(authz())),
        Box::new(certificates::CertificateSubjectRestriction),
        Box::new(default_ingress_class::DefaultIngressClass),
        Box::new(external_ips::DenyServiceExternalIps),
        Box::new(pod_topology_labels::PodTopologyLabels),
        Box::new(declared_features::NodeDeclaredFeatureValidator),
        Box::new(pod_resize::PodResizeValidator),
        Box::new(policy::mutating::MutatingAdmissionPolicy::new(authz())),
        Box::new(webhook::MutatingAdmissionWebhook(webhooks.clone())),
        Box::new(initializers::Initializers { authz: authz(), is_served: options.initializers }),
        Box::new(policy::ValidatingAdmissionPolicy::new(authz())),
        Box::new(webhook::ValidatingAdmissionWebhook(webhooks)),
        Box::new(resource_quota::ResourceQuota::new(needs.quota_charges.clone(), settings)?),
        Box::new(role_escalation::RoleEscalation { authz: authz(), roles: needs.roles.clone() }),
        Box::new(server_leases::ApiServerLease),
        Box::new(device_admin_access::DeviceAdminAccess),
        Box::new(device_status::DeviceStatusAuthorization(authz())),
    ];
    let known: Vec<&'static str> = all.iter().map(|plugin| plugin.name()).collect();
    for (flag, names) in
        [("--enable-admission-plugins", &options.enabled), ("--disable-admission-plugins", &options.disabled)]
    {
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(ConfigurationError::Unknown { flag, name: name.clone() });
        }
    }
    settings.read_by(&known)?;
    let named = |list: &[String], plugin: &dyn Plugin| list.iter().any(|name| name == plugin.name());
    let by_gate = |plugin: &dyn Plugin| options.initializers && plugin.name() == initializers::NAME;
    let on = |plugin: &dyn Plugin| {
        ALWAYS_ON.contains(&plugin.name())
            || named(&options.enabled, plugin)
            || ((DEFAULT_ON.contains(&plugin.name()) || by_gate(plugin)) && !named(&options.disabled, plugin))
    };
    let on: Vec<Box<dyn Plugin>> = all.into_iter().filter(|plugin| on(plugin.as_ref())).collect();
    if options.initializers && !on.iter().any(|plugin| plugin.name() == initializers::NAME) {
        return Err(ConfigurationError::NeededByGate(initializers::NAME));
    }
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
    use crate::authz::Always;
    use crate::authz::rbac::{RoleRef, Rule};

    struct NoRoles;

    impl RoleRules for NoRoles {
        fn role_rules(&self, _: &RoleRef, _: &str) -> Option<Vec<Rule>> {
            None
        }

        fn held(&self, _: &User, _: &str) -> Vec<Rule> {
            Vec::new()
        }
    }

    fn made(options: &Options) -> Result<Chain, ConfigurationError> {
        let needs = Needs {
            authz: Arc::new(Always(true)),
            roles: Arc::new(NoRoles),
            quota_charges: Arc::default(),
            dialer: Arc::default(),
            usage_history: None,
        };
        chain(&needs, options)
    }

    fn names(options: &Options) -> Vec<&'static str> {
        made(options).unwrap().plugins.iter().map(|plugin| plugin.name()).collect()
    }

    #[test]
    fn plugins_are_on_by_default_or_by_name() {
        assert_eq!(names(&Options::default()), DEFAULT_ON, "in the order of the chain");
        let options = Options {
            enabled: vec!["AlwaysPullImages".into()],
            disabled: vec!["PodSecurity".into()],
            ..Options::default()
        };
        let on = names(&options);
        assert!(on.contains(&"AlwaysPullImages") && !on.contains(&"PodSecurity"));
        let gated = names(&Options { initializers: true, ..Options::default() });
        let at = gated.iter().position(|name| *name == "Initializers").unwrap();
        assert_eq!((gated[at - 1], gated[at + 1]), ("MutatingAdmissionWebhook", "ValidatingAdmissionPolicy"));
        for (flag, unknown) in [
            ("--enable", Options { enabled: vec!["Nonsense".into()], ..Options::default() }),
            ("--disable", Options { disabled: vec!["Nonsense".into()], ..Options::default() }),
        ] {
            let said = made(&unknown).err().unwrap().to_string();
            assert_eq!(said, format!("{flag}-admission-plugins: unknown admission plugin: Nonsense"));
        }
        let ungated =
            Options { disabled: vec!["Initializers".into()], initializers: true, ..Options::default() };
        let said = made(&ungated).err().unwrap().to_string();
        assert!(said.starts_with("--disable-admission-plugins: Initializers cannot be disabled"), "{said}");
        let ungated = Options { initializers: false, ..ungated };
        assert_eq!(names(&ungated), DEFAULT_ON, "it is off without the gate");
        let unread = Options {
            configuration: Configuration::with("Priority", serde_json::json!({})),
            ..Options::default()
        };
        assert!(made(&unread).err().unwrap().to_string().ends_with("test.yaml: it has no settings here"));
        for (name, why) in [
            ("ImagePolicyWebhook", "no config specified"),
            ("EventRateLimit", "limits: Invalid value: []: must not be empty"),
            ("Initializers", "it needs --feature-gates Initializers=true"),
        ] {
            let bare = Options { enabled: vec![name.into()], ..Options::default() };
            let said = made(&bare).err().unwrap().to_string();
            assert!(said.starts_with(&format!("couldn't init admission plugin \"{name}\": {why}")), "{said}");
        }
    }
}
