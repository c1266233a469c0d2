//! Identities, verbs and resources, and whether upstream's rules allow them.

use crate::caller::{Caller, account_token, token};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Identity, verbs, `namespace/resource[.group][/name[/sub]]` or a path (`-` for no namespace), whether it is allowed.
const PAIRS: &str = "
admin       get,list,create,delete       default/secrets/s-a                                  yes
admin       get                          /metrics                                             yes
admin       list                         -/nodes                                              yes
# A node: what its pods use, and what is its own.
node-a      get                          default/secrets/s-a                                  yes
node-a      get                          default/configmaps/c-a                               yes
node-a      get                          default/serviceaccounts/robot                        yes
node-a      get                          default/persistentvolumeclaims/data-a                yes
node-a      get                          default/pods/p-a                                     yes
node-a      get,patch                    -/nodes/node-a                                       yes
node-a      patch                        -/nodes/node-a/status                                yes
node-a      patch                        default/pods/p-a/status                              yes
node-a      create                       default/events                                       yes
node-a      list                         -/services                                           yes
node-a      list                         -/endpointslices.discovery.k8s.io                    yes
node-a      list                         -/runtimeclasses.node.k8s.io                         yes
node-a      list                         -/csidrivers.storage.k8s.io                          yes
node-a      create                       -/certificatesigningrequests.certificates.k8s.io     yes
node-a      create                       -/tokenreviews.authentication.k8s.io                 yes
node-a      create                       -/subjectaccessreviews.authorization.k8s.io          yes
node-a      create                       kube-node-lease/leases.coordination.k8s.io           yes
node-a      get                          kube-node-lease/leases.coordination.k8s.io/node-a    yes
node-a      get                          -/csinodes.storage.k8s.io/node-a                     yes
# Not what belongs to others.
node-a      get                          default/secrets/s-b                                  no
node-a      get                          default/secrets/s-free                               no
node-a      list                         default/secrets                                      no
node-a      list                         -/secrets                                            no
node-a      create,update,patch,delete   default/secrets/s-a                                  no
node-a      get                          default/configmaps/c-free                            no
node-a      get                          other/secrets/s-a                                    no
node-a      get                          default/serviceaccounts/builder                      no
node-a      get                          default/persistentvolumeclaims/data-b                no
node-a      list                         default/persistentvolumeclaims                       no
node-a      list                         -/pods                                               yes
node-a      get                          default/pods/p-b                                     no
node-a      patch                        default/pods/p-b/status                              no
node-a      delete                       default/pods/p-b                                     no
node-a      patch                        default/pods/p-a                                     no
node-a      patch                        -/nodes/node-b                                       no
node-a      patch                        -/nodes/node-b/status                                no
node-a      delete                       -/nodes/node-a                                       no
node-a      get                          kube-node-lease/leases.coordination.k8s.io/node-b    no
node-a      get                          default/leases.coordination.k8s.io/node-a            no
node-a      get                          -/csinodes.storage.k8s.io/node-b                     no
node-a      create                       -/clusterroles.rbac.authorization.k8s.io             no
node-a      create                       default/deployments.apps                             no
node-a      patch                        -/certificatesigningrequests.certificates.k8s.io/x/approval no
node-a      get                          /metrics                                             no
node-a      deletecollection             default/pods                                         no
node-a      create                       default/configmaps                                   no
node-a      list                         -/networkpolicies.networking.k8s.io                  yes
node-a      create                       kube-system/secrets                                  no
node-b      get                          default/secrets/s-b                                  yes
node-b      patch                        default/pods/p-b/status                              yes
node-b      patch                        default/pods/p-a/status                              no
node-b      get                          default/secrets/s-a                                  no
node-b      get                          default/configmaps/c-a                               no
# A joining machine: certificates, and nothing else.
boot        create,list                  -/certificatesigningrequests.certificates.k8s.io     yes
boot        get                          /api                                                 yes
boot        list                         default/pods                                         no
boot        get                          default/secrets/s-a                                  no
boot        list                         kube-system/secrets                                  no
boot        list                         -/nodes                                              no
boot        create                       -/nodes                                              no
boot        patch                        -/certificatesigningrequests.certificates.k8s.io/x/approval no
boot        create                       default/pods                                         no
boot        get                          /metrics                                             no
# Everybody who has a name.
stranger    create                       -/selfsubjectaccessreviews.authorization.k8s.io      yes
stranger    create                       -/selfsubjectrulesreviews.authorization.k8s.io       yes
stranger    create                       -/selfsubjectreviews.authentication.k8s.io           yes
stranger    get                          /api                                                 yes
stranger    get                          /apis/apps/v1                                        yes
stranger    get                          /openapi/v2                                          yes
stranger    get                          /version                                             yes
stranger    get                          /healthz                                             yes
stranger    list                         default/pods                                         no
stranger    get                          default/configmaps/c-a                               no
stranger    list                         -/namespaces                                          no
stranger    create                       default/pods                                         no
stranger    create                       -/tokenreviews.authentication.k8s.io                 no
stranger    create                       -/subjectaccessreviews.authorization.k8s.io          no
stranger    create                       default/serviceaccounts/robot/token                  no
stranger    get                          /metrics                                             no
stranger    get                          /.well-known/openid-configuration                    no
# view, edit and admin in one namespace.
viewer      get,list                     default/pods/p-a                                     yes
viewer      get                          default/pods/p-a/log                                 yes
viewer      list                         default/deployments.apps                             yes
viewer      list                         default/configmaps                                   yes
viewer      list                         default/endpointslices.discovery.k8s.io              yes
viewer      get,list                     default/secrets/s-a                                  no
viewer      create                       default/pods                                         no
viewer      create                       default/pods/p-a/exec                                no
viewer      list                         other/pods                                           no
viewer      list                         -/pods                                               no
viewer      list                         default/roles.rbac.authorization.k8s.io              no
viewer      list                         -/nodes                                              no
editor      create,list,delete           default/pods/p-x                                     yes
editor      get,list,create              default/secrets/s-a                                  yes
editor      create,patch                 default/deployments.apps/x                           yes
editor      create                       default/pods/p-a/eviction                            yes
editor      create                       default/serviceaccounts/robot/token                  yes
editor      create                       default/networkpolicies.networking.k8s.io            yes
editor      update                       default/endpoints/x                                  no
editor      create                       default/endpointslices.discovery.k8s.io              no
editor      create                       default/roles.rbac.authorization.k8s.io              no
editor      create                       default/rolebindings.rbac.authorization.k8s.io       no
editor      create                       default/resourcequotas                               no
editor      list                         other/secrets                                        no
editor      create                       -/namespaces                                         no
boss        create,delete                default/rolebindings.rbac.authorization.k8s.io/x     yes
boss        get,list,create              default/secrets/s-a                                  yes
boss        create                       default/localsubjectaccessreviews.authorization.k8s.io yes
boss        create                       default/resourcequotas                               no
boss        update                       default/endpoints/x                                  no
boss        create                       -/clusterrolebindings.rbac.authorization.k8s.io      no
boss        create                       other/rolebindings.rbac.authorization.k8s.io         no
boss        delete                       -/namespaces/other                                   no
overseer    list                         -/pods                                               yes
overseer    list                         other/configmaps                                     yes
overseer    list                         other/secrets                                        no
overseer    create                       other/pods                                           no
# Service accounts.
robot       get                          /api                                                 yes
robot       create                       -/selfsubjectaccessreviews.authorization.k8s.io      yes
robot       patch                        default/serviceaccounts/robot                        no
robot       list                         -/namespaces                                         no
robot       get                          /.well-known/openid-configuration                    yes
robot       get                          /openid/v1/jwks                                      yes
robot       list                         default/pods                                         no
robot       get                          default/secrets/s-a                                  no
robot       create                       default/rolebindings.rbac.authorization.k8s.io       no
robot       create                       default/serviceaccounts/builder/token                no
builder     create                       default/pods                                         yes
builder     get                          default/configmaps/c-a                               yes
builder     get                          default/configmaps/c-free                            no
builder     list                         default/configmaps                                   no
builder     delete                       default/pods/p-a                                     no
builder     create                       other/pods                                           no
builder     create                       default/pods/p-a/exec                                no
# Components.
monitor     get                          /metrics                                             yes
monitor     get                          /livez                                               yes
monitor     list                         default/pods                                         no
proxy       list                         -/services                                           yes
proxy       list                         -/endpointslices.discovery.k8s.io                    yes
proxy       get                          -/nodes/node-a                                       yes
proxy       list                         -/secrets                                            no
proxy       patch                        -/nodes/node-a/status                                no
scheduler   list                         -/pods                                               yes
scheduler   create                       default/pods/p-a/binding                             yes
scheduler   patch                        default/pods/p-a/status                              yes
scheduler   list                         -/nodes                                              yes
scheduler   delete                       default/pods/p-x                                     yes
scheduler   create                       default/pods                                         no
scheduler   get                          default/secrets/s-a                                  no
scheduler   patch                        -/nodes/node-a                                       no
manager     list                         -/secrets                                            yes
manager     list                         -/pods                                               yes
manager     create                       default/serviceaccounts/robot/token                  yes
manager     create                       default/pods                                         no
manager     delete                       default/pods/p-x                                     no
collector   delete                       default/pods/p-x                                     yes
collector   list                         -/deployments.apps                                   yes
collector   create                       default/pods                                         no
deployer    create,update                default/replicasets.apps/x                           yes
deployer    list                         default/pods                                         yes
deployer    create                       default/pods                                         no
deployer    get                          default/secrets/s-a                                  no
dns         list                         -/services                                           yes
dns         list                         -/secrets                                            no
delegate    create                       -/tokenreviews.authentication.k8s.io                 yes
delegate    create                       -/subjectaccessreviews.authorization.k8s.io          yes
delegate    list                         -/pods                                               no
delegate    get                          default/secrets/s-a                                  no
delegate    create                       -/clusterrolebindings.rbac.authorization.k8s.io      no
robot       create                       -/certificatesigningrequests.certificates.k8s.io     no
robot       create                       -/clusterrolebindings.rbac.authorization.k8s.io      no
robot       patch                        default/roles.rbac.authorization.k8s.io/builder      no
builder     create                       default/rolebindings.rbac.authorization.k8s.io       no
builder     create                       default/secrets                                      no
boot        get                          -/nodes/node-a                                       no
boot        list                         default/configmaps                                   no
boot        create                       default/serviceaccounts/robot/token                  no
# Nobody.
nobody      get                          /healthz                                             yes
nobody      get                          /version                                             yes
nobody      get                          /api                                                 anonymous
nobody      get                          /metrics                                             anonymous
nobody      list                         default/pods                                         anonymous
nobody      get                          default/secrets/s-a                                  anonymous
nobody      create                       -/certificatesigningrequests.certificates.k8s.io     anonymous
nobody      create                       -/selfsubjectreviews.authentication.k8s.io           anonymous
";

