//! Decodes only the fields that are kept; everything else is skipped by the parser.

use coracle_fields::{FromField, Map, Position, Text, fields, meta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

use super::name::Name;

/// The annotation of an EndpointSlice that says when its endpoints changed.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

fields! {
    struct SlimFields: meta::ObjectMeta {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        deletion_timestamp: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: SlimAnnotations,
    }
}

/// Metadata of which name, uid, version, deletion and labels are read, and one annotation; owners and managed fields are not.
#[derive(Clone, Debug, Default)]
pub struct SlimMeta(pub ObjectMeta);

impl FromField<meta::ObjectMeta> for SlimMeta {}

impl<'de> Deserialize<'de> for SlimMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SlimFields { name, namespace, uid, resource_version, deletion_timestamp, labels, annotations } =
            SlimFields::deserialize(deserializer)?;
        let annotations = annotations.0.map(|time| BTreeMap::from([(TRIGGER_TIME.to_owned(), time)]));
        let meta = ObjectMeta {
            name,
            namespace,
            uid,
            resource_version,
            deletion_timestamp: deletion_timestamp.and_then(|time| time.parse().ok()).map(Time),
            labels,
            annotations,
            ..ObjectMeta::default()
        };
        Ok(Self(meta))
    }
}

/// Annotations of which only [`TRIGGER_TIME`] is kept.
#[derive(Default)]
struct SlimAnnotations(Option<String>);

impl FromField<Map<Text>> for SlimAnnotations {}

impl<'de> Deserialize<'de> for SlimAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Annotations;

        impl<'de> Visitor<'de> for Annotations {
            type Value = SlimAnnotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<SlimAnnotations, M::Error> {
                let mut kept = SlimAnnotations::default();
                let is_kept = |name: &str| usize::from(name == TRIGGER_TIME);
                while let Some(found) = map.next_key_seed(Position(is_kept))? {
                    match found {
                        0 => {
                            map.next_value::<IgnoredAny>()?;
                        }
                        _ => kept.0 = map.next_value()?,
                    }
                }
                Ok(kept)
            }
        }

        deserializer.deserialize_map(Annotations)
    }
}

/// The name in an object's metadata.
pub fn name_of(meta: &ObjectMeta) -> Name {
    Name::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Makes a struct with a `metadata` field of type `SlimMeta` a kind of the API.
#[macro_export]
macro_rules! wire_kind {
    ($wire:ty, $scope:ty, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl kube::Resource for $wire {
            type DynamicType = ();
            type Scope = $scope;
            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata.0
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata.0
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn of_the_annotations_one_is_kept() {
        let time = "2026-11-17T04:00:00Z";
        for (annotations, expected) in [
            (json!({"a": "b", TRIGGER_TIME: time, "c": "d"}), Some(time)),
            (json!({"a": "b"}), None),
            (json!({}), None),
            (json!(null), None),
        ] {
            let meta = json!({"name": "s", "resourceVersion": "7", "annotations": annotations});
            let SlimMeta(meta) = serde_json::from_value(meta).unwrap();
            let kept = meta.annotations.unwrap_or_default();
            assert_eq!(kept.get(TRIGGER_TIME).map(String::as_str), expected, "{annotations}");
            assert_eq!(kept.len(), usize::from(expected.is_some()), "{annotations}");
            assert_eq!(meta.resource_version.as_deref(), Some("7"), "{annotations}");
        }
    }
}
