//! The API for callers in the same process: controllers, the scheduler and the server's own tasks. Implements
//! `coracle_client::pipeline::Pipeline`.

use super::api::Api;
use super::run_action::{Actions, Call};
use crate::actions::binding::bind_all;
use crate::actions::scale::Replicas;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::options::{DeleteOptions, WriteOptions};
use coracle_client::patch::Patch;
use coracle_client::pipeline::{Change, Pipeline, Placement, Reply, Target};
use coracle_client::user::User;
use coracle_fields::Made;
use coracle_fields::autoscaling_v1::Scale;
use coracle_kinds::object::Object;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use coracle_trace::Recorder;
use serde_json::Value;
use std::sync::Arc;

/// Objects and actions, without HTTP and authorization.
pub struct InProcess {
    /// Objects.
    pub api: Arc<Api>,
    /// Actions.
    pub actions: Arc<Actions>,
}

#[async_trait]
impl Pipeline for InProcess {
    fn registry(&self) -> &Arc<Registry> {
        &self.api.objects.registry
    }

    fn recorder(&self) -> Recorder {
        self.api.recorder
    }

    fn cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.api.objects.reflector.cache(kind)
    }

    fn whole_cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.api.objects.reflector.whole_cache(kind)
    }

    async fn view(&self, kind: &Kind, object: &Arc<Object>) -> Result<Value, ApiError> {
        self.api.converter.to_value(kind, object).await
    }

    async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.api.objects.get(kind, namespace, name).await
    }

    async fn get_whole(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.api.objects.get_whole(kind, namespace, name).await
    }

    async fn create(&self, target: &Target<'_>, object: Value) -> Result<Arc<Object>, ApiError> {
        Ok(self.api.create(target, object).await?.object)
    }

    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<Arc<Object>, ApiError> {
        Ok(self.api.change(target, change).await?.object)
    }

    async fn scale(&self, target: &Target<'_>, replicas: i64) -> Result<Arc<Object>, ApiError> {
        let scaled = |scale: &Value| {
            let mut new = Made::<Scale>::new(scale.clone());
            new.edit().spec().replicas().set(replicas);
            // With a version in it a lost race would be a conflict instead of another try.
            new.edit().metadata().resource_version().clear();
            Ok(new.into_value())
        };
        Ok(self.api.change_through(target, &Replicas(target.kind), &scaled).await?.object)
    }

    async fn patch(&self, target: &Target<'_>, patch: &Patch) -> Result<Arc<Object>, ApiError> {
        Ok(self.api.patch(target, patch).await?.object)
    }

    async fn remove(&self, target: &Target<'_>, options: &DeleteOptions) -> Result<Arc<Object>, ApiError> {
        Ok(self.api.remove(target, options).await?.object)
    }

    async fn remove_unreadable(&self, target: &Target<'_>) -> Result<(), ApiError> {
        self.api.delete_unreadable(target, Some(target.namespace), &DeleteOptions::default()).await
    }

    async fn bind(
        &self,
        user: &User,
        options: &WriteOptions,
        placements: &[Placement<'_>],
    ) -> Vec<Result<(), ApiError>> {
        bind_all(&self.actions, &self.api, user, options, placements).await
    }

    async fn take_fence(&self, lease: &Object) -> Result<u64, ApiError> {
        self.api.take_fence(lease).await
    }

    async fn call(&self, target: &Target<'_>, verb: &str, body: Value) -> Result<Reply, ApiError> {
        let call = Call {
            api: &self.api,
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
        Ok(self.actions.run(call).await?.reply)
    }
}
