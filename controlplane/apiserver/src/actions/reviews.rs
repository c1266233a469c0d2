//! SubjectAccessReview and its variants, SelfSubjectReview and TokenReview. They use the authenticators and authorizers
//! of the handler chain, so the results agree with it.

use crate::authn;
use crate::authz::{Authorizer, Decision, Rules};
use crate::request_info::RequestInfo;
use crate::run_action::{Action, Actions, Call};
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_client::user::User;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};
use std::sync::Arc;

/// Which review.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Review {
    SelfAccess,
    Access,
    LocalAccess,
    SelfRules,
    SelfSubject,
    Token,
}

struct Reviewer {
    review: Review,
    authn: Arc<authn::Union>,
    authz: Arc<dyn Authorizer>,
}

/// Registers all reviews; they ask the authenticators and authorizers of the handler chain.
pub fn register(authn: &Arc<authn::Union>, authz: &Arc<dyn Authorizer>, actions: &mut Actions) {
    let authorization = "authorization.k8s.io";
    let authentication = "authentication.k8s.io";
    for (group, resource, review) in [
        (authorization, "selfsubjectaccessreviews", Review::SelfAccess),
        (authorization, "subjectaccessreviews", Review::Access),
        (authorization, "localsubjectaccessreviews", Review::LocalAccess),
        (authorization, "selfsubjectrulesreviews", Review::SelfRules),
        (authentication, "selfsubjectreviews", Review::SelfSubject),
        (authentication, "tokenreviews", Review::Token),
    ] {
        let reviewer = Reviewer { review, authn: authn.clone(), authz: authz.clone() };
        actions.add(group, resource, "", Arc::new(reviewer));
    }
}

#[async_trait]
impl Action for Reviewer {
    fn skips_admission(&self) -> bool {
        true
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let mut review = call.body;
        let spec = review["spec"].clone();
        review["kind"] = json!(call.kind.kind);
        review["apiVersion"] = json!(call.kind.api_version());
        if !review["metadata"].is_object() {
            review["metadata"] = json!({});
        }
        review["status"] = match self.review {
            Review::SelfAccess => {
                access(self.authz.as_ref(), call.user, &spec, "SelfSubjectAccessReview").await?
            }
            Review::Access => {
                access(self.authz.as_ref(), &subject(&spec)?, &spec, "SubjectAccessReview").await?
            }
            Review::LocalAccess => {
                let asked = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
                if asked != call.namespace {
                    return Err(ApiError::bad_request(format!(
                        "spec.resourceAttributes.namespace must match namespace: {}",
                        call.namespace
                    )));
                }
                access(self.authz.as_ref(), &subject(&spec)?, &spec, "LocalSubjectAccessReview").await?
            }
            Review::SelfRules => {
                let namespace = spec["namespace"].as_str().unwrap_or_default();
                if namespace.is_empty() {
                    return Err(ApiError::bad_request("no namespace on request"));
                }
                rules(&self.authz.rules(call.user, namespace))
            }
            Review::SelfSubject => json!({"userInfo": call.user.info()}),
            Review::Token => self.token(&spec).await?,
        };
        Ok(Reply::Value(201, review))
    }
}

impl Reviewer {
    async fn token(&self, spec: &Value) -> Result<Value, ApiError> {
        let token = spec["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences: Vec<String> = spec["audiences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|a| a.as_str().map(str::to_owned))
            .collect();
        Ok(match self.authn.token(token, &audiences).await {
            Ok(known) => {
                let mut status = json!({"authenticated": true, "user": known.user.info()});
                if !audiences.is_empty() {
                    let shared: Vec<_> = known.audiences.iter().filter(|a| audiences.contains(a)).collect();
                    status["audiences"] = json!(shared);
                }
                status
            }
            Err(why) => json!({"authenticated": false, "user": {}, "error": why.to_string()}),
        })
    }
}

fn subject(spec: &Value) -> Result<User, ApiError> {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let (name, groups) = (spec["user"].as_str().unwrap_or_default(), list(&spec["groups"]));
    if name.is_empty() && groups.is_empty() {
        let cause =
            FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified");
        return Err(ApiError::invalid("authorization.k8s.io", "SubjectAccessReview", "", vec![cause]));
    }
    let extra = spec["extra"].as_object().into_iter().flatten();
    let extra = extra.map(|(k, v)| (k.to_lowercase(), list(v))).collect();
    Ok(User { name: name.into(), groups, uid: spec["uid"].as_str().unwrap_or_default().into(), extra })
}

async fn access(authz: &dyn Authorizer, user: &User, spec: &Value, kind: &str) -> Result<Value, ApiError> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verb = |value: &Value| Verb::from(value.as_str().unwrap_or_default());
    let request = match (resource.is_null(), path.is_null()) {
        (false, true) => RequestInfo {
            is_resource: true,
            verb: verb(&resource["verb"]),
            group: text(&resource["group"]),
            version: text(&resource["version"]),
            namespace: text(&resource["namespace"]),
            resource: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            name: text(&resource["name"]),
            selected: selected(&resource["fieldSelector"]),
            ..RequestInfo::default()
        },
        (true, false) => {
            RequestInfo { verb: verb(&path["verb"]), path: text(&path["path"]), ..RequestInfo::default() }
        }
        (true, true) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let cause = FieldError::invalid("spec.resourceAttributes", resource, why);
            return Err(ApiError::invalid("authorization.k8s.io", kind, "", vec![cause]));
        }
        (false, false) => {
            let why = "cannot be specified in combination with resourceAttributes";
            let cause = FieldError::invalid("spec.nonResourceAttributes", path, why);
            return Err(ApiError::invalid("authorization.k8s.io", kind, "", vec![cause]));
        }
    };
    Ok(match authz.authorize(user, &request).await {
        Decision::Allow => json!({"allowed": true}),
        Decision::Deny(why) => json!({"allowed": false, "denied": true, "reason": why}),
        Decision::NoOpinion(why) if why.is_empty() => json!({"allowed": false}),
        Decision::NoOpinion(why) => json!({"allowed": false, "reason": why}),
    })
}

/// The terms of a review's field selector that ask for one value.
fn selected(selector: &Value) -> Vec<(String, String)> {
    let terms = selector["requirements"].as_array().into_iter().flatten();
    let terms =
        terms.filter(|t| t["operator"] == "In" && t["values"].as_array().is_some_and(|v| v.len() == 1));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    terms.map(|t| (text(&t["key"]), text(&t["values"][0]))).collect()
}

fn rules(rules: &Rules) -> Value {
    json!({
        "resourceRules": rules.resources, "nonResourceRules": rules.paths,
        "incomplete": rules.incomplete, "evaluationError": "",
    })
}
