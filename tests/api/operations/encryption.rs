//! `coracle secrets-encrypt status` and `rotate`.

use super::{coracle, well};
use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn configuration(path: &Path) -> String {
    let text = "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: first, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
";
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

/// The keys of stored Secrets, with how many there are of each.
fn stored(json: &Value) -> Vec<(String, u64)> {
    let all = json["stored"].as_array().unwrap().iter();
    all.map(|one| (one["provider"].as_str().unwrap().to_owned(), one["count"].as_u64().unwrap())).collect()
}

/// The providers of the first entry.
fn providers(json: &Value) -> Vec<String> {
    let all = json["entries"][0]["providers"].as_array().unwrap().iter();
    all.map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[test]
fn keys_are_rotated_without_a_restart() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("encryption.yaml");
    let server = Server::with(&["--api-only", "--encryption-provider-config", &configuration(&path)]);
    let admin = Caller::admin(&server);
    for n in 0..120 {
        admin
            .create(SECRETS, &json!({"metadata": {"name": format!("s-{n}")}, "stringData": {"v": "hidden"}}));
    }
    let status = || well(&server, &["secrets-encrypt", "status", "-o", "json"]).json();
    assert_eq!(stored(&status()), [("aesgcm:first".to_owned(), 120)]);
    let mut watch = admin.watch(&format!("{SECRETS}?watch=true"));
    let rotated = well(&server, &["secrets-encrypt", "rotate", "-o", "json"]).json();
    let keys = providers(&rotated);
    assert_eq!(
        (keys.len(), keys[1].as_str(), keys[2].as_str()),
        (3, "aesgcm:first", "identity"),
        "{rotated}"
    );
    assert_eq!(stored(&rotated), [(keys[0].clone(), 120)]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "only its owner reads the file");
    // Older keys go only when they are asked to.
    let pruned = well(&server, &["secrets-encrypt", "rotate", "--prune", "-o", "json"]).json();
    assert_eq!(providers(&pruned).len(), 2, "{pruned}");
    assert_ne!(providers(&pruned)[0], keys[0], "another rotation");
    let (code, list) = admin.get(SECRETS);
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 120));
    assert!(!watch.over(), "the watch goes on");
    let said = well(&server, &["secrets-encrypt", "status"]);
    assert!(said.out.contains("ENCRYPTS") && said.out.contains("120"), "{}", said.out);

    // A file without the key of stored values is not used, and said to be wrong; a good one is used by itself.
    let good = std::fs::read_to_string(&path).unwrap();
    configuration(&path);
    eventually("the file is refused", Duration::from_secs(30), || status()["problem"].is_string());
    assert_eq!(providers(&status()), providers(&pruned));
    let refused = coracle(&server, &["secrets-encrypt", "rotate"]);
    assert!(!refused.ok && refused.err.contains("does not use its configuration"), "{}", refused.err);
    std::fs::write(&path, good).unwrap();
    eventually("the file is used", Duration::from_secs(30), || status()["problem"].is_null());
    assert_eq!(admin.get(&format!("{SECRETS}/s-7")).0, 200);
}

#[test]
fn a_rotation_that_was_interrupted_is_finished_with_its_key() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("encryption.yaml");
    let mut server = Server::with(&["--api-only"]);
    let none = coracle(&server, &["secrets-encrypt", "rotate"]);
    assert!(!none.ok && none.err.contains("no --encryption-provider-config"), "{}", none.err);
    let said = well(&server, &["secrets-encrypt", "status"]);
    assert!(said.out.contains("nothing is encrypted"), "{}", said.out);
    let config = configuration(&path);
    server.stop();
    server.restart_with(&["--encryption-provider-config", &config]);
    Caller::admin(&server).create(SECRETS, &json!({"metadata": {"name": "s"}}));
    // The key is in use, and values were not written again: as after an interruption.
    well(&server, &["secrets-encrypt", "rotate", "--stage", "add"]);
    let used = well(&server, &["secrets-encrypt", "rotate", "--stage", "use", "-o", "json"]).json();
    let first = providers(&used)[0].clone();
    assert_eq!(stored(&used), [("aesgcm:first".to_owned(), 1)], "{used}");
    let finished = well(&server, &["secrets-encrypt", "rotate", "--prune", "-o", "json"]).json();
    assert_eq!(providers(&finished), [first.clone(), "identity".to_owned()]);
    assert_eq!(stored(&finished), [(first, 1)]);
    let nothing = coracle(&server, &["secrets-encrypt", "rotate", "--stage", "use"]);
    assert!(!nothing.ok && nothing.err.contains("begin with --stage add"), "{}", nothing.err);
}

#[test]
fn every_server_has_a_key_before_it_is_used() {
    let files = tempfile::tempdir().unwrap();
    let [one, two] = ["one.yaml", "two.yaml"].map(|file| files.path().join(file));
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let flags = |path: &Path| {
        let config = configuration(path);
        ["--api-only", "--datastore", store.as_str(), "--encryption-provider-config", &config]
            .map(str::to_owned)
    };
    let (a, b) = (flags(&one), flags(&two));
    let first = Server::with(&a.each_ref().map(String::as_str));
    let second = first.beside(&b.each_ref().map(String::as_str));
    let (here, there) = (Caller::admin(&first), Caller::admin(&second));
    here.create(SECRETS, &json!({"metadata": {"name": "s"}}));
    let alone = coracle(&first, &["secrets-encrypt", "rotate"]);
    assert!(!alone.ok && alone.err.contains("--stage add, use and rewrite"), "{}", alone.err);
    well(&first, &["secrets-encrypt", "rotate", "--stage", "add"]);
    let early = coracle(&first, &["secrets-encrypt", "rotate", "--stage", "use"]);
    assert!(!early.ok && early.err.contains("does not have key"), "{}", early.err);
    let known = || providers(&well(&second, &["secrets-encrypt", "status", "-o", "json"]).json());
    std::fs::copy(&one, &two).unwrap();
    eventually("the other server has the key", Duration::from_secs(30), || known().len() == 3);
    well(&first, &["secrets-encrypt", "rotate", "--stage", "use"]);
    here.create(SECRETS, &json!({"metadata": {"name": "new"}}));
    assert_eq!(
        there.get(&format!("{SECRETS}/new")).0,
        200,
        "the other server reads what the new key encrypts"
    );
    let early = coracle(&first, &["secrets-encrypt", "rotate", "--stage", "rewrite"]);
    assert!(!early.ok && early.err.contains("does not encrypt with the key"), "{}", early.err);
    let before = known();
    std::fs::copy(&one, &two).unwrap();
    eventually("the other server uses the key", Duration::from_secs(30), || known()[0] != before[0]);
    let done = well(&first, &["secrets-encrypt", "rotate", "--stage", "rewrite", "-o", "json"]).json();
    assert!(stored(&done).len() == 1 && done["stored"][0]["current"] == true, "{done}");
}
