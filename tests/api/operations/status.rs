//! `coracle status` of servers that are well, unwell and away.

use super::{coracle, well};
use coracle_store::{Datastore, Durability, Write, open};
use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::json;
use std::time::Duration;

const PATH: &str = "/coracle/v1/status";

#[test]
fn a_server_says_how_it_is_to_those_who_may_know() {
    let mut server = Server::start();
    let said = well(&server, &["status"]);
    for part in ["running", "store: embedded", "last backup: never", "ca.crt", "nothing is wrong"] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    let json = well(&server, &["status", "-o", "json"]).json();
    assert_eq!(json["store"]["engine"], "embedded");
    assert!(json["store"]["revision"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(json["servers"].as_array().unwrap().len(), 1);
    // Others may not, unless a role says so.
    let ann = Caller::certified(&server, "ann", &[]);
    assert_eq!(ann.get(PATH).0, 403);
    let admin = Caller::admin(&server);
    let rules = json!([{"nonResourceURLs": [PATH], "verbs": ["get"]}]);
    let meta = json!({"name": "status"});
    admin.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        &json!({"metadata": meta, "rules": rules}),
    );
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "status"});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"});
    let binding = json!({"metadata": meta, "roleRef": role, "subjects": [subject]});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    eventually("the role counts", Duration::from_secs(10), || ann.get(PATH).0 == 200);
    assert_eq!(ann.send("POST", "/coracle/v1/store/resume", None).0, 403, "only what was allowed");
    assert_eq!(admin.send("POST", PATH, None).0, 405);
    // A backup that failed is a problem.
    server.stop();
    record_backup(
        &server,
        r#"{"time":"2026-01-01T00:00:00Z","revision":7,"location":"s3://b/x","bytes":10}"#,
    );
    server.restart();
    let said = well(&server, &["status"]);
    assert!(said.out.contains("last backup: 2026-01-01T00:00:00Z at revision 7"), "{}", said.out);
    server.stop();
    record_backup(&server, r#"{"time":"2026-01-02T00:00:00Z","error":"no space left"}"#);
    server.restart();
    let said = coracle(&server, &["status", "-o", "json"]);
    assert!(!said.ok && said.problems().len() == 1, "{}", said.out);
    assert!(said.problems()[0].contains("no space left"), "{}", said.out);
    // Nobody answers.
    server.stop();
    let said = coracle(&server, &["status"]);
    assert!(
        !said.ok && said.out.contains("problem: the API server does not answer: https://"),
        "{}",
        said.out
    );
}

#[test]
fn roles_allow_nobody_to_change_what_operators_change() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    let rules = json!([{"nonResourceURLs": ["/coracle/v1/*"], "verbs": ["*"]}]);
    let meta = json!({"name": "operators"});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    admin.create(&format!("{rbac}/clusterroles"), &json!({"metadata": meta, "rules": rules}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "operators"});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"});
    let binding = json!({"metadata": meta, "roleRef": role, "subjects": [subject]});
    admin.create(&format!("{rbac}/clusterrolebindings"), &binding);
    let ann = Caller::certified(&server, "ann", &["system:authenticated"]);
    eventually("the role counts", Duration::from_secs(10), || ann.get(PATH).0 == 200);
    let encryption = ["encryption/reload", "encryption/rewrite"];
    for path in [
        &encryption[..],
        &["store/copy", "store/resume", "ca/prepare", "ca/switch", "ca/finish", "ca/cancel"],
    ]
    .concat()
    {
        let (code, answer) = ann.send("POST", &format!("/coracle/v1/{path}"), Some(&json!({})));
        assert_eq!(code, 403, "{path}: {answer}");
        let why = answer["message"].as_str().unwrap();
        assert!(why.contains("system:masters"), "{path}: {why}");
    }
}

#[test]
fn without_a_data_directory_the_environment_names_the_kubeconfig() {
    let server = Server::start();
    let nowhere = server.data_dir().join("nowhere");
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(coracle_tests::program("coracle"));
        command.args(args).env("CORACLE_DATA_DIR", &nowhere).env("KUBECONFIG", server.kubeconfig());
        let output = command.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{args:?}: {out}{err}");
        out.into_owned()
    };
    assert!(run(&["status"]).contains("nothing is wrong"));
    let token = run(&["token", "create"]);
    assert!(token.starts_with("K10"), "{token}");
}

/// Writes the record of a backup into the store of a stopped server, as the program that makes backups does.
fn record_backup(server: &Server, record: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open(&Datastore::Embedded, server.data_dir()).await.unwrap();
        let key = "/coracle/last-backup".to_owned();
        let expect = store.get(&key).await.unwrap().map_or(0, |now| now.modified);
        let value = Some(record.to_owned().into());
        store.write(Write { key, expect, value, durability: Durability::Sync, fence: None }).await.unwrap();
    });
}

#[test]
fn a_dead_server_of_two_is_named() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let first = Server::with(&["--datastore", &store]);
    let mut second = first.beside(&["--datastore", &store]);
    let healthy = || coracle(&first, &["status", "-o", "json"]);
    eventually("both servers are well", Duration::from_secs(60), || healthy().ok);
    let json = healthy().json();
    assert_eq!(json["servers"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["store"]["members"].as_array().unwrap().len(), 1);
    let leaders: Vec<_> = json["elections"].as_array().unwrap().iter().map(|e| &e["leader"]).collect();
    assert!(leaders.len() == 2 && leaders.iter().all(|leader| leader.as_str() != Some("")), "{json}");
    let address = second.url().trim_start_matches("https://").to_owned();
    second.kill();
    eventually("the dead server is named", Duration::from_secs(60), || {
        let said = healthy();
        !said.ok && said.problems().iter().any(|problem| problem.contains(&address))
    });
}

#[test]
fn without_its_store_a_server_tells_what_it_knows() {
    let etcd = Etcd::start();
    let server = Server::with(&["--datastore", &format!("etcd://{}", etcd.address)]);
    eventually("the server is well", Duration::from_secs(60), || coracle(&server, &["status"]).ok);
    etcd.pause();
    let said = coracle(&server, &["status", "-o", "json"]);
    etcd.resume();
    assert!(
        !said.ok && said.problems().iter().any(|one| one.contains("the store does not answer")),
        "{}",
        said.out
    );
    let json = said.json();
    assert_eq!(json["servers"].as_array().unwrap().len(), 1, "{json}");
    assert!(!json["servers"][0]["certificates"].as_array().unwrap().is_empty(), "{json}");
    assert_eq!(json["elections"].as_array().unwrap().len(), 2, "as the server saw them last: {json}");
}
