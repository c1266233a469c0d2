//! What clients must not be able to do, and what they are told.

use crate::on_both_stores;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::Value;
use std::process::Command;

/// A client that sends what it is told to, with the administrator's certificate.
struct Raw {
    url: String,
    dir: tempfile::TempDir,
}

impl Raw {
    fn new(server: &Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = server.data_dir().join("pki");
        for (from, to) in [("admin.crt", "crt"), ("admin.key", "key"), ("ca.crt", "ca")] {
            std::fs::copy(pki.join(from), dir.path().join(to)).unwrap();
        }
        Self { url: server.url(), dir }
    }

    fn send(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
        let file = self.dir.path().join("body");
        std::fs::write(&file, body).unwrap();
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let output = Command::new("curl")
            .args(["-s", "-X", method, "--cacert", &at("ca"), "--cert", &at("crt"), "--key", &at("key")])
            .args(["-H", &format!("Content-Type: {content_type}"), "-w", "\n%{http_code}"])
            .args(["--data-binary", &format!("@{}", file.display()), &format!("{}{path}", self.url)])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap();
        (code.parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

/// What it is, method, path, content type, body, and the code and reason of the answer.
type Case<'a> = (&'a str, &'a str, String, &'a str, Vec<u8>, u16, &'a str);

#[test]
fn every_refusal_is_a_status_with_its_reason() {
    on_both_stores(refusals);
}

fn refusals(server: &Server) {
    let raw = Raw::new(server);
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let json = "application/json";
    let big = format!(r#"{{"metadata":{{"name":"big"}},"data":{{"a":"{}"}}}}"#, "x".repeat(4 << 20));
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let cases: Vec<Case> = vec![
        ("oversized body", "POST", config_maps.into(), json, big.into_bytes(), 413, "RequestEntityTooLarge"),
        ("malformed JSON", "POST", config_maps.into(), json, b"{\"metadata\":".to_vec(), 400, "BadRequest"),
        ("deep JSON", "POST", config_maps.into(), json, deep.into_bytes(), 400, "BadRequest"),
        (
            "malformed protobuf",
            "POST",
            config_maps.into(),
            "application/vnd.kubernetes.protobuf",
            b"k8s\0\xff\xff\xff".to_vec(),
            400,
            "BadRequest",
        ),
        (
            "not protobuf",
            "POST",
            config_maps.into(),
            "application/vnd.kubernetes.protobuf",
            b"{}".to_vec(),
            400,
            "BadRequest",
        ),
        (
            "wrong kind",
            "POST",
            config_maps.into(),
            json,
            br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            "wrong version",
            "POST",
            config_maps.into(),
            json,
            br#"{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            "unknown resource",
            "GET",
            "/api/v1/namespaces/default/flurbs".into(),
            json,
            vec![],
            404,
            "NotFound",
        ),
        ("unknown group", "GET", "/apis/nobody.io/v1/flurbs".into(), json, vec![], 404, "NotFound"),
        (
            "bad label selector",
            "GET",
            format!("{config_maps}?labelSelector=a%20b%20c"),
            json,
            vec![],
            400,
            "BadRequest",
        ),
        (
            "bad field selector",
            "GET",
            format!("{config_maps}?fieldSelector=data.a%3D1"),
            json,
            vec![],
            400,
            "BadRequest",
        ),
        (
            "bad name",
            "POST",
            config_maps.into(),
            json,
            br#"{"metadata":{"name":"Not_A_Name"}}"#.to_vec(),
            422,
            "Invalid",
        ),
        ("no name", "POST", config_maps.into(), json, br#"{"metadata":{}}"#.to_vec(), 422, "Invalid"),
        (
            "other namespace",
            "POST",
            config_maps.into(),
            json,
            br#"{"metadata":{"name":"a","namespace":"other"}}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            "a merge patch that is no object",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/merge-patch+json",
            b"[1]".to_vec(),
            400,
            "BadRequest",
        ),
        (
            "a strategic patch that is no object",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/strategic-merge-patch+json",
            b"[1]".to_vec(),
            400,
            "BadRequest",
        ),
        (
            "a JSON patch that leaves no object",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/json-patch+json",
            br#"[{"op":"replace","path":"","value":1}]"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            "a JSON patch of no operation there is",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/json-patch+json",
            br#"[{"op":"leap","path":"/data"}]"#.to_vec(),
            422,
            "Invalid",
        ),
        (
            "a JSON patch that is no list",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/json-patch+json",
            br#"{"op":"add"}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            "a patch to another kind",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/merge-patch+json",
            br#"{"kind":"Secret"}"#.to_vec(),
            422,
            "Invalid",
        ),
        (
            "a patch to another version",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/json-patch+json",
            br#"[{"op":"replace","path":"/apiVersion","value":"v9"}]"#.to_vec(),
            422,
            "Invalid",
        ),
        (
            "an apply of another kind",
            "PATCH",
            format!("{config_maps}/kept?fieldManager=me"),
            "application/apply-patch+yaml",
            b"apiVersion: v1\nkind: Secret\n".to_vec(),
            400,
            "BadRequest",
        ),
        (
            "an apply by nobody",
            "PATCH",
            format!("{config_maps}/kept"),
            "application/apply-patch+yaml",
            b"apiVersion: v1\nkind: ConfigMap\n".to_vec(),
            422,
            "Invalid",
        ),
        (
            "an update of a Lease without a version",
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/kept".into(),
            json,
            br#"{"metadata":{"name":"kept"}}"#.to_vec(),
            422,
            "Invalid",
        ),
        ("a method of no use", "OPTIONS", config_maps.into(), json, vec![], 405, "MethodNotAllowed"),
        ("a write to discovery", "POST", "/apis".into(), json, b"{}".to_vec(), 405, "MethodNotAllowed"),
        (
            "unknown media type",
            "POST",
            config_maps.into(),
            "text/html",
            b"<p>".to_vec(),
            415,
            "UnsupportedMediaType",
        ),
        (
            "unknown patch type",
            "PATCH",
            format!("{config_maps}/a"),
            "text/html",
            b"<p>".to_vec(),
            415,
            "UnsupportedMediaType",
        ),
        (
            "broken continue",
            "GET",
            format!("{config_maps}?limit=1&continue=zzz"),
            json,
            vec![],
            400,
            "BadRequest",
        ),
        (
            "future version",
            "GET",
            format!("{config_maps}?resourceVersion=99999999"),
            json,
            vec![],
            504,
            "Timeout",
        ),
        (
            "no such verb",
            "POST",
            "/api/v1/namespaces/default/configmaps/a".into(),
            json,
            b"{}".to_vec(),
            405,
            "MethodNotAllowed",
        ),
        no_method("GET", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        no_method("PUT", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        no_method("GET", "/api/v1/namespaces/default/pods/a/eviction"),
        no_method("GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        no_method("PUT", "/api/v1/namespaces/default/pods"),
        no_method("PATCH", "/api/v1/namespaces/default/configmaps"),
        no_method("POST", "/api/v1/componentstatuses"),
        (
            "namespaces in a namespace",
            "GET",
            "/api/v1/namespaces/default/namespaces".into(),
            json,
            vec![],
            404,
            "NotFound",
        ),
        (
            "a namespace in itself",
            "GET",
            "/api/v1/namespaces/default/namespaces/default".into(),
            json,
            vec![],
            404,
            "NotFound",
        ),
        (
            "no name to replace",
            "PUT",
            format!("{config_maps}/kept"),
            json,
            br#"{"metadata":{}}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            "a manager nobody can print",
            "PUT",
            format!("{config_maps}/kept?fieldManager=%01"),
            json,
            br#"{"metadata":{"name":"kept"}}"#.to_vec(),
            422,
            "Invalid",
        ),
        (
            "another name to apply",
            "PATCH",
            format!("{config_maps}/one?fieldManager=me"),
            "application/apply-patch+yaml",
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two"}}"#.to_vec(),
            400,
            "BadRequest",
        ),
    ];
    for path in [config_maps, "/apis/coordination.k8s.io/v1/namespaces/default/leases"] {
        let (made, why) = raw.send("POST", path, json, br#"{"metadata":{"name":"kept"}}"#);
        assert_eq!(made, 201, "{why}");
    }
    for (what, method, path, content_type, body, code, reason) in cases {
        let (got, status) = raw.send(method, &path, content_type, &body);
        assert_eq!((got, status["reason"].as_str()), (code, Some(reason)), "{what}: {status}");
        assert_eq!(status["kind"], "Status", "{what}");
        assert_eq!(status["code"], code, "{what}");
        let last = status.as_object().and_then(|fields| fields.keys().next_back());
        assert_eq!(last.map(String::as_str), Some("code"), "{what}");
    }
    let (code, _) = raw.send("GET", "/readyz", json, b"");
    assert_eq!(code, 200, "the server goes on");
}

/// What an address does not do, whatever is sent.
fn no_method<'a>(method: &'a str, path: &str) -> Case<'a> {
    let body = b"{}".to_vec();
    ("no such method", method, path.to_owned(), "application/json", body, 405, "MethodNotAllowed")
}

#[test]
fn who_may_only_read_runs_nothing() {
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    kubectl.run("create clusterrole reads --verb=get,list,watch --resource=*.*");
    kubectl.run("create clusterrole runs --verb=get,create --resource=pods/exec");
    kubectl.run("create clusterrolebinding reads --clusterrole=reads --user=reader --user=runner");
    kubectl.run("create clusterrolebinding runs --clusterrole=runs --user=runner");
    let exec = "get --raw /api/v1/namespaces/default/pods/a/exec?command=id";
    let said = kubectl.fails(&format!("--as=reader {exec}"));
    assert!(said.contains("cannot create resource \"pods/exec\""), "{said}");
    let said = kubectl.fails(&format!("--as=runner {exec}"));
    assert!(said.contains("pods \"a\" not found"), "{said}");
}

#[test]
fn exported_objects_are_not_created_with_their_version() {
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    // kubectl takes it out of what it creates; others do not.
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"7"}}"#;
    let refused = kubectl.try_with("create --raw /api/v1/namespaces/default/configmaps -f -", object);
    let why = "resourceVersion should not be set on objects to be created";
    assert!(refused.err.contains(why), "{}", refused.err);
}

#[test]
fn nobody_gets_in_without_a_name() {
    let server = Server::with(&["--api-only"]);
    let code = |path: &str| {
        let url = format!("{}{path}", server.url());
        let output = Command::new("curl")
            .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", &url])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(code("/healthz"), "200");
    assert_eq!(code("/version"), "200");
    for path in ["/api", "/api/v1/pods", "/metrics", "/openapi/v2", "/apis/apps/v1/deployments"] {
        assert_eq!(code(path), "401", "{path}");
    }
}

#[test]
fn strict_validation_names_the_field() {
    let server = Server::with(&["--api-only", "--disable-admission-plugins", "ServiceAccount"]);
    let kubectl = newest(&server.kubeconfig());
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  flavour: x\n  containers:\n  - {name: c, image: i}\n";
    let refused = kubectl.try_with("create --validate=strict -f -", pod);
    assert!(refused.err.contains("unknown field \"spec.flavour\""), "{}", refused.err);
    let incomplete = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: c}\n";
    let refused = kubectl.try_with("create -f -", incomplete);
    assert!(refused.err.contains("spec.containers[0].image: Required value"), "{}", refused.err);
}
