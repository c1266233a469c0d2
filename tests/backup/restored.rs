//! A backup of a server that is written to, and the clusters that are restored from it.

use crate::{MAPS, answer, map, save, write_maps};
use coracle_store::{Datastore, EtcdOptions, KeyValue, Store, open};
use coracle_tests::caller::Caller;
use coracle_tests::client::Target;
use coracle_tests::etcd::Etcd;
use coracle_tests::server::Server;
use coracle_tests::{eventually, kubectl};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Saves a backup while four writers write, and stops them.
fn saved_under_load(server: &Server, to: &Path, more: &[&str]) -> (std::path::PathBuf, Value) {
    let runtime = runtime();
    let target = Target::new(server.data_dir(), &server.url()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..4).map(|n| runtime.spawn(write_maps(target.clone(), format!("w{n}"), stop.clone()))).collect();
    let admin = Caller::admin(server);
    eventually("the writers write", Duration::from_secs(60), || {
        admin.get(MAPS).1["items"].as_array().is_some_and(|items| items.len() > 40)
    });
    let saved = save(server, to, more);
    stop.store(true, Ordering::Release);
    let counts = runtime.block_on(futures::future::join_all(writers));
    let count: usize = counts.into_iter().map(Result::unwrap).sum();
    assert!(count > 40, "they wrote until they were told to stop");
    saved
}

/// What the API serves, as it is stored.
fn objects(keys: Vec<KeyValue>) -> Vec<KeyValue> {
    keys.into_iter().filter(|one| one.key.starts_with("/registry/")).collect()
}

async fn at(store: &dyn Store, revision: Option<u64>) -> Vec<KeyValue> {
    objects(store.range("/registry/", revision).await.unwrap().0)
}

/// Credentials of the old cluster, the address of the new one.
fn moved(kubeconfig: &str, old_url: &str, new: &Server) -> std::path::PathBuf {
    let path = new.data_dir().join("old.kubeconfig");
    assert!(kubeconfig.contains(old_url));
    std::fs::write(&path, kubeconfig.replace(old_url, &new.url())).unwrap();
    path
}

/// A watch from a revision of the old cluster has to list again.
fn assert_expired(server: &Server, revision: u64) {
    let path = format!("{MAPS}?watch=1&timeoutSeconds=5&resourceVersion={revision}");
    let (code, answer) = Caller::admin(server).get(&path);
    let gone = code == 410 || answer["object"]["code"] == 410;
    assert!(gone, "{code} {answer}");
}

