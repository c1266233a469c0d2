use super::fixture::{Fixture, now};
use crate::explain::inspect;
use crate::finding::Finding;
use crate::network::connection;
use crate::target;
use crate::trouble::Trouble;
use crate::world::World;
use futures::executor::block_on;

/// Troubles of connections.
pub const TROUBLES: [Trouble; 6] = [
    Trouble::PolicyBlocksIngress,
    Trouble::PolicyBlocksEgress,
    Trouble::PolicyBlocksDns,
    Trouble::DnsNameUnknown,
    Trouble::ServicePortMissing,
    Trouble::PodPortUndeclared,
];

const NONE: [Trouble; 0] = [];

const PODS: &str = "
kind: Pod
metadata: {name: a, labels: {app: a}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.0.1, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: b-1, labels: {app: b}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIP: 10.1.0.2, conditions: [{type: Ready, status: 'True'}]}
---
kind: Service
metadata: {name: b}
spec: {selector: {app: b}, ports: [{port: 80, targetPort: http}]}
---
kind: Pod
metadata: {name: dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.0.3, conditions: [{type: Ready, status: 'True'}]}
";

fn connect(to: &str, policy: &str) -> Vec<Finding> {
    let cluster = Fixture::new(&format!("{PODS}\n---\n{policy}"));
    let wanted = target::connection("default", "pod/a", to, "TCP").unwrap();
    let mut world = World::new(now(), false, inspect);
    block_on(world.explore(&cluster, |world| connection::explain(world, &wanted)))
}

fn policy(spec: &str) -> String {
    format!("kind: NetworkPolicy\nmetadata: {{name: p}}\nspec: {spec}")
}

fn troubles(to: &str, spec: &str) -> Vec<Trouble> {
    connect(to, &policy(spec)).into_iter().map(|finding| finding.trouble).collect()
}

#[test]
fn without_policies_everything_is_allowed() {
    for to in ["service/b:80", "pod/b-1:8080", "b", "b.default.svc.cluster.local:80", "10.9.9.9:443"] {
        assert!(connect(to, "").is_empty(), "{to}");
    }
}

#[test]
fn an_address_of_the_cluster_is_that_of_its_pod_or_service() {
    let service = "kind: Service\nmetadata: {name: c}\n\
                   spec: {clusterIP: 10.96.0.9, selector: {app: b}, ports: [{port: 80, targetPort: http}]}";
    let closed = policy("{podSelector: {matchLabels: {app: b}}, ingress: []}");
    let cluster = Fixture::new(&format!("{PODS}\n---\n{service}\n---\n{closed}"));
    let exit_code = |to: &str| {
        let wanted = target::connection("default", "pod/a", to, "TCP").unwrap();
        block_on(crate::run::between(&cluster, &wanted)).unwrap().exit_code()
    };
    assert_eq!(exit_code("10.1.0.2:8080"), 1, "that of a pod");
    assert_eq!(exit_code("10.96.0.9:80"), 1, "that of a Service");
    assert_eq!(exit_code("10.9.9.9:80"), 0, "outside of the cluster");
}

#[test]
fn nothing_connects_from_a_pod_that_is_not_running() {
    let causes = |status: &str| -> Vec<String> {
        let pods = PODS.replacen(
            "status: {phase: Running, podIP: 10.1.0.1, conditions: [{type: Ready, status: 'True'}]}",
            &format!("status: {status}"),
            1,
        );
        let cluster = Fixture::new(&pods);
        let wanted = target::connection("default", "pod/a", "service/b:80", "TCP").unwrap();
        let mut world = World::new(now(), false, inspect);
        let found = block_on(world.explore(&cluster, |world| connection::explain(world, &wanted)));
        found.into_iter().map(|finding| finding.cause).collect()
    };
    let done = causes("{phase: Succeeded}");
    assert_eq!(done, ["pod/a is not running (Succeeded), so nothing connects from it"]);
    let waits =
        "{phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImageNeverPull}}}]}";
    let waits = causes(waits);
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert!(
        waits[0]
            .starts_with("pod/a is not running (Pending), so nothing connects from it: container c: image "),
        "{waits:?}"
    );
}

