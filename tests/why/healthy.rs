//! A cluster on which nothing is wrong, with every kind of workload.

use crate::case::{busybox, object};
use crate::run::Run;
use std::time::Instant;

const NAMESPACE: &str = "well";

fn template(app: &str, spec: &str) -> String {
    format!(
        "selector: {{matchLabels: {{app: {app}}}}}, template: {{metadata: {{labels: {{app: {app}}}}}, \
         spec: {{terminationGracePeriodSeconds: 1, {spec}}}}}"
    )
}

fn manifests() -> String {
    let probe = "{httpGet: {path: /, port: web}, periodSeconds: 1}";
    let web = format!(
        "containers: [{{name: c, image: nginx, ports: [{{name: web, containerPort: 80}}], readinessProbe: {probe}, \
         livenessProbe: {probe}, startupProbe: {probe}, envFrom: [{{configMapRef: {{name: settings}}}}], \
         resources: {{requests: {{cpu: 10m, memory: 16Mi}}, limits: {{memory: 256Mi}}}}, \
         lifecycle: {{postStart: {{exec: {{command: ['true']}}}}, preStop: {{exec: {{command: ['true']}}}}}}, \
         volumeMounts: [{{name: keys, mountPath: /keys}}]}}], volumes: [{{name: keys, secret: {{secretName: keys}}}}], \
         initContainers: [{{name: i, image: busybox, command: ['true']}}]"
    );
    let sleeps = busybox("command: [sleep, '100000'], volumeMounts: [{name: data, mountPath: /data}]");
    let idle = busybox("command: [sleep, '100000']");
    let claim = "volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
                 resources: {requests: {storage: 1Mi}}}}]";
    let once = "template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ['true']}]}}";
    let ports = "ports: [{port: 80, targetPort: web}]";
    [
        object("v1", "ConfigMap", "settings", "data: {a: b}"),
        object("v1", "Secret", "keys", "stringData: {a: b}"),
        object("v1", "Service", "web", &format!("spec: {{selector: {{app: web}}, {ports}}}")),
        object("v1", "Service", "balanced", &format!("spec: {{type: LoadBalancer, selector: {{app: web}}, {ports}}}")),
        object("v1", "Service", "db", "spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}"),
        object("v1", "Service", "alias", "spec: {type: ExternalName, externalName: web.well.svc.cluster.local}"),
        object("v1", "ResourceQuota", "quota", "spec: {hard: {pods: '50'}}"),
        object("apps/v1", "Deployment", "web", &format!("spec: {{replicas: 2, {}}}", template("web", &web))),
        object("apps/v1", "StatefulSet", "db", &format!("spec: {{serviceName: db, replicas: 2, {claim}, {}}}", template("db", &sleeps))),
        object("apps/v1", "DaemonSet", "each", &format!("spec: {{{}}}", template("each", &idle))),
        object("apps/v1", "ReplicaSet", "set", &format!("spec: {{replicas: 1, {}}}", template("set", &idle))),
        object("batch/v1", "Job", "once", &format!("spec: {{{once}}}")),
        object("batch/v1", "CronJob", "yearly", &format!("spec: {{schedule: '0 0 1 1 *', jobTemplate: {{spec: {{{once}}}}}}}")),
        object("policy/v1", "PodDisruptionBudget", "web", "spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}"),
        object("autoscaling/v2", "HorizontalPodAutoscaler", "web", "spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, \
            minReplicas: 2, maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 100000}}}]}"),
        object("networking.k8s.io/v1", "IngressClass", "well", "spec: {controller: example.com/ingress}"),
        object("networking.k8s.io/v1", "Ingress", "web", "spec: {ingressClassName: well, rules: [{http: {paths: [{path: /, pathType: Prefix, \
            backend: {service: {name: web, port: {number: 80}}}}]}}]}"),
        object("networking.k8s.io/v1", "NetworkPolicy", "web", "spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], \
            ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: web}]}]}"),
    ]
    .join("\n---\n")
}

/// Makes them, waits until all run, and asks: nothing may be named.
pub fn check(run: &Run) {
    let (k, begun) = (&run.kubectl, Instant::now());
    k.run(&format!("create namespace {NAMESPACE}"));
    coracle_tests::eventually("its account", std::time::Duration::from_secs(60), || {
        k.try_with(&format!("-n {NAMESPACE} get serviceaccount default"), "").ok
    });
    k.run_with(&format!("-n {NAMESPACE} apply --validate=false -f -"), &manifests());
    for line in [
        "rollout status deployment/web --timeout=150s",
        "rollout status statefulset/db --timeout=150s",
        "rollout status daemonset/each --timeout=150s",
        "wait --for=condition=Complete job/once --timeout=150s",
        "wait --for=jsonpath={.status.readyReplicas}=1 replicaset/set --timeout=150s",
        "wait --for=condition=ScalingActive hpa/web --timeout=150s",
        "wait --for=jsonpath={.status.disruptionsAllowed}=1 pdb/web --timeout=150s",
    ] {
        k.run(&format!("-n {NAMESPACE} {line}"));
    }
    let everything = run.why.run(&["-o", "json"]);
    run.line("nothing in the cluster", begun, &everything.summary(), everything.code != 0);
    let table = run.why.run(&[]);
    let fine = table.out.starts_with("nothing is wrong as far as was looked");
    run.line("nothing in the table", begun, table.out.trim(), !fine);
    for object in [
        "deployment/web",
        "statefulset/db",
        "daemonset/each",
        "job/once",
        "cronjob/yearly",
        "service/web",
        "service/balanced",
        "service/db",
        "service/alias",
        "ingress/web",
        "pdb/web",
        "hpa/web",
        "quota/quota",
        "pod/db-0",
        "pvc/data-db-0",
        "replicaset/set",
        "configmap/settings",
        "networkpolicy/web",
    ] {
        let answer = run.why.run(&[object, "-n", NAMESPACE, "-o", "json"]);
        run.line(&format!("nothing with {object}"), begun, &answer.summary(), answer.code != 0);
    }
    for node in ["node-1", "node-2", "node-3"] {
        let answer = run.why.run(&["node", node, "-o", "json"]);
        run.line(&format!("nothing with {node}"), begun, &answer.summary(), answer.code != 0);
    }
    let connection = ["--from", "pod/db-0", "--to", "web.well.svc:80", "-n", NAMESPACE, "-o", "json"];
    let answer = run.why.run(&connection);
    run.line("nothing between pods", begun, &answer.summary(), answer.code != 0);
}
