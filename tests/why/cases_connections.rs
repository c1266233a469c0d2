//! Connections between pods: policies, ports, names.

use crate::case::{Case, busybox, idle, object, pod};

/// A client `a`, a server `b`, and a Service `b` on port 80.
fn ends(trouble: &'static str, to: &str, at: &str) -> Case {
    let server = busybox("command: [httpd, -f, -p, '8080'], ports: [{containerPort: 8080}]");
    let service = "spec: {selector: {app: b}, ports: [{port: 80, targetPort: 8080}]}";
    Case::new(trouble, &format!("--from pod/a --to {to}"), at, &pod("a", &idle()))
        .with(&pod("b", &server))
        .with(&object("v1", "Service", "b", service))
        .then("wait --for=condition=Ready pod/a pod/b --timeout=120s")
        // Policies, ports and names may have been changed at any time.
        .undated()
}

fn policy(spec: &str) -> String {
    object("networking.k8s.io/v1", "NetworkPolicy", "guard", &format!("spec: {{{spec}}}"))
}

pub fn cases() -> Vec<Case> {
    let within =
        "podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]";
    vec![
        ends("network-policy-blocks-ingress", "service/b:80", "Pod/b")
            .with(&policy("podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]"))
            .because("NetworkPolicy guard does not allow a to connect to port 8080/TCP of the pod")
            .says("networkpolicy/guard", "spec.ingress")
            .mended_by("delete networkpolicy guard"),
        ends("network-policy-blocks-egress", "service/b:80", "Pod/a")
            .with(&policy("podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]"))
            .because("guard does not allow the pod to connect to the pods of service/b on port 8080/TCP")
            .says("networkpolicy/guard", "spec.egress")
            .mended_by("delete networkpolicy guard"),
        ends("network-policy-blocks-dns", "b.$NS.svc:80", "Pod/a")
            .with(&policy(within))
            .because("the cluster's DNS")
            .says("networkpolicy/guard", "k8s-app=kube-dns"),
        ends("service-port-missing", "service/b:81", "Service/b")
            .because("only 80/TCP")
            .says("field spec.ports: 80/TCP", "connect to a port of the Service"),
        ends("dns-name-unknown", "bb.$NS.svc:80", "Pod/a")
            .because("the closest that exists is b")
            .says("name: bb.", "use b.w-"),
        ends("pod-port-undeclared", "pod/b:9999", "Pod/b")
            .because("only 8080")
            .says("ports of the pod: 8080", "port on which the program listens"),
    ]
}
