//! New objects whose initializers are pending: creates wait until the last one has finished, and failed ones are deleted.

use super::admission::Operation;
use super::api::Api;
use super::write::Written;
use coracle_client::options::{DeleteOptions, Preconditions, Uninitialized};
use coracle_client::pipeline::Target;
use coracle_fields::meta::{PartialObjectMetadata, Status};
use coracle_fields::{Schema as _, View};
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use coracle_kinds::watch::event::{Event, EventType};
use coracle_proto::schema;
use coracle_proto::status::{ApiError, qualified};
use coracle_trace::Verb;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long a create waits for the initializers of its object.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reasons that a result may give, and their codes.
static REASONS: [(&str, u16); 10] = [
    ("BadRequest", 400),
    ("Unauthorized", 401),
    ("Forbidden", 403),
    ("NotFound", 404),
    ("AlreadyExists", 409),
    ("Conflict", 409),
    ("Invalid", 422),
    ("TooManyRequests", 429),
    ("ServiceUnavailable", 503),
    ("Timeout", 504),
];

/// Whether initializers of an object are pending. Without the feature gate an object that still has the field is like any other.
pub(super) fn is_pending(object: &Object) -> bool {
    object.meta.uninitialized && schema::has_initializers()
}

impl Api {
    /// Waits until a new object is initialized; the object then, or the error of the initializer that failed.
    pub(super) async fn initialized(
        &self,
        target: &Target<'_>,
        mut written: Written,
    ) -> Result<Written, ApiError> {
        let wants = target.options.uninitialized;
        if wants == Uninitialized::Show || target.options.dry_run {
            return Ok(written);
        }
        let cache = self.objects.whole_cache(target.kind)?;
        let object = match tokio::time::timeout(TIMEOUT, finished(&cache, &written.object)).await {
            Ok(finished) => finished?,
            Err(_) => {
                let (kind, meta) = (target.kind, &written.object.meta);
                if wants == Uninitialized::Remove {
                    self.remove_pending(target, &written.object).await?;
                }
                return Err(ApiError::timeout(format!(
                    "server has timed out waiting for the initialization of {} {}",
                    qualified(&kind.group, &kind.plural),
                    meta.name
                )));
            }
        };
        written.object = self.converter.to_version(target.kind, &object).await?;
        Ok(written)
    }

    async fn remove_pending(&self, target: &Target<'_>, object: &Object) -> Result<(), ApiError> {
        let uid = Some(object.meta.uid.clone());
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteOptions::default()
        };
        let target = Target { name: &object.meta.name, ..*target };
        match self.remove(&target, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes an object after a change of it if the change is that an initializer has failed; finalizers do not count, because
    /// nobody has seen the object.
    pub(super) async fn end_failed(
        &self,
        target: &Target<'_>,
        changed: &Arc<Object>,
    ) -> Result<(), ApiError> {
        let last = changed.value();
        let result = PartialObjectMetadata::of(&last).metadata().initializers().result();
        if target.options.dry_run || !result.is_set() {
            return Ok(());
        }
        let mut at = self.attributes(target, Operation::Delete, Some(&last));
        let admitted = self.admission.admit(&mut at, &mut Value::Null).await?;
        drop(at);
        let mut write = self.trace(Verb::Delete, target, target.name);
        // Who was faster has deleted it: changes after a result are refused.
        let deleted = self.delete_stored(target, changed, &last, admitted, &mut write).await;
        write.ended(None);
        tracing::info!(
            resource = target.kind.plural,
            namespace = target.namespace,
            name = target.name,
            deleted = deleted.is_ok(),
            "an initializer has failed"
        );
        Ok(())
    }
}

/// The object when its initialization has ended.
async fn finished(cache: &Arc<Cache>, object: &Arc<Object>) -> Result<Arc<Object>, ApiError> {
    let mut cursor = cache.subscribe(object.revision).map_err(ApiError::internal)?;
    loop {
        match cursor.next_batch().await {
            Ok(events) => {
                let mut own = events.iter().filter(|event| event.object.meta.uid == object.meta.uid);
                if let Some(end) = own.find_map(|event| outcome(event)) {
                    return end;
                }
            }
            // Events were lost: what counts is whether it is there, and how.
            Err(_) => {
                cursor = cache.subscribe(cache.revision()).map_err(ApiError::internal)?;
                let now = cache.get(&object.meta.namespace, &object.meta.name);
                match now.filter(|now| now.meta.uid == object.meta.uid) {
                    None => return Err(gone()),
                    Some(now) if !now.meta.uninitialized => return Ok(now),
                    Some(_) => {}
                }
            }
        }
    }
}

/// How initialization ended, if it has with this event.
fn outcome(event: &Event) -> Option<Result<Arc<Object>, ApiError>> {
    if event.what != EventType::Deleted && !event.object.meta.uninitialized {
        return Some(Ok(event.object.clone()));
    }
    let doc = event.object.doc();
    let result = doc.view::<PartialObjectMetadata>().metadata().initializers().result();
    if result.is_set() {
        return Some(Err(failure(result)));
    }
    (event.what == EventType::Deleted).then(|| Err(gone()))
}

fn gone() -> ApiError {
    ApiError::internal("object deleted while waiting for creation")
}

/// The error that an initializer has set.
fn failure(result: View<'_, Status>) -> ApiError {
    let known = REASONS.iter().find(|(reason, _)| result.reason() == *reason);
    let code = result.code().int().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).or(known.map(|(_, code)| *code));
    let message = result.message().filled().unwrap_or("initialization failed");
    ApiError::new(code.unwrap_or(500), known.map_or("InternalError", |(reason, _)| *reason), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn nothing_is_pending_without_the_gate() {
        let pending = json!({"pending": [{"name": "a.example.com"}]});
        let left = object(json!({"metadata": {"name": "a", "uid": "1", "initializers": pending}}));
        assert!(left.meta.uninitialized && !is_pending(&left));
    }

    #[test]
    fn a_create_ends_with_the_last_initializer_or_the_first_failure() {
        let end = |what: EventType, initializers: Value| {
            let mut value = json!({"metadata": {"name": "a", "uid": "1"}});
            if !initializers.is_null() {
                value["metadata"]["initializers"] = initializers;
            }
            let (object, previous) = (object(value), None);
            let end = outcome(&Event { what, object, previous, line: bytes::Bytes::new() });
            end.map(|end| end.map(|_| ()).map_err(|error| (error.code, error.reason, error.message)))
        };
        let pending = json!({"pending": [{"name": "a.example.com"}]});
        assert_eq!(end(EventType::Modified, pending.clone()), None);
        assert_eq!(end(EventType::Modified, Value::Null), Some(Ok(())));
        let gone = end(EventType::Deleted, pending).unwrap_or(Ok(())).err();
        assert_eq!(gone.map(|(code, ..)| code), Some(500));
        let short = json!({"status": "Failure", "reason": "Forbidden", "message": "too short"});
        let refused = end(EventType::Modified, json!({"result": short}));
        assert_eq!(refused, Some(Err((403, "Forbidden", "too short".to_owned()))));
        let odd = json!({"status": "Failure", "reason": "Odd", "code": 200});
        let refused = end(EventType::Deleted, json!({"result": odd}));
        assert_eq!(refused, Some(Err((500, "InternalError", "initialization failed".to_owned()))));
    }
}
