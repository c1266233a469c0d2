//! `/logs/`: files of the host's log directory.

use http::StatusCode;
use http::header::LOCATION;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use tokio::sync::mpsc;

use super::response::{ApiResponse, streamed, text, with_type};
use coracle_host_dir::HostDir;

const DIR: &str = "/var/log";
const CHUNK: usize = 64 << 10;

/// The file below [`DIR`]; none for a path that would leave it.
fn resolve(root: &Path, path: &str) -> Option<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    relative.components().all(|part| matches!(part, Component::Normal(_))).then(|| root.join(relative))
}

/// A file's bytes, or a directory's entries as links.
pub fn handle(path: &str) -> ApiResponse {
    let Some(target) = resolve(Path::new(DIR), path) else {
        return text(StatusCode::NOT_FOUND, "404 page not found");
    };
    // Links are resolved once; the result is then opened without following links.
    let root = Path::new(DIR).canonicalize().ok();
    let inside = target.canonicalize().ok().filter(|real| root.is_some_and(|root| real.starts_with(root)));
    let Some(real) = inside else { return text(StatusCode::NOT_FOUND, "404 page not found") };
    if let Ok(dir) = HostDir::open(&real) {
        if !path.ends_with('/') && !path.is_empty() {
            let mut moved = text(StatusCode::MOVED_PERMANENTLY, "");
            if let Ok(location) = format!("/logs{path}/").parse() {
                moved.headers_mut().insert(LOCATION, location);
            }
            return moved;
        }
        let mut names: Vec<String> = dir
            .names()
            .into_iter()
            .flatten()
            .flatten()
            .map(|name| {
                let slash = if dir.entry(&name).is_ok_and(|entry| entry.is_dir()) { "/" } else { "" };
                format!("{}{slash}", name.to_string_lossy())
            })
            .collect();
        names.sort();
        let links = names.iter().map(|name| format!("<a href=\"{name}\">{name}</a>\n")).collect::<String>();
        return with_type(StatusCode::OK, "text/html; charset=utf-8", format!("<pre>\n{links}</pre>\n"));
    }
    let opened = HostDir::of_file(&real).and_then(|(dir, name)| dir.open_file(name));
    let Ok(mut file) = opened else { return text(StatusCode::NOT_FOUND, "404 page not found") };
    let (sender, receiver) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok(n @ 1..) = file.read(&mut buffer) {
            if sender.blocking_send(bytes::Bytes::copy_from_slice(&buffer[..n])).is_err() {
                return;
            }
        }
    });
    streamed(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_the_directory() {
        let root = Path::new("/var/log");
        assert_eq!(resolve(root, "/pods/x.log"), Some(root.join("pods/x.log")));
        assert_eq!(resolve(root, "/"), Some(root.join("")));
        assert_eq!(resolve(root, "/../shadow"), None);
        assert_eq!(resolve(root, "/pods/../../shadow"), None);
    }
}
