//! Field rules of volumes, claims, classes and drivers.

use super::field_ref::{FieldRef, walk};
use super::meta;
use super::pods::resources::{amount, quantity};
use super::pods::scheduling::node_selector;
use super::pods::volumes::host_path;
use crate::tree::{Grow, Tree, same};
use coracle_proto::names::{dns1123_label, dns1123_subdomain, qualified_name};
use coracle_proto::quantity::Quantity;
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Fields of a PersistentVolume's spec that are no sources.
const NOT_SOURCES: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn access_modes(spec: &FieldRef<'_>, detail: &str) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        modes.required(detail);
    }
    for mode in modes.items().filter(|mode| !MODES.contains(&mode.text())) {
        modes.with(mode.value).unsupported(&MODES);
    }
    let alone = modes.items().any(|mode| mode.text() == "ReadWriteOncePod");
    let others = modes.items().any(|mode| mode.text() != "ReadWriteOncePod" && MODES.contains(&mode.text()));
    if alone && others {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

fn positive(field: &FieldRef<'_>) -> bool {
    let fine = quantity(field).is_none_or(|quantity| quantity.signum() > 0);
    if !fine {
        field.invalid("must be greater than zero");
    }
    fine
}

/// The spec of a claim, also inside pods and StatefulSets.
pub(super) fn claim_spec(spec: &FieldRef<'_>) {
    access_modes(spec, "at least 1 access mode is required");
    meta::selector(&spec.at("selector"));
    let size = spec.at("resources").key("storage").with(spec.value.at("resources.requests.storage"));
    if !size.is_set() {
        size.required("");
    } else if positive(&size) {
        amount(&size, "storage");
    }
    if !spec.at("storageClassName").is_empty() {
        spec.at("storageClassName").follows(dns1123_subdomain);
    }
    if spec.at("volumeMode").is_set() {
        spec.at("volumeMode").one_of(&["Block", "Filesystem"]);
    }
    for key in ["dataSource", "dataSourceRef"] {
        if spec.at(key).is_set() {
            data_source(&spec.at(key));
        }
    }
    let (old, new) = (spec.value.at("dataSource"), spec.value.at("dataSourceRef"));
    if !new.text("namespace").is_empty() {
        if !old.is_null() {
            spec.invalid_as(
                "spec.dataSource",
                "may not be specified when dataSourceRef.namespace is specified",
            );
        }
    } else if !old.is_null()
        && !new.is_null()
        && ["apiGroup", "kind", "name"].iter().any(|key| old.at(key) != new.at(key))
    {
        spec.invalid_as("spec.dataSource", "must match dataSourceRef");
    }
    if !spec.at("volumeAttributesClassName").is_empty() {
        spec.at("volumeAttributesClassName").follows(dns1123_subdomain);
    }
}

fn data_source(source: &FieldRef<'_>) {
    source.at("name").has_text("");
    source.at("kind").has_text("");
    let (group, kind) = (source.at("apiGroup"), source.value.text("kind"));
    if group.is_empty() {
        if kind != "PersistentVolumeClaim" {
            source.invalid_as(kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
        }
    } else {
        group.follows(dns1123_subdomain);
    }
    if !source.at("namespace").is_empty() {
        source.at("namespace").follows(dns1123_label);
    }
}

/// A PersistentVolumeClaim.
pub fn claim(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| claim_spec(&root.at("spec")));
}

/// A change of a claim: only its size may grow, and a class may be filled in.
pub fn claim_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let bound = new.text("status.phase") == "Bound";
    let (mut now, before) = (new.at("spec").clone(), old.at("spec"));
    let mut take_over = |key: &str| match before.get(key) {
        Some(value) => now.put(key, value.clone()),
        None => {
            now.drop_key(key);
        }
    };
    if before.text("volumeName").is_empty() {
        take_over("volumeName");
    }
    let annotated = old.at("metadata.annotations").get(BETA_CLASS);
    let class = new.at("spec.storageClassName");
    if !before.has("storageClassName") && !class.is_null() && annotated.is_none_or(|name| name == class) {
        take_over("storageClassName");
    }
    if bound {
        take_over("volumeAttributesClassName");
    }
    if bound && now.has("resources.requests") {
        match before.at("resources.requests").get("storage") {
            Some(size) => now.section("resources").section("requests").put("storage", size.clone()),
            None => {
                now.section("resources").section("requests").drop_key("storage");
            }
        }
    }
    walk(new, errors, |root| {
        let spec = root.at("spec");
        if !same(&now, before) {
            spec.forbidden(
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            );
        }
        let size = |value: &Value, path: &str| value.text(path).parse::<Quantity>().ok();
        if let (Some(now), Some(was)) =
            (size(new, "spec.resources.requests.storage"), size(old, "spec.resources.requests.storage"))
            && now < was
            && size(old, "status.capacity.storage").is_none_or(|actual| now <= actual)
        {
            spec.at("resources.requests.storage").forbidden("field can not be less than status.capacity");
        }
    });
}

