//! Names of resources, as a user may write them.

use coracle_fields::Kind;

/// A resource of the API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name in paths, such as `pods`.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Abbreviations, such as `po`.
    pub short: Vec<String>,
}

struct Row(&'static str, &'static str, &'static str, bool, &'static [&'static str]);

const ROWS: &[Row] = &[
    Row("v1", "Pod", "pods", true, &["po"]),
    Row("v1", "Node", "nodes", false, &["no"]),
    Row("v1", "Service", "services", true, &["svc"]),
    Row("v1", "Namespace", "namespaces", false, &["ns"]),
    Row("v1", "ConfigMap", "configmaps", true, &["cm"]),
    Row("v1", "Secret", "secrets", true, &[]),
    Row("v1", "ServiceAccount", "serviceaccounts", true, &["sa"]),
    Row("v1", "Event", "events", true, &["ev"]),
    Row("v1", "Endpoints", "endpoints", true, &["ep"]),
    Row("v1", "PersistentVolume", "persistentvolumes", false, &["pv"]),
    Row("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true, &["pvc"]),
    Row("v1", "ResourceQuota", "resourcequotas", true, &["quota"]),
    Row("v1", "LimitRange", "limitranges", true, &["limits"]),
    Row("v1", "ReplicationController", "replicationcontrollers", true, &["rc"]),
    Row("apps/v1", "Deployment", "deployments", true, &["deploy"]),
    Row("apps/v1", "ReplicaSet", "replicasets", true, &["rs"]),
    Row("apps/v1", "StatefulSet", "statefulsets", true, &["sts"]),
    Row("apps/v1", "DaemonSet", "daemonsets", true, &["ds"]),
    Row("batch/v1", "Job", "jobs", true, &[]),
    Row("batch/v1", "CronJob", "cronjobs", true, &["cj"]),
    Row("networking.k8s.io/v1", "Ingress", "ingresses", true, &["ing"]),
    Row("networking.k8s.io/v1", "IngressClass", "ingressclasses", false, &[]),
    Row("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true, &["netpol"]),
    Row("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true, &[]),
    Row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true, &["pdb"]),
    Row("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, &["hpa"]),
    Row("storage.k8s.io/v1", "StorageClass", "storageclasses", false, &["sc"]),
    Row("storage.k8s.io/v1", "CSIDriver", "csidrivers", false, &[]),
    Row("coordination.k8s.io/v1", "Lease", "leases", true, &[]),
    Row("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false, &["pc"]),
    Row("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false, &[]),
    Row("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false, &["csr"]),
    Row("apiregistration.k8s.io/v1", "APIService", "apiservices", false, &[]),
    Row("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false, &["crd"]),
    Row(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
        &[],
    ),
    Row(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
        &[],
    ),
];

impl Resource {
    fn row(row: &Row) -> Self {
        Self {
            api_version: row.0.to_owned(),
            kind: row.1.to_owned(),
            plural: row.2.to_owned(),
            namespaced: row.3,
            short: row.4.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// The resource of a kind in the table.
    pub fn of<K: Kind>() -> Self {
        let row = ROWS.iter().find(|row| row.0 == K::API_VERSION && row.1 == K::KIND);
        row.map_or_else(
            || Self {
                api_version: K::API_VERSION.to_owned(),
                kind: K::KIND.to_owned(),
                plural: format!("{}s", K::KIND.to_lowercase()),
                namespaced: true,
                short: Vec::new(),
            },
            Self::row,
        )
    }

    /// The API group, empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The plural with its group, such as `deployments.apps`.
    pub fn qualified(&self) -> String {
        match self.group() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Whether a user who writes `name` means this resource: kind, plural or abbreviation in any case, with the group or a
    /// part of it after a dot if wanted (`deployments.apps`).
    pub fn is_called(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let (name, group) =
            name.split_once('.').map_or((name.as_str(), None), |(name, rest)| (name, Some(rest)));
        let named = self.kind.to_lowercase() == name
            || self.plural == name
            || self.short.iter().any(|short| short == name);
        named
            && group.is_none_or(|group| {
                self.group() == group || format!("{}.{}", self.version(), self.group()) == group
            })
    }

    fn version(&self) -> &str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }

    /// The path of its objects.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let version = &self.api_version;
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{version}/{}", self.plural),
        }
    }
}

/// The built-in resources.
pub fn built_in() -> impl Iterator<Item = Resource> {
    ROWS.iter().map(Resource::row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::apps::v1::Deployment;
    use coracle_fields::core::v1::{Node, Pod};

    #[test]
    fn names_that_users_write() {
        let deployment = Resource::of::<Deployment>();
        for name in ["deployment", "Deployments", "deploy", "deployments.apps", "deployment.v1.apps"] {
            assert!(deployment.is_called(name), "{name}");
        }
        for name in ["deployments.batch", "dep", ""] {
            assert!(!deployment.is_called(name), "{name}");
        }
    }

    #[test]
    fn paths() {
        assert_eq!(Resource::of::<Deployment>().path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
        assert_eq!(Resource::of::<Pod>().path(None), "/api/v1/pods");
        assert_eq!(Resource::of::<Pod>().qualified(), "pods");
        assert_eq!(Resource::of::<Deployment>().qualified(), "deployments.apps");
        assert_eq!(Resource::of::<Node>().path(Some("a")), "/api/v1/nodes");
    }
}
