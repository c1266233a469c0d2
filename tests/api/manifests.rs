//! Manifests in a directory of the server, seen through kubectl.

use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// The object comes before its definition, in the file and in the order of the files.
const BOATS: &str = r#"
apiVersion: demo.io/v1
kind: Boat
metadata: {name: one, namespace: harbour}
spec: {length: 3}
---
apiVersion: v1
kind: Namespace
metadata: {name: harbour}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.demo.io}
spec:
  group: demo.io
  names: {kind: Boat, plural: boats, singular: boat}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {length: {type: integer}}}}}
"#;

fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: {value}}}\n")
}

fn write(dir: &Path, file: &str, text: &str) {
    std::fs::write(dir.join(file), text).unwrap();
}

/// A value of an object; nothing when there is no such object.
fn value(kubectl: &Kubectl, object: &str, path: &str) -> String {
    kubectl.try_with(&format!("get {object} -o jsonpath={path} --ignore-not-found"), "").out
}

fn until(kubectl: &Kubectl, object: &str, path: &str, expected: &str) {
    eventually(&format!("{object} {path} is {expected:?}"), SOON, || {
        value(kubectl, object, path) == expected
    });
}

/// Messages of Events about a file.
fn messages(kubectl: &Kubectl, file: &str, reason: &str) -> String {
    let selector = format!("involvedObject.name=manifest-{file},reason={reason}");
    kubectl.run(&format!(
        "-n kube-system get events --field-selector {selector} -o jsonpath={{.items[*].message}}"
    ))
}

#[test]
fn manifests_are_applied_changed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let manifests = dir.path().to_str().unwrap();
    write(dir.path(), "a.yaml", BOATS);
    let server = Server::with(&["--manifests", manifests]);
    let k = newest(&server.kubeconfig());
    until(&k, "boats.demo.io/one -n harbour", "{.spec.length}", "3");
    let two = format!("{}---\n{}", map("first", "one"), map("second", "one"));
    write(dir.path(), "maps.yaml", &two);
    write(dir.path(), "more.json", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"third"}}"#);
    for name in ["first", "second", "third"] {
        until(&k, &format!("configmap/{name}"), "{.metadata.name}", name);
    }
    let managers = value(&k, "configmap/first", "{.metadata.managedFields[*].manager} --show-managed-fields");
    assert_eq!(managers, "coracle-manifests");

    // A document changes, one goes, one moves to another file and stays the object that it was.
    let uid = value(&k, "configmap/second", "{.metadata.uid}");
    write(dir.path(), "z.yaml", &map("second", "two"));
    write(dir.path(), "maps.yaml", &map("first", "two"));
    until(&k, "configmap/first", "{.data.key}", "two");
    until(&k, "configmap/second", "{.data.key}", "two");
    std::fs::remove_file(dir.path().join("more.json")).unwrap();
    until(&k, "configmap/third", "{.metadata.name}", "");
    assert_eq!(value(&k, "configmap/second", "{.metadata.uid}"), uid);
    eventually("the file is reported", SOON, || messages(&k, "maps.yaml", "Applied").contains("maps.yaml: "));
    std::fs::remove_file(dir.path().join("z.yaml")).unwrap();
    until(&k, "configmap/second", "{.metadata.name}", "");
    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    until(&k, "namespace/harbour", "{.metadata.name}", "");
    until(&k, "crd/boats.demo.io", "{.metadata.name}", "");
    until(&k, "configmap/manifest-a.yaml -n kube-system", "{.metadata.name}", "");
    assert_eq!(value(&k, "configmap/first", "{.data.key}"), "two");
}

