use super::super::testing::errors;
use super::*;
use serde_json::json;

#[test]
fn hooks() {
    let hook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "s", "namespace": "n"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
    assert_eq!(errors(webhooks, &json!({"webhooks": [hook]})), [""; 0]);
    for (path, wrong) in
        [("", 0), ("/", 0), ("/a/b", 0), ("/a/", 0), ("a", 1), ("//", 1), ("/a//b", 1), ("/a?b", 1)]
    {
        let mut hook = hook.clone();
        hook["clientConfig"]["service"]["path"] = json!(path);
        assert_eq!(errors(webhooks, &json!({"webhooks": [hook]})).len(), wrong, "{path}");
    }
    let cases = [
        (
            "name",
            json!("short"),
            "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
        ),
        (
            "sideEffects",
            json!("Some"),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            "clientConfig",
            json!({}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            "clientConfig",
            json!({"url": "http://x"}),
            "webhooks[0].clientConfig.url: Invalid value: \"http://x\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            "timeoutSeconds",
            json!(31),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            "admissionReviewVersions",
            json!(["v2"]),
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
        ),
    ];
    for (field, value, expected) in cases {
        let mut bad = hook.clone();
        bad[field] = value;
        assert_eq!(errors(webhooks, &json!({"webhooks": [bad]})), [expected]);
    }
}

/// The errors of a policy with a field of its spec.
fn policy_with(field: &str, value: Value) -> Vec<String> {
    let mut policy = json!({"metadata": {"name": "p.x"}, "spec": {"validations": [{"expression": "true"}],
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["apps"],
            "apiVersions": ["v1"], "resources": ["deployments"]}]}}});
    policy["spec"][field] = value;
    crate::defaults::extensions::admission_policy(&mut policy);
    errors(admission_policy, &policy)
}

#[test]
fn fields_of_policies() {
    let variable = |name: &str| json!([{"name": name, "expression": "1"}]);
    let param = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind});
    let validation = |field: &str, value: &str| json!([{"expression": "true", field: value}]);
    let note = |key: &str, value: &str| json!([{"key": key, "valueExpression": value}]);
    let notes: Vec<Value> =
        (0..21).map(|at| json!({"key": format!("k{at}"), "valueExpression": "'x'"})).collect();
    let same = json!([{"key": "k", "valueExpression": "'x'"}, {"key": "k", "valueExpression": "'y'"}]);
    let long = format!("'{}'", "x".repeat(5 << 10));
    for (field, value, expected) in [
        ("variables", json!([variable("x")[0], variable("x")[0]]), ""),
        ("variables", variable("_a1"), ""),
        ("variables", variable("a-b"), "spec.variables[0].name: Invalid value: \"a-b\": must be a valid"),
        ("variables", variable("in"), "spec.variables[0].name: Invalid value: \"in\": must be a valid CEL"),
        ("variables", variable("1a"), "spec.variables[0].name: Invalid value: \"1a\": must be a valid CEL"),
        ("variables", variable(" "), "spec.variables[0].name: Required value: name is not specified"),
        ("paramKind", param("v1", "ConfigMap"), ""),
        ("paramKind", param("a.b/v1", "Thing"), ""),
        (
            "paramKind",
            param("a/b/c", "x"),
            "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
        ),
        ("paramKind", param("a/", "x"), "spec.paramKind.apiVersion: Invalid value: \"a/\": version must be"),
        ("paramKind", param("A/v1", "x"), "spec.paramKind.apiVersion: Invalid value: \"A\": a lowercase"),
        ("paramKind", param("v1", "a b"), "spec.paramKind.kind: Invalid value: \"a b\": may have mixed case"),
        ("validations", validation("reason", "RequestEntityTooLarge"), ""),
        (
            "validations",
            validation("reason", "Unauthorized"),
            "spec.validations[0].reason: Unsupported value: \"Unauthorized\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
        ),
        ("validations", validation("message", "a b\n"), ""),
        ("validations", validation("message", "a\nb"), "must not contain line breaks"),
        ("validations", validation("message", " "), "must be non-empty if specified"),
        ("validations", validation("messageExpression", ""), ""),
        ("validations", validation("messageExpression", " "), "must be non-empty if specified"),
        ("auditAnnotations", note("a.b", "'x'"), ""),
        (
            "auditAnnotations",
            note("a/b", "'x'"),
            "spec.auditAnnotations[0].key: Invalid value: \"p.x/a/b\": a valid label key must consist",
        ),
        ("auditAnnotations", note("a b", "'x'"), "Invalid value: \"p.x/a b\": name part must consist"),
        (
            "auditAnnotations",
            note("a", &long),
            "spec.auditAnnotations[0].valueExpression: Required value: must not exceed 5120 bytes in length",
        ),
        ("auditAnnotations", json!(notes[..20]), ""),
        ("auditAnnotations", json!(notes), "must not have more than 20 auditAnnotations"),
        ("auditAnnotations", same, "spec.auditAnnotations[1].key: Duplicate value: \"k\""),
    ] {
        let said = policy_with(field, value.clone());
        assert_eq!(said.len(), usize::from(!expected.is_empty()), "{value}: {said:?}");
        assert!(said.concat().contains(expected), "{value}: {said:?}");
    }
}

#[test]
fn resources_of_rules() {
    let with = |field: &str, value: &[&str]| {
        let mut rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"]});
        rule[field] = json!(value);
        policy_with("matchConstraints", json!({"resourceRules": [rule]}))
    };
    for (resources, wrong) in [
        (&["pods/*", "pods"], 0),
        (&["pods/status", "pods/*"], 0),
        (&["pods/*", "pods/status"], 1),
        (&["*/scale", "deployments/scale"], 1),
        (&["*/scale", "*/status"], 0),
        (&["*", "pods/log"], 0),
        (&["*", "pods"], 1),
        (&["pods", "*"], 0),
        (&["*/*", "pods"], 1),
    ] {
        assert_eq!(with("resources", resources).len(), wrong, "{resources:?}");
    }
    let place = "spec.matchConstraints.resourceRules[0]";
    assert_eq!(
        with("resources", &["pods/*", "pods/status"]),
        [format!(
            "{place}.resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status"
        )]
    );
    assert_eq!(with("resourceNames", &["a", "b"]), [""; 0]);
    assert_eq!(
        with("resourceNames", &["a", "a", "b/c"]),
        [
            format!("{place}.resourceNames[1]: Duplicate value: \"a\""),
            format!("{place}.resourceNames[2]: Invalid value: \"b/c\": may not contain '/'"),
        ]
    );
}
