//! Compiles `pause`, which the agent carries inside itself.
//!
//! Not a cargo binary: it has no standard library, and so must abort on panic in every profile, which cargo cannot
//! say for one binary.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=pause/pause.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let out = PathBuf::from(var("OUT_DIR")).join("pause");
    let mut rustc = Command::new(var("RUSTC"));
    rustc.args(["--edition=2024", "--crate-type=bin", "--crate-name=pause", "--target", &var("TARGET")]);
    rustc.args(["-Cpanic=abort", "-Copt-level=z", "-Cstrip=symbols", "-Crelocation-model=static"]);
    for arg in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
        "-Wl,-z,noseparate-code",
    ] {
        rustc.arg(format!("-Clink-arg={arg}"));
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.arg("-o").arg(&out).arg("pause/pause.rs").status().expect("rustc runs");
    assert!(status.success(), "pause does not compile");
}
