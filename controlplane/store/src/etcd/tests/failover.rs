//! Members that die, hang or lose answers.

use super::*;
use crate::Write;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_or_hangs_is_replaced_by_the_next() {
    let mut etcd = Cluster::start(3, "http", &[]);
    etcd.ready().await;
    let store = Etcd::connect(&etcd.options(), &Supervisor::default()).await.unwrap();
    let mut at = put(&store, "/registry/a", 0, "0").await.unwrap();
    for n in 0..2 {
        let endpoints = &store.shared.endpoints;
        until(|| async {
            endpoints.prefer_first().await;
            endpoints.current().unwrap().url == etcd.members[0].url
        })
        .await;
        let mut watch = store.watch("/registry/", at).await.unwrap();
        if n == 0 {
            etcd.members[0].kill();
        } else {
            etcd.members[0].freeze();
        }
        let begun = Instant::now();
        let written = put(&store, "/registry/a", at, &n.to_string()).await;
        at = match written {
            Ok(revision) => revision,
            // The member that is gone may have written it.
            Err(StoreError::Etcd(EtcdError::Ambiguous(_))) => {
                store.get("/registry/a").await.unwrap().unwrap().modified
            }
            Err(error) => panic!("{error:?}"),
        };
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_ne!(endpoints.current().unwrap().url, etcd.members[0].url, "the endpoint is avoided");
        assert!(store.revision().await.unwrap() >= at);
        let ended = async { while watch.next().await.is_some_and(|item| item.is_ok()) {} };
        tokio::time::timeout(HANGS, ended).await.expect("the watch does not hang");
        let mut watch = store.watch("/registry/", at - 1).await.unwrap();
        assert_eq!(next_change(&mut watch).await.revision, at);
        if n == 0 {
            etcd.members[0].restart_dead();
        } else {
            etcd.members[0].thaw();
        }
        etcd.ready().await;
    }
    // Without a majority nothing is written, and health tells why.
    etcd.members[1].kill();
    etcd.members[2].kill();
    let why = store.health().await.unwrap_err().to_string();
    assert!(why.contains(&etcd.members[1].url), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_is_waited_for_and_the_member_in_use_stays() {
    let etcd = Cluster::start(3, "http", &["--pre-vote=true".to_owned()]);
    etcd.ready().await;
    let leader = etcd.leader().await;
    // A follower comes first, then the leader.
    let order = [(leader + 1) % 3, leader, (leader + 2) % 3];
    let endpoints = order.iter().map(|n| etcd.members[*n].url.clone()).collect();
    let options = EtcdOptions { endpoints, ..EtcdOptions::default() };
    let store = Etcd::connect(&options, &Supervisor::default()).await.unwrap();
    let at = put(&store, "/registry/a", 0, "0").await.unwrap();
    let mut watch = store.watch("/registry/", at).await.unwrap();
    etcd.members[leader].freeze();
    // Sent to a leader that never gets them, or refused for want of one.
    let (read, updated, created) = tokio::join!(
        store.revision(),
        put(&store, "/registry/a", at, "1"),
        put(&store, "/registry/b", 0, "2"),
    );
    let (updated, created) = (updated.unwrap(), created.unwrap());
    assert!(read.unwrap() >= at);
    let endpoints = &store.shared.endpoints;
    assert_eq!(endpoints.current().unwrap().url, etcd.members[order[0]].url, "it answers again");
    let mut seen = [next_change(&mut watch).await.revision, next_change(&mut watch).await.revision];
    seen.sort_unstable();
    let mut written = [updated, created];
    written.sort_unstable();
    assert_eq!(seen, written, "on the same watch");
    etcd.members[leader].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_do_not_fit_are_named() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let expired = Certificates::with(&["127.0.0.1"], (2000, 2001));
    let elsewhere = Certificates::with(&["10.1.2.3"], (2000, 4000));
    let unreached =
        [(&ours, &others, "from a CA that is not trusted here"), (&expired, &expired, "has expired")]
            .into_iter()
            .chain([(&elsewhere, &elsewhere, "is for another name")]);
    for (server, client, why) in unreached {
        let etcd = Cluster::start(1, "https", &server.server_args());
        etcd.ready().await;
        let options = EtcdOptions {
            ca: Some(client.file("ca.crt")),
            cert: Some(client.file("client.crt")),
            key: Some(client.file("client.key")),
            ..etcd.options()
        };
        let error = connect(&options).await.err().unwrap().to_string();
        assert!(error.starts_with("etcd: its certificate ") && error.contains(why), "{error}");
        // With several endpoints each has its reason.
        let both = vec![etcd.members[0].url.clone(), "https://127.0.0.1:1".to_owned()];
        let error = connect(&EtcdOptions { endpoints: both, ..options }).await.err().unwrap().to_string();
        assert!(error.contains(&format!("{}: its certificate ", etcd.members[0].url)), "{error}");
        assert!(error.contains("https://127.0.0.1:1: Connection refused"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_endpoint_is_one_that_answers() {
    let etcd = Cluster::start(3, "http", &[]);
    etcd.ready().await;
    // It accepts connections and says nothing, as a member that is cut off.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let urls: Vec<String> = etcd.members.iter().map(|member| member.url.clone()).collect();
    let endpoints = vec![urls[0].clone(), silent.clone(), urls[1].clone(), urls[2].clone()];
    let store = connect(&EtcdOptions { endpoints, ..EtcdOptions::default() }).await.unwrap();
    let at = put(&*store, "/registry/a", 0, "0").await.unwrap();
    etcd.members[0].freeze();
    assert!(store.revision().await.unwrap() >= at, "read from another member");
    let written = put(&*store, "/registry/b", 0, "1").await;
    etcd.members[0].thaw();
    assert!(written.unwrap() > at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_requests_are_refused_until_it_is_back() {
    let etcd = Cluster::start(3, "http", &[]);
    etcd.ready().await;
    let store = Etcd::connect(&etcd.options(), &Supervisor::default()).await.unwrap();
    let at = put(&store, "/registry/a", 0, "0").await.unwrap();
    etcd.members[1].freeze();
    etcd.members[2].freeze();
    let unavailable =
        |error: &StoreError| matches!(error, StoreError::Unavailable(Unhealthy::Unreachable { .. }));
    // The first ones find it out.
    until(|| async { store.get("/registry/a").await.is_err_and(|error| unavailable(&error)) }).await;
    // Nothing of it was sent: it is no write of which nobody knows.
    let refused = put(&store, "/registry/a", at, "1").await.unwrap_err();
    assert!(unavailable(&refused), "{refused:?}");
    let why = store.health().await.unwrap_err().to_string();
    assert!(why.contains(&etcd.members[1].url), "{why}");
    etcd.members[1].thaw();
    etcd.members[2].thaw();
    until(|| async { store.get("/registry/a").await.is_ok() }).await;
    assert!(put(&store, "/registry/a", at, "2").await.unwrap() > at);
}

/// A proxy that can swallow answers: requests arrive, and nobody learns of it.
struct Proxy {
    url: String,
    swallow: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(target: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let swallow = Arc::new(AtomicBool::new(false));
        let (target, swallowing) = (target.trim_start_matches("http://").to_owned(), swallow.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = tokio::net::TcpStream::connect(&target).await.unwrap();
                let ((mut from, mut to), (mut answers, mut requests)) = (near.into_split(), far.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut requests).await });
                let swallowing = swallowing.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(length @ 1..) = answers.read(&mut buffer).await {
                        if !swallowing.load(Ordering::SeqCst) {
                            to.write_all(&buffer[..length]).await.unwrap();
                        }
                    }
                });
            }
        });
        Self { url, swallow }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_found_out() {
    let etcd = Cluster::plain();
    etcd.ready().await;
    let proxy = Proxy::start(&etcd.members[0].url).await;
    let direct = etcd.connect().await;
    let endpoints = vec![proxy.url.clone(), etcd.members[0].url.clone()];
    let lossy = EtcdOptions { endpoints, ..EtcdOptions::default() };
    let write = |key: &str, expect, value: Option<&str>| Write {
        key: key.to_owned(),
        expect,
        value: value.map(|value| value.to_owned().into()),
        durability: Durability::Sync,
        fence: None,
    };

    // A creation is known by its value.
    let store = connect(&lossy).await.unwrap();
    proxy.swallow.store(true, Ordering::SeqCst);
    let created = store.write(write("/registry/a", 0, Some("unique"))).await.unwrap();
    assert_eq!(direct.get("/registry/a").await.unwrap().unwrap().modified, created);

    // An update, by the number that was written with it.
    proxy.swallow.store(false, Ordering::SeqCst);
    let store = connect(&lossy).await.unwrap();
    proxy.swallow.store(true, Ordering::SeqCst);
    let updated = store.write(write("/registry/a", created, Some("2"))).await.unwrap();
    let now = direct.get("/registry/a").await.unwrap().unwrap();
    assert_eq!((&now.value[..], now.modified), (&b"2"[..], updated));

    // And a deletion.
    proxy.swallow.store(false, Ordering::SeqCst);
    let store = connect(&lossy).await.unwrap();
    let doomed = put(&*store, "/registry/b", 0, "1").await.unwrap();
    proxy.swallow.store(true, Ordering::SeqCst);
    let deleted = store.write(write("/registry/b", doomed, None)).await.unwrap();
    assert!(deleted > doomed && direct.get("/registry/b").await.unwrap().is_none());

    // Of two servers that make the same update only one has made it.
    proxy.swallow.store(false, Ordering::SeqCst);
    let store = connect(&lossy).await.unwrap();
    let counter = put(&*store, "/registry/c", 0, "5").await.unwrap();
    let same = put(&*direct, "/registry/c", counter, "6").await.unwrap();
    proxy.swallow.store(true, Ordering::SeqCst);
    match store.write(write("/registry/c", counter, Some("6"))).await {
        Err(StoreError::Conflict(Some(found))) => assert_eq!(found.modified, same),
        other => panic!("{other:?}"),
    }

    // What another has written first is a conflict, although the answer was lost.
    proxy.swallow.store(false, Ordering::SeqCst);
    let store = connect(&lossy).await.unwrap();
    proxy.swallow.store(true, Ordering::SeqCst);
    let theirs = put(&*direct, "/registry/a", now.modified, "theirs").await.unwrap();
    match store.write(write("/registry/a", now.modified, Some("ours"))).await {
        Err(StoreError::Conflict(Some(found))) => assert_eq!(found.modified, theirs),
        other => panic!("{other:?}"),
    }
    let deleted = delete(&*direct, "/registry/a", theirs).await.unwrap();
    assert!(deleted > theirs);

    // A write that never arrived is made by the next attempt.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoints = vec![format!("http://{nowhere}"), etcd.members[0].url.clone()];
    let store = connect(&EtcdOptions { endpoints, ..EtcdOptions::default() }).await.unwrap();
    store.write(write("/registry/b", 0, Some("1"))).await.unwrap();
}
