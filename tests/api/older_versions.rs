//! Older API versions that `--runtime-config` switches on: the same objects under another `apiVersion`.

use coracle_tests::caller::Caller;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};

#[test]
fn older_versions_show_the_same_objects() {
    let versions = "api/beta=true,apps/v1beta1=true,apps/v1beta2=true,policy/v1beta1=true,batch/v1beta1=true";
    let server = Server::with(&["--api-only", "--runtime-config", versions]);
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    let listed = kubectl.run("api-versions");
    for version in ["networking.k8s.io/v1beta1", "resource.k8s.io/v1beta2", "apps/v1beta2", "policy/v1beta1"]
    {
        assert!(listed.lines().any(|line| line == version), "{version}: {listed}");
    }
    assert!(!listed.contains("v1alpha1"), "{listed}");

    // A chart of that time: no selector.
    let old = "{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, \
        template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}";
    kubectl.run_with("apply -f -", old);
    let seen = |version: &str| -> Value {
        let path = format!("/apis/apps/{version}/namespaces/default/deployments/web");
        let (code, object) = admin.get(&path);
        assert_eq!((code, &object["apiVersion"]), (200, &json!(format!("apps/{version}"))), "{object}");
        object
    };
    let (v1, beta) = (seen("v1"), seen("v1beta2"));
    assert_eq!(v1["spec"]["selector"]["matchLabels"]["app"], "web");
    assert_eq!((&v1["spec"], &v1["metadata"]["uid"]), (&beta["spec"], &beta["metadata"]["uid"]));
    // Applied again with what kubectl noted, changed through another version, listed by default as v1.
    kubectl.run_with("apply -f -", &old.replace("replicas: 2", "replicas: 3"));
    kubectl.run("scale deployment.v1beta2.apps/web --replicas=4");
    assert_eq!(seen("v1")["spec"]["replicas"], 4);
    let shown = kubectl.run("get deployment web -o jsonpath={.apiVersion}");
    assert_eq!(shown, "apps/v1");
    let list = admin.get("/apis/apps/v1beta2/deployments").1;
    assert_eq!((&list["apiVersion"], list["items"].as_array().unwrap().len()), (&json!("apps/v1beta2"), 1));
    let explained = kubectl.run("explain deployment.spec.replicas --api-version=apps/v1beta2");
    assert!(explained.contains("v1beta2") && explained.contains("replicas"), "{explained}");

    // Unknown fields are found by the type of v1.
    let misspelt = old.replace("name: web}", "name: other}").replace("replicas:", "replica:");
    let refused = kubectl.try_with("create --validate=strict -f -", &misspelt);
    assert!(!refused.ok && refused.err.contains("unknown field \"spec.replica\""), "{refused:?}");
    let gone = kubectl.try_with("delete deployment.v1beta1.apps/web", "");
    assert!(gone.ok, "{gone:?}");
    assert_eq!(admin.get("/apis/apps/v1/namespaces/default/deployments/web").0, 404);

    // An empty selector selects no pod there, and all of them in v1.
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {}}});
    admin.create("/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets", &budget);
    let of = |version: &str| {
        admin.get(&format!("/apis/policy/{version}/namespaces/default/poddisruptionbudgets/b")).1["spec"]
            ["selector"]
            .clone()
    };
    assert_eq!(of("v1beta1"), json!({}));
    assert_eq!(of("v1")["matchExpressions"][0]["operator"], "Exists");
    let body = json!({"apiVersion": "authentication.k8s.io/v1beta1", "kind": "SelfSubjectReview"});
    let review = admin.create("/apis/authentication.k8s.io/v1beta1/selfsubjectreviews", &body);
    assert_eq!(review["status"]["userInfo"]["username"], "kubernetes-admin");
}

