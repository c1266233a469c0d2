//! DefaultStorageClass: sets the default class on claims that name none.

use super::{Attributes, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::PersistentVolumeClaim;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Schema as _, storage_class};
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

const DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The plugin.
pub struct DefaultStorageClass;

#[async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && at.is_new() && at.is("", "persistentvolumeclaims")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, claim: &mut Value) -> Result<(), ApiError> {
        let named = storage_class::of_claim(PersistentVolumeClaim::of(claim)).is_some();
        if !at.is_new() || !at.is("", "persistentvolumeclaims") || named {
            return Ok(());
        }
        if let Some(class) = newest(at.cached("storage.k8s.io", "storageclasses", None), &DEFAULT) {
            PersistentVolumeClaim::edit(claim).spec().storage_class_name().set(class);
        }
        Ok(())
    }
}

/// Of the classes that an annotation makes the default the newest; of equally old ones the first by name.
pub fn newest(classes: Vec<Arc<Object>>, annotations: &[&str]) -> Option<String> {
    let defaults = classes.iter().filter_map(|class| {
        let doc = class.doc();
        let meta = doc.view::<PartialObjectMetadata>().metadata();
        let marked = annotations.iter().any(|annotation| meta.annotations().key(annotation) == "true");
        marked.then(|| (meta.creation_timestamp().text().to_owned(), meta.name().text().to_owned()))
    });
    let mut found: Vec<_> = defaults.collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    found.into_iter().next().map(|(_, name)| name)
}
