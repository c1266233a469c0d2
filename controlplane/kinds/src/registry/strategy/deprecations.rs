//! Deprecation warnings for the `Warning` header: storage, networks, service accounts.

use coracle_fields::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::networking::v1::{Ingress, NetworkPolicy, NetworkPolicyPeer};
use coracle_fields::node::v1::RuntimeClass;
use coracle_fields::storage::v1::{CSIDriver, StorageClass};
use coracle_fields::{Json, List, Schema, View, storage_class};
use coracle_proto::names::sloppy_address;
use coracle_proto::quantity::Quantity;
use coracle_validation::names::{cidr, network, sloppy_cidr};
use serde_json::Value;
use std::net::IpAddr;

const BETA_MOUNTS: &str = "volume.beta.kubernetes.io/mount-options";
const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

const NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Sources of a volume that are on their way out, with the warning.
fn old_sources(spec: View<'_, PersistentVolumeSpec>) -> [(View<'_, Json>, &'static str); 6] {
    [
        (spec.cephfs().erased(), "cephfs: deprecated in v1.28, non-functional in v1.31+"),
        (
            spec.photon_persistent_disk().erased(),
            "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+",
        ),
        (spec.scale_io().erased(), "scaleIO: deprecated in v1.16, non-functional in v1.22+"),
        (spec.storageos().erased(), "storageOS: deprecated in v1.22, non-functional in v1.25+"),
        (spec.glusterfs().erased(), "glusterfs: deprecated in v1.25, non-functional in v1.26+"),
        (spec.rbd().erased(), "rbd: deprecated in v1.28, non-functional in v1.31+"),
    ]
}

fn annotated(object: &Value, key: &str) -> bool {
    PartialObjectMetadata::of(object).metadata().annotations().key(key).is_set()
}

/// What is said about a label of nodes that has another name by now.
pub(super) fn old_label(key: &str) -> Option<&'static str> {
    NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
}

/// An amount of bytes that is no whole number.
pub(super) fn fractional(list: &str, resource: &str, amount: &str) -> Option<String> {
    let is_fraction = amount.parse::<Quantity>().is_ok_and(|quantity| quantity.milli_value() % 1000 != 0);
    is_fraction.then(|| {
        format!("{list}[{resource}]: fractional byte value {amount:?} is invalid, must be an integer")
    })
}

/// A Node.
pub fn node(object: &Value, _old: Option<&Value>) -> Vec<String> {
    if Node::of(object).spec().external_id().text().is_empty() {
        return Vec::new();
    }
    vec!["spec.externalID: this field is deprecated, and is unused by Kubernetes".into()]
}

/// A RuntimeClass.
pub fn runtime_class(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let selector = RuntimeClass::of(object).scheduling().node_selector();
    let mut keys: Vec<&str> = selector.entries().map(|(key, _)| key).collect();
    keys.sort_unstable();
    let old = keys.into_iter().filter_map(old_label);
    old.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
}

/// A new Ingress.
pub fn ingress(object: &Value, old: Option<&Value>) -> Vec<String> {
    let key = "kubernetes.io/ingress.class";
    if old.is_some() || !annotated(object, key) || Ingress::of(object).spec().ingress_class_name().is_set() {
        return Vec::new();
    }
    vec![format!("annotation {key:?} is deprecated, please use 'spec.ingressClassName' instead")]
}

/// A PersistentVolume.
pub fn volume(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, message) in [
        (storage_class::ANNOTATION, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        (BETA_MOUNTS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if annotated(object, key) {
            warnings.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    let spec = PersistentVolume::of(object).spec();
    if spec.persistent_volume_reclaim_policy() == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".into());
    }
    for (i, term) in spec.node_affinity().required().node_selector_terms().items().enumerate() {
        for (j, rule) in term.match_expressions().items().enumerate() {
            let key = rule.key().text();
            if let Some(message) = old_label(key) {
                let path = "spec.nodeAffinity.required.nodeSelectorTerms";
                warnings.push(format!("{path}[{i}].matchExpressions[{j}].key: {key} is {message}"));
            }
        }
    }
    let sources = old_sources(spec).into_iter().filter(|(source, _)| source.is_set());
    warnings.extend(sources.map(|(_, message)| format!("spec.{message}")));
    warnings
}

/// A PersistentVolumeClaim.
pub fn claim(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if annotated(object, storage_class::ANNOTATION) {
        warnings.push(format!(
            "metadata.annotations[{}]: deprecated since v1.8; use \"storageClassName\" attribute instead",
            storage_class::ANNOTATION
        ));
    }
    let resources = PersistentVolumeClaim::of(object).spec().resources();
    for (list, amounts) in [("requests", resources.requests()), ("limits", resources.limits())] {
        let amount = amounts.key("storage").text();
        warnings.extend(fractional(&format!("spec.resources.{list}"), "storage", amount));
    }
    warnings
}

/// A ServiceAccount that newly asks for what is on its way out.
pub fn account(object: &Value, old: Option<&Value>) -> Vec<String> {
    if !annotated(object, MOUNTABLE) || old.is_some_and(|old| annotated(old, MOUNTABLE)) {
        return Vec::new();
    }
    vec![format!(
        "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    )]
}

/// A NetworkPolicy whose ranges may not mean what they say.
pub fn network_policy(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = NetworkPolicy::of(object).spec();
    for (i, rule) in spec.ingress().items().enumerate() {
        peers(&format!("spec.ingress[{i}].from"), rule.from(), &mut warnings);
    }
    for (i, rule) in spec.egress().items().enumerate() {
        peers(&format!("spec.egress[{i}].to"), rule.to(), &mut warnings);
    }
    warnings
}

fn peers(path: &str, peers: View<'_, List<NetworkPolicyPeer>>, warnings: &mut Vec<String>) {
    for (j, peer) in peers.items().enumerate() {
        let (block, path) = (peer.ip_block(), format!("{path}[{j}].ipBlock"));
        warnings.extend(range(&format!("{path}.cidr"), block.cidr().text()));
        for (k, except) in block.except().texts().enumerate() {
            warnings.extend(range(&format!("{path}.except[{k}]"), except));
        }
    }
}

/// An IP address in a deprecated form.
pub(super) fn address(path: &str, text: &str) -> Option<String> {
    let address = sloppy_address(text)?;
    let mapped = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map(IpAddr::from),
        IpAddr::V4(_) => text.parse::<IpAddr>().is_err().then_some(address),
    };
    if let Some(better) = mapped {
        return Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{better}\""));
    }
    (address.is_ipv6() && address.to_string() != text).then(|| {
        format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")")
    })
}

