//! What is written into the status of a claim: its devices, their configuration, and the nodes that can use them.

use super::pools::Nodes;
use super::search::Found;
use crate::node::NodeInfo;
use crate::wire::NodeTerm;
use coracle_fields::core::v1::NodeSelector;
use coracle_fields::resource::v1::AllocationResult;
use coracle_fields::{Made, make};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The allocation of a claim on a node.
pub(super) fn allocation(found: &Found<'_>, node: &NodeInfo) -> Made<AllocationResult> {
    let mut made = make!(part AllocationResult {});
    let mut edit = made.edit();
    for chosen in &found.devices {
        let (request, alternative) = chosen.request;
        let wanted = &found.open.requests[request][alternative];
        let (id, mut devices) = (&chosen.device.id, edit.devices());
        let mut results = devices.results();
        let mut result = results.add();
        result.request().set(&wanted.name);
        result.driver().set(&*id.driver);
        result.pool().set(&*id.pool);
        result.device().set(&*id.device);
        if wanted.is_admin {
            result.admin_access().set(true);
        }
        for toleration in wanted.tolerations {
            result.tolerations().push(toleration.clone());
        }
        let binding = &chosen.device.binding;
        if !binding.conditions.is_empty() {
            result.binding_conditions().set(binding.conditions.clone());
            for condition in &binding.failure_conditions {
                result.binding_failure_conditions().push(condition);
            }
        }
        if let Some(taken) = &chosen.share {
            result.share_id().set(uuid::Uuid::new_v4().to_string());
            let taken: BTreeMap<String, String> =
                taken.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect();
            if !taken.is_empty() {
                result.consumed_capacity().put(json!(taken));
            }
        }
    }
    let config = configuration(found);
    if !config.is_empty() {
        edit.devices().config().put(Value::Array(config));
    }
    if let Some(selector) = nodes(found, node) {
        edit.node_selector().set(selector);
    }
    made
}

/// First the configuration of classes, each once, then that of the claim.
fn configuration(found: &Found<'_>) -> Vec<Value> {
    let chosen = || (0..found.open.requests.len()).filter_map(|request| found.alternative(request));
    let mut classes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for wanted in chosen() {
        classes.entry(wanted.class.0).or_default().push(&wanted.name);
    }
    let mut all = Vec::new();
    for wanted in chosen() {
        let Some(requests) = classes.remove(wanted.class.0) else { continue };
        for config in &wanted.class.1.spec.config {
            all.push(entry(config, "FromClass", json!(requests)));
        }
    }
    for config in &found.open.claim.spec.devices.config {
        let requests: Vec<String> = config["requests"].as_array().map_or_else(Vec::new, |names| {
            names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        });
        if chosen().any(|wanted| wanted.is_among(&requests)) {
            all.push(entry(config, "FromClaim", json!(requests)));
        }
    }
    all
}

fn entry(config: &Value, source: &str, requests: Value) -> Value {
    let mut entry = config.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.insert("source".to_owned(), json!(source));
        fields.remove("requests");
        if requests.as_array().is_some_and(|requests| !requests.is_empty()) {
            fields.insert("requests".to_owned(), requests);
        }
    }
    entry
}

/// The nodes that can use all devices; unset for every node.
fn nodes(found: &Found<'_>, node: &NodeInfo) -> Option<Made<NodeSelector>> {
    let mut expressions: Vec<Value> = Vec::new();
    let mut fields: Vec<Value> = Vec::new();
    for chosen in &found.devices {
        match &*chosen.device.nodes {
            nodes if chosen.device.binding.binds_to_node || matches!(nodes, Nodes::Named(_)) => {
                let name = json!({"key": "metadata.name", "operator": "In", "values": [node.name]});
                (expressions, fields) = (Vec::new(), vec![name]);
                break;
            }
            Nodes::Selected(selector) => {
                for term in &selector.node_selector_terms {
                    add(term, &mut expressions, &mut fields);
                }
            }
            Nodes::Named(_) | Nodes::All | Nodes::None => {}
        }
    }
    if expressions.is_empty() && fields.is_empty() {
        return None;
    }
    let mut term = serde_json::Map::new();
    for (name, list) in [("matchExpressions", expressions), ("matchFields", fields)] {
        if !list.is_empty() {
            term.insert(name.to_owned(), Value::Array(list));
        }
    }
    Some(Made::new(json!({"nodeSelectorTerms": [term]})))
}

/// The selectors of slices have one term each.
fn add(term: &NodeTerm, expressions: &mut Vec<Value>, fields: &mut Vec<Value>) {
    for (requirements, into) in [(&term.match_expressions, expressions), (&term.match_fields, fields)] {
        for requirement in requirements {
            let mut made = json!({"key": requirement.key, "operator": requirement.operator});
            if !requirement.values.is_empty() {
                made["values"] = json!(requirement.values);
            }
            if !into.contains(&made) {
                into.push(made);
            }
        }
    }
}
