//! Backups that servers make by the clock.

use crate::answer;
use coracle_backup::last;
use coracle_store::{Datastore, open};
use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::Value;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(90);

fn listed(dir: &str) -> Vec<Value> {
    answer(&["backup", "ls", dir], &[]).as_array().unwrap().clone()
}

#[test]
fn a_server_makes_backups_and_removes_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backups");
    let path = to.display().to_string();
    let mut server =
        Server::with(&["--backup-schedule", "@every 1s", "--backup-to", &path, "--backup-keep", "2"]);
    eventually("there are three backups, and the first is gone", LONG, || {
        server.log().matches("backup made").count() >= 3 && server.log().contains("old backup removed")
    });
    let (code, metrics) = Caller::admin(&server).get("/metrics");
    let metrics = metrics.as_str().unwrap_or_default().to_owned();
    assert!(code == 200 && metrics.contains("coracle_backups_total{result=\"success\"}"), "{metrics}");
    server.stop();
    let kept = listed(&path);
    assert!((1..=3).contains(&kept.len()), "{kept:?}");
    for backup in &kept {
        answer(&["backup", "check", backup["location"].as_str().unwrap()], &[]);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let last = runtime.block_on(async {
        let store = open(&Datastore::Embedded, server.data_dir()).await.unwrap();
        last::read(&*store).await.unwrap().unwrap()
    });
    assert_eq!(last.error, None);
    assert!(last.revision > 0 && last.bytes > 0 && last.location.starts_with(&path), "{last:?}");
}

#[test]
fn of_two_servers_one_makes_backups_and_says_why_it_cannot() {
    let etcd = Etcd::start();
    let datastore = format!("etcd://{}", etcd.address);
    let dir = tempfile::tempdir().unwrap();
    // No directory can be made below a file.
    std::fs::write(dir.path().join("file"), "").unwrap();
    let to = dir.path().join("file/backups").display().to_string();
    let flags = ["--datastore", &datastore, "--backup-schedule", "@every 1s", "--backup-to", &to];
    let one = Server::with(&flags);
    let two = one.beside(&flags);
    let tries = |server: &Server| server.log().matches("cannot make a backup").count();
    eventually("one of them tries", LONG, || tries(&one) + tries(&two) >= 3);
    assert!(tries(&one) == 0 || tries(&two) == 0, "both make backups");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let last = runtime.block_on(async {
        let store = open(&datastore.parse().unwrap(), dir.path()).await.unwrap();
        last::read(&*store).await.unwrap().unwrap()
    });
    assert!(last.error.as_deref().is_some_and(|error| error.contains(&to)), "{last:?}");
    assert_eq!((last.bytes, last.location.as_str()), (0, format!("{to}/").as_str()));
}
