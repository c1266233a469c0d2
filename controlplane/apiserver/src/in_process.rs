//! The API for callers in the same process: controllers, the scheduler and the server's own tasks. Implements
//! `coracle_client::pipeline::Pipeline`.

use super::api::Api;
use super::audited_call::AuditedCall;
use super::delete::Deleted;
use super::filters::audit::Audit;
use super::run_action::{Actions, Call};
use super::write::Written;
use crate::actions::binding::{bind_all, bind_all_audited};
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
use coracle_kinds::registry::scale::of_value;
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
    /// Audit logging.
    pub audit: Arc<Audit>,
}

/// What answers the request of a write.
fn stored(written: &Written) -> Reply {
    Reply::Object(if written.created { 201 } else { 200 }, written.object.clone())
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
        let call = AuditedCall::begin(&self.audit, &Verb::Create, target).await;
        call.sent(|| object.to_string());
        let created = self.api.create(&call.target(target), object).await;
        call.ended(&created, stored).await;
        Ok(created?.object)
    }

    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<Arc<Object>, ApiError> {
        let call = AuditedCall::begin(&self.audit, &Verb::Update, target).await;
        let noted = |current: &Value| -> Result<Value, ApiError> {
            let new = change(current)?;
            call.sent(|| new.to_string());
            Ok(new)
        };
        let changed = self.api.change(&call.target(target), &noted).await;
        call.ended(&changed, stored).await;
        Ok(changed?.object)
    }

    async fn scale(&self, target: &Target<'_>, replicas: i64) -> Result<Arc<Object>, ApiError> {
        let call = AuditedCall::begin(&self.audit, &Verb::Update, target).await;
        let scaled = |scale: &Value| {
            let mut new = Made::<Scale>::new(scale.clone());
            new.edit().spec().replicas().set(replicas);
            // With a version in it a lost race would be a conflict instead of another try.
            new.edit().metadata().resource_version().clear();
            let new = new.into_value();
            call.sent(|| new.to_string());
            Ok(new)
        };
        let (place, projection) = (call.target(target), Replicas(target.kind));
        let changed = self.api.change_through(&place, &projection, &scaled).await;
        let reply = |written: &Written| Reply::Value(200, of_value(target.kind, &written.object.value()));
        call.ended(&changed, reply).await;
        Ok(changed?.object)
    }

    async fn patch(&self, target: &Target<'_>, patch: &Patch) -> Result<Arc<Object>, ApiError> {
        let call = AuditedCall::begin(&self.audit, &Verb::Patch, target).await;
        call.sent(|| patch.body().to_string());
        let patched = self.api.patch(&call.target(target), patch).await;
        call.ended(&patched, stored).await;
        Ok(patched?.object)
    }

    async fn remove(&self, target: &Target<'_>, options: &DeleteOptions) -> Result<Arc<Object>, ApiError> {
        let call = AuditedCall::begin(&self.audit, &Verb::Delete, target).await;
        call.sent(|| serde_json::to_string(options).unwrap_or_default());
        let removed = self.api.remove(&call.target(target), options).await;
        let reply = |removed: &Deleted| match removed.status(target.kind) {
            Some(status) => Reply::Value(200, status),
            None => Reply::Object(200, removed.object.clone()),
        };
        call.ended(&removed, reply).await;
        Ok(removed?.object)
    }

    async fn remove_unreadable(&self, target: &Target<'_>) -> Result<(), ApiError> {
        // The namespace controller calls this for every kind; a call that has nothing to do has no event.
        if self.api.objects.reflector.unreadable().is_empty() {
            return Ok(());
        }
        let call = AuditedCall::begin(&self.audit, &Verb::DeleteCollection, target).await;
        let (place, options) = (call.target(target), DeleteOptions::default());
        let removed = self.api.delete_unreadable(&place, Some(target.namespace), &options).await;
        call.ended(&removed, |()| Reply::Value(200, Value::Null)).await;
        removed
    }

    async fn bind(
        &self,
        user: &User,
        options: &WriteOptions,
        placements: &[Placement<'_>],
    ) -> Vec<Result<(), ApiError>> {
        if self.audit.has_sinks() {
            let bound = bind_all_audited(&self.audit, &self.actions, &self.api, (user, options), placements);
            return Box::pin(bound).await;
        }
        bind_all(&self.actions, &self.api, user, options, placements).await
    }

    async fn take_fence(&self, lease: &Object) -> Result<u64, ApiError> {
        self.api.take_fence(lease).await
    }

    async fn call(&self, target: &Target<'_>, verb: &str, body: Value) -> Result<Reply, ApiError> {
        let verb = Verb::from(verb);
        let audited = AuditedCall::begin(&self.audit, &verb, target).await;
        if !body.is_null() {
            audited.sent(|| body.to_string());
        }
        let call = Call {
            api: &self.api,
            user: target.user,
            kind: target.kind,
            namespace: target.namespace,
            name: target.name,
            subresource: target.subresource,
            verb,
            content_type: "application/json",
            body,
            options: audited.target(target).options,
            admitted: None,
        };
        let answered = self.actions.run(call).await;
        audited.ended(&answered, |answered| answered.reply.clone()).await;
        Ok(answered?.reply)
    }
}
