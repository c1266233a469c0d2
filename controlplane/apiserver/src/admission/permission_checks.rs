//! Answers the checks of CEL expressions (`authorizer.group(…).resource(…).check(…)`) with the authorizers of the API server.
//! Evaluation does not wait: it is repeated until every check that it needs is answered. All policies and webhooks of a plugin
//! share the answers of a request.

use super::Attributes;
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use coracle_client::user::User;
use coracle_expressions::authorizer::{Check, CheckResult, Checks, ResourceTarget, Subject, Target};
use coracle_proto::selector::FieldSelector;
use std::sync::Arc;

/// How often an evaluation is repeated. The cost of checks allows fewer: every repetition has one more that is answered.
const MAX_ROUNDS: usize = 64;

/// The checks of one request.
pub struct PermissionChecks<'a> {
    authz: &'a dyn Authorizer,
    user: &'a User,
    /// What is known so far.
    pub checks: Arc<Checks>,
    /// What the request is about.
    pub resource: ResourceTarget,
}

impl<'a> PermissionChecks<'a> {
    /// Those of a request; nothing is known yet.
    pub fn new(authz: &'a dyn Authorizer, at: &Attributes<'a>) -> Self {
        let resource = ResourceTarget {
            group: at.kind.group.clone(),
            resource: at.kind.plural.clone(),
            subresource: at.subresource.to_owned(),
            namespace: at.namespace.to_owned(),
            name: at.name.to_owned(),
            ..ResourceTarget::default()
        };
        Self { resource, ..Self::of(authz, at.user) }
    }

    /// Those of a user, about no resource.
    pub(super) fn of(authz: &'a dyn Authorizer, user: &'a User) -> Self {
        Self { authz, user, checks: Arc::default(), resource: ResourceTarget::default() }
    }

    /// The outcome of an evaluation, with answers to all checks.
    pub async fn answered<T>(&self, evaluate: impl Fn() -> T) -> T {
        let mut rounds = 0;
        loop {
            let unanswered = {
                let outcome = evaluate();
                let unanswered = self.checks.take_unanswered();
                rounds += 1;
                if unanswered.is_empty() || rounds == MAX_ROUNDS {
                    return outcome;
                }
                unanswered
            };
            for check in unanswered {
                let result = self.ask(&check).await;
                self.checks.answer(check, result);
            }
        }
    }

    async fn ask(&self, check: &Check) -> CheckResult {
        let request = request(check);
        let decision = match &check.subject {
            Subject::User => self.authz.authorize(self.user, &request).await,
            Subject::ServiceAccount { namespace, name } => {
                self.authz.authorize(&account(namespace, name), &request).await
            }
        };
        match decision {
            Decision::Allow => CheckResult { allowed: true, ..CheckResult::default() },
            Decision::Deny(reason) | Decision::NoOpinion(reason) => {
                CheckResult { reason, ..CheckResult::default() }
            }
            Decision::Failed(error) | Decision::Contradiction(error) => {
                CheckResult { error: Some(error), ..CheckResult::default() }
            }
        }
    }
}

/// A service account as Kubernetes asks for it: without the group of everybody who has authenticated.
fn account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")],
        ..User::default()
    }
}

