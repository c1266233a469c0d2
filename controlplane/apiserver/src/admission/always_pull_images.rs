//! AlwaysPullImages: sets `imagePullPolicy: Always`, so that a pod cannot use an image cached on the node without
//! credentials for its registry.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};
use std::collections::HashSet;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The plugin.
pub struct AlwaysPullImages;

#[async_trait]
impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !concerns(at, pod) {
            return Ok(());
        }
        for list in LISTS {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                container["imagePullPolicy"] = json!("Always");
            }
        }
        for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
            if let Some(image) = volume.get_mut("image").filter(|image| image.is_object()) {
                image["pullPolicy"] = json!("Always");
            }
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        if !concerns(at, pod) {
            return Ok(());
        }
        for list in LISTS {
            for (i, container) in pod["spec"][list].as_array().into_iter().flatten().enumerate() {
                let policy = &container["imagePullPolicy"];
                if policy != "Always" {
                    let field = format!("spec.{list}[{i}].imagePullPolicy");
                    let error = FieldError::unsupported(field.clone(), policy, &["Always"]);
                    return Err(at.forbidden(format!("{field}: {}", error.message)));
                }
            }
        }
        Ok(())
    }
}

fn images(pod: &Value) -> impl Iterator<Item = &Value> {
    LISTS.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten()).map(|c| &c["image"])
}

fn concerns(at: &Attributes<'_>, pod: &Value) -> bool {
    if !at.is("", "pods") {
        return false;
    }
    match (at.operation, at.old) {
        (Operation::Create, _) => true,
        // A change that brings no new image was admitted before.
        (Operation::Update, Some(old)) => {
            let had: HashSet<&Value> = images(old).collect();
            images(pod).any(|image| !had.contains(image))
        }
        _ => false,
    }
}
