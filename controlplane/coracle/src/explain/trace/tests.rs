#![allow(clippy::unwrap_used)]

use super::answer::Trace;
use super::answer::tests::fixture;
use super::show::exit_code;
use super::*;
use clap::Parser;
use coracle_apiserver::respond::{Body, full};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::convert::Infallible;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: TraceArgs,
}

/// What the server answers to questions about traces.
#[derive(Clone, Copy)]
struct Answers {
    version: &'static str,
    code: u16,
    body: &'static str,
    /// With `follow=true`.
    lines: &'static str,
    /// For the Deployment itself.
    object: (u16, &'static str),
}

const READY: Answers = Answers {
    version: "v1.35.0+coracle.0.1.0",
    code: 200,
    body: fixture!("deployment-ready.json"),
    lines: "",
    object: (404, r#"{"kind": "Status", "code": 404, "message": "not found", "reason": "NotFound"}"#),
};

fn answer(request: &Request<Incoming>, answers: Answers) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let group = |name: &str, resource: &str, kind: &str| {
        let resource = json!({"resource": resource, "responseKind": {"kind": kind}, "scope": "Namespaced"});
        let versions = json!([{"version": "v1", "resources": [resource]}]);
        json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": name}, "versions": versions}]})
    };
    let (code, body) = match request.uri().path() {
        "/version" => (200, json!({"gitVersion": answers.version}).to_string()),
        "/api" => (200, group("", "pods", "Pod").to_string()),
        "/apis" => (200, group("apps", "deployments", "Deployment").to_string()),
        "/coracle/v1/trace" if query.contains("follow=true") => (200, answers.lines.to_owned()),
        "/coracle/v1/trace" if query.contains("since=1s") => {
            (404, fixture!("not-found-expired.json").to_owned())
        }
        "/apis/apps/v1/namespaces/default/deployments/web" => (answers.object.0, answers.object.1.to_owned()),
        "/coracle/v1/trace" => (answers.code, answers.body.to_owned()),
        "/api/v1/namespaces/default" => (200, "{}".to_owned()),
        "/coracle/v1/traces" => (200, fixture!("traces.json").to_owned()),
        _ => (
            404,
            json!({"kind": "Status", "code": 404, "message": "not found", "reason": "NotFound"}).to_string(),
        ),
    };
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

async fn server(answers: Answers) -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request: Request<Incoming>| async move {
                    Ok::<_, Infallible>(answer(&request, answers))
                });
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// Why the command draws nothing.
async fn error_of(answers: Answers, arguments: &[&str]) -> AskError {
    run_at(&server(answers).await, arguments).await.unwrap_err()
}

/// The exit code of the command against a server.
async fn code_at(address: &str, arguments: &[&str]) -> i32 {
    run_at(address, arguments).await.unwrap_or_else(|error| error.exit_code())
}

async fn run_at(address: &str, arguments: &[&str]) -> Result<i32, AskError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": address}}], "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
    std::fs::write(&path, config.to_string()).unwrap();
    let kubeconfig = ["trace", "--kubeconfig", path.to_str().unwrap()];
    let args = Program::try_parse_from([&kubeconfig[..], arguments].concat()).unwrap().args;
    trace(&args).await
}

async fn code(answers: Answers, arguments: &[&str]) -> i32 {
    code_at(&server(answers).await, arguments).await
}

#[tokio::test]
async fn states_are_exit_codes() {
    assert_eq!(code(READY, &["deployment/web"]).await, 0);
    assert_eq!(code(READY, &["deployments.apps", "web", "-o", "json"]).await, 0);
    assert_eq!(code(READY, &["--trace", "4bf92f3577b34da6a3ce929d0e0e4736", "-o", "otlp"]).await, 0);
    for (body, want) in [
        (fixture!("deployment-running.json"), 0),
        (fixture!("pod-gone.json"), 0),
        (fixture!("deployment-stuck.json"), 1),
        (fixture!("deployment-refused.json"), 1),
        (fixture!("list.json"), 1),
    ] {
        assert_eq!(code(Answers { body, ..READY }, &["deployment/web"]).await, want);
    }
}

#[tokio::test]
async fn what_was_ready_may_not_be_any_more() {
    let stuck =
        r#"{"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]}}"#;
    for body in [READY.body, fixture!("deployment-running.json")] {
        let answers = Answers { body, object: (200, stuck), ..READY };
        assert_eq!(code(answers, &["deployment/web"]).await, 1);
        assert_eq!(code(answers, &["deployment/web", "--since", "1h"]).await, 0, "history stays");
    }
}