/// A PersistentVolume.
pub fn volume(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        access_modes(&spec, "");
        let capacity = spec.at("capacity");
        if capacity.is_empty() {
            capacity.required("");
        }
        if capacity.len() != 1 || capacity.value.get("storage").is_none() {
            // What is not there is shown as such: the field is no text.
            capacity.report(FieldError::unsupported(capacity.path(), capacity.value, &["storage"]));
        }
        capacity.entries().for_each(|(_, size)| {
            positive(&size);
        });
        if !spec.at("persistentVolumeReclaimPolicy").is_empty() {
            spec.at("persistentVolumeReclaimPolicy").one_of(&["Delete", "Recycle", "Retain"]);
        }
        let affinity = spec.at("nodeAffinity");
        if affinity.is_set() {
            if affinity.at("required").is_set() {
                node_selector(&affinity.at("required"));
            } else {
                affinity.at("required").required("must specify required node constraints");
            }
        }
        volume_source(&spec);
        let path = spec.value.text("hostPath.path");
        if spec.value.text("persistentVolumeReclaimPolicy") == "Recycle"
            && path.trim_end_matches('/').is_empty()
            && spec.at("hostPath").is_set()
        {
            spec.at("persistentVolumeReclaimPolicy")
                .forbidden("may not be 'recycle' for a hostPath mount of '/'");
        }
        if !spec.at("storageClassName").is_empty() {
            spec.at("storageClassName").follows(dns1123_subdomain);
        }
        if spec.at("volumeMode").is_set() {
            spec.at("volumeMode").one_of(&["Block", "Filesystem"]);
        }
    });
}

fn volume_source(spec: &FieldRef<'_>) {
    let sources: Vec<FieldRef<'_>> = spec
        .value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !NOT_SOURCES.contains(&key.as_str()) && !value.is_null())
        .map(|(key, _)| spec.at(key))
        .collect();
    let Some(first) = sources.first() else {
        return spec.required("must specify a volume type");
    };
    for other in &sources[1..] {
        other.forbidden("may not specify more than 1 volume type");
    }
    match first.path().rsplit('.').next().unwrap_or_default() {
        "hostPath" if first.at("path").has_text("") => host_path(first),
        "local" => {
            if first.at("path").has_text("") && first.value.text("path").split('/').any(|part| part == "..") {
                first.at("path").invalid("must not contain '..'");
            }
            if !spec.at("nodeAffinity").is_set() {
                spec.at("nodeAffinity").required("Local volume requires node affinity");
            }
        }
        "nfs" => {
            first.at("server").has_text("");
            first.at("path").has_text("");
            if !first.value.text("path").starts_with('/') {
                first.at("path").invalid_as(first.value.text("path"), "must be an absolute path");
            }
        }
        "csi" => {
            driver_name(&first.at("driver"));
            first.at("volumeHandle").has_text("");
        }
        _ => {}
    }
}

/// A change of a volume: what it is made of stays.
pub fn volume_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let source = |spec: &Value| {
        let mut spec = spec.clone();
        for key in NOT_SOURCES {
            spec.drop_key(key);
        }
        if let Some(csi) = spec.existing("csi") {
            csi.drop_key("controllerExpandSecretRef");
        }
        spec
    };
    if !same(&source(new.at("spec")), &source(old.at("spec"))) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    walk(new, errors, |root| {
        let mode = root.at("volumeMode").with(new.at("spec.volumeMode"));
        mode.immutable(old.at("spec.volumeMode"));
        if old.has("spec.nodeAffinity") {
            let affinity = root.at("nodeAffinity").with(new.at("spec.nodeAffinity"));
            affinity.immutable(old.at("spec.nodeAffinity"));
        }
    });
}

