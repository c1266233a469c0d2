//! Images made to exhaust or to mislead a node.

use coracle_tests::program;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the agent may use for an image of a few bytes; without bounds it would take all that the bomb has.
const MEMORY: u64 = 200 << 20;
const BOMB: u64 = 1 << 30;

/// What `coracle-agent image` says, and the most memory that it had.
fn image(dir: &Path, args: &[&str]) -> (bool, String, u64) {
    let log = dir.join("said");
    let registries = dir.join("registries.yaml");
    File::create(&registries).unwrap();
    let mut child = Command::new(program("coracle-agent"))
        .args(["image", "--image-dir"])
        .arg(dir.join("store"))
        .arg("--registries")
        .arg(&registries)
        .args(args)
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let (begun, mut most) = (Instant::now(), 0);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak =
            peak.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) << 10;
        most = most.max(peak);
        // The machine of whoever runs this must survive an agent that does not stop.
        if most > 2 * MEMORY || begun.elapsed() > Duration::from_secs(100) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    (status.success(), std::fs::read_to_string(log).unwrap(), most)
}

#[track_caller]
fn refused((succeeded, said, memory): (bool, String, u64), wanted: &str) {
    assert!(memory < MEMORY, "{} MiB of memory: {said}", memory >> 20);
    assert!(!succeeded && said.contains(wanted), "{said}");
}

fn header(name: &str, kind: u8, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header
}

/// A file with holes: a header, and so many bytes that are all zero.
struct Sparse(File);

impl Sparse {
    fn bytes(&mut self, name: &str, kind: u8, data: &[u8]) {
        self.0.write_all(header(name, kind, data.len() as u64).as_bytes()).unwrap();
        self.0.write_all(data).unwrap();
        let pad = (512 - data.len() % 512) % 512;
        self.0.write_all(&vec![0; pad]).unwrap();
    }

    fn zeros(&mut self, name: &str, kind: u8, size: u64) {
        self.0.write_all(header(name, kind, size).as_bytes()).unwrap();
        let end = self.0.seek(SeekFrom::Current(size.next_multiple_of(512) as i64)).unwrap();
        self.0.set_len(end).unwrap();
    }
}

/// A docker archive whose only layer is so many bytes that `layer` begins.
fn archive(path: &Path, layer: &[u8], zeros: u64) {
    let mut tar = Sparse(File::create(path).unwrap());
    let id = "sha256:".to_owned() + &"0".repeat(64);
    tar.bytes("config.json", b'0', format!(r#"{{"rootfs":{{"diff_ids":["{id}"]}}}}"#).as_bytes());
    let manifest = r#"[{"Config":"config.json","RepoTags":["bomb.io/x:y"],"Layers":["layer.tar"]}]"#;
    tar.bytes("manifest.json", b'0', manifest.as_bytes());
    let size = layer.len() as u64 + zeros;
    tar.0.write_all(header("layer.tar", b'0', size).as_bytes()).unwrap();
    tar.0.write_all(layer).unwrap();
    let end = tar.0.seek(SeekFrom::Current(zeros as i64)).unwrap();
    tar.0.set_len(end.next_multiple_of(512) + 1024).unwrap();
}

/// Extended headers and long names are held in memory by whoever reads tars.
#[test]
fn an_image_author_cannot_fill_memory_with_headers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.tar");
    let file = path.to_str().unwrap();
    for kind in [b'x', b'L', b'K'] {
        // Of a layer.
        archive(&path, header("bomb", kind, BOMB).as_bytes(), BOMB);
        refused(image(dir.path(), &["import", file]), "headers of an entry are longer than");
        // Of the archive itself.
        Sparse(File::create(&path).unwrap()).zeros("bomb", kind, BOMB);
        refused(image(dir.path(), &["import", file]), "or damaged");
    }
    // Documents of the archive.
    let mut tar = Sparse(File::create(&path).unwrap());
    tar.zeros("manifest.json", b'0', BOMB);
    refused(image(dir.path(), &["import", file]), "manifest.json has");
    // Nobody but root gets at what images bring: devices, programs that run as their owner.
    assert_eq!(std::fs::metadata(dir.path().join("store")).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Answers of a registry by path; connections close after each.
struct Registry {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (heard, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, heard, answer) = (stream.unwrap(), heard.clone(), answer.clone());
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    let request = lines.next().unwrap().unwrap();
                    let headers = lines.map(Result::unwrap).take_while(|line| !line.is_empty());
                    let whole = format!("{request}\n{}", headers.collect::<Vec<_>>().join("\n"));
                    heard.lock().unwrap().push(whole);
                    answer(request.split(' ').nth(1).unwrap(), &mut stream);
                });
            }
        });
        Registry { address, seen }
    }
}

