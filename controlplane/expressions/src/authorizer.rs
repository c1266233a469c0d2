//! The variable `authorizer`: questions to the authorizers of the API server. Evaluation does not wait for answers: what is not
//! known yet is noted, and the expression is evaluated again when it is.

use super::arguments::{
    Answer, Args, Function, anything, failed, give, give_opaque, give_value, text, unfit, value,
};
use super::meter;
use cel::common::types::DYN_TYPE;
use cel::objects::Opaque;
use cel::{Context, DeclarationError, Env, ExecutionError, Value};
use coracle_proto::names::{dns1123_label, dns1123_subdomain};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The cost of one check, that of Kubernetes.
const CHECK: u64 = 350_000;

/// Whose permissions are in question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Those of the user who sent the request.
    #[default]
    User,
    /// Those of a service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Resources that a check is about; empty where nothing was said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ResourceTarget {
    /// API group.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Field selector.
    pub field_selector: String,
    /// Label selector.
    pub label_selector: String,
}

/// What a check is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A path that is no resource.
    Path(String),
    /// Resources.
    Resource(ResourceTarget),
}

/// A question to the authorizers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Check {
    /// Who.
    pub subject: Subject,
    /// May do what,
    pub verb: String,
    /// with what.
    pub target: Target,
}

/// The answer of the authorizers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckResult {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, or why not.
    pub reason: String,
    /// Why the authorizers could not decide.
    pub error: Option<String>,
}

/// What is known of the checks of a request.
#[derive(Debug, Default)]
pub struct Checks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: HashMap<Check, CheckResult>,
    unanswered: Vec<Check>,
}

impl Checks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The checks that an evaluation needed and nobody has answered, each once. If there are any, its outcome is worth nothing.
    pub fn take_unanswered(&self) -> Vec<Check> {
        std::mem::take(&mut self.state().unanswered)
    }

    /// Keeps an answer for the next evaluation.
    pub fn answer(&self, check: Check, result: CheckResult) {
        self.state().known.insert(check, result);
    }

    fn find(&self, check: Check) -> Option<CheckResult> {
        let mut state = self.state();
        let known = state.known.get(&check).cloned();
        if known.is_none() && !state.unanswered.contains(&check) {
            state.unanswered.push(check);
        }
        known
    }
}

/// Adds `authorizer` and `authorizer.requestResource`, which is about the resource of the request.
pub fn add_authorizer(context: &mut Context<'_, '_>, checks: &Arc<Checks>, request: ResourceTarget) {
    let authorizer = AuthorizerValue { checks: Known(checks.clone()), subject: Subject::User };
    let resource = CheckValue { authorizer: authorizer.clone(), target: Target::Resource(request) };
    context.add_variable_from_value("authorizer", Value::Opaque(Arc::new(authorizer)));
    context.add_variable_from_value("authorizer.requestResource", Value::Opaque(Arc::new(resource)));
}

/// Those of one request are the same as themselves only.
#[derive(Debug, Clone)]
struct Known(Arc<Checks>);

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Known {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AuthorizerValue {
    checks: Known,
    subject: Subject,
}

impl Opaque for AuthorizerValue {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Authorizer"
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupValue {
    authorizer: AuthorizerValue,
    group: String,
}

impl Opaque for GroupValue {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.GroupCheck"
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CheckValue {
    authorizer: AuthorizerValue,
    target: Target,
}

impl Opaque for CheckValue {
    fn runtime_type_name(&self) -> &str {
        match self.target {
            Target::Path(_) => "kubernetes.authorization.PathCheck",
            Target::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }
}

impl Opaque for CheckResult {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }
}

/// Adds the functions.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let members: [(&str, usize, Function); 14] = [
        ("path", 1, |args| {
            let (authorizer, path) = (opaque::<AuthorizerValue>(&args)?, text(&args, 1)?);
            if path.trim().is_empty() {
                return Err(failed("path", "path must not be empty"));
            }
            give_opaque(CheckValue { authorizer, target: Target::Path(path) })
        }),
        ("group", 1, |args| give_opaque(GroupValue { authorizer: opaque(&args)?, group: text(&args, 1)? })),
        ("serviceAccount", 2, service_account),
        ("resource", 1, |args| {
            let GroupValue { authorizer, group } = opaque(&args)?;
            let resource = text(&args, 1)?;
            if resource.trim().is_empty() {
                return Err(failed("resource", "resource must not be empty"));
            }
            let target = Target::Resource(ResourceTarget { group, resource, ..ResourceTarget::default() });
            give_opaque(CheckValue { authorizer, target })
        }),
        ("subresource", 1, |args| refined(&args, |target| &mut target.subresource)),
        ("namespace", 1, |args| refined(&args, |target| &mut target.namespace)),
        ("name", 1, |args| refined(&args, |target| &mut target.name)),
        ("fieldSelector", 1, |args| refined(&args, |target| &mut target.field_selector)),
        ("labelSelector", 1, |args| refined(&args, |target| &mut target.label_selector)),
        ("check", 1, check),
        ("allowed", 0, |args| give(opaque::<CheckResult>(&args)?.allowed)),
        ("reason", 0, |args| give_value(Value::from(opaque::<CheckResult>(&args)?.reason))),
        ("errored", 0, |args| give(opaque::<CheckResult>(&args)?.error.is_some())),
        ("error", 0, |args| give_value(Value::from(opaque::<CheckResult>(&args)?.error.unwrap_or_default()))),
    ];
    for (name, arguments, function) in members {
        let id = format!("authorizer_{name}");
        env.add_member_overload(name, &id, DYN_TYPE, anything(arguments), function)?;
    }
    Ok(())
}

/// The value that a function is called on.
fn opaque<T: Opaque + Clone>(args: &Args<'_, '_>) -> Result<T, ExecutionError> {
    match value(args, 0)? {
        Value::Opaque(found) => found.downcast_ref::<T>().cloned().ok_or_else(|| unfit("check")),
        _ => Err(unfit("check")),
    }
}

fn service_account<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let authorizer = opaque::<AuthorizerValue>(&args)?;
    let (namespace, name) = (text(&args, 1)?, text(&args, 2)?);
    if !dns1123_subdomain(&name).is_empty() {
        return Err(failed("serviceAccount", "Invalid service account name"));
    }
    if !dns1123_label(&namespace).is_empty() {
        return Err(failed("serviceAccount", "Invalid service account namespace"));
    }
    give_opaque(AuthorizerValue { subject: Subject::ServiceAccount { namespace, name }, ..authorizer })
}

