//! Every authenticator with real credentials over TLS.

use crate::caller::{Caller, account_token, token};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

/// A small HTTP server for webhooks: answers every request with what `answer` makes of its body.
fn webhook(answer: impl Fn(&Value) -> Value + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            let body = loop {
                let Ok(count) = stream.read(&mut buffer) else { break Value::Null };
                if count == 0 {
                    break Value::Null;
                }
                seen.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&seen).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .lines()
                    .find_map(|l| l.to_lowercase().strip_prefix("content-length:").map(str::to_owned));
                let length: usize = length.and_then(|l| l.trim().parse().ok()).unwrap_or(0);
                if body.len() >= length {
                    break serde_json::from_str(body).unwrap_or(Value::Null);
                }
            };
            let text = answer(&body).to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
                text.len()
            );
        }
    });
    url
}

/// A kubeconfig for a webhook.
pub fn webhook_config(
    dir: &std::path::Path,
    name: &str,
    answer: impl Fn(&Value) -> Value + Send + 'static,
) -> String {
    let file = dir.join(name);
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: hook\n  cluster:\n    server: {}\n",
        webhook(answer)
    );
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn everybody_is_who_their_credentials_say() {
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let tokens = write("tokens", "t0ken,ann,7,\"dev,ops\"\n");
    let passwords = write("passwords", "pa55,bob,8,\"ops\"\n");
    let hook = webhook_config(files.path(), "hook", |review| {
        let known = review["spec"]["token"] == "hooked";
        let user = if known { json!({"username": "carl", "groups": ["hooks"]}) } else { json!({}) };
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "status": {"authenticated": known, "user": user}})
    });
    let server = Server::with(&[
        "--api-only",
        "--token-auth-file",
        &tokens,
        "--basic-auth-file",
        &passwords,
        "--authentication-token-webhook-config-file",
        &hook,
        "--requestheader-allowed-names",
        "front",
    ]);
    let groups = |list: &[&str]| -> Vec<String> {
        list.iter().map(|g| (*g).to_owned()).chain(["system:authenticated".to_owned()]).collect()
    };
    let is = |caller: &Caller, name: &str, in_groups: &[&str]| {
        assert_eq!(caller.whoami(), Ok((name.to_owned(), groups(in_groups))), "{name}");
    };
    let refused = |caller: &Caller, why: &str| assert_eq!(caller.whoami(), Err(401), "{why}");

    is(&Caller::certified(&server, "dora", &["dev"]), "dora", &["dev"]);
    is(&Caller::bearer(&server, "t0ken"), "ann", &["dev", "ops"]);
    is(&Caller::nobody(&server).with(&["-u", "bob:pa55"]), "bob", &["ops"]);
    is(&Caller::bearer(&server, "hooked"), "carl", &["hooks"]);
    refused(&Caller::nobody(&server), "anonymous is off");
    refused(&Caller::bearer(&server, "wrong"), "nobody knows the token");
    refused(&Caller::nobody(&server).with(&["-u", "bob:wrong"]), "wrong password");

    // Front proxies: the right authority and the right name, and headers of nobody else.
    let headers = |caller: Caller| {
        caller.header("X-Remote-User: eve").header("X-Remote-Group: dev").header("X-Remote-Extra-Scopes: a")
    };
    is(&headers(Caller::signed(&server, "front-proxy-ca", "front", &[])), "eve", &["dev"]);
    refused(&headers(Caller::signed(&server, "front-proxy-ca", "another", &[])), "a proxy that is not named");
    refused(&headers(Caller::nobody(&server)), "no certificate");
    is(&headers(Caller::certified(&server, "dora", &[])), "dora", &[]);
    refused(
        &Caller::signed(&server, "front-proxy-ca", "front", &["system:masters"]),
        "a proxy is no user itself",
    );

    bootstrap_tokens(&server, &is, &refused);
    account_tokens(&server, &refused);
    issuer_is_published(&server);
}

fn bootstrap_tokens(server: &Server, is: &dyn Fn(&Caller, &str, &[&str]), refused: &dyn Fn(&Caller, &str)) {
    let good = token(server, &["--bare"]);
    let id = &good[..6];
    let default = "system:bootstrappers:coracle:default-node-token";
    is(&Caller::bearer(server, &good), &format!("system:bootstrap:{id}"), &[default, "system:bootstrappers"]);
    refused(&Caller::bearer(server, &format!("{id}.0000000000000000")), "another secret");
    let coracle = |args: &[&str]| {
        let output = Command::new(coracle_tests::program("coracle"))
            .args(args)
            .arg("--data-dir")
            .arg(server.data_dir())
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let list = coracle(&["token", "list"]);
    assert!(list.contains(id) && !list.contains(&good[7..]), "{list}");
    coracle(&["token", "revoke", id]);
    refused(&Caller::bearer(server, &good), "revoked");
    let short = token(server, &["--bare", "--ttl", "1s"]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    refused(&Caller::bearer(server, &short), "expired");
}

fn account_tokens(server: &Server, refused: &dyn Fn(&Caller, &str)) {
    let admin = Caller::admin(server);
    let here = account_token(server, "default", "robot", json!({}));
    let (name, groups) = Caller::bearer(server, &here).whoami().unwrap();
    assert_eq!(name, "system:serviceaccount:default:robot");
    assert!(groups.contains(&"system:serviceaccounts:default".to_owned()));
    let elsewhere = account_token(server, "default", "robot", json!({"audiences": ["vault"]}));
    refused(&Caller::bearer(server, &elsewhere), "another audience");
    let review = |token: &str, audiences: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences}});
        admin.create("/apis/authentication.k8s.io/v1/tokenreviews", &body)["status"].clone()
    };
    let status = review(&elsewhere, json!(["vault", "other"]));
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["vault"])));
    assert_eq!(review(&elsewhere, json!(["other"]))["authenticated"], false);
    let mut bent = here.clone();
    bent.replace_range(here.len() - 2.., "AA");
    refused(&Caller::bearer(server, &bent), "another signature");
    let unsigned = format!("{}.{}.", "eyJhbGciOiJub25lIn0", here.split('.').nth(1).unwrap());
    refused(&Caller::bearer(server, &unsigned), "alg none");
    // Bound to a secret: gone with it.
    let secret = admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "tie"}}));
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "tie", "uid": secret["metadata"]["uid"]}});
    let bound = Caller::bearer(server, &account_token(server, "default", "robot", bound));
    assert!(bound.whoami().is_ok());
    admin.send("DELETE", "/api/v1/namespaces/default/secrets/tie", None);
    refused(&bound, "what it was bound to is gone");
    admin.send("DELETE", "/api/v1/namespaces/default/serviceaccounts/robot", None);
    refused(&Caller::bearer(server, &here), "the account is gone");
}

fn issuer_is_published(server: &Server) {
    let (code, document) = Caller::admin(server).get("/.well-known/openid-configuration");
    assert_eq!((code, &document["issuer"]), (200, &json!("https://kubernetes.default.svc.cluster.local")));
    let (_, keys) = Caller::admin(server).get("/openid/v1/jwks");
    assert_eq!((&keys["keys"][0]["kty"], &keys["keys"][0]["alg"]), (&json!("EC"), &json!("ES256")));
}
