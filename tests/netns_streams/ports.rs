//! `kubectl port-forward` and the API server's proxy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::cluster::IMAGE;
use crate::tools::{Running, Stage};
use coracle_tests::eventually;
use coracle_tests::kubectl::Kubectl;

const WAIT: Duration = Duration::from_secs(60);

/// A port-forward on a free port.
pub struct Forward {
    pub running: Running,
    port: u16,
}

impl Forward {
    pub fn start(k: &Kubectl, target: &str, port: u16) -> Self {
        let mut running =
            Running::start(k, &["port-forward", "--address", "127.0.0.1", target, &format!(":{port}")]);
        let line = running.line();
        let text = line.strip_prefix("Forwarding from 127.0.0.1:").unwrap_or_else(|| {
            let mut err = String::new();
            let _ = running.child.stderr.take().unwrap().read_to_string(&mut err);
            panic!("{line:?} {err}")
        });
        let port = text.split(' ').next().unwrap().parse().unwrap();
        Self { running, port }
    }

    pub fn get(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }
}

pub fn forward(stage: &mut Stage) {
    let yaml = format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: site}}, spec: {{selector: {{matchLabels: {{app: site}}}}, \
         template: {{metadata: {{labels: {{app: site}}}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: {IMAGE}, \
         command: [sh, -c, 'mkdir -p /www; echo site > /www/index.html; exec httpd -f -p 8080 -h /www']}}]}}}}}}}}"
    );
    stage.cluster.apply(&yaml);
    stage.cluster.apply("{apiVersion: v1, kind: Service, metadata: {name: site}, spec: {selector: {app: site}, ports: [{port: 80, targetPort: 8080}]}}");
    stage.newest().run("rollout status deployment site --timeout=60s");
    for k in &stage.kubectls {
        for (target, port, page) in
            [("pod/web", 80, "hello"), ("deployment/site", 8080, "site"), ("service/site", 80, "site")]
        {
            let forward = Forward::start(k, target, port);
            for _ in 0..3 {
                let got = forward.get();
                assert!(got.ends_with(&format!("{page}\n")), "kubectl 1.{} {target}: {got:?}", k.version.1);
            }
            forward.running.kill();
        }
    }
}

pub fn many_connections(stage: &mut Stage) {
    for k in &stage.kubectls {
        let forward = Forward::start(k, "pod/web", 80);
        // All at once, and open together.
        let mut streams: Vec<TcpStream> =
            (0..200).map(|_| TcpStream::connect(("127.0.0.1", forward.port)).unwrap()).collect();
        for stream in &mut streams {
            stream.set_read_timeout(Some(WAIT)).unwrap();
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        }
        for (at, mut stream) in streams.into_iter().enumerate() {
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            assert!(text.ends_with("hello\n"), "kubectl 1.{} connection {at}: {text:?}", k.version.1);
        }
        forward.running.kill();
    }
}

pub fn nobody_listens(stage: &mut Stage) {
    for k in &stage.kubectls {
        let forward = Forward::start(k, "pod/web", 4444);
        assert_eq!(forward.get(), "");
        let mut running = forward.running;
        let _ = running.child.kill();
        let (_, _, err) = running.end();
        assert!(err.contains("error forwarding port 4444 to pod"), "{err}");
        assert!(err.contains("IPv4: dial tcp4 127.0.0.1:4444: connect: connection refused"), "{err}");
    }
    let err = stage.newest().fails("port-forward pod/missing :80");
    assert!(err.contains(r#"pods "missing" not found"#), "{err}");
}

pub fn proxy(stage: &mut Stage) {
    let k = stage.newest();
    let raw = |path: &str| k.run(&format!("get --raw /api/v1/namespaces/default/{path}"));
    assert_eq!(raw("pods/web:80/proxy/"), "hello\n");
    eventually("the service has endpoints", WAIT, || {
        k.try_with("get --raw /api/v1/namespaces/default/services/site:80/proxy/", "").ok
    });
    assert_eq!(raw("services/site:80/proxy/"), "site\n");
    let err = k.fails("get --raw /api/v1/namespaces/default/pods/web:4444/proxy/");
    assert!(err.contains("error trying to reach service") || err.contains("refused"), "{err}");
    assert!(k.run("get --raw /api/v1/nodes/node1/proxy/healthz").contains("ok"));
}
