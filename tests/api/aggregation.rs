//! API aggregation: a real API server of somebody else behind this one, through kubectl.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use coracle_pki::authority::{Authority, Profile};
use coracle_tests::client::Target;
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::BufRead;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::broadcast;

const ROOT: &str = "/apis/boats.example.com/v1";
const PATIENCE: Duration = Duration::from_secs(60);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Boats by namespace and name, and whoever watches them.
struct Harbour {
    boats: Mutex<BTreeMap<(String, String), Value>>,
    news: broadcast::Sender<String>,
}

/// An API server that keeps boats and believes nobody but front proxies of the cluster; it ends when dropped.
pub(super) struct Extension {
    pub(super) port: u16,
    authority: Authority,
    runtime: Option<tokio::runtime::Runtime>,
    _dir: tempfile::TempDir,
}

impl Drop for Extension {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn body(value: &Value) -> Body {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

fn reply(code: u16, value: &Value) -> Response<Body> {
    Response::builder().status(code).header("content-type", "application/json").body(body(value)).unwrap()
}

fn missing() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
        "message": "no such boat", "code": 404});
    reply(404, &status)
}

fn discovery() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "boats.example.com/v1", "resources": [
        {"name": "boats", "singularName": "boat", "namespaced": true, "kind": "Boat", "shortNames": ["bt"],
         "verbs": ["create", "delete", "deletecollection", "get", "list", "watch"]},
        {"name": "boats/shell", "singularName": "", "namespaced": true, "kind": "Boat", "verbs": ["get"]}]})
}

fn openapi() -> Value {
    let kind = json!({"group": "boats.example.com", "version": "v1", "kind": "Boat"});
    let list = json!({"get": {"x-kubernetes-action": "list", "x-kubernetes-group-version-kind": kind}});
    json!({"openapi": "3.0.0", "info": {"title": "boats", "version": "1"},
        "paths": {format!("{ROOT}/namespaces/{{namespace}}/boats"): list},
        "components": {"schemas": {"Boat": {"type": "object", "description": "Boat floats.",
            "properties": {"sails": {"type": "integer", "description": "How many sails it has."}},
            "x-kubernetes-group-version-kind": [kind]}}}})
}

/// Who the front proxy says is asking.
fn asker(headers: &HeaderMap) -> Value {
    let all =
        |name: &str| -> Vec<&str> { headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect() };
    json!({"user": all("x-remote-user"), "groups": all("x-remote-group"), "token": headers.contains_key("authorization")})
}

