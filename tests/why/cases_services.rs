//! Services and Ingresses; none of them needs a node.

use crate::case::{Case, idle, object, pod};

fn service(spec: &str) -> String {
    object("v1", "Service", "s", &format!("spec: {{{spec}}}"))
}

fn of(trouble: &'static str, spec: &str) -> Case {
    Case::new(trouble, "service/s", "Service/s", &service(spec))
}

fn ingress(trouble: &'static str, spec: &str) -> Case {
    let manifest = object("networking.k8s.io/v1", "Ingress", "i", &format!("spec: {{{spec}}}"));
    let class =
        object("networking.k8s.io/v1", "IngressClass", "$NS", "spec: {controller: example.com/nginx}");
    // Its Service leads to an address that somebody wrote.
    let slice = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, labels: {kubernetes.io/service-name: s}}, \
                 addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [192.0.2.1]}]}";
    Case::new(trouble, "ingress/i", "Ingress/i", &manifest)
        .with(slice)
        .with(&service("ports: [{port: 80}]"))
        .with(&class)
}

fn backend(service: &str, port: u16) -> String {
    format!("defaultBackend: {{service: {{name: {service}, port: {{number: {port}}}}}}}")
}

pub fn cases() -> Vec<Case> {
    let class = "ingressClassName: $NS";
    let good = backend("s", 80);
    vec![
        of("service-selector-matches-nothing", "selector: {app: wbe}, ports: [{port: 80}]")
            .with(&pod("web", &idle()))
            .because("has app=web instead of app=wbe")
            .says("pod web: app=web", "kubectl edit service/s"),
        of("service-target-port-name-unknown", "selector: {app: web}, ports: [{port: 80, targetPort: htpt}]")
            .with(&pod(
                "web",
                "containers: [{name: c, image: busybox, ports: [{name: http, containerPort: 8080}]}]",
            ))
            .because("port 80 leads to the target port htpt, which no selected pod has")
            .says("8080 (http)", "spec.ports[].targetPort")
            .undated(),
        of("service-without-endpoints", "ports: [{port: 80}]")
            .because("there are no EndpointSlices")
            .says("field spec.selector: none", "spec.selector")
            .mended_by("delete service s")
            .mended_by("create service externalname s --external-name=example.com"),
        of("service-external-name-unknown", "type: ExternalName, externalName: wb.$NS.svc.cluster.local")
            .with(&object("v1", "Service", "web", "spec: {type: ExternalName, externalName: example.com}"))
            .because("the closest that exists is web")
            .says("field spec.externalName: wb.", "spec.externalName"),
        of("load-balancer-pending", "type: LoadBalancer, selector: {app: nobody}, ports: [{port: 80}]")
            .because("nobody makes a load balancer")
            .says("field status.loadBalancer.ingress: none", "NodePort")
            .also(&["service-selector-matches-nothing"]),
        ingress("ingress-service-missing", &format!("{class}, {}", backend("ss", 80)))
            .because("the closest that exists is s")
            .says("service.name: ss", "create the Service ss"),
        ingress("ingress-port-missing", &format!("{class}, {}", backend("s", 81)))
            .because("has no port 81, only 80")
            .says("ports of the Service: 80", "correct the backend"),
        ingress("ingress-class-missing", &format!("ingressClassName: $NSx, {good}"))
            .because("the closest that exists is w-ingress-class-missing")
            .says("field spec.ingressClassName", "kubectl get ingressclass")
            .mended_by(r#"patch ingress i --type=merge -p '{"spec":{"ingressClassName":"$NS"}}'"#),
        ingress("ingress-secret-missing", &format!("{class}, {good}, tls: [{{secretName: cert}}]"))
            .because("the TLS Secret cert does not exist")
            .says("secretName: cert", "kubectl create secret tls cert"),
    ]
}

/// A TLS Secret whose certificate has ended; `certificate` is base64 of PEM.
pub fn ended_certificate(certificate: &str) -> Case {
    let secret = object("v1", "Secret", "cert", &format!("data: {{tls.crt: {certificate}, tls.key: ''}}"));
    let spec = format!("ingressClassName: $NS, {}, tls: [{{secretName: cert}}]", backend("s", 80));
    ingress("certificate-ended", &spec)
        .with(&secret)
        .because("ended at")
        .says("clock of this analysis", "renew the certificate")
}
