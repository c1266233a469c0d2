//! The Scale of an object that has replicas.

use super::custom;
use super::kinds::Kind;
use coracle_fields::apps::v1::ReplicaSet;
use coracle_fields::autoscaling_v1::Scale;
use coracle_fields::meta::{ObjectMeta, PartialObjectMetadata};
use coracle_fields::{Schema, View, make};
use coracle_proto::selector::LabelSelector;
use serde_json::Value;

/// The Scale of an object that has replicas.
pub fn of_value(kind: &Kind, object: &Value) -> Value {
    let meta = PartialObjectMetadata::of(object).metadata();
    if let Some(paths) = custom_paths(kind) {
        let number = |path: &str| custom::at(object, path).as_i64().unwrap_or(0);
        let selector = custom::at(object, &paths.selector).as_str().filter(|_| !paths.selector.is_empty());
        return scale(meta, number(&paths.spec), number(&paths.status), selector);
    }
    // Whatever the workload, these are where a ReplicaSet has them.
    let (spec, status) = (ReplicaSet::of(object).spec(), ReplicaSet::of(object).status());
    let raw = spec.selector();
    // ReplicationControllers have a plain map, the others a LabelSelector.
    let selector = if raw.match_labels().is_set() || raw.match_expressions().is_set() {
        LabelSelector::from_object(&raw.as_value()).unwrap_or(LabelSelector::Nothing)
    } else {
        LabelSelector::from_map(&raw.as_value())
    };
    let text = selector.to_string();
    let selector = Some(text.as_str()).filter(|text| !text.is_empty());
    scale(meta, spec.replicas().or(0), status.replicas().or(0), selector)
}

fn scale(meta: View<'_, ObjectMeta>, wanted: i64, there: i64, selector: Option<&str>) -> Value {
    let scale = make!(Scale {
        metadata: {
            name: meta.name(),
            namespace: meta.namespace(),
            uid: meta.uid(),
            resource_version: meta.resource_version(),
            creation_timestamp: meta.creation_timestamp(),
        },
        spec: { replicas: wanted },
        status: { replicas: there, selector },
    });
    scale.into_value()
}

/// Where a custom resource keeps its replicas, if it scales.
pub fn custom_paths(kind: &Kind) -> Option<&custom::Scale> {
    kind.custom.as_ref().and_then(|custom| custom.scale.as_ref())
}
