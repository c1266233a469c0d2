//! Impersonation, the audit log, encryption at rest, CORS, and authorizers other than the usual.

use crate::authenticators::webhook_config;
use crate::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::server::Server;
use serde_json::{Value, json};

const KEYS: [&str; 2] =
    ["MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="];

#[test]
fn impersonation_is_asked_for_and_everything_is_written_down() {
    let files = tempfile::tempdir().unwrap();
    let (log, policy) = (files.path().join("audit.log"), files.path().join("policy"));
    std::fs::write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n  resources: [{resources: [secrets]}]\n- level: RequestResponse\n  resources: [{resources: [configmaps]}]\n- level: Metadata\n",
    )
    .unwrap();
    let server = Server::with(&[
        "--api-only",
        "--audit-log-path",
        &log.display().to_string(),
        "--audit-policy-file",
        &policy.display().to_string(),
        "--cors-allowed-origins",
        "^https://ui[.]example$",
    ]);
    let (admin, ann) = (Caller::admin(&server), Caller::certified(&server, "ann", &[]));
    let as_bob = |caller: &Caller| caller.header("Impersonate-User: bob").header("Impersonate-Group: dev");
    let (name, groups) = as_bob(&admin).whoami().unwrap();
    assert_eq!((name.as_str(), groups), ("bob", vec!["dev".to_owned(), "system:authenticated".to_owned()]));
    assert_eq!(as_bob(&ann).whoami(), Err(403), "without the right");
    assert_eq!(admin.header("Impersonate-Group: dev").whoami(), Err(400), "a group of nobody");
    let (code, body) = ann.header("Impersonate-User: system:admin").get("/api/v1/pods");
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().contains("cannot impersonate resource \"users\""), "{body}");
    // Who acts as somebody has their rights and no more.
    assert_eq!(as_bob(&admin).get("/api/v1/namespaces/default/secrets").0, 403);

    let secret = json!({"metadata": {"name": "s"}, "stringData": {"key": "hush-hush"}});
    admin.create("/api/v1/namespaces/default/secrets", &secret);
    let map = json!({"metadata": {"name": "m"}, "data": {"key": "well-known"}});
    admin.create("/api/v1/namespaces/default/configmaps", &map);
    let mut events: Vec<Value> = Vec::new();
    coracle_tests::eventually("events are written", std::time::Duration::from_secs(20), || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        events = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        events.iter().any(|e| {
            e["objectRef"]["resource"] == "configmaps"
                && e["objectRef"]["namespace"] == "default"
                && e["verb"] == "create"
        })
    });
    let find = |resource: &str, verb: &str| {
        let of = |e: &&Value| {
            e["objectRef"]["resource"] == resource
                && e["verb"] == verb
                && e["user"]["username"] == "kubernetes-admin"
        };
        events.iter().rfind(of).unwrap().clone()
    };
    let secret = find("secrets", "create");
    assert_eq!((&secret["level"], &secret["stage"]), (&json!("Metadata"), &json!("ResponseComplete")));
    assert!(!secret.to_string().contains("hush-hush") && secret["requestObject"].is_null());
    let map = find("configmaps", "create");
    assert_eq!(map["requestObject"]["data"]["key"], "well-known");
    assert_eq!(map["responseObject"]["data"]["key"], "well-known");
    assert_eq!(
        (&map["responseStatus"]["code"], &map["annotations"]["authorization.k8s.io/decision"]),
        (&json!(201), &json!("allow"))
    );
    let acting = events.iter().find(|e| e["impersonatedUser"]["username"] == "bob").unwrap();
    assert_eq!(acting["user"]["username"], "kubernetes-admin");
    let forbidden = events.iter().find(|e| e["responseStatus"]["code"] == 403).unwrap();
    assert_eq!(forbidden["responseStatus"]["reason"], "Forbidden");

    let preflight = |origin: &str| {
        Caller::nobody(&server).header(&format!("Origin: {origin}")).send("OPTIONS", "/api", None).0
    };
    assert_eq!((preflight("https://ui.example"), preflight("https://evil.example")), (204, 401));
}

