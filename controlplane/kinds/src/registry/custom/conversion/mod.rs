//! Conversion webhooks without the HTTP call: the request, validation of the response, and a cache for watchers.

// Why an answer is not believed.
mod error;

pub use error::{ConversionError, MetadataError, ResponseError};

use crate::object::{Object, object_key};
use coracle_fields::apiextensions::v1::{ConversionReview, CustomResourceConversion};
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Schema, View};
use coracle_proto::status::FieldError;
use coracle_store::Revision;
use coracle_validation::field_ref::{Field, walk};
use coracle_validation::meta;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many converted objects watchers of a version remember together.
const REMEMBERED: usize = 512;

/// Who converts, as `spec.conversion.webhook` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// Where it is: the `clientConfig`.
    pub config: Value,
    /// The version of reviews that it takes: the first it names that is understood here.
    pub review: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: String,
    request: Request<'a>,
}

#[derive(Serialize)]
struct Request<'a> {
    uid: &'a str,
    #[serde(rename = "desiredAPIVersion")]
    wanted: &'a str,
    objects: &'a [Value],
}

impl Webhook {
    /// The webhook of `spec.conversion`, when that is the strategy.
    pub fn of(conversion: View<'_, CustomResourceConversion>) -> Option<Self> {
        if conversion.strategy() != "Webhook" {
            return None;
        }
        let hook = conversion.webhook();
        let mut named = hook.conversion_review_versions().texts();
        let known = named.find_map(|one| ["v1", "v1beta1"].into_iter().find(|known| one == *known));
        Some(Self { config: hook.client_config().to_value(), review: known.unwrap_or("v1") })
    }

    /// The review that asks for objects in another version, as JSON.
    pub fn request(&self, uid: &str, wanted: &str, objects: &[Value]) -> Vec<u8> {
        let api_version = format!("apiextensions.k8s.io/{}", self.review);
        let review =
            Review { kind: "ConversionReview", api_version, request: Request { uid, wanted, objects } };
        serde_json::to_vec(&review).expect("a tree of JSON can be written")
    }

    /// The objects of an answer, in the order they were sent.
    pub fn read(
        &self,
        uid: &str,
        mut answer: Value,
        sent: &[Value],
        wanted: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        let converted = self.results(uid, &mut answer).map_err(ConversionError::Response)?;
        if converted.len() != sent.len() {
            return Err(ConversionError::Count { returned: converted.len(), expected: sent.len() });
        }
        let mut all = Vec::with_capacity(sent.len());
        for (i, (original, mut object)) in sent.iter().zip(converted).enumerate() {
            let at = (sent.len() > 1).then_some(i);
            let (was, is) = (PartialObjectMetadata::of(original), PartialObjectMetadata::of(&object));
            for (what, expected, received) in [
                ("groupVersion", wanted, is.api_version().text()),
                ("kind", was.kind().text(), is.kind().text()),
            ] {
                if expected != received {
                    let (expected, received) = (expected.to_owned(), received.to_owned());
                    return Err(ConversionError::Kind { at, what, expected, received });
                }
            }
            same(at, was, is)?;
            restore(original, &mut object).map_err(|error| ConversionError::Metadata { at, error })?;
            all.push(object);
        }
        Ok(all)
    }

    fn results(&self, uid: &str, answer: &mut Value) -> Result<Vec<Value>, ResponseError> {
        let expected = "apiextensions.k8s.io/v1, Kind=ConversionReview";
        // Reviews of v1beta1 never had to say what they are or whom they answer.
        let strict = self.review == "v1";
        if strict && named(answer) != expected {
            return Err(ResponseError::Review { expected, found: named(answer) });
        }
        let response = ConversionReview::of(answer).response();
        if !response.as_value().is_object() {
            return Err(ResponseError::Missing);
        }
        if strict && response.uid() != uid {
            let found = response.uid().text().to_owned();
            return Err(ResponseError::Uid { expected: uid.to_owned(), found });
        }
        let result = response.result();
        if result.status() != "Success" {
            return Err(match result.message().text() {
                "" => ResponseError::Status(result.status().text().to_owned()),
                message => ResponseError::Refused(message.to_owned()),
            });
        }
        let mut review = ConversionReview::edit(answer);
        Ok(review.response().converted_objects().list_mut().map(std::mem::take).unwrap_or_default())
    }
}

