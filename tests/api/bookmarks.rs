//! Where clients go on after a watch that ended.

use bytes::Bytes;
use coracle_tests::caller::{Caller, Watch};
use coracle_tests::client::Target;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 6;
const ROUNDS: usize = 5;
const AT_A_TIME: usize = 8;
const WAIT: Duration = Duration::from_secs(60);

/// Creates objects until it is told to stop.
async fn write(target: &Target, writer: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let body = json!({"metadata": {"name": format!("w{writer}-{number}")}}).to_string();
        connection.call("POST", MAPS, Bytes::from(body)).await?;
    }
    Ok(())
}

fn version(line: &Value) -> u64 {
    line["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// A watch that ends while events wait for it says where it is, not where it began.
#[test]
fn the_last_bookmark_is_not_before_the_last_event() {
    let server = Server::with(&["--api-only"]);
    let (admin, dir) = (Caller::admin(&server), tempfile::tempdir().unwrap());
    let target = Target::new(server.data_dir(), &server.url()).unwrap();
    let stop = AtomicBool::new(false);
    let watched = std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let writers = (0..WRITERS).map(|writer| write(&target, writer, &stop));
            runtime.block_on(futures::future::try_join_all(writers)).unwrap();
        });
        let mut watched = Vec::new();
        for round in 0..ROUNDS {
            let from = admin.get(&format!("{MAPS}?limit=1")).1;
            let from = from["metadata"]["resourceVersion"].as_str().unwrap();
            let path =
                format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={from}");
            let file = |number: usize| dir.path().join(format!("{round}-{number}"));
            let mut watches: Vec<_> =
                (0..AT_A_TIME).map(|number| admin.watch_into(&path, &file(number))).collect();
            eventually("the watches end", WAIT, || watches.iter_mut().all(Watch::over));
            watched.extend((0..AT_A_TIME).map(|number| std::fs::read_to_string(file(number)).unwrap()));
        }
        stop.store(true, Ordering::Relaxed);
        watched
    });
    for text in watched {
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.last().unwrap()["type"], "BOOKMARK");
        let versions: Vec<u64> = lines.iter().map(version).collect();
        assert!(versions.is_sorted(), "{:?}", &versions[versions.len().saturating_sub(3)..]);
    }
}
