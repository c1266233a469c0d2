//! InitialResources: missing requests are what containers of the same image used, as their node reported it.

use crate::relay::acceptor;
use bytes::Bytes;
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SOON: Duration = Duration::from_secs(60);
const SETTINGS: &str = "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: \
    InitialResources, configuration: {apiVersion: initialresources.admission.k8s.io/v1alpha1, kind: Configuration, \
    percentile: 95, window: 1h, minimumSamples: 2, sampleInterval: 1s}}]}";

/// The usage of the container `c` of the pod `p`.
async fn usage(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, http::Error> {
    let cpu = json!({"time": "2026-01-01T00:00:00Z", "usageNanoCores": 200_000_000});
    let container = json!({"name": "c", "cpu": cpu, "memory": {"workingSetBytes": 64 << 20}});
    let pod = json!({"podRef": {"name": "p", "namespace": "default"}, "containers": [container]});
    Response::builder().body(Full::new(json!({"pods": [pod]}).to_string().into()))
}

/// The agent of the node `n1`; its port.
fn agent(server: &Server) -> u16 {
    let tls = acceptor(server);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service_fn(usage)).await;
                });
            }
        });
    });
    port
}

fn pod(metadata: Value, image: &str, resources: Value) -> Value {
    json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": image, "resources": resources}]}})
}

#[test]
fn requests_are_what_the_image_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admission.yaml");
    std::fs::write(&file, SETTINGS).unwrap();
    let plugin = ["--enable-admission-plugins", "InitialResources"];
    let settings = ["--admission-control-config-file", file.to_str().unwrap()];
    let server = Server::with(&[&["--api-only"], &plugin[..], &settings[..]].concat());
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    admin.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n1"}}));
    let endpoint = json!({"kubeletEndpoint": {"Port": agent(&server)}});
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    let status = json!({"status": {"addresses": addresses, "daemonEndpoints": endpoint}});
    let (code, answer) = admin.send("PATCH", "/api/v1/nodes/n1/status", Some(&status));
    assert_eq!(code, 200, "{answer}");
    let mut measured = pod(json!({"name": "p"}), "shop:1", json!({}));
    measured["spec"]["nodeName"] = json!("n1");
    let first = admin.create(PODS, &measured);
    assert_eq!(first["spec"]["containers"][0]["resources"], json!({}), "nothing is known yet");
    assert!(kubectl.run("top pod p --no-headers").contains("200m"));

    let made = |image: &str, resources: Value| {
        let name = json!({"generateName": "q-"});
        admin.create(PODS, &pod(name, image, resources))
    };
    let requests = |pod: &Value| pod["spec"]["containers"][0]["resources"]["requests"].clone();
    eventually("requests are set", SOON, || requests(&made("shop:1", json!({})))["cpu"].is_string());
    let filled = made("shop:1", json!({}));
    let amount = |name: &str, unit: &str| {
        let text = requests(&filled)[name].as_str().unwrap().to_owned();
        text.strip_suffix(unit).unwrap().parse::<u64>().unwrap()
    };
    assert!((200..=210).contains(&amount("cpu", "m")), "{filled}");
    assert!((65_536..=68_900).contains(&amount("memory", "Ki")), "{filled}");
    let note = filled["metadata"]["annotations"]["kubernetes.io/initial-resources"].as_str().unwrap();
    assert!(note.contains("95th percentile") && note.contains("image shop:1 in namespace default"), "{note}");
    // What is said stays, and other images have no history.
    assert_eq!(requests(&made("shop:1", json!({"requests": {"cpu": "1", "memory": "1Mi"}})))["cpu"], "1");
    assert_eq!(requests(&made("shop:2", json!({}))), Value::Null);
    // A default limit is less than what was used.
    let item = json!({"type": "Container", "default": {"cpu": "100m"}});
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [item]}});
    admin.create("/api/v1/namespaces/default/limitranges", &range);
    let bounded = made("shop:1", json!({}));
    assert_eq!(requests(&bounded)["cpu"], "100m", "{bounded}");
    assert_eq!(bounded["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "100m"}));
    // Another namespace has no samples of its own.
    kubectl.run("create namespace other");
    admin.create("/api/v1/namespaces/other/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    let path = "/api/v1/namespaces/other/pods";
    let elsewhere = admin.create(path, &pod(json!({"name": "r"}), "shop:1", json!({})));
    let note = elsewhere["metadata"]["annotations"]["kubernetes.io/initial-resources"].as_str().unwrap();
    assert!(note.contains("in all namespaces"), "{note}");
}
