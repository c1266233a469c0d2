//! Deployments run against a model of the ReplicaSet controller: limits hold in every state, and it ends.

#![allow(clippy::unwrap_used)]
use super::plan::{Action, Plan, plan};
use super::view::{Deployment, Set};
use coracle_informer::time;
use coracle_kinds::object::testing::object;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A Deployment, its ReplicaSets, and how many of their pods exist and are available.
struct Model {
    deployment: Value,
    sets: BTreeMap<String, Value>,
    now: Timestamp,
    events: Vec<String>,
}

impl Model {
    fn new(spec: Value) -> Self {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        spec["template"] = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"image": "v1"}});
        if spec["strategy"].is_null() {
            spec["strategy"] = json!({"type": "RollingUpdate"});
        }
        let deployment =
            json!({"metadata": {"name": "web", "namespace": "d", "uid": "u", "generation": 1}, "spec": spec});
        Self {
            deployment,
            sets: BTreeMap::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            events: vec![],
        }
    }

    fn view(&self) -> (Deployment, Vec<Set>) {
        let sets = self.sets.values().map(|s| Set::read(&object(s.clone())).unwrap()).collect();
        (Deployment::read(&object(self.deployment.clone())).unwrap(), sets)
    }

    /// One turn of the Deployment controller; returns whether it wrote anything but status.
    fn turn(&mut self) -> bool {
        self.now = time::after(self.now, 1);
        let (deployment, sets) = self.view();
        let Plan { actions, again } = plan(&deployment, sets, false, self.now);
        assert!(again.is_none_or(|at| at > self.now), "a timer in the past is a turn without end: {again:?}");
        let mut acted = false;
        for action in actions {
            acted |= !matches!(action, Action::Status(_) | Action::Revision(..));
            match action {
                Action::Create(mut body, scaled) => {
                    self.events.extend(scaled);
                    body["metadata"]["creationTimestamp"] = json!(time::seconds(self.now));
                    body["metadata"]["generation"] = json!(1);
                    body["status"] = json!({"replicas": 0});
                    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                    assert!(self.sets.insert(name, body).is_none(), "created twice");
                }
                Action::Update(body, scaled) => {
                    self.events.extend(scaled);
                    self.sets.insert(body["metadata"]["name"].as_str().unwrap().to_owned(), body);
                }
                Action::Delete(name) => {
                    self.sets.remove(&name).unwrap();
                }
                Action::Revision(revision, status) => {
                    self.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] =
                        json!(revision);
                    self.deployment["status"] = json!(status);
                }
                Action::Status(status) => self.deployment["status"] = json!(status),
            }
        }
        acted
    }

    /// One turn of the ReplicaSet controller and its pods: counts follow, new pods become available or not.
    fn pods(&mut self, set: usize, healthy: bool) {
        let Some(name) = self.sets.keys().nth(set % self.sets.len().max(1)).cloned() else { return };
        let set = self.sets.get_mut(&name).unwrap();
        let wanted = set["spec"]["replicas"].as_i64().unwrap();
        let available = set["status"]["availableReplicas"].as_i64().unwrap_or(0);
        let available = if healthy { (available + 1).min(wanted) } else { available.min(wanted) };
        set["status"] = json!({"replicas": wanted, "availableReplicas": available, "readyReplicas": available,
            "observedGeneration": set["metadata"]["generation"], "terminatingReplicas": 0});
    }

    fn settle(&mut self) {
        for _ in 0..2000 {
            let acted = self.turn();
            for set in 0..self.sets.len() {
                self.pods(set, true);
            }
            if !acted && self.done() {
                self.turn();
                return;
            }
        }
        panic!("does not converge: {:#?} {:#?}", self.deployment["status"], self.sets);
    }

    fn done(&self) -> bool {
        let wanted = self.deployment["spec"]["replicas"].as_i64().unwrap();
        let image = &self.deployment["spec"]["template"]["spec"]["image"];
        self.sets.values().all(|s| {
            let mine = &s["spec"]["template"]["spec"]["image"] == image;
            let available = s["status"]["availableReplicas"].as_i64().unwrap_or(0);
            let size = s["spec"]["replicas"].as_i64().unwrap();
            if mine { size == wanted && available == wanted } else { size == 0 }
        })
    }

    fn image(&mut self, image: &str) {
        self.deployment["spec"]["template"]["spec"]["image"] = json!(image);
        self.deployment["metadata"]["generation"] =
            json!(self.deployment["metadata"]["generation"].as_i64().unwrap() + 1);
    }

    fn totals(&self) -> (i64, i64) {
        let of = |s: &Value, field: &str| s["status"][field].as_i64().unwrap_or(0);
        let sizes =
            self.sets.values().map(|s| of(s, "replicas").max(s["spec"]["replicas"].as_i64().unwrap()));
        (sizes.sum(), self.sets.values().map(|s| of(s, "availableReplicas")).sum())
    }

    fn revisions(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = self
            .sets
            .values()
            .map(|s| {
                let revision = &s["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
                let image = &s["spec"]["template"]["spec"]["image"];
                (revision.as_str().unwrap().into(), image.as_str().unwrap().into())
            })
            .collect();
        all.sort();
        all
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let all = self.deployment["status"]["conditions"].as_array().unwrap();
        let found = all.iter().find(|c| c["type"] == kind).unwrap();
        (found["status"].as_str().unwrap().into(), found["reason"].as_str().unwrap().into())
    }
}

