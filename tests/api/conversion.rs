//! Versions of a custom resource that a real webhook converts: written in one, read, listed, selected and watched in the
//! other, through kubectl.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_tests::eventually;
use coracle_tests::https::{Asked, Https};
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GROUP: &str = "harbour.example.com";
const V1: &str = "berths.v1.harbour.example.com";
const V2: &str = "berths.v2.harbour.example.com";
const SOON: Duration = Duration::from_secs(60);

/// What the webhook is told to do, and how it was asked.
#[derive(Default)]
struct Harbourmaster {
    asked: AtomicUsize,
    objects: AtomicUsize,
    refuses: Mutex<String>,
}

/// v1 has `place: quay:number`, v2 has `quay` and `number`.
fn converted(object: &Value, wanted: &str) -> Value {
    let mut new = object.clone();
    let fields = new.as_object_mut().unwrap();
    if wanted.ends_with("/v2") {
        let place = fields.remove("place").unwrap_or_default();
        let (quay, number) = place.as_str().unwrap_or_default().split_once(':').unwrap_or_default();
        fields.insert("quay".into(), quay.into());
        fields.insert("number".into(), number.into());
    } else {
        let text = |value: Option<Value>| value.unwrap_or_default().as_str().unwrap_or_default().to_owned();
        let place = format!("{}:{}", text(fields.remove("quay")), text(fields.remove("number")));
        fields.insert("place".into(), place.into());
    }
    // What the schema does not know, and what of the metadata is not the webhook's.
    fields.insert("driftwood".into(), true.into());
    new["metadata"]["finalizers"] = json!(["harbour.example.com/never"]);
    new["metadata"]["annotations"]["harbour.example.com/by"] = json!("webhook");
    new["apiVersion"] = json!(wanted);
    new
}

fn answer(asked: &Asked, master: &Harbourmaster) -> (u16, Value) {
    assert_eq!(asked.path, "/convert?timeout=30s");
    let request = &asked.body["request"];
    let objects = request["objects"].as_array().unwrap();
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    assert!(objects.iter().all(|object| object["apiVersion"] != wanted), "{request}");
    master.asked.fetch_add(1, SeqCst);
    master.objects.fetch_add(objects.len(), SeqCst);
    let mut response = json!({"uid": request["uid"], "result": {"status": "Success"}});
    response["convertedObjects"] = objects.iter().map(|object| converted(object, wanted)).collect();
    let refusal = master.refuses.lock().unwrap().clone();
    if !refusal.is_empty() {
        response["result"] = json!({"status": "Failure", "message": refusal});
    }
    let (kind, version) = (&asked.body["kind"], &asked.body["apiVersion"]);
    (200, json!({"kind": kind, "apiVersion": version, "response": response}))
}

