//! A cluster of three nodes with an audit log, whose server exports its spans.

use coracle_tests::cluster::Cluster;
use coracle_tests::eventually;
use coracle_tests::kubectl::Kubectl;
use coracle_timeline::{SpanView, State, TraceView, parse_timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// How long something may take on a busy machine.
pub const WAIT: Duration = Duration::from_secs(120);
/// Where the server exports its spans to, in its network namespace.
pub const RECEIVER: &str = "127.0.0.1:4317";
/// Agents deliver once a second: what has not changed for longer is complete.
const QUIET: Duration = Duration::from_millis(2500);
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
/// A Deployment whose pods are ready as soon as they listen, and end when they are told to.
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      TOLERATIONS
      containers:
      - name: c
        image: busybox
        imagePullPolicy: IfNotPresent
        command: [/bin/httpd, -f, -p, "8080", -h, /tmp]
"#;

pub struct World {
    pub cluster: Cluster,
    pub k: Kubectl,
    files: tempfile::TempDir,
}

impl World {
    pub fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let policy = files.path().join("policy");
        std::fs::write(&policy, POLICY).unwrap();
        let flags = [
            format!("--server-flag=--audit-log-path={}", files.path().join("audit.log").display()),
            format!("--server-flag=--audit-policy-file={}", policy.display()),
            format!("--server-flag=--otlp-endpoint=http://{RECEIVER}"),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let cluster = Cluster::start_with(NODES.len(), &flags);
        let k = cluster.kubectl();
        k.run("wait --for=condition=Ready node --all --timeout=180s");
        Self { cluster, k, files }
    }

    pub fn audit_log(&self) -> PathBuf {
        self.files.path().join("audit.log")
    }

    /// A file for curl to send, as `@path`.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.files.path().join(name);
        std::fs::write(&path, content).unwrap();
        format!("@{}", path.display())
    }

    /// A namespace in which pods can be created at once.
    pub fn namespace(&self, name: &str) {
        self.k.run(&format!("create namespace {name}"));
        eventually("what pods need", WAIT, || {
            let there = |what: &str| self.k.try_with(&format!("get {what} -n {name}"), "").ok;
            there("serviceaccount default") && there("configmap kube-root-ca.crt")
        });
    }

    /// Creates a Deployment `web` and waits for its pods.
    pub fn deploy(&self, namespace: &str, replicas: usize) {
        self.create(namespace, &deployment(replicas, ""));
        self.rolled_out(namespace);
    }

    pub fn create(&self, namespace: &str, yaml: &str) {
        self.k.run_with(&format!("create --validate=false -n {namespace} -f -"), yaml);
    }

    pub fn rolled_out(&self, namespace: &str) {
        self.k.run(&format!("rollout status deployment web -n {namespace} --timeout=120s"));
    }

    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.k.run(&format!("{line} -o json"))).unwrap()
    }

    /// Uids of the pods of a namespace that are not being deleted, with their nodes.
    pub fn pods(&self, namespace: &str) -> BTreeMap<String, String> {
        let list = self.json(&format!("get pods -n {namespace}"));
        let pods = list["items"].as_array().unwrap().iter();
        pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .map(|pod| (text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"])))
            .collect()
    }

    /// The answer about an object, once `check` holds, everything has ended and nothing more comes.
    pub fn trace(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        check: impl Fn(&TraceView) -> bool,
    ) -> TraceView {
        self.ask(&format!("resource={resource}&namespace={namespace}&name={name}"), check)
    }

    /// The same for any question.
    pub fn ask(&self, question: &str, check: impl Fn(&TraceView) -> bool) -> TraceView {
        let path = format!("get --raw /coracle/v1/trace?{question}");
        let begun = Instant::now();
        let mut before: Option<(usize, Instant)> = None;
        loop {
            let answer = self.k.try_with(&path, "");
            let view = serde_json::from_str::<TraceView>(&answer.out).ok();
            if let Some(view) =
                view.filter(|view| matches!(view.state, State::Ready | State::Gone) && check(view))
            {
                match before {
                    Some((spans, since)) if spans == view.spans.len() => {
                        if since.elapsed() >= QUIET {
                            return view;
                        }
                    }
                    _ => before = Some((view.spans.len(), Instant::now())),
                }
            }
            if begun.elapsed() > WAIT {
                panic!("{path}: not complete within {WAIT:?}\n{}\n{}", answer.err, outline_of(&answer.out));
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// The answer to a question now, if there is one.
    pub fn answer(&self, question: &str) -> Option<TraceView> {
        let answer = self.k.try_with(&format!("get --raw /coracle/v1/trace?{question}"), "");
        serde_json::from_str(&answer.out).ok()
    }

    /// curl as the administrator; code and body.
    pub fn curl(&self, args: &[&str], path: &str) -> (u16, Value) {
        let pki = self.cluster.data_dir().join("pki");
        let pem = |name: &str| pki.join(name).display().to_string();
        let (certificate, key) = (pem("admin.crt"), pem("admin.key"));
        self.curl_as(&[&["--cert", &certificate, "--key", &key], args].concat(), path)
    }

    /// curl as a node; code and body.
    pub fn curl_as_node(&self, node: &str, args: &[&str], path: &str) -> (u16, Value) {
        let identity = self.cluster.data_dir().join(node).join("pki/client.pem").display().to_string();
        self.curl_as(&[&["--cert", &identity, "--key", &identity], args].concat(), path)
    }

    fn curl_as(&self, args: &[&str], path: &str) -> (u16, Value) {
        let file = std::fs::read_to_string(self.cluster.data_dir().join("admin.kubeconfig")).unwrap();
        let url = file.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
        let output = Command::new("curl")
            .args(["-s", "--path-as-is", "--max-time", "60", "-w", "\n%{http_code}", "--cacert"])
            .arg(self.cluster.data_dir().join("pki/ca.crt"))
            .args(args)
            .arg(format!("{url}{path}"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap_or_default();
        (code.parse().unwrap_or(0), serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
    }

    /// The server's process, which its supervisor starts again.
    pub fn server_pid(&self) -> i32 {
        let state = std::fs::read(self.cluster.data_dir().join("up.json")).unwrap();
        let state: Value = serde_json::from_slice(&state).unwrap();
        let supervisor = state["server"]["pid"].as_i64().unwrap();
        let children =
            std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// The Deployment `web`.
pub fn deployment(replicas: usize, tolerations: &str) -> String {
    DEPLOYMENT.replace("REPLICAS", &replicas.to_string()).replace("TOLERATIONS", tolerations)
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// When a trace began, in nanoseconds of unix time.
pub fn begin(view: &TraceView) -> u64 {
    parse_timestamp(&view.begin).unwrap().0
}

pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// The spans of a stage.
pub fn spans<'a>(view: &'a TraceView, stage: &str) -> Vec<&'a SpanView> {
    view.spans.iter().filter(|span| span.stage == stage).collect()
}

/// The uid of the object that a span is about.
pub fn uid_of<'a>(view: &'a TraceView, span: &SpanView) -> &'a str {
    span.object.map_or("", |object| view.objects[object].uid.as_str())
}

/// What caused a span, the nearest first.
pub fn causes<'a>(view: &'a TraceView, span: &'a SpanView) -> Vec<&'a SpanView> {
    let parent = |span: &&'a SpanView| {
        let parent = span.parent.as_deref()?;
        view.spans.iter().find(|span| span.id == parent)
    };
    std::iter::successors(Some(span), parent).skip(1).collect()
}

/// One line per span, for messages.
pub fn outline(view: &TraceView) -> String {
    let line = |span: &SpanView| {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        let end = span.end.map_or_else(|| "…".to_owned(), |end| format!("{:.3}", ms(end)));
        format!(
            "{} < {} {:.3}-{end} {} {} [{}] {:?} {:?}",
            span.id,
            span.parent.as_deref().unwrap_or("-"),
            ms(span.start),
            span.stage,
            span.name,
            span.node,
            span.object.map(|object| &view.objects[object].name),
            span.flags,
        )
    };
    let lines: Vec<String> = view.spans.iter().map(line).collect();
    let path = view
        .critical
        .iter()
        .map(|piece| format!("{} {:.3} ms", piece.name, (piece.end - piece.start) as f64 / 1e6));
    let path: Vec<String> = path.collect();
    format!("{:?} {:?}\n{}\n--- critical path\n{}", view.state, view.notes, lines.join("\n"), path.join("\n"))
}

fn outline_of(answer: &str) -> String {
    match serde_json::from_str::<TraceView>(answer) {
        Ok(view) => outline(&view),
        Err(error) => format!("{error}: {answer}"),
    }
}
