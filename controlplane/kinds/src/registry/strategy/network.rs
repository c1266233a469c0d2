//! Services and their neighbours before a write.

use crate::registry::kinds::keep_status;
use coracle_fields::core::v1::{Service, ServiceSpec};
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::networking::v1::Ingress;
use coracle_fields::{Edit, Schema, View};
use serde_json::{Value, json};

/// A new Service has no load balancer yet; its one address is also its list of addresses.
pub fn create_service(object: &mut Value) {
    let mut service = Service::edit(object);
    service.status().put(json!({}));
    service.status().load_balancer().put(json!({}));
    let mut spec = service.spec().section();
    // Whatever it is: what is no address is refused by validation.
    let address = spec.view().cluster_ip().to_value();
    let given = !address.is_null() && address != "";
    if given && spec.view().cluster_ips().is_empty() {
        spec.cluster_ips().put(json!([address]));
    }
}

/// Old clients know one address, new ones a list: whichever changed alone is followed by the other.
fn follow_addresses(spec: &mut Edit<'_, ServiceSpec>, old: View<'_, ServiceSpec>) {
    let one = spec.view().cluster_ip().text().to_owned();
    if old.cluster_ip() == one {
        spec.cluster_ips().default_empty(old.cluster_ips());
        return;
    }
    if spec.view().cluster_ips().texts().eq(old.cluster_ips().texts()) {
        if one.is_empty() {
            spec.cluster_ips().clear();
        } else {
            spec.cluster_ips().set([one]);
        }
    }
}

/// A client that replaces a Service without its allocated values means to keep them. Each is filled in for itself: a
/// manifest with `clusterIP: ""` changes the address alone, and the list of addresses is still that of before.
fn keep_allocated(spec: &mut Edit<'_, ServiceSpec>, old: View<'_, ServiceSpec>) {
    if has_address(spec.view()) && has_address(old) {
        spec.cluster_ip().default_empty(old.cluster_ip());
        spec.cluster_ips().default_empty(old.cluster_ips());
        if old.ip_families().is_set() {
            spec.ip_families().default_empty(old.ip_families());
        }
        if old.ip_family_policy().is_set() {
            spec.ip_family_policy().default_empty(old.ip_family_policy());
        }
    }
    if allocates_node_ports(spec.view()) && allocates_node_ports(old) {
        keep_node_ports(spec, old);
    }
    if has_health_port(spec.view()) && has_health_port(old) && old.health_check_node_port().is_set() {
        spec.health_check_node_port().default_empty(old.health_check_node_port());
    }
}

/// Ports are known by their names: everything else of them may change.
fn keep_node_ports(spec: &mut Edit<'_, ServiceSpec>, old: View<'_, ServiceSpec>) {
    let given = node_ports(spec.view());
    spec.ports().each_object(|mut port| {
        let now = port.view();
        let same = old.ports().items().find(|known| known.name() == now.name().text());
        let node_port = same.map_or(0, |known| known.node_port().or(0));
        if now.node_port().or(0) == 0 && node_port != 0 && !given.contains(&node_port) {
            port.node_port().set(node_port);
        }
    });
}

/// A Service is a union by `type`: fields that the new type does not use are dropped, when the client did not
/// change them (then validation speaks), so that their addresses and ports are released.
pub fn update_service(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let old = Service::of(old).spec();
    let mut service = Service::edit(new);
    let mut spec = service.spec().section();
    keep_allocated(&mut spec, old);
    follow_addresses(&mut spec, old);
    if has_address(old) && !has_address(spec.view()) {
        let now = spec.view();
        if same(now.cluster_ip(), old.cluster_ip()) && same(now.cluster_ips(), old.cluster_ips()) {
            spec.cluster_ip().clear();
            spec.cluster_ips().clear();
        }
        drop_unchanged(spec.ip_families(), old.ip_families());
        drop_unchanged(spec.ip_family_policy(), old.ip_family_policy());
    }
    if has_node_ports(old) && !has_node_ports(spec.view()) && no_new_node_ports(spec.view(), old) {
        spec.ports().each_object(|mut port| port.node_port().clear());
    }
    if has_health_port(old) && !has_health_port(spec.view()) {
        drop_unchanged(spec.health_check_node_port(), old.health_check_node_port());
    }
    if is_balanced(old) && !is_balanced(spec.view()) {
        drop_unchanged(spec.allocate_load_balancer_node_ports(), old.allocate_load_balancer_node_ports());
        drop_unchanged(spec.load_balancer_class(), old.load_balancer_class());
    }
    if is_external(old) && !is_external(spec.view()) {
        drop_unchanged(spec.external_traffic_policy(), old.external_traffic_policy());
    }
    if !is_balanced(spec.view()) {
        service.status().load_balancer().put(json!({}));
    }
}

fn same<T>(new: View<'_, T>, old: View<'_, T>) -> bool {
    new.as_value() == old.as_value()
}

fn drop_unchanged<T>(mut new: Edit<'_, T>, old: View<'_, T>) {
    if same(new.view(), old) {
        new.clear();
    }
}

fn has_address(spec: View<'_, ServiceSpec>) -> bool {
    spec.type_() != "ExternalName"
}

fn has_node_ports(spec: View<'_, ServiceSpec>) -> bool {
    matches!(spec.type_().text(), "NodePort" | "LoadBalancer")
}

