//! Impersonation: `Impersonate-*` headers; the authenticated user must be authorized for each of them.

use crate::authz::{Authorizer, Decision, refusal};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use coracle_client::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use coracle_proto::status::ApiError;
use http::{HeaderMap, HeaderValue};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// One `impersonate` permission to check: group, resource, subresource, namespace, name.
#[derive(Debug, PartialEq, Eq)]
struct ImpersonationCheck(&'static str, &'static str, String, String, String);

/// The values of a header. One that is no text is an error: to skip it would make the request somebody else's.
fn all(headers: &HeaderMap, name: &str) -> Result<Vec<String>, ApiError> {
    let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec());
    let values: Result<_, _> = headers.get_all(name).iter().map(text).collect();
    values.map_err(|_| ApiError::bad_request(format!("header {name} is not UTF-8")))
}

/// The requested user and the permissions it needs; `None` without impersonation headers.
fn requested_user(headers: &HeaderMap) -> Result<Option<(User, Vec<ImpersonationCheck>)>, ApiError> {
    let name = all(headers, USER)?.into_iter().next().unwrap_or_default();
    let groups = all(headers, GROUP)?;
    let uid = all(headers, UID)?.into_iter().next().unwrap_or_default();
    let extras: Vec<String> =
        headers.keys().filter_map(|key| key.as_str().strip_prefix(EXTRA)).map(str::to_owned).collect();
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extras.is_empty() {
            return Ok(None);
        }
        return Err(ApiError::bad_request("requested impersonation without impersonating a user"));
    }
    let mut list = Vec::new();
    let mut user = User { name: name.clone(), groups: groups.clone(), uid: uid.clone(), ..User::default() };
    match name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        Some((namespace, account)) => {
            list.push(ImpersonationCheck(
                "",
                "serviceaccounts",
                String::new(),
                namespace.into(),
                account.into(),
            ));
            if groups.is_empty() {
                user.groups = User::service_account(namespace, account).groups;
            }
        }
        None => list.push(ImpersonationCheck("", "users", String::new(), String::new(), name.clone())),
    }
    list.extend(
        groups.into_iter().map(|g| ImpersonationCheck("", "groups", String::new(), String::new(), g)),
    );
    for key in extras {
        let values = all(headers, &format!("{EXTRA}{key}"))?;
        let decoded = percent_encoding::percent_decode_str(&key).decode_utf8_lossy().into_owned();
        let check = |value: &String| {
            ImpersonationCheck(AUTHENTICATION, "userextras", decoded.clone(), String::new(), value.clone())
        };
        list.extend(values.iter().map(check));
        user.extra.insert(decoded.clone(), values);
    }
    if !uid.is_empty() {
        list.push(ImpersonationCheck(AUTHENTICATION, "uids", String::new(), String::new(), uid));
    }
    // Whoever is impersonated is somebody, unless it is nobody.
    let everybody = if name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !user.groups.iter().any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED) {
        user.groups.push(everybody.into());
    }
    Ok(Some((user, list)))
}

/// The impersonated user, if any. Removes the headers, so that backends do not see them.
pub async fn impersonate(
    authz: &dyn Authorizer,
    user: &User,
    headers: &mut HeaderMap,
) -> Result<Option<User>, ApiError> {
    let Some((target, list)) = requested_user(headers)? else { return Ok(None) };
    for ImpersonationCheck(group, resource, subresource, namespace, name) in list {
        let request = RequestInfo {
            is_resource: true,
            verb: Verb::Impersonate,
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            subresource,
            namespace,
            name,
            ..RequestInfo::default()
        };
        let why = match authz.authorize(user, &request).await {
            Decision::Allow => continue,
            Decision::Deny(why) | Decision::NoOpinion(why) => why,
            Decision::Failed(_) | Decision::Contradiction(_) => String::new(),
        };
        let sentence = refusal(user, &request, &why);
        return Err(ApiError::forbidden(group, resource, &request.name, sentence));
    }
    let ours: Vec<_> =
        headers.keys().filter(|key| key.as_str().starts_with("impersonate-")).cloned().collect();
    for key in ours {
        headers.remove(key);
    }
    Ok(Some(target))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderName;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn every_part_of_an_identity_is_asked_for() {
        let given = headers(&[
            ("Impersonate-User", "ann"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Example.com%2Fscopes", "view"),
        ]);
        let (user, list) = requested_user(&given).unwrap().unwrap();
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.extra["example.com/scopes"], ["view"]);
        assert_eq!(list.len(), 5);
        assert!(requested_user(&headers(&[("Impersonate-Group", "dev")])).is_err());
        assert!(requested_user(&headers(&[])).unwrap().is_none());
        let account = headers(&[("Impersonate-User", "system:serviceaccount:a:b")]);
        let (user, list) = requested_user(&account).unwrap().unwrap();
        assert!(user.in_group("system:serviceaccounts:a"));
        assert_eq!(list, [ImpersonationCheck("", "serviceaccounts", String::new(), "a".into(), "b".into())]);
        // Names in any script are names; what is no text does not leave the request to who sent it.
        let mut foreign = HeaderMap::new();
        foreign.insert(USER, HeaderValue::from_bytes("Zoë".as_bytes()).unwrap());
        assert_eq!(requested_user(&foreign).unwrap().unwrap().0.name, "Zoë");
        foreign.insert(USER, HeaderValue::from_bytes(b"Zo\xeb").unwrap());
        assert_eq!(requested_user(&foreign).unwrap_err().code, 400);
        let nobody = headers(&[("Impersonate-User", "system:anonymous")]);
        assert_eq!(requested_user(&nobody).unwrap().unwrap().0.groups, ["system:unauthenticated"]);
    }

    #[tokio::test]
    async fn nobody_impersonates_without_being_allowed() {
        use crate::authz::Always;
        let mut given = headers(&[("Impersonate-User", "root"), ("accept", "x")]);
        let ann = User::new("ann", []);
        let refused = impersonate(&Always(false), &ann, &mut given).await.unwrap_err();
        assert_eq!(refused.code, 403);
        let sentence = "users \"root\" is forbidden: User \"ann\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
        assert!(refused.message.starts_with(sentence), "{}", refused.message);
        let acting = impersonate(&Always(true), &ann, &mut given).await.unwrap().unwrap();
        assert_eq!((acting.name.as_str(), given.len()), ("root", 1));
    }
}
