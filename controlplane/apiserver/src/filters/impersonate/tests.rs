#![allow(clippy::unwrap_used)]
use super::*;
use crate::authz::{Always, Decision, Rules};
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::user::{MASTERS, NODES};
use http::{HeaderMap, HeaderName};
use std::sync::Mutex;

pub(super) fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

/// Allows some requests, written as `verb resource/subresource name`, and remembers all.
struct Policy {
    allowed: &'static [&'static str],
    asked: Mutex<Vec<String>>,
    extra: Mutex<Vec<Vec<String>>>,
}

#[async_trait]
impl Authorizer for Policy {
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
        let what = match (request.is_resource, request.subresource.as_str()) {
            (false, _) => request.path.clone(),
            (_, "") => format!("{} {}", request.resource, request.name),
            (_, sub) => format!("{}/{sub} {}", request.resource, request.name),
        };
        let line = format!("{} {}", request.verb, what.trim());
        self.extra.lock().unwrap().push(user.extra.keys().cloned().collect());
        let is_allowed = self.allowed.contains(&line.as_str());
        self.asked.lock().unwrap().push(line);
        if is_allowed { Decision::Allow } else { Decision::NoOpinion(String::new()) }
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}

fn allowing(allowed: &'static [&'static str]) -> Policy {
    Policy { allowed, asked: Mutex::default(), extra: Mutex::default() }
}

fn list_pods() -> RequestInfo {
    RequestInfo {
        is_resource: true,
        verb: Verb::List,
        version: "v1".into(),
        resource: "pods".into(),
        ..RequestInfo::default()
    }
}

async fn try_as(
    policy: &Policy,
    requestor: &User,
    list: &[(&str, &str)],
) -> Result<(User, Option<&'static str>), String> {
    let made = impersonate(policy, requestor, &list_pods(), &mut headers(list)).await;
    made.map(|made| made.map(|made| (made.user, made.constraint)).unwrap()).map_err(|error| error.message)
}

fn on_node(node: &str) -> User {
    let mut user = User::service_account("ns", "agent");
    user.extra.insert("authentication.kubernetes.io/node-name".into(), vec![node.into()]);
    user.extra.insert("authentication.kubernetes.io/pod-name".into(), vec!["p".into()]);
    user
}

#[tokio::test]
async fn nobody_impersonates_without_being_allowed() {
    let mut given = headers(&[("Impersonate-User", "root"), ("accept", "x")]);
    let ann = User::new("ann", []);
    let refused = impersonate(&Always(false), &ann, &list_pods(), &mut given).await.unwrap_err();
    assert_eq!(refused.code, 403);
    let sentence = "pods is forbidden: User \"ann\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\"";
    assert!(refused.message.starts_with(sentence), "{}", refused.message);
    assert_eq!(given.len(), 1, "also not for who answers the refusal");
    let mut given = headers(&[("Impersonate-User", "root"), ("accept", "x")]);
    let acting = impersonate(&Always(true), &ann, &list_pods(), &mut given).await.unwrap().unwrap();
    assert_eq!((acting.user.name.as_str(), given.len()), ("root", 1));
    let nothing = impersonate(&Always(true), &ann, &list_pods(), &mut headers(&[])).await.unwrap();
    assert!(nothing.is_none());
}

#[tokio::test]
async fn the_verb_impersonate_is_enough_for_every_request() {
    let ann = User::new("ann", []);
    let policy = allowing(&[
        "impersonate users bob",
        "impersonate groups dev",
        "impersonate uids 7",
        "impersonate userextras/scopes view",
    ]);
    let wanted = [
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Scopes", "view"),
    ];
    let (bob, constraint) = try_as(&policy, &ann, &wanted).await.unwrap();
    assert_eq!((bob.groups, constraint), (vec!["dev".to_owned(), AUTHENTICATED.to_owned()], None));
    let account = allowing(&["impersonate serviceaccounts b"]);
    let (user, _) =
        try_as(&account, &ann, &[("Impersonate-User", "system:serviceaccount:a:b")]).await.unwrap();
    assert!(user.in_group("system:serviceaccounts:a"));
    // The name of a node alone does not make a node.
    let node = allowing(&["impersonate users system:node:n"]);
    let (user, _) = try_as(&node, &ann, &[("Impersonate-User", "system:node:n")]).await.unwrap();
    assert!(!user.in_group(NODES));
    let nobody = allowing(&["impersonate users system:anonymous"]);
    let (user, _) = try_as(&nobody, &ann, &[("Impersonate-User", ANONYMOUS)]).await.unwrap();
    assert_eq!(user.groups, [UNAUTHENTICATED]);
}

#[tokio::test]
async fn a_mode_needs_both_the_user_and_the_request() {
    const USER: &str = "impersonate:user-info users bob";
    const REQUEST: &str = "impersonate-on:user-info:list pods";
    let ann = User::new("ann", []);
    let bob = [("Impersonate-User", "bob")];
    let both = allowing(&[USER, REQUEST]);
    assert_eq!(try_as(&both, &ann, &bob).await.unwrap().1, Some("impersonate:user-info"));
    for allowed in [
        &[USER][..],
        &[REQUEST],
        &[USER, "impersonate-on:user-info:get pods"],
        &[USER, "list pods"],
        &["impersonate:serviceaccount users bob", "impersonate-on:serviceaccount:list pods"],
        &[REQUEST, "impersonate:user-info users carl"],
    ] {
        assert!(try_as(&allowing(allowed), &ann, &bob).await.is_err(), "{allowed:?}");
    }
    let account = [("Impersonate-User", "system:serviceaccount:a:b")];
    let policy = allowing(&[
        "impersonate:serviceaccount serviceaccounts b",
        "impersonate-on:serviceaccount:list pods",
    ]);
    let (user, constraint) = try_as(&policy, &ann, &account).await.unwrap();
    assert_eq!((user.groups.len(), constraint), (3, Some("impersonate:serviceaccount")));
    let with_group = [account[0], ("Impersonate-Group", "dev")];
    assert!(try_as(&policy, &ann, &with_group).await.is_err(), "its groups follow from its name");
    // What is not about users of the mode is never asked for.
    assert!(!policy.asked.lock().unwrap().iter().any(|asked| asked.contains("user-info")));
}

