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
use coracle_proto::status::{ApiError, qualified};
use coracle_trace::Verb;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long a create waits for the initializers of its object.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often the deletion of an object is tried that changes meanwhile.
const REMOVALS: usize = 8;

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
            Err(_) => self.overdue(target, &written.object).await?,
        };
        written.object = self.converter.to_version(target.kind, &object).await?;
        Ok(written)
    }

    /// How a create ends whose time is over: with the object, if it has been initialized since. An object that its creator could
    /// not see is deleted, in the pending state that was read and in no other.
    async fn overdue(&self, target: &Target<'_>, object: &Object) -> Result<Arc<Object>, ApiError> {
        let (kind, meta) = (target.kind, &object.meta);
        for _ in 0..REMOVALS {
            let now = match self.objects.get_whole(kind, target.namespace, &meta.name).await {
                Ok(now) => Some(now),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error),
            };
            let pending = match standing(now, &meta.uid) {
                Standing::Ended(end) => return end,
                Standing::Pending(now) => now,
            };
            if target.options.uninitialized != Uninitialized::Remove {
                break;
            }
            match self.remove_pending(target, &pending).await {
                Ok(()) => break,
                // It has changed, or is gone.
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::timeout(format!(
            "server has timed out waiting for the initialization of {} {}",
            qualified(&kind.group, &kind.plural),
            meta.name
        )))
    }

    async fn remove_pending(&self, target: &Target<'_>, object: &Object) -> Result<(), ApiError> {
        let (uid, version) = (object.meta.uid.clone(), object.revision.to_string());
        let options = DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(uid), resource_version: Some(version) }),
            ..DeleteOptions::default()
        };
        let target = Target { name: &object.meta.name, ..*target };
        self.remove(&target, &options).await.map(|_| ())
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
                if let Standing::Ended(end) = standing(now, &object.meta.uid) {
                    return end;
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
    if let Some(error) = failed(&event.object) {
        return Some(Err(error));
    }
    (event.what == EventType::Deleted).then(|| Err(gone()))
}

/// Where initialization of an object stands.
enum Standing {
    Ended(Result<Arc<Object>, ApiError>),
    Pending(Arc<Object>),
}

/// Where it stands when this is what has the name of the object now.
fn standing(now: Option<Arc<Object>>, uid: &str) -> Standing {
    let Some(now) = now.filter(|now| now.meta.uid == uid) else { return Standing::Ended(Err(gone())) };
    if !now.meta.uninitialized {
        return Standing::Ended(Ok(now));
    }
    match failed(&now) {
        Some(error) => Standing::Ended(Err(error)),
        None => Standing::Pending(now),
    }
}

/// The error of the initializer that has failed, if one has.
fn failed(object: &Object) -> Option<ApiError> {
    let doc = object.doc();
    let result = doc.view::<PartialObjectMetadata>().metadata().initializers().result();
    if result.is_set() { Some(failure(result)) } else { None }
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
    fn an_object_is_pending_only_as_itself_and_until_it_is_initialized() {
        let standing_of = |uid: &str, initializers: Value| {
            let mut value = json!({"metadata": {"name": "a", "uid": uid}});
            if !initializers.is_null() {
                value["metadata"]["initializers"] = initializers;
            }
            match standing(Some(object(value)), "1") {
                Standing::Pending(_) => None,
                Standing::Ended(end) => Some(end.map(|_| ()).map_err(|error| error.code)),
            }
        };
        let pending = json!({"pending": [{"name": "a.example.com"}]});
        assert_eq!(standing_of("1", pending.clone()), None);
        assert_eq!(standing_of("1", Value::Null), Some(Ok(())), "it was initialized at the last moment");
        assert_eq!(standing_of("2", pending), Some(Err(500)), "another one of that name");
        let refused = json!({"result": {"status": "Failure", "reason": "Forbidden"}});
        assert_eq!(standing_of("1", refused), Some(Err(403)));
        assert!(matches!(standing(None, "1"), Standing::Ended(Err(_))));
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
