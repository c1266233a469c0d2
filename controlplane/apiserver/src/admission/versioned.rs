//! Converts a request to the equivalent version that a webhook or policy matched (`matchPolicy: Equivalent`): rules
//! written for `v1` see a request for `v2` as `v1`.

use super::Attributes;
use crate::decode;
use coracle_kinds::registry::equivalent::Named;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::borrow::Cow;
use tokio::sync::Mutex;

/// A request in one version.
pub struct VersionedRequest<'a> {
    /// Resource and kind of this version.
    pub name: &'a Named,
    /// The new object; null for deletes.
    pub object: Cow<'a, Value>,
    /// The old object; null for creates.
    pub old: Cow<'a, Value>,
}

/// The new and the old object, or a conversion error.
type Converted = Result<(Value, Value), ApiError>;

/// The versions of one request; each is converted once.
#[derive(Default)]
pub struct VersionedRequests(Mutex<Vec<(Named, Converted)>>);

impl VersionedRequests {
    /// The request in version `name`. Fails if a conversion webhook fails.
    pub async fn get<'a>(
        &self,
        name: &'a Named,
        at: &Attributes<'a>,
        object: &'a Value,
    ) -> Result<VersionedRequest<'a>, ApiError> {
        let own = Named::of(at.kind);
        if *name == own || is_shared(at) {
            let old = at.old.map_or(Cow::Owned(Value::Null), Cow::Borrowed);
            return Ok(VersionedRequest { name, object: Cow::Borrowed(object), old });
        }
        // Concurrent callers wait for the conversion.
        let mut all = self.0.lock().await;
        let found = all.iter().find(|(made, _)| made == name).map(|(_, made)| made.clone());
        let made = match found {
            Some(made) => made,
            None => {
                let made = converted(&own, name, at, object).await;
                all.push((name.clone(), made.clone()));
                made
            }
        };
        let (object, old) = made?;
        Ok(VersionedRequest { name, object: Cow::Owned(object), old: Cow::Owned(old) })
    }
}

/// Whether the object is of a kind that all versions of the resource share, such as a Scale.
fn is_shared(at: &Attributes<'_>) -> bool {
    at.kind.taken_by(at.subresource).is_some()
}

async fn converted(own: &Named, name: &Named, at: &Attributes<'_>, object: &Value) -> Converted {
    let converter = at.api.converter();
    let old = converter.convert_between(at.kind, own, name, at.old.cloned().unwrap_or_default()).await?;
    let new = converter.convert_between(at.kind, own, name, object.clone()).await?;
    Ok((new, old))
}

/// Converts an object that a webhook changed back to the requested version. Objects of built-in kinds are read by their type
/// again; custom resources are held to their schema afterwards.
pub async fn convert_back(name: &Named, at: &Attributes<'_>, mut object: Value) -> Result<Value, ApiError> {
    if let Some(taken) = at.kind.taken_by(at.subresource) {
        return decode::changed(&taken, object);
    }
    if at.kind.custom.is_none() {
        object = decode::changed(name, object)?;
    }
    let own = Named::of(at.kind);
    if *name == own {
        return Ok(object);
    }
    if let Some(row) = at.api.objects().registry.resource(&name.group, &name.version, &name.plural) {
        (row.strategy.defaults)(&mut object);
    }
    at.api.converter().convert_between(at.kind, name, &own, object).await
}
