//! Objects that are no workloads; none of them needs a node.

use crate::case::{Case, deployment, idle, object};

/// A certificate signing request of `CN=somebody`, base64 of PEM.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITk1IVUNBUUF3RXpFUk1BOEdBMVVFQXd3SWMyOXRaV0p2Wkhrd1dUQVRCZ2NxaGtqT1BRSUJCZ2dxaGtqTwpQUU1CQndOQ0FBU1RFczZKN3hOeFovOEM5MEtUVmttUFNteGlSSmJJaEtoWW5LMm1CSzVTL2xpMnlRRG9aSUtyCkRnSmJQaHdubHNGdytaRWpiWjFzN0RjcDlrQldlTHFhb0FBd0NnWUlLb1pJemowRUF3SURTQUF3UlFJZ0ttN1oKb1Q4YWhiZFVaUlJkeEg4Tk04SVNIL1V0bTloQzMrTFJ5U1dlckdJQ0lRRDVrMFlYalZQZFE5bUx1Si9TL1pUbApqN2t0Z2FIRXdkM1NjWWNPUCtjWE5RPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

fn request(trouble: &'static str) -> Case {
    let spec = format!("spec: {{request: {REQUEST}, signerName: example.com/nobody, usages: [client auth]}}");
    let manifest = object("certificates.k8s.io/v1", "CertificateSigningRequest", "$NS", &spec);
    Case::new(trouble, "csr/$NS", "CertificateSigningRequest/$NS", &manifest)
}

fn autoscaler(trouble: &'static str, target: &str, metric: &str) -> Case {
    let spec = format!(
        "spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {target}}}, maxReplicas: 2, metrics: [{metric}]}}"
    );
    let manifest = object("autoscaling/v2", "HorizontalPodAutoscaler", "h", &spec);
    Case::new(trouble, "hpa/h", "HorizontalPodAutoscaler/h", &manifest)
        .with(&deployment("replicas: 1", &idle()))
}

fn definition(group: &str, plural: &str, kind: &str) -> String {
    let schema = "schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    let spec = format!(
        "spec: {{group: {group}, scope: Namespaced, names: {{plural: {plural}, singular: {plural}1, kind: {kind}}}, \
         versions: [{{name: v1, served: true, storage: true, {schema}}}]}}"
    );
    object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &format!("{plural}.{group}"), &spec)
}

pub fn cases() -> Vec<Case> {
    let hook = "webhooks: [{name: down.example.com, failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], \
                clientConfig: {service: {namespace: $NS, name: nobody}}, \
                rules: [{apiGroups: [nothing.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}]}]";
    let external = "{type: External, external: {metric: {name: queue}, target: {type: Value, value: '1'}}}";
    let of_pods =
        "{type: Pods, pods: {metric: {name: rps}, target: {type: AverageValue, averageValue: '1'}}}";
    let cpu = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}";
    let held = "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}";
    let broken = "{apiVersion: w-condition.example.com/v1, kind: Machine, metadata: {name: m}, \
                  status: {conditions: [{type: Ready, status: 'False', reason: NoDisk, message: the disk is away}]}}";
    vec![
        Case::new("finalizer-blocks-deletion", "configmap/held", "ConfigMap/held", held)
            .then("delete configmap held --wait=false")
            .because("ConfigMap is being deleted, and the finalizer example.com/hold keeps it")
            .says("example.com/hold", "kubectl patch configmap/held")
            .alone(),
        Case::new("namespace-finalizers-remain", "namespace/$NS", "Namespace/$NS", held)
            .then("delete namespace $NS --wait=false")
            .because("objects in the namespace have finalizers that nobody removes: ")
            .says("example.com/hold", "configmap/held holds the namespace"),
        request("signing-request-pending")
            .because("to the signer example.com/nobody waits for approval")
            .says("client auth", "kubectl certificate approve"),
        request("signing-request-denied")
            .then("certificate deny $NS")
            .because("the request was denied")
            .says("condition Denied", "delete the request"),
        autoscaler("autoscaler-without-metrics", "d", external)
            .because("the autoscaler gets no metrics: ")
            .says("ScalingActive", "external.metrics.k8s.io"),
        autoscaler("autoscaler-without-metrics", "d", of_pods)
            .named("autoscaler-without-custom-metrics")
            .because("the autoscaler gets no metrics: ")
            .says("FailedGetPodsMetric", "custom.metrics.k8s.io"),
        autoscaler("autoscaler-target-missing", "dd", cpu)
            .because("the closest that exists is d")
            .says("condition AbleToScale", "spec.scaleTargetRef"),
        Case::new(
            "webhook-down",
            "validatingwebhookconfiguration/$NS",
            "ValidatingWebhookConfiguration/$NS",
            &object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "$NS", hook),
        )
        .because("does not exist")
        .says("field failurePolicy: Fail", "delete the configuration")
        .undated(),
        Case::new(
            "definition-not-accepted",
            "crd/boats.w-crd.example.com",
            "CustomResourceDefinition/boats.w-crd.example.com",
            &definition("w-crd.example.com", "boats", "Ship"),
        )
        .with(&definition("w-crd.example.com", "ships", "Ship"))
        .because("the definition is not served as it should be: ")
        .says("condition ", "spec.names"),
        Case::new("condition-false", "machine/m", "Machine/m", broken)
            .with(&definition("w-condition.example.com", "machines", "Machine"))
            .because("its condition Ready is false: NoDisk: the disk is away")
            .says("the disk is away", "controller")
            .undated()
            .alone(),
    ]
}

