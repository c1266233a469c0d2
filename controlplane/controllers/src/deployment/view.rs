//! Deployments and their ReplicaSets as the plan sees them.

use crate::int_or_percent::{IntOrPercent, Round};
use crate::rolling::Strategy;
use coracle_informer::conditions::Condition;
use coracle_informer::selector::{Labels, Selector};
use coracle_informer::time;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The revision of a ReplicaSet, and of the Deployment at it.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Revisions a ReplicaSet had before it was rolled back to.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's size when the ReplicaSet was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The most pods the Deployment allowed then.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// The label that tells the ReplicaSets of a Deployment apart.
pub const HASH: &str = "pod-template-hash";

/// A Deployment.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The whole object.
    pub object: Arc<Object>,
    /// Annotations.
    pub annotations: Labels,
    /// Wanted state.
    pub spec: Spec,
    /// Observed state.
    pub status: Status,
}

/// The wanted state.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// How many pods.
    #[serde(default = "one")]
    pub replicas: i32,
    /// Which ReplicaSets and pods.
    pub selector: Value,
    /// What a pod looks like.
    pub template: Value,
    /// How to get from one template to the next.
    pub strategy: Strategy,
    /// How long a pod must be ready to be available.
    pub min_ready_seconds: i32,
    /// How many old ReplicaSets to keep.
    pub revision_history_limit: Option<i32>,
    /// Whether changes of the template wait.
    pub paused: bool,
    /// After how many seconds without progress to say so.
    pub progress_deadline_seconds: Option<i32>,
}

fn one() -> i32 {
    1
}

/// Observed state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // the API's own names
pub struct Status {
    #[serde(skip_serializing_if = "zero")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "zero")]
    pub replicas: i64,
    #[serde(skip_serializing_if = "zero")]
    pub updated_replicas: i64,
    #[serde(skip_serializing_if = "zero")]
    pub ready_replicas: i64,
    #[serde(skip_serializing_if = "zero")]
    pub available_replicas: i64,
    #[serde(skip_serializing_if = "zero")]
    pub unavailable_replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn zero(n: &i64) -> bool {
    *n == 0
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Annotated {
    annotations: Labels,
    creation_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Wire<S, T> {
    #[serde(default)]
    metadata: Annotated,
    #[serde(default = "Option::default")]
    spec: Option<S>,
    #[serde(default = "Option::default")]
    status: Option<T>,
}

impl Deployment {
    /// Reads a Deployment.
    pub fn read(object: &Arc<Object>) -> Result<Self, serde_json::Error> {
        let wire: Wire<Spec, Status> = object.typed()?;
        Ok(Self {
            object: object.clone(),
            annotations: wire.metadata.annotations,
            spec: wire.spec.unwrap_or_default(),
            status: wire.status.unwrap_or_default(),
        })
    }

    /// Its selector.
    pub fn selector(&self) -> Selector {
        Selector::deserialize(&self.spec.selector).unwrap_or_default()
    }

    /// Whether it changes templates gradually.
    pub fn rolling(&self) -> bool {
        self.spec.strategy.kind != "Recreate"
    }

    /// `maxSurge` and `maxUnavailable` as numbers; never both zero, so that there is always a next step.
    pub fn limits(&self) -> (i32, i32) {
        if !self.rolling() {
            return (0, 0);
        }
        let limits = &self.spec.strategy.rolling_update;
        let of = |amount: &Option<IntOrPercent>, round| {
            amount.as_ref().and_then(|a| a.of(self.spec.replicas, round)).unwrap_or(0)
        };
        let surge = of(&limits.max_surge, Round::Up);
        let unavailable = of(&limits.max_unavailable, Round::Down);
        (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
    }

    /// The most pods there may be.
    pub fn ceiling(&self) -> i32 {
        self.spec.replicas.saturating_add(self.limits().0)
    }

    /// The fewest available pods there may be.
    pub fn floor(&self) -> i32 {
        self.spec.replicas.saturating_sub(self.limits().1.min(self.spec.replicas))
    }

    /// The progress deadline, if there is one.
    pub fn deadline(&self) -> Option<i32> {
        self.spec.progress_deadline_seconds.filter(|s| *s != i32::MAX)
    }
}

/// A ReplicaSet of a Deployment.
#[derive(Debug, Clone)]
pub struct Set {
    /// The whole object; of one that is yet to be created, without bytes.
    pub object: Arc<Object>,
    /// Annotations.
    pub annotations: Labels,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Wanted state.
    pub spec: SetSpec,
    /// Observed state.
    pub status: SetStatus,
}

/// The wanted state of a ReplicaSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // the API's own names
pub struct SetSpec {
    #[serde(default = "one")]
    pub replicas: i32,
    pub min_ready_seconds: i32,
    pub template: Value,
}

/// Observed state of a ReplicaSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // the API's own names
pub struct SetStatus {
    pub replicas: i64,
    pub ready_replicas: i64,
    pub available_replicas: i64,
    pub terminating_replicas: Option<i64>,
    pub observed_generation: i64,
    pub conditions: Vec<Condition>,
}

impl Set {
    /// Reads a ReplicaSet.
    pub fn read(object: &Arc<Object>) -> Result<Self, serde_json::Error> {
        let wire: Wire<SetSpec, SetStatus> = object.typed()?;
        Ok(Self {
            object: object.clone(),
            created: time::parse(wire.metadata.creation_timestamp.as_deref()),
            annotations: wire.metadata.annotations,
            spec: wire.spec.unwrap_or_default(),
            status: wire.status.unwrap_or_default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.object.meta.name
    }

    /// Its revision, 0 when it has none.
    pub fn revision(&self) -> i64 {
        self.annotations.get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
    }

    /// A count kept in an annotation.
    pub fn noted(&self, annotation: &str) -> Option<i32> {
        self.annotations.get(annotation).and_then(|n| n.parse().ok()).filter(|n| *n >= 0)
    }
}
