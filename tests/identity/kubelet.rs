//! A stock kubelet's way into the cluster: exactly what it sends, with a bootstrap token, made by other hands than ours
//! (openssl's requests, protobuf written out here).

use crate::caller::{Caller, token};
use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

fn openssl(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("openssl").current_dir(dir).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A key and a request for a node's certificate; the request.
fn request(dir: &Path, node: &str, algorithm: &[&str], more: &[&str]) -> String {
    let subject = format!("/O=system:nodes/CN=system:node:{node}");
    openssl(dir, &[&["genpkey", "-out", "key", "-algorithm"], algorithm].concat());
    openssl(dir, &[&["req", "-new", "-sha256", "-key", "key", "-subj", &subject], more].concat())
}

/// The name that a kubelet gives its request: a hash in base64 with capitals and underscores, so that a kubelet that was
/// killed finds it again.
fn digested_name(dir: &Path) -> String {
    openssl(dir, &["pkey", "-in", "key", "-pubout", "-outform", "DER", "-out", "public"]);
    openssl(dir, &["dgst", "-sha512-256", "-binary", "-out", "hash", "public"]);
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(std::fs::read(dir.join("hash")).unwrap()))
}

/// Waits as a kubelet does: a list and then a watch of the one name.
fn issued(caller: &Caller, name: &str) -> String {
    let place = format!("{REQUESTS}?fieldSelector=metadata.name%3D{name}");
    let (code, list) = caller.get(&place);
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(1)), "{list}");
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut request = list["items"][0].clone();
    let mut since = version.to_owned();
    coracle_tests::eventually("the certificate is issued", Duration::from_secs(60), || {
        let watch =
            format!("{place}&watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={since}");
        let (code, events) = caller.get(&watch);
        assert_eq!(code, 200, "{events}");
        let text = events.as_str().map_or_else(|| events.to_string(), str::to_owned);
        for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            since = event["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            if matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED")) {
                request = event["object"].clone();
            }
        }
        request["status"]["certificate"].is_string()
    });
    let conditions = request["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "Approved" && c["status"] == "True"), "{request}");
    let certificate = STANDARD.decode(request["status"]["certificate"].as_str().unwrap()).unwrap();
    String::from_utf8(certificate).unwrap()
}

/// A length-delimited field of a protobuf message.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
    out
}

/// A CertificateSigningRequest with a generated name in the envelope of Kubernetes' protobuf, as client-go writes it.
fn in_protobuf(pem: &str, signer: &str, usages: &[&str]) -> Vec<u8> {
    let meta = field(1, &field(2, b"csr-"));
    let mut spec = field(1, pem.as_bytes());
    spec.extend(usages.iter().flat_map(|usage| field(5, usage.as_bytes())));
    spec.extend(field(7, signer.as_bytes()));
    let object = [meta, field(2, &spec), field(3, &[])].concat();
    let kind = [field(1, b"certificates.k8s.io/v1"), field(2, b"CertificateSigningRequest")].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, &object), field(3, &[]), field(4, &[])].concat()
}

fn in_json(name: &str, pem: &str, usages: &[&str]) -> Value {
    json!({"kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1",
        "metadata": {"name": name, "creationTimestamp": null},
        "spec": {"request": STANDARD.encode(pem), "signerName": CLIENT, "usages": usages}, "status": {}})
}