#[tokio::test]
async fn failures_are_exit_codes() {
    let missing = Answers { code: 404, body: fixture!("not-found-never.json"), ..READY };
    assert_eq!(code(missing, &["deployment/web"]).await, 2);
    let forbidden = r#"{"kind": "Status", "code": 403, "message": "nobody cannot get it"}"#;
    let hidden = Answers { object: (403, forbidden), ..missing };
    assert_eq!(code(hidden, &["deployment/web"]).await, 3, "not to this user");
    assert_eq!(code(READY, &["deployment/web", "--since", "1s"]).await, 2, "no change since");
    assert_eq!(code(READY, &["deployment/web", "--last", "0"]).await, 2);
    assert_eq!(code(READY, &["boat/web"]).await, 2, "no such kind");
    let unknown = error_of(READY, &["deploymnt/web"]).await.to_string();
    assert_eq!(unknown, "the server has no kind deploymnt; the closest that exists is deployment");
    assert_eq!(code(READY, &["web"]).await, 2);
    let refused = Answers { code: 403, body: r#"{"kind": "Status", "code": 403, "message": "no"}"#, ..READY };
    assert_eq!(code(refused, &["deployment/web"]).await, 3);
    assert_eq!(code(Answers { body: "<html>", ..READY }, &["deployment/web"]).await, 3);
    let closed = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    assert_eq!(code_at(&format!("http://{closed}"), &["deployment/web"]).await, 3);
    assert_eq!(code(READY, &["deployment/web", "--context", "other"]).await, 2);
    let stock = Answers { version: "v1.34.0", ..READY };
    assert_eq!(code(stock, &["deployment/web"]).await, 2, "the object is not there, either");
}

#[tokio::test]
async fn following_ends_with_the_last_state() {
    let ready = concat!(
        r#"{"type": "trace", "trace": {"kind": "Trace", "state": "running"}}"#,
        "\n",
        r#"{"type": "alive"}"#,
        "\n",
        r#"{"type": "spans", "spans": [{"id": "1", "stage": "write", "end": 5}], "state": "failed"}"#,
        "\n"
    );
    // What is drawn at the end is a last answer, with what became of it since.
    let failed = Answers { lines: ready, body: fixture!("deployment-refused.json"), ..READY };
    assert_eq!(code(failed, &["deployment/web", "--follow"]).await, 1);
    assert_eq!(code(Answers { lines: ready, ..READY }, &["deployment/web", "--follow"]).await, 0);
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_said() {
    let missing = Answers { code: 404, body: fixture!("not-found-never.json"), ..READY };
    let error = error_of(missing, &["deployment/web", "-n", "nowhere"]).await;
    assert_eq!(error.exit_code(), 2);
    assert_eq!(error.to_string(), "namespace \"nowhere\" does not exist, and nothing of it is kept");
    let error = error_of(missing, &["deployment/web", "-n", "default"]).await;
    assert!(error.to_string().starts_with("no deployments"), "{error}");
    let stock = Answers { version: "v1.34.0", ..missing };
    let error = error_of(stock, &["deployment/web", "-n", "nowhere"]).await;
    assert!(error.to_string().starts_with("namespace \"nowhere\" does not exist"), "{error}");
}

#[tokio::test]
async fn commands_have_their_exit_codes() {
    assert_eq!(code(READY, &["--", "true"]).await, 0);
    assert_eq!(code(READY, &["--", "sh", "-c", "exit 7"]).await, 7);
    assert_eq!(code(READY, &["--", "/nonexistent/program"]).await, 127);
    // The proxy behind $KUBECONFIG answers, and what was written is gone since: there is nothing to wait for.
    let script = r#"
        server=$(sed -n 's/.*"server": "\(.*\)".*/\1/p' "$KUBECONFIG")
        rest=${server#http://}
        exec 3<>"/dev/tcp/${rest%%:*}/$(expr "$rest" : '[^:]*:\([0-9]*\)')"
        printf 'GET /%s/version HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${rest#*/}" "${rest%%/*}" >&3
        grep -q coracle <&3
    "#;
    assert_eq!(code(READY, &["--", "bash", "-c", script]).await, 0);
    let refused =
        Answers { code: 500, body: r#"{"kind": "Status", "code": 500, "message": "broken"}"#, ..READY };
    assert_eq!(code(refused, &["--", "bash", "-c", script]).await, 3);
}

#[test]
fn exit_codes_of_states() {
    let code = |state: &str| exit_code(&Trace { state: state.to_owned(), ..Trace::default() });
    let states = ["ready", "running", "gone", "complete", "failed", "stuck"];
    assert_eq!(states.map(code), [0, 0, 0, 0, 1, 1]);
}
