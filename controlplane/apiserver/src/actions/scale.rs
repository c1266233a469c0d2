//! `/scale`: the replica count of every scalable kind as `autoscaling/v1` Scale.

use crate::hook::Projection;
use crate::patch_request::{self, PatchKind};
use crate::run_action::{Action, Call};
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
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
        let change: Box<dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync> = match call.verb {
            Verb::Get => {
                let object = call.api.converter.to_value(call.kind, &current).await?;
                return Ok(Reply::Value(200, of_value(call.kind, &object)));
            }
            Verb::Update => {
                let body = call.body.clone();
                Box::new(move |_| Ok(body.clone()))
            }
            Verb::Patch => {
                let kind = PatchKind::of(call.content_type)?;
                let body = call.body.clone();
                Box::new(move |scale| patch_request::apply_untyped(kind, scale, &body))
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        let target = Target {
            user: call.user,
            kind: call.kind,
            namespace: call.namespace,
            name: call.name,
            subresource: "scale",
            options: call.options,
            applied: false,
        };
        let written = call.api.change_through(&target, &Replicas(call.kind), change.as_ref()).await?;
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
        let replicas = check(object["metadata"]["name"].as_str().unwrap_or_default(), scale)?;
        let mut new = object.clone();
        match custom_paths(self.0) {
            Some(paths) => custom::put(&mut new, &paths.spec, json!(replicas)),
            None => new["spec"]["replicas"] = json!(replicas),
        }
        if let Some(version) = scale["metadata"]["resourceVersion"].as_str().filter(|v| !v.is_empty()) {
            new["metadata"]["resourceVersion"] = json!(version);
        } else if let Some(meta) = new["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        Ok(new)
    }
}

fn check(name: &str, scale: &Value) -> Result<i64, ApiError> {
    let replicas = &scale["spec"]["replicas"];
    let number = if replicas.is_null() { Some(0) } else { replicas.as_i64() };
    match number {
        Some(n) if n >= 0 => Ok(n),
        _ => {
            let cause = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
            Err(ApiError::invalid("autoscaling", "Scale", name, vec![cause]))
        }
    }
}
