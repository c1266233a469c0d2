//! Checks whether a set of rules covers another (upstream's `Covers`), to prevent privilege escalation.

use super::rbac::{Rule, covers};

/// The rules of `wanted`, cut into single grants, that none of `held` grants.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(single).filter(|grant| !held.iter().any(|rule| grants(rule, grant))).collect()
}

/// A rule as grants of one verb on one thing each.
fn single(rule: &Rule) -> Vec<Rule> {
    let mut grants = Vec::new();
    for verb in &rule.verbs {
        let one = |list: &String| vec![list.clone()];
        for path in &rule.paths {
            grants.push(Rule { verbs: one(verb), paths: one(path), ..Rule::default() });
        }
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let grant = Rule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..Rule::default()
                };
                if rule.resource_names.is_empty() {
                    grants.push(grant.clone());
                }
                for name in &rule.resource_names {
                    grants.push(Rule { resource_names: one(name), ..grant.clone() });
                }
            }
        }
    }
    grants
}

fn grants(held: &Rule, grant: &Rule) -> bool {
    let all = |held: &[String], wanted: &[String]| {
        held.iter().any(|h| h == "*") || wanted.iter().all(|w| held.contains(w))
    };
    if !all(&held.verbs, &grant.verbs) {
        return false;
    }
    if let Some(path) = grant.paths.first() {
        return held.paths.iter().any(|h| match h.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => h == path,
        });
    }
    let resource = |wanted: &String| {
        held.resources.iter().any(|h| {
            let (name, sub) = wanted.split_once('/').unwrap_or((wanted, ""));
            h == wanted || covers(h, name, sub)
        })
    };
    let named = held.resource_names.is_empty()
        || (!grant.resource_names.is_empty()
            && grant.resource_names.iter().all(|name| held.resource_names.contains(name)));
    all(&held.api_groups, &grant.api_groups) && grant.resources.iter().all(resource) && named
}

/// A rule the way upstream prints it in refusals.
pub fn printed(rule: &Rule) -> String {
    let list = |items: &[String]| items.iter().map(|i| format!("{i:?}")).collect::<Vec<_>>().join(", ");
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("NonResourceURLs", &rule.paths),
        ("Verbs", &rule.verbs),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, items)| !items.is_empty())
        .map(|(name, items)| format!("{name}:[{}]", list(items)))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str], paths: &[&str]) -> Rule {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Rule {
            verbs: own(verbs),
            api_groups: own(groups),
            resources: own(resources),
            resource_names: own(names),
            paths: own(paths),
        }
    }

    #[test]
    fn nobody_hands_out_more_than_they_have() {
        let all = rule(&["*"], &["*"], &["*"], &[], &[]);
        let cases = [
            (vec![all.clone()], rule(&["get"], &[""], &["pods"], &[], &[]), true),
            (
                vec![rule(&["get"], &[""], &["pods"], &[], &[])],
                rule(&["get", "list"], &[""], &["pods"], &[], &[]),
                false,
            ),
            (
                vec![rule(&["get"], &[""], &["pods"], &[], &[]), rule(&["list"], &[""], &["pods"], &[], &[])],
                rule(&["get", "list"], &[""], &["pods"], &[], &[]),
                true,
            ),
            (
                vec![rule(&["get"], &[""], &["pods"], &["a"], &[])],
                rule(&["get"], &[""], &["pods"], &[], &[]),
                false,
            ),
            (
                vec![rule(&["get"], &[""], &["pods"], &[], &[])],
                rule(&["get"], &[""], &["pods"], &["a"], &[]),
                true,
            ),
            (
                vec![rule(&["get"], &[""], &["pods"], &[], &[])],
                rule(&["*"], &[""], &["pods"], &[], &[]),
                false,
            ),
            (
                vec![rule(&["get"], &[""], &["pods"], &[], &[])],
                rule(&["get"], &[""], &["pods/log"], &[], &[]),
                false,
            ),
            (
                vec![rule(&["get"], &[""], &["*/log"], &[], &[])],
                rule(&["get"], &[""], &["pods/log"], &[], &[]),
                true,
            ),
            (vec![rule(&["get"], &[], &[], &[], &["/a/*"])], rule(&["get"], &[], &[], &[], &["/a/b"]), true),
            (vec![rule(&["get"], &[], &[], &[], &["/a/b"])], rule(&["get"], &[], &[], &[], &["/a/*"]), false),
            (vec![all], rule(&["get"], &[], &[], &[], &["/metrics"]), false),
        ];
        for (held, wanted, enough) in cases {
            assert_eq!(
                missing(&held, std::slice::from_ref(&wanted)).is_empty(),
                enough,
                "{held:?} {wanted:?}"
            );
        }
    }

    #[test]
    fn refusals_print_rules_as_upstream_does() {
        let printed = printed(&rule(&["get"], &[""], &["pods"], &[], &[]));
        assert_eq!(printed, r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#);
    }
}
