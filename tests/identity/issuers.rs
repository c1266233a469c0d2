//! Tokens of several OpenID Connect providers, configured by an AuthenticationConfiguration.

use crate::caller::Caller;
use crate::provider::{Key, now, provider};
use coracle_tests::eventually;
use coracle_tests::https::Https;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
/// A provider is not asked for its keys again within ten seconds.
const KEYS: Duration = Duration::from_secs(60);

fn file(https: &[(&Https, Value)]) -> Value {
    let authenticators: Vec<Value> = https
        .iter()
        .map(|(https, rest)| {
            let mut one = rest.clone();
            one["issuer"]["url"] = json!(https.url("/tenant"));
            one["issuer"]["certificateAuthority"] = json!(https.authority());
            one
        })
        .collect();
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": authenticators,
        "anonymous": {"enabled": true, "conditions": [{"path": "/healthz"}, {"path": "/livez"}, {"path": "/readyz"}]}})
}

/// People, whom claims name.
fn people() -> Value {
    json!({"issuer": {"audiences": ["cluster"]},
        "claimValidationRules": [{"claim": "hd", "requiredValue": "example.com"},
            {"expression": "claims.exp - claims.iat <= 3600", "message": "tokens live for an hour"}],
        "claimMappings": {"username": {"claim": "sub", "prefix": "people:"}, "groups": {"claim": "roles", "prefix": "team:"}},
        "userValidationRules": [{"expression": "!user.groups.exists(g, g == 'team:guests')", "message": "no guests"}]})
}

/// Machines, whom expressions name.
fn machines() -> Value {
    json!({"issuer": {"audiences": ["cluster", "builds"], "audienceMatchPolicy": "MatchAny"},
        "claimMappings": {"username": {"expression": "'ci:' + claims.repository.replace('/', ':')"},
            "groups": {"expression": "claims.environments.map(e, 'ci:' + e.name)"},
            "uid": {"expression": "claims.?run.orValue('none')"},
            "extra": [{"key": "example.com/branch", "valueExpression": "claims.?branch.orValue('')"}]}})
}

/// Puts a file in the place of another, as configuration tools do.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, path).unwrap();
}

fn changed(mut claims: Value, change: &Value) -> Value {
    for (key, value) in change.as_object().unwrap() {
        claims[key] = value.clone();
    }
    claims
}

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().chain(&["system:authenticated"]).map(|name| (*name).to_owned()).collect()
}

