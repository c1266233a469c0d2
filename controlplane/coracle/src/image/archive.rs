//! Archives of images: files, or what docker or podman saves of an image by its name.

use crate::executables::find_program;
use crate::sudo;
use anyhow::{Context as _, bail};
use clap::ValueEnum;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Container engines that have images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Engine {
    /// `docker image save`.
    Docker,
    /// `podman image save`, as the user who ran sudo.
    Podman,
}

impl Engine {
    fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// An archive of images; one that was saved here is removed at the end.
#[derive(Debug)]
pub(super) struct Archive {
    path: PathBuf,
    is_temporary: bool,
}

impl Drop for Archive {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Archive {
    /// A file, or an image of an engine. What looks like a path is one.
    pub(super) fn open(image: &str, from: Option<Engine>, scratch: &Path) -> anyhow::Result<Self> {
        let path = Path::new(image);
        if from.is_none() && path.is_file() {
            return Ok(Self { path: path.to_owned(), is_temporary: false });
        }
        if from.is_none() && is_path(image) {
            bail!("{image}: there is no such file");
        }
        let engines = match from {
            Some(engine) => vec![engine],
            None => vec![Engine::Docker, Engine::Podman],
        };
        let mut refused = Vec::new();
        for engine in engines {
            let Some(program) = find_program(engine.program()) else {
                if from.is_some() {
                    bail!("{} is not installed", engine.program());
                }
                continue;
            };
            match save(&program, engine, image, scratch)? {
                Saved::There(archive) => return Ok(archive),
                Saved::Refused(why) => refused.push(format!("{}: {why}", engine.program())),
            }
        }
        match refused.is_empty() {
            true => bail!("{image} is no file, and neither docker nor podman is installed"),
            false => bail!("{image} cannot be loaded: {}", refused.join("; ")),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Names of images have no such beginnings and ends.
fn is_path(image: &str) -> bool {
    let ends = [".tar", ".tar.gz", ".tgz", ".tar.zst"];
    image.starts_with(['/', '.', '~']) || ends.iter().any(|end| image.ends_with(end))
}

/// What came of saving an image.
#[derive(Debug)]
enum Saved {
    /// It is here.
    There(Archive),
    /// The engine does not give it, and says why.
    Refused(String),
}

/// Saves an image of an engine into a file.
fn save(program: &Path, engine: Engine, image: &str, scratch: &Path) -> anyhow::Result<Saved> {
    let path = tempfile_in(scratch);
    let file = File::create_new(&path).with_context(|| path.display().to_string())?;
    let archive = Archive { path, is_temporary: true };
    let mut command = Command::new(program);
    // A name that begins with a dash is no option.
    command.args(["image", "save", "--", image]).stdin(Stdio::null()).stdout(file).stderr(Stdio::piped());
    if let Some(user) = sudo::invoker().filter(|_| engine == Engine::Podman) {
        user.runs(&mut command);
    }
    let output = command.output().with_context(|| program.display().to_string())?;
    if output.status.success() {
        return Ok(Saved::There(archive));
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Ok(Saved::Refused(line.unwrap_or("it failed").to_owned()))
}

fn tempfile_in(dir: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    dir.join(format!("image-load-{}-{}.tar", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn engine(dir: &Path, script: &str) -> PathBuf {
        let program = dir.join("engine");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn paths_and_names_are_told_apart() {
        for path in ["/a", "./a", "~/a", "app.tar", "app.tar.gz"] {
            assert!(is_path(path), "{path}");
        }
        for name in ["nginx", "nginx:1.27", "ghcr.io/a/b@sha256:00", "localhost:5000/a"] {
            assert!(!is_path(name), "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        let error = Archive::open("./none.tar", None, dir.path()).unwrap_err().to_string();
        assert_eq!(error, "./none.tar: there is no such file");
    }

    #[test]
    fn an_engine_saves_into_a_file_that_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let program = engine(dir.path(), r#"echo "$@""#);
        let Saved::There(archive) = save(&program, Engine::Docker, "app:1", dir.path()).unwrap() else {
            panic!()
        };
        assert_eq!(std::fs::read_to_string(archive.path()).unwrap(), "image save -- app:1\n");
        let path = archive.path().to_owned();
        drop(archive);
        assert!(!path.exists());
        let program = engine(dir.path(), "echo part; echo 'No such image: app:1' >&2; exit 1");
        let Saved::Refused(why) = save(&program, Engine::Docker, "app:1", dir.path()).unwrap() else {
            panic!()
        };
        assert_eq!(why, "No such image: app:1");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-saved stays");
    }
}
