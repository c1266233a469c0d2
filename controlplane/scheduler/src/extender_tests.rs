//! Pods that extenders have a say in, through the API.

#![allow(clippy::unwrap_used)]
use crate::config::Configuration;
use crate::run_tests::{Fixture, condition, fixture_with};
use coracle_client::options::DeleteOptions;
use coracle_client::pipeline::Placement;
use coracle_kinds::object::Name;
use coracle_testing::Cluster;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

type Answer = Arc<dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync>;

/// What an extender was asked: verb and body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An extender that answers as the function says; its URL and what it was asked.
async fn extender(answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api", listener.local_addr().unwrap());
    let (asked, answer): (Asked, Answer) = (Asked::default(), Arc::new(answer));
    let log = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer.clone(), log.clone()));
        }
    });
    (url, asked)
}

async fn serve(stream: TcpStream, answer: Answer, log: Asked) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let verb = first.split(' ').nth(1).unwrap().rsplit('/').next().unwrap().to_owned();
        log.lock().push((verb.clone(), body.clone()));
        let (code, text) = answer(&verb, &body);
        let text = text.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all((head + &text).as_bytes()).await?;
    }
}

fn config(url: &str, rest: &str) -> Configuration {
    Configuration::parse(&format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n- {{urlPrefix: '{url}', {rest}}}\n"
    ))
    .unwrap()
}