/// A check as the authorizers know it. A selector that cannot be read restricts nothing, and is then not allowed by a rule
/// that asks for one.
fn request(check: &Check) -> RequestInfo {
    let verb = Verb::from(check.verb.as_str());
    match &check.target {
        Target::Path(path) => RequestInfo { verb, path: path.clone(), ..RequestInfo::default() },
        Target::Resource(target) => {
            let terms = target.field_selector.parse::<FieldSelector>().unwrap_or_default().terms;
            let exact = terms.into_iter().filter(|term| !term.negated).map(|term| (term.field, term.value));
            RequestInfo {
                is_resource: true,
                verb,
                group: target.group.clone(),
                version: "*".into(),
                resource: target.resource.clone(),
                subresource: target.subresource.clone(),
                namespace: target.namespace.clone(),
                name: target.name.clone(),
                selected: exact.collect(),
                ..RequestInfo::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::authz::Rules;
    use async_trait::async_trait;
    use coracle_expressions::{Budget, VALIDATION, authorizer, compile, context};
    use parking_lot::Mutex;

    /// Allows what ends with `/yes`, fails for `/broken`, and keeps who asked for what.
    #[derive(Default)]
    struct Ending(Mutex<Vec<(String, RequestInfo)>>);

    #[async_trait]
    impl Authorizer for Ending {
        async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
            self.0.lock().push((user.name.clone(), request.clone()));
            match request.path.as_str() {
                "/broken" => Decision::Failed("no answer".into()),
                path if path.ends_with("/yes") => Decision::Allow,
                _ => Decision::NoOpinion("nobody said so".into()),
            }
        }

        fn rules(&self, _: &User, _: &str) -> Rules {
            Rules::default()
        }
    }

    async fn outcome(text: &str) -> (Option<bool>, Vec<(String, RequestInfo)>) {
        let (authz, user) = (Ending::default(), User::new("ann", []));
        let resource = ResourceTarget { resource: "pods".into(), ..ResourceTarget::default() };
        let checks = PermissionChecks { authz: &authz, user: &user, checks: Arc::default(), resource };
        let program = compile(text).unwrap();
        let evaluate = || {
            let mut context = context();
            authorizer::add_authorizer(&mut context, &checks.checks, checks.resource.clone());
            program.evaluate(&context, &mut Budget::of(VALIDATION))
        };
        let value = match checks.answered(evaluate).await {
            Ok(cel::Value::Bool(is)) => Some(is),
            _ => None,
        };
        let asked = authz.0.lock().clone();
        (value, asked)
    }

    #[tokio::test]
    async fn expressions_get_the_answers_of_the_authorizers() {
        for (text, expected) in [
            ("authorizer.path('/yes').check('get').allowed()", true),
            ("authorizer.path('/no').check('get').allowed()", false),
            ("authorizer.path('/no').check('get').reason() == 'nobody said so'", true),
            ("authorizer.path('/no').check('get').errored()", false),
            ("authorizer.path('/broken').check('get').errored()", true),
            ("authorizer.path('/broken').check('get').error() == 'no answer'", true),
            // What is asked second depends on the first answer.
            (
                "authorizer.path(authorizer.path('/no').check('get').allowed() ? '/no' : '/yes').check('get').allowed()",
                true,
            ),
            ("['/a', '/yes'].exists(p, authorizer.path(p).check('get').allowed())", true),
        ] {
            assert_eq!(outcome(text).await.0, Some(expected), "{text}");
        }
        let many = "['/a', '/b', '/c'].exists(p, authorizer.path(p).check('get').allowed())";
        let (value, asked) = outcome(many).await;
        assert_eq!((value, asked.len()), (None, 2), "the cost limits how often anybody is asked");
    }

    #[tokio::test]
    async fn the_authorizers_are_asked_about_what_was_written() {
        let (_, asked) = outcome(
            "authorizer.serviceAccount('ns', 'robot').group('apps').resource('deployments').namespace('a') \
             .fieldSelector('metadata.name=x,spec.y!=z').check('list').allowed()",
        )
        .await;
        let [(who, request)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(who, "system:serviceaccount:ns:robot");
        let about = (request.group.as_str(), request.resource.as_str(), request.namespace.as_str());
        assert_eq!((about, &request.verb), (("apps", "deployments", "a"), &Verb::List));
        assert_eq!(request.selected, [("metadata.name".to_owned(), "x".to_owned())]);
        let (_, asked) = outcome("authorizer.requestResource.check('mount').allowed()").await;
        assert_eq!((asked[0].0.as_str(), asked[0].1.resource.as_str()), ("ann", "pods"));
        assert_eq!(asked[0].1.verb.as_str(), "mount");
    }
}
