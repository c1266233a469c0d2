#![allow(clippy::unwrap_used)]

use super::*;
use http::header::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server that answers with the head of the request that it got.
async fn upstream() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                let mut head = format!("{} {}\n", request.method(), request.uri());
                for (name, value) in request.headers() {
                    head.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
                }
                let mut response = Response::new(full(head));
                response.headers_mut().insert("set-cookie", HeaderValue::from_static("a=b"));
                Ok::<_, Infallible>(response)
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(async move {
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

async fn proxy(mode: Mode) -> Proxy {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = format!("http://127.0.0.1:{}", upstream().await);
    let config = kube::Config::new(server.parse().unwrap());
    Proxy::start(kube::Client::try_from(config).unwrap(), mode, 0).await.unwrap()
}

fn page() -> Mode {
    Mode::Page { own: None, namespace: "default".to_owned() }
}

/// What is answered to a request line and further lines of the head.
pub(super) async fn asked(proxy: &Proxy, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
    let request = request.replace("TOKEN", &proxy.token).replace("PORT", &proxy.port.to_string());
    stream.write_all(format!("{request}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_page_reads_through_it() {
    let proxy = proxy(page()).await;
    let answer =
        asked(&proxy, "GET /TOKEN/api/v1/pods?limit=5 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nCookie: c=d").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("GET /api/v1/pods?limit=5"), "{answer}");
    assert!(!answer.contains("c=d") && !answer.to_lowercase().contains("set-cookie"), "{answer}");
    assert!(!answer.contains("traceparent"), "{answer}");
    assert!(answer.contains("sandbox") && answer.contains("no-store"), "{answer}");
    assert!(answer.contains("coracle-proxy: why"), "{answer}");
    assert_eq!(proxy.forwarded(), 1);
    let answer = asked(&proxy, "GET /TOKEN/ HTTP/1.1\r\nHost: localhost:PORT").await;
    assert!(answer.starts_with("HTTP/1.1 302"), "{answer}");
    assert!(answer.contains(&format!("/{}/ui/", proxy.token)), "{answer}");
    for (request, code) in [
        ("GET /api/v1/pods HTTP/1.1\r\nHost: 127.0.0.1:PORT", 404),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT", 404),
        ("GET /TOKEN/api/v1/pods HTTP/1.1\r\nHost: evil.example.com", 403),
        ("GET /TOKEN/ HTTP/1.1\r\nHost: evil.example.com", 403),
        ("GET /TOKEN/api/v1/pods HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: http://evil.example.com", 403),
        ("DELETE /TOKEN/api/v1/nodes/n1 HTTP/1.1\r\nHost: 127.0.0.1:PORT", 405),
        ("POST /TOKEN/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 0", 405),
        ("GET /TOKEN/api/v1/nodes/n1/proxy/run HTTP/1.1\r\nHost: 127.0.0.1:PORT", 404),
    ] {
        let answer = asked(&proxy, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{request}: {answer}");
    }
    assert_eq!(proxy.forwarded(), 1, "nothing of that was forwarded");
}

#[tokio::test]
async fn the_address_for_a_browser_can_be_opened_once() {
    let proxy = proxy(page()).await;
    let path = proxy.opening();
    let path = path.strip_prefix(&format!("http://127.0.0.1:{}", proxy.port)).unwrap();
    let foreign = asked(&proxy, &format!("GET {path} HTTP/1.1\r\nHost: evil.example.com")).await;
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let other =
        asked(&proxy, &format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 0")).await;
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    let first = asked(&proxy, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT")).await;
    assert!(first.starts_with("HTTP/1.1 302") && first.contains(&proxy.token), "{first}");
    let second = asked(&proxy, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT")).await;
    assert!(second.starts_with("HTTP/1.1 404") && !second.contains(&proxy.token), "{second}");
    assert_eq!(proxy.forwarded(), 0);
}

#[tokio::test]
async fn commands_write_within_their_trace() {
    let traceparent = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let proxy = proxy(Mode::Command { traceparent }).await;
    let answer =
        asked(&proxy, "DELETE /TOKEN/api/v1/namespaces/a/pods/b HTTP/1.1\r\nHost: 127.0.0.1:PORT").await;
    assert!(answer.contains("DELETE /api/v1/namespaces/a/pods/b"), "{answer}");
    assert!(
        answer.contains("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        "{answer}"
    );
    let answer = asked(&proxy, "DELETE /api/v1/namespaces/a/pods/b HTTP/1.1\r\nHost: 127.0.0.1:PORT").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert_eq!(proxy.forwarded(), 1);
}

#[tokio::test]
async fn this_program_has_a_page_for_other_servers() {
    fn own(path: &str, _: &HeaderMap) -> Option<Response<Body>> {
        (path == "/ui/").then(|| Response::new(full("page")))
    }
    let proxy = proxy(Mode::Page { own: Some(own), namespace: String::new() }).await;
    let answer = asked(&proxy, "GET /TOKEN/ui/ HTTP/1.1\r\nHost: 127.0.0.1:PORT").await;
    assert!(answer.ends_with("page"), "{answer}");
    let answer = asked(&proxy, "GET /TOKEN/ui/other.js HTTP/1.1\r\nHost: 127.0.0.1:PORT").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert_eq!(proxy.forwarded(), 0);
}
