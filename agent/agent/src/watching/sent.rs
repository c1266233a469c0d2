//! An object as a server sent it. One that cannot be read must not take a whole list or the place in a watch with it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicResourceScope;
use kube::{Api, Resource};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// An object, or the names of one that cannot be read.
#[derive(Debug, Clone)]
pub(super) enum Sent<K> {
    /// It was read.
    Whole(K),
    /// It is too deep or of other types than expected.
    Broken {
        /// Its names and its version, from which a watch goes on.
        names: Box<ObjectMeta>,
        /// What is wrong with it.
        why: String,
    },
}

impl<K: Resource> Sent<K>
where
    K::DynamicType: Default,
{
    /// The object; one that cannot be read is logged instead.
    pub(super) fn read(self) -> Option<K> {
        match self {
            Self::Whole(object) => Some(object),
            Self::Broken { names, why } => {
                let (namespace, name) = (names.namespace.unwrap_or_default(), names.name.unwrap_or_default());
                let resource = K::plural(&K::DynamicType::default()).into_owned();
                tracing::warn!(resource, namespace, name, why, "an object cannot be read and is left out");
                None
            }
        }
    }
}

/// The same part of the API, with objects that may be unreadable.
pub(super) fn api<K: Resource>(of: Api<K>) -> Api<Sent<K>>
where
    K::DynamicType: Default,
{
    let kind = K::DynamicType::default();
    match of.namespace().map(str::to_owned) {
        Some(namespace) => Api::namespaced_with(of.into_client(), &namespace, &kind),
        None => Api::all_with(of.into_client(), &kind),
    }
}

/// What is read of an object that is otherwise unreadable; serde skips the rest without a limit on its depth.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Names {
    metadata: NamesMeta,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamesMeta {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Sent<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text first: whatever is in it, the next object begins after it.
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

impl<K: Resource> Resource for Sent<K> {
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
