//! DefaultStorageClass: sets the default class on claims that name none.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};
use std::sync::Arc;

const DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The plugin.
pub struct DefaultStorageClass;

#[async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, claim: &mut Value) -> Result<(), ApiError> {
        let named = !claim["spec"]["storageClassName"].is_null()
            || claim["metadata"]["annotations"].get(OLD_CLASS).is_some();
        if at.operation != Operation::Create || !at.is("", "persistentvolumeclaims") || named {
            return Ok(());
        }
        if let Some(class) = newest(at.cached("storage.k8s.io", "storageclasses", None), &DEFAULT) {
            claim["spec"]["storageClassName"] = json!(class);
        }
        Ok(())
    }
}

/// Of the classes that an annotation makes the default the newest; of equally old ones the first by name.
pub fn newest(classes: Vec<Arc<Object>>, annotations: &[&str]) -> Option<String> {
    let marked = |class: &Value| annotations.iter().any(|a| class["metadata"]["annotations"][*a] == "true");
    let text = |class: &Value, field: &str| class["metadata"][field].as_str().unwrap_or_default().to_owned();
    let defaults = classes.iter().map(|class| class.value()).filter(marked);
    let mut found: Vec<_> = defaults.map(|c| (text(&c, "creationTimestamp"), text(&c, "name"))).collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    found.into_iter().next().map(|(_, name)| name)
}
