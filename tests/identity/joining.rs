//! A machine joins with a token and nothing else; those without the right one do not.

use crate::caller::{Caller, Watch, token};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_pki::authority::Authority;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// `coracle-agent join`: whether it worked, and what it said.
fn join(server: &Server, dir: &Path, node: &str, token: &str, more: &[&str]) -> (bool, String) {
    let output = Command::new(coracle_tests::program("coracle-agent"))
        .args(["join", "--server", &server.url(), "--token", token, "--node-name", node, "--timeout", "30"])
        .arg("--root-dir")
        .arg(dir)
        .args(more)
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

#[test]
fn a_token_is_enough_and_nothing_less() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let whole = token(&server, &[]);
    let bare = whole.rsplit("::").next().unwrap().to_owned();

    let (worked, said) = join(&server, &at("a"), "node-a", &whole, &[]);
    assert!(worked, "{said}");
    let pem = std::fs::read_to_string(at("a").join("pki/client.pem")).unwrap();
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(at("a").join("pki/client.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "keys are their owner's");
    for dir in [at("a").join("pki"), server.data_dir().join("pki")] {
        let mode = std::fs::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", dir.display());
    }
    let node = Caller::with_pem(&server, "node-a", &pem);
    let (name, groups) = node.whoami().unwrap();
    assert_eq!(name, "system:node:node-a");
    assert!(groups.contains(&"system:nodes".to_owned()));
    let (worked, said) = join(&server, &at("a"), "node-a", &whole, &[]);
    assert!(worked && said.contains("already"), "{said}");

    // The hash given aloud, as kubeadm prints it.
    let hash = Authority::ensure(&server.data_dir().join("pki"), "ca", "x").unwrap().hash();
    let (worked, said) = join(&server, &at("b"), "node-b", &bare, &["--ca-hash", &hash]);
    assert!(worked, "{said}");

    let refused = |node: &str, token: &str, more: &[&str], words: &str| {
        let (worked, said) = join(&server, &at("refused"), node, token, more);
        assert!(!worked && said.contains(words), "{words:?} expected: {said}");
        assert!(!at("refused").join("pki/client.pem").exists());
    };
    let hash = hash.as_str();
    refused("Node_C", &whole, &[], "cannot be the name of a node");
    refused("node-c", &bare, &[], "--ca-hash");
    refused(
        "node-c",
        &bare,
        &["--ca-hash", &"ab".repeat(32)],
        "the server's authority is not the one with hash",
    );
    refused("node-c", "abcdef.0123456789abcdef", &["--ca-hash", hash], "wrong, expired or revoked");
    refused("node-c", "nonsense", &["--ca-hash", hash], "not of the form");
    let short = token(&server, &["--ttl", "1s"]);
    let expires = Caller::bearer(&server, short.rsplit("::").next().unwrap());
    coracle_tests::eventually("the token expires", std::time::Duration::from_secs(30), || {
        expires.whoami().is_err()
    });
    refused("node-c", &short, &[], "wrong, expired or revoked");

    // The name of a node that is there already is not given away, not with a token either.
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "node-a"}}));
    refused("node-a", &whole, &[], "node \"node-a\" is a member already");
    replayed(&server, &node);
    let revoked = revoked(&server, &admin, &node);
    assert!(revoked.contains(&format!("token {} revoked", &bare[..6])), "{revoked}");
    refused("node-a", &whole, &[], "wrong, expired or revoked");
    // The machine comes back with a new token; the certificate that it had stays out.
    let (worked, said) = join(&server, &at("a"), "node-a", &token(&server, &[]), &[]);
    assert!(worked && said.contains("joining anew") && said.contains("node-a joined"), "{said}");
    let pem = std::fs::read_to_string(at("a").join("pki/client.pem")).unwrap();
    let again = Caller::with_pem(&server, "node-a", &pem);
    assert_eq!((again.whoami().unwrap().0.as_str(), node.whoami()), ("system:node:node-a", Err(401)));
}

