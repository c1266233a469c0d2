#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

fn hook(versions: Value) -> Webhook {
    let webhook = json!({"clientConfig": {"url": "https://h"}, "conversionReviewVersions": versions});
    let conversion = json!({"strategy": "Webhook", "webhook": webhook});
    Webhook::of(CustomResourceConversion::of(&conversion)).unwrap()
}

fn boat(version: &str, name: &str) -> Value {
    json!({"apiVersion": format!("x.io/{version}"), "kind": "Boat",
        "metadata": {"name": name, "namespace": "n", "uid": "u", "generation": 3, "labels": {"a": "1"}}})
}

fn answer(objects: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": "r", "result": {"status": "Success"}, "convertedObjects": objects}})
}

#[test]
fn the_first_version_that_both_understand_is_spoken() {
    for (named, review) in [
        (json!(["v1", "v1beta1"]), "v1"),
        (json!(["v2", "v1beta1", "v1"]), "v1beta1"),
        (json!(["v1beta1"]), "v1beta1"),
    ] {
        assert_eq!(hook(named).review, review);
    }
    assert_eq!(Webhook::of(CustomResourceConversion::of(&json!({"strategy": "None"}))), None);
    let sent: Value =
        serde_json::from_slice(&hook(json!(["v1"])).request("r", "x.io/v2", &[boat("v1", "a")])).unwrap();
    assert_eq!(
        sent,
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "r", "desiredAPIVersion": "x.io/v2", "objects": [boat("v1", "a")]}})
    );
}

#[test]
fn of_the_metadata_only_labels_and_annotations_change() {
    let mut changed = boat("v2", "a");
    changed["metadata"] = json!({"name": "a", "namespace": "n", "uid": "u", "generation": 9,
        "finalizers": ["x/y"], "labels": {"b": "2"}, "annotations": {"c": "3"}});
    changed["spec"] = json!({"oars": 2});
    let read =
        hook(json!(["v1"])).read("r", answer(json!([changed])), &[boat("v1", "a")], "x.io/v2").unwrap();
    let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "generation": 3, "labels": {"b": "2"}, "annotations": {"c": "3"}});
    assert_eq!((&read[0]["metadata"], &read[0]["spec"]["oars"]), (&metadata, &json!(2)));
    changed["metadata"]["labels"] = Value::Null;
    let read =
        hook(json!(["v1"])).read("r", answer(json!([changed])), &[boat("v1", "a")], "x.io/v2").unwrap();
    assert_eq!(read[0]["metadata"].get("labels"), None);
}

#[test]
fn what_is_not_believed_is_said() {
    let with = |path: &str, value: Value| {
        let mut answer = answer(json!([boat("v2", "a")]));
        *answer.pointer_mut(path).unwrap() = value;
        answer
    };
    let object = "/response/convertedObjects/0";
    let meta = |field: &str| format!("{object}/metadata/{field}");
    let cases = [
        (
            with("/kind", json!("Other")),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=Other",
        ),
        (with("/response", Value::Null), "failed: no response provided"),
        (with("/response/uid", json!("s")), "failed: expected response.uid=\"r\", got \"s\""),
        (
            with("/response/result", json!({"status": "Failure"})),
            "failed: response.result.status was 'Failure', not 'Success'",
        ),
        (with("/response/result", json!({"status": "Failure", "message": "no oars"})), "failed: no oars"),
        (with("/response/convertedObjects", json!([])), "returned 0 objects, expected 1"),
        (
            with(&format!("{object}/apiVersion"), json!("x.io/v3")),
            "returned invalid object at index 0: invalid groupVersion (expected x.io/v2, received x.io/v3)",
        ),
        (
            with(&format!("{object}/kind"), json!("Raft")),
            "returned invalid object at index 0: invalid kind (expected Boat, received Raft)",
        ),
        (with(&meta("name"), json!("b")), "returned invalid object: must have the same name: a != b"),
        (
            with(&meta("namespace"), json!("m")),
            "returned invalid object: must have the same namespace: n != m",
        ),
        (with(&meta("uid"), json!("v")), "returned invalid object: must have the same UID: u != v"),
        (
            with(&meta("labels"), json!([])),
            "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
        ),
        (
            with(&meta("labels"), json!({"a": 1})),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
    ];
    for (answer, why) in cases {
        let read = hook(json!(["v1"])).read("r", answer, &[boat("v1", "a")], "x.io/v2");
        assert_eq!(read.unwrap_err().to_string(), why);
    }
    let bad = with(&meta("labels"), json!({"-": "x"}));
    let said = hook(json!(["v1"])).read("r", bad, &[boat("v1", "a")], "x.io/v2").unwrap_err().to_string();
    assert!(said.starts_with("returned invalid metadata: metadata.labels: Invalid value: \"-\": "), "{said}");
    // Of several objects it is said which.
    let several = answer(json!([boat("v2", "a"), boat("v1", "b")]));
    let read = hook(json!(["v1"])).read("r", several, &[boat("v1", "a"), boat("v1", "b")], "x.io/v2");
    assert_eq!(
        read.unwrap_err().to_string(),
        "returned invalid converted object at index 1: invalid groupVersion (expected x.io/v2, received x.io/v1)"
    );
    // Reviews of v1beta1 need not say whom they answer.
    let old = json!({"response": {"result": {"status": "Success"}, "convertedObjects": [boat("v2", "a")]}});
    assert!(hook(json!(["v1beta1"])).read("r", old, &[boat("v1", "a")], "x.io/v2").is_ok());
}

#[test]
fn watchers_remember_the_latest() {
    let mut memo = Memo::default();
    let object = |revision: Revision| {
        let bytes = serde_json::to_vec(&boat("v2", "a")).unwrap();
        Arc::new(Object::from_stored(&[], &bytes.into(), revision).unwrap())
    };
    for revision in 1..=(REMEMBERED as Revision + 1) {
        memo.keep(object(revision));
        memo.keep(object(revision));
    }
    assert!(memo.find(&object(1)).is_none() && memo.find(&object(2)).is_some());
}