/// A check of resources with another word for one of its parts.
fn refined<'b, 'v>(
    args: &Args<'b, 'v>,
    part: impl FnOnce(&mut ResourceTarget) -> &mut String,
) -> Answer<'b, 'v> {
    let mut check = opaque::<CheckValue>(args)?;
    let Target::Resource(target) = &mut check.target else { return Err(unfit("check of resources")) };
    *part(target) = text(args, 1)?;
    give_opaque(check)
}

fn check<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let CheckValue { authorizer: AuthorizerValue { checks, subject }, target } = opaque(&args)?;
    let verb = text(&args, 1)?;
    // Paid before anybody is asked: this limits how often they are.
    meter::charge(CHECK)?;
    match checks.0.find(Check { subject, verb, target }) {
        Some(result) => give_opaque(result),
        None => Err(failed("check", "the authorizers have not answered yet")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Budget, Failure, VALIDATION, compile, context};

    fn evaluate(text: &str, checks: &Arc<Checks>) -> Result<Value, Failure> {
        let mut context = context();
        let request = ResourceTarget { resource: "pods".into(), name: "web".into(), ..Default::default() };
        add_authorizer(&mut context, checks, request);
        compile(text).unwrap().evaluate(&context, &mut Budget::of(VALIDATION))
    }

    /// What an expression asks for before anything is known.
    fn asked(text: &str) -> Vec<Check> {
        let checks = Arc::default();
        evaluate(text, &checks).unwrap_err();
        checks.take_unanswered()
    }

    #[test]
    fn checks_say_what_was_written() {
        let of = |target| Check { subject: Subject::User, verb: "get".into(), target };
        let plain = asked("authorizer.path('/healthz').check('get').allowed()");
        assert_eq!(plain, [of(Target::Path("/healthz".into()))]);
        let all = "authorizer.group('apps').resource('deployments').subresource('scale').namespace('a').name('b') \
            .fieldSelector('x=y').labelSelector('z').check('get').reason() == ''";
        let target = ResourceTarget {
            group: "apps".into(),
            resource: "deployments".into(),
            subresource: "scale".into(),
            namespace: "a".into(),
            name: "b".into(),
            field_selector: "x=y".into(),
            label_selector: "z".into(),
        };
        assert_eq!(asked(all), [of(Target::Resource(target))]);
        let request = ResourceTarget { resource: "pods".into(), name: "web".into(), ..Default::default() };
        let own = asked("authorizer.requestResource.check('get').errored()");
        assert_eq!(own, [of(Target::Resource(request))]);
        let account = asked("authorizer.serviceAccount('ns', 'robot').path('/x').check('get').allowed()");
        let robot = Subject::ServiceAccount { namespace: "ns".into(), name: "robot".into() };
        assert_eq!(account[0].subject, robot);
    }

    #[test]
    fn answers_are_used_by_the_next_evaluation() {
        let checks = Arc::<Checks>::default();
        let text = "authorizer.path('/a').check('get').allowed() || authorizer.path('/b').check('get').allowed() \
            || authorizer.path('/a').check('get').error() == 'broken'";
        assert!(evaluate(text, &checks).is_err());
        let unanswered = checks.take_unanswered();
        assert_eq!(unanswered.len(), 2, "operators go on after an error, and each is asked once");
        for check in unanswered {
            let error = (check.target == Target::Path("/a".into())).then(|| "broken".to_owned());
            checks.answer(check, CheckResult { error, ..CheckResult::default() });
        }
        // Three checks are more than one evaluation may cost.
        assert!(matches!(evaluate(text, &checks), Err(Failure::Cost)));
        let text = "authorizer.path('/b').check('get').errored() || authorizer.path('/a').check('get').error() == 'broken'";
        assert!(matches!(evaluate(text, &checks), Ok(Value::Bool(true))));
        assert!(checks.take_unanswered().is_empty());
    }

    #[test]
    fn words_that_name_nothing_are_errors() {
        for (text, why) in [
            ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
            ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
            ("authorizer.serviceAccount('Not', 'x').path('/').check('get').allowed()", "namespace"),
            ("authorizer.serviceAccount('x', 'a@b').path('/').check('get').allowed()", "account name"),
            ("authorizer.path('/').name('x').check('get').allowed()", "no such overload"),
            ("authorizer.allowed()", "no such overload"),
        ] {
            let checks = Arc::default();
            let said = evaluate(text, &checks).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
            assert!(checks.take_unanswered().is_empty(), "{text}");
        }
    }
}