/// The name of a CSI driver: a domain name of at most 63 characters, in any case.
pub(super) fn driver_name(name: &FieldRef<'_>) {
    if !name.has_text("") {
        return;
    }
    if name.text().len() > 63 {
        name.too_long(63);
    }
    for message in dns1123_subdomain(&name.text().to_lowercase()) {
        name.invalid(message);
    }
}

/// A StorageClass.
pub fn class(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let provisioner = root.at("provisioner");
        if provisioner.has_text("") {
            for message in qualified_name(&provisioner.text().to_lowercase()) {
                provisioner.invalid(message);
            }
        }
        parameters(&root.at("parameters"));
        root.at("reclaimPolicy").one_of(&["Delete", "Retain"]);
        let mode = root.at("volumeBindingMode");
        if mode.is_set() {
            mode.one_of(&["Immediate", "WaitForFirstConsumer"]);
        } else {
            mode.required("");
        }
        for term in root.each("allowedTopologies") {
            let mut keys = HashSet::new();
            for expression in term.each("matchLabelExpressions") {
                if expression.at("values").is_empty() {
                    expression.at("values").required("");
                }
                expression.at("key").follows(qualified_name);
                if !keys.insert(expression.value.text("key")) {
                    expression.at("key").duplicate();
                }
            }
        }
    });
}

fn parameters(parameters: &FieldRef<'_>) {
    if parameters.len() > 512 {
        parameters.too_long(512);
    }
    let mut size = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            parameters.invalid_as(key, "field can not be empty.");
        }
        size += key.len() + value.text().len();
    }
    if size > 256 * 1024 {
        parameters.too_long(256 * 1024);
    }
}

/// What a class provisions with never changes.
pub fn class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        for field in ["parameters", "provisioner", "reclaimPolicy"] {
            if !same(root.value.at(field), old.at(field)) {
                root.at(field).forbidden(format!("updates to {field} are forbidden."));
            }
        }
        root.at("volumeBindingMode").immutable(old.at("volumeBindingMode"));
    });
}

/// A VolumeAttributesClass.
pub fn attributes_class(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        driver_name(&root.at("driverName"));
        if root.at("parameters").is_empty() {
            root.at("parameters").required("must contain at least one key/value pair");
        }
        parameters(&root.at("parameters"));
    });
}

/// A VolumeAttributesClass never changes.
pub fn attributes_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        root.at("driverName").immutable(old.at("driverName"));
        root.at("parameters").immutable(old.at("parameters"));
    });
}

/// A VolumeAttachment.
pub fn attachment(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        driver_name(&spec.at("attacher"));
        let (inline, name) = (spec.at("source.inlineVolumeSpec"), spec.at("source.persistentVolumeName"));
        let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (inline.is_set(), name.is_set()) {
            (false, false) => spec.at("source").required(one),
            (true, true) => spec.at("source").forbidden(one),
            (false, true) => {
                name.has_text("must specify non empty persistentVolumeName");
            }
            (true, false) => {}
        }
        spec.at("nodeName").follows(dns1123_subdomain);
    });
}

/// What is attached where never changes.
pub fn attachment_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        root.at("spec").immutable(old.at("spec"));
    });
}

/// A CSIDriver.
pub fn driver(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        for field in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
            if !spec.at(field).is_set() {
                spec.at(field).required("");
            }
        }
        if spec.at("fsGroupPolicy").is_set() {
            spec.at("fsGroupPolicy").one_of(&["File", "None", "ReadWriteOnceWithFSType"]);
        }
        for mode in spec.each("volumeLifecycleModes") {
            if !matches!(mode.text(), "Persistent" | "Ephemeral") {
                spec.at("volumeLifecycleModes").with(mode.value).unsupported(&["Ephemeral", "Persistent"]);
            }
        }
        let mut audiences = HashSet::new();
        for request in spec.each("tokenRequests") {
            let seconds = request.at("expirationSeconds");
            if !audiences.insert(request.value.text("audience")) {
                let audience = json!(request.value.text("audience"));
                request.at("audience").with(&audience).duplicate();
            } else if seconds.int().is_some_and(|seconds| seconds < 600) {
                seconds.invalid("may not specify a duration less than 10 minutes");
            } else if seconds.int().is_some_and(|seconds| seconds > 1 << 32) {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
        }
        let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
        if period.int().is_some_and(|seconds| seconds < 10) {
            period.invalid("must be greater than or equal to 10 seconds");
        }
    });
}

