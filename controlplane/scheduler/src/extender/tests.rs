#![allow(clippy::unwrap_used)]
use super::*;
use messages::{filtered, scores, victims};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn settings(url: String, timeout: Duration) -> Settings {
    Settings {
        url,
        verbs: Verbs { filter: Some("filter".into()), ..Verbs::default() },
        weight: 1,
        tls: Tls::default(),
        timeout,
        node_cache_capable: true,
        managed: Vec::new(),
        ignored: Vec::new(),
        ignorable: false,
    }
}

/// A server that answers every request with the same bytes, or never.
async fn server(answer: Option<Vec<u8>>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            if let Some(answer) = &answer {
                let _ = stream.write_all(answer).await;
            }
            open.push(stream);
        }
    });
    url
}

async fn ask(answer: Option<Vec<u8>>, timeout: Duration) -> ExtenderError {
    let url = server(answer).await;
    Extender::new(settings(url, timeout)).unwrap().http.post("filter", b"{}".to_vec()).await.unwrap_err()
}

fn response(code: &str, body: &str) -> Option<Vec<u8>> {
    Some(format!("HTTP/1.1 {code}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

#[tokio::test]
async fn answers_are_bounded_and_must_be_answers() {
    let minute = Duration::from_secs(60);
    assert!(matches!(ask(response("500 No", "x"), minute).await, ExtenderError::Status { code: 500, .. }));
    assert!(matches!(ask(response("200 OK", "no"), minute).await, ExtenderError::Malformed { .. }));
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    assert!(matches!(ask(response("200 OK", &large), minute).await, ExtenderError::TooLarge { .. }));
    assert!(matches!(ask(None, Duration::from_millis(1)).await, ExtenderError::Timeout { .. }));
    let nobody = Extender::new(settings("http://127.0.0.1:1".into(), minute)).unwrap();
    let error = nobody.http.post("filter", Vec::new()).await.unwrap_err();
    assert!(matches!(error, ExtenderError::Connection { .. }), "{error}");
}

#[test]
fn fields_of_answers_have_any_case() {
    let answer = json!({"nodeNames": ["a"], "FailedNodes": {"b": "no"}, "failedAndUnresolvableNodes": {"C": "never"}, "error": ""});
    let (left, refused) = filtered(&answer, true, "u").unwrap();
    assert_eq!((left, refused.failed["b"].as_str()), (vec!["a".to_owned()], "no"));
    assert_eq!(refused.unresolvable["C"], "never", "names of nodes keep their case");
    let answer = json!({"Nodes": {"items": [{"metadata": {"name": "b"}}]}});
    assert_eq!(filtered(&answer, false, "u").unwrap().0, ["b"]);
    assert!(filtered(&json!({}), false, "u").unwrap().0.is_empty());
    for wrong in [json!([]), json!({"nodenames": [1]}), json!({"nodenames": "a"}), json!({"Error": "broken"})]
    {
        assert!(filtered(&wrong, true, "u").is_err(), "{wrong}");
    }
    assert_eq!(
        scores(&json!([{"Host": "a", "Score": 3}, {"host": "b"}]), "u").unwrap(),
        [("a".into(), 3), ("b".into(), 0)]
    );
    assert!(scores(&json!([{"Score": 3}]), "u").is_err());
}

#[test]
fn victims_are_some_of_those_that_were_proposed() {
    let victim = |uid: &str| Victim { uid: uid.into(), object: None };
    let asked: Victims = [("n".to_owned(), (vec![victim("1"), victim("2")], 1))].into();
    let answer = |pods: Value| json!({"NodeNameToMetaVictims": {"n": {"Pods": pods, "NumPDBViolations": 0}}});
    let left = victims(&answer(json!([{"UID": "2"}])), &asked, "u").unwrap();
    assert_eq!((left["n"].0.len(), left["n"].0[0].uid.as_str(), left["n"].1), (1, "2", 0));
    assert!(victims(&answer(json!([])), &asked, "u").unwrap().is_empty(), "a preemption of nobody is none");
    let foreign = victims(&answer(json!([{"UID": "3"}])), &asked, "u").unwrap_err();
    assert!(matches!(foreign, ExtenderError::UnknownVictim { .. }), "{foreign}");
    let elsewhere = json!({"NodeNameToMetaVictims": {"other": {"Pods": []}}});
    assert!(matches!(victims(&elsewhere, &asked, "u").unwrap_err(), ExtenderError::UnknownNode { .. }));
}

#[test]
fn only_some_reasons_are_repeated() {
    let mut refused = Refused::default();
    for n in 0..40 {
        refused.failed.insert(format!("n{n}"), format!("reason {n} {}", "x".repeat(1000)));
    }
    refused.unresolvable.insert("n0".into(), "never".into());
    let mut reasons = BTreeSet::new();
    let all: Vec<Rejection> = (0..40).map(|n| rejection(&refused, &format!("n{n}"), &mut reasons)).collect();
    assert!(all[0].hopeless && all[0].reasons == ["never"]);
    assert!(!all[1].hopeless && all[1].reasons[0].len() == REASON);
    assert_eq!(all[39].reasons, ["node(s) didn't pass an extender"]);
    assert_eq!(reasons.len(), REASONS + 1);
}
