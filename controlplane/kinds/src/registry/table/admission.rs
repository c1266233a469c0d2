//! Admission webhooks and policies.

use crate::registry::columns;
use crate::registry::kinds::Kind;
use coracle_validation::defaults;
use coracle_validation::{compiled, extensions, initializers, mutating_policies, ratchet};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("admissionregistration.k8s.io", "v1", kind, plural)
}

/// Served with the feature `Initializers` only.
pub(super) fn initializer_configuration() -> Kind {
    let (group, version) = ("admissionregistration.k8s.io", "v1alpha1");
    Kind::new(group, version, "InitializerConfiguration", "initializerconfigurations")
        .conditional()
        .cluster()
        .category("api-extensions")
        .generation()
        .validate(initializers::configuration, |_, _, _| ())
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
            .conditional()
            .cluster()
            .category("api-extensions")
            .generation()
            .columns(columns::mutating_policy())
            .defaults(defaults::extensions::mutating_policy)
            .validate(mutating_policies::policy, |new, old, errors| {
                ratchet::changed(compiled::mutating_policy, new, old, errors);
            })
            .validate_create(compiled::mutating_policy),
        row("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
            .conditional()
            .cluster()
            .category("api-extensions")
            .generation()
            .columns(columns::policy_binding())
            .defaults(defaults::extensions::mutating_policy_binding)
            .validate(mutating_policies::binding, |_, _, _| ()),
        row("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .conditional()
            .cluster()
            .category("api-extensions")
            .generation()
            .columns(columns::webhooks())
            .defaults(defaults::extensions::mutating_webhooks)
            .validate(extensions::webhooks, |new, old, errors| {
                ratchet::changed(compiled::webhooks, new, old, errors);
            })
            .validate_create(compiled::webhooks),
        row("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
            .conditional()
            .cluster()
            .category("api-extensions")
            .status_only()
            .generation()
            .columns(columns::admission_policy())
            .defaults(defaults::extensions::admission_policy)
            .validate(extensions::admission_policy, |new, old, errors| {
                ratchet::changed(compiled::validating_policy, new, old, errors);
            })
            .validate_create(compiled::validating_policy),
        row("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
            .conditional()
            .cluster()
            .category("api-extensions")
            .generation()
            .columns(columns::policy_binding())
            .defaults(defaults::extensions::policy_binding)
            .validate(extensions::policy_binding, |_, _, _| ()),
        row("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .conditional()
            .cluster()
            .category("api-extensions")
            .generation()
            .columns(columns::webhooks())
            .defaults(defaults::extensions::validating_webhooks)
            .validate(extensions::webhooks, |new, old, errors| {
                ratchet::changed(compiled::webhooks, new, old, errors);
            })
            .validate_create(compiled::webhooks),
    ]
}
