//! Every command of the recorded traces that needs no node, one after the other on one namespace: each is answered with
//! something that kubectl accepts. Commands that stream from containers belong to the suites with nodes.

use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, oldest_and_newest};
use coracle_tests::server::Server;
use std::time::Duration;

const FIXTURES: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: NODE}
---
apiVersion: v1
kind: Pod
metadata: {name: p1, labels: {app: web}}
spec: {nodeName: NODE, containers: [{name: c, image: "nginx:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p2, labels: {app: web}}
spec: {nodeName: NODE, containers: [{name: c, image: "nginx:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"#;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, labels: {app: NAME}}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
"#;

const RUNNING: &str = r#"{"status":{"phase":"Running","podIP":"10.1.0.1","podIPs":[{"ip":"10.1.0.1"}],
"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"c","image":"nginx:1","imageID":"x","ready":true,
"restartCount":0,"state":{"running":{"startedAt":"2025-01-01T00:00:00Z"}}}]}}"#;

const REQUEST: &str = r#"
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: NAME}
spec: {request: CSR, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}
"#;

/// A command, the first version of kubectl that has it, and a part of what it prints. `!` before it: it fails, and says so.
type Line = (&'static str, u32, &'static str);

/// In the order of the traces; NODE, CSR and FILE(…) stand for what differs between runs.
const LINES: &[Line] = &[
    ("version", 0, "v1.36"),
    ("get pods", 0, "p1"),
    ("get pod p1 -o yaml", 0, "podIP: 10.1.0.1"),
    ("get pods -w --request-timeout=1s", 0, "1/1     Running"),
    ("get pods -o wide -A -l app=web --field-selector=status.phase=Running --chunk-size=1", 0, "10.1.0.1"),
    ("get pods --watch-only --output-watch-events --request-timeout=1s", 0, ""),
    ("get all", 0, "service/web"),
    ("describe pod p1", 0, "QoS Class:"),
    ("describe node NODE", 0, "Non-terminated Pods:"),
    ("describe deployment web", 0, "RollingUpdateStrategy:  25% max unavailable, 25% max surge"),
    ("describe svc web", 0, "Session Affinity:"),
    ("apply -f FILE(new)", 0, "deployment.apps/new created"),
    ("apply -f FILE(new)", 0, "deployment.apps/new unchanged"),
    ("apply -f FILE(web)", 0, "deployment.apps/web configured"),
    ("apply -f FILE(new) --dry-run=server", 0, "unchanged (server dry run)"),
    ("apply -f FILE(new) --validate=strict", 25, "unchanged"),
    ("apply --server-side -f FILE(new)", 0, "serverside-applied"),
    ("apply --server-side --force-conflicts --field-manager=me -f FILE(web)", 0, "serverside-applied"),
    ("apply -f FILE(new) --prune -l app=new --prune-whitelist=apps/v1/Deployment", 0, "deployment.apps/new"),
    ("!apply -f FILE(foo)", 0, "no matches for kind \"Foo\" in version \"example.com/v1\""),
    ("!create -f FILE(new)", 0, "deployments.apps \"new\" already exists"),
    ("replace -f FILE(web)", 0, "deployment.apps/web replaced"),
    ("create deployment d1 --image=nginx --replicas=2", 0, "deployment.apps/d1 created"),
    ("create deployment d1 --image=nginx --dry-run=client -o yaml", 0, "kind: Deployment"),
    ("create configmap c1 --from-literal=a=b", 0, "configmap/c1 created"),
    ("create secret generic s1 --from-literal=a=b", 0, "secret/s1 created"),
    ("create job j1 --image=busybox", 0, "job.batch/j1 created"),
    ("create role r1 --verb=get --resource=pods", 0, "role.rbac.authorization.k8s.io/r1 created"),
    ("create ingress i1 --rule=a.b/*=svc:80", 0, "ingress.networking.k8s.io/i1 created"),
    ("run r1 --image=nginx", 0, "pod/r1 created"),
    ("run r2 --image=nginx --port=80 --expose", 0, "service/r2 created"),
    ("expose deployment d1 --port=80", 0, "service/d1 exposed"),
    ("scale deployment web --replicas=5", 0, "deployment.apps/web scaled"),
    (
        "autoscale deployment web --max=5 --cpu-percent=50",
        0,
        "horizontalpodautoscaler.autoscaling/web autoscaled",
    ),
    ("get hpa web -o jsonpath={.spec.maxReplicas}", 0, "5"),
    ("set image deployment/web c=nginx:5", 0, "image updated"),
    ("!rollout history deployment/none", 0, "deployments.apps \"none\" not found"),
    ("rollout restart deployment/web", 0, "restarted"),
    ("rollout pause deployment/web", 0, "paused"),
    ("patch deployment web -p '{\"spec\":{\"replicas\":4}}'", 0, "patched"),
    ("patch deployment web --type=merge -p '{\"spec\":{\"replicas\":3}}'", 0, "patched"),
    (
        "patch deployment web --type=json -p '[{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":4}]'",
        0,
        "patched",
    ),
    (
        "patch deployment web --subresource=status --type=merge -p '{\"status\":{\"replicas\":4}}'",
        24,
        "patched",
    ),
    ("patch pod p1 --subresource=resize --type=merge -p '{\"spec\":{}}'", 32, "patched (no change)"),
    ("label pod p1 x=y", 0, "pod/p1 labeled"),
    ("annotate pod p1 x=y", 0, "pod/p1 annotate"),
    ("explain pods.spec.containers", 0, "containers"),
    ("explain deployment --recursive", 0, "progressDeadlineSeconds"),
    ("api-resources", 0, "deployments"),
    ("api-resources --verbs=list --namespaced -o name", 0, "deployments.apps"),
    ("api-versions", 0, "apps/v1"),
    ("cluster-info", 0, "is running at"),
    ("!top pod", 0, "metrics not available yet"),
    ("!top node", 0, "metrics not available yet"),
    ("auth can-i get pods", 0, "yes"),
    ("auth can-i --list", 0, "selfsubjectaccessreviews.authorization.k8s.io"),
    ("auth whoami", 28, "kubernetes-admin"),
    ("auth reconcile -f FILE(role)", 0, "rec reconciled"),
    ("wait --for=create pod/p1 --timeout=3s", 31, "condition met"),
    ("!rollout status daemonset/none", 0, "daemonsets.apps \"none\" not found"),
    ("get pods -l x=z -o name --ignore-not-found", 0, ""),
    ("set env deployment/web A=B", 0, "env updated"),
    ("set resources deployment/web --limits=cpu=1", 0, "resource requirements updated"),
    ("set serviceaccount deployment/web default", 0, "serviceaccount updated"),
    ("set selector service web app=web2", 0, "selector updated"),
    ("autoscale deployment d1 --max=3 --dry-run=server", 0, "autoscaled (server dry run)"),
    ("get pods --show-managed-fields -o yaml", 0, "fieldsType: FieldsV1"),
    ("get pods --sort-by=.metadata.name", 0, "p1"),
    ("get pods -o custom-columns=N:.metadata.name", 0, "p2"),
    ("replace --force -f FILE(web)", 0, "deployment.apps/web replaced"),
    ("create -f FILE(pod) --save-config", 0, "pod/p9 created"),
    ("create clusterrolebinding b-NODE --clusterrole=view --user=u", 0, "created"),
    ("create quota q --hard=configmaps=100", 0, "resourcequota/q created"),
    ("create pdb p --selector=a=b --min-available=1", 0, "poddisruptionbudget.policy/p created"),
    ("create cronjob cj --image=x --schedule='* * * * *'", 0, "cronjob.batch/cj created"),
    ("create priorityclass pc-NODE --value=1", 0, "created"),
    ("create service clusterip s --tcp=80", 0, "service/s created"),
    ("create service nodeport sn --tcp=80", 0, "service/sn created"),
    ("create serviceaccount sa1", 0, "serviceaccount/sa1 created"),
    ("wait --for=condition=Ready pod/p1 --timeout=5s", 0, "condition met"),
    ("wait --for=jsonpath={.status.phase}=Running pod/p1 --timeout=3s", 0, "condition met"),
    ("!wait --for=delete pod/p1 --timeout=1s", 0, "timed out waiting for the condition"),
    ("events", 26, ""),
    ("events --for pod/p1 --watch --request-timeout=1s", 26, ""),
    ("get events", 0, ""),
    ("cordon NODE", 0, "cordoned"),
    ("uncordon NODE", 0, "uncordoned"),
    ("taint node NODE k=v:NoSchedule", 0, "tainted"),
    ("diff -f FILE(web)", 0, ""),
    ("diff --server-side -f FILE(web)", 0, ""),
    ("certificate approve yes-NODE", 0, "approved"),
    ("certificate deny no-NODE", 0, "denied"),
    ("get csr yes-NODE", 0, "kubernetes-admin"),
    ("create token default --duration=1h", 24, "ey"),
    ("create token default --bound-object-kind Pod --bound-object-name p1", 24, "ey"),
    ("debug p1 --image=busybox --copy-to=p1c --container=dbg", 0, ""),
    ("debug node/NODE --image=busybox", 0, "Creating debugging pod"),
    ("debug p1 --image=busybox --target=c --container=eph", 25, ""),
    ("get pod p1 -o jsonpath={.spec.ephemeralContainers[0].targetContainerName}", 25, "c"),
    ("get --raw /healthz", 0, "ok"),
    ("get deploy,svc,pods -o json", 0, "\"kind\": \"List\""),
    ("get pods --subresource=status p1", 24, "Running"),
    ("get crd", 0, ""),
    ("delete -f FILE(web) --dry-run=server", 0, "deleted (server dry run)"),
    ("drain NODE --ignore-daemonsets --force --dry-run=server", 0, "drained (server dry run)"),
    ("delete pod p1c --wait=false --grace-period=0 --force", 0, "force deleted"),
    ("delete deployment d1 --cascade=orphan --wait=false", 0, "deleted"),
    ("delete deployment new --cascade=background", 0, "deleted"),
    ("delete pods -l app=web --wait=false", 0, "pod \"p2\" deleted"),
    ("delete pods --all --wait=false", 0, "deleted"),
    ("delete configmap c1 --now", 0, "configmap \"c1\" deleted"),
    ("get namespaces", 0, "kube-node-lease"),
];