#[test]
fn undo_goes_back_to_the_old_set_under_a_new_revision() {
    let mut model =
        Model::new(json!({"replicas": 3, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10}));
    model.settle();
    assert_eq!(model.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    assert_eq!(model.condition("Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    model.image("v2");
    model.settle();
    assert_eq!(model.revisions(), [("1".into(), "v1".into()), ("2".into(), "v2".into())]);
    model.image("v1");
    model.settle();
    assert_eq!(model.revisions(), [("2".into(), "v2".into()), ("3".into(), "v1".into())]);
    assert_eq!(model.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    let back = model.sets.values().find(|s| s["spec"]["template"]["spec"]["image"] == "v1").unwrap();
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
}

#[test]
fn the_revision_is_written_with_a_status_before_sets_are_resized() {
    let mut model = Model::new(json!({"replicas": 3, "progressDeadlineSeconds": 600}));
    let names = |model: &Model| {
        let (deployment, sets) = model.view();
        let actions = plan(&deployment, sets, false, time::after(model.now, 1)).actions;
        let name = |action: &Action| match action {
            Action::Create(..) => "create",
            Action::Update(..) => "update",
            Action::Delete(_) => "delete",
            Action::Revision(..) => "revision",
            Action::Status(_) => "status",
        };
        actions.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&model), ["create", "revision", "status"]);
    model.settle();
    model.image("v2");
    model.settle();
    model.image("v1");
    let (deployment, sets) = model.view();
    let back = plan(&deployment, sets, false, time::after(model.now, 1)).actions;
    let told = back.iter().find_map(|action| match action {
        Action::Revision(revision, status) => Some((revision.as_str(), &status.conditions)),
        _ => None,
    });
    let (revision, conditions) = told.unwrap();
    assert_eq!(revision, "3");
    assert!(conditions.iter().any(|c| c.kind == "Progressing"), "{conditions:?}");
    assert_eq!(names(&model), ["revision", "update", "update", "status"]);
}

#[test]
fn history_is_limited() {
    let mut model = Model::new(json!({"replicas": 1, "revisionHistoryLimit": 2}));
    for n in 0..6 {
        model.image(&format!("v{n}"));
        model.settle();
    }
    let images: Vec<String> = model.revisions().into_iter().map(|(_, image)| image).collect();
    assert_eq!(images, ["v3", "v4", "v5"]);
}

#[test]
fn a_rollout_that_stands_still_is_told_at_its_deadline() {
    let mut model = Model::new(json!({"replicas": 2, "progressDeadlineSeconds": 30}));
    model.turn();
    model.pods(0, false);
    for _ in 0..29 {
        model.turn();
    }
    assert_eq!(model.condition("Progressing").0, "True");
    for _ in 0..5 {
        model.turn();
    }
    assert_eq!(model.condition("Progressing"), ("False".into(), "ProgressDeadlineExceeded".into()));
    model.settle();
    assert_eq!(model.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn pods_that_fail_after_the_rollout_have_no_deadline() {
    let mut model = Model::new(json!({"replicas": 2, "progressDeadlineSeconds": 30}));
    model.settle();
    let status = &mut model.sets.values_mut().next().unwrap()["status"];
    (status["availableReplicas"], status["readyReplicas"]) = (json!(0), json!(0));
    for _ in 0..60 {
        model.turn();
    }
    assert_eq!(model.condition("Available").0, "False");
    assert_eq!(model.condition("Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn recreate_has_nothing_new_before_the_old_is_gone() {
    let mut model = Model::new(json!({"replicas": 3, "strategy": {"type": "Recreate"}}));
    model.settle();
    model.image("v2");
    model.turn();
    assert_eq!(model.sets.len(), 1, "the old set shrinks first");
    assert_eq!(model.sets.values().next().unwrap()["spec"]["replicas"], 0);
    model.turn();
    assert_eq!(model.sets.len(), 1, "its pods are still there");
    model.pods(0, true);
    model.turn();
    assert_eq!(model.sets.len(), 2);
    model.settle();
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut model = Model::new(json!({"replicas": 2, "progressDeadlineSeconds": 600}));
    model.settle();
    model.deployment["spec"]["paused"] = json!(true);
    model.image("v2");
    model.turn();
    assert_eq!(model.sets.len(), 1);
    assert_eq!(model.condition("Progressing"), ("Unknown".into(), "DeploymentPaused".into()));
    model.deployment["spec"]["replicas"] = json!(5);
    model.turn();
    assert_eq!(model.sets.values().next().unwrap()["spec"]["replicas"], 5);
    model.deployment["spec"]["paused"] = json!(false);
    model.turn();
    assert_eq!(model.sets.len(), 2, "resumed: the change rolls out");
    model.settle();
}

#[test]
fn scaling_in_the_middle_shares_by_size() {
    let mut model = Model::new(json!({"replicas": 10,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}}));
    model.settle();
    model.image("v2");
    model.turn(); // new 3, old 8
    for set in 0..2 {
        model.pods(set, false);
    }
    model.turn(); // new 5
    let sizes = |m: &Model| {
        let mut s: Vec<i64> = m.sets.values().map(|s| s["spec"]["replicas"].as_i64().unwrap()).collect();
        s.sort_unstable();
        s
    };
    assert_eq!(sizes(&model), [5, 8]);
    model.deployment["spec"]["replicas"] = json!(15);
    model.turn();
    assert_eq!(sizes(&model), [7, 11], "18 pods in the proportion of 5 to 8");
    model.settle();
}

fn amount() -> impl Strategy<Value = Value> {
    prop_oneof![(0..5i32).prop_map(|n| json!(n)), (0..101i32).prop_map(|p| json!(format!("{p}%")))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn never_too_many_and_never_too_few(
        replicas in 1i64..12, surge in amount(), unavailable in amount(),
        steps in prop::collection::vec((0..3usize, any::<bool>(), any::<bool>()), 0..60),
    ) {
        let mut model = Model::new(json!({"replicas": replicas, "strategy": {
            "type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}));
        model.settle();
        let (deployment, _) = model.view();
        let (ceiling, floor) = (i64::from(deployment.ceiling()), i64::from(deployment.floor()));
        model.image("v2");
        for (n, (set, healthy, turn)) in steps.into_iter().enumerate() {
            if turn { model.turn(); } else { model.pods(set, healthy); }
            if n == 20 { model.image("v3"); }
            let (total, available) = model.totals();
            prop_assert!(total <= ceiling, "{} pods, at most {}", total, ceiling);
            prop_assert!(available >= floor, "{} available, at least {}", available, floor);
        }
        model.settle();
    }

    #[test]
    fn any_sequence_of_scaling_and_images_converges(
        changes in prop::collection::vec((0i64..9, 0..3u8, any::<bool>(), 0..4usize), 1..12),
    ) {
        let mut model = Model::new(json!({"replicas": 3, "strategy": {
            "type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}));
        for (replicas, image, healthy, turns) in changes {
            model.deployment["spec"]["replicas"] = json!(replicas);
            model.image(&format!("v{image}"));
            for n in 0..turns {
                model.turn();
                model.pods(n, healthy);
            }
        }
        model.settle();
        prop_assert!(!model.turn(), "settled means no more writes");
    }
}
