//! A cluster of YAML documents. `apiVersion` and the namespace `default` may be left out. A node `n1` and the usual namespaces
//! are there, too, unless the text begins with `# alone`.

use crate::cluster::{Answer, Cluster, Need};
use crate::kinds::{Resource, built_in};
use coracle_fields::core::v1::Event;
use coracle_fields::{Json, Schema as _, View};
use jiff::Timestamp;
use serde_json::{Value, json};

const BASE: &str = "
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1, kubernetes.io/arch: amd64}}
status:
  allocatable: {cpu: '4', memory: 8Gi, ephemeral-storage: 100Gi, pods: '110'}
  nodeInfo: {architecture: amd64}
  conditions: [{type: Ready, status: 'True'}]
---
kind: Namespace
metadata: {name: default, labels: {kubernetes.io/metadata.name: default}}
---
kind: Namespace
metadata: {name: kube-system, labels: {kubernetes.io/metadata.name: kube-system}}
---
kind: ServiceAccount
metadata: {name: default}
";

/// The time of all analyses in tests.
pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Objects, and answers that are no objects: `kind: Log`, `kind: Trace`, `kind: Clock`, `kind: Allowed`, `kind: Refused`.
pub struct Fixture {
    objects: Vec<Value>,
}

fn resource(kind: &str) -> Option<Resource> {
    built_in().find(|resource| resource.kind == kind)
}

fn complete(mut object: Value) -> Value {
    let kind = field(&object, "kind").to_owned();
    let Some(found) = resource(&kind) else { return object };
    if object.get("apiVersion").is_none() {
        object["apiVersion"] = json!(found.api_version);
    }
    if found.namespaced
        && object["apiVersion"] == json!(found.api_version)
        && object["metadata"].get("namespace").is_none()
    {
        object["metadata"]["namespace"] = json!("default");
    }
    object
}

fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn meta<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get("metadata").map_or("", |meta| field(meta, name))
}

impl Fixture {
    pub fn new(yaml: &str) -> Self {
        let base = if yaml.starts_with("# alone") { "" } else { BASE };
        let texts = base.split("\n---\n").chain(yaml.split("\n---\n")).filter(|text| !text.trim().is_empty());
        let read = |text: &str| -> Value {
            coracle_cli::yaml::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
        };
        let objects = texts.map(|text| complete(read(text))).filter(|object| !object.is_null());
        Self { objects: objects.collect() }
    }

    fn of(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Value> {
        let own = |object: &&Value| {
            field(object, "kind") == resource.kind
                && field(object, "apiVersion") == resource.api_version
                && namespace
                    .is_none_or(|namespace| !resource.namespaced || meta(object, "namespace") == namespace)
        };
        self.objects.iter().filter(own).cloned().collect()
    }

    fn special(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| field(object, "kind") == kind)
    }

    fn log(&self, wanted: &str, earlier: bool) -> Answer {
        let same = |log: &&Value| {
            field(log, "container") == wanted
                && log.get("previous").and_then(Value::as_bool).unwrap_or(false) == earlier
        };
        self.special("Log")
            .find(same)
            .map_or(Answer::Absent, |log| Answer::Text(field(log, "text").to_owned()))
    }

    fn custom(&self) -> Vec<Resource> {
        let kinds = self
            .objects
            .iter()
            .filter(|object| object.get("apiVersion").is_some() && resource(field(object, "kind")).is_none());
        kinds
            .map(|object| Resource {
                api_version: field(object, "apiVersion").to_owned(),
                kind: field(object, "kind").to_owned(),
                plural: format!("{}s", field(object, "kind").to_lowercase()),
                namespaced: true,
                short: Vec::new(),
            })
            .collect()
    }

    fn refuses(&self, need: &Need) -> bool {
        let plural = match need {
            Need::List { resource, namespace: None } => &resource.plural,
            _ => return false,
        };
        self.special("Refused").any(|refused| field(refused, "list") == plural)
    }
}

impl Cluster for Fixture {
    async fn answer(&self, need: &Need) -> Answer {
        if self.refuses(need) {
            return Answer::Refused("forbidden".to_owned());
        }
        match need {
            Need::List { resource, namespace } | Need::Names { resource, namespace } => {
                Answer::Items(self.of(resource, namespace.as_deref()), false)
            }
            Need::Object { resource, namespace, name } => {
                let mut all = self.of(resource, namespace.as_deref()).into_iter();
                all.find(|object| meta(object, "name") == name).map_or(Answer::Absent, Answer::Object)
            }
            Need::Events { kind, name, .. } => {
                let about = |event: &Value| {
                    let object = Event::of(event).involved_object();
                    object.kind() == *kind && object.name() == *name
                };
                let all = self.of(&Resource::of::<Event>(), None).into_iter();
                Answer::Items(all.filter(about).collect(), false)
            }
            Need::Log { container, previous, .. } => self.log(container, *previous),
            Need::Trace { .. } => self
                .special("Trace")
                .next()
                .map_or(Answer::Unavailable, |trace| Answer::Object(trace.clone())),
            Need::Access(_) => Answer::Allowed(self.special("Allowed").next().is_some()),
            Need::Resources => Answer::Resources(self.custom()),
            Need::Clock => {
                let clock = self
                    .special("Clock")
                    .next()
                    .map(|clock| View::<Json>::from(clock).at("ahead").to_value());
                Answer::Ahead(clock.and_then(|ahead| ahead.as_i64()).unwrap_or(0))
            }
        }
    }
}
