//! Pods without a node.

use crate::case::{Case, busybox, deployment, idle, object, pod};

fn asking(resource: &str) -> String {
    busybox(&format!("command: [sleep, '100000'], resources: {{requests: {{{resource}}}}}"))
}

fn apart(rule: &str) -> String {
    format!("{rule}, {}", idle())
}

pub fn cases() -> Vec<Case> {
    let on = |node: &str| format!("nodeSelector: {{kubernetes.io/hostname: {node}}}, ");
    let port = busybox("command: [sleep, '100000'], ports: [{containerPort: 80, hostPort: 18080}]");
    let small = "tolerations: [{key: example.com/small, operator: Exists}], ";
    let hostname = "topologyKey: kubernetes.io/hostname";
    let same = "labelSelector: {matchLabels: {app: d}}";
    let anti = format!(
        "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{{hostname}, {same}}}]}}}}"
    );
    let near = format!(
        "affinity: {{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
         [{{{hostname}, labelSelector: {{matchLabels: {{app: nobody}}}}}}]}}}}"
    );
    let nowhere = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
                   [{matchExpressions: [{key: zone, operator: In, values: [nowhere]}]}]}}}";
    let spread = format!(
        "topologySpreadConstraints: [{{maxSkew: 1, {hostname}, whenUnsatisfiable: DoNotSchedule, {same}}}]"
    );
    let of_pods = |case: Case| case.asked("deployment/d").of("Pod/d-");
    vec![
        Case::pod("insufficient-cpu", &asking("cpu: '1000'"))
            .because("none of the 3 nodes can run the pod (3 without enough cpu")
            .says("Insufficient cpu", "lower resources.requests"),
        Case::pod("insufficient-memory", &asking("memory: 10Ti"))
            .because("none of the 3 nodes can run the pod (3 without enough memory")
            .says("Insufficient memory", "lower resources"),
        Case::pod("insufficient-ephemeral-storage", &asking("ephemeral-storage: 1Pi"))
            .because("none of the 3 nodes can run the pod (3 without enough ephemeral storage")
            .says("Insufficient ephemeral-storage", "lower resources"),
        Case::pod(
            "insufficient-extended-resource",
            &busybox("resources: {limits: {example.com/gpu: 1}}, command: [sleep, '100000']"),
        )
        .because("none of the 3 nodes can run the pod (3 without enough of another resource")
        .says("example.com/gpu", "add a node"),
        of_pods(Case::new(
            "insufficient-pods",
            "",
            "",
            &deployment("replicas: 4", &format!("{small}{}{}", on("node-3"), idle())),
        ))
        .because("; node-3 has 3 of 3 pods")
        .says("has 3 of 3 pods", "maxPods"),
        Case::pod("untolerated-taint", &format!("{}{}", on("node-3"), idle()))
            .because("; node-3 has the taint example.com/small=yes:NoSchedule")
            .says("has the taint example.com/small=yes:NoSchedule", "kubectl taint node"),
        Case::pod("node-selector-mismatch", &format!("nodeSelector: {{w-disk: ssd}}, {}", idle()))
            .because("none of the 3 nodes can run the pod (3 without the labels of spec.nodeSelector")
            .says("has no label w-disk=ssd", "kubectl label node")
            .mended_by("label node node-2 w-disk=ssd"),
        Case::pod("node-affinity-mismatch", &apart(nowhere))
            .because("none of the 3 nodes can run the pod (3 outside of the node affinity")
            .says("zone In nowhere", "nodeAffinity"),
        Case::pod("pod-affinity-unsatisfied", &apart(&near))
            .because("none of the 3 nodes can run the pod (3 without the pods of the pod affinity")
            .says("has no pod with app=nobody", "podAffinity"),
        of_pods(Case::new("pod-anti-affinity-conflict", "", "", &deployment("replicas: 3", &apart(&anti))))
            .because("none of the 3 nodes can run the pod (2 with pods that the anti-affinity excludes")
            .says("which anti-affinity excludes", "run fewer replicas"),
        of_pods(Case::new(
            "topology-spread-unsatisfied",
            "",
            "",
            &deployment("replicas: 3", &apart(&spread)),
        ))
        .because("none of the 3 nodes can run the pod (2 beyond the topology spread")
        .says("more than maxSkew 1 apart", "raise maxSkew"),
        Case::pod("host-port-taken", &format!("{}{port}", on("node-1")))
            .with(&pod("first", &format!("{}{port}", on("node-1"))))
            .because("; node-1 has host port 18080/TCP taken by pod w-host-port-taken/first")
            .says("has host port 18080/TCP taken by pod", "another hostPort"),
        volume_conflict(&on("node-1")),
        Case::pod("scheduler-absent", &format!("schedulerName: nobody, {}", idle()))
            .because("nobody does not run")
            .says("field spec.schedulerName", "start a scheduler named nobody"),
        Case::pod("node-name-missing", &format!("nodeName: ghost, {}", idle()))
            .because("the pod is bound to node ghost, which does not exist")
            .says("field spec.nodeName: ghost", "kubectl delete pod/p")
            .alone(),
        Case::pod("unschedulable", &format!("{}{}", on("node-1"), asking("cpu: '1000'")))
            .with(&object(
                "rbac.authorization.k8s.io/v1",
                "Role",
                "reader",
                "rules: [{apiGroups: [''], resources: [pods, events], verbs: [get, list]}]",
            ))
            .with(&object(
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                "reader",
                "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, \
                 subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: w-reader}]",
            ))
            .asked("pod/p --as w-reader")
            .because("the scheduler finds no node: ")
            .says("nodes could not be read", "what the scheduler's message names")
            .alone(),
    ]
}

/// A pod that must run on one node, with a volume that is on another.
fn volume_conflict(here: &str) -> Case {
    let volume = "spec: {capacity: {storage: 1Mi}, accessModes: [ReadWriteOnce], storageClassName: w-static, \
                  hostPath: {path: /tmp}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: \
                  [{key: kubernetes.io/hostname, operator: In, values: [node-2]}]}]}}}";
    let claim = "spec: {storageClassName: w-static, volumeName: $NS, accessModes: [ReadWriteOnce], \
                 resources: {requests: {storage: 1Mi}}}";
    let spec =
        format!("{here}volumes: [{{name: v, persistentVolumeClaim: {{claimName: data}}}}], {}", idle());
    Case::pod("volume-node-affinity-conflict", &spec)
        .with(&object("v1", "PersistentVolumeClaim", "data", claim))
        .with(&object("v1", "PersistentVolume", "$NS", volume))
        .because("; node-1 is not one of the nodes of persistentvolume/w-volume-node-affinity-conflict")
        .says(
            "is not one of the nodes of persistentvolume/w-volume-node",
            "let the pod run where its volume is",
        )
}
