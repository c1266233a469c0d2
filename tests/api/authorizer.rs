//! `authorizer` in expressions: policies and match conditions that depend on what a user may do.

use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn constraints(label: &str) -> Value {
    json!({"objectSelector": {"matchLabels": {"policy": label}}, "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]})
}

fn validating(admin: &Caller, name: &str, spec: &Value) {
    let mut spec = spec.clone();
    spec["matchConstraints"] = constraints(name);
    admin.create(
        &format!("{REGISTRATION}/validatingadmissionpolicies"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    );
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    admin.create(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), &binding);
}

/// Lets somebody do something with something in `default`.
fn grant(admin: &Caller, name: &str, subject: &Value, rule: &Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    admin.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": name}, "rules": [rule]}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
    admin.create(&format!("{rbac}/rolebindings"), &binding);
}

#[test]
fn policies_ask_what_the_user_may_do() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let user = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let maps = |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs});
    grant(&admin, "writers", &user("ann"), &maps(&["create", "get", "publish"]));
    grant(&admin, "others", &user("bob"), &maps(&["create", "get"]));
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"});
    let secrets =
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["key"], "verbs": ["get"]});
    grant(&admin, "robots", &robot, &secrets);

    // A permission of one's own invention, as people use it for privileged values.
    validating(
        &admin,
        "publish",
        &json!({"validations": [{
        "expression": "authorizer.requestResource.check('publish').allowed()",
        "messageExpression": "request.userInfo.username + ' may not publish'"}]}),
    );
    validating(
        &admin,
        "robot",
        &json!({"validations": [{"expression":
        "authorizer.serviceAccount('default', object.data.who).group('').resource('secrets').namespace('default').name('key').check('get').allowed()",
        "message": "the account may not read the key"}]}),
    );
    validating(
        &admin,
        "paths",
        &json!({"validations": [{"expression":
        "authorizer.path('/metrics').check('get').allowed() || authorizer.path('/readyz').check('get').errored()"}]}),
    );
    // Members of system:masters are not asked.
    validating(
        &admin,
        "conditions",
        &json!({
        "matchConditions": [{"name": "not-a-deleter", "expression":
            "!authorizer.group('').resource('configmaps').namespace('default').check('delete').allowed()"}],
        "validations": [{"expression": "false", "message": "only for deleters"}]}),
    );
    validating(
        &admin,
        "costly",
        &json!({"validations": [{"expression":
        "['a', 'b', 'c'].all(v, !authorizer.requestResource.check(v).allowed())"}]}),
    );

    let create = |who: &Caller, policy: &str, data: Value| {
        let body = json!({"metadata": {"generateName": "x-", "labels": {"policy": policy}}, "data": data});
        let (code, answer) = who.send("POST", MAPS, Some(&body));
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let [ann, bob] = ["ann", "bob"].map(|name| Caller::certified(&server, name, &[]));
    eventually("the policies are at work", Duration::from_secs(20), || {
        create(&bob, "costly", json!({})).0 == 422
    });
    assert_eq!(create(&ann, "publish", json!({})).0, 201);
    let (code, said) = create(&bob, "publish", json!({}));
    assert!(code == 422 && said.contains("bob may not publish"), "{code} {said}");
    assert_eq!(create(&bob, "robot", json!({"who": "robot"})).0, 201);
    let (code, said) = create(&ann, "robot", json!({"who": "other"}));
    assert!(code == 422 && said.contains("the account may not read the key"), "{code} {said}");
    let (code, said) = create(&ann, "robot", json!({"who": "no@body"}));
    assert!(code == 422 && said.contains("Invalid service account name"), "{code} {said}");
    assert_eq!((create(&admin, "paths", json!({})).0, create(&bob, "paths", json!({})).0), (201, 422));
    assert_eq!(create(&admin, "conditions", json!({})).0, 201);
    let (code, said) = create(&bob, "conditions", json!({}));
    assert!(code == 422 && said.contains("only for deleters"), "{code} {said}");
    let (_, said) = create(&ann, "costly", json!({}));
    assert!(
        said.contains("operation cancelled: actual cost limit exceeded"),
        "two checks are allowed: {said}"
    );
}

#[test]
fn mutations_and_webhooks_ask_too() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let expression = "Object{metadata: Object.metadata{annotations: {'may-delete': \
        string(authorizer.requestResource.check('delete').allowed())}}}";
    let policy = json!({"metadata": {"name": "mark"}, "spec": {"reinvocationPolicy": "Never",
        "matchConstraints": constraints("mark"),
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]}});
    admin.create(&format!("{REGISTRATION}/mutatingadmissionpolicies"), &policy);
    let binding = json!({"metadata": {"name": "mark"}, "spec": {"policyName": "mark"}});
    admin.create(&format!("{REGISTRATION}/mutatingadmissionpolicybindings"), &binding);
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"});
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]});
    grant(&admin, "writers", &user, &rule);
    let ann = Caller::certified(&server, "ann", &[]);
    let create = |who: &Caller, label: &str| {
        let body = json!({"metadata": {"generateName": "x-", "labels": {"policy": label}}});
        who.send("POST", MAPS, Some(&body))
    };
    let marked = |who: &Caller| create(who, "mark").1["metadata"]["annotations"]["may-delete"].clone();
    eventually("the policy is at work", Duration::from_secs(20), || marked(&admin) == "true");
    assert_eq!(marked(&ann), "false");

    // Nobody answers for this webhook: a request that its conditions keep out is the only one that passes.
    let webhook = json!({"metadata": {"name": "down"}, "webhooks": [{"name": "down.example.com",
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "objectSelector": {"matchLabels": {"policy": "hook"}},
        "matchConditions": [{"name": "c", "expression": "!authorizer.requestResource.check('delete').allowed()"}],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}]});
    admin.create(&format!("{REGISTRATION}/validatingwebhookconfigurations"), &webhook);
    eventually("the webhook is at work", Duration::from_secs(20), || create(&ann, "hook").0 == 500);
    assert_eq!(create(&admin, "hook").0, 201);
}

#[test]
fn messages_have_no_authorizer() {
    let server = Server::with(&["--api-only"]);
    let body = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": constraints("p"), "validations": [
        {"expression": "true", "messageExpression": "string(authorizer.path('/').check('get').allowed())"}]}});
    let path = format!("{REGISTRATION}/validatingadmissionpolicies");
    let (code, answer) = Caller::admin(&server).send("POST", &path, Some(&body));
    let said = answer["message"].as_str().unwrap_or_default();
    assert!(code == 422 && said.contains("undeclared reference to 'authorizer'"), "{code} {answer}");
}