#[test]
fn users_of_several_providers_log_in_with_the_names_that_the_file_gives_them() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("authentication.yaml");
    // Both call their key by the same name.
    let (first, second, later) = (Key::rsa("key"), Key::ec("key"), Key::rsa("later"));
    let (people_at, people_keys) = provider(vec![first.published()]);
    let (machines_at, _) = provider(vec![second.published()]);
    replace(&path, &file(&[(&people_at, people()), (&machines_at, machines())]).to_string());
    let server = Server::with(&["--api-only", "--authentication-config", &path.display().to_string()]);
    let who = |token: &str| Caller::bearer(&server, token).whoami();
    let person = |change: Value| {
        let claims = json!({"iss": people_at.url("/tenant"), "aud": "cluster", "sub": "ann", "iat": now(),
            "exp": now() + 600, "hd": "example.com", "roles": ["dev"]});
        changed(claims, &change)
    };
    let machine = |change: Value| {
        let claims = json!({"iss": machines_at.url("/tenant"), "aud": ["builds", "other"], "sub": "7", "exp": now() + 600,
            "repository": "shop/cart", "environments": [{"name": "prod"}], "branch": "main"});
        changed(claims, &change)
    };
    let ann = Ok(("people:ann".to_owned(), groups(&["team:dev"])));
    let build = Ok(("ci:shop:cart".to_owned(), groups(&["ci:prod"])));
    assert_eq!(who(&first.sign(&person(json!({})))), ann);
    assert_eq!(who(&second.sign(&machine(json!({})))), build);

    // As users see it: roles of mapped groups, and `kubectl auth whoami`.
    // An empty configuration: nobody else's certificate.
    let kubectl = newest(&files.path().join("none.kubeconfig"));
    let ca = server.data_dir().join("pki/ca.crt").display().to_string();
    let kubectl = |token: &str, args: &[&str]| {
        let access = ["--server", &server.url(), "--certificate-authority", &ca, "--token", token];
        kubectl.with_input(&[&access, args].concat(), "")
    };
    Caller::admin(&server).create(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        &json!({"metadata": {"name": "ci"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "view"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ci:prod"}]}),
    );
    let token = second.sign(&machine(json!({"run": "42", "jti": "a1"})));
    let whoami = kubectl(&token, &["auth", "whoami", "-o", "json"]);
    assert!(whoami.ok, "{whoami:?}");
    let info = &serde_json::from_str::<Value>(&whoami.out).unwrap()["status"]["userInfo"];
    assert_eq!((&info["username"], &info["uid"]), (&json!("ci:shop:cart"), &json!("42")));
    assert_eq!(info["extra"]["example.com/branch"], json!(["main"]));
    assert_eq!(info["extra"]["authentication.kubernetes.io/credential-id"], json!(["JTI=a1"]));
    eventually("the role counts", SOON, || kubectl(&token, &["get", "pods"]).ok);
    let said = kubectl(&first.sign(&person(json!({}))), &["get", "pods"]);
    assert!(!said.ok && said.err.contains("User \"people:ann\" cannot list resource \"pods\""), "{said:?}");

    let refused = [
        ("another audience", first.sign(&person(json!({"aud": "builds"})))),
        ("no audience", first.sign(&person(json!({"aud": null})))),
        ("expired", first.sign(&person(json!({"exp": now() - 60})))),
        ("a claim with another value", first.sign(&person(json!({"hd": "example.org"})))),
        ("a claim that is missing", first.sign(&person(json!({"hd": null})))),
        ("a rule for claims", first.sign(&person(json!({"exp": now() + 7200})))),
        ("a rule for users", first.sign(&person(json!({"roles": ["dev", "guests"]})))),
        ("groups that are no text", first.sign(&person(json!({"roles": ["dev", 7]})))),
        ("no name", first.sign(&person(json!({"sub": null})))),
        ("an expression without its claim", second.sign(&machine(json!({"repository": null})))),
        ("an expression of another type", second.sign(&machine(json!({"environments": [{"name": 1}]})))),
        ("the key of the other provider", second.sign(&person(json!({})))),
        ("the key of the other provider again", first.sign(&machine(json!({})))),
        (
            "a provider that is not configured",
            first.sign(&person(json!({"iss": "https://elsewhere.example.com"}))),
        ),
    ];
    for (what, token) in refused.into_iter().chain(first.forged(&person(json!({})))) {
        assert_eq!(who(&token), Err(401), "{what}");
    }
    assert!(server.log().contains("jwt[0].userValidationRules[0].expression: no guests"), "the log says why");
    assert!(!server.log().contains("example.org"), "the log has nothing of tokens");

    // The provider changes its key.
    *people_keys.lock().unwrap() = vec![later.published()];
    let token = later.sign(&person(json!({})));
    eventually("the new key counts", KEYS, || who(&token) == ann);
    assert_eq!(who(&first.sign(&person(json!({})))), Err(401), "the old key");

    let metrics = Caller::admin(&server).get("/metrics").1;
    let metrics = metrics.as_str().unwrap();
    for metric in [
        "apiserver_authentication_jwt_authenticator_latency_seconds_count{result=\"failure\",jwt_issuer_hash=\"sha256:",
        "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{jwt_issuer_hash=\"sha256:",
        "apiserver_authentication_config_controller_last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
}

#[test]
fn the_file_is_followed_and_only_its_paths_are_open_to_everybody() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("authentication.yaml");
    let key = Key::ec("key");
    let (https, _) = provider(vec![key.published()]);
    let first = file(&[(&https, people())]);
    replace(&path, &first.to_string());
    let server = Server::with(&["--api-only", "--authentication-config", &path.display().to_string()]);
    let nobody = |path: &str| Caller::nobody(&server).get(path).0;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(nobody(path), 200, "{path}");
    }
    for path in ["/version", "/livez/ping", "/api", "/api/v1/pods", "/metrics"] {
        assert_eq!(nobody(path), 401, "{path}");
    }
    assert_eq!(
        Caller::bearer(&server, "a.b.c").get("/healthz").0,
        401,
        "bad credentials are rejected everywhere"
    );

    let claims = json!({"iss": https.url("/tenant"), "aud": "cluster", "sub": "ann", "iat": now(), "exp": now() + 600,
        "hd": "example.com"});
    let name = || Caller::bearer(&server, &key.sign(&claims)).whoami().map(|(name, _)| name);
    assert_eq!(name(), Ok("people:ann".into()));
    let reloads = |status: &str| {
        let text = Caller::admin(&server).get("/metrics").1;
        let start = format!(
            "apiserver_authentication_config_controller_automatic_reloads_total{{status=\"{status}\""
        );
        let line = text.as_str().unwrap().lines().find(|line| line.starts_with(&start)).unwrap().to_owned();
        line.rsplit_once(' ').unwrap().1.to_owned()
    };
    let mut renamed = first.clone();
    renamed["jwt"][0]["claimMappings"]["username"]["prefix"] = json!("staff:");
    replace(&path, &renamed.to_string());
    eventually("the new prefix counts", SOON, || name() == Ok("staff:ann".into()));
    assert_eq!((reloads("success"), reloads("failure")), ("1".into(), "0".into()));

    // Files that cannot be used change nothing.
    let mut wrong = first.clone();
    wrong["jwt"][0]["claimMappings"]["username"]["expression"] = json!("claims.sub");
    replace(&path, &wrong.to_string());
    eventually("the log names the field", SOON, || {
        server.log().contains("jwt[0].claimMappings.username: Invalid value")
    });
    let mut open = first.clone();
    open["anonymous"] = json!({"enabled": true});
    replace(&path, &open.to_string());
    eventually("the log names the change", SOON, || {
        server.log().contains("anonymous: Forbidden: changed from initial configuration file")
    });
    replace(&path, "kind: [");
    eventually("it is counted", SOON, || reloads("failure") == "3");
    assert_eq!(name(), Ok("staff:ann".into()));
    assert_eq!(nobody("/version"), 401);
    std::fs::remove_file(&path).unwrap();
    let gone = format!("cannot read {}", path.display());
    eventually("the log says that it is gone", SOON, || server.log().contains(&gone));
    eventually("it is counted", SOON, || reloads("failure") == "4");
    assert_eq!(name(), Ok("staff:ann".into()));

    let mut none = first;
    none["jwt"] = json!([]);
    replace(&path, &none.to_string());
    eventually("no provider is left", SOON, || name() == Err(401));
}
