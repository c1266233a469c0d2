//! Where traces come from: headers of clients, annotations, owners; and where they go to: webhooks.

use super::{MAPS, SPAN, TRACE, config_map, span, trace, traceparent};
use crate::webhooks::configuration;
use coracle_tests::caller::Caller;
use coracle_tests::https::Https;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const ANNOTATION: &str = "tracing.k8s.io/traceparent";

#[test]
fn headers_that_are_no_context_are_ignored() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    for (at, header) in [
        "traceparent: ",
        "traceparent: 00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "traceparent: ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "traceparent: 00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("map-{at}");
        admin.header(header).create(MAPS, &config_map(&name));
        let answer = trace(&admin, "configmaps", &name);
        assert_eq!(answer["remoteParent"], Value::Null, "{header}");
        assert_ne!(answer["trace"], TRACE, "{header}");
    }
}

#[test]
fn an_annotation_is_honoured_once_and_never_invented() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let mut object = config_map("annotated");
    object["metadata"]["annotations"] = json!({ANNOTATION: format!("00-{TRACE}-{SPAN}-01")});
    admin.create(MAPS, &object);
    let answer = trace(&admin, "configmaps", "annotated");
    assert_eq!((&answer["trace"], &answer["remoteParent"]), (&json!(TRACE), &json!(SPAN)));
    // The next write has the same annotation, and nothing to do with that trace.
    let path = format!("{MAPS}/annotated");
    admin.send("PATCH", &path, Some(&json!({"data": {"a": "c"}})));
    let (_, list) = admin.get(&format!("{}&last=5", super::question("configmaps", "annotated")));
    let patched =
        list["items"].as_array().unwrap().iter().find(|item| span(item, "write")["name"] == "patch");
    assert_ne!(patched.unwrap()["trace"], TRACE);
    let made = admin.header(&traceparent()).create(MAPS, &config_map("plain"));
    assert!(made["metadata"].get("annotations").is_none(), "{made}");
}

#[test]
fn annotations_are_written_where_that_is_asked_for() {
    let server = Server::with(&["--api-only", "--trace-annotations"]);
    let admin = Caller::admin(&server);
    let made = admin.header(&traceparent()).create(MAPS, &config_map("annotated"));
    let text = made["metadata"]["annotations"][ANNOTATION].as_str().unwrap().to_owned();
    assert!(text.starts_with(&format!("00-{TRACE}-")) && !text.contains(SPAN), "{text}");
}

#[test]
fn what_others_make_for_an_owner_hangs_below_its_last_write() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let owner = admin.create(MAPS, &config_map("owner"));
    let mut owned = config_map("owned");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "controller": true}]);
    admin.create(MAPS, &owned);
    let answer = trace(&admin, "configmaps", "owned");
    let objects: Vec<&Value> =
        answer["objects"].as_array().unwrap().iter().map(|object| &object["name"]).collect();
    assert_eq!(objects, ["owner", "owned"]);
    assert!(answer["spans"].to_string().contains("inferred"), "{answer:#}");
    // A client with a trace of its own knows better.
    owned["metadata"]["name"] = json!("other");
    admin.header(&traceparent()).create(MAPS, &owned);
    let answer = trace(&admin, "configmaps", "other");
    assert_eq!(answer["trace"], TRACE);
    assert!(!answer["spans"].to_string().contains("inferred"), "{answer:#}");
}

#[test]
fn webhooks_get_the_context_of_the_write() {
    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let headers = seen.clone();
    let https = Https::start(move |asked| {
        let text = |name: &str| {
            let value = asked.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        headers.lock().unwrap().push((text("traceparent"), text("tracestate")));
        let response = json!({"uid": asked.body["request"]["uid"], "allowed": true});
        (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    });
    let server = Server::with(&["--api-only"]);
    let hook = configuration(
        "ValidatingWebhookConfiguration",
        "traced",
        &https.url("/"),
        Some(https.authority()),
        json!({}),
    );
    newest(&server.kubeconfig()).run_with("apply -f -", &hook);
    let admin = Caller::admin(&server);
    admin.header(&traceparent()).header("tracestate: vendor=1").create(MAPS, &config_map("one"));
    let answer = trace(&admin, "configmaps", "one");
    let call = span(&answer, "validating-webhook");
    assert_eq!(call["name"], "traced.example.com");
    let (parent, state) = seen.lock().unwrap().last().unwrap().clone();
    assert!(parent.starts_with(&format!("00-{TRACE}-")), "{parent}");
    assert_eq!(state, "vendor=1");
}
