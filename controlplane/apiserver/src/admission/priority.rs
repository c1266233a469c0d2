//! Priority: resolves a pod's priority class to a number.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Pod, PodSpec};
use coracle_fields::scheduling::v1::PriorityClass;
use coracle_fields::{Edit, Schema as _, View};
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

/// The policy of a class that names none, and of pods without a class.
const PREEMPTION: &str = "PreemptLowerPriority";

/// The plugin.
pub struct Priority;

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        match phase {
            Phase::Mutate => at.writes() && at.is("", "pods"),
            Phase::Validate => at.writes() && at.is("scheduling.k8s.io", "priorityclasses"),
        }
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !at.is("", "pods") {
            return Ok(());
        }
        match at.old {
            Some(old) if at.is_new() => clear_computed(Pod::edit(pod), Pod::of(old).spec()),
            Some(old) if at.operation == Operation::Update => {
                keep_computed(Pod::edit(pod), Pod::of(old).spec());
                return Ok(());
            }
            _ => {}
        }
        if !at.is_new() {
            return Ok(());
        }
        let kind = at
            .api
            .objects()
            .registry
            .resource("scheduling.k8s.io", "v1", "priorityclasses")
            .ok_or_else(ApiError::no_such_path)?;
        let name = Pod::of(pod).spec().priority_class_name().text().to_owned();
        let class = if name.is_empty() {
            default_class(at.api.objects().cache(&kind)?.list(None))
        } else {
            let found = at.api.objects().get(&kind, "", &name).await;
            Some(found.map_err(|_| at.forbidden(format!("no PriorityClass with name {name} was found")))?)
        };
        let (value, policy) = match &class {
            Some(class) => {
                let doc = class.doc();
                let class = doc.view::<PriorityClass>();
                Pod::edit(pod).spec().priority_class_name().set(class.metadata().name());
                (class.value().or(0), class.preemption_policy().or(PREEMPTION).to_owned())
            }
            None => (0, PREEMPTION.to_owned()),
        };
        if let Some(asked) = Pod::of(pod).spec().priority().int().filter(|asked| *asked != value) {
            return Err(at.forbidden(format!(
                "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            )));
        }
        Pod::edit(pod).spec().priority().set(value);
        let own = Pod::of(pod).spec().preemption_policy();
        if !own.is_set() {
            Pod::edit(pod).spec().preemption_policy().set(policy);
        } else if own != policy {
            return Err(at.forbidden(format!(
                "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name",
                own.text()
            )));
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, class: &Value) -> Result<(), ApiError> {
        let writes = matches!(at.operation, Operation::Create | Operation::Update);
        if !writes || !at.is("scheduling.k8s.io", "priorityclasses") {
            return Ok(());
        }
        let class = PriorityClass::of(class);
        if !class.global_default().flag() {
            return Ok(());
        }
        let all = at.cached("scheduling.k8s.io", "priorityclasses", None);
        let Some(other) = default_class(all) else { return Ok(()) };
        let other = other.meta.name.as_str();
        if at.operation == Operation::Update && class.metadata().name() == other {
            return Ok(());
        }
        Err(at.forbidden(format!(
            "PriorityClass {other} is already marked as default. Only one default can exist"
        )))
    }
}

/// What was computed stays when the client does not say it.
fn keep_computed(mut pod: Edit<'_, Pod>, old: View<'_, PodSpec>) {
    let mut spec = pod.spec();
    if !spec.view().priority().is_set() {
        spec.priority().set(old.priority());
    }
    if !spec.view().preemption_policy().is_set() {
        spec.preemption_policy().set(old.preemption_policy());
    }
}

/// What was computed is computed again: the change may name another class. Other values are what the client asks for.
fn clear_computed(mut pod: Edit<'_, Pod>, old: View<'_, PodSpec>) {
    let mut spec = pod.spec();
    if spec.view().priority().same_as(old.priority()) {
        spec.priority().clear();
    }
    if spec.view().preemption_policy().same_as(old.preemption_policy()) {
        spec.preemption_policy().clear();
    }
}

/// Of the classes that are the default the one with the smallest value.
fn default_class(classes: Vec<Arc<Object>>) -> Option<Arc<Object>> {
    let is_default = |class: &Arc<Object>| class.doc().view::<PriorityClass>().global_default().flag();
    let defaults = classes.into_iter().filter(is_default);
    defaults.min_by_key(|class| class.doc().view::<PriorityClass>().value().int())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_priority_of_a_pod_that_nobody_has_seen_is_computed_again() {
        let old = json!({"spec": {"priority": 7, "preemptionPolicy": PREEMPTION}});
        for (given, rest) in [
            (json!({"priorityClassName": "other", "priority": 7}), json!({"priorityClassName": "other"})),
            (json!({"priority": 8, "preemptionPolicy": PREEMPTION}), json!({"priority": 8})),
            (json!({"preemptionPolicy": "Never"}), json!({"preemptionPolicy": "Never"})),
        ] {
            let mut pod = json!({"spec": given});
            clear_computed(Pod::edit(&mut pod), Pod::of(&old).spec());
            assert_eq!(pod["spec"], rest);
        }
    }
}
