//! A cluster that is restored into members of etcd that its servers run themselves.

use crate::{answer, coracle, save};
use coracle_store::{Datastore, EtcdOptions, Store, open};
use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use coracle_tests::{eventually, kubectl, managed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn configuration(path: &Path) -> String {
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
                providers:\n  - aesgcm: {keys: [{name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}\n";
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

/// The ConfigMaps and Secrets of a namespace, as they are stored.
async fn stored(store: &dyn Store, at: Option<u64>) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for resource in ["configmaps", "secrets"] {
        let (found, _) = store.range(&format!("/registry/{resource}/default/"), at).await.unwrap();
        all.extend(found.into_iter().map(|one| (one.key, one.value.to_vec())));
    }
    all
}

/// The etcd of a server, through the certificate in its data directory.
fn datastore(server: &Server) -> Datastore {
    let text = std::fs::read(server.data_dir().join("etcd-member.json")).unwrap();
    let state: Value = serde_json::from_slice(&text).unwrap();
    let file = |name: &str| Some(server.data_dir().join("pki").join(name));
    Datastore::Etcd(EtcdOptions {
        endpoints: vec![state["clientUrl"].as_str().unwrap().to_owned()],
        ca: file("etcd-ca.crt"),
        cert: file("etcd-client.crt"),
        key: file("etcd-client.key"),
        ..EtcdOptions::default()
    })
}

fn voters(server: &Server) -> usize {
    let dir = server.data_dir().to_str().unwrap();
    let members = answer(&["member", "ls", "--data-dir", dir], &[]);
    let votes = |member: &&Value| member["learner"] == false && member["problem"].is_null();
    members.as_array().unwrap().iter().filter(votes).count()
}

#[test]
fn a_backup_becomes_the_first_member_of_an_etcd_that_other_servers_join() {
    let files = tempfile::tempdir().unwrap();
    let config = configuration(&files.path().join("encryption.yaml"));
    let mut old = Server::with(&["--encryption-provider-config", &config]);
    let kubectl = kubectl::newest(&old.kubeconfig());
    for number in 0..30 {
        kubectl.run(&format!("create configmap m-{number} --from-literal=a={number}"));
    }
    kubectl.run("create secret generic s --from-literal=password=hunter2");
    let (file, saved) = save(&old, &files.path().join("backup"), &[]);
    kubectl.run("create configmap late --from-literal=a=1");
    let kubeconfig = std::fs::read_to_string(old.kubeconfig()).unwrap();
    let (file, url, revision) = (file.to_str().unwrap(), old.url(), saved["revision"].as_u64().unwrap());

    // What is refused leaves nothing.
    let dir = tempfile::tempdir().unwrap();
    let (cut, new) = (files.path().join("cut"), dir.path().to_str().unwrap());
    let bytes = std::fs::read(file).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let (ok, _, err) =
        coracle(&["restore", cut.to_str().unwrap(), "--data-dir", new, "--datastore", "etcd"], &[]);
    assert!(!ok && err.contains("nothing was restored"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let restored = answer(&["restore", file, "--data-dir", new, "--datastore", "etcd"], &[]);
    assert!(restored["revision"].as_u64().unwrap() > revision, "{restored}");
    let (ok, _, err) = coracle(&["restore", file, "--data-dir", new, "--datastore", "etcd"], &[]);
    assert!(!ok && err.contains("is not empty"), "{err}");
    old.stop();

    let first = managed::start_in(dir, &[]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let before = open(&Datastore::Embedded, old.data_dir()).await.unwrap();
        let after = open(&datastore(&first), Path::new("/nowhere")).await.unwrap();
        let before = stored(&*before, Some(revision)).await;
        assert_eq!(before.len(), 30 + 1 + 1, "with the CA of the namespace: {:?}", before.keys());
        assert_eq!(stored(&*after, None).await, before, "the same bytes");
    });
    // The administrator's kubeconfig of before, at the new address.
    let moved = first.data_dir().join("old.kubeconfig");
    std::fs::write(&moved, kubeconfig.replace(&url, &first.url())).unwrap();
    let kubectl = kubectl::newest(&moved);
    assert!(!kubectl.run("get configmaps -o name").contains("late"));
    let password =
        |server: &Server| Caller::admin(server).get(&format!("{SECRETS}/s")).1["data"]["password"].clone();
    assert_eq!(password(&first), "aHVudGVyMg==", "the keys of encryption are there without the flag");

    // Others join it, with the keys of encryption, and the first one can be lost.
    let (second, third) = (managed::join(&first, &[]), managed::join(&first, &[]));
    eventually("three members vote", WAIT, || voters(&second) == 3);
    for server in [&second, &third] {
        assert_eq!(password(server), "aHVudGVyMg==");
    }
    let mut first = first;
    first.kill();
    let made = |server: &Server| {
        let map = serde_json::json!({"metadata": {"generateName": "made-"}});
        let (code, made) = Caller::admin(server).send("POST", crate::MAPS, Some(&map));
        let version = made["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        code == 201 && version.is_some_and(|version| version > revision + 1000)
    };
    eventually("the others go on", WAIT, || made(&second) && made(&third));
    first.restart();
    eventually("it is a member again", WAIT, || voters(&first) == 3);
}