#[test]
fn a_cluster_is_restored_as_it_was_at_one_revision() {
    let mut old = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let (file, saved) = saved_under_load(&old, dir.path(), &[]);
    let revision = saved["revision"].as_u64().unwrap();
    assert!(
        file.file_name().unwrap().to_str().unwrap().ends_with(&format!("-{revision}.backup")),
        "{file:?}"
    );
    let late = Caller::admin(&old).create(MAPS, &serde_json::from_str(&map("late", "1")).unwrap());
    let late: u64 = late["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(late > revision);
    let kubeconfig = std::fs::read_to_string(old.kubeconfig()).unwrap();
    let url = old.url();

    let checked = answer(&["backup", "check", file.to_str().unwrap()], &[]);
    assert_eq!(checked["header"]["revision"], revision);
    assert_eq!(checked["header"]["datastore"], "embedded");
    let uid = Caller::admin(&old).get("/api/v1/namespaces/kube-system").1["metadata"]["uid"].clone();
    assert_eq!(checked["header"]["cluster"]["uid"], uid);
    let listed = answer(&["backup", "ls", dir.path().to_str().unwrap()], &[]);
    assert_eq!(listed[0]["location"], file.to_str().unwrap());
    assert_eq!(listed[0]["revision"], revision);

    let new = tempfile::tempdir().unwrap();
    let path = new.path().to_str().unwrap();
    let restored = answer(&["restore", file.to_str().unwrap(), "--data-dir", path], &[]);
    assert!(restored["revision"].as_u64().unwrap() > late, "{restored}");
    old.stop();
    runtime().block_on(async {
        let (before, after) =
            (open(&Datastore::Embedded, old.data_dir()), open(&Datastore::Embedded, new.path()));
        let (before, after) = (before.await.unwrap(), after.await.unwrap());
        let before = at(&*before, Some(revision)).await;
        assert!(before.len() > 40);
        assert_eq!(at(&*after, None).await, before, "the same bytes at the same revisions");
    });

    let new = Server::in_directory(new, &[], &[]);
    let kubectl = kubectl::newest(&moved(&kubeconfig, &url, &new));
    let names = kubectl.run("get configmaps -o name");
    assert!(names.contains("configmap/w0-") && !names.contains("configmap/late"), "{names}");
    kubectl.run("create configmap made-after --from-literal=a=b");
    let made = kubectl.run("get configmap made-after -o jsonpath={.metadata.resourceVersion}");
    assert!(made.parse::<u64>().unwrap() > late, "revisions never go back");
    assert_expired(&new, late);
    assert_expired(&new, revision);
}

#[test]
fn a_backup_of_etcd_is_restored_into_another_etcd_and_into_the_embedded_store() {
    let etcd = Etcd::start();
    let datastore = format!("etcd://{}", etcd.address);
    let old = Server::with(&["--datastore", &datastore]);
    let dir = tempfile::tempdir().unwrap();
    let (file, saved) = saved_under_load(&old, dir.path(), &[]);
    let (file, revision) = (file.to_str().unwrap(), saved["revision"].as_u64().unwrap());
    let kubeconfig = std::fs::read_to_string(old.kubeconfig()).unwrap();
    let other = Etcd::start();
    let into = format!("etcd://{}", other.address);
    let options = |etcd: &Etcd| {
        let endpoints = vec![format!("http://{}", etcd.address)];
        Datastore::Etcd(EtcdOptions { endpoints, ..EtcdOptions::default() })
    };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |dir: &tempfile::TempDir| dir.path().to_str().unwrap().to_owned();
    answer(&["restore", file, "--data-dir", &path(&one), "--datastore", &into], &[]);
    answer(&["restore", file, "--data-dir", &path(&two)], &[]);
    runtime().block_on(async {
        let here = Path::new("/nowhere");
        let before = at(&*open(&options(&etcd), here).await.unwrap(), Some(revision)).await;
        let in_etcd = at(&*open(&options(&other), here).await.unwrap(), None).await;
        let embedded = at(&*open(&Datastore::Embedded, two.path()).await.unwrap(), None).await;
        let bytes = |keys: &[KeyValue]| {
            keys.iter().map(|one| (one.key.clone(), one.value.clone())).collect::<Vec<_>>()
        };
        assert!(before.len() > 40);
        assert_eq!(bytes(&in_etcd), bytes(&before));
        assert_eq!(embedded, before);
    });
    // A second one would mix two clusters.
    let again = tempfile::tempdir().unwrap();
    let (ok, _, err) =
        crate::coracle(&["restore", file, "--data-dir", &path(&again), "--datastore", &into], &[]);
    assert!(!ok && err.contains("is not empty"), "{err}");
    assert_eq!(std::fs::read_dir(again.path()).unwrap().count(), 0);

    let url = old.url();
    for new in [Server::in_directory(one, &["--datastore", &into], &[]), Server::in_directory(two, &[], &[])]
    {
        let kubectl = kubectl::newest(&moved(&kubeconfig, &url, &new));
        kubectl.run("create configmap made-after --from-literal=a=b");
        let made = kubectl.run("get configmap made-after -o jsonpath={.metadata.resourceVersion}");
        assert!(made.parse::<u64>().unwrap() > revision + 1000);
        assert_expired(&new, revision);
    }
}

#[test]
fn values_that_are_encrypted_in_the_store_stay_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("encryption.yaml");
    let key = "c2VjcmV0IGlzIHNlY3VyZSwgSSB0aGluay4uLi4uLi4=";
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
         providers:\n  - aesgcm:\n      keys:\n      - name: key1\n        secret: {key}\n"
    );
    std::fs::write(&config, &text).unwrap();
    let old = Server::with(&["--encryption-provider-config", config.to_str().unwrap()]);
    let kubectl = kubectl::newest(&old.kubeconfig());
    kubectl.run("create secret generic s --from-literal=password=hunter2");
    let (file, _) = save(&old, &dir.path().join("backup"), &[]);
    let new = tempfile::tempdir().unwrap();
    let restored =
        answer(&["restore", file.to_str().unwrap(), "--data-dir", new.path().to_str().unwrap()], &[]);
    let kept = restored["encryptionProviderConfig"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), text);
    runtime().block_on(async {
        let store = open(&Datastore::Embedded, new.path()).await.unwrap();
        let secret = store.get("/registry/secrets/default/s").await.unwrap().unwrap();
        assert!(secret.value.starts_with(b"k8s:enc:aesgcm:v1:key1:"));
    });
    let new = Server::in_directory(new, &["--encryption-provider-config", &kept], &[]);
    let found = kubectl::newest(&new.kubeconfig()).run("get secret s -o jsonpath={.data.password}");
    assert_eq!(found, "aHVudGVyMg==");
}