/// Namespaces, pods on two nodes, and what they use.
fn furnish(server: &Server, admin: &Caller) {
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    for name in ["node-a", "node-b"] {
        admin.create("/api/v1/nodes", &json!({"metadata": {"name": name}}));
    }
    for name in ["s-a", "s-b", "s-free"] {
        admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": name}}));
    }
    for name in ["c-a", "c-free"] {
        admin.create("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": name}}));
    }
    for name in ["robot", "builder"] {
        admin.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": name}}));
    }
    for (name, node, secret, map) in [("p-a", "node-a", "s-a", Some("c-a")), ("p-b", "node-b", "s-b", None)] {
        let mut volumes = vec![
            json!({"name": "s", "secret": {"secretName": secret}}),
            json!({"name": "d", "persistentVolumeClaim": {"claimName": name.replace('p', "data")}}),
        ];
        volumes.extend(map.map(|map| json!({"name": "c", "configMap": {"name": map}})));
        let claim = json!({"metadata": {"name": name.replace('p', "data")}, "spec":
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
        admin.create("/api/v1/namespaces/default/persistentvolumeclaims", &claim);
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "serviceAccountName": "robot",
            "containers": [{"name": "c", "image": "none"}], "volumes": volumes}});
        admin.create("/api/v1/namespaces/default/pods", &pod);
    }
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let local = format!("{rbac}/namespaces/default/rolebindings");
    let bind = |role: &str, kind: &str, subject: Value| {
        json!({"metadata": {"generateName": "b-"}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})
    };
    let user = |name: &str| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
    for (role, name) in [("view", "viewer"), ("edit", "editor"), ("admin", "boss")] {
        admin.create(&local, &bind(role, "ClusterRole", user(name)));
    }
    let everywhere = format!("{rbac}/clusterrolebindings");
    admin.create(&everywhere, &bind("view", "ClusterRole", user("overseer")));
    admin.create(&everywhere, &bind("system:auth-delegator", "ClusterRole", user("delegate")));
    let role = json!({"metadata": {"name": "builder"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c-a"], "verbs": ["get"]}]});
    admin.create(&format!("{rbac}/namespaces/default/roles"), &role);
    let account = json!({"kind": "ServiceAccount", "namespace": "default", "name": "builder"});
    admin.create(&local, &bind("builder", "Role", account));
    let _ = server;
}

fn identities(server: &Server) -> HashMap<&'static str, Caller> {
    let certified = |user: &str, groups: &[&str]| Caller::certified(server, user, groups);
    let account = |namespace: &str, name: &str| {
        Caller::bearer(server, &account_token(server, namespace, name, json!({})))
    };
    HashMap::from([
        ("admin", Caller::admin(server)),
        ("nobody", Caller::nobody(server)),
        ("node-a", certified("system:node:node-a", &["system:nodes"])),
        ("node-b", certified("system:node:node-b", &["system:nodes"])),
        ("boot", Caller::bearer(server, &token(server, &["--bare"]))),
        ("stranger", certified("stranger", &[])),
        ("viewer", certified("viewer", &[])),
        ("editor", certified("editor", &[])),
        ("boss", certified("boss", &[])),
        ("overseer", certified("overseer", &[])),
        ("delegate", certified("delegate", &[])),
        ("robot", account("default", "robot")),
        ("builder", account("default", "builder")),
        ("monitor", certified("prometheus", &["system:monitoring"])),
        ("proxy", certified("system:kube-proxy", &[])),
        ("scheduler", certified("system:kube-scheduler", &[])),
        ("manager", certified("system:kube-controller-manager", &[])),
        ("collector", account("kube-system", "generic-garbage-collector")),
        ("deployer", account("kube-system", "deployment-controller")),
        ("dns", account("kube-system", "kube-dns")),
    ])
}

/// Method, path and body of a verb on what a line of the table names.
fn request(verb: &str, what: &str) -> (&'static str, String, Option<Value>) {
    if what.starts_with('/') {
        return ("GET", what.to_owned(), None);
    }
    let mut parts = what.split('/');
    let (namespace, resource) = (parts.next().unwrap(), parts.next().unwrap());
    let (name, sub) = (parts.next(), parts.next());
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let mut path = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
    if namespace != "-" {
        path += &format!("/namespaces/{namespace}");
    }
    path += &format!("/{plural}");
    let named = !matches!(verb, "list" | "deletecollection") && (verb != "create" || sub.is_some());
    if let Some(name) = name.filter(|_| named) {
        path += &format!("/{name}");
        path += &sub.map(|sub| format!("/{sub}")).unwrap_or_default();
    }
    match verb {
        "get" | "list" => ("GET", path, None),
        "create" => ("POST", format!("{path}?dryRun=All"), Some(json!({}))),
        "update" => ("PUT", format!("{path}?dryRun=All"), Some(json!({}))),
        "patch" => ("PATCH", format!("{path}?dryRun=All"), Some(json!({}))),
        "delete" | "deletecollection" => ("DELETE", format!("{path}?dryRun=All"), None),
        other => panic!("{other}"),
    }
}

#[test]
fn two_hundred_pairs_are_decided_as_upstream_does() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    furnish(&server, &admin);
    let who = identities(&server);
    let (mut count, mut wrong) = (0, Vec::new());
    for line in PAIRS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, verbs, what, expected] = words[..] else { panic!("{line}") };
        for verb in verbs.split(',') {
            let (method, path, body) = request(verb, what);
            let (code, answer) = who[name].send(method, &path, body.as_ref());
            let got = match code {
                403 => "no",
                401 => "anonymous",
                0 => "nothing",
                _ => "yes",
            };
            count += 1;
            if got != expected {
                wrong.push(format!(
                    "{name} {verb} {what}: {expected} expected, got {code} {}",
                    answer["message"]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} pairs decided as expected");
    assert!(count >= 200, "{count} pairs");
    reviews_agree(&admin);
    refusals_have_words(&who);
    nobody_escalates(&server, &admin, &who);
    audiences_of_drivers_and_roles(&admin, &who["node-a"]);
    one_name_is_not_all(&who);
}

/// Who may list or watch one object sees that one, however the request is written.
fn one_name_is_not_all(who: &HashMap<&'static str, Caller>) {
    let secrets = "namespaces/default/secrets";
    let selected = "fieldSelector=metadata.name%3Ds-a";
    for path in [
        format!("/api/v1/{secrets}?{selected}"),
        format!("/api/v1/{secrets}?{selected}&fieldSelector="),
        format!("/api/v1/{secrets}?{selected}&fieldSelector=metadata.name%3Ds-b"),
        format!("/api/v1/{secrets}?{selected}&watch=true&timeoutSeconds=1&fieldSelector="),
        format!("/api/v1/watch/{secrets}/s-a?timeoutSeconds=1"),
    ] {
        let (code, body) = who["node-a"].get(&path);
        let text = body.to_string();
        assert!(code == 200 && text.contains("s-a"), "{path}: {code} {text}");
        assert!(!text.contains("s-b") && !text.contains("s-free"), "{path}: {text}");
    }
    for path in [
        format!("/api/v1/{secrets}?fieldSelector=&{selected}"),
        format!("/api/v1/{secrets}?fieldSelector=type!%3Dx%5C,metadata.name%3Ds-a"),
        format!("/api/v1/watch/{secrets}/s-b"),
        format!("/api/v1/watch/{secrets}?timeoutSeconds=1"),
    ] {
        assert_eq!(who["node-a"].get(&path).0, 403, "{path}");
    }
}

/// A review says what the chain does.
fn reviews_agree(admin: &Caller) {
    let ask = |spec: Value| {
        let body =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &body)["status"].clone()
    };
    let node = |name: &str, secret: &str| {
        ask(json!({"user": format!("system:node:{name}"), "groups": ["system:nodes"], "resourceAttributes":
            {"verb": "get", "resource": "secrets", "namespace": "default", "name": secret}}))
    };
    assert_eq!(node("node-a", "s-a")["allowed"], true);
    let refused = node("node-a", "s-b");
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["reason"], "no relationship found between node 'node-a' and this object");
    let pods = |selector: Value| {
        ask(json!({"user": "system:node:node-a", "groups": ["system:nodes"], "resourceAttributes":
            {"verb": "list", "resource": "pods", "fieldSelector": selector}}))["allowed"]
            .clone()
    };
    let own = json!({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["node-a"]}]});
    // Network policies are about pods of other nodes, so nodes may list them all (`coracle:node-network`).
    assert_eq!((pods(own), pods(Value::Null)), (json!(true), json!(true)));
}

