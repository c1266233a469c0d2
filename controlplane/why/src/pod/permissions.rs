//! Permissions that a program in a container lacks, by what it printed.

use crate::cluster::Access;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::Pod;

/// A refusal as the API server words it: `User "u" cannot list resource "pods" in API group "" in the namespace "n"`.
fn refusal(line: &str) -> Option<Access> {
    let user = quoted(line, "User \"")?;
    let verb = line.split(" cannot ").nth(1)?.split(' ').next()?;
    Some(Access {
        user: user.to_owned(),
        verb: verb.to_owned(),
        group: quoted(line, "in API group \"").unwrap_or_default().to_owned(),
        resource: quoted(line, "resource \"")?.to_owned(),
        namespace: quoted(line, "in the namespace \"").map(str::to_owned),
    })
}

fn quoted<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    let rest = &line[line.find(before)? + before.len()..];
    Some(&rest[..rest.find('"')?])
}

/// Trouble, cause and remedy when the log of a container shows that its ServiceAccount lacks a permission.
pub fn explain(world: &World, pod: View<'_, Pod>, log: &str) -> Option<(Trouble, String, String)> {
    let plain = log.replace("\\\"", "\"");
    let access = plain.lines().rev().filter(|line| line.contains(" cannot ")).find_map(refusal)?;
    let account = access.user.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    if namespace != pod.metadata().namespace().text() {
        return None;
    }
    // The log may be older than the permission.
    if world.allowed(access.clone()) == Some(true) {
        return None;
    }
    let Access { verb, group, resource, namespace: within, .. } = &access;
    let place = within
        .as_ref()
        .map_or_else(|| "in the whole cluster".to_owned(), |within| format!("in namespace {within}"));
    let full = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    let cause = format!("the ServiceAccount {name} may not {verb} {full} {place}");
    let remedy = match within {
        Some(within) => format!(
            "kubectl create role {name} -n {within} --verb={verb} --resource={full} && \
             kubectl create rolebinding {name} -n {within} --role={name} --serviceaccount={namespace}:{name}"
        ),
        None => format!(
            "kubectl create clusterrole {name} --verb={verb} --resource={full} && \
             kubectl create clusterrolebinding {name} --clusterrole={name} --serviceaccount={namespace}:{name}"
        ),
    };
    Some((Trouble::ServiceAccountForbidden, cause, remedy))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn refusals_of_the_api_server() {
        let line = r#"pods is forbidden: User "system:serviceaccount:shop:web" cannot list resource "pods" in API group "apps" in the namespace "shop""#;
        let access = refusal(line).unwrap();
        assert_eq!((access.user.as_str(), access.verb.as_str()), ("system:serviceaccount:shop:web", "list"));
        assert_eq!((access.group.as_str(), access.resource.as_str()), ("apps", "pods"));
        assert_eq!(access.namespace.as_deref(), Some("shop"));
        assert_eq!(refusal("User cannot"), None);
    }
}
