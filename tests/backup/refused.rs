//! What is refused: the reason is named, and nothing is changed.

use crate::{MAPS, coracle, save};
use coracle_tests::caller::Caller;
use coracle_tests::kubectl;
use coracle_tests::server::Server;
use serde_json::json;

/// Identities that `age-keygen` made; the first is that of the recipient.
const RECIPIENT: &str = "age1584r9mct8nha7hqxsc4lg4w7rjq2uh56gn89kn0w5jkw0g0ts9dqwpj6we";
const IDENTITY: &str = "AGE-SECRET-KEY-102XL4NSLYRRS8ELYTUMWW7ETYCU8ES9GRTC9MPS5KDVE9GGLVE4QRM7V7M\n";
const OTHER: &str = "AGE-SECRET-KEY-1NYEUYX2A2EEJ290Z5NU9PPU8MLMAX89X0F9EWXGP5NSKCUPETJGSY2J9MS\n";

#[test]
fn backups_that_are_not_whole_or_not_ours_change_nothing() {
    let server = Server::with(&["--api-only"]);
    kubectl::newest(&server.kubeconfig()).run("create configmap one --from-literal=a=b");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for (name, text) in
        [("identity", IDENTITY), ("other", OTHER), ("passphrase", "correct horse\n"), ("wrong", "x\n")]
    {
        std::fs::write(path(name), text).unwrap();
    }
    let text = |name: &str| path(name).display().to_string();
    save(&server, &path("plain"), &[]);
    save(&server, &path("sealed"), &["--recipient", RECIPIENT]);
    save(&server, &path("secret"), &["--passphrase-file", &text("passphrase")]);
    let spoil = |from: &str, to: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(path(from)).unwrap();
        change(&mut bytes);
        std::fs::write(path(to), bytes).unwrap();
    };
    spoil("plain", "short", &|bytes| bytes.truncate(bytes.len() - 40));
    spoil("plain", "changed", &|bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    });
    spoil("plain", "newer", &|bytes| bytes[19] = 9);
    spoil("sealed", "sealed-short", &|bytes| bytes.truncate(bytes.len() / 2));
    spoil("sealed", "sealed-changed", &|bytes| {
        let end = bytes.len() - 100;
        bytes[end] ^= 1;
    });
    let new = path("new");
    let target = new.display().to_string();
    for (file, keys, want) in [
        ("short", &[][..], "truncated"),
        ("changed", &[], "checksum"),
        ("newer", &[], "format 9"),
        ("identity", &[], "not a backup"),
        ("sealed", &[], "the backup is encrypted"),
        ("sealed", &["--identity", "other"], "wrong key"),
        ("sealed", &["--passphrase-file", "passphrase"], "wrong key"),
        ("secret", &["--passphrase-file", "wrong"], "wrong key"),
        ("sealed-short", &["--identity", "identity"], "truncated"),
        ("sealed-changed", &["--identity", "identity"], "changed"),
        ("missing", &[], "No such file"),
    ] {
        let keys: Vec<String> = keys
            .iter()
            .map(|key: &&str| if key.starts_with("--") { (*key).to_owned() } else { text(key) })
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let file = text(file);
        for command in [&["restore", &file, "--data-dir", &target][..], &["backup", "check", &file]] {
            let (ok, out, err) = coracle(&[command, &keys].concat(), &[]);
            assert!(!ok && err.contains(want) && out.is_empty(), "{command:?} {keys:?}: {out}{err}");
        }
        assert!(!new.exists(), "{file}");
    }
    for (file, keys) in
        [("sealed", ["--identity", "identity"]), ("secret", ["--passphrase-file", "passphrase"])]
    {
        let (ok, out, err) = coracle(&["backup", "check", &text(file), keys[0], &text(keys[1])], &[]);
        assert!(ok && out.contains("whole and unchanged"), "{out}{err}");
    }
    not_empty(&server, &text("plain"));
}

/// The data directory of a server that runs.
fn not_empty(server: &Server, file: &str) {
    let key = std::fs::read(server.data_dir().join("pki/ca.key")).unwrap();
    let (ok, _, err) = coracle(&["restore", file, "--data-dir", server.data_dir().to_str().unwrap()], &[]);
    assert!(!ok && err.contains("is not empty"), "{err}");
    assert_eq!(std::fs::read(server.data_dir().join("pki/ca.key")).unwrap(), key);
    assert_eq!(Caller::admin(server).get(&format!("{MAPS}/one")).0, 200);
    let (ok, _, err) =
        coracle(&["backup", "save", file, "--data-dir", server.data_dir().to_str().unwrap()], &[]);
    assert!(!ok && err.contains("exists already"), "{err}");
    let dir = server.data_dir();
    let (ok, _, err) =
        coracle(&["restore", file, "--data-dir", dir.to_str().unwrap(), "--datastore", "etcd"], &[]);
    assert!(!ok && err.contains("is not empty") && !dir.join("etcd").exists(), "{err}");
}

/// A backup has the key of the CA: a role is not enough.
#[test]
fn only_members_of_system_masters_get_a_backup() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let role = json!({"metadata": {"name": "backups"}, "rules":
        [{"nonResourceURLs": ["/coracle/v1/backup"], "verbs": ["get", "post"]}]});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role);
    let binding = json!({"metadata": {"name": "backups"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "backups"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}]});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    let path = "/coracle/v1/backup";
    assert_eq!(Caller::nobody(&server).get(path).0, 401);
    assert_eq!(Caller::certified(&server, "stranger", &[]).get(path).0, 403);
    let (code, answer) = Caller::certified(&server, "somebody", &[]).get(path);
    assert_eq!(code, 403);
    assert!(answer["message"].as_str().unwrap().contains("system:masters"), "{answer}");
    assert_eq!(admin.send("DELETE", path, None).0, 405);
    assert_eq!(admin.send("POST", path, Some(&json!({"time": "then"}))).0, 400);
}
