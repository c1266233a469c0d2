//! Decodes request bodies: JSON, YAML or protobuf by `Content-Type`, checked against the type that the path expects.

// Why a body is not accepted.
mod error;
// The kind that a body must have.
mod expected;
// Objects that were changed since.
mod reread;

use coracle_client::options::FieldValidation;
use coracle_proto::decode::{self, DecodeError, JsonError, Meta, Tree, Yaml};
use coracle_proto::protobuf;
use coracle_proto::schema;
use coracle_proto::status::ApiError;
use error::{StrictErrors, bad_patch};
use expected::set_kind;
use serde_json::Value;

pub use error::strict_error;
pub use expected::Expected;
pub use reread::{changed, conform, normalize, patched, prune, same_kind, unknown};

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// What was read.
#[derive(Debug)]
pub struct Decoded {
    /// The object.
    pub object: Value,
    /// Sentences for the `Warning` header.
    pub warnings: Vec<String>,
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Media {
    Json,
    Yaml,
    Protobuf,
}

impl Media {
    fn of(content_type: &str) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            _ => Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
            ))),
        }
    }
}

/// A body before its type is looked at.
enum Content<'a> {
    Text(Tree),
    Protobuf(&'a [u8]),
}

impl Expected {
    /// The object of a body, and what a strict reader has to say.
    fn read(&self, media: Media, bytes: &[u8]) -> Result<(Value, StrictErrors, Meta), ApiError> {
        let (content, meta, mut strict) = self.open(media, bytes)?;
        let meta = self.check(meta, bytes)?;
        let kind = schema::kind_type(&self.group, &self.version, &self.kind);
        let mut object = match content {
            Content::Text(tree) => {
                let read = match kind {
                    Some(kind) => decode::read(kind, tree).map_err(|e| self.unfit(&meta, &e))?,
                    None => decode::read_any(tree),
                };
                strict.fields.extend(read.strict);
                read.value
            }
            Content::Protobuf(raw) => match kind {
                Some(kind) => protobuf::read(kind, raw).map_err(|e| self.unfit(&meta, &e))?,
                // Custom resources have no protobuf form.
                None => {
                    return Err(ApiError::unsupported_media_type(
                        "the body of the request was in an unknown format - accepted media types include: \
                         application/json, application/yaml",
                    ));
                }
            },
        };
        set_kind(&mut object, meta.kind.clone(), meta.api_version.clone());
        Ok((object, strict, meta))
    }

    fn open<'a>(&self, media: Media, bytes: &'a [u8]) -> Result<(Content<'a>, Meta, StrictErrors), ApiError> {
        let unread = |why: DecodeError| {
            self.unrecognized(&format!("couldn't get version/kind; json parse error: {why}"), bytes)
        };
        let (tree, strict) = match media {
            Media::Protobuf => {
                let envelope = protobuf::open(bytes).map_err(|e| self.unrecognized(&e, bytes))?;
                return Ok((Content::Protobuf(envelope.raw), envelope.meta, StrictErrors::default()));
            }
            Media::Json => (decode::from_json(bytes).map_err(unread)?, StrictErrors::default()),
            Media::Yaml => {
                let yaml = decode::from_yaml(bytes).map_err(|e| self.unrecognized(&e, bytes))?;
                let error = yaml.strict_error();
                (yaml.tree, StrictErrors { yaml: error, repeated: yaml.duplicates, fields: Vec::new() })
            }
        };
        let meta = Meta::of(&tree).map_err(unread)?;
        Ok((Content::Text(tree), meta, strict))
    }
}

/// Reads a body. 400 when it is not an object of the expected type, 415 when nobody can read it.
pub fn body(
    expected: &Expected,
    content_type: &str,
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    let (object, strict, meta) = expected.read(Media::of(content_type)?, bytes)?;
    let warnings = match validation {
        FieldValidation::Strict if !strict.is_empty() => {
            return Err(expected.unfit(&meta, &strict.error()));
        }
        FieldValidation::Warn => strict.warnings(),
        _ => Vec::new(),
    };
    Ok(Decoded { object, warnings })
}

