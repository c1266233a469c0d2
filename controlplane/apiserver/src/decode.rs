//! Decodes request bodies: JSON, YAML or protobuf by `Content-Type`, checked against the type that the path expects.

use coracle_client::options::FieldValidation;
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::decode::{self, DecodeError, JsonError, Meta, Tree, Yaml};
use coracle_proto::protobuf;
use coracle_proto::schema::{self, Type};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The type a body must have.
#[derive(Debug, Clone)]
pub struct Expected {
    group: String,
    version: String,
    kind: String,
}

/// Why the kind of an object is not the expected one.
#[derive(Debug, thiserror::Error)]
enum KindMismatch {
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )]
    Unknown { kind: String, api_version: String },
    #[error("converting ({found}) to ({expected}): unknown conversion")]
    Other { found: String, expected: String },
}

/// What a strict reader has against a body.
#[derive(Debug, Default)]
struct StrictErrors {
    /// Repeated keys of YAML, which are one error together.
    yaml: Option<String>,
    /// The same, a sentence for each.
    repeated: Vec<String>,
    /// Unknown and repeated fields.
    fields: Vec<String>,
}

impl StrictErrors {
    fn is_empty(&self) -> bool {
        self.yaml.is_none() && self.fields.is_empty()
    }

    fn error(&self) -> String {
        let all: Vec<String> = self.yaml.iter().chain(&self.fields).cloned().collect();
        strict_error(&all)
    }

