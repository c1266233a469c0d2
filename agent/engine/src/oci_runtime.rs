//! OCI runtimes and their command lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::objects::Container;
use super::oci_implementation::Implementation;
use super::paths::Paths;
use super::record::ContainerRecord;
use coracle_keeper::wire::LaunchSpec;

/// The OCI runtimes of the node.
pub(crate) struct OciRuntime {
    /// The configured one.
    program: PathBuf,
    /// Programs by the names of their handlers, the configured one's among them.
    handlers: BTreeMap<String, PathBuf>,
    paths: Arc<Paths>,
}

impl OciRuntime {
    /// With the configured runtime, our own, and those that are found.
    pub(crate) fn new(program: PathBuf, own: Option<&Path>, paths: Arc<Paths>) -> Self {
        let found = Implementation::ALL.into_iter();
        let found = found.filter_map(|known| Some((known.handler().to_owned(), known.find(own)?)));
        let mut handlers: BTreeMap<_, _> = found.collect();
        let name = match Implementation::of(&program) {
            Some(known) => known.handler().to_owned(),
            None => program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        handlers.insert(name, program.clone());
        Self { program, handlers, paths }
    }

    /// Handlers besides the default, which has no name.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// Programs of all handlers.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Path> {
        self.handlers.values().map(PathBuf::as_path)
    }

    /// The program of a handler.
    pub(crate) fn program_for(&self, handler: &str) -> Option<&Path> {
        if handler.is_empty() {
            Some(&self.program)
        } else {
            self.handlers.get(handler).map(PathBuf::as_path)
        }
    }

    /// The OCI runtime that started the container; the configured one may have changed since.
    pub(crate) fn program_of(&self, container: &Container) -> PathBuf {
        self.program_in(&container.record.lock())
    }

    fn program_in(&self, record: &ContainerRecord) -> PathBuf {
        if record.runtime.as_os_str().is_empty() { self.program.clone() } else { record.runtime.clone() }
    }

    /// A runtime with the options every verb needs.
    pub(crate) fn command(&self, program: &Path, log: &Path) -> Vec<String> {
        let state = self.paths.runtime_state();
        let text = |path: &Path| path.display().to_string();
        let mut argv = vec![text(program)];
        argv.extend(["--root".to_owned(), text(&state), "--log".to_owned(), text(log)]);
        argv.extend(["--log-format", "json"].map(str::to_owned));
        argv
    }

    /// The command that has created and started a container.
    pub(crate) fn started_spec(&self, record: &ContainerRecord) -> LaunchSpec {
        self.run_spec(record, &self.program_in(record))
    }

    /// The command that creates and starts a container.
    pub(crate) fn run_spec(&self, record: &ContainerRecord, program: &Path) -> LaunchSpec {
        self.launch_spec(record, program, &["run", "--detach"])
    }

    /// The command that creates a container, whose process then waits to be started.
    pub(crate) fn create_spec(&self, record: &ContainerRecord, program: &Path) -> LaunchSpec {
        self.launch_spec(record, program, &["create"])
    }

    fn launch_spec(&self, record: &ContainerRecord, program: &Path, verb: &[&str]) -> LaunchSpec {
        let dir = self.paths.bundle(&record.id);
        let pid_file = self.paths.transient(&record.id, "pid");
        let runtime_log = self.paths.transient(&record.id, "log");
        let mut argv = self.command(program, &runtime_log);
        argv.extend(verb.iter().map(|&word| word.to_owned()));
        argv.extend(["--bundle".to_owned(), dir.display().to_string()]);
        argv.extend(["--pid-file".to_owned(), pid_file.display().to_string(), record.id.clone()]);
        LaunchSpec {
            id: record.id.clone(),
            sealed: Implementation::of(program) == Some(Implementation::Coracle),
            console_at: argv.len() - 1,
            argv,
            dir,
            pid_file,
            runtime_log,
            log: (!record.log.as_os_str().is_empty()).then(|| record.log.clone()),
            tty: record.config.tty,
            stdin: record.config.stdin,
            stdin_once: record.config.stdin_once,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_handler_has_its_program() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Arc::new(Paths::create(dir.path(), &dir.path().join("run")).unwrap());
        let own = Path::new("/opt/coracle-runtime");
        let runtimes = OciRuntime::new("/opt/runsc".into(), Some(own), paths.clone());
        assert_eq!(runtimes.program_for(""), Some(Path::new("/opt/runsc")));
        assert_eq!(runtimes.program_for("runsc"), Some(Path::new("/opt/runsc")));
        assert_eq!(runtimes.program_for("coracle"), Some(own));
        assert_eq!(runtimes.program_for("nobody"), None);
        let ours = OciRuntime::new(own.to_owned(), None, paths);
        assert_eq!(ours.program_for("coracle"), Some(own));
        assert_eq!(ours.handlers().filter(|name| name.starts_with("coracle")).count(), 1);
    }
}
