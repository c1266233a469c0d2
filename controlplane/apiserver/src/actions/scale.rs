//! `/scale`: the replica count of every scalable kind as `autoscaling/v1` Scale.

use super::scale_owners;
use crate::hook::Projection;
use crate::patch::apply::entry;
use crate::patch_request::{self, PatchKind};
use crate::run_action::{Action, Call};
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Schema as _, autoscaling_v1};
use coracle_kinds::registry::custom;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::registry::scale::{custom_paths, of_value};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};

/// The action.
pub struct Scale;

#[async_trait]
impl Action for Scale {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let current = call.api.objects.get(call.kind, call.namespace, call.name).await?;
        let format = match call.verb {
            Verb::Get => {
                let object = call.api.converter.to_value(call.kind, &current).await?;
                return Ok(Reply::Value(200, of_value(call.kind, &object)));
            }
            Verb::Update => None,
            Verb::Patch => Some(PatchKind::of(call.content_type)?),
            _ => return Err(ApiError::method_not_allowed()),
        };
        let applied = format == Some(PatchKind::Apply);
        let target = Target {
            user: call.user,
            kind: call.kind,
            namespace: call.namespace,
            name: call.name,
            subresource: "scale",
            options: call.options,
            applied,
        };
        let change = |scale: &Value| match format {
            None => Ok(call.body.clone()),
            Some(PatchKind::Apply) => patch_request::apply_config_to_scale(&target, scale, &call.body),
            Some(format) => patch_request::apply_to_scale(format, scale, &call.body),
        };
        let (plain, owned) = (Replicas(call.kind), OwnedReplicas(call.kind));
        let projection: &dyn Projection = if applied { &owned } else { &plain };
        let written = call.api.change_through(&target, projection, &change).await?;
        Ok(Reply::Value(200, of_value(call.kind, &written.object.value())))
    }
}

/// The Scale of objects of a kind.
pub struct Replicas<'a>(pub &'a Kind);

impl Projection for Replicas<'_> {
    fn project(&self, object: &Value) -> Value {
        of_value(self.0, object)
    }

    fn merge(&self, object: &Value, scale: &Value) -> Result<Value, ApiError> {
        let replicas = check(PartialObjectMetadata::of(object).metadata().name().text(), scale)?;
        let mut new = object.clone();
        match custom_paths(self.0) {
            Some(paths) => custom::put(&mut new, &paths.spec, json!(replicas)),
            // Built-in kinds have it where the Scale has it.
            None => autoscaling_v1::Scale::edit(&mut new).spec().replicas().set(replicas),
        }
        let version = autoscaling_v1::Scale::of(scale).metadata().resource_version().filled();
        PartialObjectMetadata::edit(&mut new).metadata().resource_version().set(version);
        Ok(new)
    }
}

/// The same with the owners of the number of replicas, which an apply looks at and changes.
struct OwnedReplicas<'a>(&'a Kind);

impl Projection for OwnedReplicas<'_> {
    fn project(&self, object: &Value) -> Value {
        let mut scale = of_value(self.0, object);
        entry::encode(&mut scale, scale_owners::of_scale(self.0, object));
        scale
    }

    fn merge(&self, object: &Value, scale: &Value) -> Result<Value, ApiError> {
        let mut new = Replicas(self.0).merge(object, scale)?;
        entry::encode(&mut new, scale_owners::of_object(self.0, object, scale));
        Ok(new)
    }
}

fn check(name: &str, scale: &Value) -> Result<i64, ApiError> {
    let replicas = autoscaling_v1::Scale::of(scale).spec().replicas();
    let number = if replicas.is_set() { replicas.int() } else { Some(0) };
    match number {
        Some(n) if n >= 0 => Ok(n),
        _ => {
            let why = "must be greater than or equal to 0";
            let cause = FieldError::invalid("spec.replicas", &replicas.as_value(), why);
            Err(ApiError::invalid("autoscaling", "Scale", name, vec![cause]))
        }
    }
}