    /// A sentence for each, for the `Warning` header.
    fn warnings(self) -> Vec<String> {
        self.repeated.into_iter().chain(self.fields).collect()
    }
}

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
    /// By group, version and kind.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// The kind itself.
    pub fn of(kind: &Kind) -> Self {
        Self::new(&kind.group, &kind.version, &kind.kind)
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// 400 for a body whose kind is known.
    fn unfit(&self, meta: &Meta, why: &dyn std::fmt::Display) -> ApiError {
        let (_, version) = meta.group_version();
        ApiError::bad_request(format!(
            "{} in version {version:?} cannot be handled as a {}: {why}",
            meta.kind, self.kind
        ))
    }

    /// 400 for a body whose kind cannot be told.
    fn unrecognized(&self, why: &dyn std::fmt::Display, bytes: &[u8]) -> ApiError {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            self.kind,
            summary(bytes)
        ))
    }

    /// Why an object of this kind and version cannot be one of ours.
    fn mismatch(&self, meta: &Meta) -> Option<KindMismatch> {
        let (group, version) = meta.group_version();
        if (group, version, meta.kind.as_str()) == (&*self.group, &*self.version, &*self.kind) {
            return None;
        }
        let found = schema::kind_type(group, version, &meta.kind);
        let Some(found) = found.filter(|t| t.package.is_some_and(|p| p.group == group)) else {
            let (kind, api_version) = (meta.kind.clone(), meta.api_version.clone());
            return Some(KindMismatch::Unknown { kind, api_version });
        };
        let internal =
            if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or("") };
        let expected = format!("{internal}.{}", self.kind);
        Some(KindMismatch::Other { found: found.go_name(), expected })
    }

    /// Fills in what the body leaves out, and refuses another kind or version.
    fn check(&self, mut meta: Meta, bytes: &[u8]) -> Result<Meta, ApiError> {
        if meta.api_version.matches('/').count() > 1 {
            let why = format!("unexpected GroupVersion string: {}", meta.api_version);
            return Err(self.unrecognized(&why, bytes));
        }
        if meta.kind.is_empty() {
            meta.kind.clone_from(&self.kind);
        }
        if meta.api_version.is_empty() {
            meta.api_version = self.api_version();
        }
        let Some(why) = self.mismatch(&meta) else { return Ok(meta) };
        let same_kind = meta.group_version().0 == self.group && meta.kind == self.kind;
        if same_kind && matches!(why, KindMismatch::Other { .. }) {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                meta.api_version,
                self.api_version()
            )));
        }
        Err(self.unfit(&meta, &why))
    }

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
        object["kind"] = Value::from(meta.kind.clone());
        object["apiVersion"] = Value::from(meta.api_version.clone());
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
pub fn applied(_kind: &Kind, bytes: &[u8], validation: FieldValidation) -> Result<Decoded, ApiError> {
    let yaml = read_yaml(bytes)?;
    let strict = yaml.strict_error().map(|why| format!("error converting YAML to JSON: {why}"));
    let warnings = match (validation, strict) {
        (FieldValidation::Strict, Some(why)) => {
            return Err(ApiError::bad_request(format!("error strict decoding YAML: {why}")));
        }
        (FieldValidation::Warn, Some(_)) => yaml.duplicates,
        _ => Vec::new(),
    };
    Ok(Decoded { object: decode::plain(yaml.tree), warnings })
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
        object["kind"] = Value::from(envelope.meta.kind.clone());
        object["apiVersion"] = Value::from(envelope.meta.api_version.clone());
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

/// Reads a patched object by its type again: drops fields that the kind does not have, refuses values of a wrong type.
/// Returns sentences for the `Warning` header.
pub fn prune(kind: &Kind, object: &mut Value, validation: FieldValidation) -> Result<Vec<String>, ApiError> {
    if kind.custom.is_some() {
        let dropped = unknown(kind, object, validation);
        if validation == FieldValidation::Strict && !dropped.is_empty() {
            return Err(bad_patch(object, &strict_error(&dropped)));
        }
        return Ok(dropped);
    }
    let Some(of) = type_of(kind) else { return Ok(Vec::new()) };
    let tree = Tree::from(object.clone());
    let read = decode::read(of, tree).map_err(|e| bad_patch(object, &e.to_string()))?;
    if validation == FieldValidation::Strict && !read.strict.is_empty() {
        return Err(bad_patch(object, &strict_error(&read.strict)));
    }
    *object = read.value;
    Ok(if validation == FieldValidation::Warn { read.strict } else { Vec::new() })
}

/// Reads what a webhook made of the object that a subresource takes by its type again: whoever acts on it relies on that.
/// 500 when it does not fit, since what the client sent did.
pub fn changed(taken: &Named, object: Value) -> Result<Value, ApiError> {
    let Some(of) = schema::kind_type(&taken.group, &taken.version, &taken.kind) else { return Ok(object) };
    let unfit = |why: DecodeError| ApiError::internal(format!("{} changed by a webhook: {why}", taken.kind));
    let mut read = decode::read(of, Tree::from(object)).map_err(unfit)?.value;
    read["kind"] = Value::from(taken.kind.as_str());
    read["apiVersion"] = Value::from(taken.api_version());
    Ok(read)
}

/// Refuses a patched object that is no longer of its kind; without kind or version it still is.
pub fn same_kind(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let text = |field: &str, usual: &str| match object[field].as_str() {
        None | Some("") => usual.to_owned(),
        Some(text) => text.to_owned(),
    };
    let version = kind.api_version();
    let meta = Meta { kind: text("kind", &kind.kind), api_version: text("apiVersion", &version) };
    if kind.custom.is_some() {
        let wrong = [("kind", &meta.kind, &kind.kind), ("apiVersion", &meta.api_version, &version)];
        let Some((field, is, must)) = wrong.into_iter().find(|(_, is, must)| is != must) else {
            return Ok(());
        };
        let cause = FieldError::invalid(field, &Value::from(is.as_str()), &format!("must be {must}"));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(ApiError::invalid(&kind.group, &kind.kind, name, vec![cause]));
    }
    // Another version of the same kind is converted upstream; here nothing of it would be different.
    match Expected::of(kind).mismatch(&meta) {
        Some(why) if meta.kind != kind.kind || matches!(why, KindMismatch::Unknown { .. }) => {
            Err(bad_patch(object, &why.to_string()))
        }
        _ => Ok(()),
    }
}

/// Brings an object into the form that clients compare, whatever way it came: applied, by a controller, mutated by
/// admission.
pub fn normalize(kind: &Kind, object: &mut Value) {
    if let Some(of) = type_of(kind) {
        decode::normalize(of, object);
    }
}

/// Drops what the schema of a custom resource does not know; what a strict reader has to say about it.
pub fn unknown(kind: &Kind, object: &mut Value, validation: FieldValidation) -> Vec<String> {
    let Some(custom) = &kind.custom else { return Vec::new() };
    let dropped = coracle_kinds::registry::custom::prune::root(&custom.schema, object);
    if validation == FieldValidation::Ignore {
        return Vec::new();
    }
    dropped.into_iter().map(|path| format!("unknown field {path:?}")).collect()
}

fn type_of(kind: &Kind) -> Option<&'static Type> {
    schema::type_of(&kind.schema).or_else(|| schema::kind_type(&kind.group, &kind.version, &kind.kind))
}