/// Reads the configuration of a server-side apply: what the client wrote and nothing else.
pub fn applied(bytes: &[u8], validation: FieldValidation) -> Result<Decoded, ApiError> {
    let yaml = read_yaml(bytes)?;
    let strict = yaml.strict_error().map(|why| format!("error converting YAML to JSON: {why}"));
    let warnings = match (validation, strict) {
        (FieldValidation::Strict, Some(why)) => {
            return Err(ApiError::bad_request(format!("error strict decoding YAML: {why}")));
        }
        (FieldValidation::Warn, Some(_)) => yaml.duplicates,
        _ => Vec::new(),
    };
    let mut object = decode::plain(yaml.tree);
    whole_numbers(&mut object);
    Ok(Decoded { object, warnings })
}

/// Writes floats without a fraction as integers, as upstream's conversion of YAML to JSON does: `2.0` fits an integer field.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e18);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Reads the options of a delete; they come in the kind's own group and version, in that of `meta.k8s.io`, or without.
pub fn delete_options(content_type: &str, bytes: &[u8]) -> Result<Value, ApiError> {
    let media = Media::of(content_type)?;
    let mut expected = Expected::new("meta.k8s.io", "v1", "DeleteOptions");
    let (_, meta, _) = expected.open(media, bytes)?;
    if meta.kind == expected.kind && !meta.api_version.is_empty() {
        let (group, version) = meta.group_version();
        (expected.group, expected.version) = (group.to_owned(), version.to_owned());
    }
    Ok(expected.read(media, bytes)?.0)
}

/// A body as people read it, whatever it is and whoever may refuse it; `None` when it is nothing that can be read.
pub fn for_audit(content_type: &str, bytes: &[u8]) -> Option<Value> {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.ends_with("protobuf") {
        let envelope = protobuf::open(bytes).ok()?;
        let (group, version) = envelope.meta.group_version();
        let kind = schema::kind_type(group, version, &envelope.meta.kind)?;
        let mut object = protobuf::read(kind, envelope.raw).ok()?;
        set_kind(&mut object, envelope.meta.kind.clone(), envelope.meta.api_version.clone());
        return Some(object);
    }
    if media.ends_with("yaml") {
        return read_yaml(bytes).ok().map(|yaml| decode::plain(yaml.tree));
    }
    decode::from_json(bytes).ok().map(decode::plain)
}

/// JSON from a webhook. It may hold many objects, so that only its depth is limited.
pub fn webhook_json(bytes: &[u8]) -> Result<Value, JsonError> {
    decode::from_json_within(bytes, usize::MAX).map(decode::plain)
}

/// A YAML or JSON body without a type.
pub fn yaml(bytes: &[u8]) -> Result<Value, ApiError> {
    Ok(decode::plain(read_yaml(bytes)?.tree))
}

fn read_yaml(bytes: &[u8]) -> Result<Yaml, ApiError> {
    // Most clients send JSON here, which reads much faster as such; repeated keys are YAML's business.
    if let Ok(tree) = decode::from_json(bytes) {
        let read = decode::read_any(tree.clone());
        if read.strict.is_empty() {
            return Ok(Yaml { tree, duplicates: Vec::new() });
        }
    }
    decode::from_yaml(bytes).map_err(|e| {
        ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {e}"))
    })
}

/// The body of a JSON, merge or strategic patch; repeated fields are refused or reported.
pub fn patch(bytes: &[u8], validation: FieldValidation) -> Result<Decoded, ApiError> {
    let tree =
        decode::from_json(bytes).map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    let read = decode::read_any(tree);
    let warnings = match validation {
        FieldValidation::Strict if !read.strict.is_empty() => {
            return Err(bad_patch(&read.value, &strict_error(&read.strict)));
        }
        FieldValidation::Warn => read.strict,
        _ => Vec::new(),
    };
    Ok(Decoded { object: read.value, warnings })
}

#[cfg(test)]
mod tests;
