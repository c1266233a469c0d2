//! Every admission plugin that is on by default: what it changes or refuses, and that nobody else does when it is turned off.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::https::{Asked, Https};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SOON: Duration = Duration::from_secs(20);

/// A server, with or without the plugin that is tested.
struct World {
    server: Server,
    admin: Caller,
}

impl World {
    fn start(flags: &[&str]) -> Self {
        let flags: Vec<&str> = ["--api-only"].iter().chain(flags).copied().collect();
        let server = Server::with(&flags);
        let admin = Caller::admin(&server);
        // A controller makes it otherwise.
        let account = json!({"metadata": {"name": "default"}});
        _ = admin.send("POST", "/api/v1/namespaces/default/serviceaccounts", Some(&account));
        Self { server, admin }
    }

    /// A pod that was made; its spec.
    fn pod(&self, spec: Value) -> Value {
        self.admin.create(PODS, &pod(spec))["spec"].clone()
    }

    /// The code and the message of a request of the administrator's.
    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        said(self.admin.send(method, path, Some(body)))
    }

    /// Somebody with the rights of a rule.
    fn user(&self, name: &str, rules: Value) -> Caller {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.admin.create(&format!("{RBAC}/clusterroles"), &role);
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
        let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]});
        self.admin.create(&format!("{RBAC}/clusterrolebindings"), &binding);
        Caller::certified(&self.server, name, &[])
    }
}

fn said((code, answer): (u16, Value)) -> (u16, String) {
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

fn pod(spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"generateName": "p-"}, "spec": whole})
}

