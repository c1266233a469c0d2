//! The server as a process: configuration, the end, and what its answers look like on the wire.

use crate::on_both_stores;
use bytes::Bytes;
use coracle_tests::client::Target;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use http_body_util::BodyExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.unwrap().block_on(work)
}

#[test]
fn a_file_says_what_flags_say() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.yaml");
    std::fs::write(&file, "serviceCidr: 10.50.0.0/16\ntlsSan: [api.example]\napiOnly: true\n").unwrap();
    let server = Server::with(&["--config", &file.display().to_string()]);
    let kubectl = newest(&server.kubeconfig());
    assert_eq!(kubectl.run("get service kubernetes -o jsonpath={.spec.clusterIP}"), "10.50.0.1");
    // The name is in the certificate: kubectl checks it.
    kubectl.run("get --raw /readyz --tls-server-name=api.example");
    assert!(kubectl.fails("get --raw /readyz --tls-server-name=other.example").contains("certificate"));
}

#[test]
fn an_open_watch_does_not_keep_the_server_from_ending() {
    on_both_stores(|server| {
        wait(async {
            let target = Target::new(server.data_dir(), &server.url()).unwrap();
            let (mut writer, mut watcher) =
                (target.connect().await.unwrap(), target.connect().await.unwrap());
            let path = format!("{CONFIG_MAPS}?watch=true");
            let mut events = watcher.open("GET", &path, Bytes::new()).await.unwrap().into_body();
            let object = br#"{"metadata":{"name":"kept"}}"#;
            writer.call("POST", CONFIG_MAPS, Bytes::from_static(object)).await.unwrap();
            events.frame().await.unwrap().unwrap();
            let begun = Instant::now();
            kill(Pid::from_raw(server.pid() as i32), Signal::SIGTERM).unwrap();
            // The stream ends as it should, not with a broken connection.
            while let Some(frame) = events.frame().await {
                frame.unwrap();
            }
            while target.connect().await.is_ok() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the server goes on");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        // Nothing had to be waited for until the time for it was over.
        assert!(!server.log().contains("within the shutdown time"), "{}", server.log());
    });
}

/// What does not end by itself is cut off, and the log says so.
#[test]
fn a_request_that_does_not_end_is_given_up_at_the_end_of_the_server() {
    let mut server = Server::with(&["--api-only"]);
    wait(async {
        let target = Target::new(server.data_dir(), &server.url()).unwrap();
        let mut stream = target.raw().await.unwrap();
        let head =
            format!("POST {CONFIG_MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
        // The server asks for the body once it serves the request.
        let head = format!("{head}Content-Length: 10\r\nExpect: 100-continue\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        server.stop();
    });
    assert!(server.log().contains("requests did not end within the shutdown time"), "{}", server.log());
}

/// What `systemctl reload coracle-server` does, as when the program was replaced.
#[test]
fn a_server_that_begins_again_refuses_nobody() {
    on_both_stores(|server| {
        let pid = server.pid();
        let begun_again = || {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
            environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"CORACLE_LISTENER="))
        };
        wait(async {
            let target = Target::new(server.data_dir(), &server.url()).unwrap();
            let mut before = target.connect().await.unwrap();
            let object = br#"{"metadata":{"name":"kept"}}"#;
            before.call("POST", CONFIG_MAPS, Bytes::from_static(object)).await.unwrap();
            assert!(!begun_again());
            for round in 1..=3 {
                kill(Pid::from_raw(pid as i32), Signal::SIGUSR2).unwrap();
                let asked = Instant::now();
                while server.log().matches("serving").count() <= round {
                    let mut client = target.connect().await.unwrap();
                    let path = format!("{CONFIG_MAPS}/kept");
                    client.call("GET", &path, Bytes::new()).await.unwrap();
                    assert!(asked.elapsed() < Duration::from_secs(60), "{}", server.log());
                }
                assert!(begun_again());
            }
        });
    });
}

#[test]
fn large_answers_are_compressed_and_people_get_lines() {
    let server = Server::with(&["--api-only"]);
    let curl = |args: &[&str], path: &str| {
        let pki = server.data_dir().join("pki");
        let output = std::process::Command::new("curl")
            .args(["-s", "--cacert"])
            .arg(pki.join("ca.crt"))
            .arg("--cert")
            .arg(pki.join("admin.crt"))
            .arg("--key")
            .arg(pki.join("admin.key"))
            .args(args)
            .arg(format!("{}{path}", server.url()))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let program = ["-A", "program/1.0"];
    let head = curl(
        &[&program[..], &["-D", "-", "-o", "/dev/null", "-H", "Accept-Encoding: gzip"]].concat(),
        "/openapi/v2",
    );
    assert!(head.to_lowercase().contains("content-encoding: gzip"), "{head}");
    let small = curl(&[&program[..], &["-D", "-", "-H", "Accept-Encoding: gzip"]].concat(), "/version");
    assert!(!small.to_lowercase().contains("content-encoding") && small.contains("{\"major\""), "{small}");
    assert!(curl(&[], "/version").contains("\n  \"major\": \"1\""), "indented for curl");
    for version in ["--http1.1", "--http2"] {
        let head = curl(&[version, "-I"], "/api/v1/namespaces/default");
        assert!(head.contains(" 200"), "{version}: {head}");
    }
}