/// How a driver attaches never changes.
pub fn driver_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let attach = root.at("spec.attachedRequired").with(new.at("spec.attachRequired"));
        attach.immutable(old.at("spec.attachRequired"));
        root.at("spec.volumeLifecycleModes").immutable(old.at("spec.volumeLifecycleModes"));
    });
}

/// A CSINode.
pub fn storage_node(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let drivers = root.at("spec.drivers");
        drivers.unique("name");
        for driver in drivers.items() {
            driver_name(&driver.at("name"));
            let id = driver.at("nodeID");
            if id.has_text("") && id.text().len() > 256 {
                id.invalid("must be 256 characters or less");
            }
            driver.at("allocatable.count").non_negative();
            let mut seen = HashSet::new();
            for key in driver.value.items("topologyKeys") {
                // Upstream reports keys at the driver.
                let (field, text) = (driver.with(key), key.as_str().unwrap_or_default());
                if text.is_empty() {
                    field.required("");
                }
                if !seen.insert(text) {
                    field.duplicate();
                }
                field.follows(qualified_name);
            }
        }
    });
}

/// A CSIStorageCapacity.
pub fn capacity(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        root.at("storageClassName").named(dns1123_subdomain);
        meta::selector(&root.at("nodeTopology"));
        for field in ["capacity", "maximumVolumeSize"] {
            if quantity(&root.at(field)).is_some_and(|quantity| quantity.signum() < 0) {
                root.at(field).invalid("must be greater than or equal to 0");
            }
        }
    });
}

/// What a capacity is about never changes.
pub fn capacity_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        root.at("nodeTopology").immutable(old.at("nodeTopology"));
        root.at("storageClassName").immutable(old.at("storageClassName"));
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;

    #[test]
    fn drivers_name_each_audience_and_key_once() {
        let with = |tokens: Value| json!({"spec": {"attachRequired": true, "podInfoOnMount": true, "storageCapacity": true, "tokenRequests": tokens}});
        assert_eq!(errors(driver, &with(json!([{"audience": "a"}, {"audience": "b"}]))), [""; 0]);
        assert_eq!(
            errors(driver, &with(json!([{"audience": "a", "expirationSeconds": 5}, {"audience": "a"}]))),
            [
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
                "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
            ]
        );
        let node = |keys: Value| json!({"spec": {"drivers": [{"name": "d.io", "nodeID": "n", "topologyKeys": keys}]}});
        assert_eq!(errors(storage_node, &node(json!(["d.io/zone"]))), [""; 0]);
        assert_eq!(
            errors(storage_node, &node(json!(["zone", "zone"]))),
            ["spec.drivers[0]: Duplicate value: \"zone\""]
        );
        assert!(!errors(storage_node, &node(json!(["a b"]))).is_empty());
    }

    #[test]
    fn claims() {
        let with = |size: &str, phase: &str| {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": size}}}, "status": {"phase": phase, "capacity": {"storage": "2Gi"}}})
        };
        assert_eq!(errors(claim, &with("2Gi", "Bound")), [""; 0]);
        assert_eq!(
            errors(claim, &json!({"spec": {}})),
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ]
        );
        assert_eq!(changes(claim_update, &with("3Gi", "Bound"), &with("2Gi", "Bound")), [""; 0]);
        assert_eq!(
            changes(claim_update, &with("1Gi", "Bound"), &with("2Gi", "Bound")),
            ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
        );
        assert!(
            changes(claim_update, &with("3Gi", "Pending"), &with("2Gi", "Pending"))[0]
                .starts_with("spec: Forbidden: spec is immutable after creation")
        );
    }

    #[test]
    fn volumes() {
        let good = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x", "type": ""}}});
        assert_eq!(errors(volume, &good), [""; 0]);
        let mut local = good.clone();
        local["spec"]["local"] = json!({"path": "/y"});
        assert_eq!(
            errors(volume, &local),
            ["spec.local: Forbidden: may not specify more than 1 volume type"]
        );
        let mut moved = good.clone();
        moved["spec"]["hostPath"]["path"] = json!("/z");
        assert!(
            changes(volume_update, &moved, &good)[0].starts_with("spec.persistentvolumesource: Forbidden")
        );
    }
}