impl Harbour {
    fn watch(&self) -> Response<Body> {
        let news = self.news.subscribe();
        let lines = futures::stream::unfold(news, |mut news| async move {
            let line = news.recv().await.ok()?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line + "\n"))), news))
        });
        let response = Response::builder().header("content-type", "application/json");
        response.body(StreamBody::new(lines.boxed()).boxed_unsync()).unwrap()
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let (path, query) =
            (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let below: Vec<&str> =
            path.strip_prefix(ROOT).unwrap_or("/?").split('/').filter(|part| !part.is_empty()).collect();
        match (request.method().clone(), below.as_slice()) {
            (Method::GET, []) => reply(200, &discovery()),
            (Method::GET, ["crew"]) => reply(200, &asker(request.headers())),
            (Method::GET, ["namespaces", _, "boats"] | ["boats"]) if query.contains("watch=") => self.watch(),
            (Method::GET, ["namespaces", namespace, "boats"]) => {
                let boats = self.boats.lock().unwrap();
                let here = boats.iter().filter(|((of, _), _)| of == namespace).map(|(_, boat)| boat);
                reply(
                    200,
                    &json!({"kind": "BoatList", "apiVersion": "boats.example.com/v1",
                    "metadata": {"resourceVersion": "1"}, "items": here.collect::<Vec<_>>()}),
                )
            }
            (Method::POST, ["namespaces", namespace, "boats"]) => {
                let bytes = request.body_mut().collect().await.unwrap().to_bytes();
                let mut boat: Value = serde_json::from_slice(&bytes).unwrap();
                boat["metadata"]["namespace"] = json!(namespace);
                boat["metadata"]["resourceVersion"] = json!("2");
                let name = boat["metadata"]["name"].as_str().unwrap().to_owned();
                boat["metadata"]["uid"] = json!(format!("{name}-uid"));
                self.boats.lock().unwrap().insert(((*namespace).to_owned(), name), boat.clone());
                let _ = self.news.send(json!({"type": "ADDED", "object": boat}).to_string());
                reply(201, &boat)
            }
            (Method::DELETE, ["namespaces", namespace, "boats"]) => {
                self.boats.lock().unwrap().retain(|(of, _), _| of != namespace);
                reply(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            (Method::GET, ["namespaces", namespace, "boats", name]) => {
                let boats = self.boats.lock().unwrap();
                boats
                    .get(&((*namespace).into(), (*name).into()))
                    .map_or_else(missing, |boat| reply(200, boat))
            }
            (Method::GET, ["namespaces", _, "boats", _, "shell"]) => {
                let user = asker(request.headers())["user"].to_string();
                let upgraded = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let mut stream = TokioIo::new(upgraded.await.unwrap());
                    let mut said = [0; 4];
                    stream.read_exact(&mut said).await.unwrap();
                    stream.write_all(user.as_bytes()).await.unwrap();
                    stream.write_all(&said).await.unwrap();
                });
                let response = Response::builder().status(101).header("connection", "Upgrade");
                response.header("upgrade", "echo").body(body(&Value::Null)).unwrap()
            }
            _ if path == "/openapi/v3" => {
                let at = json!({"serverRelativeURL": "/openapi/v3/apis/boats.example.com/v1?hash=A"});
                reply(
                    200,
                    &json!({"paths": {"apis/boats.example.com/v1": at, "api/v1": {"serverRelativeURL": "/mine"}}}),
                )
            }
            _ if path == "/openapi/v3/apis/boats.example.com/v1" => reply(200, &openapi()),
            _ => super::custom_metrics::answer(&path, &query).map_or_else(missing, |list| reply(200, &list)),
        }
    }
}

impl Extension {
    /// Starts one behind the front proxies of the server whose state is in `data_dir`; `port` 0 is any.
    pub(super) fn start(data_dir: &Path, port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::ensure(dir.path(), "ca", "boats-ca").unwrap();
        let signed = authority.sign(&Profile::server("boats", &["boats.default.svc".to_owned()])).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let proxies = std::fs::read(data_dir.join("pki/front-proxy-ca.crt")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&proxies).unwrap()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap(),
            )
            .unwrap();
        let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let harbour = Arc::new(Harbour { boats: Mutex::default(), news: broadcast::channel(16).0 });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, harbour) = (tls.clone(), harbour.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request| {
                        let harbour = harbour.clone();
                        async move { Ok::<_, Infallible>(harbour.answer(request).await) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        });
        Self { port, authority, runtime: Some(runtime), _dir: dir }
    }

    fn registration(&self) -> String {
        self.registration_of("boats.example.com", "v1")
    }

    /// The APIService of a group that it serves.
    pub(super) fn registration_of(&self, group: &str, version: &str) -> String {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": 17_790, "versionPriority": 15,
                "caBundle": STANDARD.encode(&self.authority.certificate),
                "service": {"namespace": "default", "name": "boats", "port": self.port}}})
        .to_string()
    }
}

fn service(spec: Value) -> String {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "boats"}, "spec": spec}).to_string()
}

/// Waits for what `kubectl get apiservice` shows as AVAILABLE.
fn available(kubectl: &Kubectl, want: &str) {
    let mut row = String::new();
    coracle_tests::eventually(&format!("the APIService is {want}"), PATIENCE, || {
        row = kubectl.run("get apiservice v1.boats.example.com --no-headers");
        row.contains(want)
    });
    assert!(row.contains("default/boats"), "{row}");
}

