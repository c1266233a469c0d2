//! Expressions that never end, and expressions that only look as if they were evaluated.

use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
/// A million million values. That `lists.range` is long is not seen before it is evaluated.
const ENDLESS: &str = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).map(c, lists.range(1000)).size() > 0))";

fn definition(plural: &str, rule: &str) -> Value {
    let numbers = json!({"type": "array", "items": {"type": "integer"}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.attacks.example")},
        "spec": {"group": "attacks.example", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": "Bomb", "listKind": "BombList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"numbers": numbers, "version": {"type": "string"}},
                    "x-kubernetes-validations": [{"rule": rule}]}}}}}]}})
}

fn refused(caller: &Caller, path: &str, body: &Value, wanted: &str) {
    let (code, answer) = caller.send("POST", path, Some(body));
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        code == 422 && message.contains(wanted),
        "{code}: {}",
        &answer.to_string()[..answer.to_string().len().min(2000)]
    );
}

/// Creates a definition and waits until its resource is served.
fn serve(admin: &Caller, plural: &str, rule: &str) -> String {
    admin.create(DEFINITIONS, &definition(plural, rule));
    let path = format!("/apis/attacks.example/v1/namespaces/default/{plural}");
    coracle_tests::eventually("the resource is served", Duration::from_secs(20), || {
        admin.get(&path).0 == 200
    });
    path
}

fn bomb() -> Value {
    json!({"apiVersion": "attacks.example/v1", "kind": "Bomb", "metadata": {"generateName": "bomb-"}, "spec": {}})
}

/// How many requests the server works on now, this one among them.
fn in_flight(admin: &Caller) -> usize {
    let (code, page) = admin.get("/metrics");
    assert_eq!(code, 200);
    let page = page.as_str().unwrap_or_default();
    let executing =
        page.lines().filter(|line| line.starts_with("apiserver_flowcontrol_current_executing_requests{"));
    executing.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
}

/// Whoever may write custom resources runs a rule that an administrator of definitions wrote. All get an answer, and so
/// does everybody else meanwhile: with more attacks at once than the server has threads.
#[test]
fn an_editor_cannot_keep_the_server_busy_with_a_rule() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    refused(
        &admin,
        DEFINITIONS,
        &definition("quadratic", "self.numbers.all(a, self.numbers.all(b, a != b))"),
        "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, \
         maxProperties, and maxLength where arrays, maps, and strings are declared)",
    );
    let path = serve(&admin, "endless", ENDLESS);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut most = 0;
    // Attacks of one round may miss each other.
    for _ in 0..20 {
        std::thread::scope(|scope| {
            let attacks: Vec<_> = (0..2 * threads + 2)
                .map(|_| {
                    scope.spawn(|| {
                        refused(&admin, &path, &bomb(), "operation cancelled: actual cost limit exceeded")
                    })
                })
                .collect();
            while !attacks.iter().all(|attack| attack.is_finished()) {
                most = most.max(in_flight(&admin));
            }
        });
        // More attacks than threads, and this request.
        if most > threads + 1 {
            return;
        }
    }
    panic!(
        "nobody is answered while rules are evaluated: {threads} threads, at most {most} requests under way"
    );
}

/// A policy that costs too much has failed: what follows is what its author said.
#[test]
fn a_policy_that_never_ends_follows_its_failure_policy() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    let policy = |name: &str, failure: &str, expression: &str| {
        admin.create(&format!("{POLICIES}/validatingadmissionpolicies"), &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {"failurePolicy": failure, "validations": [{"expression": expression}],
                "matchConstraints": {"objectSelector": {"matchLabels": {"policy": name}}, "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}}}));
        admin.create(
            &format!("{POLICIES}/validatingadmissionpolicybindings"),
            &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}),
        );
    };
    policy("fails", "Fail", ENDLESS);
    policy("ignores", "Ignore", ENDLESS);
    // Nobody here knows the function: such a policy is not stored.
    let unknown = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "unknown"}, "spec": {
            "validations": [{"expression": "authorizer.path('/').check('get').permitted()"}],
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}}});
    let path = format!("{POLICIES}/validatingadmissionpolicies");
    refused(&admin, &path, &unknown, "undeclared reference to 'permitted'");
    let labelled = |policy: &str| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"generateName": "x-", "labels": {"policy": policy}}});
        let (code, answer) = admin.send("POST", "/api/v1/namespaces/default/configmaps", Some(&body));
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    // Caches of policies follow their objects.
    coracle_tests::eventually("the policies are at work", Duration::from_secs(20), || {
        labelled("fails").0 == 422
    });
    let (code, said) = labelled("fails");
    assert!(code == 422 && said.contains("operation cancelled: actual cost limit exceeded"), "{code} {said}");
    assert_eq!(labelled("ignores").0, 201);
}

/// Parsers recurse.
#[test]
fn an_author_of_definitions_cannot_end_the_server_with_depth() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    for (number, rule) in [
        format!("1{} == 1", " + 1".repeat(20_000)),
        format!("self{} == 1", ".a".repeat(40_000)),
        format!("{}true{}", "(".repeat(40_000), ")".repeat(40_000)),
        format!("{}true{}", "!(".repeat(30_000), ")".repeat(30_000)),
        format!("{}true", "true ? true : ".repeat(6_000)),
        format!("r'\\' == '' || 1{} == 1", " + 1".repeat(20_000)),
    ]
    .iter()
    .enumerate()
    {
        refused(&admin, DEFINITIONS, &definition(&format!("deep{number}"), rule), "recursion limit exceeded");
    }
    assert_eq!(admin.get("/readyz").0, 200);
}

/// What a server cannot evaluate must not look as if it were enforced.
#[test]
fn a_rule_that_is_not_evaluated_is_not_accepted() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    for rule in
        ["isVersion(self.version)", "self.numbers.transform(i, v, v > i)", "format.phone().validate('')"]
    {
        refused(&admin, DEFINITIONS, &definition("unknown", rule), "undeclared reference to");
    }
}
