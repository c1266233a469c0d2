//! A request by the names that webhooks and policies know it by: those who wrote their rules for `v1` see what is asked for
//! in `v2` as `v1`.

use super::Attributes;
use crate::decode;
use coracle_kinds::registry::equivalent::Named;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::borrow::Cow;
use tokio::sync::Mutex;

/// A request in one form.
pub struct Form<'a> {
    /// The resource and kind of this form.
    pub name: &'a Named,
    /// The object as it would be; null for deletes.
    pub object: Cow<'a, Value>,
    /// The object as it was; null for creates.
    pub old: Cow<'a, Value>,
}

/// The object as it would be and as it was, or why it has no such form.
type Made = Result<(Value, Value), ApiError>;

/// The forms of one request; each is made once, however many want to see it.
#[derive(Default)]
pub struct Forms(Mutex<Vec<(Named, Made)>>);

impl Forms {
    /// The request by this name. Fails when a webhook does not convert it.
    pub async fn of<'a>(
        &self,
        name: &'a Named,
        at: &Attributes<'a>,
        object: &'a Value,
    ) -> Result<Form<'a>, ApiError> {
        let own = Named::of(at.kind);
        if *name == own || is_shared(at) {
            let old = at.old.map_or(Cow::Owned(Value::Null), Cow::Borrowed);
            return Ok(Form { name, object: Cow::Borrowed(object), old });
        }
        // Others who want the same wait here for it.
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
        Ok(Form { name, object: Cow::Owned(object), old: Cow::Owned(old) })
    }
}

/// Whether the object is of a kind that all versions of the resource share, such as a Scale.
fn is_shared(at: &Attributes<'_>) -> bool {
    at.kind.taken_by(at.subresource).is_some()
}

async fn converted(own: &Named, name: &Named, at: &Attributes<'_>, object: &Value) -> Made {
    let converter = &at.api.converter;
    let old = converter.across(at.kind, own, name, at.old.cloned().unwrap_or_default()).await?;
    let new = converter.across(at.kind, own, name, object.clone()).await?;
    Ok((new, old))
}

/// An object that was changed in another form, as what was asked for.
pub async fn asked(name: &Named, at: &Attributes<'_>, mut object: Value) -> Result<Value, ApiError> {
    if let Some(taken) = at.kind.taken_by(at.subresource) {
        return decode::changed(&taken, object);
    }
    let own = Named::of(at.kind);
    if *name == own {
        return Ok(object);
    }
    if let Some(row) = at.api.registry.resource(&name.group, &name.version, &name.plural) {
        (row.strategy.defaults)(&mut object);
    }
    at.api.converter.across(at.kind, name, &own, object).await
}
