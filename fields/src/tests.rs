#![allow(clippy::unwrap_used)]

use crate::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use crate::core::v1::{
    Container, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, Service, ServiceSpec,
};
use crate::discovery::v1::EndpointSlice;
use crate::meta::{ObjectMeta, OwnerReference};
use crate::{Access, At, Doc, Edit, Field, Kind, Made, Reader, Schema, View, fields, make};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;

#[test]
fn a_chain_of_reads() {
    let json = br#"{"metadata":{"annotations":{"coracle.io/node":"n\u0031"}},"spec":{"persistentVolumeReclaimPolicy":"Delete","hostPath":{"path":"/a"}}}"#;
    let doc = Doc::read(json).unwrap();
    let volume = doc.view::<PersistentVolume>();
    assert!(volume.spec().persistent_volume_reclaim_policy() == "Delete");
    assert_eq!(volume.spec().host_path().path().text(), "/a");
    assert_eq!(volume.metadata().annotations().key("coracle.io/node").text(), "n1");
    assert_eq!(volume.metadata().annotations().key("x").get(), None);
    assert!(!volume.spec().nfs().is_set() && volume.spec().nfs().path().text().is_empty());
    let tree: Value = serde_json::from_slice(json).unwrap();
    assert_eq!(doc.view::<PersistentVolume>().to_value(), tree);
}

#[test]
fn lists_of_objects() {
    fn ports(spec: View<'_, ServiceSpec>) -> Vec<(String, i64)> {
        spec.ports()
            .items()
            .filter_map(|port| Some((port.protocol().or("TCP").to_owned(), port.port().int()?)))
            .collect()
    }
    fn ready_nodes(slice: View<'_, EndpointSlice>) -> impl Iterator<Item = String> {
        let ready =
            slice.endpoints().items().filter(|endpoint| endpoint.conditions().ready().get() != Some(false));
        ready.filter_map(|endpoint| endpoint.node_name().get().map(str::to_owned))
    }
    let service = json!({"spec": {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}, {}]}});
    assert_eq!(ports(Service::of(&service).spec()), [("TCP".to_owned(), 80), ("UDP".to_owned(), 53)]);
    let slice = br#"{"endpoints":[{"nodeName":"a"},{"nodeName":"b","conditions":{"ready":false}},{}]}"#;
    let doc = Doc::read(slice).unwrap();
    assert_eq!(ready_nodes(doc.view()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn adopted_and_released() {
    fn adopted(object: &mut Made<Pod>, reference: Made<OwnerReference>) {
        let mut meta = object.edit();
        let mut meta = meta.metadata();
        meta.owner_references().retain(|r| r.uid() != reference.view().uid().text());
        meta.owner_references().push(reference);
    }
    fn released(object: &mut Made<Pod>, uid: &str) {
        object
            .edit()
            .metadata()
            .finalizers()
            .retain(|finalizer| finalizer != "batch.kubernetes.io/job-tracking");
        object.edit().metadata().owner_references().retain(|r| r.uid() != uid);
    }
    let reference = || make!(part OwnerReference { kind: "ReplicaSet", uid: "u", controller: true });
    let mut pod = Made::<Pod>::new(json!({"x-unknown": {"kept": [1]}}));
    released(&mut pod, "u");
    assert_eq!(pod.view().to_value(), json!({"x-unknown": {"kept": [1]}}), "looking makes nothing");
    adopted(&mut pod, reference());
    adopted(&mut pod, reference());
    assert_eq!(pod.view().metadata().owner_references().len(), 1);
    released(&mut pod, "u");
    assert_eq!(pod.into_value(), json!({"x-unknown": {"kept": [1]}, "metadata": {"ownerReferences": []}}));
}

#[test]
fn writes_to_what_is_there_and_what_is_not() {
    let mut body = Made::<ReplicaSet>::new(json!({"spec": {"replicas": 1}}));
    let annotations = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    body.edit().metadata().annotations().set(&annotations);
    body.edit().spec().replicas().set(3);
    body.edit().spec().template().metadata().labels().insert("pod-template-hash", "x");
    body.edit().spec().min_ready_seconds().set(None::<i32>);
    assert_eq!(
        body.into_value(),
        json!({"metadata": {"annotations": {"a": "b"}},
            "spec": {"replicas": 3, "template": {"metadata": {"labels": {"pod-template-hash": "x"}}}}})
    );
}

#[test]
fn a_new_object() {
    let deployment = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"nodeName": "n"}}}});
    let deployment = Deployment::of(&deployment);
    let (name, namespace) = ("web-1".to_owned(), String::from("d"));
    let set = make!(ReplicaSet {
        metadata: {
            name,
            namespace: &namespace,
            annotations: [("deployment.kubernetes.io/revision", "1")],
            owner_references: [{ api_version: "apps/v1", kind: "Deployment", uid: "u", controller: true }],
        },
        spec: {
            replicas: 2,
            min_ready_seconds: deployment.spec().min_ready_seconds(),
            selector: deployment.spec().selector(),
            template: deployment.spec().template(),
        },
    });
    assert_eq!(
        set.into_value(),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web-1", "namespace": "d", "annotations": {"deployment.kubernetes.io/revision": "1"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "uid": "u", "controller": true}]},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"nodeName": "n"}}}})
    );
}

