//! Lenient decoding: one object that cannot be decoded must not fail a whole list or watch.

use coracle_fields::{fields, meta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicResourceScope;
use kube::{Api, Resource};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// An object, or the metadata of one that cannot be decoded.
#[derive(Debug, Clone)]
pub(super) enum Lenient<K> {
    /// Decoded.
    Whole(K),
    /// Nested too deeply, or with unexpected types.
    Broken {
        /// Its name and resource version, from which a watch continues.
        names: Box<ObjectMeta>,
        /// The reason.
        why: String,
    },
}

impl<K: Resource> Lenient<K>
where
    K::DynamicType: Default,
{
    /// The object; logs it and returns `None` if it could not be decoded.
    pub(super) fn read(self) -> Option<K> {
        match self {
            Self::Whole(object) => Some(object),
            Self::Broken { names, why } => {
                let (namespace, name) = (names.namespace.unwrap_or_default(), names.name.unwrap_or_default());
                let resource = K::plural(&K::DynamicType::default()).into_owned();
                tracing::warn!(resource, namespace, name, why, "object cannot be decoded, skipped");
                None
            }
        }
    }
}

/// The same part of the API, with objects that may be unreadable.
pub(super) fn api<K: Resource>(of: Api<K>) -> Api<Lenient<K>>
where
    K::DynamicType: Default,
{
    let kind = K::DynamicType::default();
    match of.namespace().map(str::to_owned) {
        Some(namespace) => Api::namespaced_with(of.into_client(), &namespace, &kind),
        None => Api::all_with(of.into_client(), &kind),
    }
}

fields! {
    /// What is read of an object that is otherwise unreadable; the rest is skipped without a limit on its depth.
    struct Names: meta::PartialObjectMetadata {
        metadata: NamesMeta,
    }

    struct NamesMeta: meta::ObjectMeta {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Raw text first, so that decoding continues after it in any case.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let error = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self::Whole(object)),
            Err(error) => error,
        };
        let NamesMeta { name, namespace, resource_version } =
            serde_json::from_str::<Names>(text.get()).unwrap_or_default().metadata;
        let names = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
        Ok(Self::Broken { names: Box::new(names), why: error.to_string() })
    }
}

impl<K: Resource> Resource for Lenient<K> {
    type DynamicType = K::DynamicType;
    // Not that of the kind: the API is made from one whose scope was checked.
    type Scope = DynamicResourceScope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Whole(object) => object.meta(),
            Self::Broken { names, .. } => names,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Whole(object) => object.meta_mut(),
            Self::Broken { names, .. } => names,
        }
    }
}