fn definition(url: &str, authority: &str, stored: &str) -> String {
    let version = |name: &str, fields: &[&str]| {
        let text = json!({"type": "string"});
        let known: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), text.clone())).collect();
        let selectable: Vec<Value> = fields.iter().map(|f| json!({"jsonPath": format!(".{f}")})).collect();
        json!({"name": name, "served": true, "storage": name == stored, "selectableFields": selectable,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": known}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("berths.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced",
            "names": {"plural": "berths", "singular": "berth", "kind": "Berth"},
            "versions": [version("v1", &["place"]), version("v2", &["quay", "number"])],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": STANDARD.encode(authority)}}}}})
    .to_string()
}

fn berth(version: &str, name: &str, fields: Value) -> String {
    let mut object =
        json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Berth", "metadata": {"name": name}});
    for (field, value) in fields.as_object().unwrap() {
        object[field] = value.clone();
    }
    object.to_string()
}

/// A watch by kubectl: the names of the events it prints.
struct Watched {
    child: Child,
    lines: Receiver<String>,
}

impl Watched {
    fn start(kubectl: &Kubectl, resource: &str, selector: &str) -> Self {
        let shown = "-o=jsonpath={.type} {.object.metadata.name} {.object.quay} {.object.place}{\"\\n\"}";
        let args = ["get", resource, "--watch", "--output-watch-events", "--field-selector", selector, shown];
        let mut child = kubectl.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = said.send(line.trim().to_owned());
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(SOON).expect("an event")
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is stored in a version is read in it without asking anybody; others may ask at the same time.
fn stored_as(kubectl: &Kubectl, master: &Harbourmaster, resource: &str, name: &str) {
    eventually(&format!("{name} is stored as {resource}"), SOON, || {
        let before = master.asked.load(SeqCst);
        kubectl.run(&format!("get {resource} {name}"));
        master.asked.load(SeqCst) == before
    });
}

#[test]
fn a_webhook_converts_between_versions() {
    let master = Arc::new(Harbourmaster::default());
    let told = master.clone();
    let https = Https::start(move |request| answer(request, &told));
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    let define = |url: &str, stored: &str| {
        kubectl.run_with("apply -f -", &definition(url, https.authority(), stored));
    };
    define(&https.url("/convert"), "v1");
    kubectl.run("wait --for=condition=Established --timeout=60s crd/berths.harbour.example.com");

    // Written in the stored version, read in the other.
    kubectl.run_with("create -f -", &berth("v1", "one", json!({"place": "north:7"})));
    assert_eq!(master.asked.load(SeqCst), 0, "nothing was to convert");
    let one: Value = serde_json::from_str(&kubectl.run(&format!("get {V2} one -o json"))).unwrap();
    assert_eq!(
        (&one["apiVersion"], &one["quay"], &one["number"]),
        (&json!("harbour.example.com/v2"), &json!("north"), &json!("7"))
    );
    assert_eq!((one.get("place"), one.get("driftwood")), (None, None), "{one}");
    assert_eq!(one["metadata"].get("finalizers"), None, "only labels and annotations are the webhook's");
    assert_eq!(one["metadata"]["annotations"]["harbour.example.com/by"], "webhook");

    // Written in the other version, by every verb.
    let watch = Watched::start(&kubectl, V2, "quay=south");
    kubectl.run_with("create -f -", &berth("v2", "two", json!({"quay": "south", "number": "1"})));
    assert_eq!(watch.next(), "ADDED two south");
    stored_as(&kubectl, &master, V1, "two");
    assert_eq!(kubectl.run(&format!("get {V1} two -o jsonpath={{.place}}")), "south:1");
    kubectl.run(&format!("patch {V2} two --type=merge -p {{\"number\":\"2\"}}"));
    assert_eq!(watch.next(), "MODIFIED two south");
    let applied = berth("v2", "two", json!({"quay": "south", "number": "3"}));
    kubectl.run_with("apply --server-side --force-conflicts -f -", &applied);
    assert_eq!(watch.next(), "MODIFIED two south");
    assert_eq!(kubectl.run(&format!("get {V1} two -o jsonpath={{.place}}")), "south:3");
    kubectl.run_with("replace -f -", &berth("v2", "two", json!({"quay": "west", "number": "3"})));
    assert_eq!(watch.next(), "DELETED two south", "it left what is selected, as it was last seen");
    drop(watch);

    // One request for a list, and selectors of each version.
    let names = |resource: &str, selector: &str| {
        kubectl.run(&format!(
            "get {resource} --field-selector={selector} -o jsonpath={{.items[*].metadata.name}}"
        ))
    };
    let before = (master.asked.load(SeqCst), master.objects.load(SeqCst));
    assert_eq!(kubectl.run(&format!("get {V2} -o jsonpath={{.items[*].quay}}")), "north west");
    assert_eq!((master.asked.load(SeqCst), master.objects.load(SeqCst)), (before.0 + 1, before.1 + 2));
    for (resource, selector, expected) in [
        (V2, "quay=west", "two"),
        (V2, "quay!=west", "one"),
        (V2, "quay=north,number=7", "one"),
        (V1, "place=west:3", "two"),
        (V1, "place=none", ""),
    ] {
        assert_eq!(names(resource, selector), expected, "{resource} {selector}");
    }
    let unknown = kubectl.fails(&format!("get {V1} --field-selector=quay=west"));
    assert!(unknown.contains("field label not supported: quay"), "{unknown}");

    // Another version is stored from now on; what was stored before is converted until it is written again.
    define(&https.url("/convert"), "v2");
    eventually("v2 is stored", SOON, || {
        kubectl.run_with("apply -f -", &berth("v1", "three", json!({"place": "east:9"})));
        let before = master.asked.load(SeqCst);
        kubectl.run(&format!("get {V2} three"));
        let stored = master.asked.load(SeqCst) == before;
        if !stored {
            kubectl.run(&format!("delete {V1} three"));
        }
        stored
    });
    let stored = kubectl.run("get crd berths.harbour.example.com -o jsonpath={.status.storedVersions}");
    assert_eq!(stored, r#"["v1","v2"]"#);
    assert_eq!(kubectl.run(&format!("get {V1} -o jsonpath={{.items[*].place}}")), "north:7 east:9 west:3");
    assert_eq!(kubectl.run(&format!("get {V2} -o jsonpath={{.items[*].quay}}")), "north east west");
    for name in ["one", "two"] {
        let same = kubectl.run(&format!("get {V2} {name} -o json"));
        kubectl.run_with("replace -f -", &same);
        stored_as(&kubectl, &master, V2, name);
    }

    // A webhook that refuses, and one that is away.
    "no berths today".clone_into(&mut master.refuses.lock().unwrap());
    let refused = kubectl.fails(&format!("get {V1} one"));
    assert!(refused.contains("Error from server: conversion webhook for harbour.example.com/v2, Kind=Berth failed: no berths today"), "{refused}");
    master.refuses.lock().unwrap().clear();
    define("https://127.0.0.1:1/convert", "v2");
    let away = "conversion webhook for harbour.example.com/v2, Kind=Berth failed: Post \"https://127.0.0.1:1/convert?timeout=30s\": dial tcp 127.0.0.1:1: ";
    eventually("the webhook is away", SOON, || {
        let got = kubectl.try_with(&format!("get {V1} one"), "");
        !got.ok && got.err.contains(away)
    });
    for line in [format!("get {V1}"), format!("get {V1} --watch"), format!("delete {V1} one")] {
        let failed = kubectl.fails(&line);
        assert!(failed.contains(away), "{line}: {failed}");
    }
    let failed = kubectl.try_with("create -f -", &berth("v1", "four", json!({"place": "north:8"})));
    assert!(!failed.ok && failed.err.contains(&away.replace("/v2,", "/v1,")), "{failed:?}");
    assert_eq!(names(V2, "number!=0"), "one three two", "the stored version needs nobody");
    kubectl.run("delete crd berths.harbour.example.com --timeout=60s");
}