/// It has endpoints of its own, and the pods of its namespace are none of them.
#[test]
fn a_service_without_selector_has_no_pods() {
    let closed = policy("{podSelector: {matchLabels: {app: b}}, ingress: []}");
    let service = "kind: Service\nmetadata: {name: out}\nspec: {ports: [{port: 80, targetPort: outer}]}";
    let slice = "kind: EndpointSlice\nmetadata: {name: out-1, labels: {kubernetes.io/service-name: out}}\n\
                 endpoints: [{addresses: [10.9.9.9]}]";
    let reached = connect("service/out:80", &format!("{closed}\n---\n{service}\n---\n{slice}"));
    assert!(reached.is_empty(), "{}", super::lines(&reached));
    let nowhere = connect("service/out:80", &format!("{closed}\n---\n{service}"));
    assert_eq!(nowhere[0].trouble, Trouble::ServiceWithoutEndpoints, "{}", super::lines(&nowhere));
}

fn permitted(to: &str, policy: &str) -> Option<String> {
    let cluster = Fixture::new(&format!("{PODS}\n---\n{policy}"));
    let wanted = target::connection("default", "pod/a", to, "TCP").unwrap();
    let mut world = World::new(now(), false, inspect);
    block_on(world.explore(&cluster, |world| crate::network::permitted::describe(world, &wanted)))
}

#[test]
fn what_lets_a_connection_pass_is_said() {
    let said = |text: &str| Some(format!("nothing blocks this connection: {text}"));
    assert_eq!(
        permitted("service/b:80", ""),
        said(
            "service/b has port 80/TCP; 1 of its 1 pods are ready; no policy restricts what goes into its pods; no policy restricts what goes out of pod/a"
        )
    );
    let allows = policy("{ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}");
    assert_eq!(
        permitted("pod/b-1:8080", &allows),
        said(
            "pod/b-1 is ready; no policy restricts what goes out of pod/a; networkpolicy/p lets it into pod/b-1"
        )
    );
    assert!(permitted("b:80", "").unwrap().contains("the name b is that of service/b"));
    assert!(permitted("10.9.9.9:443", "").unwrap().contains("whether something answers at 10.9.9.9"));
    assert_eq!(permitted("10.9.9.9", ""), None, "without a port, policies cannot be judged");
    assert_eq!(permitted("service/b:80", &policy("{podSelector: {}}")), None, "it is blocked");
}

#[test]
fn ingress_by_selector_port_and_name() {
    let to = |spec: &str| troubles("service/b:80", spec);
    let blocked = vec![Trouble::PolicyBlocksIngress];
    assert_eq!(to("{podSelector: {matchLabels: {app: b}}}"), blocked, "nothing is allowed");
    assert_eq!(
        to("{podSelector: {matchLabels: {app: a}}, ingress: []}"),
        NONE,
        "it is about the source's ingress"
    );
    assert_eq!(to("{podSelector: {}, ingress: [{}]}"), NONE, "everything is allowed");
    assert_eq!(to("{ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}"), NONE);
    assert_eq!(to("{ingress: [{from: [{podSelector: {matchLabels: {app: x}}}]}]}"), blocked);
    assert_eq!(to("{ingress: [{ports: [{port: http}]}]}"), NONE, "the port's name at the destination");
    assert_eq!(to("{ingress: [{ports: [{port: https}]}]}"), blocked);
    assert_eq!(to("{ingress: [{ports: [{port: 80}]}]}"), blocked, "the Service's port does not count");
    assert_eq!(to("{ingress: [{ports: [{port: 8000, endPort: 9000}]}]}"), NONE);
    assert_eq!(to("{ingress: [{ports: [{port: 8080, protocol: UDP}]}]}"), blocked);
    assert_eq!(
        to(
            "{ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}]}]}"
        ),
        NONE
    );
    assert_eq!(to("{ingress: [{from: [{namespaceSelector: {matchLabels: {team: x}}}]}]}"), blocked);
    assert_eq!(to("{ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}"), NONE);
    assert_eq!(to("{ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}]}"), blocked);
}

