//! What the suites share: the built programs, a server of one's own, and kubectl.

#![forbid(unsafe_code)]

// A `coracle server` in a temporary directory.
pub mod server;
// Requests as they are, on connections that stay.
pub mod client;
// Identities with real credentials.
pub mod caller;
// kubectl, in whatever versions are to be had.
pub mod kubectl;
// The official Python client.
pub mod python;
// A cluster of one's own.
pub mod cluster;
// A server and one node whose pods and directories a test can look into.
pub mod pods;
// What drivers were asked, and how they are to misbehave.
pub mod driver_ledger;
// A storage driver.
pub mod csi_driver;
// A device plugin that misbehaves on request.
pub mod device_plugin;
// A driver of dynamic resource allocation.
pub mod dra_driver;
// Kills at random moments.
pub mod kills;
// Debian's containerd.
pub mod containerd;
// A webhook or an identity provider.
pub mod https;
// A key management service.
pub mod kms;
// A real etcd.
pub mod etcd;
// Servers that run the members of an etcd.
pub mod managed;
// Programs from the Go module proxy.
mod go;
// A server of S3.
pub mod s3;
// Debian's docker-registry.
pub mod registry;
// A registry that wants tokens.
pub mod token_registry;
// Namespaces of one's own.
pub mod lab;
// A suite in namespaces of its own.
pub mod namespaces;
// Histories of failing clusters, and checkers of them.
pub mod ha;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reports that a test, `suite::name`, cannot run on this machine: on standard error, and as a line of the file that
/// `CORACLE_TEST_SKIPPED` names. `scripts/test` fails on tests that it does not allow to be skipped.
///
/// # Panics
/// When that file cannot be written.
pub fn skipped(test: &str, reason: &str) {
    let line = format!("{test}: {reason}\n");
    // Unlike println!, this is shown for tests that pass.
    let _ = std::io::stderr().write_all(format!("skipped {line}").as_bytes());
    if let Some(path) = std::env::var_os("CORACLE_TEST_SKIPPED") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the list of skipped tests is written");
    }
}

/// A program of the workspace, built by `cargo build --workspace` beside the tests.
///
/// # Panics
/// When it is not there: a suite without its program is no suite.
pub fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("a test knows its own path");
    // Tests run from target/<profile>/deps, measurements from target/<profile>.
    let dirs = here.ancestors().skip(1).take(2);
    let path = dirs
        .map(|dir| dir.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| here.with_file_name(name));
    assert!(path.exists(), "{} is missing: run cargo build --workspace first", path.display());
    path
}

/// Waits for something to become true.
///
/// # Panics
/// When it does not within the time.
pub fn eventually(what: &str, within: Duration, mut check: impl FnMut() -> bool) {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(5);
    while !check() {
        assert!(begun.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}
