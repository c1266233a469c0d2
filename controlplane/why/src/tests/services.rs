use super::Case;
use crate::trouble::Trouble;

pub const CASES: &[Case] = &[
    (Trouble::ServiceSelector, "svc/web", "the selector app=web matches no pod in namespace default; the closest, pod a, has app=wbe instead of app=web", "
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
kind: Pod
metadata: {name: a, labels: {app: wbe}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
"),
    (Trouble::ServiceTargetPortName, "svc/web", "leads to the target port htpt, which no selected pod has; the closest that exists is http", "
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: htpt}]}
---
kind: Pod
metadata: {name: a, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
"),
    (Trouble::ServiceTargetPort, "svc/web", "port 80 leads to port 8081, which the selected pods do not declare: they declare 8080", "
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8081}]}
---
kind: Pod
metadata: {name: a, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, ports: [{containerPort: 8080}]}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
"),
    (Trouble::ServiceNotReady, "svc/web", "the only pod of the Service is not ready", "
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
kind: Pod
metadata: {name: a, labels: {app: web}, creationTimestamp: '2026-01-01T11:59:40Z'}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, containerStatuses: [{name: c, state: {running: {}}}]}
"),
    (Trouble::ServiceSelector, "svc/nosel", "the closest, pod a, has app=db instead of app=database", "
kind: Service
metadata: {name: nosel}
spec: {selector: {app: database}, ports: [{port: 80}]}
---
kind: Pod
metadata: {name: a, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
"),
    (Trouble::ServiceWithoutEndpoints, "svc/web", "no selector, and there are no EndpointSlices", "
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
"),
    (Trouble::ServiceNotReady, "svc/web", "none of the endpoints in its EndpointSlices is ready", "
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
endpoints: [{addresses: [10.0.0.1], conditions: {ready: false}}]
"),
    (Trouble::ApiServerUnpublished, "svc/kubernetes", "so pods do not reach the API: 127.0.0.1:6443 is a loopback address", "
kind: Service
metadata: {name: kubernetes}
spec: {ports: [{port: 443}]}
---
kind: Lease
metadata: {name: apiserver-1, namespace: kube-system, labels: {apiserver.kubernetes.io/identity: kube-apiserver}, annotations: {coracle.dev/peer-address: '127.0.0.1:6443'}}
"),
    (Trouble::ApiServerUnpublished, "svc/kubernetes", "api.example.com:6443 is a name, and endpoints are addresses", "
kind: Service
metadata: {name: kubernetes}
spec: {ports: [{port: 443}]}
---
kind: Lease
metadata: {name: apiserver-1, namespace: kube-system, labels: {apiserver.kubernetes.io/identity: kube-apiserver}, annotations: {coracle.dev/peer-address: 'api.example.com:6443'}}
"),
    (Trouble::ServiceWithoutEndpoints, "svc/kubernetes", "no selector, and there are no EndpointSlices", "
kind: Service
metadata: {name: kubernetes}
spec: {ports: [{port: 443}]}
---
kind: Lease
metadata: {name: apiserver-1, namespace: kube-system, labels: {apiserver.kubernetes.io/identity: kube-apiserver}}
"),
    (Trouble::ServiceExternalName, "svc/alias", "there is no Service wb in namespace default; the closest that exists is web", "
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: wb.default.svc.cluster.local}
---
kind: Service
metadata: {name: web}
spec: {type: ExternalName, externalName: example.com}
"),
    (Trouble::LoadBalancerPending, "svc/web", "nobody makes a load balancer for the Service", "
kind: Service
metadata: {name: web, creationTimestamp: '2026-01-01T11:00:00Z'}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}
---
kind: Pod
metadata: {name: a, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
"),
    (Trouble::QuotaRefuses, "svc/web", "the quota small refuses new pods", "
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 1, template: {metadata: {labels: {app: web}}}}
status: {conditions: [{type: ReplicaFailure, status: 'True', message: 'exceeded quota: small, requested: pods=1'}]}
"),
    (Trouble::IngressServiceMissing, "ingress/site", "the Service wbe does not exist; the closest that exists is web", "
kind: IngressClass
metadata: {name: nginx}
---
kind: Service
metadata: {name: web}
spec: {type: ExternalName, externalName: example.com}
---
kind: Ingress
metadata: {name: site}
spec: {ingressClassName: nginx, rules: [{http: {paths: [{path: /, backend: {service: {name: wbe, port: {number: 80}}}}]}}]}
"),
    (Trouble::IngressPortMissing, "ingress/site", "the Service web has no port 81, only 80", "
kind: IngressClass
metadata: {name: nginx}
---
kind: Service
metadata: {name: web}
spec: {type: ExternalName, externalName: example.com, ports: [{port: 80}]}
---
kind: Ingress
metadata: {name: site}
spec: {ingressClassName: nginx, defaultBackend: {service: {name: web, port: {number: 81}}}}
"),
    (Trouble::IngressClassMissing, "ingress/site", "the ingress class ngnix does not exist; the closest that exists is nginx", "
kind: IngressClass
metadata: {name: nginx}
---
kind: Ingress
metadata: {name: site}
spec: {ingressClassName: ngnix}
"),
    (Trouble::IngressSecretMissing, "ingress/site", "the TLS Secret site-tls does not exist", "
kind: IngressClass
metadata: {name: nginx}
---
kind: Ingress
metadata: {name: site}
spec: {ingressClassName: nginx, tls: [{secretName: site-tls}]}
"),
];

#[test]
fn pods_that_have_just_been_made_are_no_trouble() {
    let yaml = |created: &str| {
        format!(
            "
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80}}]}}
---
kind: Pod
metadata: {{name: a, labels: {{app: web}}, creationTimestamp: '{created}'}}
spec: {{nodeName: n1, containers: [{{name: c, readinessProbe: {{initialDelaySeconds: 2}}}}]}}
status: {{phase: Running, containerStatuses: [{{name: c, state: {{running: {{startedAt: '{created}'}}}}}}]}}
"
        )
    };
    let young = yaml("2026-01-01T11:59:49Z");
    assert!(super::look_around(&young).is_empty(), "{}", super::lines(&super::look_around(&young)));
    assert_eq!(super::explain(&young, "svc/web")[0].cause, "the pod of the Service is starting");
    let late = super::look_around(&yaml("2026-01-01T11:59:48Z"));
    assert_eq!(late[0].trouble, Trouble::ServiceNotReady, "{}", super::lines(&late));
}

#[test]
fn a_service_has_no_endpoints_since_the_last_one_left() {
    let slice = |fields: &str| {
        format!(
            "
kind: Service
metadata: {{name: web, creationTimestamp: '2026-01-01T08:00:00Z'}}
spec: {{selector: {{app: web}}, ports: [{{port: 80}}]}}
---
kind: EndpointSlice
metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}, {fields}}}
---
kind: Pod
metadata: {{name: a, labels: {{tier: front}}}}
spec: {{nodeName: n1, containers: [{{name: c}}]}}
status: {{phase: Running, conditions: [{{type: Ready, status: 'True'}}]}}
"
        )
    };
    let found = |fields: &str| super::explain(&slice(fields), "svc/web").remove(0);
    let written = found("generation: 3, managedFields: [{time: '2026-01-01T11:40:00Z'}]");
    assert_eq!(written.since.as_deref(), Some("2026-01-01T11:40:00Z"));
    assert!(written.evidence.iter().any(|fact| fact.text == "pod a: tier=front"));
    assert_eq!(found("generation: 3").since, None, "pods were there");
    assert_eq!(found("generation: 1").since.as_deref(), Some("2026-01-01T08:00:00Z"));
}