#[test]
fn egress_and_its_types() {
    let to = |spec: &str| troubles("pod/b-1:8080", spec);
    let blocked = vec![Trouble::PolicyBlocksEgress];
    let own = "podSelector: {matchLabels: {app: a}}";
    assert_eq!(to(&format!("{{{own}, policyTypes: [Egress]}}")), blocked);
    assert_eq!(
        to(&format!("{{{own}, egress: [{{to: [{{podSelector: {{matchLabels: {{app: x}}}}}}]}}]}}")),
        blocked
    );
    assert_eq!(
        to(&format!("{{{own}, egress: [{{to: [{{podSelector: {{matchLabels: {{app: b}}}}}}]}}]}}")),
        NONE
    );
    assert_eq!(to(&format!("{{{own}, policyTypes: [Ingress]}}")), NONE);
}

#[test]
fn the_policy_is_named() {
    let findings = connect(
        "service/b:80",
        &policy("{podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{port: 443}]}]}"),
    );
    assert_eq!(findings[0].object.to_string(), "pod/b-1");
    assert_eq!(findings[0].cause, "NetworkPolicy p does not allow a to connect to port 8080/TCP of the pod");
    assert_eq!(
        findings[0].evidence[0].text,
        "its ingress rule 1 allows connections from anyone on port 443/TCP, not on port 8080/TCP"
    );
    let reason = |spec: &str| connect("service/b:80", &policy(spec)).remove(0).evidence.remove(0).text;
    assert_eq!(
        reason("{podSelector: {matchLabels: {app: b}}}"),
        "it has no ingress rule, so it allows nothing"
    );
    assert_eq!(
        reason("{ingress: [{from: [{podSelector: {matchLabels: {app: x}}}]}]}"),
        "its ingress rule 1 allows connections from pods app=x on any port, not from the source"
    );
    assert_eq!(
        reason(
            "{policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 1}]}]}"
        ),
        "its egress rule 1 allows connections to 192.0.2.0/24 on port 1/TCP, not to the destination and not on port 8080/TCP"
    );
}

#[test]
fn names_and_queries() {
    let unknown = connect("c.default.svc:80", "");
    assert_eq!(unknown[0].trouble, Trouble::DnsNameUnknown);
    let meant = connect("bb.defalt.svc", "");
    assert!(meant[0].cause.contains("there is no namespace defalt"), "{}", meant[0].cause);
    assert!(connect("www.example.com:443", "").is_empty());
    let egress = "{podSelector: {matchLabels: {app: a}}, egress: [{to: [{podSelector: {}}]}]}";
    assert_eq!(troubles("b:80", egress), [Trouble::PolicyBlocksDns]);
    assert_eq!(
        connect("b:80", &policy(egress))[0].remedy,
        "allow egress to the pods k8s-app=kube-dns in namespace kube-system on port 53, UDP and TCP"
    );
    assert_eq!(troubles("service/b:80", egress), NONE, "a query needs a name");
    let allowed = "{podSelector: {matchLabels: {app: a}}, egress: [{to: [{podSelector: {}}]}, {to: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}]}]}";
    assert_eq!(troubles("b:80", allowed), NONE);
}

