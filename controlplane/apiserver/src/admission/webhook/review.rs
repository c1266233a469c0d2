//! AdmissionReview: builds the request to a webhook and reads its response.

use crate::admission::versioned::VersionedRequest;
use crate::admission::{Attributes, Operation};
use crate::decode;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_fields::admissionregistration::v1::MutatingWebhook;
use coracle_fields::authentication::v1::UserInfo;
use coracle_fields::meta::{PartialObjectMetadata, Status};
use coracle_fields::{Schema as _, View, make};
use coracle_kinds::registry::equivalent::Named;
use coracle_proto::decode::JsonError;
use coracle_proto::status::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};

/// What a webhook decided.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Whether the request may go on.
    pub allowed: bool,
    /// What it says about a refusal.
    status: Value,
    /// A JSON patch.
    pub patch: Option<Value>,
    /// Sentences for the client.
    pub warnings: Vec<String>,
    /// Notes for the audit log.
    pub audit_annotations: Vec<(String, String)>,
}

impl Verdict {
    /// The refusal as the client sees it.
    pub fn refusal(&self, webhook: &str) -> ApiError {
        let status = Status::of(&self.status);
        let message = match (status.message().filled(), status.reason().filled()) {
            (Some(message), _) => format!("admission webhook {webhook:?} denied the request: {message}"),
            (None, Some(reason)) => format!("admission webhook {webhook:?} denied the request: {reason}"),
            (None, None) => format!("admission webhook {webhook:?} denied the request without explanation"),
        };
        let code = status.code().int().and_then(|code| u16::try_from(code).ok());
        let code = code.filter(|code| (400..600).contains(code)).unwrap_or(403);
        let reason = match code {
            400 => "BadRequest",
            404 => "NotFound",
            409 => "Conflict",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            _ => "Forbidden",
        };
        ApiError::new(code, reason, message)
    }
}

/// The review of a request in the form that the webhook knows, with its uid.
pub fn request(
    hook: View<'_, MutatingWebhook>,
    at: &Attributes<'_>,
    form: &VersionedRequest<'_>,
) -> (String, Value) {
    let uid = uuid::Uuid::new_v4().to_string();
    let mut versions = hook.admission_review_versions().texts();
    let version = versions.find(|version| matches!(*version, "v1" | "v1beta1")).unwrap_or("v1");
    let kind = |name: &Named| {
        let kind = at.object_kind(name);
        json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
    };
    let resource =
        |name: &Named| json!({"group": name.group, "version": name.version, "resource": name.plural});
    let (name, asked, own) = (form.name, Named::of(at.kind), at.object_kind(form.name));
    let user = make!(part UserInfo {
        username: &at.user.name,
        groups: &at.user.groups,
        uid: Some(&at.user.uid).filter(|uid| !uid.is_empty()),
        extra: Some(&at.user.extra).filter(|extra| !extra.is_empty()),
    });
    let shown = |object: &Value| {
        let mut object = object.clone();
        if object.is_object() {
            let mut root = PartialObjectMetadata::edit(&mut object);
            root.kind().set(&own.kind);
            root.api_version().set(own.api_version());
        }
        object
    };
    let options = match at.operation {
        Operation::Create => json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        Operation::Update => json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}),
        Operation::Delete => json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}),
        Operation::Connect => Value::Null,
    };
    let mut request = json!({
        "uid": uid, "kind": kind(name), "resource": resource(name),
        "requestKind": kind(&asked), "requestResource": resource(&asked),
        "operation": at.operation.as_str(), "userInfo": user, "dryRun": at.dry_run,
        "object": shown(&form.object), "oldObject": shown(&form.old),
        "options": options,
    });
    for (field, text) in [
        ("name", at.name),
        ("namespace", at.namespace),
        ("subResource", at.subresource),
        ("requestSubResource", at.subresource),
    ] {
        if !text.is_empty() {
            request[field] = json!(text);
        }
    }
    let body = json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request});
    (uid, body)
}

