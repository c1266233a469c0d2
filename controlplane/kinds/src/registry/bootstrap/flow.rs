//! Default flow schemas and priority levels of API priority and fairness.

use coracle_fields::Schema;
use coracle_fields::flowcontrol::v1::{FlowSchemaSpec, ResourcePolicyRule};
use serde_json::{Value, json};

/// Name, nominal shares, lendable percent, and queues with their hand size (none rejects instead).
type Level = (&'static str, i64, i64, Option<(i64, i64)>);

const LEVELS: [Level; 7] = [
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6))),
    ("node-high", 40, 25, Some((64, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
    ("global-default", 20, 50, Some((128, 6))),
];
const QUEUE_LENGTH: i64 = 50;

pub(super) fn objects() -> Vec<Value> {
    let mut objects = vec![level(
        "exempt",
        json!({"type": "Exempt",
        "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
    )];
    objects.extend(LEVELS.iter().map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => json!({"type": "Queue",
                "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH}}),
        };
        level(
            name,
            json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares,
            "lendablePercent": lendable, "limitResponse": response}}),
        )
    }));
    objects.extend(schemas());
    objects
}

fn schemas() -> Vec<Value> {
    let everyone = || vec![group("system:unauthenticated"), group("system:authenticated")];
    let system_accounts =
        || json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let leases = |verbs: &[&str]| resources(verbs, "coordination.k8s.io", &["leases"], false);
    let manager = || user("system:kube-controller-manager");
    let scheduler = || user("system:kube-scheduler");
    vec![
        schema("exempt", "exempt", 1, "", anything(vec![group("system:masters")])),
        schema(
            "probes",
            "exempt",
            2,
            "",
            json!({"subjects": everyone(), "nonResourceRules":
            [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz"]}]}),
        ),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            json!({
            "subjects": [manager(), scheduler(), system_accounts()],
            "resourceRules": [leases(&["create", "get", "update"])]}),
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            json!({"subjects": [group("system:nodes")],
            "resourceRules": [resources(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"])]}),
        ),
        schema("system-nodes", "system", 500, "ByUser", anything(vec![group("system:nodes")])),
        schema("kube-controller-manager", "workload-high", 800, "ByNamespace", anything(vec![manager()])),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", anything(vec![scheduler()])),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            anything(vec![system_accounts()]),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            anything(vec![group("system:serviceaccounts")]),
        ),
        schema("global-default", "global-default", 9900, "ByUser", anything(everyone())),
        schema("catch-all", "catch-all", 10_000, "ByUser", anything(everyone())),
    ]
}

/// The server may update what nobody changed.
fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}})
}

fn level(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": metadata(name), "spec": spec})
}

fn schema(name: &str, level: &str, precedence: i64, by: &str, rule: Value) -> Value {
    let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule]});
    if !by.is_empty() {
        FlowSchemaSpec::edit(&mut spec).distinguisher_method().type_().set(by);
    }
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": metadata(name), "spec": spec})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster {
        ResourcePolicyRule::edit(&mut rule).cluster_scope().set(true);
    }
    rule
}

fn anything(subjects: Vec<Value>) -> Value {
    json!({"subjects": subjects, "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]})
}
