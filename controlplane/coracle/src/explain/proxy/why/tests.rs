#![allow(clippy::unwrap_used)]

use super::super::tests::asked;
use super::super::{Mode, Proxy};
use super::*;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::net::TcpListener;

/// A cluster without nodes. The pod `web` waits for one; pods whose names begin with `slow` are never answered.
async fn cluster() -> (kube::Client, Arc<AtomicUsize>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counted = counted.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                counted.fetch_add(1, Relaxed);
                async move {
                    let (code, body) = object(request.uri().path()).await;
                    let mut response = Response::new(full(body.to_string()));
                    *response.status_mut() = code;
                    Ok::<_, Infallible>(response)
                }
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(async move {
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let config = kube::Config::new(address.parse().unwrap());
    (kube::Client::try_from(config).unwrap(), requests)
}

async fn object(path: &str) -> (StatusCode, Value) {
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Pending"},
        })
    };
    match path {
        "/api/v1/namespaces/default" => (
            StatusCode::OK,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}),
        ),
        "/api/v1/namespaces/default/pods/web" => (StatusCode::OK, pod("web")),
        "/api/v1/pods" => (StatusCode::OK, json!({"items": [pod("web")]})),
        "/api/v1/nodes" => (StatusCode::OK, json!({"items": []})),
        path if path.contains("/pods/slow") => std::future::pending().await,
        _ => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "NotFound", "code": 404, "message": "not found"});
            (StatusCode::NOT_FOUND, status)
        }
    }
}

async fn proxy(client: kube::Client) -> Proxy {
    let mode = Mode::Page { own: None, namespace: "default".to_owned() };
    Proxy::start(client, mode, 0).await.unwrap()
}

async fn why(proxy: &Proxy, query: &str) -> String {
    asked(proxy, &format!("GET /TOKEN/coracle/v1/why{query} HTTP/1.1\r\nHost: 127.0.0.1:PORT")).await
}

fn body(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn the_proxy_names_the_root_cause() {
    let (client, requests) = cluster().await;
    let proxy = proxy(client).await;
    let query = "?resource=pods&namespace=default&name=web";
    let begun = Instant::now();
    let answer = why(&proxy, query).await;
    assert!(answer.contains("content-type: application/json"), "{answer}");
    assert!(answer.contains("sandbox") && answer.contains("no-store"), "{answer}");
    let report = body(&answer);
    assert_eq!(report.pointer("/objects/0/name").unwrap(), "web");
    assert_eq!(report.pointer("/findings/0/cause").unwrap(), "the cluster has no nodes");
    assert_eq!(report.pointer("/findings/0/remedy").unwrap(), "add a node to the cluster");
    let before = requests.load(Relaxed);
    assert_eq!(body(&why(&proxy, query).await), report);
    // Not on a machine that is so slow that it is kept no longer.
    assert!(requests.load(Relaxed) == before || begun.elapsed() >= KEPT, "nothing is read for what is kept");
    let survey = body(&why(&proxy, "").await);
    assert!(survey.get("objects").is_none(), "{survey}");
    let causes = survey.get("findings").and_then(Value::as_array).unwrap();
    let is_known = |cause: &Value| cause.get("trouble").is_some_and(|trouble| trouble == "no-nodes");
    assert!(causes.iter().any(is_known), "{survey}");
    assert_eq!(proxy.forwarded(), 0);
}

#[tokio::test]
async fn what_cannot_be_answered() {
    let (client, requests) = cluster().await;
    let proxy = proxy(client).await;
    for (query, code, text) in [
        ("?resource=pods&name=other", 404, "pod/other in namespace default does not exist"),
        ("?resource=pods&namespace=gone&name=web", 404, "pod/web does not exist: there is no namespace gone"),
        ("?resource=unheard&name=web", 404, "the server has no kind unheard"),
        ("?resource=pods", 400, "parameter name is missing"),
    ] {
        let answer = why(&proxy, query).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")) && answer.contains(text),
            "{query}: {answer}"
        );
    }
    let before = requests.load(Relaxed);
    let answer = why(&proxy, "?resource=pods&namespace=a%2Fpods%2Fb%2Fproxy&name=web").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let head = "HEAD /TOKEN/coracle/v1/why HTTP/1.1\r\nHost: 127.0.0.1:PORT";
    let answer = asked(&proxy, head).await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert_eq!(requests.load(Relaxed), before, "neither asks the cluster");
}

#[tokio::test]
async fn few_analyses_run_and_wait_at_a_time() {
    let (client, _) = cluster().await;
    let analyses = Arc::new(Analyses::new(client, "default".to_owned()));
    let ask = |name: String| {
        let analyses = analyses.clone();
        async move { analyses.respond(&Method::GET, &format!("resource=pods&name={name}")).await }
    };
    let all = (0..AT_A_TIME + IN_LINE).map(|number| tokio::spawn(ask(format!("slow-{number}"))));
    let all: Vec<_> = all.collect();
    while analyses.line.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(analyses.running.available_permits(), 0);
    assert_eq!(ask("web".to_owned()).await.status(), StatusCode::TOO_MANY_REQUESTS);
    // Those that nobody waits for make room.
    all.iter().for_each(|one| one.abort());
    while analyses.line.available_permits() < IN_LINE {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask("web".to_owned()).await.status(), StatusCode::OK);
}

#[test]
fn answers_are_good_for_a_while() {
    let since = Instant::now();
    let kept = Some(Kept { answer: Ok(Bytes::from_static(b"{}")), since });
    assert!(good(&kept, since).is_some());
    assert!(good(&kept, since + KEPT - Duration::from_millis(1)).is_some());
    assert!(good(&kept, since + KEPT).is_none());
    assert!(good(&None, since).is_none());
}
