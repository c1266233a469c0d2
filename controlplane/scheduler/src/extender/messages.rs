//! Requests and answers of extenders: the JSON of Go structs without tags. Names of fields in answers are compared without case, as
//! Go does.

use super::error::ExtenderError;
use super::{Candidate, Victims};
use crate::pod::PodInfo;
use coracle_kinds::object::Object;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// An object of the API as it is stored.
fn raw(object: &Object) -> Option<&RawValue> {
    serde_json::from_slice(&object.json).ok()
}

fn bytes(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Args<'a> {
    pod: Option<&'a RawValue>,
    nodes: Option<Nodes<'a>>,
    node_names: Option<Vec<&'a str>>,
}

#[derive(Serialize)]
struct Nodes<'a> {
    metadata: Map<String, Value>,
    items: Vec<&'a RawValue>,
}

/// `ExtenderArgs`.
pub(super) fn args(pod: &Object, nodes: &[Candidate], by_name: bool) -> Vec<u8> {
    let items = || nodes.iter().filter_map(|node| raw(&node.object)).collect();
    bytes(&Args {
        pod: raw(pod),
        nodes: (!by_name).then(|| Nodes { metadata: Map::new(), items: items() }),
        node_names: by_name.then(|| nodes.iter().map(|node| node.name.as_str()).collect()),
    })
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Binding<'a> {
    pod_name: &'a str,
    pod_namespace: &'a str,
    #[serde(rename = "PodUID")]
    pod_uid: &'a str,
    node: &'a str,
}

/// `ExtenderBindingArgs`.
pub(super) fn binding(pod: &PodInfo, node: &str) -> Vec<u8> {
    bytes(&Binding { pod_name: &pod.name, pod_namespace: &pod.namespace, pod_uid: &pod.uid, node })
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Preemption<'a> {
    pod: Option<&'a RawValue>,
    node_name_to_victims: Option<BTreeMap<&'a str, VictimList<&'a RawValue>>>,
    node_name_to_meta_victims: Option<BTreeMap<&'a str, VictimList<MetaPod<'a>>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct VictimList<T> {
    pods: Vec<T>,
    #[serde(rename = "NumPDBViolations")]
    violations: usize,
}

#[derive(Serialize)]
struct MetaPod<'a> {
    #[serde(rename = "UID")]
    uid: &'a str,
}

/// `ExtenderPreemptionArgs`.
pub(super) fn preemption(pod: &Object, victims: &Victims, by_uid: bool) -> Vec<u8> {
    let whole = victims.iter().map(|(node, (pods, violations))| {
        let pods = pods.iter().filter_map(|victim| raw(victim.object.as_deref()?)).collect();
        (node.as_str(), VictimList { pods, violations: *violations })
    });
    let short = victims.iter().map(|(node, (pods, violations))| {
        let pods = pods.iter().map(|victim| MetaPod { uid: &victim.uid }).collect();
        (node.as_str(), VictimList { pods, violations: *violations })
    });
    bytes(&Preemption {
        pod: raw(pod),
        node_name_to_victims: (!by_uid).then(|| whole.collect()),
        node_name_to_meta_victims: by_uid.then(|| short.collect()),
    })
}

/// A field that is set, whatever the case of its name.
fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let fields = value.as_object()?.iter();
    fields
        .filter(|(_, value)| !value.is_null())
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, v)| v)
}

fn form(url: &str, field: &'static str) -> ExtenderError {
    ExtenderError::Form { url: url.to_owned(), field }
}

/// `Error` of an answer.
pub(super) fn failure(answer: &Value, url: &str) -> Result<(), ExtenderError> {
    match field(answer, "error").and_then(Value::as_str) {
        None | Some("") => Ok(()),
        Some(message) => {
            let message = message.chars().take(super::REASON).collect();
            Err(ExtenderError::Failed { url: url.to_owned(), message })
        }
    }
}

/// Nodes that an extender refused, with its reasons.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) failed: HashMap<String, String>,
    /// Those where removing pods does not help.
    pub(super) unresolvable: HashMap<String, String>,
}

/// `ExtenderFilterResult`: the nodes that are left, and why others are not.
pub(super) fn filtered(
    answer: &Value,
    by_name: bool,
    url: &str,
) -> Result<(Vec<String>, Refused), ExtenderError> {
    if !answer.is_object() {
        return Err(form(url, "ExtenderFilterResult"));
    }
    failure(answer, url)?;
    let names = field(answer, "nodenames").filter(|_| by_name);
    let left: Option<Vec<String>> = match (names, field(answer, "nodes")) {
        (Some(names), _) => {
            let text = |name: &Value| name.as_str().map(str::to_owned);
            names.as_array().ok_or_else(|| form(url, "NodeNames"))?.iter().map(text).collect()
        }
        (None, Some(nodes)) => {
            let items =
                field(nodes, "items").map_or(Some(&[][..]), |items| items.as_array().map(Vec::as_slice));
            let name = |node: &Value| Some(node.pointer("/metadata/name")?.as_str()?.to_owned());
            items.ok_or_else(|| form(url, "Nodes"))?.iter().map(name).collect()
        }
        (None, None) => Some(Vec::new()),
    };
    let reasons = |name| {
        let entries = field(answer, name).and_then(Value::as_object).into_iter().flatten();
        entries.map(|(node, why)| (node.clone(), why.as_str().unwrap_or_default().to_owned())).collect()
    };
    let refused =
        Refused { failed: reasons("failednodes"), unresolvable: reasons("failedandunresolvablenodes") };
    Ok((left.ok_or_else(|| form(url, "node names"))?, refused))
}

/// `HostPriorityList`.
pub(super) fn scores(answer: &Value, url: &str) -> Result<Vec<(String, i64)>, ExtenderError> {
    if answer.is_null() {
        return Ok(Vec::new());
    }
    let entry = |entry: &Value| {
        let score = field(entry, "score").map_or(Some(0), Value::as_i64)?;
        Some((field(entry, "host")?.as_str()?.to_owned(), score))
    };
    let list = answer.as_array().and_then(|list| list.iter().map(entry).collect());
    list.ok_or_else(|| form(url, "HostPriorityList"))
}

/// `ExtenderPreemptionResult`: nodes and victims that are left of those that were asked about.
pub(super) fn victims(answer: &Value, asked: &Victims, url: &str) -> Result<Victims, ExtenderError> {
    let Some(left) = field(answer, "nodenametometavictims") else { return Ok(Victims::new()) };
    let left = left.as_object().ok_or_else(|| form(url, "NodeNameToMetaVictims"))?;
    let mut made = Victims::new();
    for (node, entry) in left {
        let Some((known, _)) = asked.get(node) else {
            return Err(ExtenderError::UnknownNode { url: url.to_owned(), node: node.clone() });
        };
        let mut pods = Vec::new();
        for pod in field(entry, "pods").and_then(Value::as_array).into_iter().flatten() {
            let uid = field(pod, "uid").and_then(Value::as_str).unwrap_or_default();
            let Some(victim) = known.iter().find(|victim| victim.uid == uid) else {
                let (url, node, uid) = (url.to_owned(), node.clone(), uid.to_owned());
                return Err(ExtenderError::UnknownVictim { url, node, uid });
            };
            pods.push(victim.clone());
        }
        // Nothing would be evicted there: no preemption, as for the scheduler itself.
        if pods.is_empty() {
            continue;
        }
        let violations = field(entry, "numpdbviolations").and_then(Value::as_u64).unwrap_or(0);
        made.insert(node.clone(), (pods, usize::try_from(violations).unwrap_or(usize::MAX)));
    }
    Ok(made)
}