#[test]
fn every_recorded_command_is_accepted() {
    let server = Server::with(&["--api-only"]);
    let mut wrong = Vec::new();
    for kubectl in oldest_and_newest(&server.kubeconfig()) {
        let name = format!("v{}-{}", kubectl.version.0, kubectl.version.1);
        kubectl.run(&format!("create namespace {name}"));
        kubectl.run(&format!("config set-context --current --namespace={name}"));
        // Controllers would make it.
        kubectl.run("create serviceaccount default");
        kubectl.run_with("create -f -", &FIXTURES.replace("NODE", &name));
        kubectl.run_with("create -f -", &DEPLOYMENT.replace("NAME", "web"));
        let request = signing_request();
        for verdict in ["yes", "no"] {
            let object = REQUEST.replace("NAME", &format!("{verdict}-{name}")).replace("CSR", &request);
            kubectl.run_with("create -f -", &object);
        }
        run_status(&kubectl);
        let files = Files::new(&name);
        let lines = LINES.iter().filter(|(_, since, _)| kubectl.version >= (1, *since));
        wrong.extend(lines.filter_map(|line| check(&kubectl, line, &name, &files)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A running p1, as an agent would report it.
fn run_status(kubectl: &Kubectl) {
    let namespace = kubectl.run("config view --minify -o jsonpath={..namespace}");
    let path = format!("/api/v1/namespaces/{namespace}/pods/p1/status");
    let pod = kubectl.run("get pod p1 -o json");
    let mut pod: serde_json::Value = serde_json::from_str(&pod).unwrap();
    let running: serde_json::Value = serde_json::from_str(RUNNING).unwrap();
    for (key, value) in running["status"].as_object().unwrap() {
        pod["status"][key] = value.clone();
    }
    kubectl.run_with(&format!("replace --raw {path} -f -"), &pod.to_string());
    eventually("p1 runs", Duration::from_secs(10), || kubectl.run("get pod p1").contains("Running"));
}

/// What is wrong with the answer to a command.
fn check(kubectl: &Kubectl, (line, _, expected): &Line, node: &str, files: &Files) -> Option<String> {
    let (fails, line) = match line.strip_prefix('!') {
        Some(line) => (true, line),
        None => (false, *line),
    };
    let mut line = line.replace("NODE", node);
    while let Some((before, rest)) = line.clone().split_once("FILE(") {
        let (name, after) = rest.split_once(')').unwrap();
        line = format!("{before}{}{after}", files.path(name));
    }
    // Newer ones call it otherwise.
    if kubectl.version >= (1, 26) {
        line = line.replace("--prune-whitelist", "--prune-allowlist");
    }
    let output = kubectl.try_with(&line, "");
    let said = format!("{}{}", output.out, output.err);
    let right = output.ok != fails && said.contains(expected);
    (!right).then(|| format!("kubectl {:?} {line}: {expected:?} in\n{said}", kubectl.version))
}

/// Files that the commands name.
struct Files(tempfile::TempDir);

impl Files {
    fn new(namespace: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let role = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: rec, namespace: {namespace}}}\n\
             rules: [{{apiGroups: [''], resources: [pods], verbs: [get]}}]\n"
        );
        let pod =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p9}\nspec: {containers: [{name: c, image: i}]}\n";
        let stranger = "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: foo}\n";
        let (new, web) = (DEPLOYMENT.replace("NAME", "new"), DEPLOYMENT.replace("NAME", "web"));
        for (name, text) in
            [("new", new.as_str()), ("web", &web), ("role", &role), ("pod", pod), ("foo", stranger)]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// A request for a certificate, as PEM in base64.
fn signing_request() -> String {
    let output = std::process::Command::new("openssl")
        .args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-keyout", "/dev/null", "-subj", "/CN=me"])
        .output()
        .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &output.stdout).unwrap();
    let output = std::process::Command::new("base64").arg("-w0").arg(file.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
