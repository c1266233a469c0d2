//! Priority: resolves a pod's priority class to a number.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Pod;
use coracle_fields::scheduling::v1::PriorityClass;
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
        if let Some(old) = at.old.filter(|_| at.operation == Operation::Update) {
            // What was computed stays when the client does not say it.
            let (old, mut pod) = (Pod::of(old).spec(), Pod::edit(pod));
            let mut spec = pod.spec();
            if !spec.view().priority().is_set() {
                spec.priority().set(old.priority());
            }
            if !spec.view().preemption_policy().is_set() {
                spec.preemption_policy().set(old.preemption_policy());
            }
            return Ok(());
        }
        if at.operation != Operation::Create {
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

/// Of the classes that are the default the one with the smallest value.
fn default_class(classes: Vec<Arc<Object>>) -> Option<Arc<Object>> {
    let is_default = |class: &Arc<Object>| class.doc().view::<PriorityClass>().global_default().flag();
    let defaults = classes.into_iter().filter(is_default);
    defaults.min_by_key(|class| class.doc().view::<PriorityClass>().value().int())
}
