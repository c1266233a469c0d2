//! `extensions/v1beta1` Ingresses are those of `networking.k8s.io/v1` with other backends: a service is two fields there, and the
//! default backend has another name.

use crate::registry::kinds::StoredAs;
use coracle_fields::extensions::v1beta1;
use coracle_fields::networking::v1::{Ingress, IngressBackend};
use coracle_fields::{Made, Schema};
use serde_json::Value;

/// The view.
pub const STORED_AS: StoredAs = StoredAs { group: "networking.k8s.io", version: "v1", encode, decode };

fn encode(object: &mut Value) {
    Ingress::edit(object).api_version().set("networking.k8s.io/v1");
    each_backend(object, to_v1);
    let mut backend = v1beta1::Ingress::of(object).spec().backend().to_value();
    if backend.is_object() {
        to_v1(&mut backend);
        v1beta1::Ingress::edit(object).spec().backend().clear();
        Ingress::edit(object).spec().default_backend().put(backend);
    }
}

fn decode(object: &mut Value) {
    Ingress::edit(object).api_version().set("extensions/v1beta1");
    each_backend(object, to_v1beta1);
    let mut backend = Ingress::of(object).spec().default_backend().to_value();
    if backend.is_object() {
        to_v1beta1(&mut backend);
        Ingress::edit(object).spec().default_backend().clear();
        v1beta1::Ingress::edit(object).spec().backend().put(backend);
    }
}

/// Changes the backends of all paths, which are at the same place in both versions.
fn each_backend(object: &mut Value, change: fn(&mut Value)) {
    let mut ingress = Ingress::edit(object);
    let Some(mut spec) = ingress.spec().existing() else { return };
    spec.rules().each_object(|mut rule| {
        let Some(mut http) = rule.http().existing() else { return };
        http.paths().each_object(|mut path| {
            if let Some(backend) = path.backend().tree() {
                change(backend);
            }
        });
    });
}

fn to_v1(backend: &mut Value) {
    let old = v1beta1::IngressBackend::of(backend);
    let (name, port) = (old.service_name().to_value(), old.service_port().to_value());
    let resource = old.resource().to_value();
    let mut new = Made::<IngressBackend>::default();
    new.edit().service().name().put(name);
    match port {
        Value::String(_) => new.edit().service().port().name().put(port),
        number => new.edit().service().port().number().put(number),
    }
    new.edit().resource().put(resource);
    *backend = new.into_value();
}

fn to_v1beta1(backend: &mut Value) {
    let old = IngressBackend::of(backend);
    let (service, resource) = (old.service(), old.resource().to_value());
    let (name, number) = (service.name().to_value(), service.port().number().to_value());
    let port = if number.is_null() { service.port().name().to_value() } else { number };
    let mut new = Made::<v1beta1::IngressBackend>::default();
    new.edit().service_name().put(name);
    new.edit().service_port().put(port);
    new.edit().resource().put(resource);
    *backend = new.into_value();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_and_back() {
        let path = |backend: Value| json!({"path": "/a", "pathType": "Prefix", "backend": backend});
        let resource = json!({"kind": "Bucket", "name": "b"});
        let paths = json!([
            path(json!({"serviceName": "web", "servicePort": 80})),
            path(json!({"serviceName": "web", "servicePort": "http"})),
            path(json!({"resource": resource})),
        ]);
        let view = json!({"apiVersion": "extensions/v1beta1", "kind": "Ingress", "metadata": {"name": "a"}, "spec": {
            "backend": {"serviceName": "other", "servicePort": 8080}, "ingressClassName": "c",
            "rules": [{"host": "h", "http": {"paths": paths}}, {"host": "i"}]}});
        let mut ingress = view.clone();
        encode(&mut ingress);
        assert_eq!(ingress["apiVersion"], "networking.k8s.io/v1");
        let spec = &ingress["spec"];
        assert_eq!(spec["defaultBackend"], json!({"service": {"name": "other", "port": {"number": 8080}}}));
        assert_eq!(spec.get("backend"), None);
        let paths = &spec["rules"][0]["http"]["paths"];
        assert_eq!(paths[0]["backend"], json!({"service": {"name": "web", "port": {"number": 80}}}));
        assert_eq!(paths[1]["backend"], json!({"service": {"name": "web", "port": {"name": "http"}}}));
        assert_eq!(paths[2]["backend"], json!({"resource": resource}));
        decode(&mut ingress);
        assert_eq!(ingress, view);
        let mut empty = json!({"apiVersion": "extensions/v1beta1", "kind": "Ingress", "metadata": {}});
        let before = empty.clone();
        encode(&mut empty);
        decode(&mut empty);
        assert_eq!(empty, before);
    }
}
