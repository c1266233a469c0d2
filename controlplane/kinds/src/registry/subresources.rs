//! Subresources in discovery: their kinds and verbs.

use super::columns::{self, Column};
use super::equivalent::Named;
use super::kinds::{Kind, Subresource};

/// One subresource as discovery lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    /// Name behind the slash, such as `scale`.
    pub name: &'static str,
    /// Group of the kind it takes.
    pub group: String,
    /// Version of the kind it takes.
    pub version: String,
    /// The kind it takes.
    pub kind: String,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

const CONNECT: &[&str] = &["create", "get"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const CHANGE: &[&str] = &["get", "patch", "update"];

impl Subresource {
    /// The name behind the slash.
    pub fn name(self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Other(name) => name,
        }
    }

    /// The columns of what the subresource shows, when it is another kind than its parent's.
    pub fn columns(self) -> Option<Vec<Column>> {
        (self == Subresource::Scale).then(columns::scale)
    }

    /// How discovery lists the subresource of `parent`.
    pub fn exposed(self, parent: &Kind) -> Exposed {
        let own = (parent.group.as_str(), parent.version.as_str());
        let options = |suffix: &str| format!("{}{suffix}", parent.kind);
        let ((group, version), kind, verbs): ((&str, &str), String, &'static [&'static str]) =
            match self.name() {
                "scale" => (("autoscaling", "v1"), "Scale".into(), CHANGE),
                "eviction" => (("policy", "v1"), "Eviction".into(), &["create"]),
                "token" => (("authentication.k8s.io", "v1"), "TokenRequest".into(), &["create"]),
                "binding" => (own, "Binding".into(), &["create"]),
                "finalize" => (own, parent.kind.clone(), &["update"]),
                "log" => (own, parent.kind.clone(), &["get"]),
                "exec" => (own, options("ExecOptions"), CONNECT),
                "attach" => (own, options("AttachOptions"), CONNECT),
                "portforward" => (own, options("PortForwardOptions"), CONNECT),
                "proxy" => (own, options("ProxyOptions"), PROXY),
                _ => (own, parent.kind.clone(), CHANGE),
            };
        Exposed { name: self.name(), group: group.into(), version: version.into(), kind, verbs }
    }
}

impl Kind {
    /// What a subresource takes when that is another kind than the row's: a Scale, an Eviction, PodExecOptions. The resource
    /// is still the row's.
    pub fn taken_by(&self, subresource: &str) -> Option<Named> {
        let sub = self.subresources.iter().find(|sub| sub.name() == subresource)?;
        let Exposed { group, version, kind, .. } = sub.exposed(self);
        (kind != self.kind).then(|| Named { group, version, plural: self.plural.clone(), kind })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::registry::index::Registry;

    #[test]
    fn subresources_take_kinds_of_their_own() {
        let registry = Registry::builtin();
        for (group, plural, subresource, expected) in [
            ("", "pods", "eviction", Some("policy/v1 Eviction")),
            ("", "pods", "binding", Some("v1 Binding")),
            ("", "pods", "exec", Some("v1 PodExecOptions")),
            ("", "pods", "attach", Some("v1 PodAttachOptions")),
            ("", "pods", "portforward", Some("v1 PodPortForwardOptions")),
            ("", "pods", "proxy", Some("v1 PodProxyOptions")),
            ("", "services", "proxy", Some("v1 ServiceProxyOptions")),
            ("", "nodes", "proxy", Some("v1 NodeProxyOptions")),
            ("", "serviceaccounts", "token", Some("authentication.k8s.io/v1 TokenRequest")),
            ("", "replicationcontrollers", "scale", Some("autoscaling/v1 Scale")),
            ("apps", "deployments", "scale", Some("autoscaling/v1 Scale")),
            ("apps", "deployments", "status", None),
            ("", "pods", "", None),
            ("", "pods", "ephemeralcontainers", None),
            ("", "pods", "resize", None),
            ("", "namespaces", "finalize", None),
            ("certificates.k8s.io", "certificatesigningrequests", "approval", None),
        ] {
            let row = registry.resource(group, "v1", plural).unwrap();
            let taken = row.taken_by(subresource).map(|t| format!("{} {}", t.api_version(), t.kind));
            assert_eq!(taken.as_deref(), expected, "{plural}/{subresource}");
        }
    }
}
