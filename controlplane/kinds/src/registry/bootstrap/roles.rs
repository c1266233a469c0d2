//! Default roles, read from `roles.txt` and `controllers.txt`, and their bindings.

use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::rbac::v1::{ClusterRole, PolicyRule, RoleBinding};
use coracle_fields::{Schema, make};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";
const ROLES: &str = include_str!("roles.txt");

const CONTROLLERS: &str = include_str!("controllers.txt");

/// Bindings of the same name as their role: users (`u:`), groups (`g:`) or service accounts of kube-system (`s:`).
const BINDINGS: [(&str, &[&str]); 13] = [
    ("cluster-admin", &["g:system:masters"]),
    ("system:basic-user", &["g:system:authenticated"]),
    ("system:discovery", &["g:system:authenticated"]),
    ("coracle:trace", &["g:system:authenticated"]),
    ("system:public-info-viewer", &["g:system:authenticated", "g:system:unauthenticated"]),
    ("system:monitoring", &["g:system:monitoring"]),
    ("system:service-account-issuer-discovery", &["g:system:serviceaccounts"]),
    ("system:kube-controller-manager", &["u:system:kube-controller-manager"]),
    ("system:kube-scheduler", &["u:system:kube-scheduler"]),
    ("system:volume-scheduler", &["u:system:kube-scheduler"]),
    ("system:node-proxier", &["u:system:kube-proxy"]),
    ("system:kube-dns", &["s:kube-dns"]),
    // Nodes are authorised one by one, not all alike: nobody has this role until somebody says so.
    ("system:node", &[]),
];

/// Bindings with names of their own: how nodes join and renew their certificates, and see the cluster's network.
const JOINING: [(&str, &str, &str); 6] = [
    // API servers ask nodes for logs and the like; nodes ask whether they may.
    ("coracle:kubelet-client", "coracle:kubelet-client", "g:coracle:kubelet-clients"),
    ("coracle:node-network", "coracle:node-network", "g:system:nodes"),
    ("coracle:node-bootstrap", "system:node-bootstrapper", "g:system:bootstrappers"),
    (
        "coracle:node-autoapprove-bootstrap",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "g:system:bootstrappers",
    ),
    (
        "coracle:node-autoapprove-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "g:system:nodes",
    ),
    // The controller checks the names against the Node before it approves.
    (
        "coracle:serving-approver",
        "system:certificates.k8s.io:kubelet-serving-approver",
        "s:certificate-controller",
    ),
];

const MANAGER: &[&str] =
    &["u:system:kube-controller-manager", "s:kube-controller-manager", "s:leader-election-controller"];
const LEASES: &str =
    "create,get,list,update,watch leases.coordination.k8s.io,leasecandidates.coordination.k8s.io";
const EVENTS: &str = "create,patch,update events,events.events.k8s.io";

/// A role in a namespace: namespace, role, binding, rules as in `roles.txt`, and who has it.
type Local = (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const LOCAL: [Local; 8] = [
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &["read configmaps", "update configmaps @cluster-info", EVENTS],
        &["s:bootstrap-signer"],
    ),
    // Agents follow rotations of the CA.
    (
        "kube-public",
        "coracle:ca-bundle-reader",
        "coracle:ca-bundle-reader",
        &["read configmaps @kube-root-ca.crt"],
        &["g:system:nodes"],
    ),
    (
        "kube-system",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &["read secrets"],
        &["s:bootstrap-signer"],
    ),
    (
        "kube-system",
        "system:controller:token-cleaner",
        "system:controller:token-cleaner",
        &["read,delete secrets", EVENTS],
        &["s:token-cleaner"],
    ),
    (
        "kube-system",
        "system:controller:cloud-provider",
        "system:controller:cloud-provider",
        &["read,create configmaps"],
        &["s:cloud-provider"],
    ),
    (
        "kube-system",
        "extension-apiserver-authentication-reader",
        "system::extension-apiserver-authentication-reader",
        &["read configmaps @extension-apiserver-authentication"],
        &["u:system:kube-controller-manager", "u:system:kube-scheduler"],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        &[LEASES],
        MANAGER,
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        &[LEASES],
        &["u:system:kube-scheduler", "s:kube-scheduler"],
    ),
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
    let controllers = parse(CONTROLLERS);
    let mut objects: Vec<Value> = roles.iter().map(|role| cluster_role(role, &roles)).collect();
    objects.extend(controllers.iter().map(|role| cluster_role(role, &controllers)));
    objects.extend(BINDINGS.iter().map(|(role, subjects)| binding(role, role, subjects)));
    objects.extend(JOINING.iter().map(|(name, role, subject)| binding(name, role, &[subject])));
    objects.extend(controllers.iter().map(|role| {
        let account = role.name.rsplit(':').next().unwrap_or_default();
        binding(role.name, role.name, &[&format!("s:{account}")])
    }));
    objects.extend(LOCAL.iter().flat_map(local));
    objects
}

/// The rules of a default role.
pub(super) fn rules_of(name: &str) -> Vec<Value> {
    parse(ROLES).into_iter().find(|role| role.name == name).map(|role| role.rules).unwrap_or_default()
}

fn local((namespace, role, name, lines, subjects): &Local) -> [Value; 2] {
    let within = |mut object: Value| {
        PartialObjectMetadata::edit(&mut object).metadata().namespace().set(*namespace);
        object
    };
    let rules: Vec<Value> = lines.iter().flat_map(|line| rules(line)).collect();
    let made = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata(role), "rules": rules});
    let mut bound = binding(name, role, subjects);
    RoleBinding::edit(&mut bound).kind().set("RoleBinding");
    RoleBinding::edit(&mut bound).role_ref().kind().set("Role");
    [within(made), within(bound)]
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
        ClusterRole::edit(&mut object).metadata().labels().insert(&label(joins), "true");
    }
    if let Some(gathers) = role.gathers {
        let mut object = ClusterRole::edit(&mut object);
        let mut rule = object.aggregation_rule();
        rule.cluster_role_selectors().add().match_labels().insert(&label(gathers), "true");
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

fn binding(name: &str, role: &str, subjects: &[&str]) -> Value {
    let subject = |(kind, name): (&str, &str)| match kind {
        "s" => json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": name}),
        "g" => json!({"apiGroup": RBAC, "kind": "Group", "name": name}),
        _ => json!({"apiGroup": RBAC, "kind": "User", "name": name}),
    };
    let subjects: Vec<Value> =
        subjects.iter().filter_map(|subject| subject.split_once(':')).map(subject).collect();
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(name),
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
    if rest.starts_with('/') || rest == "*" {
        let urls: Vec<&str> = rest.split_whitespace().collect();
        return vec![make!(part PolicyRule { verbs, non_resource_urls: urls }).into_value()];
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
        let mut rule = make!(part PolicyRule { verbs: &verbs, api_groups: [group], resources });
        if !names.is_empty() {
            rule.edit().resource_names().set(&names);
        }
        rule.into_value()
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
