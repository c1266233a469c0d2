//! Services and their neighbours before a write.

use crate::registry::kinds::keep_status;
use coracle_validation::tree::{Grow, Tree, is_empty};
use serde_json::{Value, json};

/// A new Service has no load balancer yet; its one address is also its list of addresses.
pub fn create_service(object: &mut Value) {
    object.put("status", json!({"loadBalancer": {}}));
    let spec = object.section("spec");
    let address = spec.at("clusterIP").clone();
    if !is_empty(&address) && spec.items("clusterIPs").is_empty() {
        spec.put("clusterIPs", json!([address]));
    }
}

/// Old clients know one address, new ones a list: whichever changed alone is followed by the other.
fn follow_addresses(spec: &mut Value, old: &Value) {
    let (one, before) = (spec.text("clusterIP").to_owned(), old.text("clusterIP"));
    let list_unchanged = spec.at("clusterIPs") == old.at("clusterIPs") || spec.items("clusterIPs").is_empty();
    if one != before && list_unchanged {
        if one.is_empty() {
            spec.drop_key("clusterIPs");
        } else {
            spec.put("clusterIPs", json!([one]));
        }
    }
}

/// A client that replaces a Service without its allocated values means to keep them.
fn keep_allocated(spec: &mut Value, old: &Value) {
    if has_address(spec) && has_address(old) {
        let one = old.at("clusterIP").clone();
        if !is_empty(&one) && is_empty(spec.at("clusterIP")) && is_empty(spec.at("clusterIPs")) {
            spec.put("clusterIP", one.clone());
        }
        if spec.items("clusterIPs").is_empty() && spec.at("clusterIP") == &one && old.has("clusterIPs") {
            spec.put("clusterIPs", old.at("clusterIPs").clone());
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if old.has(key) {
                spec.default_empty(key, old.at(key).clone());
            }
        }
    }
    if has_node_ports(spec) && has_node_ports(old) {
        let known: Vec<(Value, Value, Value)> = old
            .items("ports")
            .iter()
            .map(|port| (port.at("protocol").clone(), port.at("port").clone(), port.at("nodePort").clone()))
            .collect();
        let mut taken: Vec<Value> =
            spec.items("ports").iter().map(|port| port.at("nodePort").clone()).collect();
        spec.each("ports", |port| {
            let same = known
                .iter()
                .find(|(protocol, number, _)| protocol == port.at("protocol") && number == port.at("port"));
            if let Some((_, _, node_port)) = same
                && is_empty(port.at("nodePort"))
                && !is_empty(node_port)
                && !taken.contains(node_port)
            {
                taken.push(node_port.clone());
                port.put("nodePort", node_port.clone());
            }
        });
    }
    if has_health_port(spec) && has_health_port(old) && old.has("healthCheckNodePort") {
        spec.default_empty("healthCheckNodePort", old.at("healthCheckNodePort").clone());
    }
}

/// A Service is a union by `type`: fields that the new type does not use are dropped, when the client did not
/// change them (then validation speaks), so that their addresses and ports are released.
pub fn update_service(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let old_spec = old.at("spec");
    let spec = new.section("spec");
    keep_allocated(spec, old_spec);
    follow_addresses(spec, old_spec);
    if has_address(old_spec) && !has_address(spec) {
        if same(spec, old_spec, "clusterIP") && same(spec, old_spec, "clusterIPs") {
            spec.drop_key("clusterIP");
            spec.drop_key("clusterIPs");
        }
        drop_unchanged(spec, old_spec, "ipFamilies");
        drop_unchanged(spec, old_spec, "ipFamilyPolicy");
    }
    if has_node_ports(old_spec) && !has_node_ports(spec) && no_new_node_ports(spec, old_spec) {
        spec.each("ports", |port| {
            port.drop_key("nodePort");
        });
    }
    if has_health_port(old_spec) && !has_health_port(spec) {
        drop_unchanged(spec, old_spec, "healthCheckNodePort");
    }
    if is_balanced(old_spec) && !is_balanced(spec) {
        drop_unchanged(spec, old_spec, "allocateLoadBalancerNodePorts");
        drop_unchanged(spec, old_spec, "loadBalancerClass");
    }
    if is_external(old_spec) && !is_external(spec) {
        drop_unchanged(spec, old_spec, "externalTrafficPolicy");
    }
    if !is_balanced(new.at("spec")) {
        new.section("status").put("loadBalancer", json!({}));
    }
}

fn same(new: &Value, old: &Value, key: &str) -> bool {
    new.at(key) == old.at(key)
}

fn drop_unchanged(new: &mut Value, old: &Value, key: &str) {
    if same(new, old, key) {
        new.drop_key(key);
    }
}

fn has_address(spec: &Value) -> bool {
    spec.text("type") != "ExternalName"
}

fn has_node_ports(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

fn is_balanced(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer"
}

fn has_health_port(spec: &Value) -> bool {
    is_balanced(spec) && spec.text("externalTrafficPolicy") == "Local"
}

fn is_external(spec: &Value) -> bool {
    has_node_ports(spec) || (spec.text("type") == "ClusterIP" && !spec.items("externalIPs").is_empty())
}

fn no_new_node_ports(new: &Value, old: &Value) -> bool {
    let of = |spec: &Value| -> Vec<i64> {
        spec.items("ports").iter().filter_map(|port| port.int("nodePort")).filter(|port| *port != 0).collect()
    };
    let known = of(old);
    of(new).iter().all(|port| known.contains(port))
}

/// A new Ingress has no load balancer yet.
pub fn create_ingress(object: &mut Value) {
    object.put("status", json!({"loadBalancer": {}}));
}

/// EndpointSlices no longer carry the topology of old.
pub fn create_slice(object: &mut Value) {
    object.each("endpoints", |endpoint| {
        endpoint.drop_key("deprecatedTopology");
    });
}

/// The same on updates.
pub fn update_slice(new: &mut Value, _old: &Value) {
    create_slice(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_without_allocated_values_keeps_them() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
            "ipFamilies": ["IPv4"], "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]}});
        update_service(&mut new, &old);
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.9"]));
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30080);
        let mut moved =
            json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.10", "clusterIPs": ["10.0.0.9"]}});
        update_service(&mut moved, &old);
        assert_eq!(moved["spec"]["clusterIPs"], json!(["10.0.0.10"]));
    }

    #[test]
    fn a_type_change_releases_what_it_does_not_need() {
        let ports = json!([{"port": 80, "nodePort": 30080}]);
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
            "ports": ports, "externalTrafficPolicy": "Cluster"}, "status": {"loadBalancer": {}}});
        let mut new = old.clone();
        new["spec"]["type"] = json!("ClusterIP");
        update_service(&mut new, &old);
        assert_eq!(
            new["spec"],
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ports": [{"port": 80}]})
        );
        new["spec"]["type"] = json!("ExternalName");
        update_service(&mut new, &old);
        assert_eq!(new["spec"], json!({"type": "ExternalName", "ports": [{"port": 80}]}));
        let mut moved = old.clone();
        moved["spec"]["type"] = json!("ClusterIP");
        moved["spec"]["ports"][0]["nodePort"] = json!(30081);
        update_service(&mut moved, &old);
        assert_eq!(moved["spec"]["ports"][0]["nodePort"], 30081, "left for validation to refuse");
    }
}
