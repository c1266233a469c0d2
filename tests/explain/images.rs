//! A registry with one image that no node has: busybox with a layer more. It listens on the loopback address of each node, where agents
//! need no TLS, under one name.

use crate::clients::within;
use crate::world::{NODES, World, text};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The port on the loopback address of every node.
const PORT: u16 = 5078;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// What the archive of an image calls its blobs.
const BLOBS: &str = "blobs/sha256/";

/// An image of a registry.
struct Image {
    manifest: Vec<u8>,
    /// By digest.
    blobs: HashMap<String, Vec<u8>>,
}

/// Serves on all nodes until the suite ends; the name of the image.
pub fn serve(world: &World) -> String {
    let image = Arc::new(Image::build());
    for node in NODES {
        let holder = world.cluster.node(node)["holder"]["pid"].as_u64().unwrap() as u32;
        let listener = within(holder, || TcpListener::bind(("127.0.0.1", PORT)).expect("the port is free"));
        let image = image.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let image = image.clone();
                std::thread::spawn(move || {
                    let _ = answer(stream, &image);
                });
            }
        });
    }
    format!("127.0.0.1:{PORT}/stages:1")
}

impl Image {
    fn build() -> Self {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/images/busybox.tar");
        let mut files = read_archive(&archive);
        let index: Value = serde_json::from_slice(&files[Path::new("index.json")]).unwrap();
        let mut blobs = HashMap::new();
        for (path, data) in files.drain() {
            if let Some(hex) = path.to_str().and_then(|path| path.strip_prefix(BLOBS)) {
                blobs.insert(format!("sha256:{hex}"), data);
            }
        }
        let document = |digest: &Value| -> Value { serde_json::from_slice(&blobs[&text(digest)]).unwrap() };
        let mut manifest = document(&index["manifests"][0]["digest"]);
        let mut config = document(&manifest["config"]["digest"]);
        let layer = layer();
        config["rootfs"]["diff_ids"].as_array_mut().unwrap().push(sha256(&layer).into());
        let config = config.to_string().into_bytes();
        let kind = text(&manifest["config"]["mediaType"]);
        manifest["config"] = described(&kind, &config);
        manifest["layers"].as_array_mut().unwrap().push(described(LAYER, &layer));
        blobs.extend([layer, config].map(|blob| (sha256(&blob), blob)));
        Self { manifest: manifest.to_string().into_bytes(), blobs }
    }
}

fn read_archive(path: &Path) -> HashMap<PathBuf, Vec<u8>> {
    let mut archive = tar::Archive::new(std::fs::File::open(path).expect("scripts/images makes it"));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let (path, mut data) = (entry.path().unwrap().into_owned(), Vec::new());
        entry.read_to_end(&mut data).unwrap();
        (path, data)
    });
    entries.collect()
}

/// A layer with one file.
fn layer() -> Vec<u8> {
    let (mut tar, content) = (tar::Builder::new(Vec::new()), b"no node has this layer\n");
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    tar.append_data(&mut header, "stages", &content[..]).unwrap();
    tar.into_inner().unwrap()
}

fn sha256(data: &[u8]) -> String {
    format!("sha256:{}", crate::receiver::hex(digest(&SHA256, data).as_ref()))
}

fn described(kind: &str, data: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": sha256(data), "size": data.len()})
}

fn answer(mut stream: TcpStream, image: &Image) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut line) = (String::new(), String::new());
    reader.read_line(&mut first)?;
    while reader.read_line(&mut line)? > 0 && !line.trim().is_empty() {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let blob = path.rsplit('/').next().and_then(|digest| image.blobs.get(digest));
    let (status, kind, body) = match (path, blob) {
        ("/v2/", _) => ("200 OK", "application/json", &b"{}"[..]),
        ("/v2/stages/manifests/1", _) => ("200 OK", MANIFEST, &image.manifest[..]),
        (_, Some(blob)) => ("200 OK", "application/octet-stream", &blob[..]),
        _ => ("404 Not Found", "application/json", &b"{}"[..]),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body)
}
