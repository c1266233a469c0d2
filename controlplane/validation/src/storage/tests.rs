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
    let node =
        |keys: Value| json!({"spec": {"drivers": [{"name": "d.io", "nodeID": "n", "topologyKeys": keys}]}});
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
    let mut unknown = with("2Gi", "Bound");
    unknown["status"]["capacity"] = Value::Null;
    assert_eq!(changes(claim_update, &with("1Gi", "Bound"), &unknown), [""; 0]);
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
fn attributes_classes_of_claims_stay_once_they_are_applied() {
    let with = |class: Value| {
        json!({"spec": {"volumeMode": "Filesystem", "volumeAttributesClassName": class},
            "status": {"phase": "Bound", "currentVolumeAttributesClassName": "gold"}})
    };
    let at = "spec.volumeAttributesClassName: Forbidden: update to";
    let why = "is forbidden when status.currentVolumeAttributesClassName is not nil";
    for (class, wrong) in [
        (json!("silver"), vec![]),
        (json!(""), vec![format!("{at} empty string {why}")]),
        (Value::Null, vec![format!("{at} nil {why}")]),
    ] {
        assert_eq!(changes(claim_update, &with(class.clone()), &with(json!("gold"))), wrong, "{class}");
    }
    let mut block = with(json!("gold"));
    block["spec"]["volumeMode"] = json!("Block");
    let said = changes(claim_update, &block, &with(json!("gold")));
    assert_eq!(
        said.last().map(String::as_str),
        Some("volumeMode: Invalid value: \"Block\": field is immutable")
    );
}

