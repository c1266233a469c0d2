//! `coracle store copy`: from the embedded store of a running server to etcd, and back again.

use super::{coracle, well};
use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::server::Server;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, value: &str) -> serde_json::Value {
    json!({"metadata": {"name": name}, "data": {"v": value}})
}

/// Names and values of ConfigMaps that a test made.
fn maps(caller: &Caller) -> Vec<(String, String)> {
    let (code, list) = caller.get(MAPS);
    assert_eq!(code, 200, "{list}");
    let mut found = Vec::new();
    for map in list["items"].as_array().unwrap() {
        if let Some(value) = map["data"]["v"].as_str() {
            found.push((map["metadata"]["name"].as_str().unwrap().to_owned(), value.to_owned()));
        }
    }
    found
}

#[test]
fn a_cluster_moves_to_etcd_and_back() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let mut server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    for n in 0..50 {
        admin.create(MAPS, &map(&format!("before-{n}"), "1"));
    }
    admin.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}}));
    // Somebody writes all the time, until writes are refused.
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let refused = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0.. {
                let (code, answer) = admin.send("POST", MAPS, Some(&map(&format!("during-{n}"), "1")));
                match code {
                    201 => written.fetch_add(1, Ordering::Relaxed),
                    503 => return answer["message"].as_str().unwrap_or_default().to_owned(),
                    _ => panic!("{code}: {answer}"),
                };
                if stop.load(Ordering::Relaxed) {
                    return "never".to_owned();
                }
            }
            unreachable!()
        });
        while written.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        let said = well(&server, &["store", "copy", "--to", &store, "-o", "json"]);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(said.json()["options"], json!(["--datastore", store]));
        writer.join().unwrap()
    });
    assert!(refused.contains("writes are paused"), "{refused}");
    let copied = maps(&admin);
    assert_eq!(copied.len(), 50 + written.load(Ordering::Relaxed), "reads go on, and no write is lost");
    let status = coracle(&server, &["status"]);
    assert!(!status.ok && status.out.contains("refuses writes"), "{}", status.out);
    let again = coracle(&server, &["store", "copy", "--to", &store]);
    assert!(!again.ok && again.err.contains("being copied"), "{}", again.err);
    let last: u64 = admin.get(MAPS).1["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();

    // On the new store everything is there, and revisions go on behind those of the old one.
    server.stop();
    server.restart_with(&["--datastore", &store]);
    assert_eq!(maps(&admin), copied);
    let made = admin.create(MAPS, &map("after", "2"));
    let revision: u64 = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(revision > last, "{revision} {last}");
    let (code, gone) = admin.get(&format!("{MAPS}?watch=true&resourceVersion={last}"));
    assert!(
        code == 410 || gone["object"]["code"] == 410,
        "watchers of the old store list again: {code} {gone}"
    );

    // And back, from an etcd that no server uses.
    let dir = tempfile::tempdir().unwrap();
    let target = format!("embedded:{}", dir.path().display());
    let busy = coracle(&server, &["store", "copy", "--from", &store, "--to", &target]);
    assert!(!busy.ok && busy.err.contains("a server writes to"), "{}", busy.err);
    server.stop();
    let said = well(&server, &["store", "copy", "--from", &store, "--to", &target]);
    assert!(said.out.contains("--datastore embedded"), "{}", said.out);
    let taken = coracle(&server, &["store", "copy", "--from", &store, "--to", &target]);
    assert!(!taken.ok && taken.err.contains("is not empty"), "{}", taken.err);
    std::fs::rename(server.data_dir().join("store"), server.data_dir().join("store.old")).unwrap();
    std::fs::rename(dir.path().join("store"), server.data_dir().join("store")).unwrap();
    server.restart();
    let mut all = copied;
    all.push(("after".to_owned(), "2".to_owned()));
    all.sort();
    assert_eq!(maps(&admin), all);
    admin.create(MAPS, &map("at-last", "3"));
}

#[test]
fn a_copy_that_cannot_be_made_changes_nothing() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let own: &str = &format!("embedded:{}", server.data_dir().display());
    for (number, (args, why)) in [
        (&["--to", "etcd"][..], "run by a server"),
        (&["--to", "embedded:"], "needs a directory"),
        (&["--to", "https://127.0.0.1"], "not host:port"),
        (&["--to", own], "is not empty"),
        (&["--from", own, "--to", "embedded:/nowhere"], "may be using it"),
        (&["--from", "embedded:/nowhere", "--to", own], "holds no store"),
        (&["--from", own, "--to", own], "are the same store"),
    ]
    .into_iter()
    .enumerate()
    {
        let said = coracle(&server, &[&["store", "copy"][..], args].concat());
        assert!(!said.ok && said.err.contains(why), "{args:?}: {}", said.err);
        admin.create(MAPS, &map(&format!("n{number}"), "1"));
    }
    // A complete copy is given up, and the old store goes on.
    let dir = tempfile::tempdir().unwrap();
    well(&server, &["store", "copy", "--to", &format!("embedded:{}", dir.path().display())]);
    let (code, answer) = admin.send("POST", MAPS, Some(&map("refused", "1")));
    assert_eq!(code, 503, "{answer}");
    assert_eq!(answer["details"]["retryAfterSeconds"], 1, "{answer}");
    well(&server, &["store", "resume"]);
    admin.create(MAPS, &map("refused", "1"));
    well(&server, &["status"]);
}

/// A server that is started on what is left of a failed copy would go on with old objects.
#[test]
fn a_copy_that_fails_after_the_load_is_removed() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = |name: &str| {
        json!({"metadata": {"name": name, "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
            "spec": {"holderIdentity": name, "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 8}})
    };
    // On a store that it shares: on one of its own, a server removes the Leases of others.
    let (source, etcd, dir) = (Etcd::start(), Etcd::start(), tempfile::tempdir().unwrap());
    let stores = [format!("etcd://{}", etcd.address), format!("embedded:{}", dir.path().display())];
    let server = Server::with(&["--api-only", "--datastore", &format!("etcd://{}", source.address)]);
    let admin = Caller::admin(&server);
    admin.create(MAPS, &map("kept", "1"));
    for store in &stores {
        // By its time this server is dead, so that the copy is begun; by another Lease that comes meanwhile one runs.
        admin.create(LEASES, &lease("apiserver-dead"));
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_secs(3));
                admin.create(LEASES, &lease("apiserver-other"));
            });
            coracle(&server, &["store", "copy", "--to", store])
        });
        let is_refused = !failed.ok && failed.err.contains("apiserver-other also writes");
        assert!(is_refused, "{} {}", failed.out, failed.err);
        for name in ["apiserver-dead", "apiserver-other"] {
            let (code, answer) = admin.send("DELETE", &format!("{LEASES}/{name}"), None);
            assert_eq!(code, 200, "{answer}");
        }
        well(&server, &["store", "copy", "--to", store]);
        well(&server, &["store", "resume"]);
    }
}