#[test]
fn dns_on_every_node_is_a_pod_for_policies() {
    let service = "kind: Service\nmetadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}\nspec: {clusterIP: 10.96.0.10, ports: [{port: 53, protocol: UDP}]}";
    let without = PODS.replace("k8s-app: kube-dns", "k8s-app: other");
    let ask = |spec: &str| {
        let cluster = Fixture::new(&format!("{without}\n---\n{service}\n---\n{}", policy(spec)));
        let wanted = target::connection("default", "pod/a", "b:80", "TCP").unwrap();
        let mut world = World::new(now(), false, inspect);
        block_on(world.explore(&cluster, |world| connection::explain(world, &wanted)))
    };
    let troubles = |spec: &str| ask(spec).iter().map(|finding| finding.trouble).collect::<Vec<_>>();
    let blocked = ask("{podSelector: {matchLabels: {app: a}}, egress: [{to: [{podSelector: {}}]}]}");
    assert_eq!(blocked[0].trouble, Trouble::PolicyBlocksDns);
    let remedy = &blocked[0].remedy;
    assert!(
        remedy.contains(
            "answers DNS at 10.96.0.10: allow egress to port 53, UDP and TCP, of ipBlock 10.96.0.10/32"
        ),
        "{remedy}"
    );
    for peer in [
        "{ipBlock: {cidr: 10.96.0.10/32}}",
        "{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}",
    ] {
        let spec = format!(
            "{{podSelector: {{matchLabels: {{app: a}}}}, egress: [{{to: [{{podSelector: {{}}}}]}}, {{to: [{peer}]}}]}}"
        );
        assert_eq!(troubles(&spec), NONE, "the remedy works: {peer}");
    }
    assert_eq!(
        troubles(
            "{podSelector: {matchLabels: {app: a}}, egress: [{to: [{podSelector: {}}]}, {ports: [{port: 53, protocol: UDP}]}]}"
        ),
        NONE
    );
    assert!(super::look_around(service).is_empty(), "the Service has no endpoints, which is intended");
}

#[test]
fn ports_of_services_and_pods() {
    let findings = connect("service/b:81", "");
    assert_eq!(findings[0].trouble, Trouble::ServicePortMissing);
    assert_eq!(findings[0].cause, "the Service has no port 81/TCP, only 80/TCP");
    assert_eq!(connect("pod/b-1:9999", "")[0].trouble, Trouble::PodPortUndeclared);
}

#[test]
fn addresses_outside() {
    let egress = "{podSelector: {matchLabels: {app: a}}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}";
    assert_eq!(troubles("192.0.2.1:443", egress), [Trouble::PolicyBlocksEgress]);
    assert_eq!(troubles("10.2.0.1:443", egress), NONE);
}

#[test]
fn backends_with_the_same_answer_are_one() {
    let more = "
kind: Pod
metadata: {name: b-2, labels: {app: b}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIP: 10.1.0.4, conditions: [{type: Ready, status: 'True'}]}";
    let spec = "{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}";
    let found = connect("service/b:80", &format!("{more}\n---\n{}", policy(spec)));
    let causes: Vec<&str> = found.iter().map(|finding| finding.cause.as_str()).collect();
    assert_eq!(
        causes,
        [
            "2 of 2 backends: NetworkPolicy p does not allow the pod to connect to the pods of service/b on port 8080/TCP"
        ]
    );
    let spec = "{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}";
    let found = connect("service/b:80", &format!("{more}\n---\n{}", policy(spec)));
    assert_eq!((found.len(), found[0].others.len()), (1, 1));
    assert!(found[0].cause.starts_with("2 of 2 backends: "), "{}", found[0].cause);
}

#[test]
fn ends_in_other_namespaces() {
    let dotted = "
kind: Pod
metadata: {name: b.shop}
spec: {nodeName: n1, containers: [{name: c, ports: [{containerPort: 8080}]}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}";
    let ask = |from: &str, to: &str| {
        let cluster = Fixture::new(&format!("{PODS}\n---\n{dotted}"));
        let wanted = target::connection("default", from, to, "TCP").unwrap();
        let report =
            block_on(crate::run::between(&cluster, &wanted)).map_err(|problem| problem.to_string())?;
        let names = report.objects.iter().map(|object| object.arguments());
        Ok::<_, String>(names.collect::<Vec<_>>().join(" "))
    };
    let expected = Ok("pod/dns -n kube-system pod/b-1 -n default".to_owned());
    for from in ["pod/dns.kube-system", "kube-system/pod/dns", "kube-system/dns"] {
        for to in ["pod/b-1:8080", "pod/b-1.default:8080", "default/pod/b-1:8080"] {
            assert_eq!(ask(from, to), expected, "{from} {to}");
        }
    }
    assert_eq!(ask("a", "pod/b.shop").unwrap(), "pod/a -n default pod/b.shop -n default", "names have dots");
    assert_eq!(
        ask("pod/x.shop", "pod/b-1"),
        Err("pod/x does not exist: there is no namespace shop".to_owned())
    );
}