fn claim(size: &str) -> Value {
    json!({"metadata": {"generateName": "c-"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
}

/// Runs a check with the default plugins, and without the plugin.
fn with_and_without(plugin: &str, check: impl Fn(&World, bool)) {
    check(&World::start(&[]), true);
    check(&World::start(&["--disable-admission-plugins", plugin]), false);
}

#[track_caller]
fn refused((code, message): (u16, String), expected: u16, words: &str) {
    assert!(code == expected && message.contains(words), "{code} {message}");
}

#[test]
fn namespace_lifecycle() {
    with_and_without("NamespaceLifecycle", |world, on| {
        let map = json!({"metadata": {"name": "m"}});
        let nowhere = world.send("POST", "/api/v1/namespaces/nowhere/configmaps", &map);
        let deleted = said(world.admin.send("DELETE", "/api/v1/namespaces/kube-public", None));
        if on {
            refused(nowhere, 404, "namespaces \"nowhere\" not found");
            refused(deleted, 403, "this namespace may not be deleted");
        } else {
            assert_eq!((nowhere.0, deleted.0), (201, 200));
        }
    });
}

#[test]
fn limit_ranger() {
    with_and_without("LimitRanger", |world, on| {
        let limits = json!([{"type": "Container", "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]);
        let range = json!({"metadata": {"name": "r"}, "spec": {"limits": limits}});
        world.admin.create("/api/v1/namespaces/default/limitranges", &range);
        let requested = || world.pod(json!({}))["containers"][0]["resources"]["requests"]["cpu"].clone();
        if on {
            eventually("requests are set", SOON, || requested() == "100m");
        } else {
            assert_eq!(requested(), Value::Null);
        }
        let resources = json!({"limits": {"cpu": "2"}});
        let large = pod(json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}));
        let large = world.send("POST", PODS, &large);
        if on {
            refused(large, 403, "maximum cpu usage per Container is 1, but limit is 2");
        } else {
            assert_eq!(large.0, 201, "{}", large.1);
        }
    });
}

#[test]
fn service_account() {
    with_and_without("ServiceAccount", |world, on| {
        let spec = world.pod(json!({}));
        let mount = &spec["containers"][0]["volumeMounts"][0]["mountPath"];
        if on {
            assert_eq!(spec["serviceAccountName"], "default");
            assert_eq!(mount, "/var/run/secrets/kubernetes.io/serviceaccount");
            let other = world.send("POST", PODS, &pod(json!({"serviceAccountName": "nobody"})));
            refused(other, 403, "serviceaccount \"nobody\" not found");
        } else {
            assert_eq!((&spec["serviceAccountName"], mount), (&Value::Null, &Value::Null));
        }
    });
}

#[test]
fn node_restriction() {
    with_and_without("NodeRestriction", |world, on| {
        let node = Caller::certified(&world.server, "system:node:n1", &["system:nodes"]);
        let create =
            |name: &str| said(node.send("POST", "/api/v1/nodes", Some(&json!({"metadata": {"name": name}}))));
        assert_eq!(create("n1").0, 201);
        if on {
            refused(create("n2"), 403, "node \"n1\" is not allowed to modify node \"n2\"");
        } else {
            assert_eq!(create("n2").0, 201);
        }
    });
}

#[test]
fn taint_nodes_by_condition() {
    with_and_without("TaintNodesByCondition", |world, on| {
        let node = world.admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n1"}}));
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        assert_eq!(node["spec"]["taints"], if on { json!([taint]) } else { Value::Null });
    });
}

#[test]
fn pod_security() {
    with_and_without("PodSecurity", |world, on| {
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
        assert_eq!(world.send("PATCH", "/api/v1/namespaces/default", &labels).0, 200);
        let privileged = || world.send("POST", PODS, &pod(json!({"hostNetwork": true})));
        if on {
            eventually("the label counts", SOON, || privileged().0 == 403);
            refused(privileged(), 403, "violates PodSecurity \"baseline:latest\": host namespaces");
        } else {
            assert_eq!(privileged().0, 201);
        }
    });
}

#[test]
fn priority() {
    with_and_without("Priority", |world, on| {
        let spec = world.pod(json!({"priorityClassName": "system-node-critical"}));
        let expected = if on { json!(2_000_001_000) } else { Value::Null };
        assert_eq!(spec["priority"], expected);
        let unknown = world.send("POST", PODS, &pod(json!({"priorityClassName": "none"})));
        if on {
            refused(unknown, 403, "no PriorityClass with name none was found");
        } else {
            assert_eq!(unknown.0, 201, "{}", unknown.1);
        }
    });
}

#[test]
fn default_toleration_seconds() {
    with_and_without("DefaultTolerationSeconds", |world, on| {
        let spec = world.pod(json!({}));
        let all = spec["tolerations"].as_array().into_iter().flatten();
        let seconds: Vec<Value> = all.map(|toleration| toleration["tolerationSeconds"].clone()).collect();
        let expected = if on { vec![json!(300); 2] } else { Vec::new() };
        assert_eq!(seconds, expected);
    });
}

#[test]
fn default_storage_class() {
    with_and_without("DefaultStorageClass", |world, on| {
        let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let class = json!({"metadata": {"name": "a-class", "annotations": default}, "provisioner": "x.io/y"});
        world.admin.create("/apis/storage.k8s.io/v1/storageclasses", &class);
        let class = || world.admin.create(CLAIMS, &claim("1Gi"))["spec"]["storageClassName"].clone();
        if on {
            eventually("the class is the default", SOON, || class() == "a-class");
        } else {
            assert_eq!(class(), Value::Null);
        }
        let mut none = claim("1Gi");
        none["spec"]["storageClassName"] = json!("");
        assert_eq!(world.admin.create(CLAIMS, &none)["spec"]["storageClassName"], "", "no class is a choice");
    });
}

#[test]
fn storage_object_in_use_protection() {
    with_and_without("StorageObjectInUseProtection", |world, on| {
        let claim = world.admin.create(CLAIMS, &claim("1Gi"));
        let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}});
        let volume = world.admin.create("/api/v1/persistentvolumes", &volume);
        let finalizers =
            |name: &str| if on { json!([format!("kubernetes.io/{name}-protection")]) } else { Value::Null };
        assert_eq!(claim["metadata"]["finalizers"], finalizers("pvc"));
        assert_eq!(volume["metadata"]["finalizers"], finalizers("pv"));
    });
}

#[test]
fn persistent_volume_claim_resize() {
    with_and_without("PersistentVolumeClaimResize", |world, on| {
        let class = json!({"metadata": {"name": "fixed"}, "provisioner": "x.io/y"});
        world.admin.create("/apis/storage.k8s.io/v1/storageclasses", &class);
        let mut claim = claim("1Gi");
        claim["metadata"] = json!({"name": "c"});
        claim["spec"]["storageClassName"] = json!("fixed");
        claim["spec"]["volumeName"] = json!("v");
        world.admin.create(CLAIMS, &claim);
        let grow = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        let path = format!("{CLAIMS}/c");
        let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        assert_eq!(world.send("PATCH", &format!("{path}/status"), &status).0, 200);
        let grown = world.send("PATCH", &path, &grow);
        if on {
            refused(grown, 403, "only dynamically provisioned pvc can be resized");
        } else {
            assert_eq!(grown.0, 200, "{}", grown.1);
        }
    });
}

#[test]
fn runtime_class() {
    with_and_without("RuntimeClass", |world, on| {
        let class =
            json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "250m"}}});
        world.admin.create("/apis/node.k8s.io/v1/runtimeclasses", &class);
        let spec = world.pod(json!({"runtimeClassName": "vm"}));
        assert_eq!(spec["overhead"]["cpu"], if on { json!("250m") } else { Value::Null });
        let unknown = world.send("POST", PODS, &pod(json!({"runtimeClassName": "none"})));
        if on {
            refused(unknown, 403, "pod rejected: RuntimeClass \"none\" not found");
        } else {
            assert_eq!(unknown.0, 201, "{}", unknown.1);
        }
    });
}

