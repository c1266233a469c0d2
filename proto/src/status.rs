//! API errors as `metav1.Status`: code, reason, message and causes, as every Kubernetes client expects them.

use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashSet;

/// One cause of a `422 Invalid`: a field path, a machine-readable reason and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Upstream's cause type, such as `FieldValueRequired`.
    pub reason: &'static str,
    /// The text without the field, such as `Required value`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path, such as `spec.containers[0].image`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl FieldError {
    /// `field: Required value` with an optional detail.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, with_detail("Required value".into(), detail))
    }

    /// `field: Invalid value: <value>: detail`; the value is printed as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, with_detail(format!("Invalid value: {value}"), detail))
    }

    /// `field: Unsupported value: <value>: supported values: "a", "b"`.
    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let detail =
            if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::new(
            "FieldValueNotSupported",
            field,
            with_detail(format!("Unsupported value: {value}"), &detail),
        )
    }

    /// `field: Forbidden: detail`.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, with_detail("Forbidden".into(), detail))
    }

    /// `field: Duplicate value: <value>`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
    }

    /// `field: Not found: <value>`.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {value}"))
    }

    /// `field: Too long: may not be more than <max> bytes`.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {max} bytes"))
    }

    /// A cause with a reason of the caller's choosing.
    pub fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, field: field.into(), message }
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.field, self.message)
        }
    }
}

/// Errors as one text, as upstream joins them: one stands alone, several stand in brackets, the same text stands once.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = HashSet::new();
    let texts = errors.iter().map(ToString::to_string);
    let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    match &texts[..] {
        [] => "<nil>".to_owned(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn with_detail(text: String, detail: &str) -> String {
    if detail.is_empty() { text } else { format!("{text}: {detail}") }
}

/// Which object an error is about; `kind` holds the resource name, as upstream does in most of its errors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Details {
    /// Object name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource or kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Object uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Causes of an `Invalid`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<FieldError>,
    /// Seconds after which a retry makes sense.
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero")]
    pub retry_after: u32,
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

/// The wire form of an error.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta<'a>,
    status: &'static str,
    message: &'a str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

#[derive(Serialize)]
struct ListMeta<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<&'a str>,
}

/// An API failure: what the client sees as `metav1.Status`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Upstream's reason, such as `NotFound`.
    pub reason: &'static str,
    /// The sentence a person reads.
    pub message: String,
    /// What it is about.
    pub details: Box<Details>,
    /// A fresh continue token, for `410 Expired` lists.
    pub continue_token: Option<String>,
}

impl ApiError {
    /// Any code and reason.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Box::default(), continue_token: None }
    }

    /// Says which object the error is about.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details.group = group.into();
        self.details.kind = kind.into();
        self.details.name = name.into();
        self
    }

    /// 400 `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401 `Unauthorized`.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 `Forbidden` for an object.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl std::fmt::Display) -> Self {
        let what = qualified(group, resource);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 404 for an object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(group, resource));
        Self::new(404, "NotFound", message).about(group, resource, name)
    }

    /// 404 for a path the server does not serve.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405 for a verb that the resource does not take.
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 406 when no offered media type can be produced.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// 409 `AlreadyExists`.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::new(409, "AlreadyExists", message).about(group, resource, name)
    }

    /// 409 `Conflict`.
    pub fn conflict(group: &str, resource: &str, name: &str, why: impl std::fmt::Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, resource));
        Self::new(409, "Conflict", message).about(group, resource, name)
    }

    /// 409 because the object changed since the client read it.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, why)
    }

    /// 410 `Expired`: the resource version is no longer held.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413 for a body over the limit.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415 for a body nobody can decode.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422 with its causes; `kind` is the Kind, not the resource.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<FieldError>) -> Self {
        let list = aggregate(&causes);
        let mut error =
            Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {list}", qualified(group, kind)))
                .about(group, kind, name);
        error.details.causes = causes;
        error
    }

    /// 429 with a hint when to come back.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        let mut error = Self::new(429, "TooManyRequests", message);
        error.details.retry_after = retry_after;
        error
    }

    /// 500 for what the client cannot help.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {why}"))
    }

    /// 503 while a part of the server is away.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504 when the server gave up waiting.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message)
    }

    /// Whether the object was missing.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether a compare-and-swap lost.
    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// Whether the name was taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// Whether a create failed because the namespace is being deleted, so that a retry cannot succeed.
    pub fn is_namespace_terminating(&self) -> bool {
        self.code == 403 && self.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// The wire form.
    pub fn to_json(&self) -> Value {
        json!(Status {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta { continue_token: self.continue_token.as_deref() },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: Some(&*self.details).filter(|details| **details != Details::default()),
            code: self.code,
        })
    }
}

/// `resource.group`, or just the resource in the core group.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_comes_last() {
        let text = ApiError::not_found("apps", "deployments", "web").to_json().to_string();
        assert_eq!(
            text,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"web\" not found","reason":"NotFound","details":{"name":"web","group":"apps","kind":"deployments"},"code":404}"#
        );
    }

    #[test]
    fn one_cause_is_plain_and_two_are_bracketed() {
        let a = FieldError::required("spec.containers[0].image", "");
        let b = FieldError::unsupported("spec.restartPolicy", &json!("Often"), &["Always", "Never"]);
        let one = ApiError::invalid("", "Pod", "web", vec![a.clone()]);
        assert_eq!(one.message, "Pod \"web\" is invalid: spec.containers[0].image: Required value");
        let twice = ApiError::invalid("", "Pod", "web", vec![a.clone(), a.clone()]);
        assert_eq!(
            (twice.message, twice.details.causes.len()),
            (one.message, 2),
            "the same text stands once"
        );
        let two = ApiError::invalid("", "Pod", "web", vec![a, b]);
        assert_eq!(
            two.message,
            "Pod \"web\" is invalid: [spec.containers[0].image: Required value, \
             spec.restartPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"Never\"]"
        );
    }
}
