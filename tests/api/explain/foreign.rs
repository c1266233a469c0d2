//! What others do for a request: conversion webhooks and aggregated API servers.

use super::{TRACE, span, spans, trace, traceparent};
use crate::aggregation::Extension;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::https::Https;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_conversion_is_part_of_the_write_that_needs_it() {
    let https = Https::start(|asked| {
        let request = &asked.body["request"];
        let convert = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = request["desiredAPIVersion"].clone();
            object
        };
        let converted: Vec<Value> =
            request["objects"].as_array().into_iter().flatten().map(convert).collect();
        let response =
            json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted});
        let (kind, version) = (&asked.body["kind"], &asked.body["apiVersion"]);
        (200, json!({"kind": kind, "apiVersion": version, "response": response}))
    });
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let version = |name: &str| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"name": name, "served": true, "storage": name == "v2", "schema": schema})
    };
    let client = json!({"url": https.url("/"), "caBundle": STANDARD.encode(https.authority())});
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": client});
    let definition = json!({"metadata": {"name": "berths.harbour.example.com"},
        "spec": {"group": "harbour.example.com", "scope": "Namespaced",
            "names": {"plural": "berths", "singular": "berth", "kind": "Berth"},
            "versions": [version("v1"), version("v2")], "conversion": {"strategy": "Webhook", "webhook": webhook}}});
    admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    let berths = "/apis/harbour.example.com/v1/namespaces/default/berths";
    eventually("berths are served", SOON, || admin.get(berths).0 == 200);
    let berth = json!({"apiVersion": "harbour.example.com/v1", "kind": "Berth", "metadata": {"name": "one"}});
    admin.header(&traceparent()).create(berths, &berth);
    let answer = trace(&admin, "berths.harbour.example.com", "one");
    let calls = spans(&answer, "conversion-webhook");
    assert!(!calls.is_empty() && calls.iter().all(|call| call["name"] == "berths"), "{answer:#}");
}

#[test]
fn an_aggregated_api_server_is_part_of_the_request() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    let extension = Extension::start(server.data_dir(), 0);
    let spec = json!({"type": "ExternalName", "externalName": "localhost"});
    admin
        .create("/api/v1/namespaces/default/services", &json!({"metadata": {"name": "boats"}, "spec": spec}));
    let registration = serde_json::from_str(&extension.registration_of("boats.example.com", "v1")).unwrap();
    admin.create("/apis/apiregistration.k8s.io/v1/apiservices", &registration);
    let boats = "/apis/boats.example.com/v1/namespaces/default/boats";
    eventually("boats are served", SOON, || admin.get(boats).0 == 200);
    let boat = json!({"apiVersion": "boats.example.com/v1", "kind": "Boat", "metadata": {"name": "gull"}});
    admin.header(&traceparent()).create(boats, &boat);
    let (code, answer) = admin.get(&format!("/coracle/v1/trace?trace={TRACE}"));
    assert_eq!(code, 200, "{answer}");
    let (request, call) = (span(&answer, "request"), span(&answer, "aggregated"));
    assert_eq!((&call["parent"], &request["code"]), (&request["id"], &json!(201)), "{answer:#}");
}