/// A range of addresses in a deprecated form.
pub(super) fn range(path: &str, text: &str) -> Vec<String> {
    let Some((address, bits)) = sloppy_cidr(text) else { return Vec::new() };
    let (base, mut warnings) = (network(address, bits), Vec::new());
    let canonical = format!("{base}/{bits}");
    if base != address {
        let width = if address.is_ipv4() { 32 } else { 128 };
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or \"{address}/{width}\"?)"
        ));
    }
    if cidr(text).is_none() {
        warnings.push(format!("{path}: non-standard CIDR value {text:?} is invalid: use {canonical:?}"));
    }
    if warnings.is_empty() && address.is_ipv6() && canonical != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})"
        ));
    }
    warnings
}

/// A StorageClass.
pub fn class(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, topology) in StorageClass::of(object).allowed_topologies().items().enumerate() {
        for (j, rule) in topology.match_label_expressions().items().enumerate() {
            if let Some(message) = old_label(rule.key().text()) {
                warnings.push(format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key: {message}"));
            }
        }
    }
    warnings
}

/// A CSIDriver whose tokens would travel among the attributes of volumes.
pub fn driver(object: &Value, old: Option<&Value>) -> Vec<String> {
    let spec = CSIDriver::of(object).spec();
    let tokens = spec.token_requests();
    if tokens.is_empty()
        || spec.service_account_token_in_secrets().is_set()
        || old.is_some_and(|old| CSIDriver::of(old).spec().token_requests().as_value() == tokens.as_value())
    {
        return Vec::new();
    }
    vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Warn = fn(&Value, Option<&Value>) -> Vec<String>;

    #[test]
    fn what_people_are_warned_of() {
        let annotations = |key: &str| json!({"metadata": {"annotations": {key: "x"}}});
        let cases: [(Warn, Value, &str); 10] = [
            (
                ingress,
                annotations("kubernetes.io/ingress.class"),
                "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead",
            ),
            (
                volume,
                json!({"spec": {"persistentVolumeReclaimPolicy": "Recycle"}}),
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
            ),
            (
                volume,
                annotations(BETA_MOUNTS),
                "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; use \"mountOptions\" attribute instead",
            ),
            (
                volume,
                json!({"spec": {"cephfs": {}}}),
                "spec.cephfs: deprecated in v1.28, non-functional in v1.31+",
            ),
            (
                claim,
                annotations(storage_class::ANNOTATION),
                "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead",
            ),
            (
                claim,
                json!({"spec": {"resources": {"requests": {"storage": "500m"}}}}),
                "spec.resources.requests[storage]: fractional byte value \"500m\" is invalid, must be an integer",
            ),
            (
                account,
                annotations(MOUNTABLE),
                "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
            ),
            (
                network_policy,
                json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "10.1.2.3/8"}}]}]}}),
                "spec.egress[0].to[0].ipBlock.cidr: CIDR value \"10.1.2.3/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.1.2.3/32\"?)",
            ),
            (
                class,
                json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone"}]}]}),
                "allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
            ),
            (
                driver,
                json!({"spec": {"tokenRequests": [{"audience": "a"}]}}),
                "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes",
            ),
        ];
        for (warn, object, expected) in cases {
            assert_eq!(warn(&object, None), [expected], "{object}");
            assert_eq!(warn(&json!({"metadata": {}, "spec": {}}), None), [""; 0]);
        }
        for (text, want) in [
            ("1.2.3.4", None),
            ("001.2.3.4", Some("f: non-standard IP address \"001.2.3.4\" is invalid: use \"1.2.3.4\"")),
            (
                "::ffff:1.2.3.4",
                Some("f: non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\""),
            ),
            (
                "2001:DB8::1",
                Some(
                    "f: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
                ),
            ),
        ] {
            assert_eq!(address("f", text).as_deref(), want);
        }
        assert_eq!(
            range("f", "10.0.0.0/08"),
            ["f: non-standard CIDR value \"10.0.0.0/08\" is invalid: use \"10.0.0.0/8\""]
        );
        let same = json!({"spec": {"tokenRequests": [{"audience": "a"}]}});
        assert!(driver(&same, Some(&same)).is_empty());
    }
}