/// A request for a certificate, as it is sent.
fn certificate_request(name: &str, subject: &str, signer: &str) -> Value {
    let args = ["req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    let output = Command::new("openssl").args(args).args(["-keyout", "/dev/null", "-subj", subject]).output();
    let output = output.expect("openssl is installed: scripts/deps test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(output.stdout), "signerName": signer,
        "usages": ["client auth"]}})
}

/// Somebody who may change a subresource of requests and nothing about signers.
fn changes_request(world: &World, subresource: &str, kind: &str) -> (u16, String) {
    world.admin.create(REQUESTS, &certificate_request("r", "/CN=x", "example.com/signer"));
    let rule = json!([{"apiGroups": ["certificates.k8s.io"], "verbs": ["get", "patch", "update"],
        "resources": [format!("certificatesigningrequests/{subresource}")]}]);
    let user = world.user("changer", rule);
    let condition = json!({"type": kind, "status": "True", "reason": "Test", "message": "a test"});
    let body = json!({"status": {"conditions": [condition]}});
    said(user.send("PATCH", &format!("{REQUESTS}/r/{subresource}"), Some(&body)))
}

#[test]
fn certificate_approval() {
    with_and_without("CertificateApproval", |world, on| {
        let changed = changes_request(world, "approval", "Approved");
        if on {
            let words = "user not permitted to approve requests with signerName \"example.com/signer\"";
            refused(changed, 403, words);
        } else {
            assert_eq!(changed.0, 200, "{}", changed.1);
        }
    });
}

#[test]
fn certificate_signing() {
    with_and_without("CertificateSigning", |world, on| {
        let changed = changes_request(world, "status", "Failed");
        if on {
            refused(
                changed,
                403,
                "user not permitted to sign requests with signerName \"example.com/signer\"",
            );
        } else {
            assert_eq!(changed.0, 200, "{}", changed.1);
        }
    });
}

#[test]
fn certificate_subject_restriction() {
    with_and_without("CertificateSubjectRestriction", |world, on| {
        let signer = "kubernetes.io/kube-apiserver-client";
        let create =
            |name, subject| world.send("POST", REQUESTS, &certificate_request(name, subject, signer));
        assert_eq!(create("plain", "/O=dev/CN=x").0, 201);
        let masters = create("masters", "/O=system:masters/CN=x");
        if on {
            refused(masters, 403, "with system:masters group is not allowed");
        } else {
            assert_eq!(masters.0, 201, "{}", masters.1);
        }
    });
}

#[test]
fn default_ingress_class() {
    with_and_without("DefaultIngressClass", |world, on| {
        let default = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
        let class =
            json!({"metadata": {"name": "front", "annotations": default}, "spec": {"controller": "x.io/y"}});
        world.admin.create("/apis/networking.k8s.io/v1/ingressclasses", &class);
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let ingress = json!({"metadata": {"generateName": "i-"}, "spec": {"defaultBackend": backend}});
        let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
        let class = || world.admin.create(path, &ingress)["spec"]["ingressClassName"].clone();
        if on {
            eventually("the class is the default", SOON, || class() == "front");
        } else {
            assert_eq!(class(), Value::Null);
        }
    });
}