/// A webhook whose authority has ended; `certificate` is base64 of PEM.
pub fn ended_authority(certificate: &str) -> Case {
    let hook = format!(
        "webhooks: [{{name: old.example.com, failurePolicy: Ignore, sideEffects: None, admissionReviewVersions: [v1], \
         clientConfig: {{url: 'https://127.0.0.1:9/', caBundle: {certificate}}}, \
         rules: [{{apiGroups: [nothing.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}}]}}]"
    );
    let manifest = object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "$NS", &hook);
    Case::new(
        "certificate-ended",
        "mutatingwebhookconfiguration/$NS",
        "MutatingWebhookConfiguration/$NS",
        &manifest,
    )
    .named("certificate-of-a-webhook")
    .because("ended at")
    .says("clock of this analysis", "renew the certificates of the webhook")
}

/// Troubles that would get in the way of others on the same server: an API that is away, and nodes that nobody runs.
pub fn apart() -> Vec<Case> {
    let service = "spec: {group: $NS.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, \
                   insecureSkipTLSVerify: true, service: {namespace: $NS, name: nobody}}";
    let api = |name: &str| {
        object(
            "apiregistration.k8s.io/v1",
            "APIService",
            &format!("v1.{name}.example.com"),
            &service.replace("$NS", name),
        )
    };
    let pressure = |trouble: &'static str, condition: &str, remedy: &'static str| {
        let status = format!(
            r#"{{"status":{{"conditions":[{{"type":"Ready","status":"True"}},{{"type":"{condition}","status":"True","reason":"Made","message":"by hand"}}]}}}}"#
        );
        Case::new(trouble, "node/$NS", "Node/$NS", "{apiVersion: v1, kind: Node, metadata: {name: $NS}}")
            .then(&format!("patch node $NS --subresource=status --type=strategic -p '{status}'"))
            .says("by hand", remedy)
            .undated()
            .alone()
    };
    let lease = "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: $NS, namespace: kube-node-lease}, \
                 spec: {holderIdentity: $NS, leaseDurationSeconds: 40, renewTime: '2099-01-01T00:00:00.000000Z'}}";
    vec![
        Case::new(
            "api-service-unavailable",
            "apiservice/v1.w-api-service-unavailable.example.com",
            "APIService/v1.w-api-service-unavailable.example.com",
            &api("w-api-service-unavailable"),
        )
        .because("the Service nobody does not exist in namespace w-api-service-unavailable")
        .says("condition Available", "kubectl delete apiservice"),
        Case::new(
            "namespace-discovery-fails",
            "namespace/$NS",
            "Namespace/$NS",
            &object("v1", "ConfigMap", "c", "data: {}"),
        )
        .with(&api("w-namespace-discovery-fails"))
        .then("delete namespace $NS --wait=false")
        .also(&["api-service-unavailable"])
        .because("an API cannot be listed, so it is not known whether the namespace is empty: ")
        .says("NamespaceDeletionDiscoveryFailure", "kubectl get apiservice"),
        pressure("node-memory-pressure", "MemoryPressure", "kubectl top pods")
            .because("the node is short of memory"),
        pressure("node-pid-pressure", "PIDPressure", "process ids")
            .because("the node is short of process ids"),
        pressure("node-network-unavailable", "NetworkUnavailable", "start the network plugin")
            .because("the node has no pod network"),
        pressure("clock-skew", "Example", "")
            .with(lease)
            .because("s ahead of the API server's")
            .says("lease renewed at", "synchronize the clock"),
        feature_missing(),
    ]
}

/// A pod that only goes to a node which declares no features. It tolerates that nobody runs the node.
fn feature_missing() -> Case {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: $NS, labels: {w-feature: none}}}";
    let spec = "nodeSelector: {w-feature: none}, tolerations: [{operator: Exists}], \
                containers: [{name: c, image: busybox, restartPolicy: Never, \
                restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [3]}}]}]";
    Case::pod("node-feature-missing", spec)
        .with(node)
        .because("w-node-feature-missing does not declare RestartAllContainersOnContainerExits")
        .says("node w-node-feature-missing: does not declare", "upgrade the nodes")
}
