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
    (Trouble::ServiceNotReady, "svc/web", "none of the 1 pods of the Service is ready", "
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
kind: Pod
metadata: {name: a, labels: {app: web}, creationTimestamp: '2026-01-01T11:59:50Z'}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, containerStatuses: [{name: c, state: {running: {}}}]}
"),
    (Trouble::ServiceWithoutEndpoints, "svc/web", "no selector, and there are no EndpointSlices", "
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
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
