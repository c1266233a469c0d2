//! Conversion between the stored form of an object and the requested version. Kinds may be views on other kinds;
//! versions of a custom resource differ only in `apiVersion`, or a webhook converts them. Objects that need no
//! conversion are not parsed or copied.

use super::select::Selection;
use super::webhook_call::{self, WebhookAddress};
use crate::nodes::dial::ClusterDialer;
use bytes::Bytes;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::object::decode;
use coracle_kinds::object::limits::{Limits, rendered_bytes, stored_bytes};
use coracle_kinds::registry::custom::conversion::{self, Webhook};
use coracle_kinds::registry::custom::{Custom, defaults};
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::reflector::Reflector;
use coracle_proto::status::{ApiError, FieldError};
use coracle_store::Revision;
use coracle_trace::{Stage, tracked};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of conversion webhooks, as upstream.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Converts objects between stored and requested versions; cheap to clone.
///
/// A webhook that does not convert is a 500 with its reason; nothing was stored then, unless the object that was stored
/// could not be turned back for the answer.
#[derive(Clone)]
pub struct Converter {
    registry: Arc<Registry>,
    reflector: Arc<Reflector>,
    dialer: Arc<ClusterDialer>,
}

/// The webhook of a kind that has one.
fn conversion_webhook(kind: &Kind) -> Option<(&Custom, &Webhook)> {
    let custom = kind.custom.as_deref()?;
    Some((custom, custom.webhook.as_ref()?))
}

/// Whether a webhook converts objects of this kind; without, [`without_webhook`] does.
pub fn calls_webhook(kind: &Kind) -> bool {
    conversion_webhook(kind).is_some()
}

impl Converter {
    /// Calls conversion webhooks through `dialer`.
    pub fn new(registry: Arc<Registry>, reflector: Arc<Reflector>, dialer: Arc<ClusterDialer>) -> Self {
        Self { registry, reflector, dialer }
    }

    /// The current row of a kind; its definition may have changed.
    pub fn newest(&self, kind: &Arc<Kind>) -> Arc<Kind> {
        let now = self.registry.resource(&kind.group, &kind.version, &kind.plural);
        now.unwrap_or_else(|| kind.clone())
    }

    /// Converts a stored object to the version of `kind`; returns the same `Arc` if nothing changes.
    pub async fn to_version(&self, kind: &Kind, object: &Arc<Object>) -> Result<Arc<Object>, ApiError> {
        if conversion_webhook(kind).is_none() {
            return without_webhook(kind, object);
        }
        let mut one = self.to_version_all(kind, vec![object.clone()]).await?;
        one.pop().ok_or_else(|| ApiError::internal("an object was lost"))
    }

    /// Converts a stored object to the version of `kind`, as a tree.
    pub async fn to_value(&self, kind: &Kind, object: &Arc<Object>) -> Result<Value, ApiError> {
        if conversion_webhook(kind).is_none() {
            return Ok(tree(kind, object));
        }
        Ok(self.to_version(kind, object).await?.value())
    }

    /// Converts stored objects to the version of `kind`, with one webhook call.
    pub async fn to_version_all(
        &self,
        kind: &Kind,
        mut objects: Vec<Arc<Object>>,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        if !kind.is_view() {
            return Ok(objects);
        }
        let mut others = Vec::new();
        if let Some((custom, hook)) = conversion_webhook(kind) {
            others = (0..objects.len()).filter(|i| !custom.is_own(&objects[*i])).collect();
            let stored = others.iter().map(|i| {
                let mut value = objects[*i].value();
                custom.fill_stored(&mut value);
                value
            });
            let converted = self.convert(kind, custom, hook, stored.collect(), &kind.version).await?;
            for (i, value) in others.iter().zip(converted) {
                objects[*i] = object_of(kind, &value, objects[*i].revision)?;
            }
        }
        for (_, object) in objects.iter_mut().enumerate().filter(|(i, _)| others.binary_search(i).is_err()) {
            *object = without_webhook(kind, object)?;
        }
        Ok(objects)
    }

    /// Converts objects and reads their selectable fields.
    pub async fn selectable(
        &self,
        kind: &Kind,
        objects: Vec<Arc<Object>>,
        selection: &Selection,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        Ok(with_fields(kind, self.to_version_all(kind, objects).await?, selection))
    }