/// Groups in the order of `/apis`.
fn groups(kubectl: &Kubectl) -> Vec<String> {
    let list: Value = serde_json::from_str(&kubectl.run("get --raw /apis")).unwrap();
    let groups = list["groups"].as_array().unwrap().iter();
    groups.map(|group| group["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_api_server_of_somebody_else_is_served() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let extension = Extension::start(server.data_dir(), 0);

    // What is in the way is named, one after the other.
    kubectl.run_with("create -f -", &extension.registration());
    available(&kubectl, "False (ServiceNotFound)");
    let refused = kubectl.fails(&format!("get --raw {ROOT}"));
    assert!(refused.contains("the server is currently unable to handle the request"), "{refused}");
    kubectl.run_with("create -f -", &service(json!({"ports": [{"port": 1}]})));
    available(&kubectl, "False (ServicePortError)");
    kubectl.run("delete service boats");
    kubectl.run_with("create -f -", &service(json!({"ports": [{"port": extension.port}]})));
    available(&kubectl, "False (EndpointsNotFound)");
    kubectl.run("delete service boats");
    kubectl.run_with("create -f -", &service(json!({"type": "ExternalName", "externalName": "localhost"})));
    available(&kubectl, "True");

    // It is one of the server's groups, where its priority says.
    let order = groups(&kubectl);
    assert_eq!(order[..3], ["apiregistration.k8s.io", "apps", "boats.example.com"]);
    coracle_tests::eventually("its resources are listed", PATIENCE, || {
        let listed = kubectl.try_with("api-resources --api-group=boats.example.com --no-headers", "");
        listed.ok && listed.out.contains("bt") && listed.out.contains("Boat")
    });
    assert!(kubectl.run("explain boat.sails").contains("How many sails it has."));

    let document = aggregated(&server);
    assert!(document.contains("\"boats.example.com\"") && !document.contains("\"Stale\""), "{document}");

    // Objects, and a watch that tells of one while it is open.
    let boat = |name: &str| {
        json!({"apiVersion": "boats.example.com/v1", "kind": "Boat", "metadata": {"name": name}, "sails": 2})
            .to_string()
    };
    kubectl.run_with("create --validate=false -f -", &boat("gull"));
    assert!(kubectl.run("get bt").contains("gull"));
    assert_eq!(kubectl.run("get boat gull -o jsonpath={.sails}"), "2");
    assert!(kubectl.fails("get boat none").contains("no such boat"));
    let watching =
        ["get", "boats", "--watch-only", "--no-headers", "-o", "jsonpath={.metadata.name}{\"\\n\"}"];
    let mut watch = kubectl.command(&watching).stdout(Stdio::piped()).spawn().unwrap();
    let (sent, seen) = std::sync::mpsc::channel();
    let lines = std::io::BufReader::new(watch.stdout.take().unwrap());
    std::thread::spawn(move || lines.lines().map_while(Result::ok).try_for_each(|line| sent.send(line)));
    let mut made = 0;
    coracle_tests::eventually("the watch tells", PATIENCE, || {
        made += 1;
        kubectl.run_with("create --validate=false -f -", &boat(&format!("tern-{made}")));
        seen.recv_timeout(Duration::from_secs(1)).is_ok_and(|name| name.starts_with("tern-"))
    });
    let _ = watch.kill();
    let _ = watch.wait();

    // Who may is decided here; who asks is told there, whatever the client says.
    let crew = format!("get --raw {ROOT}/crew --as anna --as-group sailors");
    assert!(kubectl.fails(&crew).contains("resource \"crew\" in API group"), "anna may not");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "crew"},
        "rules": [{"apiGroups": ["boats.example.com"], "resources": ["crew"], "verbs": ["get", "list"]}]});
    kubectl.run_with("create -f -", &role.to_string());
    kubectl.run("create clusterrolebinding crew --clusterrole=crew --group=sailors");
    let mut said = Value::Null;
    coracle_tests::eventually("anna is let through", PATIENCE, || {
        said = serde_json::from_str(&kubectl.try_with(&crew, "").out).unwrap_or_default();
        said["user"] == json!(["anna"])
    });
    assert_eq!(
        said,
        json!({"user": ["anna"], "groups": ["sailors", "system:authenticated"], "token": false})
    );
    assert_eq!(shell(&server), "[\"kubernetes-admin\"]ahoy");

    // What belongs to objects of others lasts as long as they do.
    for (name, boat) in [("cargo", "gull"), ("wreck", "sunk")] {
        let owner = json!({"apiVersion": "boats.example.com/v1", "kind": "Boat", "name": boat, "uid": format!("{boat}-uid")});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]}});
        kubectl.run_with("create -f -", &map.to_string());
    }
    coracle_tests::eventually("what belongs to nobody goes", PATIENCE, || {
        kubectl.run("get configmap wreck --ignore-not-found").is_empty()
    });
    assert!(kubectl.run("get configmap cargo").contains("cargo"));

    // A namespace takes along what others keep in it.
    kubectl.run("create namespace harbour");
    kubectl.run_with("create --validate=false -n harbour -f -", &boat("cog"));
    kubectl.run("delete namespace harbour --timeout=60s");
    assert!(!kubectl.run(&format!("get --raw {ROOT}/namespaces/harbour/boats")).contains("cog"));
    assert!(kubectl.run("get boats").contains("gull"), "others stay");

    // A server that is gone is unavailable, and comes back.
    let port = extension.port;
    drop(extension);
    let refused = kubectl.fails("get boats");
    assert!(refused.contains("the server is currently unable to handle the request"), "{refused}");
    kubectl.run("annotate service boats look=again");
    available(&kubectl, "False (FailedDiscoveryCheck)");
    let why = kubectl.run("get apiservice v1.boats.example.com -o jsonpath={.status.conditions[0].message}");
    let url = format!("https://localhost:{port}{ROOT}");
    assert!(
        why.starts_with(&format!("failing or missing response from {url}: Get \"{url}\": dial tcp")),
        "{why}"
    );
    coracle_tests::eventually("its resources are stale", PATIENCE, || {
        aggregated(&server).contains("\"Stale\"")
    });
    let listed = kubectl.try_with("api-resources", "");
    assert!(!listed.out.contains("boats.example.com"), "{listed:?}");
    let extension = Extension::start(server.data_dir(), port);
    kubectl.run_with("apply --force-conflicts --server-side -f -", &extension.registration());
    available(&kubectl, "True");
    kubectl.run("delete apiservice v1.boats.example.com");
    coracle_tests::eventually("the group is gone", PATIENCE, || {
        !groups(&kubectl).contains(&"boats.example.com".to_owned())
    });
}