fields! {
    #[derive(Debug, Clone)]
    struct Wanted: Deployment {
        metadata: Annotated,
        spec: Spec,
        status: Status,
    }

    #[derive(Debug, Clone)]
    struct Annotated: ObjectMeta {
        annotations: BTreeMap<String, String>,
        creation_timestamp: Option<String>,
    }

    #[derive(Debug, Clone)]
    struct Spec: DeploymentSpec {
        replicas: i32 = 1,
        template: Value,
        min_ready_seconds: i32,
        paused: bool,
        progress_deadline_seconds: Option<i32>,
    }

    #[derive(Debug, Clone)]
    struct Status: DeploymentStatus, written {
        observed_generation: i64,
        replicas: i64,
        collision_count: Option<i64>,
    }
}

#[test]
fn structs_with_some_fields() {
    let json = r#"{"kind":"Deployment","metadata":{"annotations":{"a":"b"},"creationTimestamp":null,"labels":{}},
        "spec":{"template":{"x":[1]},"unknown":{"deep":[{}]},"paused":true,"progressDeadlineSeconds":600},"status":null}"#;
    let read: Wanted = serde_json::from_str(json).unwrap();
    assert_eq!((read.spec.replicas, read.spec.paused, read.spec.min_ready_seconds), (1, true, 0));
    assert_eq!((read.spec.progress_deadline_seconds, read.metadata.annotations.len()), (Some(600), 1));
    assert_eq!((read.spec.template, read.metadata.creation_timestamp), (json!({"x": [1]}), None));
    assert_eq!(
        (read.status.observed_generation, read.status.replicas, read.status.collision_count),
        (0, 0, None)
    );
    assert!(serde_json::from_str::<Wanted>(r#"{"spec":{"replicas":"x"}}"#).is_err());
    let status = Status { replicas: 2, collision_count: Some(0), ..Status::default() };
    assert_eq!(json!(status), json!({"replicas": 2, "collisionCount": 0}));
    let mut deployment = Deployment::made();
    deployment.edit().status().set(&status);
    assert!(deployment.view().status().replicas() == 2);
}

#[test]
fn defaults() {
    fn deployment(mut object: Edit<'_, Deployment>) {
        let mut spec = object.spec().section();
        spec.replicas().default(1);
        let mut strategy = spec.strategy().section();
        strategy.type_().default("RollingUpdate");
        if strategy.view().type_() == "RollingUpdate" {
            let mut rolling = strategy.rolling_update().section();
            rolling.max_surge().default("25%");
        }
        spec.template().spec().containers().each(container);
        service_account(spec.template().spec());
    }
    fn container(mut container: Edit<'_, Container>) {
        container.resources().section();
        container.ports().each(|mut port| port.protocol().default("TCP"));
    }
    fn service_account(mut spec: Edit<'_, PodSpec>) {
        let name = match (spec.view().service_account_name().text(), spec.view().service_account().text()) {
            ("", "") => return,
            ("", old) => old.to_owned(),
            (new, _) => new.to_owned(),
        };
        spec.service_account_name().set(&name);
        spec.service_account().set(name);
    }
    let mut object = json!({"spec": {"strategy": {"type": ""}, "template": {"spec": {"serviceAccount": "x",
        "containers": [{"ports": [{"containerPort": 1}]}]}}}});
    deployment(Deployment::edit(&mut object));
    assert_eq!(
        object,
        json!({"spec": {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {"spec": {"serviceAccount": "x", "serviceAccountName": "x",
                "containers": [{"resources": {}, "ports": [{"containerPort": 1, "protocol": "TCP"}]}]}}}})
    );
}

#[derive(Clone)]
struct Checker<'a> {
    value: &'a Value,
    path: String,
    errors: &'a RefCell<Vec<String>>,
}