#[test]
fn errors_of_manifests_are_named_and_hold_up_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::with(&["--manifests", dir.path().to_str().unwrap()]);
    let k = newest(&server.kubeconfig());
    let refused =
        format!("{}---\n{}spec: {{}}\n---\n{}", map("good", "a"), map("bad", "a"), map("also", "a"));
    write(dir.path(), "a-refused.yaml", &refused);
    write(dir.path(), "b-broken.yaml", &format!("{}---\nkind: [\n", map("unseen", "a")));
    write(dir.path(), "c-unknown.yaml", "apiVersion: none.io/v1\nkind: Nothing\nmetadata: {name: a}\n");
    write(dir.path(), "d-well.yaml", &map("well", "a"));
    for name in ["good", "also", "well"] {
        until(&k, &format!("configmap/{name}"), "{.data.key}", "a");
    }
    for (file, reason, expected) in [
        ("a-refused.yaml", "ApplyFailed", "a-refused.yaml: document 2 (line 5): ConfigMap bad: "),
        ("a-refused.yaml", "ApplyFailed", ".spec: field not declared in schema"),
        ("b-broken.yaml", "InvalidManifest", "b-broken.yaml: document 2 (line 5): error decoding YAML"),
        ("c-unknown.yaml", "ApplyFailed", "there is no kind Nothing in none.io/v1"),
    ] {
        eventually(&format!("{file}: {expected}"), SOON, || messages(&k, file, reason).contains(expected));
    }
    assert_eq!(
        value(&k, "configmap/unseen", "{.metadata.name}"),
        "",
        "nothing of a file that cannot be read"
    );
    // What is wrong is mended, and a file that breaks keeps what it had.
    write(dir.path(), "b-broken.yaml", &map("unseen", "a"));
    until(&k, "configmap/unseen", "{.data.key}", "a");
    write(dir.path(), "d-well.yaml", "kind: [\n");
    eventually("it is reported", SOON, || {
        messages(&k, "d-well.yaml", "InvalidManifest").contains("document 1")
    });
    assert_eq!(value(&k, "configmap/well", "{.data.key}"), "a");
}

#[test]
fn only_what_files_created_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::with(&["--manifests", dir.path().to_str().unwrap()]);
    let k = newest(&server.kubeconfig());
    k.run("create configmap mine --from-literal=own=1");
    k.run("create configmap theirs --from-literal=own=1");
    write(dir.path(), "a.yaml", &format!("{}---\n{}", map("mine", "a"), map("made", "a")));
    until(&k, "configmap/made", "{.data.key}", "a");
    until(&k, "configmap/mine", "{.data.key}", "a");
    // The file goes while the server is down.
    server.stop();
    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    server.restart();
    until(&k, "configmap/made", "{.metadata.name}", "");
    until(&k, "configmap/mine", "{.data.key}", "");
    assert_eq!(value(&k, "configmap/mine", "{.data.own}"), "1");
    assert_eq!(value(&k, "configmap/theirs", "{.data.own}"), "1");
}

#[test]
fn the_leader_applies_and_another_one_goes_on() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir().unwrap());
    let store = format!("etcd://{}", etcd.address);
    let flags = ["--datastore", store.as_str(), "--manifests", dir.path().to_str().unwrap()];
    write(dir.path(), "a.yaml", &map("first", "a"));
    let mut first = Server::with(&flags);
    let second = first.beside(&flags);
    let k = newest(&second.kubeconfig());
    until(&k, "configmap/first", "{.data.key}", "a");
    let holder = || value(&k, "lease/coracle-manifests -n kube-system", "{.spec.holderIdentity}");
    let before = holder();
    assert!(!before.is_empty());
    first.stop();
    write(dir.path(), "b.yaml", &map("second", "a"));
    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    until(&k, "configmap/second", "{.data.key}", "a");
    until(&k, "configmap/first", "{.metadata.name}", "");
}

#[test]
fn a_directory_that_is_not_there_is_an_error_of_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let output = std::process::Command::new(coracle_tests::program("coracle"))
        .args(["server", "--bind", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg("--manifests")
        .arg(&missing)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("--manifests {}", missing.display())), "{said}");
    assert!(!dir.path().join("data").exists(), "nothing is half done");
}