#[test]
fn pod_topology_labels() {
    with_and_without("PodTopologyLabels", |world, on| {
        let (zone, region) = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region");
        let labels = json!({zone: "z", region: "r", "other": "o"});
        world.admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n", "labels": labels}}));
        let created = world.admin.create(PODS, &pod(json!({"nodeName": "n"})));
        let waits = world.admin.create(PODS, &pod(json!({})));
        assert_eq!(waits["metadata"]["labels"], Value::Null);
        let name = waits["metadata"]["name"].as_str().unwrap_or_default();
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        world.admin.create(&format!("{PODS}/{name}/binding"), &binding);
        let bound = world.admin.get(&format!("{PODS}/{name}")).1;
        let wanted = if on { json!({zone: "z", region: "r"}) } else { Value::Null };
        for pod in [created, bound] {
            assert_eq!(pod["metadata"]["labels"], wanted);
        }
    });
}

#[test]
fn node_declared_feature_validator() {
    with_and_without("NodeDeclaredFeatureValidator", |world, on| {
        let features = ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"];
        world.admin.create(
            "/api/v1/nodes",
            &json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}),
        );
        let sizes = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let spec = json!({"nodeName": "n", "resources": sizes("1"),
            "initContainers": [{"name": "i", "image": "i", "resources": sizes("100m")}]});
        let made = world.admin.create(PODS, &pod(spec));
        let path = format!("{PODS}/{}/resize", made["metadata"]["name"].as_str().unwrap_or_default());
        let whole = json!({"spec": {"resources": sizes("2")}});
        let both = json!({"spec": {"resources": sizes("3"), "initContainers": [{"name": "i", "resources": sizes("200m")}]}});
        let [one, all] = [&features[..1], &features[..]].map(|features| features.join(", "));
        for (asked, missing) in [(&whole, one), (&both, all)] {
            let said = world.send("PATCH", &path, asked);
            if on {
                let words =
                    format!("pod update requires features {missing} which are not available on node \"n\"");
                refused(said, 403, &words);
            } else {
                assert_eq!(said.0, 200, "{}", said.1);
            }
        }
        let declares = json!({"status": {"declaredFeatures": features}});
        assert_eq!(world.send("PATCH", "/api/v1/nodes/n/status", &declares).0, 200);
        eventually("the node has them", SOON, || world.send("PATCH", &path, &both).0 == 200);
        let now = world.admin.get(path.trim_end_matches("/resize")).1["spec"].clone();
        assert_eq!(
            (&now["resources"], &now["initContainers"][0]["resources"]),
            (&sizes("3"), &sizes("200m"))
        );
    });
}

#[test]
fn pod_resize_validator() {
    with_and_without("PodResizeValidator", |world, on| {
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2"}}});
        world.admin.create("/api/v1/nodes", &node);
        let container =
            |cpu: &str| json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]);
        let made = world.admin.create(PODS, &pod(json!({"nodeName": "n", "containers": container("1")})));
        let path = format!("{PODS}/{}/resize", made["metadata"]["name"].as_str().unwrap_or_default());
        let sized = |cpu: &str| world.send("PATCH", &path, &json!({"spec": {"containers": container(cpu)}}));
        assert_eq!(sized("2").0, 200);
        let more = sized("3");
        if on {
            let words =
                "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000";
            refused(more, 403, words);
        } else {
            assert_eq!(more.0, 200, "{}", more.1);
        }
    });
}

fn about_maps() -> Value {
    json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}])
}

fn new_map() -> Value {
    json!({"metadata": {"generateName": "m-"}, "data": {"a": "1"}})
}