#[test]
fn a_stock_kubelet_gets_its_certificates() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let boot = Caller::bearer(&server, &token(&server, &["--bare"])).header("User-Agent: kubelet/v1.35.0");
    assert_eq!(boot.get("/healthz").0, 200, "a kubelet waits for this first");
    let elliptic: &[&str] = &["EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    let rsa: &[&str] = &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    let mut node = None;
    for (name, algorithm, usages) in [
        ("kubelet-rsa", rsa, &["digital signature", "client auth", "key encipherment"][..]),
        ("kubelet-a", elliptic, &["digital signature", "client auth"][..]),
    ] {
        let pem = request(dir.path(), name, algorithm, &[]);
        let called = digested_name(dir.path());
        let body = in_json(&called, &pem, usages);
        let (code, made) = boot.send("POST", REQUESTS, Some(&body));
        assert_eq!(code, 201, "{made}");
        assert!(made["spec"]["username"].as_str().unwrap().starts_with("system:bootstrap:"), "{made}");
        // Killed and started again, it finds its request under the same name.
        let (code, again) = boot.send("POST", REQUESTS, Some(&body));
        assert_eq!((code, &again["reason"]), (409, &json!("AlreadyExists")));
        assert_eq!(boot.get(&format!("{REQUESTS}/{called}")).1["spec"]["request"], made["spec"]["request"]);
        let certificate = issued(&boot, &called);
        let key = std::fs::read_to_string(dir.path().join("key")).unwrap();
        let caller = Caller::with_pem(&server, name, &format!("{certificate}{key}"));
        let (user, groups) = caller.whoami().unwrap();
        assert_eq!(user, format!("system:node:{name}"));
        assert_eq!(groups, ["system:nodes", "system:authenticated"]);
        node = Some(caller);
    }
    let node = node.unwrap();
    // It registers, and asks for the certificate that it serves with, in protobuf.
    let object = json!({"metadata": {"name": "kubelet-a", "labels": {"kubernetes.io/hostname": "kubelet-a"}}, "status":
        {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "kubelet-a"}]}});
    node.create("/api/v1/nodes", &object);
    let (code, _) =
        node.send("PATCH", "/api/v1/nodes/kubelet-a/status", Some(&json!({"status": object["status"]})));
    assert_eq!(code, 200);
    let names = ["-addext", "subjectAltName=DNS:kubelet-a,IP:192.0.2.7"];
    let pem = request(dir.path(), "kubelet-a", elliptic, &names);
    let send = |caller: &Caller, bytes: &[u8]| {
        std::fs::write(dir.path().join("body"), bytes).unwrap();
        caller
            .header("Content-Type: application/vnd.kubernetes.protobuf")
            .header("Accept: application/vnd.kubernetes.protobuf,application/json")
            .with(&["--data-binary", &format!("@{}", dir.path().join("body").display())])
            .send("POST", REQUESTS, None)
    };
    let (code, made) = send(&node, &in_protobuf(&pem, SERVING, &["digital signature", "server auth"]));
    assert_eq!(code, 201, "{made}");
    let certificate = issued(&node, made["metadata"]["name"].as_str().unwrap());
    std::fs::write(dir.path().join("serving"), certificate).unwrap();
    let text = openssl(dir.path(), &["x509", "-in", "serving", "-noout", "-text"]);
    for expected in
        ["DNS:kubelet-a, IP Address:192.0.2.7", "TLS Web Server Authentication", "system:node:kubelet-a"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let ca = server.data_dir().join("pki/ca.crt").display().to_string();
    openssl(dir.path(), &["verify", "-CAfile", &ca, "-purpose", "sslserver", "serving"]);
    // It renews its client certificate with the old one, in protobuf too.
    let pem = request(dir.path(), "kubelet-a", elliptic, &[]);
    let (code, made) = send(&node, &in_protobuf(&pem, CLIENT, &["digital signature", "client auth"]));
    assert_eq!(code, 201, "{made}");
    let renewed = issued(&node, made["metadata"]["name"].as_str().unwrap());
    let key = std::fs::read_to_string(dir.path().join("key")).unwrap();
    assert!(Caller::with_pem(&server, "renewed", &format!("{renewed}{key}")).whoami().is_ok());

    // What a bootstrap token does not get: a serving certificate, a user's, an administrator's, another usage.
    let undecided = |body: Value| {
        let (code, made) = boot.send("POST", REQUESTS, Some(&body));
        if code != 201 {
            return format!("{code}");
        }
        let place = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap());
        // Controllers have looked at it by the time a later request of somebody else is decided.
        let pem = request(dir.path(), "probe", elliptic, &[]);
        let probe = digested_name(dir.path());
        boot.create(REQUESTS, &in_json(&probe, &pem, &["digital signature", "client auth"]));
        issued(&boot, &probe);
        let (_, request) = Caller::admin(&server).get(&place);
        assert!(request["status"]["certificate"].is_null(), "{request}");
        request["status"]["conditions"][0]["type"].as_str().unwrap_or("undecided").to_owned()
    };
    let with = |name: &str, pem: &str, signer: &str, usages: &[&str]| {
        let mut body = in_json(name, pem, usages);
        body["spec"]["signerName"] = json!(signer);
        body
    };
    let serving = request(dir.path(), "kubelet-z", elliptic, &["-addext", "subjectAltName=DNS:kubelet-z"]);
    assert_eq!(undecided(with("z1", &serving, SERVING, &["digital signature", "server auth"])), "undecided");
    let user = request(dir.path(), "kubelet-z", elliptic, &[]);
    let plain = "kubernetes.io/kube-apiserver-client";
    assert_eq!(undecided(with("z2", &user, plain, &["digital signature", "client auth"])), "undecided");
    assert_eq!(undecided(with("z3", &user, CLIENT, &["digital signature", "server auth"])), "undecided");
    openssl(
        dir.path(),
        &["genpkey", "-out", "key", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
    );
    let master = openssl(dir.path(), &["req", "-new", "-key", "key", "-subj", "/O=system:masters/CN=root"]);
    assert_eq!(undecided(with("z4", &master, plain, &["digital signature", "client auth"])), "403");
    let taken = request(dir.path(), "kubelet-a", elliptic, &[]);
    assert_eq!(undecided(with("z5", &taken, CLIENT, &["digital signature", "client auth"])), "Denied");
}
