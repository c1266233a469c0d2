//! kubectl as people type it.

use crate::on_both_stores;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, oldest_and_newest};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: nginx
        image: nginx:1
        env:
        - {name: A, value: "1"}
        - {name: B, value: "2"}
        ports: [{containerPort: 80}]
"#;

fn each(suite: impl Fn(&Kubectl)) {
    on_both_stores(|server| {
        for kubectl in oldest_and_newest(&server.kubeconfig()) {
            let namespace = format!("t{}-{}", kubectl.version.0, kubectl.version.1);
            kubectl.run(&format!("create namespace {namespace}"));
            kubectl.run(&format!("config set-context --current --namespace={namespace}"));
            suite(&kubectl);
        }
    });
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn gets_come_in_every_form() {
    each(|k| {
        k.run("create configmap one --from-literal=a=1");
        k.run("create configmap two --from-literal=a=2 --from-literal=b=3");
        k.run("label configmap two tier=back");
        let table = k.run("get configmaps");
        assert!(table.lines().next().unwrap().starts_with("NAME"), "{table}");
        assert!(table.contains("DATA") && table.contains("AGE"), "{table}");
        assert!(table.lines().any(|l| l.starts_with("two") && l.contains(" 2 ")), "{table}");
        assert!(k.run("get configmap one -o yaml").contains("a: \"1\""));
        assert_eq!(k.run("get configmap one -o jsonpath={.data.a}"), "1");
        let columns = k.run("get configmap -o custom-columns=N:.metadata.name,A:.data.a");
        assert!(columns.lines().any(|l| l.split_whitespace().eq(["two", "2"])), "{columns}");
        assert_eq!(k.run("get configmap -l tier=back -o name").trim(), "configmap/two");
        let by_name = k.run("get configmap --field-selector metadata.name=one -o name");
        assert_eq!(by_name.trim(), "configmap/one");
        let sorted = k.run("get configmap --sort-by=.data.a -o name");
        let order: Vec<&str> = sorted.lines().filter(|l| l.contains("one") || l.contains("two")).collect();
        assert_eq!(order, ["configmap/one", "configmap/two"]);
        for i in 0..7 {
            k.run(&format!("create configmap page{i}"));
        }
        let paged = k.run("get configmap --chunk-size=2 -o name");
        assert_eq!(paged.lines().filter(|l| l.contains("page")).count(), 7, "{paged}");
        assert!(k.run("get configmap one -o wide").contains("one"));
        assert!(k.fails("get configmap three").contains("configmaps \"three\" not found"));
        assert!(k.fails("get flurbs").contains("the server doesn't have a resource type \"flurbs\""));
    });
}

#[test]
fn apply_edits_only_what_changed_and_removes_what_is_gone() {
    each(|k| {
        assert!(k.run_with("apply -f -", DEPLOYMENT).contains("created"));
        assert!(k.run_with("apply -f -", DEPLOYMENT).contains("unchanged"));
        k.run("scale deployment web --replicas=5");
        // Replicas go back to the file's, the second variable goes.
        let less = DEPLOYMENT.replace("        - {name: B, value: \"2\"}\n", "");
        let diff = k.try_with("diff -f -", &less);
        assert!(!diff.ok && diff.out.contains("-        - name: B"), "{}{}", diff.out, diff.err);
        assert!(k.run_with("apply -f -", &less).contains("configured"));
        let object = json(&k.run("get deployment web -o json"));
        let env = &object["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(env.as_array().unwrap().len(), 1, "{env}");
        assert_eq!(object["spec"]["replicas"], 2);
        assert_eq!(object["metadata"]["generation"], 3);
    });
}

#[test]
fn server_side_apply_knows_who_owns_what() {
    each(|k| {
        k.run_with("apply --server-side -f -", DEPLOYMENT);
        let version = k.run("get deployment web -o jsonpath={.metadata.resourceVersion}");
        k.run_with("apply --server-side -f -", DEPLOYMENT);
        assert_eq!(
            k.run("get deployment web -o jsonpath={.metadata.resourceVersion}"),
            version,
            "the second is a no-op"
        );
        let other = DEPLOYMENT.replace("replicas: 2", "replicas: 4");
        let refused = k.try_with("apply --server-side --field-manager=other -f -", &other);
        assert!(!refused.ok && refused.err.contains(".spec.replicas"), "{}", refused.err);
        k.run_with("apply --server-side --field-manager=other --force-conflicts -f -", &other);
        assert_eq!(k.run("get deployment web -o jsonpath={.spec.replicas}"), "4");
    });
}

/// A Job, a Service and a Pod: the server adds a selector and labels, addresses and ports, volumes and tolerations.
const FILLED_IN: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox:1}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec:
  containers: [{name: c, image: busybox:1}]
"#;

/// What kubectl owns of an object, as its managedFields say.
fn fields_of_kubectl(object: &Value) -> String {
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let kubectl = |entry: &&Value| entry["manager"].as_str().unwrap().starts_with("kubectl");
    entries.filter(kubectl).map(|entry| entry["fieldsV1"].to_string()).collect()
}

#[test]
fn a_job_may_have_a_generated_name() {
    each(|k| {
        let named = FILLED_IN.split("---").next().unwrap().replace("name: once", "generateName: once-");
        k.run_with("create -f -", &named);
        let job = &json(&k.run("get jobs -o json"))["items"][0];
        let label = &job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"];
        assert!(label == &job["metadata"]["name"] && label.is_string(), "{job}");
    });
}

#[test]
fn what_the_server_adds_is_nobodys_and_stays_when_apply_moves_to_the_server() {
    each(|k| {
        // No controller makes it here.
        k.run("create serviceaccount default");
        for first in ["create -f -", "apply -f -"] {
            k.run_with(first, FILLED_IN);
            let job = json(&k.run("get job once -o json --show-managed-fields"));
            let owned = fields_of_kubectl(&job);
            assert!(!owned.contains("f:selector") && !owned.contains("job-name"), "{owned}");
            assert!(owned.contains("f:backoffLimit"), "defaults are the client's: {owned}");
            let pod = json(&k.run("get pod alone -o json --show-managed-fields"));
            let owned = fields_of_kubectl(&pod);
            assert!(!owned.contains("f:tolerations") && !owned.contains("kube-api-access"), "{owned}");
            let address = k.run("get service web -o jsonpath={.spec.clusterIP}{.spec.ports[0].nodePort}");
            let applied = k.try_with("apply --server-side -f -", FILLED_IN);
            assert!(applied.ok && applied.err.is_empty(), "after {first}: {}{}", applied.out, applied.err);
            let now = json(&k.run("get job once -o json"));
            assert_eq!(now["spec"], job["spec"]);
            let same = k.run("get service web -o jsonpath={.spec.clusterIP}{.spec.ports[0].nodePort}");
            assert_eq!(same, address);
            k.run_with("delete --wait=true --grace-period=0 --force -f -", FILLED_IN);
        }
    });
}

#[test]
fn every_kind_of_patch() {
    each(|k| {
        k.run_with("create -f -", DEPLOYMENT);
        k.run(r#"patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:2"}]}}}}'"#);
        k.run(r#"patch deployment web --type=merge -p '{"metadata":{"annotations":{"a":"b"}}}'"#);
        k.run(
            r#"patch deployment web --type=json -p '[{"op":"replace","path":"/spec/replicas","value":7}]'"#,
        );
        let object = json(&k.run("get deployment web -o json"));
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "nginx:2");
        assert_eq!(container["env"].as_array().unwrap().len(), 2, "strategic merge keeps the rest");
        assert_eq!(object["metadata"]["annotations"]["a"], "b");
        assert_eq!(object["spec"]["replicas"], 7);
        let scale = k.run("get deployment web --subresource=scale");
        let mut lines = scale.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>());
        assert_eq!(lines.next().unwrap(), ["NAME", "DESIRED", "AVAILABLE"]);
        assert_eq!(lines.next().unwrap(), ["web", "7", "0"]);
        k.run("set image deployment/web nginx=nginx:3");
        k.run("annotate deployment web a- c=d");
        k.run("label deployment web --overwrite app=site");
        let object = json(&k.run("get deployment web -o json"));
        assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:3");
        assert_eq!(object["metadata"]["annotations"]["c"], "d");
        assert!(object["metadata"]["annotations"]["a"].is_null());
        assert_eq!(object["metadata"]["labels"]["app"], "site");
    });
}

#[test]
fn an_editor_changes_an_object() {
    each(|k| {
        k.run("create configmap edited --from-literal=a=old");
        let mut command = k.command(&["edit", "configmap", "edited"]);
        let output = command.env("KUBE_EDITOR", "sed -i s/old/new/").stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(k.run("get configmap edited -o jsonpath={.data.a}"), "new");
    });
}

#[test]
fn watches_show_changes_as_they_come() {
    each(|k| {
        k.run("create configmap seen --from-literal=a=1");
        let mut child = k
            .command(&["get", "configmap", "seen", "-w", "--output-watch-events"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("EVENT"));
        assert!(lines.next().unwrap().unwrap().starts_with("ADDED"));
        k.run("label configmap seen x=y");
        assert!(lines.next().unwrap().unwrap().starts_with("MODIFIED"));
        k.run("delete configmap seen");
        assert!(lines.next().unwrap().unwrap().starts_with("DELETED"));
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn deletes_wait_and_propagate() {
    each(|k| {
        for policy in ["background", "orphan", "foreground"] {
            k.run_with("create -f -", DEPLOYMENT);
            k.run(&format!("delete deployment web --cascade={policy} --wait=false"));
            let left = k.try_with("get deployment web -o json", "");
            if policy == "background" {
                assert!(!left.ok);
                continue;
            }
            // Without the garbage collector the finalizer stays, and so does the object.
            let object = json(&left.out);
            let finalizer = if policy == "orphan" { "orphan" } else { "foregroundDeletion" };
            assert_eq!(object["metadata"]["finalizers"][0], finalizer);
            assert!(object["metadata"]["deletionTimestamp"].is_string());
            k.run(r#"patch deployment web --type=merge -p '{"metadata":{"finalizers":null}}'"#);
            k.run("wait --for=delete deployment/web --timeout=10s");
        }
    });
}

#[test]
fn the_server_explains_itself() {
    each(|k| {
        let resources = k.run("api-resources");
        for word in ["deployments", "po ", "leases", "customresourcedefinitions", "selfsubjectaccessreviews"]
        {
            assert!(resources.contains(word), "{word} in\n{resources}");
        }
        assert!(k.run("api-versions").lines().any(|l| l == "autoscaling/v2"));
        let fields = k.run("explain deployment.spec --recursive");
        assert!(fields.contains("progressDeadlineSeconds") && fields.contains("containers"), "{fields}");
        assert!(k.run("explain pod.spec.containers.image").to_lowercase().contains("string"));
        assert_eq!(k.run("auth can-i create pods").trim(), "yes");
        let local = |name: &str| {
            let rows = k.run("get apiservices --no-headers");
            rows.lines().any(|row| row.split_whitespace().take(3).eq([name, "Local", "True"]))
        };
        for name in ["v1.", "v1.apps", "v2.autoscaling", "v1.apiextensions.k8s.io", "v1beta1.metrics.k8s.io"]
        {
            assert!(local(name), "{name} in\n{}", k.run("get apiservices"));
        }
        k.run("delete apiservice v1.batch");
        eventually("v1.batch is back", Duration::from_secs(30), || local("v1.batch"));
        assert!(k.run("version").contains("v1.36"));
        assert!(k.run("cluster-info").contains("is running at"));
    });
}

#[test]
fn describe_events_tokens_and_nodes() {
    each(|k| {
        k.run_with("apply -f -", DEPLOYMENT);
        assert!(k.run("describe deployment web").contains("nginx:1"));
        k.run("get events");
        let node = "apiVersion: v1\nkind: Node\nmetadata: {name: NODE}\n";
        let name = format!("n{}", k.version.1);
        k.run_with("create -f -", &node.replace("NODE", &name));
        k.run(&format!("cordon {name}"));
        k.run(&format!("taint node {name} a=b:NoSchedule"));
        let object = json(&k.run(&format!("get node {name} -o json")));
        assert_eq!(object["spec"]["unschedulable"], true);
        assert_eq!(
            object["spec"]["taints"].as_array().unwrap().iter().filter(|t| t["key"] == "a").count(),
            1
        );
        assert!(k.run("get nodes").contains("SchedulingDisabled"));
        k.run(&format!("describe node {name}"));
        k.run(&format!("delete node {name}"));
        k.run("create serviceaccount robot");
        if k.version >= (1, 24) {
            assert_eq!(k.run("create token robot").trim().split('.').count(), 3);
        }
    });
}
