#![allow(clippy::unwrap_used)]
use super::*;
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::kinds::Kind;
use serde_json::json;

fn pod() -> Expected {
    Expected::new("", "v1", "Pod")
}

fn refused(content_type: &str, bytes: &[u8], validation: FieldValidation) -> ApiError {
    body(&pod(), content_type, bytes, validation).unwrap_err()
}

#[test]
fn wrong_kinds_and_versions_are_named() {
    for (text, why) in [
        (
            r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#,
            "Deployment in version \"v1\" cannot be handled as a Pod: converting (v1.Deployment) to (core.Pod): \
             unknown conversion",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v2"}"#,
            "Pod in version \"v2\" cannot be handled as a Pod: no kind \"Pod\" is registered for version \"v2\" in \
             scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1","spec":{"hostNetwork":"yes"}}"#,
            "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field \
             PodSpec.spec.hostNetwork of type bool",
        ),
        (
            r#"{"kind":"Pod""#,
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse \
             error: unexpected end of JSON input ({\"kind\":\"Pod\")",
        ),
        (
            "nonsense",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse \
             error: invalid character 'o' in literal null (expecting 'u') (6e6f6e73656e7365)",
        ),
    ] {
        let error = refused("application/json", text.as_bytes(), FieldValidation::Ignore);
        assert_eq!(error.code, 400);
        assert_eq!(error.message, why);
    }
    let other = Expected::new("autoscaling", "v1", "HorizontalPodAutoscaler");
    let text = br#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2"}"#;
    assert_eq!(
        body(&other, "", text, FieldValidation::Warn).unwrap_err().message,
        "the API version in the data (autoscaling/v2) does not match the expected API version (autoscaling/v1)"
    );
    assert_eq!(refused("text/plain", b"{}", FieldValidation::Warn).code, 415);
}

#[test]
fn field_validation_has_three_degrees() {
    let text = br#"{"kind":"Pod","spec":{"nope":1,"nodeName":"a","nodeName":"b","containers":[]}}"#;
    let strict = refused("application/json", text, FieldValidation::Strict);
    assert_eq!(
        strict.message,
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.nope\", \
         duplicate field \"spec.nodeName\""
    );
    let warned = body(&pod(), "application/json", text, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, ["unknown field \"spec.nope\"", "duplicate field \"spec.nodeName\""]);
    assert_eq!(warned.object["spec"], json!({"nodeName": "b", "containers": []}));
    assert_eq!(
        (warned.object["kind"].as_str(), warned.object["apiVersion"].as_str()),
        (Some("Pod"), Some("v1"))
    );
    let ignored = body(&pod(), "application/json", text, FieldValidation::Ignore).unwrap();
    assert!(ignored.warnings.is_empty());
}

#[test]
fn yaml_names_the_line() {
    let text = b"kind: Pod\nmetadata:\n  name: a\n  name: b\nspec:\n  nope: 1\n";
    let strict = refused("application/yaml", text, FieldValidation::Strict);
    assert_eq!(
        strict.message,
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: yaml: unmarshal errors:\n  line 4: \
         key \"name\" already set in map, unknown field \"spec.nope\""
    );
    let warned = body(&pod(), "application/yaml", text, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, ["line 4: key \"name\" already set in map", "unknown field \"spec.nope\""]);
    let error = applied(text, FieldValidation::Strict).unwrap_err();
    assert_eq!(
        error.message,
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"name\" \
         already set in map"
    );
    let applied = applied(text, FieldValidation::Ignore).unwrap();
    assert_eq!(applied.object, json!({"kind": "Pod", "metadata": {"name": "b"}, "spec": {"nope": 1}}));
    let json = br#"{"kind":"Pod","metadata":{"name":"a"}}"#;
    assert_eq!(yaml(json).unwrap()["metadata"]["name"], json!("a"));
}

#[test]
fn any_body_is_shown_as_json() {
    // The envelope: its kind, then a ConfigMap with a name and one entry of data.
    let kind = [&b"\x0a\x02v1\x12\x09ConfigMap"[..]].concat();
    let object = b"\x0a\x03\x0a\x01m\x12\x06\x0a\x01k\x12\x01v";
    let mut protobuf = b"k8s\0".to_vec();
    for (tag, part) in [(0x0a, &kind[..]), (0x12, &object[..])] {
        protobuf.extend([tag, part.len() as u8]);
        protobuf.extend(part);
    }
    let whole =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}});
    for (content_type, bytes, expected) in [
        ("application/vnd.kubernetes.protobuf", &protobuf[..], Some(whole)),
        ("application/yaml; charset=utf-8", b"data: {k: v}", Some(json!({"data": {"k": "v"}}))),
        ("application/apply-patch+yaml", b"data:\n  k: v", Some(json!({"data": {"k": "v"}}))),
        ("application/json-patch+json", b"[1]", Some(json!([1]))),
        ("", b"{}", Some(json!({}))),
        ("application/json", b"", None),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\x0a\xff", None),
    ] {
        assert_eq!(for_audit(content_type, bytes), expected, "{content_type}");
    }
}