/// Why an answer cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It is not an answer to a review.
    #[error("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got none")]
    NoResponse,
    /// It answers another review.
    #[error("expected response.uid={expected:?}, got {found}")]
    Uid {
        /// The UID of the review.
        expected: String,
        /// The UID in the answer, as JSON.
        found: String,
    },
    /// Its patch is no JSON patch.
    #[error("webhook returned response.patchType {0}, expected \"JSONPatch\"")]
    PatchType(String),
    /// Its patch is not base64.
    #[error("couldn't decode patch: {0}")]
    PatchEncoding(base64::DecodeError),
    /// Its patch is not JSON.
    #[error("couldn't decode patch: {0}")]
    Patch(JsonError),
    /// Its patch is JSON, but not a list of operations.
    #[error("received undecodable patch in webhook response: it is not a list of operations")]
    PatchShape,
}

/// The response of a review; values of other types than these should have are not a reason to ignore the others.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: Value,
    allowed: Value,
    status: Value,
    patch: Value,
    patch_type: Value,
    warnings: Value,
    audit_annotations: Value,
}

/// What an answer says.
pub fn verdict(answer: &Value, uid: &str) -> Result<Verdict, ReviewError> {
    // Serde would read a list as the fields in order.
    let response = answer.get("response").filter(|response| response.is_object());
    let response = response.and_then(|response| Response::deserialize(response).ok());
    let response = response.ok_or(ReviewError::NoResponse)?;
    if response.uid != uid {
        return Err(ReviewError::Uid { expected: uid.to_owned(), found: response.uid.to_string() });
    }
    let allowed = response.allowed == true;
    let patch = match response.patch.as_str().filter(|patch| !patch.is_empty()) {
        None => None,
        Some(_) if response.patch_type != "JSONPatch" => {
            return Err(ReviewError::PatchType(response.patch_type.to_string()));
        }
        Some(patch) => {
            let bytes = STANDARD.decode(patch).map_err(ReviewError::PatchEncoding)?;
            // Whatever is wrong with its patch, a webhook that denies the request has been understood.
            if allowed { patch_operations(&bytes)? } else { None }
        }
    };
    let warnings = response.warnings.as_array().into_iter().flatten();
    let audit_annotations = response.audit_annotations.as_object().into_iter().flatten();
    let audit_annotations =
        audit_annotations.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())));
    Ok(Verdict {
        allowed,
        status: response.status,
        patch,
        warnings: warnings.filter_map(|w| w.as_str().map(str::to_owned)).collect(),
        audit_annotations: audit_annotations.collect(),
    })
}

/// The operations of a patch, `None` for `null`. Whether they are known and fit the object is seen when they are applied.
fn patch_operations(bytes: &[u8]) -> Result<Option<Value>, ReviewError> {
    match decode::webhook_json(bytes).map_err(ReviewError::Patch)? {
        Value::Null => Ok(None),
        Value::Array(operations) if operations.iter().all(Value::is_object) => {
            Ok(Some(Value::Array(operations)))
        }
        _ => Err(ReviewError::PatchShape),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn answers_are_read() {
        let patch = STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#);
        let answer = json!({"response": {"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["w"]}});
        let read = verdict(&answer, "u").unwrap();
        assert!(read.allowed && read.patch.is_some() && read.warnings == ["w"]);
        assert!(verdict(&answer, "other").is_err());
        for list in [json!({"response": ["u", true]}), json!([{"uid": "u", "allowed": true}])] {
            assert!(matches!(verdict(&list, "u"), Err(ReviewError::NoResponse)), "{list}");
        }
        assert!(verdict(&json!({}), "u").is_err());
        // The failure policy decides about a patch that cannot be read, but not about one that comes with a denial.
        for broken in ["{}", "[1]", "[", "1"] {
            let answer = |allowed: bool| json!({"response": {"uid": "u", "allowed": allowed, "patchType": "JSONPatch", "patch": STANDARD.encode(broken)}});
            let error = verdict(&answer(true), "u").unwrap_err();
            assert!(matches!(error, ReviewError::Patch(_) | ReviewError::PatchShape), "{broken}: {error}");
            assert!(!verdict(&answer(false), "u").unwrap().allowed, "{broken}");
        }
        let refused = verdict(
            &json!({"response": {"uid": "u", "allowed": false, "status": {"message": "no", "code": 422}}}),
            "u",
        )
        .unwrap();
        let error = refused.refusal("w.example.com");
        assert_eq!(
            (error.code, error.message.as_str()),
            (422, "admission webhook \"w.example.com\" denied the request: no")
        );
        let silent = verdict(&json!({"response": {"uid": "u"}}), "u").unwrap();
        assert!(silent.refusal("w").message.ends_with("without explanation"));
    }
}