/// Sends a request as the administrator and reads what comes back until `enough` of it is there, or its end.
fn exchange(server: &Server, request: &str, then: &[u8], enough: impl Fn(&str) -> bool) -> String {
    let target = Target::new(server.data_dir(), &server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut said, mut head) = (Vec::new(), true);
    runtime.block_on(async {
        let mut stream = target.raw().await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        while stream.read_buf(&mut said).await.unwrap_or_default() > 0 {
            if head && said.windows(4).any(|end| end == b"\r\n\r\n") {
                head = false;
                stream.write_all(then).await.unwrap();
            }
            if enough(&String::from_utf8_lossy(&said)) {
                break;
            }
        }
    });
    String::from_utf8(said).unwrap()
}

/// The aggregated discovery of all groups.
fn aggregated(server: &Server) -> String {
    let form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request =
        format!("GET /apis HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: {form}\r\n\r\n");
    exchange(server, &request, b"", |_| false)
}

/// What a protocol of the server's own says after an upgrade by somebody who pretends to be somebody else.
fn shell(server: &Server) -> String {
    let request = format!(
        "GET {ROOT}/namespaces/default/boats/gull/shell HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
         Upgrade: echo\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\n\r\n"
    );
    let said = exchange(server, &request, b"ahoy", |said| said.ends_with("ahoy"));
    let (head, said) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    said.to_owned()
}