fn bad_patch(object: &Value, why: &str) -> ApiError {
    let cause = FieldError::invalid("patch", &Value::from(object.to_string()), why);
    ApiError::invalid("", "", "", vec![cause])
}

/// What a strict reader refuses.
pub fn strict_error(strict: &[String]) -> String {
    format!("strict decoding error: {}", strict.join(", "))
}

/// The beginning of a body, for errors.
fn summary(bytes: &[u8]) -> String {
    const MAX: usize = 30;
    let head = &bytes[..bytes.len().min(MAX)];
    let more = if bytes.len() > MAX { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => format!("{}{more}", head.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn pod() -> Expected {
        Expected::new("", "v1", "Pod")
    }

    fn refused(content_type: &str, bytes: &[u8], validation: FieldValidation) -> ApiError {
        body(&pod(), content_type, bytes, validation).unwrap_err()
    }

    #[test]
    fn wrong_kinds_and_versions_are_named() {
        for (text, why) in [
            (
                r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#,
                "Deployment in version \"v1\" cannot be handled as a Pod: converting (v1.Deployment) to (core.Pod): \
                 unknown conversion",
            ),
            (
                r#"{"kind":"Pod","apiVersion":"v2"}"#,
                "Pod in version \"v2\" cannot be handled as a Pod: no kind \"Pod\" is registered for version \"v2\" in \
                 scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            ),
            (
                r#"{"kind":"Pod","apiVersion":"v1","spec":{"hostNetwork":"yes"}}"#,
                "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field \
                 PodSpec.spec.hostNetwork of type bool",
            ),
            (
                r#"{"kind":"Pod""#,
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse \
                 error: unexpected end of JSON input ({\"kind\":\"Pod\")",
            ),
            (
                "nonsense",
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse \
                 error: invalid character 'o' in literal null (expecting 'u') (6e6f6e73656e7365)",
            ),
        ] {
            let error = refused("application/json", text.as_bytes(), FieldValidation::Ignore);
            assert_eq!(error.code, 400);
            assert_eq!(error.message, why);
        }
        let other = Expected::new("autoscaling", "v1", "HorizontalPodAutoscaler");
        let text = br#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2"}"#;
        assert_eq!(
            body(&other, "", text, FieldValidation::Warn).unwrap_err().message,
            "the API version in the data (autoscaling/v2) does not match the expected API version (autoscaling/v1)"
        );
        assert_eq!(refused("text/plain", b"{}", FieldValidation::Warn).code, 415);
    }

    #[test]
    fn field_validation_has_three_degrees() {
        let text = br#"{"kind":"Pod","spec":{"nope":1,"nodeName":"a","nodeName":"b","containers":[]}}"#;
        let strict = refused("application/json", text, FieldValidation::Strict);
        assert_eq!(
            strict.message,
            "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.nope\", \
             duplicate field \"spec.nodeName\""
        );
        let warned = body(&pod(), "application/json", text, FieldValidation::Warn).unwrap();
        assert_eq!(warned.warnings, ["unknown field \"spec.nope\"", "duplicate field \"spec.nodeName\""]);
        assert_eq!(warned.object["spec"], json!({"nodeName": "b", "containers": []}));
        assert_eq!(
            (warned.object["kind"].as_str(), warned.object["apiVersion"].as_str()),
            (Some("Pod"), Some("v1"))
        );
        let ignored = body(&pod(), "application/json", text, FieldValidation::Ignore).unwrap();
        assert!(ignored.warnings.is_empty());
    }

    #[test]
    fn yaml_names_the_line() {
        let text = b"kind: Pod\nmetadata:\n  name: a\n  name: b\nspec:\n  nope: 1\n";
        let strict = refused("application/yaml", text, FieldValidation::Strict);
        assert_eq!(
            strict.message,
            "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: yaml: unmarshal errors:\n  line 4: \
             key \"name\" already set in map, unknown field \"spec.nope\""
        );
        let warned = body(&pod(), "application/yaml", text, FieldValidation::Warn).unwrap();
        assert_eq!(
            warned.warnings,
            ["line 4: key \"name\" already set in map", "unknown field \"spec.nope\""]
        );
        let kind = Kind::new("", "v1", "Pod", "pods");
        let error = applied(&kind, text, FieldValidation::Strict).unwrap_err();
        assert_eq!(
            error.message,
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"name\" \
             already set in map"
        );
        let applied = applied(&kind, text, FieldValidation::Ignore).unwrap();
        assert_eq!(applied.object, json!({"kind": "Pod", "metadata": {"name": "b"}, "spec": {"nope": 1}}));
        let json = br#"{"kind":"Pod","metadata":{"name":"a"}}"#;
        assert_eq!(yaml(json).unwrap()["metadata"]["name"], json!("a"));
    }

    #[test]
    fn any_body_is_shown_as_json() {
        // The envelope: its kind, then a ConfigMap with a name and one entry of data.
        let kind = [&b"\x0a\x02v1\x12\x09ConfigMap"[..]].concat();
        let object = b"\x0a\x03\x0a\x01m\x12\x06\x0a\x01k\x12\x01v";
        let mut protobuf = b"k8s\0".to_vec();
        for (tag, part) in [(0x0a, &kind[..]), (0x12, &object[..])] {
            protobuf.extend([tag, part.len() as u8]);
            protobuf.extend(part);
        }
        let whole =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}});
        for (content_type, bytes, expected) in [
            ("application/vnd.kubernetes.protobuf", &protobuf[..], Some(whole)),
            ("application/yaml; charset=utf-8", b"data: {k: v}", Some(json!({"data": {"k": "v"}}))),
            ("application/apply-patch+yaml", b"data:\n  k: v", Some(json!({"data": {"k": "v"}}))),
            ("application/json-patch+json", b"[1]", Some(json!([1]))),
            ("", b"{}", Some(json!({}))),
            ("application/json", b"", None),
            ("application/vnd.kubernetes.protobuf", b"k8s\0\x0a\xff", None),
        ] {
            assert_eq!(for_audit(content_type, bytes), expected, "{content_type}");
        }
    }

    #[test]
    fn delete_options_come_in_any_version() {
        for text in [
            r#"{"propagationPolicy":"Background"}"#,
            r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#,
            r#"{"kind":"DeleteOptions","apiVersion":"apps/v1","propagationPolicy":"Background"}"#,
        ] {
            let options = delete_options("application/json", text.as_bytes()).unwrap();
            assert_eq!(options["propagationPolicy"], json!("Background"), "{text}");
        }
        let wrong = delete_options("application/json", br#"{"kind":"Pod","apiVersion":"v1"}"#).unwrap_err();
        assert_eq!(wrong.code, 400);
    }

    #[test]
    fn patched_objects_stay_of_their_kind() {
        let kind = Kind::new("", "v1", "ConfigMap", "configmaps");
        for (object, why) in [
            (json!({"kind": "ConfigMap", "apiVersion": "v1"}), None),
            (json!({"data": {}}), None),
            (
                json!({"kind": "Secret", "apiVersion": "v1"}),
                Some("converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
            ),
            (
                json!({"kind": "Foo", "apiVersion": "v1"}),
                Some(
                    "no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                ),
            ),
            (
                json!({"kind": "ConfigMap", "apiVersion": "v9"}),
                Some(
                    "no kind \"ConfigMap\" is registered for version \"v9\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                ),
            ),
        ] {
            let said = same_kind(&kind, &object).err().map(|error| (error.code, error.message));
            let want = why.map(|why| {
                let shown = Value::from(object.to_string());
                (422, format!(" \"\" is invalid: patch: Invalid value: {shown}: {why}"))
            });
            assert_eq!(said, want, "{object}");
        }
    }

    #[test]
    fn patched_objects_are_read_again() {
        let kind = Kind::new("", "v1", "Pod", "pods");
        let mut object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "labels": null}, "spec": {"x": 1}});
        let warned = prune(&kind, &mut object, FieldValidation::Warn).unwrap();
        assert_eq!(warned, ["unknown field \"spec.x\""]);
        assert_eq!(object["metadata"], json!({"name": "a"}));
        let mut object = json!({"spec": {"x": 1}});
        let strict = prune(&kind, &mut object, FieldValidation::Strict).unwrap_err();
        assert_eq!(strict.code, 422);
        assert!(
            strict.message.ends_with("strict decoding error: unknown field \"spec.x\""),
            "{}",
            strict.message
        );
        assert_eq!(
            patch(b"{", FieldValidation::Warn).unwrap_err().message,
            "error decoding patch: unexpected end of JSON input"
        );
    }
}
