//! Decodes only the fields that are kept; everything else is skipped by the parser.

use coracle_fields::{FromField, fields, meta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

use super::name::Name;

fields! {
    struct SlimFields: meta::ObjectMeta {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
    }
}

/// Metadata of which name, uid, version and labels are read; annotations, owners and managed fields are not.
#[derive(Clone, Debug, Default)]
pub struct SlimMeta(pub ObjectMeta);

impl FromField<meta::ObjectMeta> for SlimMeta {}

impl<'de> Deserialize<'de> for SlimMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SlimFields { name, namespace, uid, resource_version, labels } =
            SlimFields::deserialize(deserializer)?;
        Ok(Self(ObjectMeta { name, namespace, uid, resource_version, labels, ..ObjectMeta::default() }))
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
