//! Addresses of LoadBalancer services: from a pool, or those of the nodes, each of which forwards for every service.

use super::informer::Name;
use super::resource::Resource;
use super::runner::{Again, Controller, Failure};
use super::setup::Setup;
use crate::object::Object;
use async_trait::async_trait;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME: &str = "service-controller";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Addressed {
    status: Addresses,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Addresses {
    addresses: Value,
}

struct Balancer {
    services: Resource,
    nodes: Resource,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let services = setup.resource(NAME, "", "services");
    let nodes = setup.resource(NAME, "", "nodes");
    let all = services.cache.clone();
    let mut feed = setup.feed(&services);
    feed.also(&nodes.kind, &nodes.cache, move |change, add| {
        let addresses = |n: &Arc<Object>| n.typed::<Addressed>().unwrap_or_default().status.addresses;
        if change.old.map(addresses) != change.new.map(addresses) {
            let balanced = all.list(None).into_iter().filter(|s| s.value()["spec"]["type"] == "LoadBalancer");
            balanced.for_each(|s| add(Name::of(&s)));
        }
    });
    let queue = feed.queue.clone();
    setup.run(Balancer { services, nodes }, &queue, 1);
}

/// The status of a service: the addresses of nodes, in order; none when it is not balanced, or by somebody else.
fn ingress(service: &Value, nodes: &[Value]) -> Option<Value> {
    let spec = &service["spec"];
    let balanced = spec["type"] == "LoadBalancer";
    if balanced && !spec["loadBalancerClass"].is_null() {
        return None;
    }
    if !balanced {
        return Some(json!({}));
    }
    let families: Vec<&str> =
        spec["ipFamilies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let reached = |ip: &str| {
        let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
        families.is_empty() || families.contains(&family)
    };
    let of_kind = |node: &Value, kind: &str| -> Vec<String> {
        let all = node["status"]["addresses"].as_array().into_iter().flatten();
        let all = all.filter(|a| a["type"] == kind).filter_map(|a| a["address"].as_str());
        all.filter(|ip| reached(ip)).map(str::to_owned).collect()
    };
    let of_node = |node: &Value| match of_kind(node, "ExternalIP") {
        none if none.is_empty() => of_kind(node, "InternalIP"),
        some => some,
    };
    let mut addresses: Vec<String> = nodes.iter().flat_map(of_node).collect();
    addresses.sort();
    addresses.dedup();
    let list: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
    Some(if list.is_empty() { json!({}) } else { json!({"ingress": list}) })
}

#[async_trait]
impl Controller for Balancer {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Again, Failure> {
        let service = self.services.get(name).filter(|s| s.meta.deletion_timestamp.is_none());
        let Some(service) = service else { return Ok(Again::No) };
        let value = service.value();
        let balanced = value["spec"]["type"] == "LoadBalancer";
        let nodes = if balanced { self.nodes.all() } else { Vec::new() };
        let nodes: Vec<Value> = nodes.iter().map(|n| n.value()).collect();
        let Some(wanted) = ingress(&value, &nodes) else { return Ok(Again::No) };
        if super::template::same(&value["status"]["loadBalancer"], &wanted) {
            return Ok(Again::No);
        }
        let mut status = value["status"].clone();
        if !status.is_object() {
            status = json!({});
        }
        status["loadBalancer"] = wanted;
        self.services.set_status(&service, status).await?;
        Ok(Again::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_the_balancer() {
        let node = |ip: &str| json!({"status": {"addresses": [{"type": "InternalIP", "address": ip}]}});
        let nodes = [node("192.0.2.2"), node("192.0.2.1")];
        let service = |spec: Value| ingress(&json!({"spec": spec}), &nodes);
        let balanced = service(json!({"type": "LoadBalancer"})).unwrap_or_default();
        assert_eq!(balanced["ingress"][0]["ip"], "192.0.2.1");
        assert_eq!(balanced["ingress"].as_array().map(Vec::len), Some(2));
        let both = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "2001:db8::1"}, {"type": "Hostname", "address": "n"}]}});
        for (families, want) in [
            (json!(["IPv4"]), json!(["192.0.2.1"])),
            (json!(["IPv6"]), json!(["2001:db8::1"])),
            (json!(["IPv6", "IPv4"]), json!(["192.0.2.1", "2001:db8::1"])),
        ] {
            let spec = json!({"spec": {"type": "LoadBalancer", "ipFamilies": families}});
            let given = ingress(&spec, std::slice::from_ref(&both)).unwrap_or_default();
            let given: Vec<Value> =
                given["ingress"].as_array().into_iter().flatten().map(|i| i["ip"].clone()).collect();
            assert_eq!(Value::from(given), want);
        }
        assert_eq!(service(json!({"type": "ClusterIP"})), Some(json!({})), "what it had goes");
        assert_eq!(service(json!({"type": "LoadBalancer", "loadBalancerClass": "x"})), None);
    }
}
