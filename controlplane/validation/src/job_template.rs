//! What may change in the pod template of a Job.

use super::field_ref::Field;
use coracle_fields::batch::v1::Job;
use coracle_fields::core::v1::{Container, PodTemplateSpec};
use coracle_fields::{Edit, List, Made, View};

/// The template of a Job is fixed. While the Job is suspended and has no pods, their resources, and where they run, can change.
pub(super) fn update(template: &Field<'_, PodTemplateSpec>, old: View<'_, Job>) {
    let mut before = Made::<PodTemplateSpec>::new(old.spec().template().to_value());
    if !is_mutable(old) {
        template.immutable(before.view());
        return;
    }
    let (meta, spec) = (template.view().metadata(), template.view().spec());
    let mut allowed = before.edit();
    allowed.metadata().annotations().set(meta.annotations());
    allowed.metadata().labels().set(meta.labels());
    allowed.spec().node_selector().set(spec.node_selector());
    allowed.spec().tolerations().set(spec.tolerations());
    allowed.spec().scheduling_gates().set(spec.scheduling_gates());
    allowed.spec().affinity().node_affinity().set(spec.affinity().node_affinity());
    allow_resources(allowed.spec().containers(), spec.containers());
    allow_resources(allowed.spec().init_containers(), spec.init_containers());
    // Upstream reports the pod's fields and not the template.
    template.spec().immutable(before.view().spec());
}

/// Gives containers the resources of those with the same place and name.
fn allow_resources(mut before: Edit<'_, List<Container>>, now: View<'_, List<Container>>) {
    let mut now = now.items();
    before.each_object(|mut container| {
        if let Some(now) = now.next().filter(|now| now.name() == container.view().name().text()) {
            container.resources().set(now.resources());
        }
    });
}

/// Whether pods that the Job starts later cannot differ from those that it has: it is suspended, and its controller has seen that.
fn is_mutable(job: View<'_, Job>) -> bool {
    let status = job.status();
    let mut conditions = status.conditions().items();
    let is_seen =
        conditions.any(|condition| condition.type_() == "Suspended" && condition.status() == "True");
    job.spec().suspend().flag()
        && (!status.start_time().is_set() || is_seen)
        && status.active().int().unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::jobs::job_update;
    use serde_json::{Value, json};

    fn job() -> Value {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let spec =
            json!({"restartPolicy": "Never", "containers": [container], "initContainers": [container]});
        json!({"metadata": {"name": "j", "namespace": "n"},
            "spec": {"suspend": true, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}},
            "status": {}})
    }

    /// What is said about a change of the template of a Job.
    fn changed(old: &Value, pointer: &str, value: Value) -> Vec<String> {
        let mut new = old.clone();
        let template = &mut new["spec"]["template"];
        *template.pointer_mut(pointer).unwrap() = value;
        let mut errors = Vec::new();
        job_update(&new, old, &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_suspended_job_without_pods_can_change_resources_and_places() {
        let resources = || json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}});
        let suspended = json!([{"type": "Suspended", "status": "True"}]);
        let resumed = json!([{"type": "Suspended", "status": "False"}]);
        let time = "2026-01-01T00:00:00Z";
        for (suspend, status, is_mutable) in [
            (true, json!({}), true),
            (true, json!({"startTime": time, "conditions": suspended.clone()}), true),
            (true, json!({"active": 1, "conditions": suspended.clone()}), false),
            (true, json!({"startTime": time}), false),
            (true, json!({"startTime": time, "conditions": resumed}), false),
            (false, json!({"conditions": suspended}), false),
        ] {
            let mut old = job();
            old["spec"]["suspend"] = json!(suspend);
            old["status"] = status;
            for pointer in ["/spec/containers/0/resources", "/spec/initContainers/0/resources"] {
                let refused = changed(&old, pointer, resources());
                assert_eq!(refused.is_empty(), is_mutable, "{pointer} {old}");
            }
            assert_eq!(changed(&old, "/metadata/labels", json!({"a": "c"})).is_empty(), is_mutable, "{old}");
        }
    }

    #[test]
    fn nothing_else_changes_while_a_job_is_suspended() {
        for (pointer, value) in [
            ("/spec/containers/0/image", json!("j")),
            ("/spec/containers/0", json!({"name": "d", "image": "i", "resources": {}})),
            ("/spec/initContainers", json!([])),
            ("/spec/restartPolicy", json!("OnFailure")),
        ] {
            assert_eq!(changed(&job(), pointer, value), ["spec.template.spec"], "{pointer}");
        }
    }
}
