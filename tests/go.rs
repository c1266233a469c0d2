//! Programs from the Go module proxy, each built once and kept beside the build.

use std::path::PathBuf;
use std::process::Command;

/// The first version of Go, 1.x, that gets the toolchain that a module wants by itself.
const LEAST: u32 = 21;

/// Whether Go is installed, and new enough.
fn is_installed() -> bool {
    let version = Command::new("go").args(["env", "GOVERSION"]).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let minor =
        version.ok().and_then(|text| text.trim().strip_prefix("go1.")?.split('.').next()?.parse().ok());
    minor.is_some_and(|minor: u32| minor >= LEAST)
}

/// A program of a module at a version, `module/path@v1.2.3`; `None` where there is no Go that can build it.
///
/// # Panics
/// When it cannot be built.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let here = std::env::current_exe().expect("this program");
    let target = here.ancestors().nth(3).expect("a target directory");
    let dir = target.join(format!("go-{name}"));
    // Suites that run at the same time build it once.
    std::fs::create_dir_all(&dir).expect("a directory");
    let lock = std::fs::File::create(target.join(format!("go-{name}.lock"))).expect("a file");
    lock.lock().expect("a lock");
    let ready = dir.join("ready");
    if std::fs::read_to_string(&ready).is_ok_and(|built| built == package) {
        return Some(dir.join(name));
    }
    if !is_installed() {
        return None;
    }
    let mut install = Command::new("go");
    install.args(["install", package]).env("GOBIN", &dir).env("GOFLAGS", "-mod=mod -buildvcs=false");
    let output = install.output().expect("go can be started");
    assert!(output.status.success(), "{install:?}\n{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(ready, package).expect("a file");
    Some(dir.join(name))
}