    /// Those of the objects that are selected. What a webhook has converted stays so; all others are as they are stored: copies
    /// would last for as long as a client takes to read them.
    pub async fn selected(
        &self,
        kind: &Kind,
        objects: Vec<Arc<Object>>,
        selection: &Selection,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        let seen = self.selectable(kind, objects.clone(), selection).await?;
        let selected = objects.into_iter().zip(seen).filter(|(_, seen)| selection.matches(seen));
        let converted = calls_webhook(kind);
        Ok(selected.map(|(stored, seen)| if converted { seen } else { stored }).collect())
    }

    /// Objects as selectors see them, for watchers, who share what was converted; in the order given.
    pub async fn for_watch(
        &self,
        kind: &Kind,
        objects: Vec<Arc<Object>>,
        selection: &Selection,
    ) -> Result<Vec<Arc<Object>>, ApiError> {
        let Some((custom, _)) = conversion_webhook(kind) else {
            return self.selectable(kind, objects, selection).await;
        };
        if objects.iter().all(|object| custom.is_own(object)) {
            return self.selectable(kind, objects, selection).await;
        }
        // Concurrent watchers wait for the conversion and share it.
        let mut memo = custom.memo.lock().await;
        let mut all: Vec<Option<Arc<Object>>> = objects.iter().map(|object| memo.find(object)).collect();
        let missing = objects.iter().zip(&all).filter(|(_, found)| found.is_none());
        let missing = missing.map(|(object, _)| object.clone()).collect();
        let mut made = self.to_version_all(kind, missing).await?.into_iter();
        for place in all.iter_mut().filter(|place| place.is_none()) {
            *place = made.next();
        }
        let all: Vec<Arc<Object>> = all.into_iter().flatten().collect();
        all.iter().for_each(|object| memo.keep(object.clone()));
        Ok(with_fields(kind, all, selection))
    }

    /// The bytes to store: `{"kind","apiVersion","metadata"` first, no resource version, in the stored version's form.
    /// Every write passes here: what is too deep, too wide or too large is refused, unless `current`, which it replaces, is
    /// as bad.
    pub async fn stored_form(
        &self,
        kind: &Kind,
        object: &Value,
        current: Option<&Object>,
    ) -> Result<Bytes, ApiError> {
        if let Some(stored) = &kind.stored_as {
            let mut converted = object.clone();
            (stored.encode)(&mut converted);
            return admitted(kind, &converted, current);
        }
        let Some(custom) = kind.custom.as_deref().filter(|custom| custom.storage_version != kind.version)
        else {
            return admitted(kind, object, current);
        };
        let mut converted = object.clone();
        match &custom.webhook {
            None => set_version(kind, custom, &mut converted, &custom.storage_version),
            Some(hook) => {
                let one = self.convert(kind, custom, hook, vec![converted], &custom.storage_version).await?;
                converted = one.into_iter().next().unwrap_or_default();
            }
        }
        admitted(kind, &converted, current)
    }

    /// The object that clients of this kind see, from what was stored; without a revision, of a dry run.
    pub async fn decode_stored(
        &self,
        kind: &Kind,
        bytes: &Bytes,
        revision: Revision,
    ) -> Result<Arc<Object>, ApiError> {
        let object = Object::from_stored(&kind.fields, bytes, revision).map_err(ApiError::internal)?;
        self.to_version(kind, &Arc::new(object)).await
    }

    /// An object of this kind, from one of its names to another. Versions that differ in name keep every field, so that
    /// nothing is lost on the way there and back.
    pub async fn convert_between(
        &self,
        kind: &Kind,
        from: &Named,
        to: &Named,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        if from == to || !object.is_object() {
            return Ok(object);
        }
        let call = |object: &mut Value, name: &Named| {
            let mut object = PartialObjectMetadata::edit(object);
            object.kind().set(&name.kind);
            object.api_version().set(name.api_version());
        };
        call(&mut object, from);
        if let Some((custom, hook)) = conversion_webhook(kind) {
            let one = self.convert(kind, custom, hook, vec![object], &to.version).await?;
            return one.into_iter().next().ok_or_else(|| ApiError::internal("an object was lost"));
        }
        if kind.custom.is_none() {
            let stored = |name: &Named| {
                self.registry.resource(&name.group, &name.version, &name.plural).and_then(|row| row.stored_as)
            };
            if let Some(stored) = stored(from) {
                (stored.encode)(&mut object);
            }
            if let Some(stored) = stored(to) {
                (stored.decode)(&mut object);
            }
        }
        call(&mut object, to);
        Ok(object)
    }

