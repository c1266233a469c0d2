//! The API for callers in the same process: controllers, the scheduler and the server's own tasks.

use super::api::Api;
use super::hook::Call;
use crate::actions::binding::bind_all;
use crate::actions::scale::Replicas;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::options::{DeleteOptions, WriteOptions};
use coracle_client::patch::Patch;
use coracle_client::pipeline::{Change, Pipeline, Placement, Reply, Target};
use coracle_client::user::User;
use coracle_kinds::object::Object;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

#[async_trait]
impl Pipeline for Api {
    fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    fn cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.reflector.cache(kind)
    }

    async fn view(&self, kind: &Kind, object: &Arc<Object>) -> Result<Value, ApiError> {
        self.converter.to_value(kind, object).await
    }

    async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        Api::get(self, kind, namespace, name).await
    }

    async fn create(&self, target: &Target<'_>, object: Value) -> Result<Arc<Object>, ApiError> {
        Ok(Api::create(self, target, object).await?.object)
    }

    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<Arc<Object>, ApiError> {
        Ok(Api::change(self, target, change).await?.object)
    }

    async fn scale(&self, target: &Target<'_>, replicas: i64) -> Result<Arc<Object>, ApiError> {
        let scaled = |scale: &Value| {
            let mut new = scale.clone();
            new["spec"]["replicas"] = replicas.into();
            // With a version in it a lost race would be a conflict instead of another try.
            new["metadata"]["resourceVersion"] = Value::Null;
            Ok(new)
        };
        Ok(self.change_through(target, &Replicas(target.kind), &scaled).await?.object)
    }

    async fn patch(&self, target: &Target<'_>, patch: &Patch) -> Result<Arc<Object>, ApiError> {
        Ok(Api::patch(self, target, patch).await?.object)
    }

    async fn remove(&self, target: &Target<'_>, options: &DeleteOptions) -> Result<Arc<Object>, ApiError> {
        Ok(Api::remove(self, target, options).await?.object)
    }

    async fn remove_unreadable(&self, target: &Target<'_>) -> Result<(), ApiError> {
        self.delete_unreadable(target, Some(target.namespace), &DeleteOptions::default()).await
    }

    async fn bind(
        &self,
        user: &User,
        options: &WriteOptions,
        placements: &[Placement<'_>],
    ) -> Vec<Result<(), ApiError>> {
        bind_all(self, user, options, placements).await
    }

    async fn call(&self, target: &Target<'_>, verb: &str, body: Value) -> Result<Reply, ApiError> {
        let call = Call {
            api: self,
            user: target.user,
            kind: target.kind,
            namespace: target.namespace,
            name: target.name,
            subresource: target.subresource,
            verb: Verb::from(verb),
            content_type: "application/json",
            body,
            options: target.options,
            admitted: None,
        };
        Ok(self.run_action(call).await?.reply)
    }
}
