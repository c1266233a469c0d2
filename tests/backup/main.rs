//! Backups of running servers, and clusters that are restored from them, without root.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

// A backup under load is restored elsewhere.
mod restored;
// A backup becomes the first member of a managed etcd.
mod managed;
// What is refused, and changes nothing.
mod refused;
// Backups by the clock.
mod scheduled;
// Backups in a bucket.
mod bucket;

use coracle_tests::client::Target;
use coracle_tests::program;
use coracle_tests::server::Server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs `coracle` with the arguments: whether it succeeded, and what it printed.
pub fn coracle(args: &[&str], environment: &[(&str, &str)]) -> (bool, String, String) {
    let mut command = Command::new(program("coracle"));
    let output = command.args(args).envs(environment.iter().copied()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// The same, for commands that must succeed: what they print as JSON.
pub fn answer(args: &[&str], environment: &[(&str, &str)]) -> Value {
    let (ok, out, err) = coracle(&[args, &["-o", "json"]].concat(), environment);
    assert!(ok, "{args:?}: {out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}"))
}

/// Saves a backup of a server.
pub fn save(server: &Server, to: &Path, more: &[&str]) -> (PathBuf, Value) {
    let (data_dir, to) = (server.data_dir().display().to_string(), to.display().to_string());
    let saved = answer(&[&["backup", "save", &to, "--data-dir", &data_dir], more].concat(), &[]);
    (saved["location"].as_str().unwrap().into(), saved)
}

/// Creates ConfigMaps until the server is gone or told to stop; returns how many.
pub async fn write_maps(target: Target, name: String, stop: Arc<AtomicBool>) -> usize {
    let Ok(mut connection) = target.connect().await else { return 0 };
    for number in 0.. {
        let body = map(&format!("{name}-{number}"), &format!("{number}"));
        if stop.load(Ordering::Acquire) || connection.call("POST", MAPS, body.into()).await.is_err() {
            return number;
        }
        if number % 3 == 2 {
            let (path, body) =
                (format!("{MAPS}/{name}-{}", number - 1), map(&format!("{name}-{}", number - 1), "new"));
            let _ = connection.call("PUT", &path, body.into()).await;
            let path = format!("{MAPS}/{name}-{}", number - 2);
            let _ = connection.call("DELETE", &path, bytes::Bytes::new()).await;
        }
    }
    0
}

pub fn map(name: &str, value: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"a":"{value}","b":"{}"}}}}"#,
        "x".repeat(700)
    )
}
