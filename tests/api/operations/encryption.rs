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

/// Joins a server with the token of another one.
fn joined(first: &Server, store: &str, more: &[&str]) -> Server {
    let (url, token) = (first.url(), coracle_tests::managed::token(first));
    let flags = ["--api-only", "--datastore", store, "--join", &url, "--token", &token];
    Server::with(&[&flags[..], more].concat())
}

fn status(server: &Server) -> Value {
    well(server, &["secrets-encrypt", "status", "-o", "json"]).json()
}

#[test]
fn every_server_has_a_key_before_it_is_used() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("encryption.yaml");
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let config = configuration(&path);
    let flags = ["--api-only", "--datastore", &store, "--encryption-provider-config", &config];
    let mut first = Server::with(&flags);
    let mut second = joined(&first, &store, &[]);
    let (here, there) = (Caller::admin(&first), Caller::admin(&second));
    for n in 0..40 {
        let caller = if n % 2 == 0 { &here } else { &there };
        caller.create(SECRETS, &json!({"metadata": {"name": format!("s-{n}")}}));
    }
    assert_eq!(providers(&status(&second)), ["aesgcm:first", "identity"], "it came with the keys");
    let mut watch = there.watch(&format!("{SECRETS}?watch=true"));

    // A file that encrypts with a key that others do not have is refused, and changes nothing.
    let text = std::fs::read_to_string(&path).unwrap();
    let hasty = text.replace(
        "[{name: first",
        "[{name: hasty, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}, {name: first",
    );
    std::fs::write(&path, hasty).unwrap();
    eventually("the file is refused", Duration::from_secs(30), || {
        status(&first)["problem"].as_str().is_some_and(|problem| problem.contains("aesgcm:hasty"))
    });
    std::fs::write(&path, &text).unwrap();
    eventually("the file is as before", Duration::from_secs(30), || status(&first)["problem"].is_null());

    // One command, on either server.
    for (number, server) in [&second, &first].into_iter().enumerate() {
        let rotated = well(server, &["secrets-encrypt", "rotate", "-o", "json"]).json();
        let keys = providers(&rotated);
        assert_eq!(keys.len(), 3 + number, "{rotated}");
        assert_eq!(stored(&rotated), [(keys[0].clone(), 40)]);
        for other in [&first, &second] {
            assert_eq!(providers(&status(other)), keys, "every server has the configuration");
        }
        assert!(etcd.get("/registry/secrets/default/s-7").contains(&keys[0].replace(':', ":v1:")));
    }
    for caller in [&here, &there] {
        let (code, list) = caller.get(SECRETS);
        assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 40));
    }
    assert!(!watch.over(), "the watch goes on");
    let file = std::fs::read_to_string(&path).unwrap();
    let copy =
        |server: &Server| std::fs::read_to_string(server.data_dir().join("pki/encryption.yaml")).unwrap();
    assert_eq!(
        (copy(&first), copy(&second)),
        (file.clone(), file),
        "the file of the flag is kept up to date"
    );

    // A server that was away meanwhile takes what the others have, and not what it had.
    first.stop();
    let keys = providers(&well(&second, &["secrets-encrypt", "rotate", "--prune", "-o", "json"]).json());
    assert_eq!(keys.len(), 2, "{keys:?}");
    first.restart();
    assert_eq!(providers(&status(&first)), keys);
    assert_eq!(Caller::admin(&first).get(&format!("{SECRETS}/s-1")).0, 200);
    // One that does not answer stops a rotation before anything is written with the new key.
    second.kill();
    let waits = coracle(&first, &["secrets-encrypt", "rotate"]);
    assert!(!waits.ok && waits.err.contains("cannot be asked"), "{}", waits.err);
    assert_eq!(stored(&status(&first)), [(keys[0].clone(), 40)]);
    second.restart();
    let finished = well(&first, &["secrets-encrypt", "rotate", "--prune", "-o", "json"]).json();
    assert_eq!(stored(&finished), [(providers(&finished)[0].clone(), 40)], "{finished}");
    assert_eq!(providers(&status(&second)), providers(&finished));
}

#[test]
fn a_cluster_begins_to_encrypt_while_several_servers_run() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("encryption.yaml");
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let mut first = Server::with(&["--api-only", "--datastore", &store]);
    let second = joined(&first, &store, &[]);
    Caller::admin(&second).create(SECRETS, &json!({"metadata": {"name": "s"}}));
    let none = coracle(&second, &["secrets-encrypt", "rotate"]);
    assert!(!none.ok && none.err.contains("no --encryption-provider-config"), "{}", none.err);

    // The other server could not read it.
    let config = configuration(&path);
    first.stop();
    assert!(!first.starts_with(&["--encryption-provider-config", &config]));
    assert!(first.log().contains("do not have aesgcm:first for secrets"), "{}", first.log());
    let text = std::fs::read_to_string(&path).unwrap();
    let text =
        text.replace("  - identity: {}\n", "").replace("providers:\n", "providers:\n  - identity: {}\n");
    std::fs::write(&path, text).unwrap();
    first.restart_with(&["--encryption-provider-config", &config]);
    eventually("the other server has it", Duration::from_secs(30), || status(&second)["enabled"] == true);
    assert_eq!(stored(&status(&second)), [("identity".to_owned(), 1)]);
    let begun = well(&second, &["secrets-encrypt", "rotate", "-o", "json"]).json();
    assert_eq!(providers(&begun), ["aesgcm:first", "identity"]);
    assert_eq!(stored(&begun), [("aesgcm:first".to_owned(), 1)]);
    assert_eq!(Caller::admin(&first).get(&format!("{SECRETS}/s")).0, 200);
    assert_eq!(Caller::admin(&second).get(&format!("{SECRETS}/s")).0, 200);
}
