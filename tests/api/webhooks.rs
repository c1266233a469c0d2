//! Admission webhooks: a real HTTPS server has a say.

use bytes::Bytes;
use coracle::pki::authority::{Authority, Profile};
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often each path was asked.
#[derive(Default)]
struct Asked {
    mutate: AtomicUsize,
    validate: AtomicUsize,
}

async fn answer(
    request: Request<Incoming>,
    asked: Arc<Asked>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked_for = &review["request"];
    let mut response = json!({"uid": asked_for["uid"], "allowed": true});
    match path.as_str() {
        "/mutate" => {
            asked.mutate.fetch_add(1, Ordering::SeqCst);
            // [{"op": "add", "path": "/data/mutated", "value": "yes"}]
            response["patchType"] = json!("JSONPatch");
            response["patch"] =
                json!("W3sib3AiOiAiYWRkIiwgInBhdGgiOiAiL2RhdGEvbXV0YXRlZCIsICJ2YWx1ZSI6ICJ5ZXMifV0=");
        }
        "/validate" => {
            asked.validate.fetch_add(1, Ordering::SeqCst);
            let object = if asked_for["operation"] == "DELETE" {
                &asked_for["oldObject"]
            } else {
                &asked_for["object"]
            };
            response["warnings"] = json!(["somebody looked at it"]);
            if object["data"]["forbidden"] == "yes" || object["data"]["mutated"] != "yes" {
                response["allowed"] = json!(false);
                response["status"] = json!({"message": "it says that it is forbidden"});
            }
        }
        _ => tokio::time::sleep(Duration::from_secs(20)).await,
    }
    let answer =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::new(answer.to_string().into())))
}

/// A webhook server on a free port: its address and its authority.
fn webhook_server(asked: Arc<Asked>) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), "ca", "webhook-ca").unwrap();
    let signed = authority
        .ensure_signed(dir.path(), "webhook", &Profile::server("webhook", &["127.0.0.1".to_owned()]))
        .unwrap();
    let ca = authority.certificate.clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            CertificateDer::pem_slice_iter(signed.certificate.as_bytes()).collect::<Result<_, _>>().unwrap(),
            PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap(),
        )
        .unwrap();
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, asked) = (tls.clone(), asked.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(request, asked.clone()));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
    });
    (address, ca)
}

fn configuration(kind: &str, name: &str, url: &str, ca: &str, more: Value) -> String {
    use std::io::Write;
    let mut encoder = std::process::Command::new("base64")
        .arg("-w0")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    encoder.stdin.take().unwrap().write_all(ca.as_bytes()).unwrap();
    let bundle = String::from_utf8(encoder.wait_with_output().unwrap().stdout).unwrap();
    let mut hook = json!({"name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "timeoutSeconds": 5, "clientConfig": {"url": url, "caBundle": bundle},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE", "DELETE"]}]});
    for (key, value) in more.as_object().unwrap() {
        hook[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}).to_string()
}

#[test]
fn webhooks_have_a_say() {
    let asked = Arc::new(Asked::default());
    let (address, ca) = webhook_server(asked.clone());
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    let url = |path: &str| format!("https://{address}{path}");
    let apply = |kind: &str, name: &str, url: &str, more: Value| {
        kubectl.run_with("apply -f -", &configuration(kind, name, url, &ca, more));
    };
    apply("MutatingWebhookConfiguration", "mutate", &url("/mutate"), json!({}));
    let condition = json!({"matchConditions": [{"name": "not-exempt", "expression": "object == null || !(has(object.data.exempt))"}]});
    apply("ValidatingWebhookConfiguration", "validate", &url("/validate"), condition);

    let made = kubectl.try_with("create configmap one --from-literal=a=1", "");
    assert!(made.ok && made.err.contains("Warning: somebody looked at it"), "{made:?}");
    assert_eq!(kubectl.run("get configmap one -o jsonpath={.data.mutated}"), "yes");
    let refused = kubectl.try_with("create configmap two --from-literal=forbidden=yes", "");
    let said = "admission webhook \"validate.example.com\" denied the request: it says that it is forbidden";
    assert!(!refused.ok && refused.err.contains(said), "{refused:?}");
    assert!(!kubectl.try_with("get configmap two", "").ok);
    let before = asked.validate.load(Ordering::SeqCst);
    kubectl.run("create configmap three --from-literal=forbidden=yes --from-literal=exempt=yes");
    assert_eq!(asked.validate.load(Ordering::SeqCst), before, "a condition kept it out");
    let dry = kubectl.try_with("create configmap four --from-literal=a=1 --dry-run=server", "");
    assert!(dry.ok, "{dry:?}");
    kubectl.run("create configmap other --from-literal=forbidden=yes -n kube-public");
    let kept = kubectl.try_with("delete configmap three", "");
    assert!(!kept.ok && kept.err.contains(said), "{kept:?}");

    // Webhooks that fail: ignored or not, and never for long.
    apply(
        "ValidatingWebhookConfiguration",
        "dead",
        "https://127.0.0.1:1/",
        json!({"failurePolicy": "Ignore"}),
    );
    kubectl.run("create configmap five --from-literal=a=1");
    apply("ValidatingWebhookConfiguration", "dead", "https://127.0.0.1:1/", json!({"failurePolicy": "Fail"}));
    let failed = kubectl.try_with("create configmap six --from-literal=a=1", "");
    assert!(!failed.ok && failed.err.contains("failed calling webhook \"dead.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/\""), "{failed:?}");
    kubectl.run("delete validatingwebhookconfiguration dead");
    apply("ValidatingWebhookConfiguration", "slow", &url("/slow"), json!({"timeoutSeconds": 1}));
    let begun = std::time::Instant::now();
    let failed = kubectl.try_with("create configmap seven --from-literal=a=1", "");
    assert!(
        !failed.ok
            && failed.err.contains("failed calling webhook \"slow.example.com\": context deadline exceeded"),
        "{failed:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(asked.mutate.load(Ordering::SeqCst) > 4);
}
