//! Servers that join a cluster on a shared etcd with a token, and those that must not.

use crate::caller::{Caller, account_token, token};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_pki::authority::{Authority, Profile};
use coracle_pki::server_token::{Claim, ServerToken};
use coracle_tests::etcd::Etcd;
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SHARED: [&str; 6] =
    ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sealing.key"];

fn store(etcd: &Etcd) -> String {
    format!("etcd://{}", etcd.address)
}

/// A command of the program with the kubeconfig of a server: whether it worked, and what it printed.
fn coracle(server: &Server, args: &[&str]) -> (bool, String) {
    let output = Command::new(program("coracle"))
        .args(args)
        .arg("--kubeconfig")
        .arg(server.kubeconfig())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

fn server_token(server: &Server, more: &[&str]) -> String {
    let kubeconfig = server.kubeconfig().display().to_string();
    token(server, &[&["--server", "--kubeconfig", &kubeconfig], more].concat())
}

/// Starts a server that must not start, and returns what it says. Its directory has no keys afterwards.
fn refused(flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let said = ends(dir.path(), flags);
    let left = std::fs::read_dir(dir.path().join("pki")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is written: {said}");
    assert!(!dir.path().join("pki.joining").exists());
    said
}

fn ends(dir: &Path, flags: &[&str]) -> String {
    let log = dir.join("log");
    let mut child = Command::new(program("coracle"))
        .args(["server", "--bind", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .args(flags)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if begun.elapsed() > Duration::from_secs(60) => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(status.is_some_and(|status| !status.success()), "it starts with {flags:?}: {said}");
    said
}

fn file(server: &Server, name: &str) -> Vec<u8> {
    std::fs::read(server.data_dir().join("pki").join(name)).unwrap()
}

#[test]
fn a_server_joins_with_a_token_and_is_one_of_the_cluster() {
    let etcd = Etcd::start();
    let store = store(&etcd);
    let files = tempfile::tempdir().unwrap();
    let [policy, audit] = ["policy", "audit"].map(|name| files.path().join(name).display().to_string());
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n";
    std::fs::write(&policy, rules).unwrap();
    let first = Server::with(&[
        "--api-only",
        "--datastore",
        &store,
        "--advertise",
        "192.0.2.1",
        "--audit-policy-file",
        &policy,
        "--audit-log-path",
        &audit,
    ]);
    let port = first.url().rsplit(':').next().unwrap().to_owned();
    let bind = |number: u8| format!("127.0.0.{number}:{port}");
    let text = server_token(&first, &["--description", "for the second"]);
    let secret = text.rsplit('.').next().unwrap();
    let id = ServerToken::parse(&text).unwrap().id().to_owned();
    let (worked, list) = coracle(&first, &["token", "list"]);
    let row = list.lines().find(|line| line.starts_with(&id)).unwrap_or_default().to_owned();
    assert!(worked && row.contains(" server ") && row.ends_with("for the second"), "{list}");
    assert!(!list.contains(secret), "{list}");

    let (bound, url) = (bind(2), first.url());
    let flags = ["--api-only", "--datastore", &store, "--bind", &bound, "--advertise", "192.0.2.2"];
    let mut second = Server::with(&[&flags[..], &["--join", &url, "--token", &text]].concat());
    assert!(second.log().contains("joined the cluster"), "{}", second.log());
    for name in SHARED {
        assert_eq!(file(&first, name), file(&second, name), "{name}");
        let path = second.data_dir().join("pki").join(name);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_ne!(file(&first, "apiserver.key"), file(&second, "apiserver.key"), "each has a key of its own");

    one_cluster(&first, &second);
    nothing_to_read(&etcd, &first, &text);
    let written = || std::fs::read_to_string(&audit).unwrap();
    eventually("the audit log has the token and the server", Duration::from_secs(30), || {
        ["/coracle/v1/server-tokens", "/coracle/v1/join\""].iter().all(|path| written().contains(path))
    });
    assert!(!written().contains(secret), "the audit log has the secret of a token");

    // A token is used by as many servers as its owner starts; the environment can have it.
    let bound = bind(3);
    let flags = ["--api-only", "--datastore", &store, "--bind", &bound, "--join", &url];
    let third = Server::with_environment(&flags, &[("CORACLE_TOKEN", &text)]);
    assert_eq!(file(&first, "ca.key"), file(&third, "ca.key"));

    // The second one has joined: it starts again without the first, and without the token being valid.
    let (worked, said) = coracle(&first, &["token", "delete", &text]);
    assert!(worked && said.contains(&format!("token {id} revoked")), "{said}");
    assert!(!coracle(&first, &["token", "list"]).1.contains(&id));
    second.stop();
    drop(first);
    second.restart();
    assert!(!second.log().contains("joined the cluster"), "{}", second.log());
    assert_eq!(Caller::admin(&second).get("/api/v1/namespaces/default").0, 200);
}

/// Identities of one server are those of the other, and clients are led to both.
fn one_cluster(first: &Server, second: &Server) {
    let copy = second.data_dir().join("kubeconfig-of-the-first");
    let text = std::fs::read_to_string(first.kubeconfig()).unwrap();
    assert!(text.contains(&first.url()));
    std::fs::write(&copy, text.replace(&first.url(), &second.url())).unwrap();
    let list = Command::new(program("coracle")).args(["token", "list", "--kubeconfig"]).arg(&copy).output();
    let list = list.unwrap();
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    for (one, other) in [(first, second), (second, first)] {
        let robot = account_token(one, "default", "robot", json!({}));
        let (name, _) = Caller::bearer(other, &robot).whoami().unwrap();
        assert_eq!(name, "system:serviceaccount:default:robot");
    }
    let admin = Caller::admin(first);
    eventually("default/kubernetes lists both servers", Duration::from_secs(30), || {
        let (_, found) = admin.get("/api/v1/namespaces/default/endpoints/kubernetes");
        let addresses = found["subsets"][0]["addresses"].as_array().cloned().unwrap_or_default();
        let mut addresses: Vec<&str> = addresses.iter().filter_map(|one| one["ip"].as_str()).collect();
        addresses.sort_unstable();
        addresses == ["192.0.2.1", "192.0.2.2"]
    });
}

/// Who reads etcd finds neither keys nor the token.
fn nothing_to_read(etcd: &Etcd, first: &Server, text: &str) {
    let token = ServerToken::parse(text).unwrap();
    let keys = etcd.get("/coracle/cluster-keys");
    let record = etcd.get(&format!("/coracle/server-tokens/{}", token.id()));
    assert!(keys.contains("AES-256-GCM") && record.contains("for the second"), "{keys} {record}");
    let sealing = String::from_utf8(file(first, "sealing.key")).unwrap();
    let secret = text.rsplit('.').next().unwrap();
    let begin = STANDARD.encode("-----BEGIN PRIVATE KEY");
    for stored in [&keys, &record] {
        assert!(!stored.contains(secret) && !stored.contains(sealing.trim()), "{stored}");
        assert!(!stored.contains("PRIVATE KEY") && !stored.contains(&begin[..24]), "{stored}");
    }
}

#[test]
fn a_rotated_ca_reaches_every_server() {
    let etcd = Etcd::start();
    let store = store(&etcd);
    let flags = ["--api-only", "--datastore", &store];
    let first = Server::with(&[&flags[..], &["--advertise", "192.0.2.1"]].concat());
    let bound = format!("127.0.0.2:{}", first.url().rsplit(':').next().unwrap());
    let (url, text) = (first.url(), server_token(&first, &[]));
    let join = ["--bind", &bound, "--advertise", "192.0.2.2", "--join", &url, "--token", &text];
    let mut second = Server::with(&[&flags[..], &join].concat());
    let step = |server: &Server, step: &str| {
        let path = format!("/coracle/v1/ca/{step}");
        let (code, answer) = Caller::admin(server).send("POST", &path, Some(&json!({})));
        assert_eq!(code, 200, "{step}: {answer}");
    };
    let same = |second: &Server| {
        ["ca.crt", "ca.key", "ca-cross.crt", "ca-next.key"].iter().all(|name| {
            let read = |server: &Server| std::fs::read(server.data_dir().join("pki").join(name)).ok();
            read(&first) == read(second)
        })
    };
    let patience = Duration::from_secs(60);
    let old = Caller::certified(&first, "ann", &[]);
    step(&first, "prepare");
    eventually("the second one follows", patience, || same(&second));
    // Any of them makes the next step.
    step(&second, "switch");
    eventually("the first one follows", patience, || same(&second));
    assert!(old.whoami().is_ok(), "the old CA is trusted");
    let pki = first.data_dir().join("pki");
    let signed = Authority::ensure(&pki, "ca", "test").unwrap().sign(&Profile::client("eve", &[])).unwrap();
    let eve = Caller::with_pem(&second, "eve", &format!("{}{}", signed.certificate, signed.key));
    eventually("certificates of the first count at the second", patience, || eve.whoami().is_ok());
    // One that is down follows when it starts.
    second.stop();
    step(&first, "finish");
    second.restart();
    assert!(same(&second), "{}", second.log());
    assert!(second.log().contains("the CA of the cluster was rotated"), "{}", second.log());
    assert!(eve.whoami().is_ok());
    // The token in its options is of the old CA.
    second.stop();
    second.restart();
    assert!(eve.whoami().is_ok());
    eventually("certificates of the old CA are refused", patience, || old.whoami().is_err());
}

#[test]
fn servers_without_the_right_token_change_nothing() {
    let etcd = Etcd::start();
    let store = store(&etcd);
    let first = Server::with(&["--api-only", "--datastore", &store]);
    let url = first.url();
    let good = server_token(&first, &[]);
    let short = server_token(&first, &["--ttl", "1s"]);
    let flags = |token: &str, more: &[&str]| -> Vec<String> {
        let all = ["--api-only", "--join", &url, "--token", token, "--join-timeout", "20"];
        all.iter().chain(more).map(|flag| (*flag).to_owned()).collect()
    };
    let on_etcd = ["--datastore", &store];
    let says = |flags: Vec<String>, words: &[&str]| {
        let said = refused(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        for word in words {
            assert!(said.contains(word), "{word:?} expected: {said}");
        }
    };
    // Not without a token, though the store is the right one.
    says(on_etcd.map(str::to_owned).to_vec(), &["belongs to a cluster whose CA is sha256:", "--join"]);
    let no_token = ["--join", &url, "--datastore", &store].map(str::to_owned);
    says(no_token.to_vec(), &["takes a token", "coracle token create --server"]);
    let node = token(&first, &[]);
    says(flags(&node, &on_etcd), &["this is a token for nodes"]);
    says(flags("nonsense", &on_etcd), &["this is no token for servers"]);
    let (head, secret) = good.rsplit_once('.').unwrap();
    let wrong = format!("{head}.{}", secret.chars().rev().collect::<String>());
    says(flags(&wrong, &on_etcd), &["refuses the token", "server token is wrong or was deleted"]);
    let hash = ServerToken::parse(&good).unwrap().ca_hash().trim_start_matches("sha256:").to_owned();
    let other = good.replace(&hash, &"ab".repeat(32));
    says(flags(&other, &on_etcd), &["does not match the token", &hash, &"ab".repeat(32)]);
    // The datastore of the cluster, and no other.
    says(flags(&good, &[]), &["give it the --datastore of the cluster", &etcd.address]);
    let elsewhere = [&on_etcd[..], &["--etcd-prefix", "/elsewhere"]].concat();
    says(flags(&good, &elsewhere), &["is not the datastore of the cluster"]);
    // It was made before all of the above: its second is over.
    std::thread::sleep(Duration::from_secs(2));
    let id = ServerToken::parse(&short).unwrap().id().to_owned();
    says(flags(&short, &on_etcd), &["refuses", &format!("server token {id} expired at ")]);
    let nowhere = ["--join", "https://127.0.0.1:1", "--token", &good, "--join-timeout", "1"];
    let nowhere = [&nowhere[..], &on_etcd].concat().into_iter().map(str::to_owned);
    says(nowhere.collect(), &["could not join within 1 s", "https://127.0.0.1:1/ cannot be reached"]);
    another_cluster(&flags(&good, &on_etcd));
    by_hand(&first, &good);
}

/// A server of another cluster keeps its keys.
fn another_cluster(flags: &[String]) {
    let mut other = Server::with(&["--api-only"]);
    let before = file(&other, "ca.key");
    other.stop();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let said = ends(other.data_dir(), &flags);
    assert!(said.contains("belongs to another cluster: its CA is sha256:"), "{said}");
    // Without --join, the datastore is not its own either.
    let at = flags.iter().position(|flag| *flag == "--datastore").unwrap();
    let said = ends(other.data_dir(), &["--api-only", "--datastore", flags[at + 1]]);
    assert!(said.contains("the datastore belongs to a cluster whose CA is sha256:"), "{said}");
    assert_eq!(file(&other, "ca.key"), before);
    assert!(!other.data_dir().join("pki/sealing.key").exists());
}

/// What a server sees that is not what it should be: another version, forged proofs, strangers.
fn by_hand(first: &Server, text: &str) {
    let (nobody, token) = (Caller::nobody(first), ServerToken::parse(text).unwrap());
    let join = |version: &str, change: &dyn Fn(&mut Value)| {
        let (code, begun) = nobody.send("POST", "/coracle/v1/join/challenge", Some(&json!({})));
        assert_eq!(code, 200, "{begun}");
        let challenge = begun["challenge"].as_str().unwrap();
        let claim = Claim { challenge, ca_hash: token.ca_hash(), version, format: 1 };
        let mut body = json!({"id": token.id(), "challenge": challenge, "proof": token.prove(&claim),
            "version": version, "format": 1});
        change(&mut body);
        let (code, answer) = nobody.send("POST", "/coracle/v1/join", Some(&body));
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(join(own, &|_| ()).0, 200);
    let (code, said) = join("0.0.1", &|_| ());
    assert!(code == 409 && said.contains("0.0.1") && said.contains(own), "{code} {said}");
    let (code, said) = join("99.0.0", &|_| ());
    assert!(code == 409 && said.contains("upgrade the cluster first"), "{code} {said}");
    assert_eq!(join(own, &|body| body["version"] = json!("0.1.99")).0, 401);
    assert_eq!(join(own, &|body| body["proof"] = json!(STANDARD.encode([7; 32]))).0, 401);
    assert_eq!(join(own, &|body| body["id"] = json!("../../registry/secrets")).0, 401);
    assert_eq!(join(own, &|body| body["challenge"] = json!("AAAA")).0, 401);
    assert_eq!(join(own, &|body| body["more"] = json!(1)).0, 400);
    assert_eq!(join(own, &|body| body["proof"] = json!("A".repeat(20_000))).0, 413);
    assert_eq!(nobody.get("/coracle/v1/join").0, 405);
    let robot = Caller::bearer(first, &account_token(first, "default", "robot", json!({})));
    for caller in [&nobody, &robot] {
        for (method, path) in [("GET", ""), ("POST", ""), ("DELETE", &*format!("/{}", token.id()))] {
            let path = format!("/coracle/v1/server-tokens{path}");
            let body = json!({"ttlSeconds": 60});
            let (code, _) = caller.send(method, &path, Some(&body));
            assert!(matches!(code, 401 | 403), "{method} {path}: {code}");
        }
    }
    let admin = Caller::admin(first);
    assert_eq!(admin.get("/coracle/v1/server-tokens").0, 200);
    assert_eq!(admin.send("DELETE", "/coracle/v1/server-tokens/zzzzzzzz", None).0, 404);
    let (code, answer) = admin.send("DELETE", "/coracle/v1/server-tokens/..%2fformat", None);
    assert!(code >= 400, "{code} {answer}");
    // Many at once are too many. They are sent on one connection, far faster than they are allowed.
    let url = format!("{}/coracle/v1/join/challenge", first.url());
    let mut curl = Command::new("curl");
    curl.args(["-s", "-X", "POST", "-d", "{}", "-w", "\n%{http_code}\n", "--cacert"]);
    curl.arg(first.data_dir().join("pki/ca.crt")).args(vec![url; 300]);
    let answers = String::from_utf8(curl.output().unwrap().stdout).unwrap();
    assert!(answers.lines().any(|line| line == "429"), "attempts are limited: {answers}");
}

#[test]
fn a_server_of_a_cluster_does_not_begin_another_one_on_an_empty_datastore() {
    let etcd = Etcd::start();
    let store = store(&etcd);
    let mut server = Server::with(&["--api-only", "--datastore", &store]);
    let admin = Caller::admin(&server);
    let map = json!({"metadata": {"name": "kept"}});
    admin.create("/api/v1/namespaces/default/configmaps", &map);
    server.stop();
    let typo = ["--api-only", "--datastore", &store, "--etcd-prefix", "/typo"];
    // The second time, too: the first one has left nothing under the prefix.
    for _ in 0..2 {
        let said = ends(server.data_dir(), &typo);
        for words in
            ["pki/sealing.key", &*etcd.address, "--etcd-prefix /typo is empty", "--allow-empty-datastore"]
        {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    server.restart();
    assert_eq!(admin.get("/api/v1/namespaces/default/configmaps/kept").0, 200);
    server.stop();
    server.restart_with(&["--etcd-prefix", "/typo", "--allow-empty-datastore"]);
    assert_eq!(
        admin.get("/api/v1/namespaces/default/configmaps/kept").0,
        404,
        "another cluster, the same keys"
    );
    server.stop();
    server.restart_with(&["--etcd-prefix", "/typo"]);
}

#[test]
fn a_first_start_that_is_killed_can_be_repeated() {
    let etcd = Etcd::start();
    let store = store(&etcd);
    let flags = ["--api-only", "--datastore", &store];
    let dir = tempfile::tempdir().unwrap();
    // Wherever the server is by then; in the end it was killed everywhere from the keys to the first objects.
    for after in [10, 20, 30, 40, 50, 60, 80, 100, 150, 200, 300] {
        let mut child = Command::new(program("coracle"))
            .args(["server", "--bind", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path())
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let first = Server::in_directory(dir, &flags, &[]);
    assert!(first.data_dir().join("pki/sealing.key").exists());
    assert!(!first.data_dir().join("pki/sealing.key.pending").exists());
    // Which needs the key that has sealed the keys in the store.
    let text = server_token(&first, &[]);
    let url = first.url();
    let second = Server::with(&[&flags[..], &["--join", &url, "--token", &text]].concat());
    assert_eq!(file(&first, "ca.key"), file(&second, "ca.key"));
}

#[test]
fn a_server_with_an_embedded_datastore_stays_alone() {
    let first = Server::with(&["--api-only", "--datastore", "embedded"]);
    let (worked, said) = coracle(&first, &["token", "create", "--server"]);
    assert!(!worked && said.contains("embedded datastore, which only one server can use"), "{said}");
    let hash =
        coracle_pki::authority::Authority::ensure(&first.data_dir().join("pki"), "ca", "x").unwrap().hash();
    let made_up = ServerToken::generate(&hash).unwrap().text();
    let etcd = Etcd::start();
    let said =
        refused(&["--datastore", &store(&etcd), "--join", &first.url(), "--token", &made_up, "--api-only"]);
    assert!(said.contains("embedded datastore, which only one server can use"), "{said}");
    assert!(!first.data_dir().join("pki/sealing.key").exists(), "one server shares nothing");
}

#[test]
fn keys_of_encryption_at_rest_come_along() {
    let etcd = Etcd::start();
    let store = store(&etcd);
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("encryption").display().to_string();
    // All resources: what servers keep for themselves is encrypted otherwise, and must still be readable.
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['*.*']\n  \
         providers: [{{aesgcm: {{keys: [{{name: one, secret: {}}}]}}}}]\n",
        STANDARD.encode([1; 32])
    );
    std::fs::write(&config, &text).unwrap();
    let flags = ["--api-only", "--datastore", &store];
    let first = Server::with(&[&flags[..], &["--encryption-provider-config", &config]].concat());
    let path = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "s"}, "data": {"key": "c3RpbGwtYS1zZWNyZXQ="}});
    Caller::admin(&first).create(path, &secret);
    assert!(etcd.get("/registry/secrets/default/s").contains("k8s:enc:aesgcm:v1:one:"));
    let (url, token) = (first.url(), server_token(&first, &[]));
    let second = Server::with(&[&flags[..], &["--join", &url, "--token", &token]].concat());
    let (code, read) = Caller::admin(&second).get(&format!("{path}/s"));
    assert_eq!((code, &read["data"]), (200, &secret["data"]));
    assert_eq!(file(&second, "encryption.yaml"), text.as_bytes());
}