#[test]
fn attachments() {
    let with = |volume: &str, status: Value| {
        json!({"spec": {"attacher": "d.io", "nodeName": "n", "source": {"persistentVolumeName": volume}},
            "status": status})
    };
    assert_eq!(errors(attachment, &with("v", json!({}))), [""; 0]);
    let named = errors(attachment, &with("A", json!({})));
    assert!(named.len() == 1 && named[0].starts_with("spec.source.persistentVolumeName: "), "{named:?}");
    let long = "x".repeat(1025);
    let failed = with("v", json!({"attachError": {"message": long, "errorCode": -1}}));
    assert_eq!(
        changes(attachment_status, &failed, &Value::Null),
        [
            "status.attachError.message: Too long: may not be more than 262144 bytes",
            "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ]
    );
    let mut attached = failed.clone();
    attached["status"]["attached"] = json!(true);
    assert_eq!(changes(attachment_status, &attached, &failed), [""; 0], "a status of an earlier version");
    let much = json!({"attachmentMetadata": {"k": "x".repeat(ATTACHED_MAX)}});
    assert_eq!(
        errors(attachment, &with("v", much)),
        ["status.attachmentMetadata: Too long: may not be more than 262144 bytes"]
    );
}

#[test]
fn statuses_of_claims() {
    let with = |status: Value| json!({"status": status});
    let at = "status.allocatedResources";
    for (status, wrong) in [
        (
            json!({"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "1Gi", "example.com/x": "1"},
                "allocatedResourceStatuses": {"storage": "NodeResizePending"}}),
            vec![],
        ),
        (
            json!({"capacity": {"storage": "-1"}}),
            vec!["status.capacity[storage]: Invalid value: -1: must be a valid resource quantity".to_owned()],
        ),
        (
            json!({"allocatedResources": {"cpu": "1"}}),
            vec![format!("{at}: Unsupported value: \"cpu\": supported values: \"storage\"")],
        ),
        (
            json!({"allocatedResources": {"storage": "-1"}}),
            vec![format!("{at}[storage]: Invalid value: -1: must be a valid resource quantity")],
        ),
    ] {
        assert_eq!(changes(claim_status, &with(status.clone()), &Value::Null), wrong, "{status}");
    }
    let odd = with(json!({"allocatedResourceStatuses": {"storage": "Odd"}}));
    let said = changes(claim_status, &odd, &Value::Null);
    let begin = "status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: ";
    assert!(said.len() == 1 && said[0].starts_with(begin), "{said:?}");
    let mut lost = odd.clone();
    lost["status"]["phase"] = json!("Lost");
    assert_eq!(changes(claim_status, &lost, &odd), [""; 0], "a status of an earlier version");
}

#[test]
fn references_of_another_type_do_not_match() {
    let with = |name: Value, other: Value| {
        let source = |name: Value| json!({"kind": "PersistentVolumeClaim", "name": name});
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": source(name), "dataSourceRef": source(other)}})
    };
    assert_eq!(errors(claim, &with(json!("a"), json!("a"))), [""; 0]);
    let said = errors(claim, &with(json!(1), json!(2)));
    assert!(said.iter().any(|error| error.ends_with("must match dataSourceRef")), "{said:?}");
    let classed = |annotation: Value, class: Value| {
        let mut claim = with(json!("a"), json!("a"));
        claim["metadata"] = json!({"annotations": {storage_class::ANNOTATION: annotation}});
        claim["spec"]["storageClassName"] = class;
        claim
    };
    let before = |annotation: Value| classed(annotation, Value::Null);
    let now = classed(json!("fast"), json!("fast"));
    assert_eq!(changes(claim_update, &now, &before(json!("fast"))), [""; 0]);
    assert!(!changes(claim_update, &now, &before(json!(1))).is_empty());
    let removed = classed(Value::Null, json!("fast"));
    assert_eq!(changes(claim_update, &removed, &before(json!("fast"))), [""; 0]);
    let said = changes(claim_update, &classed(json!("slow"), Value::Null), &before(json!("fast")));
    let path = "metadata.annotations.volume.beta.kubernetes.io/storage-class";
    assert_eq!(said, [format!("{path}: Invalid value: \"slow\": field is immutable")]);
}

#[test]
fn volumes() {
    let good = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x", "type": ""}}});
    assert_eq!(errors(volume, &good), [""; 0]);
    let mut local = good.clone();
    local["spec"]["local"] = json!({"path": "/y"});
    assert_eq!(errors(volume, &local), ["spec.local: Forbidden: may not specify more than 1 volume type"]);
    let mut moved = good.clone();
    moved["spec"]["hostPath"]["path"] = json!("/z");
    assert!(changes(volume_update, &moved, &good)[0].starts_with("spec.persistentvolumesource: Forbidden"));
}

#[test]
fn beta_labels_in_affinities_of_volumes_may_become_stable() {
    let with = |key: &str, value: &str| {
        let expression = json!({"key": key, "operator": "In", "values": [value]});
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    };
    let (beta, stable) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    for (old, new, refused) in [
        (with(beta, "a"), with(beta, "a"), false),
        (with(beta, "a"), with(stable, "a"), false),
        (with(beta, "a"), with(stable, "b"), true),
        (with(beta, "a"), with("topology.kubernetes.io/region", "a"), true),
        (with(stable, "a"), with(beta, "a"), true),
        (with(beta, "a"), json!({"spec": {}}), true),
    ] {
        let said = changes(volume_update, &new, &old);
        assert_eq!(said.len(), usize::from(refused), "{said:?}");
        assert!(said.iter().all(|error| error.starts_with("nodeAffinity: Invalid value: ")), "{said:?}");
    }
}

#[test]
fn sources_that_are_not_mounted_have_no_annotation_with_options() {
    let with = |source: &str, fields: Value| {
        let annotations = json!({"volume.beta.kubernetes.io/mount-options": "ro"});
        json!({"metadata": {"name": "v", "annotations": annotations}, "spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, source: fields}})
    };
    assert_eq!(errors(volume, &with("nfs", json!({"server": "s", "path": "/x"}))), [""; 0]);
    assert_eq!(
        errors(volume, &with("hostPath", json!({"path": "/x"}))),
        [
            "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"
        ]
    );
}

#[test]
fn volumes_have_one_source_and_a_size() {
    let with = |capacity: &str, sources: Value| {
        let mut volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": capacity}}});
        for (name, source) in sources.as_object().into_iter().flatten() {
            volume["spec"][name] = source.clone();
        }
        volume
    };
    let host = json!({"path": "/x"});
    let positive = "spec.capacity[storage]: Invalid value: \"-1\": must be greater than zero";
    let only = "Forbidden: may not specify more than 1 volume type";
    for (capacity, sources, wrong) in [
        (
            "-1",
            json!({"hostPath": host}),
            vec![
                "spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity".to_owned(),
                positive.to_owned(),
            ],
        ),
        (
            "0",
            json!({"hostPath": host}),
            vec![positive.replace("-1", "0")],
        ),
        ("1Gi", json!({}), vec!["spec: Required value: must specify a volume type".to_owned()]),
        // Only the first is looked at.
        (
            "1Gi",
            json!({"csi": {}, "cephfs": {}, "nfs": {}, "hostPath": host}),
            vec![
                format!("spec.nfs: {only}"),
                format!("spec.cephFS: {only}"),
                format!("spec.csi: {only}"),
            ],
        ),
        (
            "1Gi",
            json!({"hostPath": host, "flexVolume": {"driver": "d", "options": {"a.k8s.io/b": "c"}}}),
            vec![
                "spec.flexVolume.options[a.k8s.io/b]: Invalid value: \"a.k8s.io/b\": kubernetes.io and k8s.io namespaces are reserved"
                    .to_owned(),
            ],
        ),
        (
            "1Gi",
            json!({"gcePersistentDisk": {"partition": 256}}),
            vec![
                "spec.persistentDisk.pdName: Required value".to_owned(),
                "spec.persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive"
                    .to_owned(),
            ],
        ),
        (
            "1Gi",
            json!({"iscsi": {"targetPortal": "p", "iqn": "x", "lun": 256, "chapAuthSession": true, "initiatorName": "iqn.x"}}),
            vec![
                "spec.iscsi.iqn: Invalid value: \"x\": must be valid format".to_owned(),
                "spec.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive".to_owned(),
                "spec.iscsi.secretRef: Required value".to_owned(),
                "spec.iscsi.initiatorname: Invalid value: \"iqn.x\": must be valid format".to_owned(),
            ],
        ),
        (
            "1Gi",
            json!({"fc": {"targetWWNs": ["a"], "wwids": ["b"]}}),
            vec![
                "spec.fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously"
                    .to_owned(),
                "spec.fc.lun: Required value: lun is required if targetWWNs is specified".to_owned(),
            ],
        ),
    ] {
        assert_eq!(errors(volume, &with(capacity, sources.clone())), wrong, "{sources}");
    }
    for (path, root) in
        [("/", true), ("//.", true), ("/a/..", true), ("", false), ("/a", false), ("a/..", false)]
    {
        assert_eq!(is_root(path), root, "{path}");
    }
}

#[test]
fn volumes_of_drivers() {
    let with = |csi: Value| json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": csi}});
    let secret = json!({"name": "s", "namespace": "n"});
    let all = json!({"driver": "d.io", "volumeHandle": "h", "controllerPublishSecretRef": secret,
        "controllerExpandSecretRef": secret, "nodePublishSecretRef": secret, "nodeExpandSecretRef": secret,
        "nodeStageSecretRef": {}});
    assert_eq!(errors(volume, &with(all.clone())), [""; 0]);
    let mut wrong = all.clone();
    wrong["nodePublishSecretRef"] = json!({});
    wrong["controllerExpandSecretRef"] = json!({"name": "A", "namespace": "a.b"});
    let said: Vec<String> = errors(volume, &with(wrong))
        .iter()
        .filter_map(|error| error.split(": ").next().map(str::to_owned))
        .collect();
    assert_eq!(
        said,
        [
            "spec.csi.controllerExpandSecretRef.name",
            "spec.csi.controllerExpandSecretRef.namespace",
            "spec.csi.nodePublishSecretRef.name",
            "spec.csi.nodePublishSecretRef.namespace",
        ]
    );
    let mut classed = with(all);
    classed["spec"]["volumeAttributesClassName"] = json!("fast");
    assert_eq!(errors(volume, &classed), [""; 0]);
    let mut none = classed.clone();
    none["spec"]["volumeAttributesClassName"] = Value::Null;
    assert_eq!(changes(volume_update, &classed, &none), [""; 0]);
    assert_eq!(
        changes(volume_update, &none, &classed),
        ["spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"]
    );
    let mut host = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/x"}, "volumeAttributesClassName": ""}});
    let csi = "spec.csi: Required value: has to be specified when using volumeAttributesClassName";
    let empty = "spec.volumeAttributesClassName: Required value: an empty string is disallowed";
    assert_eq!(errors(volume, &host), [empty, csi]);
    host["spec"]["volumeAttributesClassName"] = json!("fast");
    assert_eq!(errors(volume, &host), [csi]);
}

#[test]
fn classes() {
    let with = |topologies: Value| {
        json!({"provisioner": "d.io", "parameters": {"a": "b"}, "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate", "allowedTopologies": topologies})
    };
    let zone = |values: Value| json!({"matchLabelExpressions": [{"key": "zone", "values": values}]});
    let (at, twice) = ("matchLabelExpressions", "Duplicate value");
    for (topologies, wrong) in [
        (json!([]), String::new()),
        (json!([zone(json!(["x", "y"])), zone(json!(["x"]))]), String::new()),
        (json!([zone(json!(["x", "x"]))]), format!("allowedTopologies[0].{at}[0].values[1]: {twice}: \"x\"")),
        (
            json!([zone(json!(["x", "y"])), zone(json!(["y", "x"]))]),
            format!("allowedTopologies[1].{at}: {twice}: \"\""),
        ),
        (json!([{}]), format!("allowedTopologies[0].{at}: {twice}: \"\"")),
    ] {
        assert_eq!(errors(class, &with(topologies.clone())).join("|"), wrong, "{topologies}");
    }
    let old = with(json!([]));
    let mut new = old.clone();
    new["provisioner"] = json!("e.io");
    assert_eq!(
        changes(class_update, &new, &old),
        ["provisioner: Invalid value: \"e.io\": field is immutable"]
    );
    let attributes = |driver: &str| json!({"driverName": driver, "parameters": {"a": "b"}});
    for driver in ["d.io", "a/b", "a_b", "A.b"] {
        assert_eq!(errors(attributes_class, &attributes(driver)), [""; 0], "{driver}");
    }
    assert!(!errors(attributes_class, &attributes("a b")).is_empty());
    assert_eq!(
        changes(attributes_class_update, &attributes("a"), &attributes("b")),
        ["driverName: Forbidden: updates to driverName are forbidden."]
    );
}