#[tokio::test]
async fn no_mode_gives_the_groups_that_may_do_everything() {
    let ann = User::new("ann", []);
    let everything = allowing(&[
        "impersonate-on:user-info:list pods",
        "impersonate:user-info users bob",
        "impersonate:user-info groups *",
        "impersonate:user-info groups dev",
        "impersonate:user-info groups",
        "impersonate:user-info groups system:masters",
        "impersonate:user-info groups coracle:api-servers",
        "impersonate:user-info userextras/* *",
        "impersonate:user-info userextras/scopes a",
    ]);
    for (header, value, why) in [
        ("Impersonate-Group", "system:masters", "impersonating the system:masters group is not allowed"),
        ("Impersonate-Group", "coracle:api-servers", "coracle:api-servers group is not allowed"),
        ("Impersonate-Group", "", "empty string group is not allowed"),
        ("Impersonate-Extra-Scopes", "a", "domain-prefixed"),
        // Names of headers have no case: only an encoded letter can be in upper case.
        ("Impersonate-Extra-Example.com%2FA", "a", "userextras"),
        ("Impersonate-Extra-Example.com%2F%41", "a", "non-lowercase"),
        ("Impersonate-Extra-Example.com%2Fa", "", "empty string value"),
        ("Impersonate-Extra-", "a", "empty string key"),
    ] {
        let wanted = [("Impersonate-User", "bob"), ("Impersonate-Group", "dev"), (header, value)];
        let refused = try_as(&everything, &ann, &wanted).await;
        assert!(refused.as_ref().is_err_and(|said| said.contains(why)), "{header} {value}: {refused:?}");
    }
    let many = ["a", "b", "c", "d"].map(|group| ("Impersonate-Group", group));
    let many: Vec<_> = [("Impersonate-User", "bob")].into_iter().chain(many).collect();
    assert!(try_as(&everything, &ann, &many).await.is_ok(), "one permission for all groups");
}

#[tokio::test]
async fn nodes_are_impersonated_by_name_and_by_who_runs_on_them() {
    let node = [("Impersonate-User", "system:node:n1")];
    let any = allowing(&["impersonate:arbitrary-node nodes n1", "impersonate-on:arbitrary-node:list pods"]);
    let (user, constraint) = try_as(&any, &User::new("ann", []), &node).await.unwrap();
    assert_eq!(user.groups, [NODES, AUTHENTICATED]);
    assert_eq!(constraint, Some("impersonate:arbitrary-node"));
    assert!(try_as(&any, &User::new("ann", []), &[("Impersonate-User", "system:node:n2")]).await.is_err());

    let own = allowing(&["impersonate:associated-node nodes *", "impersonate-on:associated-node:list pods"]);
    let (user, constraint) = try_as(&own, &on_node("n1"), &node).await.unwrap();
    assert_eq!((user.node(), constraint), (Some("n1"), Some("impersonate:associated-node")));
    let keys = own.extra.lock().unwrap().concat();
    assert!(keys.iter().all(|key| key.ends_with("associated-node-keys")), "{keys:?}");
    let mut two = on_node("n1");
    two.extra.get_mut("authentication.kubernetes.io/node-name").unwrap().push("n2".into());
    let mut person = User::new("ann", []);
    person.extra = on_node("n1").extra;
    for (requestor, wanted) in [
        (on_node("n2"), node.to_vec()),
        (User::service_account("ns", "agent"), node.to_vec()),
        (two, node.to_vec()),
        (person, node.to_vec()),
        (on_node("n1"), vec![node[0], ("Impersonate-Group", MASTERS)]),
        (on_node("n1"), vec![node[0], ("Impersonate-Uid", "1")]),
        (on_node(""), vec![("Impersonate-User", "system:node:")]),
    ] {
        assert!(try_as(&own, &requestor, &wanted).await.is_err(), "{} {wanted:?}", requestor.name);
    }
}

#[tokio::test]
async fn paths_are_asked_for_too() {
    let policy = allowing(&["impersonate:user-info users bob", "impersonate-on:user-info:get /metrics"]);
    let request = |path: &str| RequestInfo { verb: Verb::Get, path: path.into(), ..RequestInfo::default() };
    let ann = User::new("ann", []);
    for (path, is_allowed) in [("/metrics", true), ("/logs", false)] {
        let mut given = headers(&[("Impersonate-User", "bob")]);
        let made = impersonate(&policy, &ann, &request(path), &mut given).await;
        assert_eq!(made.is_ok(), is_allowed, "{path}");
        let sentence = "forbidden: User \"ann\" cannot impersonate-on:user-info:get path \"/logs\"";
        assert!(is_allowed || made.unwrap_err().message == sentence, "{path}");
    }
}