async fn with_nodes(config: Configuration, nodes: &[&str]) -> Fixture {
    let f = fixture_with(config).await;
    for name in nodes {
        f.node(name, "4").await;
    }
    f
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_filters_and_scores_nodes() {
    let (url, asked) = extender(|verb, body| match verb {
        "filter" => {
            let all = body["Nodes"]["items"].as_array().unwrap();
            // Nodes come one by one.
            if all.len() < 3 {
                return (200, json!({"Nodes": {"items": []}}));
            }
            let left: Vec<&Value> = all.iter().filter(|n| n["metadata"]["name"] != "a").collect();
            (200, json!({"Nodes": {"items": left}, "FailedNodes": {"a": "not this one"}}))
        }
        _ => (200, json!([{"Host": "b", "Score": 0}, {"Host": "c", "Score": 10}])),
    })
    .await;
    let f = with_nodes(
        config(&url, "filterVerb: filter, prioritizeVerb: prioritize, weight: 100"),
        &["a", "b", "c"],
    )
    .await;
    for name in ["p", "q", "r"] {
        f.pod(name, "100m", |_| {}).await;
        assert_eq!(f.bound(name).await, "c", "all others score less");
    }
    let asked = asked.lock();
    let (verb, body) = asked.iter().find(|(verb, _)| verb == "filter").unwrap();
    assert_eq!(
        (verb.as_str(), &body["Pod"]["metadata"]["name"], &body["NodeNames"]),
        ("filter", &json!("p"), &Value::Null)
    );
    let scored = &asked.iter().find(|(verb, _)| verb == "prioritize").unwrap().1["Nodes"]["items"];
    assert_eq!(scored.as_array().unwrap().len(), 2, "what was refused is not scored");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_extender_refuses_is_told_and_tried_again() {
    let open = Arc::new(Mutex::new(false));
    let is_open = open.clone();
    let (url, _) = extender(move |_, body| {
        let all = body["NodeNames"].as_array().unwrap();
        let failed: serde_json::Map<String, Value> =
            all.iter().map(|name| (name.as_str().unwrap().to_owned(), json!("no licence left"))).collect();
        match *is_open.lock() {
            true => (200, json!({"nodenames": all})),
            false => (200, json!({"nodenames": [], "failedNodes": failed})),
        }
    })
    .await;
    let f = with_nodes(config(&url, "filterVerb: filter, nodeCacheCapable: true"), &["a", "b"]).await;
    f.pod("p", "100m", |_| {}).await;
    let told = |c: &Cluster| {
        let pod = c.get("pods", &Name::new("default", "p"));
        let message = condition(&pod, "PodScheduled")["message"].as_str().unwrap_or_default().to_owned();
        message.starts_with("0/2 nodes are available: 2 no licence left.")
    };
    f.cluster.until("a condition", told).await;
    *open.lock() = true;
    // What an extender goes by is its own business: any change of a node is a reason to ask again.
    f.node("c", "4").await;
    f.bound("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_that_fails_stops_only_its_pods_unless_it_is_ignorable() {
    let (url, _) = extender(|_, _| (500, Value::Null)).await;
    let managed = "managedResources: [{name: x.io/gpu, ignoredByScheduler: true}], filterVerb: filter";
    let gpu = |p: &mut Value| {
        p["spec"]["containers"][0]["resources"] =
            json!({"requests": {"x.io/gpu": "1"}, "limits": {"x.io/gpu": "1"}});
    };
    let f = with_nodes(config(&url, managed), &["a"]).await;
    f.pod("its", "100m", gpu).await;
    f.pod("other", "100m", |_| {}).await;
    f.bound("other").await;
    let failed = |c: &Cluster| {
        let condition = condition(&c.get("pods", &Name::new("default", "its")), "PodScheduled");
        condition["reason"] == "SchedulerError"
            && condition["message"].as_str().is_some_and(|m| m.contains("status code 500"))
    };
    f.cluster.until("an error", failed).await;
    assert!(f.get("its")["spec"]["nodeName"].is_null());
    let f = with_nodes(config(&url, &format!("{managed}, ignorable: true")), &["a"]).await;
    f.pod("its", "100m", gpu).await;
    assert_eq!(f.bound("its").await, "a", "no node has the resource: the scheduler does not check it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_binds() {
    let bindings: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (log, (sender, mut receiver)) = (bindings.clone(), tokio::sync::mpsc::unbounded_channel());
    let (url, _) = extender(move |_, body| {
        let first = log.lock().is_empty();
        log.lock().push(body.clone());
        if first {
            return (200, json!({"Error": "come back later"}));
        }
        sender.send(body.clone()).unwrap();
        (200, json!({}))
    })
    .await;
    let f = with_nodes(config(&url, "bindVerb: bind"), &["a"]).await;
    f.pod("p", "100m", |_| {}).await;
    // The first attempt is refused, and made again.
    let body = receiver.recv().await.unwrap();
    assert_eq!(
        (&body["PodName"], &body["PodNamespace"], &body["Node"]),
        (&json!("p"), &json!("default"), &json!("a"))
    );
    let uid = f.get("p")["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(body["PodUID"], uid);
    assert!(f.get("p")["spec"]["nodeName"].is_null(), "the scheduler leaves that to the extender");
    let placement = Placement {
        namespace: "default",
        name: "p",
        uid: &uid,
        node: "a",
        scope: coracle_trace::Scope::NONE,
    };
    f.cluster.client.bind(&[placement]).await.pop().unwrap().unwrap();
    assert_eq!(f.bound("p").await, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_decides_whom_a_preemption_removes() {
    let (url, asked) = extender(|_, body| {
        let only = &body["NodeNameToMetaVictims"]["b"];
        (200, json!({"NodeNameToMetaVictims": {"b": only}}))
    })
    .await;
    let f = with_nodes(config(&url, "preemptVerb: preempt, nodeCacheCapable: true"), &["a", "b"]).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    f.cluster.create("scheduling.k8s.io", "priorityclasses", "", class).await;
    for name in ["one", "two"] {
        f.pod(name, "3", |_| {}).await;
        f.bound(name).await;
    }
    let victim = if f.get("one")["spec"]["nodeName"] == "b" { "one" } else { "two" };
    f.pod("high", "3", |p| p["spec"]["priorityClassName"] = json!("high")).await;
    let gone = |c: &Cluster| {
        let pod = c.get("pods", &Name::new("default", victim));
        pod.is_null() || pod["metadata"]["deletionTimestamp"].is_string()
    };
    f.cluster.until("the victim goes", gone).await;
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let _ = f.cluster.client.delete(&f.cluster.client.kind("", "pods"), "default", victim, options).await;
    assert_eq!(f.bound("high").await, "b");
    assert_eq!(
        asked.lock()[0].1["NodeNameToMetaVictims"].as_object().unwrap().len(),
        2,
        "it was asked about both"
    );
}
