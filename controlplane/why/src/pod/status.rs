//! Phase and conditions of a pod.

use coracle_fields::View;
use coracle_fields::core::v1::{Pod, PodCondition};

/// A condition of a pod.
pub fn condition<'a>(pod: View<'a, Pod>, name: &str) -> Option<View<'a, PodCondition>> {
    pod.status().conditions().items().find(|condition| condition.type_() == name)
}

/// Whether a pod is ready.
pub fn is_ready(pod: View<'_, Pod>) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status() == "True")
}

/// Whether a pod has ended for good.
pub fn has_ended(pod: View<'_, Pod>) -> bool {
    matches!(pod.status().phase().text(), "Succeeded" | "Failed")
}
