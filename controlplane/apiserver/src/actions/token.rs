//! `/token`: short-lived tokens for service accounts.

use crate::run_action::{Action, Call};
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_pki::service_account::{Bound, Claims, Keys, Kubernetes};
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
        let seconds = &mut request["spec"]["expirationSeconds"];
        if seconds.is_null() {
            *seconds = json!(USUAL);
        }
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let account = call.api.objects.get(call.kind, call.namespace, call.name).await?;
        let mut request = call.body.clone();
        let spec = &mut request["spec"];
        let seconds = match spec["expirationSeconds"].as_i64() {
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
        spec["expirationSeconds"] = json!(seconds);
        if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
            spec["audiences"] = json!(self.keys.issuers);
        }
        let audiences = spec["audiences"].as_array().into_iter().flatten();
        let audiences: Vec<String> = audiences.filter_map(|a| a.as_str().map(str::to_owned)).collect();
        let (pod, secret, node) = bound_to(&call, &spec["boundObjectRef"], seconds)?;
        let now = jiff::Timestamp::now().as_second();
        let claims = Claims {
            aud: audiences,
            exp: now + seconds,
            iat: now,
            nbf: now,
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
        request["kind"] = json!("TokenRequest");
        request["apiVersion"] = json!("authentication.k8s.io/v1");
        request["metadata"] = json!({
            "name": call.name, "namespace": call.namespace, "creationTimestamp": crate::metadata::now(),
        });
        request["status"] = json!({"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
        Ok(Reply::Value(201, request))
    }
}

fn refuse(name: &str, cause: FieldError) -> ApiError {
    ApiError::invalid("authentication.k8s.io", "TokenRequest", name, vec![cause])
}

type Binding = (Option<Bound>, Option<Bound>, Option<Bound>);

/// The object a token is bound to; it must exist, with the uid that was named.
fn bound_to(call: &Call<'_>, reference: &Value, _seconds: i64) -> Result<Binding, ApiError> {
    if reference.is_null() {
        return Ok((None, None, None));
    }
    let name = reference["name"].as_str().unwrap_or_default();
    let find = |plural: &str, namespace: &str| {
        let kind = call.api.objects.registry.resource("", "v1", plural).ok_or_else(ApiError::no_such_path)?;
        let object = call.api.objects.cached(&kind, namespace, name)?;
        match reference["uid"].as_str() {
            Some(uid) if !uid.is_empty() && uid != object.meta.uid => Err(ApiError::conflict(
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
    match reference["kind"].as_str() {
        Some("Pod") => {
            let pod = find("pods", call.namespace)?;
            let value = pod.value();
            if value["spec"]["serviceAccountName"] != call.name {
                let why = format!("pod \"{name}\" uses another service account");
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount \"{}\" to {why}",
                    call.name
                )));
            }
            let node = value["spec"]["nodeName"].as_str().and_then(|node| {
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