fn allocates_node_ports(spec: View<'_, ServiceSpec>) -> bool {
    has_node_ports(spec)
        && !(is_balanced(spec) && spec.allocate_load_balancer_node_ports().get() == Some(false))
}

fn is_balanced(spec: View<'_, ServiceSpec>) -> bool {
    spec.type_() == "LoadBalancer"
}

fn has_health_port(spec: View<'_, ServiceSpec>) -> bool {
    is_balanced(spec) && spec.external_traffic_policy() == "Local"
}

fn is_external(spec: View<'_, ServiceSpec>) -> bool {
    has_node_ports(spec) || (spec.type_() == "ClusterIP" && !spec.external_ips().is_empty())
}

fn node_ports(spec: View<'_, ServiceSpec>) -> Vec<i64> {
    spec.ports().items().filter_map(|port| port.node_port().int()).filter(|port| *port != 0).collect()
}

fn no_new_node_ports(new: View<'_, ServiceSpec>, old: View<'_, ServiceSpec>) -> bool {
    let known = node_ports(old);
    node_ports(new).iter().all(|port| known.contains(port))
}

/// A new Ingress has no load balancer yet.
pub fn create_ingress(object: &mut Value) {
    let mut ingress = Ingress::edit(object);
    ingress.status().put(json!({}));
    ingress.status().load_balancer().put(json!({}));
}

/// EndpointSlices no longer carry the topology of old.
pub fn create_slice(object: &mut Value) {
    let mut slice = EndpointSlice::edit(object);
    slice.endpoints().each_object(|mut endpoint| endpoint.deprecated_topology().clear());
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
    fn an_address_that_is_left_out_stays() {
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9", "fd00::9"]}});
        let kept = json!(["10.0.0.9", "fd00::9"]);
        for (one, list, want) in [
            (json!(""), kept.clone(), ("10.0.0.9", kept.clone())),
            (Value::Null, kept.clone(), ("10.0.0.9", kept.clone())),
            (json!(""), json!([]), ("10.0.0.9", kept.clone())),
            (json!(""), Value::Null, ("10.0.0.9", kept.clone())),
            (json!("10.0.0.9"), Value::Null, ("10.0.0.9", kept.clone())),
            (json!("10.0.0.9"), kept.clone(), ("10.0.0.9", kept.clone())),
            // Left for validation to refuse.
            (json!(""), json!(["10.0.0.8"]), ("10.0.0.9", json!(["10.0.0.8"]))),
            (json!("10.0.0.8"), kept.clone(), ("10.0.0.8", json!(["10.0.0.8"]))),
            (json!("10.0.0.8"), Value::Null, ("10.0.0.8", json!(["10.0.0.8"]))),
        ] {
            let mut new = json!({"spec": {"type": "ClusterIP", "clusterIP": one, "clusterIPs": list}});
            let given = new.clone();
            update_service(&mut new, &old);
            assert_eq!(
                (&new["spec"]["clusterIP"], &new["spec"]["clusterIPs"]),
                (&json!(want.0), &want.1),
                "{given}"
            );
        }
        let headless = json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}});
        let mut new = json!({"spec": {"type": "ClusterIP", "clusterIP": "", "clusterIPs": ["None"]}});
        update_service(&mut new, &headless);
        assert_eq!(new["spec"], headless["spec"]);
        for one in [json!(""), json!("10.0.0.9")] {
            let mut external = json!({"spec": {"type": "ExternalName", "clusterIP": one}});
            update_service(&mut external, &old);
            assert_eq!(external["spec"]["clusterIP"].as_str().unwrap_or_default(), "", "{one}");
            assert_eq!(external["spec"]["clusterIPs"], Value::Null, "{one}");
        }
    }

    #[test]
    fn node_ports_that_are_left_out_stay_with_the_names_of_their_ports() {
        let old = json!({"spec": {"type": "LoadBalancer", "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP", "nodePort": 30053},
            {"name": "web", "port": 80, "protocol": "TCP", "nodePort": 30080}]}});
        for (ports, want) in [
            (
                json!([{"name": "dns", "port": 53}, {"name": "dns-tcp", "port": 53}, {"name": "web", "port": 81}]),
                [30053, 30053, 30080],
            ),
            (
                json!([{"name": "web", "port": 80}, {"name": "new", "port": 53}, {"name": "dns", "port": 9}]),
                [30080, 0, 30053],
            ),
            (
                json!([{"name": "other", "port": 80, "nodePort": 30080}, {"name": "web", "port": 81}, {"port": 1}]),
                [30080, 0, 0],
            ),
        ] {
            let mut new = json!({"spec": {"type": "LoadBalancer", "ports": ports}});
            update_service(&mut new, &old);
            let got =
                [0usize, 1, 2].map(|at| new["spec"]["ports"][at]["nodePort"].as_i64().unwrap_or_default());
            assert_eq!(got, want, "{ports}");
        }
        let mut without = json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
            "ports": [{"name": "web", "port": 80}]}});
        update_service(&mut without, &old);
        assert_eq!(without["spec"]["ports"][0]["nodePort"], Value::Null);
    }

    #[test]
    fn the_address_of_a_new_service_is_its_list() {
        for (address, list) in [
            (json!("10.0.0.9"), json!(["10.0.0.9"])),
            (json!(9), json!([9])),
            (json!(""), Value::Null),
            (Value::Null, Value::Null),
        ] {
            let mut new = json!({"spec": {"clusterIP": address}});
            create_service(&mut new);
            assert_eq!(new["spec"]["clusterIPs"], list);
        }
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
