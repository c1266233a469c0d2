//! Exchanges with a server that sends fixed bytes.

#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A client of a server that sends `answer` after each request and closes the connection.
async fn client_of(answer: String) -> HttpsClient {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    HttpsClient::new(&url, &ClientTls::default()).unwrap()
}

#[test]
fn a_kubeconfig_whose_context_names_what_is_not_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    for (context, why) in [
        ("{cluster: c, user: u}", None),
        ("{cluster: c}", None),
        ("{cluster: c, user: v}", Some("user \"v\" was not found for context \"x\"")),
        ("{cluster: d, user: u}", Some("cluster \"d\" was not found for context \"x\"")),
    ] {
        let text = format!(
            "{{clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1'}}}}], users: [{{name: u, user: {{token: t}}}}],
             contexts: [{{name: x, context: {context}}}], current-context: x}}"
        );
        std::fs::write(&path, text).unwrap();
        let refused = HttpsClient::from_kubeconfig(&path).err().map(|error| error.to_string());
        match why {
            Some(why) => assert!(refused.as_deref().is_some_and(|text| text.contains(why)), "{refused:?}"),
            None => assert_eq!(refused, None),
        }
    }
}

#[tokio::test]
async fn answers_are_json_or_null() {
    let client = client_of("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}".into()).await;
    assert_eq!(client.send(Method::GET, "/x", None).await.unwrap(), (200, json!({"a": 1})));
    let client = client_of("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy".into()).await;
    assert_eq!(client.send(Method::POST, "", Some(&json!({}))).await.unwrap(), (503, Value::Null));
}

#[tokio::test]
async fn redirects_are_answers() {
    let client = client_of("HTTP/1.1 302 Found\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n".into()).await;
    assert_eq!(client.send(Method::GET, "/x", None).await.unwrap().0, 302);
}

#[tokio::test]
async fn long_answers_are_refused() {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", LIMIT + 1);
    let client = client_of(head + &" ".repeat(LIMIT + 1)).await;
    let error = client.send(Method::GET, "/x", None).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{}/x: length limit exceeded", client.url()));
}

#[tokio::test]
async fn silence_is_a_timeout() {
    // Accepts no connection, so that only the kernel answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = HttpsClient::new(&url, &ClientTls::default()).unwrap();
    let client = client.with_timeout(Duration::from_millis(50));
    let error = client.send(Method::GET, "/x", None).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{url}/x: no answer in time"));
}
