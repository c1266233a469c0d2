//! Kinds of resources.

/// The kind of a resource such as `deployments.apps`.
pub(super) fn kind(resource: &str) -> String {
    let plural = resource.split('.').next().unwrap_or_default();
    if plural == "endpoints" {
        plural.to_owned()
    } else if let Some(stem) = plural.strip_suffix("ies") {
        format!("{stem}y")
    } else if plural.ends_with("sses") {
        plural.trim_end_matches("es").to_owned()
    } else {
        plural.strip_suffix('s').unwrap_or(plural).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (resource, want) in [
            ("deployments.apps", "deployment"),
            ("ingresses.networking.k8s.io", "ingress"),
            ("storageclasses.storage.k8s.io", "storageclass"),
            ("networkpolicies.networking.k8s.io", "networkpolicy"),
            ("endpoints", "endpoints"),
            ("leases", "lease"),
        ] {
            assert_eq!(kind(resource), want);
        }
    }
}
