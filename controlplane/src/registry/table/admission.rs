//! Admission webhooks and policies.

use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("admissionregistration.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .cluster()
            .category("api-extensions")
            .generation(),
        row("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
            .cluster()
            .category("api-extensions")
            .status()
            .generation(),
        row("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
            .cluster()
            .category("api-extensions")
            .generation(),
        row("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .cluster()
            .category("api-extensions")
            .generation(),
    ]
}
