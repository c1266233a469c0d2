//! Takes the descriptions of API types out of the sources of the `k8s-openapi` crate, for `kubectl explain`.
//!
//! They are not worth a failed build: without them the schemas are complete but silent.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.toml");
    let mut text = String::new();
    match sources() {
        Some(root) => collect(&root, &mut text),
        None => println!("cargo::warning=the sources of k8s-openapi were not found: no descriptions"),
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("descriptions.z");
    let file = std::fs::File::create(&out).expect("OUT_DIR is writable");
    let mut packed = flate2::write::ZlibEncoder::new(file, flate2::Compression::best());
    packed.write_all(text.as_bytes()).and_then(|()| packed.finish().map(drop)).expect("OUT_DIR is writable");
}

/// The folder of the types of our version.
fn sources() -> Option<PathBuf> {
    let root = resolved().or_else(unpacked)?.join("src/v1_36");
    root.is_dir().then_some(root)
}

/// The crate as cargo resolved it, wherever it comes from.
fn resolved() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO")?;
    let output = Command::new(cargo)
        // Only this platform: the sources of others may not be there.
        .args(["metadata", "--format-version=1", "--offline", "--locked", "--filter-platform"])
        .arg(std::env::var_os("TARGET")?)
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR")?)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // "manifest_path":"…/k8s-openapi-0.29.0/Cargo.toml"
    let manifest = text
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split('"').next())
        .find(|path| path.contains("k8s-openapi") && path.ends_with("Cargo.toml"))?;
    Path::new(manifest).parent().map(Path::to_owned)
}

/// The crate as cargo unpacked it. It answers no questions while it lacks crates of the workspace that this build is without.
fn unpacked() -> Option<PathBuf> {
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let lock = own.ancestors().find_map(|dir| std::fs::read_to_string(dir.join("Cargo.lock")).ok())?;
    let version = lock.split_once("name = \"k8s-openapi\"\nversion = \"")?.1.split('"').next()?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = std::fs::read_dir(home.join("registry/src")).ok()?.flatten();
    registries
        .map(|registry| registry.path().join(format!("k8s-openapi-{version}")))
        .find(|path| path.is_dir())
}

fn collect(folder: &Path, text: &mut String) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, text);
        } else if let Ok(source) = std::fs::read_to_string(&path) {
            describe(&source, text);
        }
    }
}

/// Writes `=type`, its description and a line per field; descriptions stay escaped as in the source.
fn describe(source: &str, text: &mut String) {
    const NAMED: &str = "// Generated from definition ";
    let Some(name) = source.lines().next().and_then(|line| line.strip_prefix(NAMED)) else { return };
    let Some((_, schema)) = source.split_once("json_schema!({\n") else { return };
    text.push_str(&format!("={name}\n"));
    let mut field = "";
    for line in schema.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        if indent < 12 {
            break;
        }
        if indent == 16 && (line.ends_with(": {") || line.ends_with(": ({")) {
            field = line.trim_start_matches('"').split('"').next().unwrap_or_default();
        }
        let description = line
            .strip_prefix("\"description\": \"")
            .and_then(|rest| rest.strip_suffix("\","))
            .or_else(|| line.split_once("insert(\"description\".into(), \"")?.1.strip_suffix("\".into());"));
        if let Some(description) = description {
            let name = if indent == 12 { "" } else { field };
            if indent == 12 || !field.is_empty() {
                text.push_str(&format!("{name}\t{description}\n"));
                field = "";
            }
        }
    }
}
