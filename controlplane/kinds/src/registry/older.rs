//! Older versions of kinds, which are off by default: views that differ from what is stored in `apiVersion` and little else. They
//! are those that Kubernetes 1.36 still has, and some that it has removed, for manifests and clients that have to be moved over.

use super::convert::ingresses;
use super::kinds::{Kind, StoredAs};
use coracle_fields::Schema as _;
use coracle_fields::policy::v1::PodDisruptionBudget;
use coracle_validation::defaults::extensions_v1beta1::{self as extensions, select_own_labels};
use coracle_validation::defaults::workloads;
use serde_json::{Value, json};

/// Label in selectors of `policy/v1beta1` that stands for all pods, or for none: an empty selector means none there, and all in v1.
const EMPTY_SELECTOR: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

/// A version of a group.
pub struct OlderVersion {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Whether Kubernetes 1.36 does not have it any more.
    pub is_removed: bool,
    plurals: &'static [&'static str],
    stored_as: StoredAs,
}

macro_rules! version {
    ($group:literal $version:literal, $is_removed:literal, [$($plural:literal),*]) => {
        version!($group $version, $is_removed, stored in $group, [$($plural),*])
    };
    ($group:literal $version:literal, $is_removed:literal, stored in $stored:literal, [$($plural:literal),*]) => {
        OlderVersion {
            group: $group,
            version: $version,
            is_removed: $is_removed,
            plurals: &[$($plural),*],
            stored_as: StoredAs {
                group: $stored,
                version: "v1",
                encode: |object| set_version(object, concat!($stored, "/v1")),
                decode: |object| set_version(object, concat!($group, "/", $version)),
            },
        }
    };
}

/// Every version; one whose kinds are stored in several groups stands there once for each. Their types are those of v1 (`OLDER`
/// in `proto/src/schema/table.rs`), but for Ingresses.
pub static VERSIONS: [OlderVersion; 12] = [
    version!("admissionregistration.k8s.io" "v1beta1", false, [
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies", "validatingadmissionpolicybindings"
    ]),
    version!("admissionregistration.k8s.io" "v1alpha1", false, [
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"
    ]),
    version!("authentication.k8s.io" "v1beta1", false, ["selfsubjectreviews"]),
    version!("networking.k8s.io" "v1beta1", false, ["ipaddresses", "servicecidrs"]),
    version!("resource.k8s.io" "v1beta2", false, [
        "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"
    ]),
    version!("storage.k8s.io" "v1beta1", false, ["volumeattributesclasses"]),
    version!("apps" "v1beta2", true, [
        "controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"
    ]),
    version!("apps" "v1beta1", true, ["controllerrevisions", "deployments", "statefulsets"]),
    version!("batch" "v1beta1", true, ["cronjobs"]),
    version!("extensions" "v1beta1", true, stored in "apps", ["daemonsets", "deployments", "replicasets"]),
    version!("extensions" "v1beta1", true, stored in "networking.k8s.io", ["ingresses"]),
    version!("policy" "v1beta1", true, ["poddisruptionbudgets"]),
];

fn set_version(object: &mut Value, api_version: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), json!(api_version));
    }
}

/// The rows of a version, from those of what is stored.
pub(super) fn rows(older: &OlderVersion, builtin: &[Kind]) -> Vec<Kind> {
    let stored = older.stored_as;
    let is_ours = |row: &&Kind| {
        row.group == stored.group
            && row.version == stored.version
            && older.plurals.contains(&row.plural.as_str())
    };
    let view = |row: &Kind| {
        let mut row = row.clone();
        older.group.clone_into(&mut row.group);
        older.version.clone_into(&mut row.version);
        // Reviews are answered and forgotten: there is nothing to convert.
        row.stored_as = row.stored.then_some(stored);
        if older.group != stored.group {
            // `kubectl get all` would show everything twice.
            row.categories.clear();
        }
        match (older.group, older.version, row.plural.as_str()) {
            ("apps", "v1beta1", "deployments") => {
                row.strategy.defaults = |object| {
                    select_own_labels(object);
                    workloads::deployment(object);
                }
            }
            ("apps", "v1beta1", "statefulsets") => {
                row.strategy.defaults = |object| {
                    select_own_labels(object);
                    workloads::stateful_set(object);
                }
            }
            ("extensions", _, "deployments") => row.strategy.defaults = extensions::deployment,
            ("extensions", _, "replicasets") => row.strategy.defaults = extensions::replica_set,
            ("extensions", _, "daemonsets") => row.strategy.defaults = extensions::daemon_set,
            ("extensions", _, "ingresses") => {
                row.schema = "io.k8s.api.extensions.v1beta1.Ingress".to_owned();
                row.stored_as = Some(ingresses::STORED_AS);
                row.strategy.defaults = extensions::ingress;
            }
            ("policy", "v1beta1", _) => {
                row.stored_as = Some(StoredAs {
                    encode: |budget| {
                        set_version(budget, "policy/v1");
                        swap_selectors(budget, ("Exists", "DoesNotExist"));
                    },
                    decode: |budget| {
                        set_version(budget, "policy/v1beta1");
                        swap_selectors(budget, ("DoesNotExist", "Exists"));
                    },
                    ..stored
                });
            }
            _ => {}
        }
        row
    };
    builtin.iter().filter(is_ours).map(view).collect()
}

