//! Every authenticator with real credentials over TLS.

use crate::caller::{Caller, account_token, token};
use coracle_pki::authority::{Authority, Profile, Signed};
use coracle_tests::https::Https;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    // The webhook: a certificate of its own, and it wants one of the server.
    let reviews = Arc::new(AtomicUsize::new(0));
    let count = reviews.clone();
    let https = Https::start(move |asked| {
        count.fetch_add(1, Ordering::SeqCst);
        let spec = &asked.body["spec"];
        let review = |status: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status});
        let user = json!({"username": "carl", "uid": "9", "groups": ["hooks"], "extra": {"door": ["back"]}});
        match spec["token"].as_str() {
            _ if !asked.certified => (401, Value::Null),
            Some("hooked") => (200, review(json!({"authenticated": true, "user": user}))),
            Some("elsewhere") => {
                (200, review(json!({"authenticated": true, "user": user, "audiences": ["vault"]})))
            }
            Some("broken") => (500, Value::Null),
            _ => (200, review(json!({"authenticated": false, "error": "never heard of it"}))),
        }
    });
    let hook = https.kubeconfig(files.path(), "hook");
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
    let asked = reviews.load(Ordering::SeqCst);
    is(&Caller::bearer(&server, "hooked"), "carl", &["hooks"]);
    assert_eq!(reviews.load(Ordering::SeqCst), asked, "an answer is kept");
    refused(&Caller::bearer(&server, "broken"), "a webhook that fails knows nobody");
    let review = |token: &str, audiences: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences}});
        Caller::admin(&server).create("/apis/authentication.k8s.io/v1/tokenreviews", &body)["status"].clone()
    };
    let status = review("elsewhere", json!(["vault"]));
    assert_eq!(
        (&status["authenticated"], &status["user"]["extra"]["door"]),
        (&json!(true), &json!(["back"]))
    );
    assert_eq!(review("elsewhere", json!(["other"]))["authenticated"], false);
    assert_eq!(review("hooked", json!(["vault"]))["authenticated"], false, "it speaks for this server only");
    refused(&Caller::nobody(&server), "anonymous is off");
    refused(&Caller::bearer(&server, "wrong"), "nobody knows the token");
    refused(&Caller::nobody(&server).with(&["-u", "bob:wrong"]), "wrong password");
    refused(&Caller::nobody(&server).with(&["-u", "nobody:pa55"]), "nobody's password");
    refused(&Caller::bearer(&server, "pa55"), "a password is no token");
    refused(&Caller::nobody(&server).with(&["-u", "ann:t0ken"]), "a token is no password");
    let stranger = Authority::ensure(files.path(), "stranger", "stranger").unwrap();
    let signed = stranger.sign(&Profile::client("kubernetes-admin", &["system:masters"])).unwrap();
    let pem = |signed: &Signed| format!("{}{}", signed.certificate, signed.key);
    let stranger = Caller::with_pem(&server, "stranger", &pem(&signed));
    refused(&stranger, "a certificate of another authority");
    assert_eq!(
        stranger.get("/api/v1/pods").1["reason"],
        "Unauthorized",
        "an answer, not a broken connection"
    );
    // Where nobody needs a name, credentials that do not hold are refused all the same.
    let nobody = Caller::nobody(&server);
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        let codes =
            [&nobody, &Caller::bearer(&server, "wrong"), &stranger, &nobody.with(&["-u", "bob:wrong"])]
                .map(|caller| caller.get(path).0);
        assert_eq!(codes, [200, 401, 401, 401], "{path}");
    }
    is(&stranger.header("Authorization: Bearer t0ken"), "ann", &["dev", "ops"]);
    refused(&stranger.header("X-Remote-User: root"), "a proxy of another authority");
    let of_ours = |name: &str| Authority::ensure(&server.data_dir().join("pki"), name, "test").unwrap();
    let short = |name: &str, profile: Profile| {
        let signed = of_ours(name).sign(&profile.lasting(std::time::Duration::from_secs(1))).unwrap();
        Caller::with_pem(&server, "late", &pem(&signed))
    };
    let late = short("ca", Profile::client("late", &[]));
    let late_proxy = short("front-proxy-ca", Profile::client("front", &[])).header("X-Remote-User: root");
    for late in [late, late_proxy] {
        coracle_tests::eventually("a certificate ends", std::time::Duration::from_secs(30), || {
            late.whoami() == Err(401)
        });
    }
    let serving = of_ours("ca").sign(&Profile::server("root", &["localhost".to_owned()])).unwrap();
    refused(&Caller::with_pem(&server, "serving", &pem(&serving)), "a certificate of a server");
    // What everybody had against a token stands in the log, and the client is told nothing of it.
    let (_, body) = Caller::bearer(&server, "wrong").get("/api");
    assert_eq!(body["message"], "Unauthorized");
    let log = server.log();
    assert!(log.contains("never heard of it") && log.contains("password of"), "{log}");
    for why in ["signed by unknown authority", "expired or is not yet valid", "incompatible key usage"] {
        assert!(log.contains(why), "{why}: {log}");
    }

    // Front proxies: the right authority and the right name, and headers of nobody else.
    let headers = |caller: Caller| {
        caller.header("X-Remote-User: eve").header("X-Remote-Group: dev").header("X-Remote-Extra-Scopes: a")
    };
    is(&headers(Caller::signed(&server, "front-proxy-ca", "front", &[])), "eve", &["dev"]);
    refused(&headers(Caller::signed(&server, "front-proxy-ca", "another", &[])), "a proxy that is not named");
    refused(&headers(Caller::nobody(&server)), "no certificate");
    is(&headers(Caller::certified(&server, "dora", &[])), "dora", &[]);
    // Groups of the header, not those of the proxy's certificate, and no rights that it does not give.
    let masters = Caller::signed(&server, "front-proxy-ca", "front", &["system:masters"]);
    is(&masters.header("X-Remote-User: eve"), "eve", &[]);
    assert_eq!(masters.header("X-Remote-User: eve").get("/api/v1/secrets").0, 403);
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (_, eve) = headers(Caller::signed(&server, "front-proxy-ca", "front", &[]))
        .header("X-Remote-Uid: 11")
        .header("X-Remote-Extra-Acme.com%2fProject: some")
        .send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", Some(&body));
    let eve = &eve["status"]["userInfo"];
    assert_eq!(
        (&eve["uid"], &eve["extra"]["scopes"], &eve["extra"]["acme.com/project"]),
        (&json!("11"), &json!(["a"]), &json!(["some"]))
    );
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
    let short = Caller::bearer(server, &token(server, &["--bare", "--ttl", "1s"]));
    coracle_tests::eventually("the token expires", std::time::Duration::from_secs(30), || {
        short.whoami().is_err()
    });
    refused(&short, "expired");
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
    assert_eq!(document["jwks_uri"], format!("{}/openid/v1/jwks", server.url()));
    let (_, keys) = Caller::admin(server).get("/openid/v1/jwks");
    assert_eq!((&keys["keys"][0]["kty"], &keys["keys"][0]["alg"]), (&json!("EC"), &json!("ES256")));
}
