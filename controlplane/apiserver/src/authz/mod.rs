//! Authorization: an ordered union of authorizers. The first one that allows or denies decides. If none decides, the
//! request is denied.

// The node authorizer.
pub mod node;
// Graph of nodes, pods and the objects they reference.
pub mod graph;
// RBAC.
pub mod rbac;
// Index of role bindings by subject.
mod bindings;
// Escalation check: whether rules cover other rules.
pub mod cover;
// ABAC.
pub mod abac;
// Authorization webhook.
pub mod webhook;

use super::request_info::RequestInfo;
use async_trait::async_trait;
use coracle_client::user::{MASTERS, User};
use serde_json::{Value, json};

/// The decision of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed.
    Allow,
    /// Denied; no other authorizer is asked.
    Deny(String),
    /// Undecided: the next authorizer is asked. The text is the reason for the log.
    NoOpinion(String),
    /// Undecided because of a failure, such as a webhook that does not answer: the next authorizer is asked.
    Failed(String),
    /// Denied by an answer that contradicts itself: a failure, but no other authorizer is asked.
    Contradiction(String),
}

/// What a user may do, as `SelfSubjectRulesReview` lists it.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Rules about resources.
    pub resources: Vec<Value>,
    /// Rules about paths.
    pub paths: Vec<Value>,
    /// Whether an authorizer cannot list its rules.
    pub incomplete: bool,
}

/// Decides who may do what.
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Decides about one request.
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision;

    /// What the user may do in a namespace.
    fn rules(&self, user: &User, namespace: &str) -> Rules;
}

/// The members of `system:masters` may do everything.
pub struct Masters;

#[async_trait]
impl Authorizer for Masters {
    async fn authorize(&self, user: &User, _request: &RequestInfo) -> Decision {
        if user.in_group(MASTERS) { Decision::Allow } else { Decision::NoOpinion(String::new()) }
    }

    fn rules(&self, user: &User, _namespace: &str) -> Rules {
        if user.in_group(MASTERS) { everything() } else { Rules::default() }
    }
}

fn everything() -> Rules {
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let every_path = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    Rules { resources: vec![all], paths: vec![every_path], incomplete: false }
}

/// Allows (`AlwaysAllow`) or denies (`AlwaysDeny`) every request.
pub struct Always(pub bool);

#[async_trait]
impl Authorizer for Always {
    async fn authorize(&self, _user: &User, _request: &RequestInfo) -> Decision {
        if self.0 { Decision::Allow } else { Decision::NoOpinion("Everything is forbidden.".into()) }
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        if self.0 { everything() } else { Rules::default() }
    }
}

/// The union.
pub struct Union(pub Vec<Box<dyn Authorizer>>);

#[async_trait]
impl Authorizer for Union {
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
        let (mut reasons, mut failures) = (Vec::new(), Vec::new());
        for authorizer in &self.0 {
            match authorizer.authorize(user, request).await {
                Decision::NoOpinion(why) if why.is_empty() => {}
                Decision::NoOpinion(why) => reasons.push(why),
                Decision::Failed(why) => failures.push(why),
                decided => return decided,
            }
        }
        match failures.is_empty() {
            true => Decision::NoOpinion(reasons.join(", ")),
            false => Decision::Failed(failures.join(", ")),
        }
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut all = Rules::default();
        for authorizer in &self.0 {
            let rules = authorizer.rules(user, namespace);
            all.resources.extend(rules.resources);
            all.paths.extend(rules.paths);
            all.incomplete |= rules.incomplete;
        }
        all
    }
}

/// Upstream's sentence for a refusal.
pub fn refusal(user: &User, request: &RequestInfo, why: &str) -> String {
    let mut text = if request.is_resource {
        let resource = match request.subresource.as_str() {
            "" => request.resource.clone(),
            sub => format!("{}/{sub}", request.resource),
        };
        let place = match request.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        format!(
            "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
            user.name, request.verb, request.group
        )
    } else {
        format!("User \"{}\" cannot {} path \"{}\"", user.name, request.verb, request.path)
    };
    if !why.is_empty() {
        text.push_str(": ");
        text.push_str(why);
    }
    text
}