#[test]
fn extensions_are_workloads_and_ingresses_of_other_groups() {
    let server = Server::with(&["--api-only", "--runtime-config", "extensions/v1beta1=true"]);
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    let template = "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}";
    let workload = |kind: &str| {
        format!(
            "{{apiVersion: extensions/v1beta1, kind: {kind}, metadata: {{name: web}}, spec: {{template: {template}}}}}"
        )
    };
    for kind in ["Deployment", "ReplicaSet", "DaemonSet"] {
        kubectl.run_with("apply -f -", &workload(kind));
        let path = format!("/namespaces/default/{}s/web", kind.to_lowercase());
        let (old, new) = (
            admin.get(&format!("/apis/extensions/v1beta1{path}")).1,
            admin.get(&format!("/apis/apps/v1{path}")).1,
        );
        let versions = (&old["apiVersion"], &new["apiVersion"]);
        assert_eq!(versions, (&json!("extensions/v1beta1"), &json!("apps/v1")), "{kind}");
        assert_eq!((&old["spec"], &old["metadata"]["uid"]), (&new["spec"], &new["metadata"]["uid"]));
        assert_eq!(new["spec"]["selector"]["matchLabels"]["app"], "web", "{kind}");
    }
    kubectl.run("scale deployment.v1beta1.extensions/web --replicas=3");
    assert_eq!(kubectl.run("get deployment web -o jsonpath={.apiVersion},{.spec.replicas}"), "apps/v1,3");
    let all = kubectl.run("get all -o name");
    assert_eq!(all.matches("deployment").count(), 1, "{all}");

    // Backends are written another way.
    let ingress = "{apiVersion: extensions/v1beta1, kind: Ingress, metadata: {name: web}, spec: {backend: \
        {serviceName: other, servicePort: http}, rules: [{host: web.example.com, http: {paths: [{path: /a, backend: \
        {serviceName: web, servicePort: 80}}]}}]}}";
    kubectl.run_with("create -f -", ingress);
    let path = "/namespaces/default/ingresses/web";
    let stored = admin.get(&format!("/apis/networking.k8s.io/v1{path}")).1;
    let paths = &stored["spec"]["rules"][0]["http"]["paths"];
    let service = json!({"service": {"name": "web", "port": {"number": 80}}});
    assert_eq!(*paths, json!([{"path": "/a", "pathType": "ImplementationSpecific", "backend": service}]));
    let port = &stored["spec"]["defaultBackend"]["service"]["port"];
    assert_eq!(*port, json!({"name": "http"}), "{stored}");
    let backend = json!({"spec": {"backend": {"serviceName": "other", "servicePort": 8080}}});
    assert_eq!(admin.send("PATCH", &format!("/apis/extensions/v1beta1{path}"), Some(&backend)).0, 200);
    let stored = admin.get(&format!("/apis/networking.k8s.io/v1{path}")).1;
    assert_eq!(stored["spec"]["defaultBackend"]["service"]["port"], json!({"number": 8080}), "{stored}");
    assert!(kubectl.run("get ingress web").contains("web.example.com"));
    // A quota of the other group counts them.
    let name = "count/ingresses.networking.k8s.io";
    kubectl.run(&format!("create quota one --hard={name}=1"));
    let counted = json!({"status": {"hard": {name: "1"}, "used": {name: "1"}}});
    let status = "/api/v1/namespaces/default/resourcequotas/one/status";
    assert_eq!(admin.send("PATCH", status, Some(&counted)).0, 200);
    let second = ingress.replace("name: web}, spec", "name: second}, spec");
    let refused = kubectl.try_with("create -f -", &second);
    assert!(!refused.ok && refused.err.contains("exceeded quota"), "{refused:?}");
}

#[test]
fn they_are_off_by_default() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    for path in [
        "/apis/apps/v1beta2",
        "/apis/networking.k8s.io/v1beta1/ipaddresses",
        "/apis/policy/v1beta1",
        "/apis/extensions",
    ] {
        assert_eq!(admin.get(path).0, 404, "{path}");
    }
    let old = json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "web"}});
    assert_eq!(admin.send("POST", "/apis/apps/v1/namespaces/default/deployments", Some(&old)).0, 400);
}
