#![allow(clippy::unwrap_used)]

use super::Failures;
use super::asking::Asking;
use super::connection::{MOST_BYTES, Peer, PeerError};
use bytes::Bytes;
use coracle_timeline::Elsewhere;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server that answers the first question with nothing, and the others with some bytes, or never.
async fn peer(server: &str, answer: Option<Vec<u8>>) -> Result<Peer, PeerError> {
    let (near, far) = tokio::io::duplex(64 << 10);
    let asked = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |_request: Request<Incoming>| {
        let (answer, is_first) = (answer.clone(), asked.fetch_add(1, Ordering::Relaxed) == 0);
        async move {
            let body = match answer {
                _ if is_first => Vec::new(),
                Some(answer) => answer,
                None => std::future::pending().await,
            };
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
        }
    });
    tokio::spawn(async move {
        let http = hyper::server::conn::http1::Builder::new();
        let _ = http.serve_connection(TokioIo::new(far), service).await;
    });
    Peer::over(server, near).await
}

/// What is said to be missing of a search that asks three times, whether servers are left alone afterwards, and how long it took.
async fn asked(peers: Vec<Peer>) -> (Vec<String>, bool, Duration) {
    let failures = Failures::default();
    let mut asking = Asking::new(failures.clone());
    peers.into_iter().for_each(|peer| asking.add(peer));
    let (began, ask) = (Instant::now(), move || {
        assert!((0..3).all(|_| asking.open().is_empty()));
        asking.missing()
    });
    let missing = tokio::task::spawn_blocking(ask).await.unwrap();
    let is_left_alone = !failures.lock().is_empty();
    (missing, is_left_alone, began.elapsed())
}

#[tokio::test]
async fn servers_that_do_not_answer_are_left_out_and_named() {
    let good = || peer("good:6443", Some(Vec::new()));
    assert_eq!(asked(vec![good().await.unwrap()]).await.0, Vec::<String>::new());
    for (answer, why) in [
        (None, "no answer in time".to_owned()),
        (Some(b"garbage".to_vec()), "its answer is no list of blocks".to_owned()),
        (Some(vec![0; MOST_BYTES + 1]), format!("its answer has more than {MOST_BYTES} bytes")),
    ] {
        let bad = peer("bad:6443", answer).await.unwrap();
        let (missing, is_left_alone, took) = asked(vec![good().await.unwrap(), bad]).await;
        assert_eq!(missing, [format!("spans of server bad:6443 are missing: {why}")]);
        assert!(is_left_alone && took < Duration::from_secs(2), "{took:?}");
    }
}

#[tokio::test]
async fn a_server_that_failed_is_not_asked_for_a_while() {
    let failures = Failures::default();
    let one_search = |peer| {
        let mut asking = Asking::new(failures.clone());
        asking.add(peer);
        tokio::task::spawn_blocking(move || (0..2).for_each(|_| drop(asking.open())))
    };
    one_search(peer("bad:6443", Some(b"garbage".to_vec())).await.unwrap()).await.unwrap();
    let mut next = Asking::new(failures);
    next.add(peer("bad:6443", Some(Vec::new())).await.unwrap());
    assert_eq!(next.missing(), ["spans of server bad:6443 are missing: its answer is no list of blocks"]);
}
