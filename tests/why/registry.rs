//! A registry whose images are all broken, each in its own way. It listens on the loopback address of each node, where the
//! agent needs no TLS, under one name.

use coracle_tests::https::Https;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

/// The port on the loopback address of every node.
const PORT: u16 = 5077;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Runs `work` on a thread in the network of a process.
pub fn within<T: Send>(pid: u64, work: impl FnOnce() -> T + Send) -> T {
    let netns = std::fs::File::open(format!("/proc/{pid}/ns/net")).expect("the process runs");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::setns(&netns, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may do that");
            work()
        });
        thread.join().expect("no panic")
    })
}

/// Serves in the networks of these processes until the test ends; the registry as part of an image's name.
pub fn serve(pids: &[u64]) -> String {
    for pid in pids {
        let listener = within(*pid, || TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free"));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let _ = answer(stream);
                });
            }
        });
    }
    format!("127.0.0.1:{PORT}")
}

/// A registry with a certificate that nobody trusts, at an address of a node.
pub fn serve_untrusted(pid: u64, address: &str) -> Https {
    within(pid, || Https::start_on(address, |_| (200, json!({}))))
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && !line.trim().is_empty() {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, kind, body) = document(path);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn error(code: &str, message: &str) -> String {
    json!({"errors": [{"code": code, "message": message}]}).to_string()
}

/// Status, type and body for a path.
fn document(path: &str) -> (&'static str, &'static str, String) {
    let json = "application/json";
    let digest = format!("sha256:{}", "0".repeat(64));
    let described = |kind: &str| json!({"mediaType": kind, "digest": digest, "size": 2});
    let repository = path.trim_start_matches("/v2/").split('/').next().unwrap_or_default();
    match repository {
        "" => ("200 OK", json, "{}".to_owned()),
        "private" => ("401 Unauthorized", json, error("UNAUTHORIZED", "authentication required")),
        "busy" => ("429 Too Many Requests", json, error("TOOMANYREQUESTS", "you have reached the limit")),
        "foreign" => {
            let mut entry = described(MANIFEST);
            entry["platform"] = json!({"architecture": "s390x", "os": "linux"});
            let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
            ("200 OK", INDEX, index.to_string())
        }
        "damaged" if path.contains("/blobs/") => ("200 OK", "application/octet-stream", "no".to_owned()),
        "damaged" => {
            let config = described("application/vnd.oci.image.config.v1+json");
            let layer = described("application/vnd.oci.image.layer.v1.tar");
            let manifest =
                json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
            ("200 OK", MANIFEST, manifest.to_string())
        }
        "tagged" => ("404 Not Found", json, error("MANIFEST_UNKNOWN", "manifest unknown")),
        _ => ("404 Not Found", json, error("NAME_UNKNOWN", "repository name not known to registry")),
    }
}