/// A node sends somebody else's request, and one for a name that is not its own.
fn replayed(server: &Server, node: &Caller) {
    let (_, request) = coracle_agent::identity::request::make("node-b", &[]).unwrap();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "replay-"}, "spec": {"request": STANDARD.encode(&request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"]}});
    let (code, answer) = node.send("POST", path, Some(&body));
    assert_eq!(code, 403);
    let sentence = "can only create a node CSR with CN=system:node:node-a, requested CN=system:node:node-b";
    assert!(answer["message"].as_str().unwrap().contains(sentence), "{answer}");
    // Two names in one request, of which one is its own: for the node itself, and for who has a token.
    let mut two = body.clone();
    for (who, first) in
        [(node.clone(), "node-a"), (Caller::bearer(server, &token(server, &["--bare"])), "node-q")]
    {
        let subject = format!("/O=system:nodes/CN=system:node:{first}/CN=system:kube-controller-manager");
        two["spec"]["request"] = json!(STANDARD.encode(asked_by_openssl(&subject)));
        let (code, answer) = who.send("POST", path, Some(&two));
        if first == "node-a" {
            assert_eq!(code, 403, "{answer}");
            continue;
        }
        // Nobody approves it by himself, and nobody gets it who is approved by mistake.
        let name = answer["metadata"]["name"].as_str().unwrap().to_owned();
        let admin = Caller::admin(server);
        let mut approved = admin.get(&format!("{path}/{name}")).1;
        approved["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]);
        let (code, answer) = admin.send("PUT", &format!("{path}/{name}/approval"), Some(&approved));
        assert_eq!(code, 200, "{answer}");
        let mut status = Value::Null;
        coracle_tests::eventually("the signer refuses", std::time::Duration::from_secs(20), || {
            status = admin.get(&format!("{path}/{name}")).1["status"].clone();
            status["conditions"][1]["type"] == "Failed"
        });
        assert!(status["certificate"].is_null(), "{status}");
        assert_eq!(status["conditions"][1]["message"], "the subject has more than one common name");
    }
    // A serving certificate under the server's own address.
    let names = ["127.0.0.1".to_owned()];
    let (_, request) = coracle_agent::identity::request::make("node-a", &names).unwrap();
    let mut body = body;
    body["spec"]["request"] = json!(STANDARD.encode(&request));
    body["spec"]["signerName"] = json!("kubernetes.io/kubelet-serving");
    body["spec"]["usages"] = json!(["digital signature", "server auth"]);
    let name = node.create(path, &body)["metadata"]["name"].as_str().unwrap().to_owned();
    let mut denied = Value::Null;
    coracle_tests::eventually("the request is denied", std::time::Duration::from_secs(20), || {
        denied = Caller::admin(server).get(&format!("{path}/{name}")).1["status"]["conditions"][0].clone();
        denied["type"] == "Denied"
    });
    assert_eq!(denied["reason"], "ReservedName", "{denied}");
}

/// A request for a subject as openssl writes it.
fn asked_by_openssl(subject: &str) -> Vec<u8> {
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "/dev/null"];
    let output = Command::new("openssl").args(["req", "-new", "-subj", subject]).args(key).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Somebody of two groups, with a key of the kind that most people make, gets both by a request.
#[test]
fn a_person_gets_a_certificate_with_all_groups() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key").display().to_string();
    let args = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-multivalue-rdn", "-subj"];
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let admin = Caller::admin(&server);
    // One after the other, and together as Go writes them.
    for (number, subject) in ["/O=dev/O=ops/CN=ann", "/O=dev+O=ops/CN=ann"].into_iter().enumerate() {
        let output = Command::new("openssl").args(args).arg(subject).output().unwrap();
        let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("ann-{number}")}, "spec": {"request": STANDARD.encode(&output.stdout),
                "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
        let mut made = admin.create(path, &body);
        made["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]);
        let (code, answer) = admin.send("PUT", &format!("{path}/ann-{number}/approval"), Some(&made));
        assert_eq!(code, 200, "{answer}");
        let mut status = Value::Null;
        coracle_tests::eventually("it is signed", std::time::Duration::from_secs(20), || {
            status = admin.get(&format!("{path}/ann-{number}")).1["status"].clone();
            status["certificate"].is_string() || status["conditions"][1].is_object()
        });
        let certificate = status["certificate"].as_str().unwrap_or_else(|| panic!("{status}"));
        let certificate = String::from_utf8(STANDARD.decode(certificate).unwrap()).unwrap();
        let pem = format!("{certificate}{}", std::fs::read_to_string(&key).unwrap());
        let (name, groups) = Caller::with_pem(&server, "ann", &pem).whoami().unwrap();
        assert_eq!((name.as_str(), groups.join(",")), ("ann", "dev,ops,system:authenticated".into()));
    }
}

fn revoke(server: &Server, node: &str, more: &[&str]) -> (bool, String) {
    let output = Command::new(coracle_tests::program("coracle"))
        .args(["revoke-node", node, "--data-dir"])
        .arg(server.data_dir())
        .args(more)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A node that was shut out stays out, until it joins anew; what the command said.
fn revoked(server: &Server, admin: &Caller, node: &Caller) -> String {
    assert!(node.whoami().is_ok());
    let (worked, said) = revoke(server, "node-z", &[]);
    assert!(!worked && said.contains("node \"node-z\" is not known"), "{said}");
    let (worked, said) = revoke(server, "node-z", &["--force", "--keep-tokens"]);
    assert!(worked && !said.contains("it may know it"), "{said}");
    // Asked for and not decided yet: it goes with the node.
    let (_, request) = coracle_agent::identity::request::make("node-a", &["192.0.2.9".to_owned()]).unwrap();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "pending"}, "spec": {"request": STANDARD.encode(&request),
            "signerName": "kubernetes.io/kubelet-serving", "usages": ["digital signature", "server auth"]}});
    node.create(path, &body);
    // What it has open ends with it, and nothing of anybody else's.
    let nodes = "/api/v1/nodes?watch=true";
    let mut own = [node.watch(nodes), node.with(&["--http1.1"]).watch(nodes)];
    let other = Caller::certified(server, "system:node:node-b", &["system:nodes"]);
    let mut others = [admin.watch(nodes), other.watch(nodes)];
    let (worked, said) = revoke(server, "node-a", &[]);
    assert!(worked && said.contains("request pending deleted"), "{said}");
    coracle_tests::eventually("its watches end", std::time::Duration::from_secs(20), || {
        own.iter_mut().all(Watch::over)
    });
    assert!(!others.iter_mut().any(Watch::over), "watches of others go on");
    assert_eq!(node.whoami(), Err(401), "its certificate does not count any more");
    assert_eq!(admin.get("/api/v1/nodes/node-a").0, 404);
    assert_eq!(admin.get(&format!("{path}/pending")).0, 404);
    said
}