/// Headers, then spaces for ever.
fn endless(stream: &mut TcpStream, status: &str, headers: &str) {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n");
    let spaces = vec![b' '; 1 << 20];
    let _ = stream.write_all(head.as_bytes());
    while stream.write_all(&spaces).is_ok() {}
}

fn short(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut [0; 1]);
}

/// Whatever a registry answers, it is not read further than an honest answer goes.
#[test]
fn a_registry_cannot_fill_memory_with_answers() {
    let dir = tempfile::tempdir().unwrap();
    let pull = |registry: &Registry, path: &str| {
        image(dir.path(), &["pull", "--creds", "user:secret", &format!("{}/{path}:1", registry.address)])
    };
    let registry = Registry::start(|path, stream| match path {
        "/v2/" => short(stream, "200 OK", "", b"{}"),
        path if path.contains("/manifest/") => endless(stream, "200 OK", ""),
        _ => endless(stream, "500 Internal Server Error", ""),
    });
    refused(pull(&registry, "manifest"), "the registry's answer has more than 4194304 bytes");
    refused(pull(&registry, "error"), "500 Internal Server Error");
    let tokens = Registry::start(|_, stream| endless(stream, "200 OK", ""));
    let realm = format!("WWW-Authenticate: Bearer realm=\"http://{}/token\"\r\n", tokens.address);
    let registry = Registry::start(move |_, stream| short(stream, "401 Unauthorized", &realm, b""));
    refused(pull(&registry, "token"), "the registry's answer has more than 65536 bytes");
}

/// A descriptor is a promise: what does not keep it is no image.
#[test]
fn a_registry_cannot_lie_about_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let config = r#"{"rootfs":{"diff_ids":[]}}"#.as_bytes();
    let digest = coracle_engine::image::manifest::digest_of(config);
    for (size, wanted) in [
        (config.len() as u64 - 1, "the registry's answer has more than"),
        (config.len() as u64 + 1, "that is said to have"),
        (1 << 40, "a config of 1099511627776 bytes"),
    ] {
        let manifest =
            format!(r#"{{"schemaVersion":2,"config":{{"digest":"{digest}","size":{size}}},"layers":[]}}"#);
        let registry = Registry::start(move |path, stream| match path {
            path if path.contains("/manifests/") => short(stream, "200 OK", "", manifest.as_bytes()),
            path if path.contains("/blobs/") => short(stream, "200 OK", "", config),
            _ => short(stream, "200 OK", "", b"{}"),
        });
        refused(image(dir.path(), &["pull", &format!("{}/x:1", registry.address)]), wanted);
    }
}

/// Credentials of a registry do not follow a redirect to another host.
#[test]
fn a_registry_cannot_send_credentials_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = Registry::start(|_, stream| short(stream, "200 OK", "", b"{}"));
    let target =
        format!("Location: http://{}/steal\r\n", elsewhere.address.replace("127.0.0.1", "localhost"));
    let registry = Registry::start(move |path, stream| match path {
        "/v2/" => short(stream, "401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n", b""),
        _ => short(stream, "307 Temporary Redirect", &target, b""),
    });
    let pulled = image(dir.path(), &["pull", "--creds", "user:secret", &format!("{}/x:1", registry.address)]);
    assert!(!pulled.0, "{}", pulled.1);
    let asked = registry.seen.lock().unwrap().join("\n").to_lowercase();
    assert!(asked.contains("authorization: basic"), "{asked}");
    let stolen = elsewhere.seen.lock().unwrap().join("\n").to_lowercase();
    assert!(stolen.contains("/steal") && !stolen.contains("authorization"), "{stolen}");
}
