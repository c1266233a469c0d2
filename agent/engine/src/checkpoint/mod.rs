//! Checkpoints a running container into an archive, with the OCI runtime and CRIU. The container keeps running.

// Archives the writable layer.
mod tree;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::error::internal;
use super::objects::Container;
use super::oci_runtime::OciRuntime;
use super::offload::blocking;
use super::paths::{Paths, private_dir, remove_tree};
use super::rootfs::Rootfs;
use super::stamp::new_id;
use crate::runtime::{Result, RuntimeError};
use coracle_host_dir::HostDir;

/// Timeout if the caller gives none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Path of the `criu` program.
fn criu() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("criu")).find(|program| program.is_file())
}

/// Fails if CRIU is not installed.
pub(crate) fn require_criu() -> Result<()> {
    match criu() {
        Some(_) => Ok(()),
        None => Err(RuntimeError::Unimplemented("CRIU is not installed on this node".into())),
    }
}

/// Writes the archive of a running container; a failed attempt leaves nothing behind.
pub(crate) async fn write(
    container: &Container,
    oci: &OciRuntime,
    paths: &Paths,
    to: &Path,
    timeout: Duration,
) -> Result<()> {
    let scratch = paths.transient(&format!("c{}", new_id()), "checkpoint");
    let images = scratch.join("checkpoint");
    private_dir(&scratch).and_then(|()| private_dir(&images)).map_err(internal("checkpoint"))?;
    let mut argv = oci.command(&oci.program_of(container), &scratch.join("log"));
    argv.extend(["checkpoint".to_owned(), "--leave-running".into(), "--image-path".into()]);
    argv.extend([images.display().to_string(), container.id.clone()]);
    let mut command = tokio::process::Command::new(&argv[0]);
    command.args(&argv[1..]).kill_on_drop(true).stdin(std::process::Stdio::null());
    let limit = if timeout.is_zero() { DEFAULT_TIMEOUT } else { timeout };
    let done = tokio::time::timeout(limit, command.output()).await;
    let record = container.record.lock().clone();
    let (bundle, upper) = (paths.bundle(&record.id), Rootfs::of(paths, &record.id).upper());
    let config = json!({
        "id": record.id, "name": record.config.metadata.as_ref().map(|meta| meta.name.as_str()),
        "rootfsImage": record.config.image.as_ref().map(|image| image.user_specified_image.as_str()),
        "rootfsImageRef": record.image_ref, "runtime": oci.program_of(container),
    });
    let (to, dir) = (to.to_owned(), scratch.clone());
    let written = match done {
        Err(_) => Err(RuntimeError::DeadlineExceeded("the OCI runtime takes too long".into())),
        Ok(Err(error)) => Err(RuntimeError::Internal(error.to_string())),
        Ok(Ok(output)) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(RuntimeError::Internal(format!("OCI runtime checkpoint failed: {said}")))
        }
        Ok(Ok(_)) => {
            let archive = move || archive(&dir, &bundle, &upper, &config.to_string(), &to);
            blocking(move || archive().map_err(internal("checkpoint"))).await
        }
    };
    let _ = remove_tree(&scratch);
    written
}

/// Archives CRIU's images, the container's configuration and its writable layer. The file appears by rename.
fn archive(scratch: &Path, bundle: &Path, upper: &Path, config: &str, to: &Path) -> std::io::Result<()> {
    fs::write(scratch.join("config.dump"), config)?;
    let mut diff = tar::Builder::new(File::create(scratch.join("rootfs-diff.tar"))?);
    tree::append(&mut diff, HostDir::open(upper)?, &scratch.join("sparse"))?;
    diff.finish()?;
    let part = to.with_extension("part");
    let mut whole = tar::Builder::new(File::create(&part)?);
    whole.follow_symlinks(false);
    whole.append_dir_all("checkpoint", scratch.join("checkpoint"))?;
    whole.append_path_with_name(bundle.join("config.json"), "spec.dump")?;
    for name in ["config.dump", "rootfs-diff.tar"] {
        whole.append_path_with_name(scratch.join(name), name)?;
    }
    whole.into_inner()?.sync_all()?;
    fs::rename(part, to)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_archive_has_state_configuration_and_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["scratch/checkpoint", "bundle", "upper/etc"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("scratch/checkpoint/pages-1.img"), "pages").unwrap();
        fs::write(at("bundle/config.json"), "{}").unwrap();
        fs::write(at("upper/etc/changed"), "new").unwrap();
        archive(&at("scratch"), &at("bundle"), &at("upper"), "{\"id\":\"x\"}", &at("whole.tar")).unwrap();
        let mut names: Vec<String> = tar::Archive::new(File::open(at("whole.tar")).unwrap())
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        names.sort();
        let files: Vec<&str> = names.iter().map(String::as_str).filter(|name| !name.ends_with('/')).collect();
        for name in ["checkpoint/pages-1.img", "config.dump", "rootfs-diff.tar", "spec.dump"] {
            assert!(files.contains(&name), "{name} of {names:?}");
        }
        assert!(!at("whole.part").exists());
    }
}
