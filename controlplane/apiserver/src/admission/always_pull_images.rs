//! AlwaysPullImages: sets `imagePullPolicy: Always`, so that a pod cannot use an image cached on the node without
//! credentials for its registry.

use super::{Attributes, Operation, Phase, Plugin, containers};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Pod;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;

/// The plugin.
pub struct AlwaysPullImages;

#[async_trait]
impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, at: &Attributes<'_>, _: Phase) -> bool {
        at.is("", "pods")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !concerns(at, pod) {
            return Ok(());
        }
        let mut pod = Pod::edit(pod);
        let mut spec = pod.spec();
        spec.init_containers().each(|mut container| container.image_pull_policy().set("Always"));
        spec.containers().each(|mut container| container.image_pull_policy().set("Always"));
        spec.ephemeral_containers().each(|mut container| container.image_pull_policy().set("Always"));
        spec.volumes().each(|mut volume| {
            if volume.view().image().is_object() {
                volume.image().pull_policy().set("Always");
            }
        });
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        if !concerns(at, pod) {
            return Ok(());
        }
        for (list, containers) in containers::lists(Pod::of(pod).spec()) {
            for (i, container) in containers.items().enumerate() {
                let policy = container.image_pull_policy();
                if policy != "Always" {
                    let field = format!("spec.{list}[{i}].imagePullPolicy");
                    let error = FieldError::unsupported(field.clone(), &policy.as_value(), &["Always"]);
                    return Err(at.forbidden(format!("{field}: {}", error.message)));
                }
            }
        }
        Ok(())
    }
}

fn images(pod: &Value) -> impl Iterator<Item = Cow<'_, Value>> {
    containers::all(Pod::of(pod).spec()).map(|container| container.image().as_value())
}

fn concerns(at: &Attributes<'_>, pod: &Value) -> bool {
    if !at.is("", "pods") {
        return false;
    }
    match (at.operation, at.old) {
        _ if at.is_new() => true,
        // A change that brings no new image was admitted before.
        (Operation::Update, Some(old)) => {
            let had: HashSet<Cow<'_, Value>> = images(old).collect();
            images(pod).any(|image| !had.contains(&image))
        }
        _ => false,
    }
}