#[test]
fn other_authorizers_decide_in_their_order() {
    let files = tempfile::tempdir().unwrap();
    let policies = files.path().join("policies");
    let line = r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"ann","namespace":"default","resource":"pods","readonly":true}}"#;
    std::fs::write(&policies, line).unwrap();
    let hook = webhook_config(files.path(), "hook", |review| {
        let spec = &review["spec"];
        let status = match spec["user"].as_str() {
            Some("carl") => json!({"allowed": true}),
            Some("eve") => json!({"allowed": false, "denied": true, "reason": "not on a Sunday"}),
            _ => json!({"allowed": false}),
        };
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status})
    });
    let server = Server::with(&[
        "--api-only",
        "--authorization-mode",
        "ABAC,Webhook,RBAC",
        "--authorization-policy-file",
        &policies.display().to_string(),
        "--authorization-webhook-config-file",
        &hook,
    ]);
    let pods = |user: &str, method: &str| {
        let body = (method == "POST").then(|| json!({}));
        Caller::certified(&server, user, &[]).send(method, "/api/v1/namespaces/default/pods", body.as_ref())
    };
    assert_eq!(pods("ann", "GET").0, 200, "by policy");
    assert_eq!(pods("ann", "POST").0, 403, "read only");
    assert_eq!(pods("carl", "GET").0, 200, "by webhook");
    let (code, body) = pods("eve", "GET");
    assert_eq!(code, 403);
    assert!(
        body["message"].as_str().unwrap().ends_with("in the namespace \"default\": not on a Sunday"),
        "{body}"
    );
    assert_eq!(Caller::certified(&server, "dora", &[]).get("/api").0, 200, "RBAC, the last one");
    assert_eq!(Caller::admin(&server).get("/api/v1/nodes").0, 200, "masters always may");
    drop(server);
    let open = Server::with(&["--api-only", "--authorization-mode", "AlwaysAllow", "--anonymous-auth"]);
    assert_eq!(Caller::nobody(&open).get("/api/v1/namespaces/default/secrets").0, 200);
}

#[test]
fn secrets_are_sealed_on_both_stores_and_keys_rotate() {
    let etcd = Etcd::start();
    for datastore in ["embedded".to_owned(), format!("etcd://{}", etcd.address)] {
        let files = tempfile::tempdir().unwrap();
        let config = files.path().join("encryption");
        let write = |providers: &str| {
            let text = format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: {providers}\n"
            );
            std::fs::write(&config, text).unwrap();
        };
        let [old, new] = KEYS;
        let aes = format!("{{aesgcm: {{keys: [{{name: old, secret: {old}}}]}}}}");
        let sealed = format!("{{secretbox: {{keys: [{{name: new, secret: {new}}}]}}}}");
        write("[{identity: {}}]");
        let flags = [
            "--api-only",
            "--datastore",
            &datastore,
            "--encryption-provider-config",
            &config.display().to_string(),
        ];
        let mut server = Server::with(&flags);
        let plain = "c3RpbGwtYS1zZWNyZXQ=";
        let path = "/api/v1/namespaces/default/secrets";
        Caller::admin(&server).create(path, &json!({"metadata": {"name": "s"}, "data": {"key": plain}}));
        // Sealed when the key comes, opened by the old key while the new one seals, and by the new one alone at last.
        for providers in
            [format!("[{aes}, {{identity: {{}}}}]"), format!("[{sealed}, {aes}]"), format!("[{sealed}]")]
        {
            write(&providers);
            server.kill();
            server.restart();
            let (code, body) = Caller::admin(&server).get(&format!("{path}/s"));
            assert_eq!((code, &body["data"]["key"]), (200, &json!(plain)), "{datastore} {providers}");
        }
        if datastore.starts_with("etcd") {
            let raw = etcd.get("/registry/secrets/default/s");
            assert!(raw.contains("k8s:enc:secretbox:v1:new:") && !raw.contains(plain), "{raw}");
        }
        // Without any key the server does not pretend.
        write(&format!("[{aes}]"));
        server.kill();
        assert!(!server.starts(), "{datastore}: values that cannot be opened are not lost silently");
    }
}
