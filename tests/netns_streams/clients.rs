//! The same through client libraries.

use std::path::PathBuf;
use std::process::Command;

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, LogParams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tools::Stage;

async fn pods(stage: &Stage) -> Api<Pod> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = kube::config::Kubeconfig::read_from(stage.cluster.server.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    Api::namespaced(kube::Client::try_from(config).unwrap(), "default")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

pub fn kube_rs(stage: &mut Stage) {
    block_on(async {
        let pods = pods(stage).await;
        let params = LogParams { tail_lines: Some(1), ..LogParams::default() };
        assert_eq!(pods.logs("talk", &params).await.unwrap(), "last\n");
        let follow = LogParams { follow: true, ..LogParams::default() };
        let lines = pods.log_stream("talk", &follow).await.unwrap().lines();
        let lines: Vec<String> = lines.take(3).try_collect().await.unwrap();
        assert_eq!(lines, ["line 1", "line 2", "line 3"]);

        let params = AttachParams::default().stdin(true).stdout(true).stderr(true);
        let script = ["sh", "-c", "read x; echo got $x; echo bad >&2; exit 4"];
        let mut process = pods.exec("talk", script, &params).await.unwrap();
        process.stdin().unwrap().write_all(b"this\n").await.unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        process.stdout().unwrap().read_to_string(&mut out).await.unwrap();
        process.stderr().unwrap().read_to_string(&mut err).await.unwrap();
        assert_eq!((out.as_str(), err.as_str()), ("got this\n", "bad\n"));
        let status = process.take_status().unwrap().await.unwrap();
        assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));

        let mut forwarder = pods.portforward("web", &[80]).await.unwrap();
        let mut stream = forwarder.take_stream(80).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        assert!(page.ends_with("hello\n"), "{page}");
    });
}

pub fn hundred_execs(stage: &mut Stage) {
    block_on(async {
        let pods = pods(stage).await;
        let one = async |number: usize| {
            let params = AttachParams::default().stdin(false).stdout(true).stderr(false);
            let mut process =
                pods.exec("talk", ["echo".to_owned(), number.to_string()], &params).await.unwrap();
            let mut out = String::new();
            process.stdout().unwrap().read_to_string(&mut out).await.unwrap();
            let status = process.take_status().unwrap().await.unwrap();
            assert_eq!((out.trim().parse(), status.status.as_deref()), (Ok(number), Some("Success")));
        };
        futures::future::join_all((0..100).map(one)).await;
    });
}

/// The interpreter of an environment with the client installed.
pub fn python() -> PathBuf {
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let dir = target.join("python-client");
    let interpreter = dir.join("bin/python");
    let run = |command: &mut Command| {
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    };
    if !dir.join("ready").exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir));
        run(Command::new(&interpreter).args(["-m", "pip", "install", "--quiet", "kubernetes"]));
        std::fs::write(dir.join("ready"), "").unwrap();
    }
    interpreter
}

pub fn python_client(stage: &mut Stage) {
    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/netns_streams/python_suite.py");
    let output = Command::new(std::env::var("CORACLE_PYTHON").unwrap())
        .arg(suite)
        .arg(stage.cluster.server.kubeconfig())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
