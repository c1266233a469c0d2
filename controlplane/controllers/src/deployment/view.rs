//! Deployments and their ReplicaSets as the plan sees them.

use crate::int_or_percent::{IntOrPercent, Round};
use crate::rolling::Strategy;
use coracle_fields::apps::v1;
use coracle_fields::fields;
use coracle_fields::meta::ObjectMeta;
use coracle_informer::conditions::Condition;
use coracle_informer::selector::{Labels, Selector};
use coracle_informer::time;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde::Deserialize as _;
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

fields! {
    struct DeploymentFields: v1::Deployment {
        metadata: Metadata,
        spec: Spec,
        status: Status,
    }

    struct SetFields: v1::ReplicaSet {
        metadata: Metadata,
        spec: SetSpec,
        status: SetStatus,
    }

    struct Metadata: ObjectMeta {
        annotations: Labels,
        creation_timestamp: Option<String>,
    }

    /// The wanted state.
    #[derive(Debug, Clone)]
    pub struct Spec: v1::DeploymentSpec {
        /// How many pods.
        pub replicas: i32 = 1,
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

    /// Observed state.
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[allow(missing_docs)] // the API's own names
    pub struct Status: v1::DeploymentStatus, written {
        pub observed_generation: i64,
        pub replicas: i64,
        pub updated_replicas: i64,
        pub ready_replicas: i64,
        pub available_replicas: i64,
        pub unavailable_replicas: i64,
        pub terminating_replicas: Option<i64>,
        pub collision_count: Option<i64>,
        pub conditions: Vec<Condition>,
    }

    /// The wanted state of a ReplicaSet.
    #[derive(Debug, Clone)]
    #[allow(missing_docs)] // the API's own names
    pub struct SetSpec: v1::ReplicaSetSpec {
        pub replicas: i32 = 1,
        pub min_ready_seconds: i32,
        pub template: Value,
    }

    /// Observed state of a ReplicaSet.
    #[derive(Debug, Clone)]
    #[allow(missing_docs)] // the API's own names
    pub struct SetStatus: v1::ReplicaSetStatus {
        pub replicas: i64,
        pub ready_replicas: i64,
        pub available_replicas: i64,
        pub terminating_replicas: Option<i64>,
        pub observed_generation: i64,
        pub conditions: Vec<Condition>,
    }
}

impl Deployment {
    /// Reads a Deployment.
    pub fn read(object: &Arc<Object>) -> Result<Self, serde_json::Error> {
        let DeploymentFields { metadata, spec, status } = object.typed()?;
        Ok(Self { object: object.clone(), annotations: metadata.annotations, spec, status })
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

impl Set {
    /// Reads a ReplicaSet.
    pub fn read(object: &Arc<Object>) -> Result<Self, serde_json::Error> {
        let SetFields { metadata, spec, status } = object.typed()?;
        Ok(Self {
            object: object.clone(),
            created: time::parse(metadata.creation_timestamp.as_deref()),
            annotations: metadata.annotations,
            spec,
            status,
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
