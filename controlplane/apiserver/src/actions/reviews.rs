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
use coracle_fields::authentication::v1::{
    SelfSubjectReviewStatus, TokenReview, TokenReviewSpec, TokenReviewStatus,
};
use coracle_fields::authorization::v1::{
    FieldSelectorAttributes, NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectRulesReview, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use coracle_fields::{List, Made, Schema as _, Text, View, make};
use coracle_proto::status::{ApiError, FieldError};
use coracle_validation::reviews;
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
        let status = match self.review {
            Review::SelfAccess => {
                check_selectors(&review, "SelfSubjectAccessReview")?;
                let spec = SelfSubjectAccessReview::of(&review).spec();
                let asked = (spec.resource_attributes(), spec.non_resource_attributes());
                access(self.authz.as_ref(), call.user, asked, "SelfSubjectAccessReview").await?.into_value()
            }
            Review::Access => {
                let spec = SubjectAccessReview::of(&review).spec();
                let asked = (spec.resource_attributes(), spec.non_resource_attributes());
                let user = subject(spec)?;
                check_selectors(&review, "SubjectAccessReview")?;
                access(self.authz.as_ref(), &user, asked, "SubjectAccessReview").await?.into_value()
            }
            Review::LocalAccess => {
                let spec = SubjectAccessReview::of(&review).spec();
                let asked = (spec.resource_attributes(), spec.non_resource_attributes());
                if asked.0.namespace() != call.namespace {
                    return Err(ApiError::bad_request(format!(
                        "spec.resourceAttributes.namespace must match namespace: {}",
                        call.namespace
                    )));
                }
                let user = subject(spec)?;
                check_selectors(&review, "LocalSubjectAccessReview")?;
                access(self.authz.as_ref(), &user, asked, "LocalSubjectAccessReview").await?.into_value()
            }
            Review::SelfRules => {
                let namespace = SelfSubjectRulesReview::of(&review).spec().namespace().text();
                if namespace.is_empty() {
                    return Err(ApiError::bad_request("no namespace on request"));
                }
                rules(&self.authz.rules(call.user, namespace))
            }
            Review::SelfSubject => {
                let user_info = Made::new(call.user.info());
                make!(part SelfSubjectReviewStatus { user_info }).into_value()
            }
            Review::Token => self.token(TokenReview::of(&review).spec()).await?.into_value(),
        };
        // All reviews have their status where this one has it.
        let mut root = SubjectAccessReview::edit(&mut review);
        root.kind().set(&call.kind.kind);
        root.api_version().set(call.kind.api_version());
        root.metadata().section();
        root.status().put(status);
        Ok(Reply::Value(201, review))
    }
}

impl Reviewer {
    async fn token(&self, spec: View<'_, TokenReviewSpec>) -> Result<Made<TokenReviewStatus>, ApiError> {
        let token = spec.token().text();
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences = list(spec.audiences());
        Ok(match self.authn.token(token, &audiences).await {
            Ok(known) => {
                let shared: Vec<_> = known.audiences.iter().filter(|a| audiences.contains(a)).collect();
                make!(part TokenReviewStatus {
                    authenticated: true,
                    user: Made::new(known.user.info()),
                    audiences: Some(shared).filter(|_| !audiences.is_empty()),
                })
            }
            Err(why) => {
                let mut status =
                    make!(part TokenReviewStatus { authenticated: false, error: why.to_string() });
                status.edit().user().section();
                status
            }
        })
    }
}

fn list(texts: View<'_, List<Text>>) -> Vec<String> {
    texts.items().filter_map(|text| text.get().map(str::to_owned)).collect()
}

fn subject(spec: View<'_, SubjectAccessReviewSpec>) -> Result<User, ApiError> {
    let (name, groups) = (spec.user().text(), list(spec.groups()));
    if name.is_empty() && groups.is_empty() {
        let cause =
            FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified");
        return Err(ApiError::invalid("authorization.k8s.io", "SubjectAccessReview", "", vec![cause]));
    }
    let extra = spec.extra().entries().map(|(key, values)| (key.to_lowercase(), list(values))).collect();
    Ok(User { name: name.into(), groups, uid: spec.uid().text().into(), extra })
}

/// Refuses a review that asks about selectors without sense.
fn check_selectors(review: &Value, kind: &str) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    reviews::selectors(review, &mut causes);
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("authorization.k8s.io", kind, "", causes))
}

/// What a review asks for: a resource or a path.
type Asked<'a> = (View<'a, ResourceAttributes>, View<'a, NonResourceAttributes>);

async fn access(
    authz: &dyn Authorizer,
    user: &User,
    (resource, path): Asked<'_>,
    kind: &str,
) -> Result<Made<SubjectAccessReviewStatus>, ApiError> {
    let request = match (resource.is_set(), path.is_set()) {
        (true, false) => RequestInfo {
            is_resource: true,
            verb: Verb::from(resource.verb().text()),
            group: resource.group().text().to_owned(),
            version: resource.version().text().to_owned(),
            namespace: resource.namespace().text().to_owned(),
            resource: resource.resource().text().to_owned(),
            subresource: resource.subresource().text().to_owned(),
            name: resource.name().text().to_owned(),
            selected: selected(resource.field_selector()),
            ..RequestInfo::default()
        },
        (false, true) => RequestInfo {
            verb: Verb::from(path.verb().text()),
            path: path.path().text().to_owned(),
            ..RequestInfo::default()
        },
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let cause = FieldError::invalid("spec.resourceAttributes", &resource.as_value(), why);
            return Err(ApiError::invalid("authorization.k8s.io", kind, "", vec![cause]));
        }
        (true, true) => {
            let why = "cannot be specified in combination with resourceAttributes";
            let cause = FieldError::invalid("spec.nonResourceAttributes", &path.as_value(), why);
            return Err(ApiError::invalid("authorization.k8s.io", kind, "", vec![cause]));
        }
    };
    let status = match authz.authorize(user, &request).await {
        Decision::Allow => make!(part SubjectAccessReviewStatus { allowed: true }),
        Decision::Deny(why) => {
            make!(part SubjectAccessReviewStatus { allowed: false, denied: true, reason: why })
        }
        Decision::NoOpinion(why) => {
            let reason = Some(why).filter(|why| !why.is_empty());
            make!(part SubjectAccessReviewStatus { allowed: false, reason })
        }
        Decision::Contradiction(why) => {
            make!(part SubjectAccessReviewStatus { allowed: false, denied: true, evaluation_error: why })
        }
        Decision::Failed(why) => {
            make!(part SubjectAccessReviewStatus { allowed: false, evaluation_error: why })
        }
    };
    Ok(status)
}

/// The terms of a review's field selector that ask for one value.
fn selected(selector: View<'_, FieldSelectorAttributes>) -> Vec<(String, String)> {
    let terms = selector.requirements().items();
    let terms = terms.filter(|term| term.operator() == "In" && term.values().len() == 1);
    terms.map(|term| (term.key().text().to_owned(), term.values().nth(0).text().to_owned())).collect()
}

fn rules(rules: &Rules) -> Value {
    json!({
        "resourceRules": rules.resources, "nonResourceRules": rules.paths,
        "incomplete": rules.incomplete, "evaluationError": "",
    })
}