    async fn convert(
        &self,
        kind: &Kind,
        custom: &Custom,
        hook: &Webhook,
        objects: Vec<Value>,
        version: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let Some(first) = objects.first() else { return Ok(objects) };
        if let Some(strange) = objects.iter().find_map(|object| custom.unknown_version(object)) {
            let why = format!("request to convert CR from an invalid group/version: {strange}");
            return Err(ApiError::new(500, "", why));
        }
        let subject = conversion::named(first);
        // As upstream: neither a reason nor more than the sentence.
        let failed = |why: String| ApiError::new(500, "", format!("conversion webhook for {subject} {why}"));
        let wanted = format!("{}/{version}", kind.group);
        let uid = uuid::Uuid::new_v4().to_string();
        let body = Bytes::from(hook.request(&uid, &wanted, &objects));
        let cached = |group: &str, plural: &str, namespace: &str| {
            let cache = self.registry.preferred(group, plural).and_then(|kind| self.reflector.cache(&kind));
            cache.map(|cache| cache.list(Some(namespace))).unwrap_or_default()
        };
        let answer = match WebhookAddress::of(&hook.config, cached) {
            Ok(place) => {
                let asked =
                    webhook_call::post(&self.dialer, &hook.config, place, body, CONVERSION_TIMEOUT, "");
                tracked(Stage::ConversionWebhook, &kind.plural, Box::pin(asked)).await
            }
            Err(unknown) => Err(unknown),
        };
        let answer = answer.map_err(|error| failed(format!("failed: {}", error.why())))?;
        let mut converted =
            hook.read(&uid, answer, &objects, &wanted).map_err(|error| failed(error.to_string()))?;
        for object in &mut converted {
            custom.prune_as(version, object);
        }
        Ok(converted)
    }
}

/// The bytes of an object in the form that is stored, if its shape is one that may be.
fn admitted(kind: &Kind, object: &Value, current: Option<&Object>) -> Result<Bytes, ApiError> {
    let name = PartialObjectMetadata::of(object).metadata().name().text();
    // The metadata of other kinds was read by its type.
    if kind.custom.is_some()
        && let Err(error) = decode::meta(object)
    {
        let cause = FieldError::new("FieldValueInvalid", "metadata", format!("Invalid value: {error}"));
        return Err(ApiError::invalid(&kind.group, &kind.kind, name, vec![cause]));
    }
    let refused = match stored_bytes(object, &Limits::USUAL) {
        Ok(bytes) => return Ok(bytes),
        Err(refused) => refused,
    };
    if let Some(current) = current
        && let Ok(bytes) = stored_bytes(object, &Limits::over(&current.value(), current.json.len()))
    {
        return Ok(bytes);
    }
    Err(refused.refusal(&kind.group, &kind.kind, name))
}

/// Whether selectors may see something else than what is cached.
pub fn differs(kind: &Kind, selection: &Selection) -> bool {
    kind.custom.is_some()
        && (selection.reads_fields()
            || (selection.selects_by_content() && conversion_webhook(kind).is_some()))
}

/// Whether watchers of a kind see something else than what is cached, beyond the name of the version.
pub fn differs_for_watchers(kind: &Kind, selection: &Selection) -> bool {
    conversion_webhook(kind).is_some() || differs(kind, selection)
}

/// The fields that this version offers are read when somebody asks for them.
fn with_fields(kind: &Kind, objects: Vec<Arc<Object>>, selection: &Selection) -> Vec<Arc<Object>> {
    if !selection.reads_fields() {
        return objects;
    }
    let read = |object: Arc<Object>| {
        if object.fields.len() == kind.fields.len() {
            return object;
        }
        let value = object.value();
        let fields = kind.fields.iter().map(|field| (field.get)(&value)).collect();
        let (revision, json, meta) = (object.revision, object.json.clone(), object.meta.clone());
        Arc::new(Object { revision, json, meta, fields })
    };
    objects.into_iter().map(read).collect()
}

