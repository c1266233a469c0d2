//! `/token`: short-lived tokens for service accounts.

use crate::run_action::{Action, Call};
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_fields::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestStatus};
use coracle_fields::core::v1::Pod;
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Made, Schema as _, View, make};
use coracle_pki::service_account::{Bound, CLOCK_SKEW, Claims, Keys, Kubernetes};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};
use std::sync::Arc;

/// Shortest and longest life of a token, and the life of one that does not ask, in seconds.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
const USUAL: i64 = 3600;

/// The action.
pub struct Token {
    /// Signs.
    pub keys: Arc<Keys>,
}

#[async_trait]
impl Action for Token {
    fn set_defaults(&self, request: &mut Value) {
        TokenRequest::edit(request).spec().expiration_seconds().default(USUAL);
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let account = call.api.objects.get(call.kind, call.namespace, call.name).await?;
        let mut request = Made::<TokenRequest>::new(call.body.clone());
        check_account(&call, request.view(), &account.meta.uid)?;
        let seconds = match request.view().spec().expiration_seconds().int() {
            None | Some(0) => USUAL,
            Some(n) if n < SHORTEST => {
                let why = "may not specify a duration less than 10 minutes";
                return Err(refuse(call.name, FieldError::invalid("spec.expirationSeconds", &json!(n), why)));
            }
            Some(n) if n > LONGEST => {
                let why = "may not specify a duration larger than 2^32 seconds";
                return Err(refuse(call.name, FieldError::invalid("spec.expirationSeconds", &json!(n), why)));
            }
            Some(n) => n,
        };
        request.edit().spec().expiration_seconds().set(seconds);
        if request.view().spec().audiences().is_empty() {
            request.edit().spec().audiences().set(&self.keys.issuers);
        }
        let spec = request.view().spec();
        let audiences: Vec<String> = spec.audiences().texts().map(str::to_owned).collect();
        let (pod, secret, node) = bound_to(&call, spec.bound_object_ref(), seconds)?;
        let now = jiff::Timestamp::now().as_second();
        let claims = Claims {
            aud: audiences,
            exp: now + seconds,
            iat: now,
            nbf: now - CLOCK_SKEW,
            iss: self.keys.issuer().into(),
            jti: uuid::Uuid::new_v4().to_string(),
            sub: format!("system:serviceaccount:{}:{}", call.namespace, call.name),
            kubernetes: Kubernetes {
                namespace: call.namespace.into(),
                serviceaccount: Bound { name: call.name.into(), uid: account.meta.uid.clone() },
                pod,
                secret,
                node,
            },
        };
        let token = self.keys.sign(&claims).map_err(ApiError::internal)?;
        let expires = jiff::Timestamp::from_second(claims.exp).map_err(ApiError::internal)?;
        let mut root = request.edit();
        root.kind().set("TokenRequest");
        root.api_version().set("authentication.k8s.io/v1");
        root.metadata().set(make!(part ObjectMeta {
            name: call.name,
            namespace: call.namespace,
            uid: account.meta.uid.as_str(),
            creation_timestamp: crate::metadata::now(),
        }));
        root.status().set(make!(part TokenRequestStatus {
            token,
            expiration_timestamp: expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }));
        Ok(Reply::Value(201, request.into_value()))
    }
}

/// What a request says about its service account is true.
fn check_account(call: &Call<'_>, request: View<'_, TokenRequest>, uid: &str) -> Result<(), ApiError> {
    let meta = request.metadata();
    let (name, namespace) = (meta.name().text(), meta.namespace().text());
    if !namespace.is_empty() && namespace != call.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !name.is_empty() && name != call.name {
        let why = "must match the service account name if specified";
        return Err(refuse(call.name, FieldError::invalid("metadata.name", &json!(name), why)));
    }
    match meta.uid().filled() {
        Some(said) if said != uid => Err(ApiError::conflict(
            "authentication.k8s.io",
            "TokenRequest",
            call.name,
            format!(
                "the UID in the token request ({said}) does not match the UID of the service account ({uid})"
            ),
        )),
        _ => Ok(()),
    }
}

fn refuse(name: &str, cause: FieldError) -> ApiError {
    ApiError::invalid("authentication.k8s.io", "TokenRequest", name, vec![cause])
}

type Binding = (Option<Bound>, Option<Bound>, Option<Bound>);

/// The object a token is bound to; it must exist, with the uid that was named.
fn bound_to(
    call: &Call<'_>,
    reference: View<'_, BoundObjectReference>,
    _seconds: i64,
) -> Result<Binding, ApiError> {
    if !reference.is_set() {
        return Ok((None, None, None));
    }
    let name = reference.name().text();
    let find = |plural: &str, namespace: &str| {
        let kind = call.api.objects.registry.resource("", "v1", plural).ok_or_else(ApiError::no_such_path)?;
        let object = call.api.objects.cached(&kind, namespace, name)?;
        match reference.uid().filled() {
            Some(uid) if uid != object.meta.uid => Err(ApiError::conflict(
                "",
                plural,
                name,
                format!(
                    "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
                ),
            )),
            _ => Ok(object),
        }
    };
    let bound = |object: &coracle_kinds::object::Object| Bound {
        name: object.meta.name.clone(),
        uid: object.meta.uid.clone(),
    };
    match reference.kind().get() {
        Some("Pod") => {
            let pod = find("pods", call.namespace)?;
            let doc = pod.doc();
            let spec = doc.view::<Pod>().spec();
            if spec.service_account_name() != call.name {
                let why = format!("pod \"{name}\" uses another service account");
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount \"{}\" to {why}",
                    call.name
                )));
            }
            let node = spec.node_name().get().and_then(|node| {
                let kind = call.api.objects.registry.resource("", "v1", "nodes")?;
                call.api.objects.cached(&kind, "", node).ok()
            });
            Ok((Some(bound(&pod)), None, node.map(|n| bound(&n))))
        }
        Some("Secret") => Ok((None, Some(bound(&*find("secrets", call.namespace)?)), None)),
        Some("Node") => Ok((None, None, Some(bound(&*find("nodes", "")?)))),
        other => Err(ApiError::bad_request(format!(
            "cannot bind token to object of type {}",
            other.unwrap_or("<empty>")
        ))),
    }
}
