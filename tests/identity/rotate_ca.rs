//! The CA of the cluster is replaced in three steps while a watch is open, a node asks for its Node all the time, and a client knows
//! only the old CA.

use crate::caller::{Caller, token};
use coracle_agent::identity::client::Identity;
use coracle_agent::identity::join::{IdentityFiles, JoinParams, join};
use coracle_agent::identity::trust::Trust;
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// What members of `system:masters` may read, and nobody without a name.
const WHERE: &str = "/api/v1/namespaces/default";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a step: what it printed, or why it was refused.
fn step(server: &Server, step: &str) -> Result<Value, String> {
    let mut command = Command::new(program("coracle"));
    command.args(["certificate", "rotate-ca", step, "-o", "json", "--data-dir"]).arg(server.data_dir());
    let output = command.output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The hashes of the CAs of a status; the first one signs.
fn hashes(status: &Value) -> Vec<String> {
    let all = status["authorities"].as_array().unwrap().iter();
    all.map(|ca| ca["hash"].as_str().unwrap().to_owned()).collect()
}

fn certificates(pem: &str) -> usize {
    pem.matches("BEGIN CERTIFICATE").count()
}

/// How many CAs pods, aggregated servers, nodes that join, the administrator and a node know.
fn known(server: &Server, node: &Path) -> Vec<usize> {
    let admin = Caller::admin(server);
    let map = |path: &str| admin.get(&format!("/api/v1/namespaces/{path}")).1["data"].clone();
    let text = |value: &Value| value.as_str().map(certificates).unwrap_or_default();
    let kubeconfig = |text: &str| {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let begin = text.find("certificate-authority-data").map(|at| &text[at + 26..]).unwrap_or_default();
        let data = begin.trim_start_matches(['"', ':', ' ']).split(['"', '\n', '}', ',']).next().unwrap();
        STANDARD
            .decode(data.trim())
            .map(|pem| certificates(&String::from_utf8_lossy(&pem)))
            .unwrap_or_default()
    };
    let cluster =
        map("kube-public/configmaps/cluster-info")["kubeconfig"].as_str().unwrap_or_default().to_owned();
    vec![
        text(&map("default/configmaps/kube-root-ca.crt")["ca.crt"]),
        text(&map("kube-system/configmaps/extension-apiserver-authentication")["client-ca-file"]),
        kubeconfig(&cluster),
        kubeconfig(&std::fs::read_to_string(server.kubeconfig()).unwrap()),
        certificates(&std::fs::read_to_string(node).unwrap()),
    ]
}

#[test]
fn the_ca_is_replaced_and_nobody_who_follows_the_steps_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let (old_ca, events) = (dir.path().join("old-ca.crt"), dir.path().join("events"));
    std::fs::copy(server.data_dir().join("pki/ca.crt"), &old_ca).unwrap();
    let admin = Caller::admin(&server);
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "silent"}}));
    // Certificates and CA files of the time before.
    let ann = Caller::certified(&server, "ann", &["system:masters"]);
    let unaware = ann.with(&["--cacert", old_ca.to_str().unwrap()]);
    let mut watch = admin.watch_into("/api/v1/namespaces/default/configmaps?watch=true", &events);
    let (invitation, bare) = (token(&server, &[]), token(&server, &["--bare"]));

    let place = IdentityFiles::below(dir.path());
    let params = JoinParams::read(&server.url(), &invitation, None).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _entered = runtime.enter();
    runtime.block_on(join(&params, "node-a", &place, PATIENCE)).unwrap();
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "node-a"}}));
    let identity = Arc::new(runtime.block_on(Identity::read(&place.kubeconfig)).unwrap());
    let (node, counted) = (identity.client(), Arc::new(AtomicUsize::new(0)));
    runtime.spawn(Trust { identity, node: "node-a".to_owned(), tls: None, serving: None }.run());
    let stop = Arc::new(AtomicBool::new(false));
    let asking = runtime.spawn({
        let (counted, stop) = (counted.clone(), stop.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                let request = http::Request::get("/api/v1/nodes/node-a").body(Vec::new()).unwrap();
                node.request_text(request)
                    .await
                    .unwrap_or_else(|error| panic!("the node is refused: {error}"));
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    let node_ca = place.pki.join("ca.crt");
    let annotation = |key: &str| {
        let node = Caller::admin(&server).get("/api/v1/nodes/node-a").1;
        node["metadata"]["annotations"][format!("coracle.dev/{key}")].as_str().unwrap_or_default().to_owned()
    };

    let settled = step(&server, "status").unwrap();
    assert_eq!((&settled["stage"], hashes(&settled).len()), (&json!("settled"), 1));
    assert!(step(&server, "switch").unwrap_err().contains("prepare one first"));
    assert!(step(&server, "finish").unwrap_err().contains("no rotation of the CA is under way"));

    // What was prepared by mistake is cancelled.
    step(&server, "prepare").unwrap();
    eventually("both CAs are known everywhere", PATIENCE, || known(&server, &node_ca) == [2; 5]);
    let cancelled = step(&server, "cancel").unwrap();
    assert_eq!((&cancelled["stage"], hashes(&cancelled)), (&json!("settled"), hashes(&settled)));
    eventually("only the old CA is known", PATIENCE, || known(&server, &node_ca) == [1; 5]);
    assert!(step(&server, "cancel").unwrap_err().contains("no new CA is prepared"));

    let prepared = step(&server, "prepare").unwrap();
    let (old, new) = (hashes(&prepared)[0].clone(), hashes(&prepared)[1].clone());
    assert_eq!((&prepared["stage"], &old), (&json!("prepared"), &hashes(&settled)[0]));
    assert!(step(&server, "prepare").unwrap_err().contains("prepared already"));
    eventually("both CAs are known everywhere", PATIENCE, || known(&server, &node_ca) == [2; 5]);
    eventually("the node says so", PATIENCE, || annotation("trusted-cas") == format!("{old},{new}"));
    assert_eq!(annotation("issuing-cas"), old);
    assert_eq!((ann.get(WHERE).0, unaware.get(WHERE).0), (200, 200));

    let switched = step(&server, "switch").unwrap();
    assert_eq!((&switched["stage"], hashes(&switched)), (&json!("switched"), vec![new.clone(), old]));
    eventually("the node has a certificate of the new CA", PATIENCE, || annotation("issuing-cas") == new);
    assert_eq!((ann.get(WHERE).0, unaware.get(WHERE).0), (200, 200), "the old CA is trusted");
    assert!(Caller::certified(&server, "eve", &[]).whoami().is_ok(), "the new one, too");
    // A token of the time before.
    let late = tempfile::tempdir().unwrap();
    let late = IdentityFiles::below(late.path());
    runtime.block_on(join(&params, "node-b", &late, PATIENCE)).unwrap();
    let refused = step(&server, "finish").unwrap_err();
    assert!(refused.contains("node silent does not report which CA it uses"), "{refused}");
    assert!(!refused.contains("node-a"), "{refused}");
    assert_eq!(Caller::admin(&server).send("DELETE", "/api/v1/nodes/silent", None).0, 200);

    let finished = step(&server, "finish").unwrap();
    assert_eq!((&finished["stage"], hashes(&finished)), (&json!("settled"), vec![new.clone()]));
    eventually("only the new CA is known", PATIENCE, || known(&server, &node_ca) == [1; 5]);
    eventually("the node says so", PATIENCE, || annotation("trusted-cas") == new);
    eventually("certificates of the old CA are refused", PATIENCE, || ann.get(WHERE).0 == 401);

    let record = |token: &str| {
        let id = token.rsplit("::").next().unwrap().split('.').next().unwrap().to_owned();
        Caller::admin(&server).get(&format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{id}")).0
    };
    assert_eq!((record(&invitation), record(&bare)), (404, 200), "a token that names the old CA is revoked");
    assert_eq!(record(&token(&server, &[])), 200, "one that names the new CA");

    // Neither the watch nor the node has noticed.
    let body = json!({"metadata": {"name": "after-the-rotation"}});
    Caller::admin(&server).create("/api/v1/namespaces/default/configmaps", &body);
    let seen = || std::fs::read_to_string(&events).unwrap().contains("after-the-rotation");
    eventually("the watch goes on", PATIENCE, seen);
    assert!(!watch.over());
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(asking).unwrap();
    assert!(counted.load(Ordering::Relaxed) > 10);
    server.stop();
    server.restart();
    assert_eq!(hashes(&step(&server, "status").unwrap()), [new]);
}
