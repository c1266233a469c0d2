//! Write and patch time grows linearly with the size of an object.
#![allow(clippy::unwrap_used)]

use super::patch::{apply, strategic, types};
use super::{decode, metadata};
use coracle_client::options::FieldValidation;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::time::Duration;

const SMALL: usize = 80;
/// How many times larger the large ones are.
const TIMES: usize = 8;

/// What this thread has computed so far; other threads and processes do not count.
fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn time(work: impl Fn()) -> Duration {
    let times = (0..2).map(|_| {
        let begun = computed();
        work();
        computed() - begun
    });
    times.min().unwrap()
}

/// Fails when eight times the size takes more than three times what is in proportion (eight times that is its square).
fn linear(what: &str, work: impl Fn(usize)) {
    let (small, large) = (time(|| work(SMALL)), time(|| work(SMALL * TIMES)));
    let most = small * TIMES as u32 * 3 + Duration::from_millis(20);
    assert!(large < most, "{what}: {SMALL} take {small:?}, {} take {large:?}", SMALL * TIMES);
}

/// What happens to a new object, and to one that is written again, apart from admission and storage.
fn write(kind: &Kind, object: &Value) {
    let body = serde_json::to_vec(object).unwrap();
    let read = decode::body(&decode::Expected::of(kind), "application/json", &body, FieldValidation::Warn);
    let mut object = read.unwrap().object;
    metadata::begin(kind, "default", &mut object);
    kind.fill(&mut object);
    (kind.strategy.prepare_create)(&mut object);
    decode::conform(kind, &mut object, None).unwrap();
    let (version, now) = (kind.api_version(), metadata::now());
    let writer = apply::Writer {
        custom: None,
        ty: types::named(&kind.schema),
        api_version: &version,
        manager: "test",
        subresource: "",
        reset: &["status"],
        now: &now,
    };
    apply::update(None, &mut object, &writer);
    kind.check_create(&object);
    (kind.strategy.warnings)(&object, None);
    let (old, mut new) = (object.clone(), object);
    kind.prepare_update("", &mut new, &old);
    apply::update(Some(&old), &mut new, &writer);
    kind.check_update("", &new, &old);
}

fn many(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

fn pod(change: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().append(&mut change.as_object().unwrap().clone());
    json!({"metadata": {"name": "large", "namespace": "default"}, "spec": spec})
}

fn container(change: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    container.as_object_mut().unwrap().append(&mut change.as_object().unwrap().clone());
    pod(json!({"containers": [container]}))
}

#[test]
fn pods() {
    let kind = Registry::builtin().resource("", "v1", "pods").unwrap();
    type Make = fn(usize) -> Value;
    let parts: &[(&str, Make)] = &[
        ("empty containers", |n| pod(json!({"containers": many(n, |_| json!({}))}))),
        ("containers of one name", |n| {
            pod(json!({"containers": many(n, |_| json!({"name": "a", "image": "i"}))}))
        }),
        ("containers", |n| {
            pod(json!({
                "containers": many(n, |i| json!({"name": format!("c{i}"), "image": "i", "ports": [{"containerPort": 80,
                    "hostPort": 80, "name": "web"}], "resources": {"claims": [{"name": format!("r{i}")}]},
                    "volumeMounts": [{"name": format!("v{i}"), "mountPath": "/v"}]})),
                "initContainers": many(n, |i| json!({"name": format!("c{i}"), "image": "i"})),
                "volumes": many(n, |i| json!({"name": format!("v{i}"), "emptyDir": {}})),
                "resourceClaims": many(n, |i| json!({"name": format!("r{i}"), "resourceClaimName": "x"})),
            }))
        }),
        ("sidecars of a pod with resources", |n| {
            let sidecar = |i: usize| {
                let resource = format!("example.com/r{i}");
                json!({"name": format!("s{i}"), "image": "i", "restartPolicy": "Always",
                    "resources": {"limits": {resource: "1"}}})
            };
            pod(
                json!({"resources": {"limits": {"cpu": "4", "memory": "8Gi"}}, "initContainers": many(n, sidecar)}),
            )
        }),
        ("ports", |n| {
            container(
                json!({"ports": many(n, |i| json!({"containerPort": 80, "hostPort": i + 1, "name": "web"}))}),
            )
        }),
        ("equal ports", |n| container(json!({"ports": many(n, |_| json!({"containerPort": 80}))}))),
        ("variables", |n| {
            container(json!({"env": many(n, |i| json!({"name": format!("A{}", i % 2), "value": "v"}))}))
        }),
        ("mounts and devices", |n| {
            container(
                json!({"volumeMounts": many(n, |i| json!({"name": format!("v{i}"), "mountPath": format!("/{i}")})),
                "volumeDevices": many(n, |i| json!({"name": format!("d{i}"), "devicePath": format!("/d/{i}")}))}),
            )
        }),
        ("tolerations", |n| {
            pod(json!({"tolerations": many(n, |i| json!({"key": format!("k{i}"), "operator": "Exists"}))}))
        }),
        ("spreading", |n| {
            pod(
                json!({"topologySpreadConstraints": many(n, |i| json!({"maxSkew": 1, "topologyKey": format!("k{i}"),
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}))}),
            )
        }),
        ("aliases and secrets", |n| {
            pod(json!({"hostAliases": many(n, |i| json!({"ip": format!("10.0.{}.{}", i / 256, i % 256)})),
                "imagePullSecrets": many(n, |i| json!({"name": format!("s{i}")})),
                "schedulingGates": many(n, |i| json!({"name": format!("example.com/g{i}")}))}))
        }),
    ];
    for (what, make) in parts {
        linear(what, |n| write(&kind, &make(n)));
    }
}

#[test]
fn strategic_patches() {
    let kind = Registry::builtin().resource("", "v1", "pods").unwrap();
    let ty = types::named(&kind.schema);
    let merged = |live: &Value, patch: &Value| drop(strategic::apply(live, patch, ty).unwrap());
    let named = |n: usize, directive: bool| {
        many(n, |i| match directive {
            true => json!({"name": format!("c{i}"), "$patch": "delete"}),
            false => json!({"name": format!("c{i}"), "image": "i"}),
        })
    };
    let finalizers = |n: usize| json!({"metadata": {"finalizers": many(n, |i| json!(format!("f{i}")))}});
    linear("the same containers", |n| {
        merged(
            &json!({"spec": {"containers": named(n, false)}}),
            &json!({"spec": {"containers": named(n, false)}}),
        );
    });
    linear("containers that go", |n| {
        merged(
            &json!({"spec": {"containers": named(n, false)}}),
            &json!({"spec": {"containers": named(n, true)}}),
        );
    });
    linear("finalizers", |n| merged(&finalizers(n * 4), &finalizers(n * 4)));
    linear("finalizers that go", |n| {
        let gone = &finalizers(n * 4)["metadata"]["finalizers"];
        merged(&finalizers(n * 4), &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": gone}}));
    });
}