type Spot<'a, T> = At<Checker<'a>, T>;

static NULL: Value = Value::Null;

impl<'c> Access for Checker<'c> {
    fn field(&self, field: Field) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let value = self.value.get(field.name).unwrap_or(&NULL);
        Checker { value, path: format!("{}{dot}{}", self.path, field.name), errors: self.errors }
    }

    fn reader<'a>(&self) -> Reader<'a>
    where
        Self: 'a,
    {
        Reader::Tree(self.value)
    }
}

impl Checker<'_> {
    fn required(&self, detail: &str) {
        self.errors.borrow_mut().push(format!("{}: Required value{detail}", self.path));
    }
}

#[test]
fn validation() {
    fn container(container: &Spot<'_, Container>) {
        if container.image().text().is_empty() {
            container.image().required("");
        }
        if container.restart_policy() == "Always" && !container.lifecycle().pre_stop().is_set() {
            container.lifecycle().pre_stop().required("");
        }
        for field in [container.liveness_probe().erased(), container.ports().erased()] {
            if field.is_set() {
                field.required(", no");
            }
        }
    }
    let (tree, errors) = (json!({"restartPolicy": "Always", "ports": []}), RefCell::default());
    container(&At::new(Checker { value: &tree, path: "spec.containers[0]".into(), errors: &errors }));
    let expected =
        ["image: Required value", "lifecycle.preStop: Required value", "ports: Required value, no"];
    assert_eq!(errors.into_inner(), expected.map(|text| format!("spec.containers[0].{text}")));
}

#[test]
fn columns() {
    fn ended(terminated: View<'_, crate::core::v1::ContainerStateTerminated>) -> String {
        match (terminated.reason().text(), terminated.signal().or(0)) {
            ("", 0) => format!("ExitCode:{}", terminated.exit_code().or(0)),
            ("", signal) => format!("Signal:{signal}"),
            (reason, _) => reason.to_owned(),
        }
    }
    let pod = json!({"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 3}}, "restartCount": 2}]}});
    let status = Pod::of(&pod).status().container_statuses().first().unwrap();
    assert_eq!(
        (ended(status.state().terminated()), status.restart_count().or(0)),
        ("ExitCode:3".to_owned(), 2)
    );
}

#[test]
fn what_has_no_schema() {
    let revision = json!({"data": {"spec": {"template": {"spec": {"nodeName": "n"}}}}});
    let revision = crate::apps::v1::ControllerRevision::of(&revision);
    let template = revision.data().at("spec").at("template").as_type::<crate::core::v1::PodTemplateSpec>();
    assert!(template.spec().node_name() == "n");
    let mut claim = PersistentVolumeClaim::made();
    claim.edit().spec().access_modes().push("ReadWriteOnce");
    claim.edit().spec().volume_name().set("v");
    claim.edit().spec().volume_name().clear();
    assert_eq!(claim.view().spec().to_value(), json!({"accessModes": ["ReadWriteOnce"]}));
    assert_eq!((PersistentVolumeClaim::KIND, Deployment::API_VERSION), ("PersistentVolumeClaim", "apps/v1"));
    assert!(claim.view().spec().access_modes().has("ReadWriteOnce"));
}

#[test]
fn a_place_below_missing_objects_sees_its_own_writes() {
    let mut pod = json!({});
    let mut root = Pod::edit(&mut pod);
    let mut metadata = root.metadata();
    let mut annotations = metadata.annotations();
    annotations.insert("a", "1");
    annotations.insert("b", "2");
    annotations.remove("a");
    assert_eq!(annotations.view().to_value(), json!({"b": "2"}));
    annotations.clear();
    assert_eq!(pod, json!({"metadata": {}}));
}