/// An empty selector becomes one with `from_empty`, and one with `to_empty` becomes empty.
fn swap_selectors(budget: &mut Value, (from_empty, to_empty): (&str, &str)) {
    let with = |operator: &str| json!({"matchExpressions": [{"key": EMPTY_SELECTOR, "operator": operator}]});
    let selector = PodDisruptionBudget::of(budget).spec().selector();
    if !selector.is_object() {
        return;
    }
    let is_empty =
        selector.match_labels().entries().next().is_none() && selector.match_expressions().is_empty();
    let swapped = match is_empty {
        true => with(from_empty),
        false if selector.to_value() == with(to_empty) => json!({}),
        false => return,
    };
    PodDisruptionBudget::edit(budget).spec().selector().put(swapped);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::registry::features::Features;
    use crate::registry::index::Registry;
    use coracle_proto::schema;

    fn all() -> Registry {
        Registry::serving(Features::default(), |_| true)
    }

    #[test]
    fn every_version_has_its_rows_and_types() {
        let registry = all();
        for older in &VERSIONS {
            for plural in older.plurals {
                let row = registry.resource(older.group, older.version, plural);
                let row = row.unwrap_or_else(|| panic!("{}/{} {plural}", older.group, older.version));
                let stored = registry.resource(older.stored_as.group, "v1", plural).unwrap();
                assert_eq!(row.key("ns", "a"), stored.key("ns", "a"), "{plural}");
                let found = schema::kind_type(older.group, older.version, &row.kind).unwrap();
                assert_eq!(found.full_name(), row.schema, "{plural}");
                let own_type = (older.group, *plural) == ("extensions", "ingresses");
                assert_eq!(row.schema == stored.schema, !own_type, "{plural}");
                let mut object = json!({"apiVersion": row.api_version(), "kind": row.kind, "metadata": {}});
                if let Some(stored_as) = row.stored_as {
                    let before = object.clone();
                    (stored_as.encode)(&mut object);
                    assert_eq!(object["apiVersion"], stored.api_version());
                    (stored_as.decode)(&mut object);
                    assert_eq!(object, before);
                }
            }
        }
        let none = Registry::builtin();
        assert!(none.resource("apps", "v1beta2", "deployments").is_none(), "off by default");
        assert_eq!(registry.preferred("apps", "deployments").unwrap().version, "v1");
    }

    #[test]
    fn extensions_have_the_defaults_of_their_time() {
        let filled = |plural: &str, spec: Value| {
            let row = all().resource("extensions", "v1beta1", plural).unwrap();
            let mut object =
                json!({"apiVersion": "extensions/v1beta1", "metadata": {"name": "a"}, "spec": spec});
            row.fill(&mut object);
            object
        };
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}});
        let spec = json!({"template": template});
        let deployment = filled("deployments", spec.clone());
        let strategy =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
        assert_eq!(deployment["spec"]["strategy"], strategy);
        assert_eq!(deployment["spec"]["progressDeadlineSeconds"], i32::MAX);
        let set = filled("daemonsets", spec.clone());
        assert_eq!(set["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
        for object in [deployment, set, filled("replicasets", spec)] {
            assert_eq!(object["spec"]["selector"], json!({"matchLabels": {"app": "web"}}));
            assert_eq!(object["metadata"]["labels"], json!({"app": "web"}));
        }
        let rules = json!([{"http": {"paths": [{"backend": {"serviceName": "s", "servicePort": 80}}]}}]);
        let ingress = filled("ingresses", json!({"rules": rules}));
        let path = &ingress["spec"]["rules"][0]["http"]["paths"][0];
        assert_eq!(path["pathType"], "ImplementationSpecific");
    }

    #[test]
    fn an_empty_selector_of_a_budget_keeps_its_meaning() {
        let row = all().resource("policy", "v1beta1", "poddisruptionbudgets").unwrap();
        let view = row.stored_as.unwrap();
        let budget =
            |selector: Value| json!({"apiVersion": "policy/v1beta1", "spec": {"selector": selector}});
        let mut none = budget(json!({}));
        (view.encode)(&mut none);
        assert_eq!(
            none["spec"]["selector"]["matchExpressions"][0]["operator"], "Exists",
            "no pod has the label"
        );
        (view.decode)(&mut none);
        assert_eq!(none, budget(json!({})));
        let mut every = json!({"apiVersion": "policy/v1", "spec": {"selector": {"matchLabels": {}}}});
        (view.decode)(&mut every);
        assert_eq!(every["spec"]["selector"]["matchExpressions"][0]["operator"], "DoesNotExist");
        (view.encode)(&mut every);
        assert_eq!(every["spec"]["selector"], json!({}));
        let some = budget(json!({"matchLabels": {"a": "b"}}));
        let mut same = some.clone();
        (view.encode)(&mut same);
        (view.decode)(&mut same);
        assert_eq!(same, some);
    }

    #[test]
    fn a_deployment_without_a_selector_has_the_labels_of_its_template() {
        let row = all().resource("apps", "v1beta1", "deployments").unwrap();
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}});
        let mut object = json!({"apiVersion": "apps/v1beta1", "spec": {"template": template}});
        row.fill(&mut object);
        assert_eq!(object["spec"]["selector"], json!({"matchLabels": {"app": "web"}}));
        assert_eq!(object["spec"]["replicas"], 1);
    }
}