/// An object from a tree in the form of this kind.
pub fn object_of(kind: &Kind, value: &Value, revision: Revision) -> Result<Arc<Object>, ApiError> {
    let object = Object::from_stored(&kind.fields, &rendered_bytes(value), revision);
    object.map(Arc::new).map_err(ApiError::internal)
}

/// Converts an object to the version of `kind` without a webhook.
pub fn without_webhook(kind: &Kind, object: &Arc<Object>) -> Result<Arc<Object>, ApiError> {
    let custom = kind.custom.as_deref();
    if !kind.is_view() || custom.is_some_and(|custom| !custom.fills && custom.is_own(object)) {
        return Ok(object.clone());
    }
    let value = tree(kind, object);
    if custom.is_some() {
        return object_of(kind, &value, object.revision);
    }
    // Selectors see what a view on another kind is stored as.
    let json = serde_json::to_vec(&value).map_err(ApiError::internal)?;
    let (meta, fields) = (object.meta.clone(), object.fields.clone());
    Ok(Arc::new(Object { revision: object.revision, json: json.into(), meta, fields }))
}

/// The same as a tree.
fn tree(kind: &Kind, object: &Object) -> Value {
    let mut value = object.value();
    if let Some(stored) = &kind.stored_as {
        (stored.decode)(&mut value);
    } else if let Some(custom) = kind.custom.as_deref().filter(|_| kind.is_view()) {
        // It may have been stored before the schema had its defaults.
        if custom.is_own(object) {
            defaults::root(&custom.schema, &mut value);
        } else {
            custom.fill_stored(&mut value);
            set_version(kind, custom, &mut value, &kind.version);
        }
    }
    value
}

/// Sets `apiVersion` and prunes fields that the version's schema does not have.
fn set_version(kind: &Kind, custom: &Custom, value: &mut Value, version: &str) {
    PartialObjectMetadata::edit(value).api_version().set(format!("{}/{version}", kind.group));
    custom.prune_as(version, value);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::registry::custom::rows;
    use serde_json::json;

    /// Versions that differ in name: what is stored in one is shown in the other without what that does not know.
    #[test]
    fn versions_without_a_webhook() {
        let version = |name: &str, fields: Value| {
            json!({"name": name, "served": true, "storage": name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}})
        };
        let text = json!({"type": "string"});
        let rows = rows::of(&json!({"spec": {"group": "x.io", "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"}, "versions": [
                version("v1", json!({"a": text, "b": text})), version("v2", json!({"b": text})),
                version("v3", json!({"b": text, "c": {"type": "string", "default": "d"}}))]}}));
        let stored = |version: &str| {
            let value = json!({"kind": "Boat", "apiVersion": format!("x.io/{version}"),
                "metadata": {"name": "one", "namespace": "n"}, "a": "1", "b": "2"});
            object_of(&rows[0], &value, 7).unwrap()
        };
        let one = stored("v1");
        let shown: Vec<Value> = rows.iter().map(|row| without_webhook(row, &one).unwrap().value()).collect();
        for (value, version, a) in [(&shown[0], "x.io/v1", json!("1")), (&shown[1], "x.io/v2", Value::Null)] {
            assert_eq!((&value["apiVersion"], &value["a"], &value["b"]), (&json!(version), &a, &json!("2")));
            assert_eq!(value["metadata"]["resourceVersion"], "7");
        }
        assert!(
            Arc::ptr_eq(&without_webhook(&rows[0], &one).unwrap(), &one),
            "nothing is copied where nothing differs"
        );
        // Defaults are those of the version that is stored.
        assert_eq!((&shown[2]["c"], &tree(&rows[2], &stored("v3"))["c"]), (&Value::Null, &json!("d")));
        let twice = without_webhook(&rows[1], &without_webhook(&rows[1], &one).unwrap()).unwrap();
        assert_eq!(twice.value(), shown[1]);
    }
}