/// What an object is: `example.com/v1, Kind=Boat`.
pub fn named(object: &Value) -> String {
    let object = PartialObjectMetadata::of(object);
    let version = object.api_version().text();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    format!("{group}/{version}, Kind={}", object.kind().text())
}

/// A converted object is still the same one.
fn same(
    at: Option<usize>,
    original: View<'_, PartialObjectMetadata>,
    object: View<'_, PartialObjectMetadata>,
) -> Result<(), ConversionError> {
    let (original, object) = (original.metadata(), object.metadata());
    for (field, was, is) in [
        ("name", original.name(), object.name()),
        ("namespace", original.namespace(), object.namespace()),
        ("UID", original.uid(), object.uid()),
    ] {
        let (was, is) = (was.text(), is.text());
        if was != is {
            return Err(ConversionError::Identity { at, field, was: was.to_owned(), is: is.to_owned() });
        }
    }
    Ok(())
}

/// Of the metadata a webhook changes labels and annotations, nothing else.
fn restore(original: &Value, object: &mut Value) -> Result<(), MetadataError> {
    let answered = match PartialObjectMetadata::edit(object).metadata().tree().map(Value::take) {
        None => return Err(MetadataError::Missing),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(MetadataError::Type(go(&other))),
    };
    let original = PartialObjectMetadata::of(original).metadata().as_value();
    let mut restored = original.as_object().cloned().unwrap_or_default();
    for (field, path, check) in [
        ("labels", "metadata.labels", meta::labels as fn(&Texts<'_>)),
        ("annotations", "metadata.annotation", meta::annotations as fn(&Texts<'_>)),
    ] {
        let new = match answered.get(field) {
            None | Some(Value::Null) => {
                restored.remove(field);
                continue;
            }
            Some(Value::Object(entries)) => entries,
            Some(other) => return Err(MetadataError::FieldType { field, found: go(other) }),
        };
        if let Some((key, value)) = new.iter().find(|(_, value)| !value.is_string()) {
            return Err(MetadataError::ValueType { field, key: key.clone(), found: go(value) });
        }
        if restored.get(field).and_then(Value::as_object) != Some(new) {
            checked(new, path, check)?;
        }
        restored.insert(field.to_owned(), Value::Object(new.clone()));
    }
    PartialObjectMetadata::edit(object).metadata().put(Value::Object(restored));
    Ok(())
}

/// A map of texts under validation.
type Texts<'a> = Field<'a, coracle_fields::Map<coracle_fields::Text>>;

/// What others brought must follow the rules that all follow.
fn checked(entries: &Map<String, Value>, path: &str, check: fn(&Texts<'_>)) -> Result<(), MetadataError> {
    let entries = Value::Object(entries.clone());
    let mut errors: Vec<FieldError> = Vec::new();
    walk(&entries, &mut errors, |root| check(&root.below(path).with(root.value).as_type()));
    if errors.is_empty() { Ok(()) } else { Err(MetadataError::Invalid(errors)) }
}

/// What Go calls the type of a value.
fn go(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What watchers of a version have seen converted lately: an event is converted once for all of them.
#[derive(Debug, Default)]
pub struct Memo {
    objects: HashMap<(String, Revision), Arc<Object>>,
    order: VecDeque<(String, Revision)>,
}

impl Memo {
    /// An object as it was converted, if that is known still.
    pub fn find(&self, object: &Object) -> Option<Arc<Object>> {
        self.objects.get(&key(object)).cloned()
    }

    /// Remembers a converted object.
    pub fn keep(&mut self, object: Arc<Object>) {
        let key = key(&object);
        if self.objects.insert(key.clone(), object).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > REMEMBERED {
            self.order.pop_front().map(|oldest| self.objects.remove(&oldest));
        }
    }
}

fn key(object: &Object) -> (String, Revision) {
    (object_key(&object.meta.namespace, &object.meta.name), object.revision)
}

#[cfg(test)]
mod tests;