/// 401 and 403 have upstream's shape and words.
fn refusals_have_words(who: &HashMap<&'static str, Caller>) {
    let (code, body) = who["stranger"].get("/api/v1/namespaces/default/secrets/s-a");
    assert_eq!(code, 403);
    assert_eq!(
        body["message"],
        "secrets \"s-a\" is forbidden: User \"stranger\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!((&body["reason"], &body["details"]["kind"]), (&json!("Forbidden"), &json!("secrets")));
    let (_, body) = who["stranger"].get("/metrics");
    assert_eq!(body["message"], "forbidden: User \"stranger\" cannot get path \"/metrics\"");
    let (code, body) = who["nobody"].get("/api/v1/pods");
    assert_eq!(
        (code, &body["reason"], &body["message"]),
        (401, &json!("Unauthorized"), &json!("Unauthorized"))
    );
    assert_eq!(
        (&body["kind"], &body["status"], &body["code"]),
        (&json!("Status"), &json!("Failure"), &json!(401))
    );
}

/// Nobody hands out what they do not have.
fn nobody_escalates(server: &Server, admin: &Caller, who: &HashMap<&'static str, Caller>) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |name: &str, resources: &[&str], verbs: &[&str]| json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}]});
    let boss = &who["boss"];
    let roles = format!("{rbac}/roles");
    let (code, _) = boss.send("POST", &roles, Some(&role("fine", &["pods"], &["get"])));
    assert_eq!(code, 201, "rights of one's own may be handed out");
    let (code, body) = boss.send("POST", &roles, Some(&role("more", &["resourcequotas"], &["delete"])));
    let sentence = body["message"].as_str().unwrap_or_default();
    assert_eq!(code, 403);
    assert!(sentence.contains("user \"boss\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"resourcequotas\"], Verbs:[\"delete\"]}"), "{sentence}");
    let binding = |role: &str| {
        json!({"metadata": {"generateName": "x-"}, "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}})
    };
    let bindings = format!("{rbac}/rolebindings");
    assert_eq!(boss.send("POST", &bindings, Some(&binding("view"))).0, 201);
    assert_eq!(boss.send("POST", &bindings, Some(&binding("cluster-admin"))).0, 403);
    // The right to bind one role is enough for that one.
    let may_bind = json!({"metadata": {"name": "binder"}, "rules": [{"apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"], "resourceNames": ["cluster-admin"], "verbs": ["bind"]}]});
    admin.create(&roles, &may_bind);
    admin.create(
        &bindings,
        &json!({"metadata": {"name": "binder"}, "subjects": [{"kind": "User",
        "apiGroup": "rbac.authorization.k8s.io", "name": "boss"}], "roleRef":
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "binder"}}),
    );
    assert_eq!(boss.send("POST", &bindings, Some(&binding("cluster-admin"))).0, 201);
    // A node gets tokens of its pods' accounts, bound to them, and no others.
    let node = &who["node-a"];
    let uid = admin.get("/api/v1/namespaces/default/pods/p-a").1["metadata"]["uid"].clone();
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let ask = |bound: Value, audiences: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "audiences": audiences}});
        node.send("POST", path, Some(&body))
    };
    let own = json!({"apiVersion": "v1", "kind": "Pod", "name": "p-a", "uid": uid});
    let (code, body) = ask(own.clone(), json!([]));
    assert_eq!(code, 201, "{body}");
    assert_eq!(ask(Value::Null, json!([])).0, 403, "unbound");
    assert_eq!(ask(own, json!(["vault"])).0, 403, "an audience that no volume of the pod names");
    let other = json!({"apiVersion": "v1", "kind": "Pod", "name": "p-b", "uid": "x"});
    assert_eq!(ask(other, json!([])).0, 403, "another node's pod");
    // And it does not label itself into trust, nor change its taints.
    let patch = |change: Value| node.send("PATCH", "/api/v1/nodes/node-a", Some(&change));
    assert_eq!(patch(json!({"metadata": {"labels": {"example.com/fine": "yes"}}})).0, 200);
    let (code, body) =
        patch(json!({"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}}));
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().contains("is not allowed to modify labels"), "{body}");
    assert_eq!(patch(json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})).0, 403);
    let _ = server;
}

