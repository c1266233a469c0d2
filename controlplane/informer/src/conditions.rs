//! Status conditions, alike in all kinds.

use super::time;
use coracle_fields::{Fits, FromField};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One condition of a status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was last looked at, in kinds that tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<String>,
    /// When it was last updated, in kinds that tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// When it was last seen, in node conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<String>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// The generation it was made for, in kinds that tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// One sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

macro_rules! conditions {
    ($($of:path,)*) => { $(
        impl FromField<$of> for Condition {}

        impl Fits<$of> for Condition {
            fn fit(self) -> Option<Value> {
                serde_json::to_value(self).ok()
            }
        }
    )* };
}

conditions! {
    coracle_fields::meta::Condition,
    coracle_fields::core::v1::NamespaceCondition,
    coracle_fields::core::v1::NodeCondition,
    coracle_fields::core::v1::PodCondition,
    coracle_fields::core::v1::ReplicationControllerCondition,
    coracle_fields::apps::v1::DaemonSetCondition,
    coracle_fields::apps::v1::DeploymentCondition,
    coracle_fields::apps::v1::ReplicaSetCondition,
    coracle_fields::apps::v1::StatefulSetCondition,
    coracle_fields::autoscaling_v2::HorizontalPodAutoscalerCondition,
    coracle_fields::batch::v1::JobCondition,
    coracle_fields::certificates::v1::CertificateSigningRequestCondition,
    coracle_fields::flowcontrol::v1::FlowSchemaCondition,
}

impl Condition {
    /// A condition that starts now.
    pub fn new(kind: &str, status: bool, reason: &str, message: impl Into<String>, now: Timestamp) -> Self {
        let status = if status { "True" } else { "False" };
        Self {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_transition_time: Some(time::seconds(now)),
            ..Self::default()
        }
    }

    /// The same with another status text.
    #[must_use]
    pub fn status(mut self, status: &str) -> Self {
        self.status = status.into();
        self
    }

    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.kind == kind)
}

/// Whether a condition is there and holds.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(Condition::is_true)
}

/// Puts a condition in place of the one of its type. Nothing changes when status and reason are the same; the time of
/// transition stays when the status is.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Some(old) = find(conditions, &new.kind) {
        if old.status == new.status && old.reason == new.reason {
            return;
        }
        if old.status == new.status {
            new.last_transition_time = old.last_transition_time.clone();
        }
    }
    remove(conditions, &new.kind);
    conditions.push(new);
}

/// Like [`set`], in place, and also for a new message alone; returns whether anything changed.
pub fn put(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    let Some(old) = conditions.iter_mut().find(|c| c.kind == new.kind) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time = old.last_transition_time.clone();
    }
    let changed = *old != new;
    *old = new;
    changed
}

/// Removes the condition of a type.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|c| c.kind != kind);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_transition_moves_with_the_status_only() {
        let t0 = Timestamp::UNIX_EPOCH;
        let t1 = time::after(t0, 60);
        let mut all = vec![];
        set(&mut all, Condition::new("Progressing", true, "NewReplicaSetCreated", "a", t0));
        set(&mut all, Condition::new("Progressing", true, "ReplicaSetUpdated", "b", t1));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].last_transition_time.as_deref(), Some("1970-01-01T00:00:00Z"));
        set(&mut all, Condition::new("Progressing", false, "ProgressDeadlineExceeded", "c", t1));
        assert_eq!(all[0].last_transition_time.as_deref(), Some("1970-01-01T00:01:00Z"));
        set(&mut all, Condition::new("Progressing", false, "ProgressDeadlineExceeded", "d", t1));
        assert_eq!(all[0].message, "c", "same status and reason: left alone");
        assert!(put(&mut all, Condition::new("Progressing", false, "ProgressDeadlineExceeded", "d", t1)));
        assert!(!put(&mut all, Condition::new("Progressing", false, "ProgressDeadlineExceeded", "d", t1)));
    }
}
