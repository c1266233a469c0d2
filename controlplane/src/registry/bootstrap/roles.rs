//! Default roles, read from `roles.txt`, and who has them.

use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";
const ROLES: &str = include_str!("roles.txt");

/// Roles and the users (`u:`) or groups (`g:`) that have them.
const BINDINGS: [(&str, &[&str]); 11] = [
    ("cluster-admin", &["g:system:masters"]),
    ("system:basic-user", &["g:system:authenticated"]),
    ("system:discovery", &["g:system:authenticated"]),
    ("system:public-info-viewer", &["g:system:authenticated", "g:system:unauthenticated"]),
    ("system:monitoring", &["g:system:monitoring"]),
    ("system:service-account-issuer-discovery", &["g:system:serviceaccounts"]),
    ("system:kube-controller-manager", &["u:system:kube-controller-manager"]),
    ("system:kube-scheduler", &["u:system:kube-scheduler"]),
    ("system:volume-scheduler", &["u:system:kube-scheduler"]),
    ("system:node-proxier", &["u:system:kube-proxy"]),
    // Nodes are authorised one by one, not all alike: nobody has this role until somebody says so.
    ("system:node", &[]),
];

/// A role as the file has it.
struct Role<'a> {
    name: &'a str,
    /// The role that this one's rules flow into.
    joins: Option<&'a str>,
    /// The label whose rules this one gathers.
    gathers: Option<&'a str>,
    rules: Vec<Value>,
}

pub(super) fn objects() -> Vec<Value> {
    let roles = parse(ROLES);
    let mut objects: Vec<Value> = roles.iter().map(|role| cluster_role(role, &roles)).collect();
    objects.extend(BINDINGS.iter().map(|(role, subjects)| binding(role, subjects)));
    objects
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

fn label(role: &str) -> String {
    format!("{RBAC}/aggregate-to-{role}")
}

fn cluster_role(role: &Role<'_>, all: &[Role<'_>]) -> Value {
    let mut object = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata(role.name),
        "rules": gathered(role, all)});
    if let Some(joins) = role.joins {
        object["metadata"]["labels"][label(joins)] = json!("true");
    }
    if let Some(gathers) = role.gathers {
        object["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {label(gathers): "true"}}]});
    }
    object
}

/// A role's rules with those that flow into it, as whoever aggregates roles would write them.
fn gathered(role: &Role<'_>, all: &[Role<'_>]) -> Vec<Value> {
    let mut rules = role.rules.clone();
    if let Some(wanted) = role.gathers {
        rules.extend(
            all.iter().filter(|other| other.joins == Some(wanted)).flat_map(|other| gathered(other, all)),
        );
    }
    rules
}

fn binding(role: &str, subjects: &[&str]) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .filter_map(|subject| subject.split_once(':'))
        .map(|(kind, name)| json!({"apiGroup": RBAC, "kind": if kind == "g" { "Group" } else { "User" }, "name": name}))
        .collect();
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(role),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}, "subjects": subjects})
}

fn parse(text: &str) -> Vec<Role<'_>> {
    let mut roles: Vec<Role<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if line.starts_with(' ') {
            if let Some(role) = roles.last_mut() {
                role.rules.extend(rules(line.trim()));
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let mut role =
            Role { name: words.next().unwrap_or_default(), joins: None, gathers: None, rules: Vec::new() };
        for word in words {
            match word.split_at(1) {
                ("~", name) => role.joins = Some(name),
                ("<", name) => role.gathers = Some(name),
                _ => {}
            }
        }
        roles.push(role);
    }
    roles
}

/// One line: a rule for each API group that it names.
fn rules(line: &str) -> Vec<Value> {
    let (verb_words, rest) = line.split_once(' ').unwrap_or((line, ""));
    let verbs = verbs(verb_words);
    if rest.starts_with('/') {
        return vec![json!({"verbs": verbs, "nonResourceURLs": rest.split_whitespace().collect::<Vec<_>>()})];
    }
    let (resources, names) = match rest.split_once(" @") {
        Some((resources, names)) => (resources, names.split(',').collect()),
        None => (rest, Vec::new()),
    };
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in resources.split(',') {
        let (resource, group) = word.split_once('.').unwrap_or((word, ""));
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, list)) => list.push(resource),
            None => groups.push((group, vec![resource])),
        }
    }
    let rule = |(group, resources): (&str, Vec<&str>)| {
        let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    groups.into_iter().map(rule).collect()
}

fn verbs(words: &str) -> Vec<&str> {
    words
        .split(',')
        .flat_map(|word| match word {
            "all" => vec!["*"],
            "read" => vec!["get", "list", "watch"],
            "write" => vec!["create", "delete", "deletecollection", "patch", "update"],
            other => vec![other],
        })
        .collect()
}