/// A node gets tokens for the audiences that the CSI drivers of its pods' claims name, and for those that a role allows.
fn audiences_of_drivers_and_roles(admin: &Caller, node: &Caller) {
    let core = "/api/v1/namespaces/default";
    for name in ["claimed", "ephemeral", "unused"] {
        let driver = format!("{name}.example");
        let object = json!({"metadata": {"name": driver}, "spec": {"tokenRequests": [{"audience": name}]}});
        admin.create("/apis/storage.k8s.io/v1/csidrivers", &object);
        let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": driver, "volumeHandle": name}}});
        admin.create("/api/v1/persistentvolumes", &volume);
    }
    let claim = |volume: &str| {
        json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume,
            "resources": {"requests": {"storage": "1Mi"}}})
    };
    let object = json!({"metadata": {"name": "tokens"}, "spec": claim("claimed")});
    admin.create(&format!("{core}/persistentvolumeclaims"), &object);
    let template = json!({"volumeClaimTemplate": {"spec": claim("ephemeral")}});
    let pod = json!({"metadata": {"name": "p-tokens"}, "spec": {"nodeName": "node-a", "serviceAccountName": "robot",
        "containers": [{"name": "c", "image": "none"}], "volumes": [{"name": "e", "ephemeral": template},
            {"name": "c", "persistentVolumeClaim": {"claimName": "tokens"}}]}});
    let pod = admin.create(&format!("{core}/pods"), &pod);
    let ask = |audience: &str| {
        let bound =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p-tokens", "uid": pod["metadata"]["uid"]});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "audiences": [audience]}});
        node.send("POST", &format!("{core}/serviceaccounts/robot/token"), Some(&body)).0
    };
    coracle_tests::eventually("the pod has its own claim", std::time::Duration::from_secs(60), || {
        admin.get(&format!("{core}/persistentvolumeclaims/p-tokens-e")).0 == 200
    });
    assert_eq!(["claimed", "ephemeral", "unused"].map(ask), [201, 201, 403]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "audiences"}, "rules": [{"apiGroups": [""], "resources": ["by-role"],
        "resourceNames": ["robot"], "verbs": ["request-serviceaccounts-token-audience"]}]});
    admin.create(&format!("{rbac}/roles"), &role);
    assert_eq!(ask("by-role"), 403);
    let nodes = json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:nodes"});
    let binding = json!({"metadata": {"name": "audiences"}, "subjects": [nodes],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "audiences"}});
    admin.create(&format!("{rbac}/rolebindings"), &binding);
    assert_eq!(["by-role", "unused"].map(ask), [201, 403]);
}