#[test]
fn mutating_admission_policy() {
    with_and_without("MutatingAdmissionPolicy", |world, on| {
        let patch = json!({"expression": "Object{data: {'by': 'policy'}}"});
        let spec = json!({"matchConstraints": {"resourceRules": about_maps()}, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": patch}]});
        let path = |kind: &str| format!("{REGISTRATION}/{kind}");
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        world.admin.create(&path("mutatingadmissionpolicies"), &policy);
        let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
        world.admin.create(&path("mutatingadmissionpolicybindings"), &binding);
        let by = || world.admin.create(MAPS, &new_map())["data"]["by"].clone();
        if on {
            eventually("the policy is at work", SOON, || by() == "policy");
        } else {
            assert_eq!(by(), Value::Null);
        }
    });
}

#[test]
fn validating_admission_policy() {
    with_and_without("ValidatingAdmissionPolicy", |world, on| {
        let spec = json!({"matchConstraints": {"resourceRules": about_maps()},
            "validations": [{"expression": "false", "message": "no maps"}]});
        let path = |kind: &str| format!("{REGISTRATION}/{kind}");
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        world.admin.create(&path("validatingadmissionpolicies"), &policy);
        let bound = json!({"policyName": "p", "validationActions": ["Deny"]});
        let binding = json!({"metadata": {"name": "p"}, "spec": bound});
        world.admin.create(&path("validatingadmissionpolicybindings"), &binding);
        let create = || world.send("POST", MAPS, &new_map());
        if on {
            eventually("the policy is at work", SOON, || create().0 == 422);
            refused(create(), 422, "denied request: no maps");
        } else {
            assert_eq!(create().0, 201);
        }
    });
}

/// A webhook of a kind for new ConfigMaps.
fn webhook(world: &World, https: &Https, kind: &str) {
    let client = json!({"url": https.url("/"), "caBundle": STANDARD.encode(https.authority())});
    let hook = json!({"name": "w.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": client, "rules": about_maps()});
    let path = format!("{REGISTRATION}/{kind}");
    world.admin.create(&path, &json!({"metadata": {"name": "w"}, "webhooks": [hook]}));
}

fn review(asked: &Asked, more: Value) -> (u16, Value) {
    let mut response = json!({"uid": asked.body["request"]["uid"], "allowed": true});
    response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

#[test]
fn mutating_admission_webhook() {
    let patch = STANDARD.encode(r#"[{"op": "add", "path": "/data/by", "value": "webhook"}]"#);
    let answer = json!({"patchType": "JSONPatch", "patch": patch});
    let https = Https::start(move |asked| review(asked, answer.clone()));
    with_and_without("MutatingAdmissionWebhook", |world, on| {
        webhook(world, &https, "mutatingwebhookconfigurations");
        let by = || world.admin.create(MAPS, &new_map())["data"]["by"].clone();
        if on {
            eventually("the webhook is asked", SOON, || by() == "webhook");
        } else {
            assert_eq!(by(), Value::Null);
        }
    });
}

#[test]
fn validating_admission_webhook() {
    let answer = json!({"allowed": false, "status": {"message": "not today"}});
    let https = Https::start(move |asked| review(asked, answer.clone()));
    with_and_without("ValidatingAdmissionWebhook", |world, on| {
        webhook(world, &https, "validatingwebhookconfigurations");
        let create = || world.send("POST", MAPS, &new_map());
        if on {
            eventually("the webhook is asked", SOON, || create().0 >= 400);
            let (_, message) = create();
            assert!(
                message.contains("admission webhook \"w.example.com\" denied the request: not today"),
                "{message}"
            );
        } else {
            assert_eq!(create().0, 201);
        }
    });
}

#[test]
fn resource_quota() {
    with_and_without("ResourceQuota", |world, on| {
        let hard = json!({"count/secrets": "0"});
        let quotas = "/api/v1/namespaces/default/resourcequotas";
        world.admin.create(quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
        // The quota controller counts otherwise.
        let status = json!({"status": {"hard": hard, "used": hard}});
        assert_eq!(world.send("PATCH", &format!("{quotas}/q/status"), &status).0, 200);
        let secret = json!({"metadata": {"generateName": "s-"}});
        let create = || world.send("POST", "/api/v1/namespaces/default/secrets", &secret);
        if on {
            eventually("the quota counts", SOON, || create().0 == 403);
            refused(create(), 403, "exceeded quota: q, requested: count/secrets=1");
        } else {
            assert_eq!(create().0, 201);
        }
    });
}

#[test]
fn role_escalation() {
    with_and_without("RoleEscalation", |world, _| {
        let rules = json!([
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let user = world.user("author", rules);
        let role = |name: &str, resource: &str| {
            let rule = json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
            let role = json!({"metadata": {"name": name}, "rules": [rule]});
            said(user.send("POST", &format!("{RBAC}/clusterroles"), Some(&role)))
        };
        assert_eq!(role("held", "pods").0, 201);
        // Also where somebody tried to turn it off.
        refused(role("more", "secrets"), 403, "is attempting to grant RBAC permissions not currently held");
    });
}

#[test]
fn api_server_lease() {
    with_and_without("APIServerLease", |world, _| {
        let rule =
            json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}]);
        let user = world.user("elector", rule);
        let lease = |name: &str, labels: Value| {
            let lease =
                json!({"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": "x"}});
            let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
            said(user.send("POST", path, Some(&lease)))
        };
        assert_eq!(lease("own", json!({})).0, 201);
        let server = lease("server", json!({"apiserver.kubernetes.io/identity": "kube-apiserver"}));
        refused(server, 403, "belong to API servers");
    });
}
