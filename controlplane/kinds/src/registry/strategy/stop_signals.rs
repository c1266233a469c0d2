//! `lifecycle.stopSignal` without the feature `ContainerStopSignals`: it is not stored, unless it was before.

use coracle_fields::batch::v1::CronJob;
use coracle_fields::core::v1::{Container, Pod, PodSpec, PodTemplate, ReplicationController};
use coracle_fields::{Edit, Schema, View};
use serde_json::Value;

/// Of a Pod.
pub fn pod(new: &mut Value, old: Option<&Value>) {
    if !old.is_some_and(|old| is_used(Pod::of(old).spec())) {
        remove(Pod::edit(new).spec());
    }
}

/// Of a workload whose template is at `spec.template`.
pub fn workload(new: &mut Value, old: Option<&Value>) {
    if !old.is_some_and(|old| is_used(ReplicationController::of(old).spec().template().spec())) {
        remove(ReplicationController::edit(new).spec().template().spec());
    }
}

/// Of a PodTemplate.
pub fn pod_template(new: &mut Value, old: Option<&Value>) {
    if !old.is_some_and(|old| is_used(PodTemplate::of(old).template().spec())) {
        remove(PodTemplate::edit(new).template().spec());
    }
}

/// Of a CronJob.
pub fn cron_job(new: &mut Value, old: Option<&Value>) {
    let spec = |object| CronJob::of(object).spec().job_template().spec().template().spec();
    if !old.is_some_and(|old| is_used(spec(old))) {
        remove(CronJob::edit(new).spec().job_template().spec().template().spec());
    }
}

fn is_used(spec: View<'_, PodSpec>) -> bool {
    let mut all = spec.containers().items().chain(spec.init_containers().items());
    all.any(|container| container.lifecycle().stop_signal().is_set())
}

fn remove(mut spec: Edit<'_, PodSpec>) {
    spec.containers().each_object(remove_from);
    spec.init_containers().each_object(remove_from);
}

fn remove_from(mut container: Edit<'_, Container>) {
    if !container.view().lifecycle().stop_signal().is_set() {
        return;
    }
    container.lifecycle().stop_signal().clear();
    let lifecycle = container.view().lifecycle();
    if !lifecycle.post_start().is_set() && !lifecycle.pre_stop().is_set() {
        container.lifecycle().clear();
    }
}
