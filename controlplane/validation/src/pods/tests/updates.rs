use super::pod_with;
use crate::pods::{MIRROR, ephemeral_update, status_update, update};
use crate::testing::changes;
use coracle_proto::status::FieldError;
use serde_json::{Value, json};

#[test]
fn a_running_pod_is_fixed() {
    let old = pod_with(json!({}));
    let mut image = old.clone();
    image["spec"]["containers"][0]["image"] = json!("j");
    image["spec"]["activeDeadlineSeconds"] = json!(10);
    image["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    assert_eq!(changes(update, &image, &old), [""; 0]);
    let mut command = old.clone();
    command["spec"]["containers"][0]["command"] = json!(["sh"]);
    let text = &changes(update, &command, &old)[0];
    assert!(
        text.starts_with(
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        ),
        "{text}"
    );
    assert!(text.ends_with("+containers[0].command: [\"sh\"]"), "{text}");
    let mut more = old.clone();
    more["spec"]["containers"] = json!([]);
    assert_eq!(
        changes(update, &more, &old),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
    assert_eq!(
        changes(update, &old, &image),
        [
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ]
    );
    let gate = pod_with(json!({"schedulingGates": [{"name": "g"}]}));
    assert_eq!(changes(update, &old, &gate), [""; 0]);
    assert_eq!(
        changes(update, &gate, &old),
        [
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"
        ]
    );
}

#[test]
fn no_update_changes_what_confines_a_pod() {
    let annotated = |annotations: Value| {
        let mut object = pod_with(json!({}));
        object["metadata"]["annotations"] = annotations;
        object
    };
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    let at = format!("metadata.annotations[{key}]: Forbidden: may not");
    let (plain, confined) = (annotated(json!({"note": "a"})), annotated(json!({key: "runtime/default"})));
    for rule in [update as fn(&Value, &Value, &mut Vec<FieldError>), status_update] {
        assert_eq!(changes(rule, &confined, &confined), [""; 0]);
        assert_eq!(changes(rule, &annotated(json!({"note": "b"})), &plain), [""; 0]);
        assert_eq!(changes(rule, &confined, &plain), [format!("{at} add AppArmor annotations")]);
        for new in [&plain, &annotated(json!({key: "unconfined"}))] {
            assert_eq!(
                changes(rule, new, &confined),
                [format!("{at} remove or update AppArmor annotations")],
                "{new}"
            );
        }
    }
}

#[test]
fn ephemeral_containers_only_grow() {
    let container = json!({"name": "d", "image": "i"});
    let old = pod_with(json!({"ephemeralContainers": [container]}));
    let new = pod_with(
        json!({"ephemeralContainers": [container, {"name": "e", "image": "i", "targetContainerName": "c"}]}),
    );
    assert_eq!(changes(ephemeral_update, &new, &old), [""; 0]);
    assert_eq!(
        changes(ephemeral_update, &pod_with(json!({})), &old),
        ["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n"]
    );
}

#[test]
fn ended_containers_stay_ended() {
    let status = |policy: &str, state: Value| {
        let mut object = pod_with(json!({"restartPolicy": policy}));
        object["status"] = json!({"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [{"name": "c", "state": state}]});
        object
    };
    let ended = json!({"terminated": {"exitCode": 0}});
    let running = json!({"running": {}});
    assert_eq!(
        changes(status_update, &status("Always", running.clone()), &status("Always", ended.clone())),
        [""; 0]
    );
    assert_eq!(
        changes(status_update, &status("Never", running), &status("Never", ended)),
        ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
    );
}

/// Two values that are no texts are not the same text.
#[test]
fn values_of_another_type_are_compared_as_they_are() {
    let nominated = |node: Value| {
        let mut object = pod_with(json!({}));
        object["status"] = json!({"nominatedNodeName": node});
        object
    };
    assert_eq!(changes(status_update, &nominated(json!("n")), &nominated(json!("n"))), [""; 0]);
    let bound = pod_with(json!({"nodeName": "n"}));
    let mut changed = bound.clone();
    changed["status"] = json!({"nominatedNodeName": "other"});
    assert_eq!(
        changes(status_update, &changed, &bound),
        ["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"]
    );
    assert!(!changes(status_update, &nominated(json!(5)), &pod_with(json!({}))).is_empty());
    let mirror = |value: Value| {
        let mut object = pod_with(json!({}));
        object["metadata"]["annotations"] = json!({MIRROR: value});
        object
    };
    assert_eq!(changes(update, &mirror(json!(1)), &mirror(json!(1))), [""; 0]);
    assert!(!changes(update, &mirror(json!(2)), &mirror(json!(1))).is_empty());
    let gated = |zone: Value| {
        pod_with(json!({"schedulingGates": [{"name": "example.com/g"}], "nodeSelector": {"zone": zone}}))
    };
    assert!(!changes(update, &gated(json!(2)), &gated(json!(1))).is_empty());
}