#[test]
fn delete_options_come_in_any_version() {
    for text in [
        r#"{"propagationPolicy":"Background"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#,
        r#"{"kind":"DeleteOptions","apiVersion":"apps/v1","propagationPolicy":"Background"}"#,
    ] {
        let options = delete_options("application/json", text.as_bytes()).unwrap();
        assert_eq!(options["propagationPolicy"], json!("Background"), "{text}");
    }
    let wrong = delete_options("application/json", br#"{"kind":"Pod","apiVersion":"v1"}"#).unwrap_err();
    assert_eq!(wrong.code, 400);
}

#[test]
fn patched_objects_stay_of_their_kind() {
    let kind = Kind::new("", "v1", "ConfigMap", "configmaps");
    for (object, why) in [
        (json!({"kind": "ConfigMap", "apiVersion": "v1"}), None),
        (json!({"data": {}}), None),
        (
            json!({"kind": "Secret", "apiVersion": "v1"}),
            Some("converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        ),
        (
            json!({"kind": "Foo", "apiVersion": "v1"}),
            Some(
                "no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            ),
        ),
        (
            json!({"kind": "ConfigMap", "apiVersion": "v9"}),
            Some(
                "no kind \"ConfigMap\" is registered for version \"v9\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            ),
        ),
    ] {
        let said = same_kind(&kind, &object).err().map(|error| (error.code, error.message));
        let want = why.map(|why| {
            let shown = Value::from(object.to_string());
            (422, format!(" \"\" is invalid: patch: Invalid value: {shown}: {why}"))
        });
        assert_eq!(said, want, "{object}");
    }
}

#[test]
fn patched_objects_are_read_again() {
    let kind = Kind::new("", "v1", "Pod", "pods");
    let mut object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "labels": null}, "spec": {"x": 1}});
    let warned = prune(&kind, &mut object, FieldValidation::Warn).unwrap();
    assert_eq!(warned, ["unknown field \"spec.x\""]);
    assert_eq!(object["metadata"], json!({"name": "a"}));
    let mut object = json!({"spec": {"x": 1}});
    let strict = prune(&kind, &mut object, FieldValidation::Strict).unwrap_err();
    assert_eq!(strict.code, 422);
    assert!(
        strict.message.ends_with("strict decoding error: unknown field \"spec.x\""),
        "{}",
        strict.message
    );
    assert_eq!(
        patch(b"{", FieldValidation::Warn).unwrap_err().message,
        "error decoding patch: unexpected end of JSON input"
    );
}

#[test]
fn what_a_webhook_changed_is_read_again() {
    let name = Named {
        group: String::new(),
        version: "v1".into(),
        plural: "configmaps".into(),
        kind: "ConfigMap".into(),
    };
    let read = changed(&name, json!({"metadata": {"name": "a", "nope": 1}, "data": {"a": "b"}, "more": {}}));
    assert_eq!(
        read.unwrap(),
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "b"}})
    );
    for (object, why) in [
        (
            json!({"data": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            json!({"kind": "Secret", "apiVersion": "v1"}),
            "converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (json!([]), "json: cannot unmarshal array into Go value of type"),
    ] {
        let error = changed(&name, object).unwrap_err();
        let said = format!("Internal error occurred: ConfigMap changed by a webhook: {why}");
        assert!(error.code == 500 && error.message.starts_with(&said), "{}", error.message);
    }
}

#[test]
fn whatever_is_stored_has_the_types_of_its_kind() {
    let kind = Kind::new("", "v1", "Pod", "pods");
    let pod =
        |spec: Value| json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec});
    let mut object = pod(json!({"containers": [{"name": "c", "nope": 1}], "nope": 1, "nodeName": null}));
    conform(&kind, &mut object, None).unwrap();
    assert_eq!(object["spec"], json!({"containers": [{"name": "c", "resources": {}}]}));
    // What only has to be written differently is.
    let mut object = pod(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": 0.5}}}]}));
    conform(&kind, &mut object, None).unwrap();
    assert_eq!(object["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "500m"}));
    let wrong = pod(json!({"containers": [{"name": "c"}], "activeDeadlineSeconds": 1.5}));
    let good = pod(json!({"containers": [{"name": "c"}]}));
    for old in [None, Some(&good)] {
        let error = conform(&kind, &mut wrong.clone(), old).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (
                500,
                "Internal error occurred: Pod cannot be stored: json: cannot unmarshal number 1.5 into Go struct \
                 field PodSpec.spec.activeDeadlineSeconds of type int64"
            )
        );
    }
    // One that was stored so can still lose its finalizers.
    assert!(conform(&kind, &mut wrong.clone(), Some(&wrong)).is_ok());
}

#[test]
fn scales_stay_scales() {
    let name = "io.k8s.api.autoscaling.v1.Scale";
    let scale =
        |replicas: Value| json!({"kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": replicas}});
    assert_eq!(patched(name, scale(json!(3))).unwrap()["spec"]["replicas"], 3);
    for replicas in [json!(1.5), json!("3"), json!(5_000_000_000_i64)] {
        assert_eq!(patched(name, scale(replicas)).unwrap_err().code, 422);
    }
}

#[test]
fn applied_floats_without_a_fraction_are_integers() {
    for text in ["spec: {a: 2.0, b: 2.5, c: [1e3]}", r#"{"spec":{"a":2.0,"b":2.5,"c":[1e3]}}"#] {
        let applied = applied(text.as_bytes(), FieldValidation::Strict).unwrap();
        assert_eq!(applied.object, json!({"spec": {"a": 2, "b": 2.5, "c": [1000]}}), "{text}");
    }
}
